//! One log: its offsets, the places of its batches, and its watchers. An idle log costs a few hundred bytes.
//!
//! ```text
//! start            visible          next            reserved
//!   |--- readable ----|--- staged ---|                 |
//!   sealed segments: runs | segments without a sidecar: recent
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use stafett_model::{BatchHeader, Lock, LockGuard, LogId, Offset, SharedLock};

use super::position::SegmentId;
use super::producers::Producers;
use super::running::Moment;
use super::sidecar::IndexEntry;
use super::transactions::Transactions;
use crate::contract::{Bounds, LogSpec, OwnerEpoch};
use crate::watch::Watchers;

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) id: LogId,
    state: Lock<LogState>,
}

#[derive(Debug)]
#[expect(clippy::box_collection, reason = "an idle log pays a pointer, not a vector")]
pub(crate) struct LogState {
    pub(crate) spec: Arc<LogSpec>,
    /// First readable offset.
    pub(crate) start: Offset,
    /// Offset behind the last readable one.
    pub(crate) visible: Offset,
    /// Offset of the next batch.
    pub(crate) next: Offset,
    /// Offsets below this may be assigned before they are durable.
    pub(crate) reserved: Offset,
    /// Offsets below this are durably recorded as possibly assigned.
    pub(crate) reserved_durably: Offset,
    /// Approximate bytes of frames between start and next.
    pub(crate) bytes: u64,
    /// Batches in segments without a sidecar, by offset.
    pub(crate) recent: Vec<RecentBatch>,
    /// Sealed segments that hold batches of the log, by offset.
    pub(crate) runs: Vec<SegmentExtent>,
    pub(crate) producers: Option<Box<Producers>>,
    /// Latest owner.
    pub(crate) owner: OwnerEpoch,
    pub(crate) watchers: Watchers,
    /// Ranges of batches that have reached their level behind others that have not, by offset, with their
    /// bytes.
    ready: Option<Box<VecDeque<ReadyRange>>>,
    /// Ranges lost to damage: reads that touch them are refused.
    pub(crate) damaged: Option<Box<Vec<(Offset, Offset)>>>,
    /// True if the log is listed for the next checkpoint.
    pub(crate) dirty: bool,
    pub(crate) deleted: bool,
    /// True if its end is unknown because of damage: it takes no appends.
    pub(crate) fenced: bool,
}

/// A range of offsets that becomes readable as soon as everything before it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadyRange {
    base: Offset,
    end: Offset,
    bytes: u64,
}

/// A batch in a segment without a sidecar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecentBatch {
    pub(crate) segment: SegmentId,
    pub(crate) byte: u32,
    pub(crate) bytes: u32,
    pub(crate) span: u32,
    pub(crate) base: Offset,
    pub(crate) date: i64,
    pub(crate) entries: u16,
    pub(crate) chunks: u16,
    pub(crate) placed: bool,
}

/// A sealed segment that holds batches of a log from an offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentExtent {
    pub(crate) first: Offset,
    pub(crate) segment: SegmentId,
    /// Bytes of the log's frames in the segment.
    pub(crate) bytes: u32,
}

impl RecentBatch {
    pub(crate) fn end(&self) -> Offset {
        Offset(self.base.0 + u64::from(self.span))
    }

    pub(crate) fn entry(&self, log: LogId) -> IndexEntry {
        IndexEntry {
            log,
            base: self.base,
            span: self.span,
            byte: self.byte,
            bytes: self.bytes,
            entries: self.entries,
            chunks: self.chunks,
            placed: self.placed,
            date: self.date,
        }
    }

    pub(crate) fn of(segment: SegmentId, entry: &IndexEntry) -> Self {
        Self {
            segment,
            byte: entry.byte,
            bytes: entry.bytes,
            span: entry.span,
            base: entry.base,
            date: entry.date,
            entries: entry.entries,
            chunks: entry.chunks,
            placed: entry.placed,
        }
    }
}

impl Log {
    pub(crate) fn new(id: LogId, spec: Arc<LogSpec>) -> Self {
        let state = LogState {
            spec,
            start: Offset::ZERO,
            visible: Offset::ZERO,
            next: Offset::ZERO,
            reserved: Offset::ZERO,
            reserved_durably: Offset::ZERO,
            bytes: 0,
            recent: Vec::new(),
            runs: Vec::new(),
            producers: None,
            owner: OwnerEpoch::default(),
            watchers: Watchers::default(),
            ready: None,
            damaged: None,
            dirty: false,
            deleted: false,
            fenced: false,
        };
        Self {
            id,
            state: Lock::new(state),
        }
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, LogState> {
        self.state.lock()
    }
}

impl LogState {
    pub(crate) fn bounds(&self) -> Bounds {
        let end = self.visible.max(self.start);
        Bounds {
            start: self.start,
            end,
            stable: self
                .transactions()
                .map_or(end, |known| known.stable(end).max(self.start)),
            bytes: self.bytes,
        }
    }

    pub(crate) fn transactions(&self) -> Option<&Transactions> {
        self.producers.as_ref()?.transactions()
    }

    /// Records the sequence numbers and the transaction of a batch at `base`.
    pub(crate) fn note_producer(
        &mut self,
        header: &BatchHeader,
        batch: &Bytes,
        is_shared: bool,
        base: Offset,
        now: Moment,
    ) {
        if header.producer().is_some() {
            let places = (base, self.visible);
            let producers = self.producers.get_or_insert_default();
            producers.note_batch(header, batch, is_shared, places, now);
        }
    }

    /// Records the place of a written batch.
    pub(crate) fn on_written(&mut self, recent: RecentBatch) {
        if self.recent.capacity() == 0 {
            self.recent.reserve_exact(1);
        }
        self.bytes = self.bytes.saturating_add(recent.bytes.into());
        self.recent.push(recent);
    }

    /// Makes everything before `end` readable: all of it has reached its level.
    pub(crate) fn make_visible(&mut self, end: Offset, mut bytes: u64) {
        if end <= self.visible {
            return;
        }
        self.visible = end;
        while let Some(ready) = &mut self.ready {
            match ready.front() {
                Some(next) if next.base <= self.visible => {
                    self.visible = self.visible.max(next.end);
                    bytes += next.bytes;
                    ready.pop_front();
                }
                Some(_) => break,
                None => self.ready = None,
            }
        }
        self.watchers.on_growth(bytes);
    }

    /// Makes a batch that has reached its level readable once everything before it is.
    pub(crate) fn make_visible_in_order(&mut self, base: Offset, end: Offset, bytes: u64) {
        if base <= self.visible {
            self.make_visible(end, bytes);
            return;
        }
        let ready = self.ready.get_or_insert_default();
        match ready.back_mut() {
            Some(last) if last.end == base => {
                last.end = end;
                last.bytes += bytes;
            }
            _ => ready.push_back(ReadyRange { base, end, bytes }),
        }
    }

    /// Moves the batches of a segment from `recent` to `runs`: from now on its sidecar lists them.
    pub(crate) fn on_sealed(&mut self, segment: SegmentId) {
        let mine = self
            .recent
            .iter()
            .take_while(|recent| recent.segment <= segment)
            .count();
        let Some(first) = self.recent.iter().find(|recent| recent.segment == segment) else {
            return;
        };
        self.runs.reserve_exact(1);
        let bytes = self.recent.iter().filter(|recent| recent.segment == segment);
        self.runs.push(SegmentExtent {
            first: first.base,
            segment,
            bytes: bytes.map(|recent| recent.bytes).sum(),
        });
        self.recent.drain(..mine);
        if self.recent.is_empty() {
            self.recent = Vec::new();
        }
    }

    /// Frees everything before an offset; returns true if that changed anything.
    pub(crate) fn truncate(&mut self, before: Offset) -> bool {
        let before = before.min(self.next);
        if before <= self.start {
            return false;
        }
        self.start = before;
        self.visible = self.visible.max(before);
        let keep = self
            .runs
            .iter()
            .zip(self.runs.iter().skip(1))
            .take_while(|(_, next)| next.first <= before);
        let gone = keep.count();
        self.runs.drain(..gone);
        let gone = self
            .recent
            .iter()
            .take_while(|recent| recent.end() <= before)
            .count();
        self.recent.drain(..gone);
        self.count_bytes();
        if let Some(producers) = &mut self.producers {
            producers.forget_aborted(before);
        }
        if let Some(damaged) = &mut self.damaged {
            damaged.retain(|(_, end)| *end > before);
        }
        true
    }

    /// Recounts the bytes after something was removed.
    pub(crate) fn count_bytes(&mut self) {
        let sealed: u64 = self.runs.iter().map(|run| u64::from(run.bytes)).sum();
        let recent: u64 = self.recent.iter().map(|recent| u64::from(recent.bytes)).sum();
        self.bytes = sealed + recent;
    }

    /// Records that offsets were lost to damage.
    pub(crate) fn lose(&mut self, from: Offset, to: Offset) {
        let damaged = self.damaged.get_or_insert_default();
        if !damaged.iter().any(|(start, end)| *start <= from && to <= *end) {
            damaged.push((from, to));
            damaged.sort_unstable();
        }
    }

    /// Returns the first damaged range that ends behind `from`.
    pub(crate) fn damage_from(&self, from: Offset) -> Option<(Offset, Offset)> {
        self.damaged
            .as_ref()?
            .iter()
            .copied()
            .find(|(_, end)| from < *end)
    }
}

/// All logs, by id.
#[derive(Debug, Default)]
pub(crate) struct LogTable(SharedLock<HashMap<LogId, Arc<Log>>>);

impl LogTable {
    pub(crate) fn from_logs(logs: HashMap<LogId, Arc<Log>>) -> Self {
        Self(SharedLock::new(logs))
    }

    pub(crate) fn get(&self, id: LogId) -> Option<Arc<Log>> {
        self.0.read().get(&id).cloned()
    }

    pub(crate) fn insert(&self, logs: impl Iterator<Item = Log>) {
        let mut table = self.0.write();
        for log in logs {
            table.entry(log.id).or_insert_with(|| Arc::new(log));
        }
    }

    pub(crate) fn remove(&self, id: LogId) -> Option<Arc<Log>> {
        self.0.write().remove(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Returns the current logs, in no particular order.
    pub(crate) fn all(&self) -> Vec<Arc<Log>> {
        self.0.read().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(segment: u32, base: u64) -> RecentBatch {
        RecentBatch {
            segment: SegmentId(segment),
            byte: 0,
            bytes: 100,
            span: 10,
            base: Offset(base),
            date: 0,
            entries: 1,
            chunks: 0,
            placed: true,
        }
    }

    fn filled() -> LogState {
        let log = Log::new(LogId(1), Arc::default());
        {
            let mut state = log.lock();
            for (segment, base) in [(1, 0), (1, 10), (2, 20), (3, 30), (3, 40)] {
                state.on_written(recent(segment, base));
            }
            state.next = Offset(50);
            state.make_visible(Offset(50), 0);
        }
        log.state.into_inner()
    }

    #[test]
    fn sealing_moves_batches_from_recent_to_runs() {
        let mut state = filled();
        state.on_sealed(SegmentId(1));
        state.on_sealed(SegmentId(2));
        let firsts: Vec<_> = state
            .runs
            .iter()
            .map(|run| (run.segment.0, run.first.0))
            .collect();
        assert_eq!(firsts, [(1, 0), (2, 20)]);
        assert_eq!(state.recent.len(), 2);
    }

    #[test]
    fn truncation_keeps_the_run_that_holds_the_offset() {
        let mut state = filled();
        state.on_sealed(SegmentId(1));
        state.on_sealed(SegmentId(2));
        assert!(state.truncate(Offset(25)));
        assert_eq!(
            state.runs,
            [SegmentExtent {
                first: Offset(20),
                segment: SegmentId(2),
                bytes: 100
            }]
        );
        assert_eq!(state.bytes, 300);
        assert!(state.truncate(Offset(41)));
        assert_eq!((state.recent.len(), state.bytes), (1, 200));
        assert!(!state.truncate(Offset(41)));
        assert!(state.truncate(Offset(1000)));
        assert_eq!(state.bounds().start, Offset(50));
    }
}
