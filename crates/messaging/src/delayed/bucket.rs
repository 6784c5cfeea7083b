//! A bucket: the delayed messages that are due within one minute.
//!
//! Its messages are in a log of its own; the released offsets are keyed state:
//!
//! ```text
//! key    u8 2, u64 minute since 1970, big-endian
//! value  u8 version = 1, u64 log
//! delta  released offsets: runs, each: number offsets since the end of the run before, number offsets in it
//! ```
//!
//! A number has seven bits per byte, low bits first.

use bytes::Bytes;
use stafett_journal::{Change, Frame};
use stafett_model::{Lock, LogId, read_number, write_number};
use stafett_queue::OffsetSet;
use stafett_store::spaces;

const VERSION: u8 = 1;
const MINUTE_MS: i64 = 60_000;

/// A minute since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Minute(u64);

#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) log: LogId,
    /// Offsets released before this start, until the bucket is opened.
    done: Lock<OffsetSet>,
}

impl Minute {
    pub(crate) fn of(ms: i64) -> Self {
        Self(u64::try_from(ms / MINUTE_MS).unwrap_or(0))
    }

    pub(crate) fn of_key(key: &[u8]) -> Option<Self> {
        key.try_into().ok().map(|key| Self(u64::from_be_bytes(key)))
    }

    pub(crate) fn start_ms(self) -> i64 {
        i64::try_from(self.0)
            .unwrap_or(i64::MAX)
            .saturating_mul(MINUTE_MS)
    }

    pub(crate) fn end_ms(self) -> i64 {
        self.start_ms().saturating_add(MINUTE_MS)
    }
}

impl Bucket {
    pub(crate) fn new(log: LogId) -> Self {
        Self {
            log,
            done: Lock::default(),
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.log.0.to_le_bytes());
        out.into()
    }

    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let (&VERSION, log) = value.split_first()? else {
            return None;
        };
        Some(Self::new(LogId(u64::from_le_bytes(log.try_into().ok()?))))
    }

    /// Adds the offsets of a stored delta.
    pub(crate) fn add_done(&mut self, mut delta: &[u8]) -> Option<()> {
        let done = self.done.get_mut();
        let mut at = 0_u64;
        while !delta.is_empty() {
            let (skipped, rest) = read_number(delta)?;
            let (run, rest) = read_number(rest)?;
            let first = at.checked_add(skipped)?;
            at = first.checked_add(run)?;
            done.insert(first..at);
            delta = rest;
        }
        Some(())
    }

    pub(crate) fn take_done(&self) -> OffsetSet {
        std::mem::take(&mut *self.done.lock())
    }
}

/// Encodes released offsets as a delta. Sorts `offsets`.
pub(crate) fn done(offsets: &mut [u64]) -> Bytes {
    offsets.sort_unstable();
    let mut out = Vec::new();
    let mut end = 0;
    let mut rest = &*offsets;
    while let Some((first, _)) = rest.split_first() {
        let run = rest
            .iter()
            .zip(*first..)
            .take_while(|(offset, expected)| *offset == expected)
            .count();
        let length = u64::try_from(run).unwrap_or(u64::MAX);
        write_number(first - end, &mut out);
        write_number(length, &mut out);
        end = first + length;
        rest = rest.get(run..).unwrap_or_default();
    }
    out.into()
}

pub(crate) fn frame(minute: Minute, change: Change) -> Frame {
    spaces::BUCKETS.change(Bytes::copy_from_slice(&minute.0.to_be_bytes()), change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_reads_back() {
        let mut bucket = Bucket::decode(&Bucket::new(LogId(7)).encode()).unwrap();
        assert_eq!(bucket.log, LogId(7));
        let mut offsets = [9, 3, 4, 5, 0, 1_000_000];
        bucket.add_done(&done(&mut offsets)).unwrap();
        bucket.add_done(&done(&mut [6])).unwrap();
        let runs: Vec<_> = bucket.take_done().runs().collect();
        assert_eq!(runs, [0..1, 3..7, 9..10, 1_000_000..1_000_001]);
    }

    #[test]
    fn what_is_malformed_is_not_read() {
        assert!(Bucket::decode(&[2, 0, 0, 0, 0, 0, 0, 0, 0]).is_none());
        assert!(Bucket::decode(&[1, 0]).is_none());
        let mut bucket = Bucket::new(LogId(1));
        assert!(bucket.add_done(&[1]).is_none());
        assert!(bucket.add_done(&[0x80]).is_none());
    }

    #[test]
    fn a_time_is_in_its_minute() {
        let minute = Minute::of(120_001);
        assert_eq!((minute.start_ms(), minute.end_ms()), (120_000, 180_000));
        assert_eq!(Minute::of(-5), Minute::of(0));
    }
}
