//! Timers of a task in memory: when they are due, and where their records are.

use std::collections::{BTreeSet, HashMap};

use crate::index::{KeyHash, OFFSETS_MAX};

/// Timers by key and by time. Keys and names stay on disk.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_key: HashMap<KeyHash, KnownTimer>,
    by_time: BTreeSet<(i64, u64)>,
    bytes: u64,
}

/// When a timer is due, where it is, and its bytes above the bits of an offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownTimer {
    due: i64,
    place: u64,
}

impl KnownTimer {
    pub(crate) fn new(due: i64, offset: u64, bytes: usize) -> Self {
        // A timer has a key and a name of 32 KiB each at most.
        let place = offset | (bytes as u64) << OFFSETS_MAX.trailing_zeros();
        Self { due, place }
    }

    pub(crate) fn at(self) -> (i64, u64) {
        (self.due, self.place & (OFFSETS_MAX - 1))
    }

    pub(crate) fn bytes(self) -> u64 {
        self.place >> OFFSETS_MAX.trailing_zeros()
    }
}

impl Timers {
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns the bytes of all records.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, key: KeyHash) -> Option<KnownTimer> {
        self.by_key.get(&key).copied()
    }

    /// Returns the timers in the order of their times, with their places.
    pub(crate) fn by_time(&self) -> &BTreeSet<(i64, u64)> {
        &self.by_time
    }

    pub(crate) fn set(&mut self, key: KeyHash, timer: Option<KnownTimer>) {
        let before = match timer {
            Some(timer) => {
                self.by_time.insert(timer.at());
                self.bytes += timer.bytes();
                self.by_key.insert(key, timer)
            }
            None => self.by_key.remove(&key),
        };
        if let Some(before) = before {
            self.by_time.remove(&before.at());
            self.bytes -= before.bytes();
        }
    }
}
