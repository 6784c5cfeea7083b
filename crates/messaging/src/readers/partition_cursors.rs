//! Positions of a reader in the partitions, and their turns.

use std::sync::Arc;

use stafett_journal::{Bounds, Journal};
use stafett_model::LogId;
use stafett_topics::{StartPosition, Topic, offset_at_time};

use super::reader::ReaderSpec;

/// A partition that is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartitionCursor {
    pub(super) partition: u32,
    pub(super) log: LogId,
    /// Next offset to read.
    pub(super) next: u64,
    /// Start time, until its offset has been looked up.
    time_ms: Option<i64>,
}

/// All partitions that are read.
#[derive(Debug)]
pub(super) struct PartitionCursors {
    pub(super) list: Vec<PartitionCursor>,
    only: Option<u32>,
    /// Index of the partition whose turn it is.
    pub(super) turn: usize,
}

impl PartitionCursors {
    pub(super) fn begin(journal: &dyn Journal, topic: &Topic, spec: &ReaderSpec) -> Self {
        let mut places = Self {
            list: Vec::new(),
            only: spec.partition,
            turn: 0,
        };
        places.add(journal, topic, spec.start);
        places
    }

    /// Adds the partitions of a topic that has grown; they are read from their beginning. Returns them.
    pub(super) fn follow(&mut self, journal: &dyn Journal, topic: &Arc<Topic>) -> &[PartitionCursor] {
        let known = self.list.len();
        if self.only.is_none() {
            self.add(journal, topic, StartPosition::First);
        }
        self.list.get(known..).unwrap_or_default()
    }

    fn add(&mut self, journal: &dyn Journal, topic: &Topic, start: StartPosition) {
        let partitions = match self.only {
            Some(partition) => partition..partition.saturating_add(1),
            None => u32::try_from(self.list.len()).unwrap_or(u32::MAX)..topic.partitions(),
        };
        for partition in partitions {
            let Some(log) = topic.log(partition) else { return };
            let bounds = journal.bounds(log).unwrap_or(Bounds {
                start: stafett_model::Offset::ZERO,
                end: stafett_model::Offset::ZERO,
                stable: stafett_model::Offset::ZERO,
                bytes: 0,
            });
            self.list.push(PartitionCursor {
                partition,
                log,
                next: start.offset(bounds),
                time_ms: match start {
                    StartPosition::Time(time_ms) => Some(time_ms),
                    StartPosition::First
                    | StartPosition::Last
                    | StartPosition::Next
                    | StartPosition::Offset(_) => None,
                },
            });
        }
    }

    /// Looks up the start offsets of partitions that start at a time.
    pub(super) async fn find(&mut self, journal: &dyn Journal) {
        for place in &mut self.list {
            if let Some(time_ms) = place.time_ms.take()
                && let Ok(Some(offset)) = offset_at_time(journal, place.log, time_ms).await
            {
                place.next = offset;
            }
        }
    }

    pub(super) fn current(&mut self) -> Option<&mut PartitionCursor> {
        self.list.get_mut(self.turn)
    }

    /// Passes the turn to the next partition.
    pub(super) fn pass_turn(&mut self) {
        self.turn = (self.turn + 1) % self.list.len().max(1);
    }
}
