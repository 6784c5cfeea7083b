//! Locks of messages in flight: each for the messages that one member took from one partition at once.
//!
//! The delivery state knows a lock as the consumer of its messages, so a message has one lock. A lock ends
//! when all its messages are settled or have another lock, or when its time is over. Pure: time is an
//! argument, in ms of any clock that does not go back.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use stafett_queue::ConsumerKey;

use super::throttle::FirstTaken;

/// A lock of messages of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordLock {
    pub(super) member: Arc<str>,
    pub(super) partition: u32,
    /// Messages that were locked; some may be settled by now.
    pub(super) offsets: Vec<Range<u64>>,
    /// Number of messages that still have this lock.
    pub(super) held: u64,
    pub(super) until_ms: i64,
}

/// All locks of a place.
#[derive(Debug, Default)]
pub(super) struct Locks {
    by_key: BTreeMap<ConsumerKey, RecordLock>,
    by_time: BTreeSet<(i64, ConsumerKey)>,
    last_key: u64,
    pub(super) first_taken: FirstTaken,
}

impl Locks {
    /// Returns a key for the next lock; never returned again.
    pub(super) fn new_key(&mut self) -> ConsumerKey {
        self.last_key += 1;
        ConsumerKey(self.last_key)
    }

    pub(super) fn insert(&mut self, key: ConsumerKey, lock: RecordLock) {
        self.by_time.insert((lock.until_ms, key));
        self.by_key.insert(key, lock);
    }

    /// Returns the member that holds a lock.
    pub(super) fn member(&self, key: ConsumerKey) -> Option<&str> {
        self.by_key.get(&key).map(|lock| &*lock.member)
    }

    /// Records that a message with a lock is about to return.
    pub(super) fn on_returned(&mut self, key: ConsumerKey, offset: u64) {
        let Some(lock) = self.by_key.get(&key) else { return };
        if let Some(range) = lock.offsets.iter().find(|range| range.contains(&offset)) {
            self.first_taken.add(lock.partition, range);
        }
    }

    /// Removes a lock with messages that are about to return.
    fn remove_returning(&mut self, key: ConsumerKey) -> Option<RecordLock> {
        let lock = self.remove(key)?;
        for range in &lock.offsets {
            self.first_taken.add(lock.partition, range);
        }
        Some(lock)
    }

    /// Records that one message no longer has a lock.
    pub(super) fn on_released(&mut self, key: ConsumerKey) {
        let Some(lock) = self.by_key.get_mut(&key) else {
            return;
        };
        lock.held = lock.held.saturating_sub(1);
        if lock.held == 0 {
            self.remove(key);
        }
    }

    /// Removes a lock.
    fn remove(&mut self, key: ConsumerKey) -> Option<RecordLock> {
        let lock = self.by_key.remove(&key)?;
        self.by_time.remove(&(lock.until_ms, key));
        Some(lock)
    }

    /// Removes and returns a lock whose time is over.
    pub(super) fn pop_due(&mut self, now_ms: i64) -> Option<(ConsumerKey, RecordLock)> {
        let (_, key) = self.by_time.first().filter(|(until, _)| *until <= now_ms)?;
        let key = *key;
        Some((key, self.remove_returning(key)?))
    }

    /// Returns the time at which the next lock is due.
    pub(super) fn next_due(&self) -> Option<i64> {
        self.by_time.first().map(|(until, _)| *until)
    }

    /// Removes and returns the locks of a member.
    pub(super) fn take_of(&mut self, member: &str) -> Vec<(ConsumerKey, RecordLock)> {
        let of_member = |lock: &RecordLock| *lock.member == *member;
        let keys: Vec<_> = self
            .by_key
            .iter()
            .filter(|(_, lock)| of_member(lock))
            .map(|(key, _)| *key)
            .collect();
        keys.into_iter()
            .filter_map(|key| Some((key, self.remove_returning(key)?)))
            .collect()
    }

    /// Removes all locks of a partition.
    pub(super) fn forget(&mut self, partition: u32) {
        self.by_key.retain(|_, lock| lock.partition != partition);
        self.by_time.retain(|(_, key)| self.by_key.contains_key(key));
        self.first_taken.forget(partition);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_key.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(member: &str, partition: u32, held: u64, until_ms: i64) -> RecordLock {
        RecordLock {
            member: member.into(),
            partition,
            offsets: std::iter::once(0..held).collect(),
            held,
            until_ms,
        }
    }

    #[test]
    fn a_lock_ends_with_its_last_message_or_its_time() {
        let mut locks = Locks::default();
        let (first, second) = (locks.new_key(), locks.new_key());
        locks.insert(first, lock("a", 0, 2, 10));
        locks.insert(second, lock("b", 1, 1, 5));
        assert_eq!(locks.next_due(), Some(5));
        assert_eq!(locks.pop_due(4), None);
        assert_eq!(locks.pop_due(5).map(|(key, _)| key), Some(second));
        assert_eq!(locks.member(second), None);
        locks.on_released(first);
        assert_eq!((locks.member(first), locks.len()), (Some("a"), 1));
        locks.on_released(first);
        assert_eq!((locks.member(first), locks.next_due()), (None, None));
    }

    #[test]
    fn the_locks_of_a_member_and_those_of_a_partition_are_removed() {
        let mut locks = Locks::default();
        for (member, partition) in [("a", 0), ("a", 1), ("b", 0)] {
            let key = locks.new_key();
            locks.insert(key, lock(member, partition, 1, 10));
        }
        locks.forget(1);
        assert_eq!((locks.take_of("a").len(), locks.len()), (1, 1));
        locks.forget(0);
        assert_eq!((locks.len(), locks.next_due()), (0, None));
    }
}
