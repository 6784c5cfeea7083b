//! Progress of the compaction of a log, as an item of the journal's own state. It is stored after the
//! segments of a pass are in force. If it is lost, the log is compacted anew, and tombstones stay longer.
//!
//! ```text
//! key    u8 'c', u64 log
//! value  u64 compacted up to, u8 1 if tombstones are left below, then marks by offset, each:
//!        u64 offset, i64 time, ms since 1970
//! ```
//!
//! A *mark* says that at a time, no record below its offset had a newer one of its key below that offset. So
//! a tombstone below the mark has nothing left to delete; it stays as long as readers may need to see it.

use bytes::{BufMut, Bytes};
use stafett_model::{LogId, Offset};

use super::super::super::codec::Reader;
use super::super::super::control::decode_offset;
use crate::contract::{Change, StateChange};
use crate::request_ids;

const KEY_PREFIX: u8 = b'c';
/// Marks of a log at most. Beyond, a mark goes that is soon followed by another.
const MARKS_MAX: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CompactionProgress {
    /// Offset below which everything is compacted.
    pub(super) end: Offset,
    pub(super) has_tombstones: bool,
    /// By offset and by time.
    pub(super) marks: Vec<Mark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) offset: Offset,
    pub(super) at: i64,
}

impl CompactionProgress {
    /// Returns the offset below which tombstones go: that of the last mark made before `expired`.
    pub(super) fn horizon(&self, expired: i64) -> Offset {
        let old = self.marks.iter().rev().find(|mark| mark.at <= expired);
        old.map_or(Offset::ZERO, |mark| mark.offset)
    }

    /// Records a pass up to `end`, which removed the tombstones below `horizon`.
    pub(super) fn advance(&mut self, end: Offset, horizon: Offset, at: i64, has_tombstones: bool) {
        self.marks.retain(|mark| mark.offset > horizon);
        if end > self.end && self.marks.last().is_none_or(|last| last.offset < end) {
            self.marks.push(Mark { offset: end, at });
        }
        if self.marks.len() > MARKS_MAX {
            let pairs = self.marks.iter().zip(self.marks.iter().skip(1)).enumerate();
            let closest = pairs.min_by_key(|(_, (mark, next))| next.at.saturating_sub(mark.at));
            if let Some((index, _)) = closest {
                self.marks.remove(index);
            }
        }
        self.end = self.end.max(end);
        self.has_tombstones = has_tombstones;
    }

    /// Records a pass up to `end` that may have left older records: tombstones wait for a later pass.
    pub(super) fn advance_unsure(&mut self, end: Offset) {
        self.end = self.end.max(end);
        self.marks.clear();
    }

    /// Returns the change of state that stores the progress of a log.
    pub(super) fn put(&self, log: LogId) -> StateChange {
        let mut value = Vec::with_capacity(9 + 16 * self.marks.len());
        value.put_u64_le(self.end.0);
        value.put_u8(self.has_tombstones.into());
        for mark in &self.marks {
            value.put_u64_le(mark.offset.0);
            value.put_i64_le(mark.at);
        }
        change(log, Change::Put(value.into()))
    }

    /// Decodes an item of the journal's own state; `None` if it is of another kind.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<(LogId, Self)> {
        let log = key.strip_prefix(&[KEY_PREFIX])?;
        let log = LogId(u64::from_le_bytes(log.try_into().ok()?));
        let mut reader = Reader(value);
        let mut progress = Self {
            end: decode_offset(&mut reader)?,
            has_tombstones: reader.u8()? != 0,
            marks: Vec::new(),
        };
        while !reader.0.is_empty() {
            progress.marks.push(Mark {
                offset: decode_offset(&mut reader)?,
                at: reader.i64()?,
            });
        }
        Some((log, progress))
    }
}

/// Returns the change of state that removes the progress of a log.
pub(super) fn delete(log: LogId) -> StateChange {
    change(log, Change::Delete)
}

fn change(log: LogId, change: Change) -> StateChange {
    let mut key = vec![KEY_PREFIX];
    key.put_u64_le(log.0);
    StateChange {
        space: request_ids::SPACE,
        key: Bytes::from(key),
        change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_reads_back_and_other_items_are_told_from_it() {
        let mut progress = CompactionProgress::default();
        progress.advance(Offset(70), Offset::ZERO, 1000, true);
        progress.advance(Offset(90), Offset::ZERO, 2000, true);
        let stored = progress.put(LogId(1 << 40));
        let Change::Put(value) = &stored.change else {
            panic!("it is put");
        };
        let read = CompactionProgress::decode(&stored.key, value);
        assert_eq!(read, Some((LogId(1 << 40), progress)));
        for cut in 0..9 {
            assert_eq!(CompactionProgress::decode(&stored.key, &value[..cut]), None);
        }
        assert_eq!(CompactionProgress::decode(&[b'c'; 16], value), None);
        assert_eq!(CompactionProgress::decode(&[0; 9], value), None);
    }

    #[test]
    fn the_horizon_follows_the_marks_and_passes_of_the_same_range_make_none() {
        let mut progress = CompactionProgress::default();
        for (end, at) in [(10, 100), (20, 200), (20, 300), (30, 400)] {
            progress.advance(Offset(end), Offset::ZERO, at, true);
        }
        let horizons = [99, 100, 250, 500].map(|expired| progress.horizon(expired).0);
        assert_eq!(horizons, [0, 10, 20, 30]);
        progress.advance(Offset(30), Offset(20), 900, false);
        assert_eq!(
            progress.marks,
            [Mark {
                offset: Offset(30),
                at: 400
            }]
        );
    }

    #[test]
    fn of_too_many_marks_one_goes_that_is_soon_followed_by_another() {
        let mut progress = CompactionProgress::default();
        for n in 1..=100_u64 {
            let at = i64::try_from(n * n).unwrap();
            progress.advance(Offset(n), Offset::ZERO, at, true);
        }
        assert_eq!(progress.marks.len(), MARKS_MAX);
        assert_eq!(progress.marks.last().map(|mark| mark.offset), Some(Offset(100)));
        assert!(progress.marks.is_sorted_by_key(|mark| (mark.offset, mark.at)));
    }
}
