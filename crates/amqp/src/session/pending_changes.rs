//! Changes of exchanges and bindings that are in force but not answered yet. A client that binds many queues
//! at once does not wait for each answer; so bindings that arrive together wait together, and any other frame
//! is executed behind the answers.

use stafett_amqp_wire::methods::{exchange, queue};
use stafett_amqp_wire::{Frame, FrameKind, Method};
use stafett_store::{NotStored, Stored};

use super::dispatch::method_id;
use super::{ConnectionEnd, Session};
use crate::error;
use crate::exception::MethodId;
use crate::operation::Operation;

const QUEUE_BIND: MethodId = (50, 20);
const EXCHANGE_BIND: MethodId = (40, 30);

/// A change that is in force; its client is answered once it is stored.
#[derive(Debug)]
pub(crate) struct PendingChange {
    channel: u16,
    /// `None` if all changes before it have to be stored, because an earlier one had the same effect.
    pub stored: Option<Stored>,
    reply: ChangeReply,
}

/// The method that answers.
#[derive(Debug, Clone, Copy)]
pub(super) enum ChangeReply {
    ExchangeDeclared,
    ExchangeDeleted,
    ExchangeBound,
    ExchangeUnbound,
    QueueBound,
    QueueUnbound,
    /// The queue did not exist.
    QueueDeleted,
}

impl Session {
    /// Answers a change once it is stored, unless the client expects no answer.
    pub(super) fn answer_when_stored(
        &mut self,
        channel: u16,
        stored: Option<Stored>,
        no_wait: bool,
        reply: ChangeReply,
    ) {
        if !no_wait {
            self.pending_changes.push_back(PendingChange {
                channel,
                stored,
                reply,
            });
        }
    }

    /// Returns the next operation on the way to a state in which all changes are answered.
    pub(super) fn await_changes(&mut self) -> Option<Operation> {
        self.pending_changes.pop_front().map(Operation::AwaitStored)
    }

    /// Answers the client of a change.
    pub(super) fn on_stored(
        &mut self,
        change: &PendingChange,
        stored: Result<(), NotStored>,
    ) -> Result<(), ConnectionEnd> {
        let channel = self.channels.get(&change.channel);
        if self.closing || channel.is_none_or(|channel| channel.closing) {
            return Ok(());
        }
        let (answer, to, what) = change.reply.describe();
        match stored {
            Ok(()) => self.out.send(change.channel, answer),
            Err(not_stored) => {
                let exception = error::not_stored(&not_stored, what).caused_by(to);
                self.fail(change.channel, exception)?;
            }
        }
        Ok(())
    }
}

impl ChangeReply {
    /// Returns the answer, the method that it answers, and the name of the change in an error.
    fn describe(self) -> (Method, MethodId, &'static str) {
        match self {
            Self::ExchangeDeclared => (exchange::DeclareOk {}.into(), (40, 10), "the change"),
            Self::ExchangeDeleted => (exchange::DeleteOk {}.into(), (40, 20), "the change"),
            Self::ExchangeBound => (exchange::BindOk {}.into(), EXCHANGE_BIND, "the binding"),
            Self::ExchangeUnbound => (exchange::UnbindOk {}.into(), (40, 40), "the change"),
            Self::QueueBound => (queue::BindOk {}.into(), QUEUE_BIND, "the binding"),
            Self::QueueUnbound => (queue::UnbindOk {}.into(), (50, 50), "the change"),
            Self::QueueDeleted => {
                let answer = queue::DeleteOk { message_count: 0 };
                (answer.into(), (50, 40), "the change")
            }
        }
    }
}

/// Returns true if a frame is a further binding.
pub(super) fn is_bind(frame: &Frame) -> bool {
    FrameKind::of(frame.kind) == Some(FrameKind::Method)
        && matches!(method_id(&frame.payload), QUEUE_BIND | EXCHANGE_BIND)
}
