//! Bindings that are in force but not answered yet. A client that binds many queues at once does not wait for
//! each answer; so the connection waits for all bindings that arrived together, once, before it executes any
//! other method.

use stafett_amqp_wire::methods::{exchange, queue};
use stafett_amqp_wire::{Frame, FrameKind};
use stafett_store::Stored;

use super::dispatch::method_id;
use super::{ConnectionEnd, Session};
use crate::error;

const QUEUE_BIND: (u16, u16) = (50, 20);
const EXCHANGE_BIND: (u16, u16) = (40, 30);

/// A binding that is in force; its client is answered once it is stored.
#[derive(Debug)]
pub(super) struct PendingChange {
    channel: u16,
    stored: Stored,
    answer: ChangeReply,
}

/// The method that answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChangeReply {
    QueueBound,
    ExchangeBound,
}

impl Session {
    pub(super) fn answer_when_stored(&mut self, channel: u16, stored: Stored, answer: ChangeReply) {
        self.pending_changes.push(PendingChange {
            channel,
            stored,
            answer,
        });
    }

    /// Waits until all bindings are stored, and answers their clients.
    pub(super) async fn finish_changes(&mut self) -> Result<(), ConnectionEnd> {
        if self.pending_changes.is_empty() {
            return Ok(());
        }
        for pending in std::mem::take(&mut self.pending_changes) {
            let stored = pending.stored.await;
            let channel = self.channels.get(&pending.channel);
            if self.closing || channel.is_none_or(|channel| channel.closing) {
                continue;
            }
            match (stored, pending.answer) {
                (Ok(()), ChangeReply::QueueBound) => self.out.send(pending.channel, queue::BindOk {}),
                (Ok(()), ChangeReply::ExchangeBound) => self.out.send(pending.channel, exchange::BindOk {}),
                (Err(not_stored), answer) => {
                    let exception = error::not_stored(&not_stored, "the binding").caused_by(answer.to());
                    self.fail(pending.channel, exception)?;
                }
            }
        }
        Ok(())
    }
}

impl ChangeReply {
    /// Returns the method that is answered.
    fn to(self) -> (u16, u16) {
        match self {
            Self::QueueBound => QUEUE_BIND,
            Self::ExchangeBound => EXCHANGE_BIND,
        }
    }
}

/// Returns true if a frame is a further binding.
pub(super) fn is_bind(frame: &Frame) -> bool {
    FrameKind::of(frame.kind) == Some(FrameKind::Method)
        && matches!(method_id(&frame.payload), QUEUE_BIND | EXCHANGE_BIND)
}
