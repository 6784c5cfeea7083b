//! Task time and places on the way through records.

use bytes::Bytes;
use stafett_model::StoredRecord;

use crate::definition::TimeRules;
use crate::entry::Position;
use crate::mark::Mark;

/// Task time while records are read.
pub(crate) struct Pace {
    /// True while a topic waits of which nothing is known.
    pub(crate) is_held: bool,
    /// Highest timestamp, per input.
    pub(crate) high: Vec<Option<i64>>,
    pub(crate) time: i64,
}

impl Pace {
    /// Takes a record. Returns true if it is late.
    pub(crate) fn take(
        &mut self,
        rules: TimeRules,
        mark: &Mark,
        input: usize,
        record: &StoredRecord,
    ) -> bool {
        let is_early = rules.of_records && record.timestamp < self.time;
        if let Some(high) = self.high.get_mut(input) {
            *high = (*high).max(Some(record.timestamp));
        }
        if let Some(lowest) = self.lowest().filter(|_| rules.of_records) {
            self.time = self.time.max(lowest.saturating_sub_unsigned(rules.grace_ms));
        }
        is_early && !mark.is_before(input, record) || mark.is_finished(record)
    }

    /// Returns the lowest of the inputs' highest timestamps.
    pub(crate) fn lowest(&self) -> Option<i64> {
        self.high
            .iter()
            .flatten()
            .min()
            .copied()
            .filter(|_| !self.is_held)
    }
}

/// Lowest places that a commit may name, per input. The broker stores places without a commit, of which the
/// worker knows nothing: between the lowest and the stored place there is no record for the task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lowest {
    next: Range,
    safe: Range,
}

#[derive(Debug, Clone, Default)]
struct Range {
    lowest: Vec<u64>,
    stored: Vec<u64>,
}

impl Lowest {
    pub(crate) fn of(position: &Position) -> Self {
        let range = |places: &Vec<u64>| Range {
            lowest: places.clone(),
            stored: places.clone(),
        };
        Self {
            next: range(&position.next),
            safe: range(&position.safe),
        }
    }

    /// Takes a position that was stored without a commit of the worker.
    pub(crate) fn on_passed(&mut self, position: &Position) {
        self.next.stored.clone_from(&position.next);
        self.safe.stored.clone_from(&position.safe);
    }

    /// Takes a position that a commit has stored.
    pub(crate) fn on_commit(&mut self, position: &Position) {
        self.next.on_commit(&position.next);
        self.safe.on_commit(&position.safe);
    }

    /// Returns the lowest `next` of an input, of which this one is stored.
    pub(crate) fn next(&self, input: usize, stored: u64) -> u64 {
        self.next.lowest(input, stored)
    }

    /// Returns the lowest `safe` of an input, of which this one is stored.
    pub(crate) fn safe(&self, input: usize, stored: u64) -> u64 {
        self.safe.lowest(input, stored)
    }
}

impl Range {
    fn lowest(&self, input: usize, stored: u64) -> u64 {
        self.lowest
            .get(input)
            .map_or(stored, |lowest| stored.min(*lowest))
    }

    fn on_commit(&mut self, places: &[u64]) {
        let known = self.lowest.iter_mut().zip(&mut self.stored);
        for ((lowest, stored), place) in known.zip(places) {
            if *place > *stored {
                *lowest = *place;
            }
            *stored = *place;
        }
    }
}

/// Raises places to others.
pub(crate) fn raise(places: &mut [u64], others: &[u64]) {
    for (place, other) in places.iter_mut().zip(others) {
        *place = (*place).max(*other);
    }
}

/// Returns the bytes of a record that count in a delivery.
pub(crate) fn size(record: &StoredRecord) -> usize {
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    let headers = record
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len));
    length(&record.key) + length(&record.value) + headers.sum::<usize>()
}
