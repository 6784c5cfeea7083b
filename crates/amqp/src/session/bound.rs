//! Bindings that are made and not told of yet. A client that binds much at once does not wait for each
//! answer, and so neither does the connection: it waits for all that came together, once, before it does
//! anything else.

use stafett_amqp_wire::methods::{exchange, queue};
use stafett_amqp_wire::{Frame, FrameKind};
use stafett_store::Stored;

use super::{End, Session, method_id};
use crate::error;

const QUEUE_BIND: (u16, u16) = (50, 20);
const EXCHANGE_BIND: (u16, u16) = (40, 30);

/// A binding that is in force, and whose client is told once it is stored.
#[derive(Debug)]
pub(super) struct Bound {
    channel: u16,
    stored: Stored,
    answer: Answer,
}

/// What the client is told.
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

    /// Waits for all bindings, and tells their clients.
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
    /// The method that it answers.
    fn to(self) -> (u16, u16) {
        match self {
            Self::QueueBound => QUEUE_BIND,
            Self::ExchangeBound => EXCHANGE_BIND,
        }
    }
}

/// Whether a frame adds to what is waited for together.
pub(super) fn is_bind(frame: &Frame) -> bool {
    FrameKind::of(frame.kind) == Some(FrameKind::Method)
        && matches!(method_id(&frame.payload), QUEUE_BIND | EXCHANGE_BIND)
}
