//! Task time on the way through records.

use stafett_model::StoredRecord;

use crate::definition::TimeRules;
use crate::delivery::Mark;

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

/// Raises places to others.
pub(crate) fn raise(places: &mut [u64], others: &[u64]) {
    for (place, other) in places.iter_mut().zip(others) {
        *place = (*place).max(*other);
    }
}
