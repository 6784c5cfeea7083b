//! The memory of large bodies while they arrive.
//!
//! A connection that waits for memory holds none for another large body; otherwise two connections could wait
//! for each other.

use std::sync::Arc;

use stafett_amqp_wire::ReplyCode;
use stafett_net::Arrival;
use tokio::time::Instant;

use super::{MethodError, Session};
use crate::exception::Exception;
use crate::operation::{Done, Operation};

/// Result of reserving memory.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "lives for the length of one call")]
pub(super) enum Memory {
    Reserved(Arrival),
    /// To be done before memory is reserved again.
    Wait(Operation),
}

impl Session {
    /// Reserves memory for the beginning of a body.
    pub(super) fn begin_arrival(&mut self, number: u16, bytes: u64) -> Result<Memory, MethodError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let reserved = match self.done.take() {
            Some(Done::Reserved(reserved)) => Some(reserved.map_err(|error| no_memory(&error))?),
            _ => Arrival::try_begin(&self.budget, bytes),
        };
        let Some(mut memory) = reserved else {
            let operation = self.before_waiting(number)?;
            let reserve = || Operation::Reserve(Arc::clone(&self.budget), bytes);
            return Ok(Memory::Wait(operation.unwrap_or_else(reserve)));
        };
        let due = memory.window_end(Instant::now(), 0);
        self.arrivals_due = Some(self.arrivals_due.map_or(due, |at| at.min(due)));
        Ok(Memory::Reserved(memory))
    }

    /// Reserves memory for `bytes` more of a body. Returns the operation to be done before, if any.
    pub(super) fn grow_arrival(
        &mut self,
        number: u16,
        bytes: usize,
    ) -> Result<Option<Operation>, MethodError> {
        if let Some(Done::Reserved(reserved)) = self.done.take() {
            let memory = reserved.map_err(|error| no_memory(&error))?;
            self.channel(number)?.assembly.put_memory_back(memory);
        }
        while self.channel(number)?.assembly.lacks_memory(bytes) {
            let Some(memory) = self.channel(number)?.assembly.memory() else {
                return Ok(None);
            };
            if memory.try_grow() {
                continue;
            }
            if let Some(operation) = self.before_waiting(number)? {
                return Ok(Some(operation));
            }
            return Ok(self.channel(number)?.assembly.take_memory().map(Operation::Grow));
        }
        Ok(None)
    }

    /// Returns the operation to be done before memory is waited for: published messages hold memory too.
    fn before_waiting(&mut self, number: u16) -> Result<Option<Operation>, MethodError> {
        if let Some(operation) = self.await_publishes()? {
            return Ok(Some(operation));
        }
        self.turn_ms = None;
        let mut others = self.channels.iter_mut().filter(|(other, _)| **other != number);
        if others.any(|(_, channel)| channel.assembly.memory().is_some()) {
            let text = "no memory for two large bodies on one connection at once";
            return Err(Exception::new(ReplyCode::ResourceError, text).into());
        }
        Ok(None)
    }

    /// Returns the time of the next [`Self::look_at_arrivals`].
    pub(crate) fn arrivals_due(&self) -> Option<Instant> {
        self.arrivals_due
    }

    /// Closes the connection if a large body stalls while other connections wait for memory.
    pub(crate) fn look_at_arrivals(&mut self) -> Result<(), super::ConnectionEnd> {
        let now = Instant::now();
        if self.arrivals_due.is_none_or(|due| now < due) {
            return Ok(());
        }
        let mut late = false;
        let mut due: Option<Instant> = None;
        for channel in self.channels.values_mut() {
            let (gives_way, again) = channel.assembly.gives_way(now);
            late |= gives_way;
            due = due.into_iter().chain(again).min();
        }
        self.arrivals_due = due;
        if !late || self.closing {
            return Ok(());
        }
        tracing::warn!(
            user = %self.agreed.user,
            "a connection is closed: a large message did not come, while others waited for memory"
        );
        let text = "a large message did not come in time, while others waited for memory";
        self.fail(0, Exception::new(ReplyCode::ResourceError, text))
    }
}

fn no_memory(error: &stafett_net::BudgetError) -> MethodError {
    Exception::new(ReplyCode::ResourceError, error.to_string()).into()
}
