//! Records that AMQP clients published in transactions: batches of one record, whose offset is not told.

use stafett_model::Durability;

use super::{Ledger, State};
use crate::world::Finding;

impl Ledger {
    /// True if a record was read.
    pub fn was_seen(&self, batch: usize) -> bool {
        let batch = self.batches.get(batch);
        batch.is_some_and(|batch| matches!(batch.state, State::Acknowledged { .. }))
    }

    /// True if a record is in its log, `None` if it may have been deleted.
    pub fn is_message_there(&self, batch: usize) -> Option<bool> {
        let batch = self.batches.get(batch)?;
        match batch.state {
            State::Acknowledged { .. } | State::Somewhere => Some(true),
            State::Unknown | State::Never => (batch.date_ms >= self.expired_ms).then_some(false),
        }
    }

    pub fn set_level(&mut self, batch: usize, level: Durability) {
        if let Some(batch) = self.batches.get_mut(batch) {
            batch.level = level;
        }
    }

    /// Records that a record is stored.
    pub fn on_message_stored(&mut self, number: usize) -> Result<(), Finding> {
        let expired_ms = self.expired_ms;
        let Some(batch) = self.batches.get_mut(number) else {
            return Ok(());
        };
        match batch.state {
            State::Never if batch.date_ms >= expired_ms => Err(Finding(format!(
                "record {number} is of a committed transaction and is not there: {batch:?}"
            ))),
            State::Unknown => {
                batch.state = State::Somewhere;
                Ok(())
            }
            State::Never | State::Somewhere | State::Acknowledged { .. } => Ok(()),
        }
    }

    /// Records that a record never was stored.
    pub fn on_message_dropped(&mut self, number: usize) -> Result<(), Finding> {
        let Some(batch) = self.batches.get_mut(number) else {
            return Ok(());
        };
        if let State::Acknowledged { .. } | State::Somewhere = batch.state {
            return Err(Finding(format!(
                "record {number} is of a transaction that was rolled back, and is there: {batch:?}"
            )));
        }
        batch.state = State::Never;
        Ok(())
    }

    /// Records that the append of records may not have survived a failure.
    pub fn doubt_messages(&mut self, batches: Vec<usize>) {
        for number in batches {
            if let Some(batch) = self.batches.get_mut(number) {
                batch.state = State::Unknown;
            }
        }
    }
}
