//! Stored form of a queue's state: changes as they happen, and from time to time a snapshot.
//!
//! Numbers have seven bits per byte, low bits first.
//!
//! ```text
//! changes: u8 version = 2, then, until the end:
//!   u8 1, number lane, number first, number count      these offsets are settled
//!   u8 2, number lane, number below                    hand-out mark: nothing from here on was delivered
//!   u8 3, number lane, number offset, number times     return count of a message
//!   u8 4                                               the queue may hold transient messages
//!   u8 5, number lane, number below                    exact hand-out mark, on a clean stop
//!
//! snapshot: u8 version = 2, u8 flags (1: as change 4), number lanes, each:
//!   number lane, number head, number mark
//!   number settled runs, each: number offsets since the previous run (or the head), number count
//!   number return counts, each: number offset, number times
//! ```
//!
//! In version 1, which is still read, a lane number is one byte.

use std::collections::{BTreeMap, HashSet};

use stafett_model::{read_number, write_number};

use crate::offset_set::OffsetSet;
use crate::state::QueueState;

const VERSION: u8 = 2;
/// Version with one-byte lanes: they were priorities only.
const BYTE_LANES: u8 = 1;
const SETTLED: u8 = 1;
const MARK: u8 = 2;
const RETURNED: u8 = 3;
const TRANSIENT: u8 = 4;
const EXACT_MARK: u8 = 5;

/// Bound on the length of a stored run of offsets.
const RUN_MAX: u64 = 1 << 36;

/// Changes of a queue's state that are not stored yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    settled: Vec<(u32, u64, u64)>,
    returned: Vec<(u32, u64, u32)>,
    marks: Vec<(u32, u64, bool)>,
    transient: bool,
}

/// Error: the bytes are not a queue's state, or of an unknown version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedState;

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.returned.is_empty() && self.marks.is_empty() && !self.transient
    }

    pub fn clear(&mut self) {
        self.settled.clear();
        self.returned.clear();
        self.marks.clear();
        self.transient = false;
    }

    /// Returns the number of changes.
    pub fn len(&self) -> usize {
        self.settled.len() + self.returned.len() + self.marks.len() + usize::from(self.transient)
    }

    /// Removes and returns up to `count` changes, in an order in which they may be stored.
    #[must_use]
    pub fn take(&mut self, count: usize) -> Self {
        fn take<T>(from: &mut Vec<T>, count: usize) -> Vec<T> {
            let rest = from.split_off(count.min(from.len()));
            std::mem::replace(from, rest)
        }
        let settled = take(&mut self.settled, count);
        let marks = take(&mut self.marks, count - settled.len());
        let returned = take(&mut self.returned, count - settled.len() - marks.len());
        Self {
            settled,
            returned,
            marks,
            transient: std::mem::take(&mut self.transient),
        }
    }

    /// Drops the return counts of messages for which `later` has one: it is stored before these changes.
    pub fn drop_outdated(&mut self, later: &Self) {
        if self.returned.is_empty() || later.returned.is_empty() {
            return;
        }
        let ids: HashSet<(u32, u64)> = later.returned.iter().map(|(lane, at, _)| (*lane, *at)).collect();
        self.returned.retain(|(lane, at, _)| !ids.contains(&(*lane, *at)));
    }

    /// Prepends earlier changes and merges duplicates.
    pub fn put_before(&mut self, earlier: Self) {
        let later = std::mem::replace(self, earlier);
        self.settled.extend(later.settled);
        self.returned.extend(later.returned);
        self.marks.extend(later.marks);
        self.transient |= later.transient;
        self.compact();
    }

    /// Merges settlements into runs and keeps the last return count of each message: while the journal
    /// accepts no appends, the changes do not outgrow the queue.
    fn compact(&mut self) {
        self.settled.sort_unstable();
        let runs = std::mem::take(&mut self.settled);
        for (lane, first, count) in runs {
            match self.settled.last_mut() {
                Some((known, start, had)) if *known == lane && first <= *start + *had => {
                    *had = (*had).max(first + count - *start);
                }
                _ => self.settled.push((lane, first, count)),
            }
        }
        self.returned.sort_by_key(|(lane, offset, _)| (*lane, *offset));
        self.returned.dedup_by(|later, kept| {
            let is_same = (later.0, later.1) == (kept.0, kept.1);
            if is_same {
                kept.2 = later.2;
            }
            is_same
        });
        // An exact mark is always the last one; of the others the highest counts, in any order.
        self.marks.sort_by_key(|(lane, ..)| *lane);
        self.marks.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                let below = if later.2 { later.1 } else { later.1.max(kept.1) };
                *kept = (later.0, below, later.2);
            }
            is_same
        });
    }

    /// Records that `count` messages from `first` on are settled.
    pub fn settled(&mut self, lane: u32, first: u64, count: u64) {
        match self.settled.last_mut() {
            _ if count == 0 => {}
            Some((known, start, had)) if *known == lane && *start + *had == first => *had += count,
            _ => self.settled.push((lane, first, count)),
        }
    }

    /// Records that a message was returned; `times` is its return count.
    pub fn returned(&mut self, lane: u32, offset: u64, times: u32) {
        self.returned.push((lane, offset, times));
    }

    /// Records a hand-out mark: nothing at or behind `below` is delivered before another mark is stored.
    pub fn mark(&mut self, lane: u32, below: u64) {
        self.marks.push((lane, below, false));
    }

    /// Records an exact hand-out mark, on a clean stop.
    pub fn exact_mark(&mut self, lane: u32, below: u64) {
        self.marks.push((lane, below, true));
    }

    /// Records that the queue may hold transient messages.
    pub fn holds_transient(&mut self) {
        self.transient = true;
    }

    /// Encodes the changes for storage.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 + 8 * (self.settled.len() + self.returned.len()));
        out.push(VERSION);
        for (lane, first, count) in &self.settled {
            out.push(SETTLED);
            write_number((*lane).into(), &mut out);
            write_number(*first, &mut out);
            write_number(*count, &mut out);
        }
        for (lane, below, exact) in &self.marks {
            out.push(if *exact { EXACT_MARK } else { MARK });
            write_number((*lane).into(), &mut out);
            write_number(*below, &mut out);
        }
        for (lane, offset, times) in &self.returned {
            out.push(RETURNED);
            write_number((*lane).into(), &mut out);
            write_number(*offset, &mut out);
            write_number((*times).into(), &mut out);
        }
        if self.transient {
            out.push(TRANSIENT);
        }
        out
    }
}

impl QueueState {
    /// Encodes a snapshot. `transient` is true if the queue may hold messages that do not survive a restart.
    pub fn encode(&self, transient: bool) -> Vec<u8> {
        let mut out = vec![VERSION, transient.into()];
        write_number(self.lanes().count() as u64, &mut out);
        for (number, lane) in self.lanes() {
            write_number(number.into(), &mut out);
            write_number(lane.head(), &mut out);
            write_number(lane.mark, &mut out);
            write_number(lane.settled.runs().count() as u64, &mut out);
            let mut at = lane.head();
            for run in lane.settled.runs() {
                write_number(run.start - at, &mut out);
                write_number(run.end - run.start, &mut out);
                at = run.end;
            }
            let counts = lane.return_counts();
            write_number(counts.len() as u64, &mut out);
            for (offset, times) in counts {
                write_number(offset, &mut out);
                write_number(times.into(), &mut out);
            }
        }
        out
    }

    /// Restores a snapshot; returns true if the queue may have held transient messages.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<bool, MalformedState> {
        let (version, rest) = bytes.split_first().ok_or(MalformedState)?;
        let lane = lane_reader(*version)?;
        let (flags @ 0..=1, mut rest) = rest.split_first().ok_or(MalformedState)? else {
            return Err(MalformedState);
        };
        for _ in 0..number(&mut rest)? {
            let of = lane(&mut rest)?;
            let (head, mark) = (number(&mut rest)?, number(&mut rest)?);
            let (mut settled, mut at) = (OffsetSet::default(), head);
            for _ in 0..number(&mut rest)? {
                let first = at.checked_add(number(&mut rest)?).ok_or(MalformedState)?;
                at = behind(first, number(&mut rest)?)?;
                settled.insert(first..at);
            }
            let mut counts = BTreeMap::new();
            for _ in 0..number(&mut rest)? {
                counts.insert(number(&mut rest)?, times(&mut rest)?);
            }
            self.restore_lane(of, head, settled, mark, counts);
        }
        Ok(*flags == 1)
    }

    /// Applies stored [`Changes`] to the current state; returns true if the queue may have held transient
    /// messages.
    pub fn apply(&mut self, bytes: &[u8]) -> Result<bool, MalformedState> {
        let (version, mut rest) = bytes.split_first().ok_or(MalformedState)?;
        let lane = lane_reader(*version)?;
        let mut transient = false;
        while !rest.is_empty() {
            let which = byte(&mut rest)?;
            if which == TRANSIENT {
                transient = true;
                continue;
            }
            let of = lane(&mut rest)?;
            let offset = number(&mut rest)?;
            match which {
                SETTLED => {
                    let end = behind(offset, number(&mut rest)?)?;
                    self.lane_mut(of).settle(offset..end);
                }
                MARK => self.lane_mut(of).restore_mark(offset),
                EXACT_MARK => self.lane_mut(of).restore_exact_mark(offset),
                RETURNED => {
                    let times = times(&mut rest)?;
                    self.lane_mut(of).restore_count(offset, times);
                }
                _ => return Err(MalformedState),
            }
        }
        Ok(transient)
    }
}

/// Decoder of a lane number.
type ReadLane = fn(&mut &[u8]) -> Result<u32, MalformedState>;

/// Returns the decoder of lane numbers for a version.
fn lane_reader(version: u8) -> Result<ReadLane, MalformedState> {
    match version {
        BYTE_LANES => Ok(byte_lane),
        VERSION => Ok(times),
        _ => Err(MalformedState),
    }
}

fn byte_lane(rest: &mut &[u8]) -> Result<u32, MalformedState> {
    byte(rest).map(u32::from)
}

fn byte(rest: &mut &[u8]) -> Result<u8, MalformedState> {
    let (first, behind) = rest.split_first().ok_or(MalformedState)?;
    *rest = behind;
    Ok(*first)
}

fn number(rest: &mut &[u8]) -> Result<u64, MalformedState> {
    let (value, behind) = read_number(rest).ok_or(MalformedState)?;
    *rest = behind;
    Ok(value)
}

fn times(rest: &mut &[u8]) -> Result<u32, MalformedState> {
    u32::try_from(number(rest)?).map_err(|_| MalformedState)
}

/// Returns the end of a run of offsets; an error if it is too long or beyond the largest offset.
fn behind(first: u64, count: u64) -> Result<u64, MalformedState> {
    first
        .checked_add(count)
        .filter(|behind| i64::try_from(*behind).is_ok() && count <= RUN_MAX)
        .ok_or(MalformedState)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_stored_at_once_is_not_undone_by_an_older_one() {
        let mut pending = Changes::default();
        pending.settled(0, 1, 1);
        for (offset, times) in [(5, 1), (6, 1), (5, 2)] {
            pending.returned(0, offset, times);
        }
        let mut later = Changes::default();
        later.returned(0, 5, 3);
        pending.drop_outdated(&later);
        assert_eq!(pending.returned, [(0, 6, 1)]);
        assert_eq!(pending.settled.len(), 1);
    }

    #[test]
    fn changes_that_are_put_together_say_the_same_in_less() {
        let (mut earlier, mut later) = (Changes::default(), Changes::default());
        for offset in (0..10).rev() {
            earlier.settled(0, offset, 1);
            earlier.returned(1, offset, 1);
        }
        earlier.mark(0, 64);
        for offset in 5..15 {
            later.settled(0, offset, 1);
            later.returned(1, offset, 2);
        }
        later.mark(0, 128);
        later.holds_transient();
        let (mut apart, mut together) = (QueueState::default(), QueueState::default());
        for changes in [&earlier, &later] {
            apart.apply(&changes.encode()).unwrap();
        }
        later.put_before(earlier);
        assert_eq!(later.len(), 1 + 15 + 1 + 1);
        while !later.is_empty() {
            let some = later.take(4);
            assert!(some.len() <= 5);
            together.apply(&some.encode()).unwrap();
        }
        assert_eq!(together.encode(true), apart.encode(true));
    }
}
