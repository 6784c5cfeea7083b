//! Input that waits for an operation.
//!
//! ```text
//! input ──▶ executed ──▶ done
//!              │ ▲
//!    operation ▼ │ executed again, with the outcome
//!             held
//! ```
//!
//! An input is held as a whole: it has changed nothing that executing it again would repeat. While it is held,
//! nothing else is executed.

use stafett_amqp_wire::{Frame, Method};

use super::{ConnectionEnd, Session};
use crate::exception::Exception;
use crate::operation::{Done, Operation};

/// Result of executing a method.
#[derive(Debug)]
pub(super) enum Flow {
    Continue,
    /// The method is executed again once the operation is done.
    Hold(Operation),
}

/// Input to be executed again.
#[derive(Debug)]
pub(super) enum Held {
    /// A frame behind changes that are not answered yet.
    Frame(Frame),
    Method(u16, Method),
    /// An exception of a channel, behind such changes.
    Exception(u16, Exception),
    EndOfTurn,
}

impl Session {
    /// Takes the operation that has to be performed before the next input.
    pub(crate) fn next_operation(&mut self) -> Option<Operation> {
        self.operation.take()
    }

    pub(crate) async fn perform(&mut self) -> Result<(), ConnectionEnd> {
        while let Some(operation) = self.next_operation() {
            let done = operation.perform(&self.context).await;
            self.on_done(done).await?;
        }
        Ok(())
    }

    /// Begins an operation; `held` is executed once it is done.
    pub(super) fn hold(&mut self, operation: Operation, held: Held) {
        debug_assert!(self.operation.is_none() && self.held.is_none(), "one at a time");
        self.operation = Some(operation);
        self.held = Some(held);
    }

    /// Takes the outcome of an operation, and executes the input that waited for it.
    pub(crate) async fn on_done(&mut self, done: Done) -> Result<(), ConnectionEnd> {
        match done {
            Done::Published(batch, outcomes) => self.send_confirms(&batch.origins, &outcomes)?,
            Done::Ready => {}
            Done::Stored(change, stored) => self.on_stored(&change, stored)?,
            outcome @ (Done::Declared(..)
            | Done::QueueDeleted(_)
            | Done::TopicCreated(_)
            | Done::TopicDeleted(_)
            | Done::Taken(..)) => self.done = Some(outcome),
        }
        match self.held.take() {
            None => Ok(()),
            Some(Held::Frame(frame)) => self.execute_frame(frame).await,
            Some(Held::Exception(number, exception)) => self.conclude(number, Err(exception.into())),
            Some(Held::EndOfTurn) => self.finish_turn(),
            Some(Held::Method(number, method)) => {
                let executed = self.on_method(number, method).await;
                self.conclude(number, executed)
            }
        }
    }
}
