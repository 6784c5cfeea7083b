//! Fast path for messages that differ from the previous one only in their bodies, which are most of a
//! publisher's messages: they are recognized in the receive buffer, without decoding, checks or lookups. So
//! are messages behind one that is refused because it waited too long, as a refusal has to be cheap.
//!
//! The checks of the previous message hold while that message is still gathered: any event that could change
//! their result (a closed channel, a deleted exchange, a new turn) first hands the gathered messages to the
//! broker.

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::publication::{self, PublicationRef};
use stafett_messaging::Publish;
use stafett_model::Message;

use super::channel::Mode;
use super::confirms::PublishOrigin;
use super::replies::is_address;
use super::{LARGE_BODY_BYTES, Session};

/// Facts about the last gathered message that the message itself does not hold.
#[derive(Debug)]
pub(super) struct RepeatPublish {
    pub channel: u16,
    pub mandatory: bool,
    /// As received.
    pub properties: Bytes,
    /// The message without its body, if it was refused: those behind it to its exchange are, too.
    pub refused: Option<Message>,
}

impl RepeatPublish {
    /// True if a message is treated as the last one was: one to the same place, or if that one had waited too
    /// long, any of its channel to the same exchange.
    fn is(&self, found: &PublicationRef<'_>, like: &Message, is_refused: bool) -> bool {
        let is_like = || {
            found.mandatory == self.mandatory
                && found.routing_key == like.routing_key.as_bytes()
                && found.properties == self.properties
        };
        found.channel == self.channel
            && found.exchange == like.exchange.as_bytes()
            && if is_refused {
                !is_address(found.exchange, found.routing_key)
            } else {
                is_like()
            }
    }
}

impl Session {
    /// Takes all messages at the beginning of `buffer` that are treated as the last one was.
    pub(crate) fn publish_again(&mut self, buffer: &mut BytesMut) {
        let Some(again) = &self.repeat else { return };
        if self.closing || !self.pending_changes.is_empty() || self.space.is_short() {
            return;
        }
        let Some(channel) = self.channels.get_mut(&again.channel) else {
            return;
        };
        if channel.closing || channel.assembly.is_busy() {
            return;
        }
        let mut last_number = match &mut channel.mode {
            Mode::Plain => None,
            Mode::Confirms { last } => Some(last),
            Mode::Transactions(_) => return,
        };
        let Some(run) = self.gathered.last_mut() else {
            return;
        };
        let accepted = run.messages.last().map(|publish| Message {
            value: Bytes::new(),
            ..publish.message.clone()
        });
        let Some(like) = again.refused.clone().or(accepted) else {
            return;
        };
        let bytes_max = self.context.settings.message_bytes_max.min(LARGE_BODY_BYTES);
        let frame_max = self.agreed.frame_bytes_max;
        while let Some(found) = PublicationRef::first(buffer, frame_max)
            && again.is(&found, &like, run.is_refused)
            && found.body_bytes() as u64 <= bytes_max
        {
            let body = found.body();
            let number = last_number.as_mut().map(|last| {
                self.is_waited_for = true;
                **last += 1;
                **last
            });
            run.entries.push(PublishOrigin {
                channel: again.channel,
                number,
                mandatory: again.mandatory,
            });
            if run.is_refused {
                publication::skip(buffer, &body);
                continue;
            }
            run.messages.push(Publish::from(Message {
                value: publication::take(buffer, &body),
                ..like.clone()
            }));
        }
    }
}
