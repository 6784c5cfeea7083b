//! Isolation of messages that were delivered often (KIP-932): one that cannot be processed must not take its
//! neighbours along until none of them may be delivered any more.
//!
//! ```text
//! deliveries so far:   0 … half the limit     … limit - 1
//! taken together:      all                    half, a quarter, …   one
//! ```
//!
//! That is half of the messages that were taken together with it at its first delivery. Pure: asked about
//! each message of a partition that a member takes at once, in order.

use std::collections::BTreeMap;
use std::ops::Range;

/// Fewest deliveries from which on a message is isolated.
const DELIVERIES_MIN: u32 = 2;
/// Number of halvings after which messages are taken one by one.
const ALONE: u32 = u32::MAX;

/// Bound on the messages that are taken together.
#[derive(Debug)]
pub(super) struct Throttle {
    deliveries_max: u32,
    taken: Taken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Nothing,
    /// Only messages that are not isolated.
    Free,
    /// Isolated messages; this many more may be taken.
    Isolated(u64),
}

impl Throttle {
    pub(super) fn new(deliveries_max: u32) -> Self {
        Self {
            deliveries_max,
            taken: Taken::Nothing,
        }
    }

    /// Returns true if a message may be taken together with those before it. `deliveries` is the number so
    /// far, `neighbours` the number of messages with which it was taken first.
    pub(super) fn admits(&mut self, deliveries: u32, neighbours: impl FnOnce() -> u64) -> bool {
        let halvings = self.halvings(deliveries);
        let taken = match (self.taken, halvings) {
            (Taken::Nothing | Taken::Free, None) => Some(Taken::Free),
            (Taken::Nothing, Some(ALONE)) => Some(Taken::Isolated(0)),
            (Taken::Nothing, Some(halvings)) => {
                let bound = neighbours().checked_shr(halvings).unwrap_or(0);
                Some(Taken::Isolated(bound.saturating_sub(1)))
            }
            (Taken::Isolated(left @ 1..), Some(halvings)) if halvings != ALONE => {
                Some(Taken::Isolated(left - 1))
            }
            (Taken::Free | Taken::Isolated(_), _) => None,
        };
        self.taken = taken.unwrap_or(Taken::Isolated(0));
        taken.is_some()
    }

    /// Returns true if no more messages may be taken.
    pub(super) fn is_closed(&self) -> bool {
        self.taken == Taken::Isolated(0)
    }

    /// Returns how often the number of messages that are taken together is halved; `None` if there is no
    /// bound.
    fn halvings(&self, deliveries: u32) -> Option<u32> {
        let from = self.deliveries_max.div_ceil(2).max(DELIVERIES_MIN);
        let halvings = deliveries.checked_sub(from)? + 1;
        let is_last = deliveries + 1 >= self.deliveries_max;
        Some(if is_last { ALONE } else { halvings })
    }
}

/// Messages that were taken together at their first delivery, and came back: ranges without overlap.
#[derive(Debug, Default)]
pub(super) struct FirstTaken {
    /// Ends, by partition and first offset.
    ranges: BTreeMap<(u32, u64), u64>,
}

impl FirstTaken {
    /// Adds messages that come back after having been taken together, unless they were taken before.
    pub(super) fn add(&mut self, partition: u32, range: &Range<u64>) {
        if self.at(partition, range.start).is_none() {
            self.ranges.insert((partition, range.start), range.end);
        }
    }

    /// Returns the number of messages that were taken together with this one, and it.
    pub(super) fn neighbours(&self, partition: u32, offset: u64) -> Option<u64> {
        let range = self.at(partition, offset)?;
        Some(range.end - range.start)
    }

    fn at(&self, partition: u32, offset: u64) -> Option<Range<u64>> {
        let mut before = self.ranges.range((partition, 0)..=(partition, offset));
        let (&(_, start), &end) = before.next_back()?;
        (offset < end).then_some(start..end)
    }

    /// Forgets messages of a partition below an offset.
    pub(super) fn forget_below(&mut self, partition: u32, offset: u64) {
        while let Some((&key, _)) = self
            .ranges
            .range((partition, 0)..(partition, offset))
            .next()
            .filter(|(_, end)| **end <= offset)
        {
            self.ranges.remove(&key);
        }
    }

    /// Forgets all messages of a partition.
    pub(super) fn forget(&mut self, partition: u32) {
        self.forget_below(partition, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes messages with these delivery counts, of a batch. Returns the number taken together.
    fn taken(deliveries_max: u32, deliveries: &[u32]) -> usize {
        let mut throttle = Throttle::new(deliveries_max);
        let neighbours = deliveries.len() as u64;
        let mut all = deliveries.iter();
        all.by_ref()
            .take_while(|one| throttle.admits(**one, || neighbours))
            .count()
    }

    #[test]
    fn fewer_messages_are_taken_together_the_more_often_they_were_delivered() {
        let expected = [100, 100, 100, 50, 1];
        for (deliveries, expected) in (0..).zip(expected) {
            assert_eq!(taken(5, &[deliveries; 100]), expected, "{deliveries} of 5");
        }
        let expected = [100, 100, 100, 100, 100, 50, 25, 12, 6, 1];
        for (deliveries, expected) in (0..).zip(expected) {
            assert_eq!(taken(10, &[deliveries; 100]), expected, "{deliveries} of 10");
        }
    }

    #[test]
    fn isolated_messages_come_without_others() {
        assert_eq!(taken(5, &[0, 1, 2, 3, 0]), 3, "before the first one");
        assert_eq!(taken(5, &[3, 3, 0, 3, 3, 3, 3, 3]), 2);
        assert_eq!(taken(5, &[3, 4, 3, 3, 3, 3]), 1, "the last attempt is alone");
        assert_eq!(taken(5, &[4, 0]), 1);
        assert_eq!(taken(2, &[1; 10]), 10, "half of the limit is too early");
        assert_eq!(taken(3, &[2; 10]), 1);
    }

    #[test]
    fn messages_are_known_by_those_with_which_they_were_taken_first() {
        let mut first = FirstTaken::default();
        first.add(0, &(10..20));
        first.add(0, &(20..21));
        first.add(1, &(5..8));
        for again in [10..15, 15..20, 12..30] {
            first.add(0, &again);
        }
        let neighbours = |first: &FirstTaken, at| first.neighbours(0, at);
        let known = [9, 10, 19, 20, 21].map(|at| neighbours(&first, at));
        assert_eq!(known, [None, Some(10), Some(10), Some(1), None]);
        first.forget_below(0, 19);
        assert_eq!(neighbours(&first, 19), Some(10));
        first.forget_below(0, 20);
        assert_eq!((neighbours(&first, 19), neighbours(&first, 20)), (None, Some(1)));
        first.forget(0);
        assert_eq!((neighbours(&first, 20), first.neighbours(1, 7)), (None, Some(3)));
    }
}
