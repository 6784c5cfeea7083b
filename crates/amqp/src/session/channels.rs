//! Opening, closing and releasing of channels, and the methods of the class `channel`.

use bytes::Bytes;
use stafett_amqp_wire::methods::{Channel as ChannelMethod, channel as channel_class};
use stafett_amqp_wire::{FrameKind, Method, ReplyCode};

use super::channel::{Channel, SettleKind};
use super::dispatch::not_for_servers;
use super::held::Flow;
use super::{MethodError, Session};
use crate::exception::Exception;

const NOT_OPEN: &str = "expected 'channel.open'";

impl Session {
    pub(super) fn take_on_unopened_channel(
        &mut self,
        kind: FrameKind,
        number: u16,
        payload: Bytes,
    ) -> Result<(), MethodError> {
        let not_open = Exception::new(ReplyCode::ChannelError, NOT_OPEN);
        if kind != FrameKind::Method {
            return Err(not_open.into());
        }
        let method = Method::decode(payload).map_err(Exception::from)?;
        if matches!(method, Method::Channel(ChannelMethod::Open(_))) {
            self.on_method(number, method)
        } else if matches!(method, Method::Channel(ChannelMethod::CloseOk(_))) {
            // It may still be in transit if both sides have closed the channel.
            Ok(())
        } else {
            Err(not_open.caused_by(method.id()).into())
        }
    }

    pub(super) fn take_on_closing_channel(&mut self, kind: FrameKind, number: u16, payload: Bytes) {
        if kind != FrameKind::Method {
            return;
        }
        match Method::decode(payload) {
            Ok(Method::Channel(ChannelMethod::CloseOk(_))) => {
                self.remove_channel(number);
            }
            Ok(Method::Channel(ChannelMethod::Close(_))) => {
                self.remove_channel(number);
                self.out.send(number, channel_class::CloseOk {});
            }
            Ok(_) | Err(_) => {}
        }
    }

    pub(super) fn on_channel_method(
        &mut self,
        number: u16,
        method: &ChannelMethod,
    ) -> Result<Flow, MethodError> {
        match method {
            ChannelMethod::Open(_) => return self.open_channel(number),
            ChannelMethod::Close(_) => {
                if let Some(operation) = self.await_publishes()? {
                    return Ok(Flow::Hold(operation));
                }
                self.release_channel(number, false);
                self.out.send(number, channel_class::CloseOk {});
            }
            ChannelMethod::FlowOk(_) => {}
            ChannelMethod::Flow(method) => {
                if !method.active {
                    return Err(Exception::new(ReplyCode::NotImplemented, "active=false").into());
                }
                self.out.send(number, channel_class::FlowOk { active: true });
            }
            ChannelMethod::OpenOk(_) | ChannelMethod::CloseOk(_) => return Err(not_for_servers()),
        }
        Ok(Flow::Continue)
    }

    fn open_channel(&mut self, number: u16) -> Result<Flow, MethodError> {
        if self.channels.contains_key(&number) {
            return Err(Exception::new(ReplyCode::ChannelError, "second 'channel.open' seen").into());
        }
        let (open, max) = (self.channels.len(), self.agreed.channels_max);
        if max != 0 && open >= usize::from(max) {
            let text =
                format!("number of channels opened ({open}) has reached the negotiated channel_max ({max})");
            return Err(Exception::not_allowed(text).into());
        }
        // Outstanding confirms of a closed channel with this number must not go to the new channel.
        if let Some(operation) = self.await_publishes()? {
            return Ok(Flow::Hold(operation));
        }
        let tallied = if self.agreed.is_internal {
            None
        } else {
            Some(self.context.admit_channel(&self.agreed)?)
        };
        let channel = Channel {
            tallied,
            ..Channel::default()
        };
        self.channels.insert(number, channel);
        self.context.metrics.channels.inc();
        self.context.metrics.channels_opened.inc();
        self.out.send(number, channel_class::OpenOk::default());
        Ok(Flow::Continue)
    }

    pub(super) fn channel(&mut self, number: u16) -> Result<&mut Channel, MethodError> {
        self.channels
            .get_mut(&number)
            .ok_or_else(|| Exception::new(ReplyCode::ChannelError, NOT_OPEN).into())
    }

    pub(super) fn remove_channel(&mut self, number: u16) {
        if self.channels.remove(&number).is_some() {
            self.context.metrics.channels.dec();
        }
    }

    /// Releases everything that a channel holds. With `stays`, the channel ignores frames until the client
    /// confirms that it is closed.
    pub(super) fn release_channel(&mut self, number: u16, stays: bool) {
        let Some(channel) = self.channels.remove(&number) else {
            return;
        };
        self.flush_settlements();
        self.release_deliveries(channel);
        if stays {
            let closing = Channel {
                closing: true,
                ..Channel::default()
            };
            self.channels.insert(number, closing);
        } else {
            self.context.metrics.channels.dec();
        }
    }

    /// Ends the consumers of a channel and requeues its unsettled deliveries.
    pub(super) fn release_deliveries(&mut self, mut channel: Channel) {
        // Unsettled deliveries go back before those in the outbox: other consumers get all of them in order.
        channel.hold_consumers();
        for unsettled in channel.take_unsettled() {
            self.settle(unsettled, SettleKind::Requeue);
        }
        self.flush_settlements();
        for (_, tagged) in channel.consumers.drain() {
            self.token_owners.remove(&tagged.token);
            drop(tagged.consumer);
        }
        if let Some(replies) = channel.replies.take() {
            self.context.replies.forget(&replies.address);
        }
    }
}
