//! Opening, closing and releasing of channels, and the methods of the class `channel`.

use bytes::Bytes;
use stafett_amqp_wire::methods::{Channel as ChannelMethod, channel as channel_class};
use stafett_amqp_wire::{Frame, FrameKind, Method, ReplyCode};

use super::channel::{Channel, SettleKind};
use super::dispatch::not_for_servers;
use super::{MethodError, Session};
use crate::exception::Exception;

impl Session {
    pub(super) async fn take_on_unopened_channel(
        &mut self,
        kind: FrameKind,
        number: u16,
        frame: Frame,
    ) -> Result<(), MethodError> {
        let method = if kind == FrameKind::Method {
            Some(Method::decode(frame.payload.clone()).map_err(Exception::from)?)
        } else {
            None
        };
        match method {
            Some(Method::Channel(ChannelMethod::Open(_))) => {
                if self.agreed.channels_max != 0
                    && self.channels.len() >= usize::from(self.agreed.channels_max)
                {
                    let max = self.agreed.channels_max;
                    let text = format!(
                        "number of channels opened ({}) has reached the negotiated channel_max ({max})",
                        self.channels.len()
                    );
                    return Err(Exception::not_allowed(text).into());
                }
                // Outstanding confirms of a closed channel with this number must not go to the new channel.
                self.settle_published().await?;
                self.channels.insert(number, Channel::default());
                self.context.metrics.channels.inc();
                self.out.send(number, channel_class::OpenOk::default());
                Ok(())
            }
            // It may still be in transit if both sides have closed the channel.
            Some(Method::Channel(ChannelMethod::CloseOk(_))) => Ok(()),
            _ => Err(Exception::new(ReplyCode::ChannelError, "expected 'channel.open'")
                .caused_by(method.map_or((0, 0), |method| method.id()))
                .into()),
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

    pub(super) async fn on_channel_method(
        &mut self,
        number: u16,
        method: ChannelMethod,
    ) -> Result<(), MethodError> {
        match method {
            ChannelMethod::Open(_) => {
                Err(Exception::new(ReplyCode::ChannelError, "second 'channel.open' seen").into())
            }
            ChannelMethod::Close(_) => {
                self.settle_published().await?;
                self.release_channel(number, false);
                self.out.send(number, channel_class::CloseOk {});
                Ok(())
            }
            ChannelMethod::FlowOk(_) => Ok(()),
            ChannelMethod::Flow(method) => {
                if !method.active {
                    return Err(Exception::new(ReplyCode::NotImplemented, "active=false").into());
                }
                self.out.send(number, channel_class::FlowOk { active: true });
                Ok(())
            }
            ChannelMethod::OpenOk(_) | ChannelMethod::CloseOk(_) => Err(not_for_servers()),
        }
    }

    pub(super) fn channel(&mut self, number: u16) -> Result<&mut Channel, MethodError> {
        self.channels
            .get_mut(&number)
            .ok_or_else(|| Exception::new(ReplyCode::ChannelError, "expected 'channel.open'").into())
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
