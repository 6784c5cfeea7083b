//! The tail cache: the most recent write groups, in the buffers that they were written from. Readers that
//! keep up never touch the disk. Its budget counts all buffers that are kept alive, not only the parts of
//! them in use.

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::Lock;

use super::codec::{u32_of, usize_of};
use super::position::{Position, SegmentId};

#[derive(Debug)]
pub(crate) struct TailCache {
    groups: Lock<CachedGroups>,
    budget_bytes: usize,
}

#[derive(Debug, Default)]
struct CachedGroups {
    groups: VecDeque<TailGroup>,
    pinned_bytes: usize,
}

/// A write group in memory: its bytes in pieces, as written.
#[derive(Debug)]
pub(crate) struct TailGroup {
    pub(crate) start: Position,
    /// Pieces with the byte of the segment at which each starts, without gaps.
    pub(crate) pieces: SmallVec<[(u32, Bytes); 1]>,
    /// Bytes of all buffers that the pieces keep alive.
    pub(crate) pinned_bytes: usize,
}

/// Slices that make up the requested bytes.
pub(crate) type Slices = SmallVec<[Bytes; 2]>;

impl TailCache {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self {
            groups: Lock::default(),
            budget_bytes,
        }
    }

    /// Adds the newest group and drops the oldest ones beyond the budget.
    pub(crate) fn push(&self, group: TailGroup) {
        let mut dropped = SmallVec::<[TailGroup; 4]>::new();
        let mut groups = self.groups.lock();
        groups.pinned_bytes += group.pinned_bytes;
        groups.groups.push_back(group);
        while groups.pinned_bytes > self.budget_bytes
            && let Some(oldest) = groups.groups.pop_front()
        {
            groups.pinned_bytes -= oldest.pinned_bytes;
            dropped.push(oldest);
        }
        drop(groups);
    }

    pub(crate) fn pinned_bytes(&self) -> usize {
        self.groups.lock().pinned_bytes
    }

    /// Calls `read` with a reader for several ranges under one lock.
    pub(crate) fn with<R>(&self, read: impl FnOnce(&TailReader<'_>) -> R) -> R {
        let groups = self.groups.lock();
        read(&TailReader {
            groups: &groups.groups,
        })
    }
}

/// Reader of ranges of the cached groups.
#[derive(Debug)]
pub(crate) struct TailReader<'a> {
    groups: &'a VecDeque<TailGroup>,
}

impl TailReader<'_> {
    /// Returns the bytes `byte..byte + bytes` of a segment, if their group is cached.
    pub(crate) fn get(&self, segment: SegmentId, byte: u32, bytes: usize) -> Option<Slices> {
        let wanted = Position { segment, byte };
        let behind = self.groups.partition_point(|group| group.start <= wanted);
        let group = self
            .groups
            .get(behind.checked_sub(1)?)
            .filter(|group| group.start.segment == segment)?;
        let mut at = byte;
        let mut left = bytes;
        let first = group
            .pieces
            .partition_point(|(start, _)| *start <= at)
            .checked_sub(1)?;
        let mut slices = Slices::new();
        for (start, piece) in group.pieces.get(first..)? {
            let skip = usize_of(at - start);
            let part = left.min(piece.len().checked_sub(skip)?);
            slices.push(piece.slice(skip..skip + part));
            left -= part;
            at += u32_of(part);
            if left == 0 {
                return Some(slices);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(segment: u32, start: u32, pieces: &[&'static [u8]]) -> TailGroup {
        let mut at = start;
        let pieces = pieces
            .iter()
            .map(|piece| {
                let place = at;
                at += u32_of(piece.len());
                (place, Bytes::from_static(piece))
            })
            .collect();
        let start = Position {
            segment: SegmentId(segment),
            byte: start,
        };
        TailGroup {
            start,
            pieces,
            pinned_bytes: usize_of(at - start.byte),
        }
    }

    fn get(cache: &TailCache, segment: u32, byte: u32, bytes: usize) -> Option<Vec<u8>> {
        cache.with(|tail| Some(tail.get(SegmentId(segment), byte, bytes)?.concat()))
    }

    #[test]
    fn ranges_are_found_across_pieces_and_never_across_groups() {
        let cache = TailCache::new(100);
        cache.push(group(1, 100, &[b"abc", b"defgh", b"ij"]));
        cache.push(group(1, 110, &[b"klm"]));
        cache.push(group(2, 100, &[b"xyz"]));
        assert_eq!(get(&cache, 1, 100, 10).unwrap(), b"abcdefghij");
        assert_eq!(get(&cache, 1, 102, 4).unwrap(), b"cdef");
        assert_eq!(get(&cache, 1, 109, 1).unwrap(), b"j");
        assert_eq!(get(&cache, 1, 109, 2), None);
        assert_eq!(get(&cache, 1, 112, 1).unwrap(), b"m");
        assert_eq!(get(&cache, 2, 100, 3).unwrap(), b"xyz");
        assert_eq!(get(&cache, 1, 99, 1), None);
        assert_eq!(get(&cache, 3, 100, 1), None);
    }

    #[test]
    fn the_oldest_groups_go_when_the_budget_is_used_up() {
        let cache = TailCache::new(8);
        cache.push(group(1, 0, &[b"aaaa"]));
        cache.push(group(1, 4, &[b"bbbb"]));
        cache.push(group(1, 8, &[b"cc"]));
        assert_eq!(get(&cache, 1, 0, 4), None);
        assert_eq!(get(&cache, 1, 4, 4).unwrap(), b"bbbb");
        assert_eq!(cache.pinned_bytes(), 6);
    }
}
