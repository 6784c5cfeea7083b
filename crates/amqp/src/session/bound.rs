//! Bindings that are in force but not answered yet. A client that binds many queues at once does not wait for
//! each answer; so the connection waits for all bindings that arrived together, once, before it executes any
//! other method.

use stafett_amqp_wire::methods::{exchange, queue};
use stafett_amqp_wire::{Frame, FrameKind};
use stafett_store::Stored;

use super::{End, Session, method_id};
use crate::error;

const QUEUE_BIND: (u16, u16) = (50, 20);
const EXCHANGE_BIND: (u16, u16) = (40, 30);

/// A binding that is in force; its client is answered once it is stored.
#[derive(Debug)]
pub(super) struct Bound {
    channel: u16,
    stored: Stored,
    answer: Answer,
}

/// The method that answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
    QueueBound,
    ExchangeBound,
}

impl Session {
    pub(super) fn answer_when_stored(&mut self, channel: u16, stored: Stored, answer: Answer) {
        self.bound.push(Bound {
            channel,
            stored,
            answer,
        });
    }

    /// Waits until all bindings are stored, and answers their clients.
    pub(super) async fn tell_bound(&mut self) -> Result<(), End> {
        if self.bound.is_empty() {
            return Ok(());
        }
        for bound in std::mem::take(&mut self.bound) {
            let stored = bound.stored.await;
            let channel = self.channels.get(&bound.channel);
            if self.closing || channel.is_none_or(|channel| channel.closing) {
                continue;
            }
            match (stored, bound.answer) {
                (Ok(()), Answer::QueueBound) => self.out.send(bound.channel, queue::BindOk {}),
                (Ok(()), Answer::ExchangeBound) => self.out.send(bound.channel, exchange::BindOk {}),
                (Err(not_stored), answer) => {
                    let exception = error::not_stored(&not_stored, "the binding").caused_by(answer.to());
                    self.fail(bound.channel, exception)?;
                }
            }
        }
        Ok(())
    }
}

impl Answer {
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
