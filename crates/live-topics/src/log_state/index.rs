//! Index of the topics in the stretches of a partition: a client that catches up with a quiet topic skips the
//! other stretches.
//!
//! All topics of a prefix share a log. It is cut into stretches of some tens of KiB, and the index has the
//! sorted 32-bit keyed hashes of the topics in each. A stretch is learnt when it is delivered, or read to
//! catch up; unknown stretches are read. The index is in memory only and bounded: the oldest stretches are
//! forgotten first.

use std::collections::BTreeMap;

use stafett_model::Offset;

/// Messages at which a growing stretch is closed.
const STRETCH_MESSAGES: usize = 1024;
/// Bytes at which a growing stretch is closed.
const STRETCH_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Stretches by first offset, without overlap.
    stretches: BTreeMap<Offset, Stretch>,
    /// Stretch of the latest deliveries, still growing.
    growing: OpenStretch,
    entries: usize,
    entries_max: usize,
}

#[derive(Debug)]
struct Stretch {
    end: Offset,
    /// Sorted hashes of the topics, without duplicates.
    topics: Box<[u32]>,
}

#[derive(Debug, Default)]
struct OpenStretch {
    first: Offset,
    end: Offset,
    bytes: usize,
    topics: Vec<u32>,
}

impl Index {
    pub(crate) fn set_max(&mut self, entries: usize) {
        self.entries_max = entries;
    }

    /// Records a delivery: `first..end` has messages to exactly these topics.
    pub(crate) fn grow(&mut self, first: Offset, end: Offset, bytes: usize, topics: &[u32]) {
        let growing = &mut self.growing;
        if growing.end != first {
            *growing = OpenStretch {
                first,
                ..OpenStretch::default()
            };
        }
        growing.end = end;
        growing.bytes += bytes;
        growing.topics.extend_from_slice(topics);
        if growing.topics.len() >= STRETCH_MESSAGES || growing.bytes >= STRETCH_BYTES {
            let grown = std::mem::take(growing);
            self.growing.first = end;
            self.growing.end = end;
            self.add(grown.first, grown.end, grown.topics);
            self.bound();
        }
    }

    /// Records a reading: `first..end` has messages to exactly these topics. Stretches that are known or
    /// growing stay as they are.
    pub(crate) fn learn(&mut self, first: Offset, end: Offset, topics: &[(Offset, u32)]) {
        let end = if self.growing.topics.is_empty() {
            end
        } else {
            end.min(self.growing.first)
        };
        let mut at = first;
        while at < end {
            let known = self.stretches.range(..=at).next_back();
            if let Some((_, stretch)) = known.filter(|(_, stretch)| stretch.end > at) {
                at = stretch.end;
                continue;
            }
            let next = self.stretches.range(at..end).next();
            let stop = next.map_or(end, |(first, _)| *first);
            let inside = topics.iter().filter(|(offset, _)| (at..stop).contains(offset));
            self.add(at, stop, inside.map(|(_, topic)| *topic).collect());
            at = stop;
        }
        self.bound();
    }

    fn add(&mut self, first: Offset, end: Offset, mut topics: Vec<u32>) {
        topics.sort_unstable();
        topics.dedup();
        self.entries += topics.len();
        let topics = topics.into();
        self.stretches.insert(first, Stretch { end, topics });
    }

    fn bound(&mut self) {
        while self.entries > self.entries_max {
            self.forget_first();
        }
    }

    /// Forgets stretches before an offset that the log no longer has.
    pub(crate) fn forget_below(&mut self, start: Offset) {
        while let Some((_, stretch)) = self.stretches.first_key_value()
            && stretch.end <= start
        {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        match self.stretches.pop_first() {
            Some((_, stretch)) => self.entries -= stretch.topics.len(),
            None => self.entries = 0,
        }
    }

    /// Returns the first offset in `at..limit` that may have a message to one of the topics, or `limit`.
    /// Examines at most `stretches_max` stretches.
    pub(crate) fn pass_over(
        &self,
        mut at: Offset,
        limit: Offset,
        topics: &[u32],
        stretches_max: usize,
    ) -> Offset {
        let first = self.stretches.range(..=at).next_back();
        let from = first.map_or(at, |(first, _)| *first);
        for (first, stretch) in self.stretches.range(from..).take(stretches_max) {
            if *first > at || at >= limit {
                break;
            }
            if stretch.end <= at {
                continue;
            }
            if topics
                .iter()
                .any(|topic| stretch.topics.binary_search(topic).is_ok())
            {
                break;
            }
            at = stretch.end;
        }
        at.min(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let mut index = Index::default();
        index.set_max(1000);
        index
    }

    fn pass_over(index: &Index, at: u64, topic: u32) -> u64 {
        index.pass_over(Offset(at), Offset(100), &[topic], 1000).0
    }

    fn learn(index: &mut Index, first: u64, end: u64, topics: &[(u64, u32)]) {
        let topics: Vec<_> = topics
            .iter()
            .map(|(offset, topic)| (Offset(*offset), *topic))
            .collect();
        index.learn(Offset(first), Offset(end), &topics);
    }

    #[test]
    fn stretches_without_the_topic_are_passed_over_and_unknown_ones_are_not() {
        let mut index = index();
        learn(&mut index, 10, 20, &[(10, 1), (19, 2)]);
        learn(&mut index, 20, 30, &[(25, 2)]);
        learn(&mut index, 40, 50, &[(49, 2)]);
        assert_eq!(pass_over(&index, 10, 1), 10);
        assert_eq!(
            pass_over(&index, 15, 3),
            30,
            "from the middle of one up to what is not known"
        );
        assert_eq!(pass_over(&index, 20, 1), 30);
        assert_eq!(pass_over(&index, 5, 3), 5);
        assert_eq!(pass_over(&index, 35, 3), 35);
        assert_eq!(pass_over(&index, 40, 3), 50);
        let limited = index.pass_over(Offset(40), Offset(45), &[3], 1000);
        assert_eq!(limited, Offset(45));
    }

    #[test]
    fn of_a_reading_that_meets_what_is_known_only_the_rest_is_learnt() {
        let mut index = index();
        learn(&mut index, 10, 20, &[(10, 1)]);
        learn(&mut index, 0, 30, &[(5, 2), (10, 7), (25, 3)]);
        for (at, topic, expected) in [
            (0, 2, 0),
            (0, 3, 20),
            (0, 1, 10),
            (0, 7, 30),
            (12, 1, 12),
            (6, 4, 30),
        ] {
            assert_eq!(pass_over(&index, at, topic), expected, "from {at} for {topic}");
        }
    }

    #[test]
    fn what_is_delivered_grows_into_stretches_without_holes() {
        let mut index = index();
        for offset in 0..3000 {
            let topic = u32::try_from(offset % 7).unwrap();
            index.grow(Offset(offset), Offset(offset + 1), 10, &[topic]);
        }
        let over = index.pass_over(Offset(0), Offset(5000), &[9], 1000);
        assert_eq!(
            over,
            Offset(2 * STRETCH_MESSAGES as u64),
            "the rest is still growing"
        );
        assert_eq!(index.entries, 14);
        learn(&mut index, 0, 3000, &[]);
        assert_eq!(pass_over(&index, 0, 9), 100);
        let over = index.pass_over(Offset(0), Offset(5000), &[9], 1000);
        assert_eq!(
            over,
            Offset(2 * STRETCH_MESSAGES as u64),
            "what grows is learnt by growing"
        );
        // After a gap a new stretch begins.
        index.grow(Offset(4000), Offset(6000), STRETCH_BYTES, &[1]);
        assert_eq!(
            index.pass_over(Offset(4000), Offset(7000), &[9], 1000),
            Offset(6000)
        );
        assert_eq!(
            index.pass_over(Offset(2500), Offset(7000), &[9], 1000),
            Offset(2500)
        );
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut index = index();
        index.set_max(3);
        learn(&mut index, 0, 10, &[(0, 1), (1, 1), (2, 2)]);
        learn(&mut index, 10, 20, &[(15, 3)]);
        assert_eq!(pass_over(&index, 0, 9), 20);
        learn(&mut index, 20, 30, &[(20, 4)]);
        assert_eq!(pass_over(&index, 0, 9), 0);
        assert_eq!((pass_over(&index, 10, 9), index.entries), (30, 2));
        index.forget_below(Offset(20));
        assert_eq!((pass_over(&index, 10, 9), pass_over(&index, 20, 9)), (10, 30));
    }
}
