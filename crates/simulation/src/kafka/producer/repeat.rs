//! Acknowledged batches that are sent again, as after a lost answer or by a network that duplicates.
//!
//! The broker knows a producer's last five batches in a log, unless they were lost: it answers with their
//! offset.

use super::{Kept, Producer, Waiting, code, request_of};
use crate::ledger::{Ledger, LogKey, State};
use crate::server::Server;
use crate::world::{Broken, Finding, World};

/// Batches of a producer in a log that the broker remembers.
const KNOWN: usize = 5;

/// An acknowledged batch.
#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) number: usize,
    pub(super) log: LogKey,
    kept: Kept,
}

impl Producer {
    /// Stores an acknowledged batch for later repetition.
    pub(super) fn remember(&mut self, number: usize, kept: Kept, ledger: &Ledger) {
        if let Some(batch) = ledger.batches.get(number) {
            let log = batch.log;
            self.done.push_back(Done { number, log, kept });
        }
        if self.done.len() > 4 * KNOWN {
            self.done.pop_front();
        }
    }

    /// Forgets everything that was sent: all topics are new.
    pub(crate) fn forget_all(&mut self) {
        self.kept.clear();
        self.begin_anew();
    }

    /// Chooses one of its last batches that the broker must know.
    fn repetition(&self, ledger: &Ledger, back: u8) -> Option<usize> {
        let known = |number: usize| {
            let batch = ledger.batches.get(number)?;
            let is_there = matches!(batch.state, State::Acknowledged { .. });
            // Later batches to the log, regardless of their outcome.
            let since = ledger.batches.iter().skip(number + 1);
            let since = since.filter(|later| later.log == batch.log && later.group == batch.group);
            (is_there && since.count() < KNOWN).then_some(number)
        };
        let mine = self.done.iter().rev().filter(|done| done.kept.id == self.id);
        let candidates: Vec<_> = mine.filter_map(|done| known(done.number)).collect();
        let index = usize::from(back).checked_rem(candidates.len())?;
        candidates.get(index).copied()
    }

    /// Handles the refusal of a batch that was acknowledged before.
    pub(super) fn on_refused_repetition(
        &mut self,
        number: usize,
        code: i16,
        may_refuse: bool,
    ) -> Result<(), Finding> {
        let sent = self.done.iter().find(|done| done.number == number);
        match code {
            // Times are checked first, as in Kafka.
            code::INVALID_TIMESTAMP if sent.is_some_and(|done| done.kept.is_too_late()) => Ok(()),
            code::STORAGE if may_refuse => Ok(()),
            // A batch that it sent before was lost.
            code::OUT_OF_ORDER if self.is_disturbed => Ok(()),
            code => Err(Finding(format!(
                "batch {number} was acknowledged, and is refused with code {code} when it comes again"
            ))),
        }
    }
}

impl World {
    /// Sends an acknowledged batch again.
    pub fn repeat(&mut self, server: &mut Server, number: u8, back: u8) -> Result<(), Broken> {
        let group = self.kafka.new_group();
        let ledger = &mut self.kafka.ledger;
        let Some(producer) = self.kafka.producers.get_mut(usize::from(number)) else {
            return Ok(());
        };
        let chosen = producer.repetition(ledger, back);
        let is_usable = !producer.is_disturbed
            && producer.waiting.len() < super::IN_FLIGHT_MAX
            && producer.again.is_empty();
        let Some(batch) = chosen.filter(|_| is_usable) else {
            return Ok(());
        };
        if let Some(done) = producer.done.iter().find(|done| done.number == batch) {
            let request = request_of(done.log, done.kept.bytes.clone());
            producer.connect(server, group)?.send(9, &request);
            producer.waiting.push_back(Waiting::Batch(batch));
            self.trace
                .note(|| format!("batch {batch} was acknowledged and is sent again"));
        }
        Ok(())
    }
}
