//! Input that waits for an operation.
//!
//! ```text
//! input ──▶ executed ──▶ done
//!              │ ▲
//!    operation ▼ │ executed again, with the outcome
//!             held
//! ```
//!
//! An input is held as a whole: before it waits, it has changed nothing that executing it again would
//! repeat. Nothing else is executed meanwhile.

use bytes::Bytes;
use stafett_amqp_wire::{ContentHeader, Frame, Method};

use super::{ConnectionEnd, Session};
use crate::exception::Exception;
use crate::operation::{Done, Operation};

/// Result of executing a method.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each `basic.get`"
)]
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
    Header(u16, ContentHeader),
    Body(u16, Bytes),
    EndOfTurn,
    /// The end of the connection, with the reason of an operator.
    Stop(Option<Box<str>>),
}

impl Session {
    /// Returns true if an operation has to be performed before the next input.
    pub(crate) fn is_waiting(&self) -> bool {
        self.operation.is_some()
    }

    /// Takes the operation that has to be performed before the next input.
    pub(crate) fn next_operation(&mut self) -> Option<Operation> {
        self.operation.take()
    }

    /// Begins an operation; `held` is executed once it is done.
    pub(super) fn hold(&mut self, operation: Operation, held: Held) {
        debug_assert!(self.operation.is_none() && self.held.is_none(), "one at a time");
        self.operation = Some(operation);
        self.held = Some(held);
    }

    /// Takes the outcome of an operation, and executes the input that waited for it.
    pub(crate) fn on_done(&mut self, done: Done) -> Result<(), ConnectionEnd> {
        match done {
            Done::Published(batch, outcomes) => self.send_confirms(&batch.origins, &outcomes)?,
            Done::Ready => {}
            Done::Stored(change, stored) => self.on_stored(&change, stored)?,
            outcome @ (Done::Committed(..)
            | Done::Declared(..)
            | Done::QueueDeleted(_)
            | Done::TopicCreated(_)
            | Done::TopicDeleted(_)
            | Done::Reserved(_)
            | Done::Taken(..)) => self.done = Some(outcome),
        }
        let executed = match self.held.take() {
            None => Ok(()),
            Some(Held::Frame(frame)) => self.on_frame(frame),
            Some(Held::Exception(number, exception)) => self.conclude(number, Err(exception.into())),
            Some(Held::Header(number, header)) => {
                let executed = self.on_header(number, header);
                self.conclude(number, executed)
            }
            Some(Held::Body(number, piece)) => {
                let executed = self.on_body(number, piece);
                self.conclude(number, executed)
            }
            Some(Held::Stop(reason)) => self.stop(reason.as_deref()),
            Some(Held::EndOfTurn) => self.finish_turn(),
            Some(Held::Method(number, method)) => {
                let executed = self.on_method(number, method);
                self.conclude(number, executed)
            }
        };
        if self.operation.is_none() {
            // An input that was refused meanwhile has no use for it.
            self.done = None;
        }
        executed
    }
}
