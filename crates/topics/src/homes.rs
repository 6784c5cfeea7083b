//! Homes of partitions where a cluster has several cells, each with a journal of its own.
//!
//! A topic lies in the first cell, or is spread over all: then its partitions lie in blocks of consecutive
//! ones, a block in each cell. All cells know the topics of the first one, and those that are spread. A
//! partition that lies in another cell has a log id that no journal gives:
//!
//! ```text
//! 16 bits: cell + 1 | 28 bits: the lowest of the topic's id | 20 bits: partition
//! ```

use std::ops::Range;

use stafett_model::LogId;

use crate::catalog::PARTITIONS_MAX;
use crate::topic::{Topic, TopicId};

/// Reason why a topic is refused where all of its partitions have to lie in one cell.
pub const SPREAD: &str =
    "its partitions lie in several cells of the cluster, and this needs all of them in one";

/// Bits of a log id below those of the cell.
const CELL_SHIFT: u32 = 48;
/// Bits of a log id below those of the topic.
const TOPIC_SHIFT: u32 = 20;
const PARTITION_MASK: u64 = (1 << TOPIC_SHIFT) - 1;
const TAG_MASK: u64 = (1 << (CELL_SHIFT - TOPIC_SHIFT)) - 1;

const _: () = assert!(PARTITIONS_MAX as u64 <= PARTITION_MASK);

/// The cells of a cluster, and this one among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cells {
    pub own: u32,
    pub count: u32,
}

impl Cells {
    /// The one cell of a broker that is alone.
    pub(crate) const ALONE: Self = Self { own: 0, count: 1 };

    /// Returns the cells of partitions of a topic that is spread, as runs. `after` is the cell of the
    /// partition before the first one.
    pub(crate) fn spread(self, id: TopicId, after: Option<u32>, partitions: u32) -> Vec<(u32, u32)> {
        let blocks = self.count.min(partitions);
        let first = match after {
            Some(cell) => cell + 1,
            // Ids are random.
            None => u32::try_from(id.0 % u128::from(self.count)).unwrap_or_default(),
        };
        (0..blocks)
            .map(|block| {
                let more = u32::from(block < partitions % blocks);
                ((first + block) % self.count, partitions / blocks + more)
            })
            .collect()
    }
}

/// Returns the cell of a name: FNV-1a of 64 bits, modulo the number of cells. Never changes: data lies by it.
pub fn cell_of_name(name: &str, cells: u32) -> u32 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    u32::try_from(hash % u64::from(cells.max(1))).unwrap_or_default()
}

/// Part of a topic's id that is in the ids of its logs in other cells: no two topics that are spread have the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TopicTag(u64);

impl From<TopicId> for TopicTag {
    fn from(id: TopicId) -> Self {
        let low = id.0 & u128::from(TAG_MASK);
        Self(u64::try_from(low).unwrap_or_default())
    }
}

/// Returns the id that stands for the log of a partition in another cell.
pub(crate) fn elsewhere(topic: TopicId, cell: u32, partition: u32) -> LogId {
    let TopicTag(tag) = topic.into();
    LogId((u64::from(cell) + 1) << CELL_SHIFT | tag << TOPIC_SHIFT | u64::from(partition))
}

/// Returns the cell of a log in another cell. `None` for a log of this one.
pub fn cell_of(log: LogId) -> Option<u32> {
    let above = u32::try_from(log.0 >> CELL_SHIFT).unwrap_or(u32::MAX);
    above.checked_sub(1)
}

/// Returns topic and partition of a log in another cell.
pub(crate) fn place_of(log: LogId) -> (TopicTag, u32) {
    let partition = u32::try_from(log.0 & PARTITION_MASK).unwrap_or_default();
    (TopicTag(log.0 >> TOPIC_SHIFT & TAG_MASK), partition)
}

/// Returns the id as this version writes it: earlier ones left the topic out.
pub(crate) fn with_topic(log: LogId, topic: TopicId) -> LogId {
    match cell_of(log) {
        Some(cell) => elsewhere(topic, cell, place_of(log).1),
        None => log,
    }
}

impl Topic {
    /// Returns true if the topic is one of a cluster of several cells: spread over them, or kept in another.
    pub fn is_of_cluster(&self) -> bool {
        self.settings.spread == Some(true) || self.log(0).is_some_and(|log| cell_of(log).is_some())
    }

    /// Returns true if all of its partitions lie in this cell.
    pub fn is_whole(&self) -> bool {
        self.log_runs().all(|(first, _)| cell_of(*first).is_none())
    }

    /// Returns the cells of the partitions in a range, as runs; `own` stands for this one.
    pub(crate) fn cells(&self, own: u32, partitions: Range<u32>) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut begin = 0;
        for (first, count) in self.log_runs() {
            let end = begin + count;
            let part = begin.max(partitions.start)..end.min(partitions.end);
            begin = end;
            let cell = cell_of(*first).unwrap_or(own);
            match runs.last_mut() {
                _ if part.is_empty() => {}
                Some((last, count)) if *last == cell => *count += part.end - part.start,
                _ => runs.push((cell, part.end - part.start)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn partitions_are_spread_in_blocks_from_a_cell_of_the_topic_on() {
        let cells = Cells { own: 1, count: 4 };
        for (id, after, partitions, expected) in [
            (0, None, 6, vec![(0, 2), (1, 2), (2, 1), (3, 1)]),
            (7, None, 4, vec![(3, 1), (0, 1), (1, 1), (2, 1)]),
            (6, None, 2, vec![(2, 1), (3, 1)]),
            (6, Some(3), 3, vec![(0, 1), (1, 1), (2, 1)]),
            (5, None, 0, vec![]),
        ] {
            assert_eq!(
                cells.spread(TopicId(id), after, partitions),
                expected,
                "{id} {partitions}"
            );
        }
    }

    #[test]
    fn a_log_elsewhere_tells_its_cell() {
        assert_eq!(cell_of(LogId(7)), None);
        let topic = TopicId(u128::MAX - 77);
        for cell in [0, 1, 15, 1023] {
            let log = elsewhere(topic, cell, 9999);
            assert_eq!((cell_of(log), place_of(log)), (Some(cell), (topic.into(), 9999)));
            let early = LogId((u64::from(cell) + 1) << CELL_SHIFT | 0x270f);
            assert_eq!(with_topic(early, topic), log);
            assert_eq!(with_topic(log, topic), log);
        }
        assert_eq!(with_topic(LogId(7), topic), LogId(7));
    }

    #[test]
    fn the_cells_of_partitions_are_read_from_their_logs() {
        let topic = Topic::new(
            TopicId(1),
            "t".into(),
            elsewhere(TopicId(1), 0, 0),
            2,
            Arc::default(),
        );
        let topic = topic
            .with_more(LogId(5), 2)
            .with_more(elsewhere(TopicId(1), 2, 4), 1);
        assert_eq!(topic.cells(1, 0..5), [(0, 2), (1, 2), (2, 1)]);
        assert_eq!(topic.cells(1, 3..5), [(1, 1), (2, 1)]);
        assert!(topic.is_of_cluster());
        assert!(!Topic::new(TopicId(1), "t".into(), LogId(5), 2, Arc::default()).is_of_cluster());
    }
}
