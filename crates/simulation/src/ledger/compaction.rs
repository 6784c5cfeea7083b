//! Compacted topics: keys of their records, and records that may be gone.
//!
//! A record that was acknowledged may be missing if a newer one of its key is there, or if the newest one is
//! a tombstone and `delete.retention.ms` has passed since a pass over it. Then nothing older of the key may
//! be left. Records of aborted transactions replace nothing.

use std::collections::{BTreeMap, BTreeSet};

use stafett_model::TransactionEnd;

use super::{Batch, Ledger, LogKey, RecordId, Seen, State, survives};
use crate::world::{Death, Finding};

/// Number of keys.
const KEYS: u64 = 40;
/// One in this many records deletes its key.
const TOMBSTONE_EVERY: u64 = 6;

/// Settings of a compacted topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Value of `cleanup.policy`.
    pub cleanup: &'static str,
    pub dirty_ratio: &'static str,
    pub lag_ms: u32,
    /// Value of `delete.retention.ms`.
    pub tombstones_kept_ms: i64,
}

const POLICIES: [Policy; 2] = [
    Policy {
        cleanup: "compact",
        dirty_ratio: "0.0",
        lag_ms: 0,
        tombstones_kept_ms: 10_000,
    },
    Policy {
        cleanup: "compact,delete",
        dirty_ratio: "0.2",
        lag_ms: 500,
        tombstones_kept_ms: 86_400_000,
    },
];
/// First topic that is compacted; all behind it are.
const FIRST: u8 = 4;

/// Returns the settings of a topic, if it is compacted.
pub fn policy(topic: u8) -> Option<&'static Policy> {
    POLICIES.get(usize::from(topic.checked_sub(FIRST)?))
}

fn mixed((batch, index): RecordId) -> u64 {
    let mixed = (batch as u64 ^ (u64::from(index) << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 32
}

/// Returns the key of a record in a compacted topic.
pub fn key_of(record: RecordId) -> u64 {
    mixed(record) % KEYS
}

/// True if a record in a compacted topic deletes its key.
pub fn is_tombstone(record: RecordId) -> bool {
    (mixed(record) / KEYS).is_multiple_of(TOMBSTONE_EVERY)
}

fn records(number: usize, batch: &Batch) -> impl Iterator<Item = RecordId> {
    (0..batch.records).map(move |index| (number, index))
}

/// Tombstones that passes were over.
#[derive(Debug, Clone, Default)]
pub(super) struct Passes {
    /// Earliest time of a pass since the batch was sent, by batch.
    first_ms: BTreeMap<usize, i64>,
    /// Batches whose tombstones may be gone.
    expired: BTreeSet<usize>,
}

impl Ledger {
    /// Handles a rewrite of the journal, in which logs may be compacted.
    pub fn on_rewrite(&mut self, now_ms: i64) {
        let Passes { first_ms, expired } = &mut self.passes;
        for (number, batch) in self.batches.iter().enumerate() {
            let Some(policy) = policy(batch.log.topic) else {
                continue;
            };
            let first = first_ms.entry(number).or_insert(now_ms);
            if *first <= now_ms - policy.tombstones_kept_ms {
                expired.insert(number);
            }
            *first = now_ms.min(*first);
        }
    }

    /// Returns the batches in a compacted log with their offsets, by the records that are left.
    pub(super) fn parts_in(&mut self, log: LogKey, read: &[Seen]) -> Result<BTreeMap<usize, u64>, Finding> {
        let mut found: BTreeMap<usize, u64> = BTreeMap::new();
        let mut last = None;
        for seen in read {
            let (number, index) = seen.id;
            let batch = self.batches.get(number).filter(|batch| batch.log == log);
            let base = seen.offset.checked_sub(u64::from(index));
            let Some((_, base)) = batch.filter(|batch| index < batch.records).zip(base) else {
                return Err(Finding(format!(
                    "{log:?} holds {seen:?}, which was not sent there"
                )));
            };
            if last.is_some_and(|last| last >= seen.offset) || *found.entry(number).or_insert(base) != base {
                return Err(Finding(format!(
                    "{log:?} holds {seen:?} behind {last:?}, and its batch at {:?}",
                    found.get(&number)
                )));
            }
            last = Some(seen.offset);
        }
        for seen in read {
            self.saw(log, seen.offset, seen.id)?;
        }
        Ok(found)
    }

    /// Checks the records that are missing in a compacted log. Outcomes of transactions that the log shows
    /// are known by now; `before` has the states of batches from before the read.
    pub fn check_compacted(
        &mut self,
        log: LogKey,
        read: &[Seen],
        died: Option<Death>,
        before: &[State],
    ) -> Result<(), Finding> {
        let Some(policy) = policy(log.topic) else {
            return Ok(());
        };
        let mut left = LeftKeys {
            offsets: read.iter().map(|seen| seen.offset).collect(),
            ends: BTreeMap::new(),
            deleted: self.deleted_keys(log),
        };
        for seen in read.iter().filter(|seen| self.replaces(seen.id.0)) {
            let of_key = left.ends.entry(key_of(seen.id));
            of_key.or_insert((seen.offset, seen.offset)).1 = seen.offset;
        }
        let mut lost = Vec::new();
        for (number, batch) in self.batches.iter().enumerate() {
            let State::Acknowledged { base } = batch.state else {
                continue;
            };
            let was_there = before.get(number).is_some_and(|state| *state != State::Unknown);
            let is_expired = policy.cleanup.contains("delete") && batch.date_ms < self.expired_ms;
            if batch.log != log || !was_there || is_expired || self.may_be_aborted(batch) {
                continue;
            }
            let at = |id: RecordId| base + u64::from(id.1);
            let wrong = records(number, batch).find_map(|id| left.wrong(id, at(id), self.replaces(number)));
            let is_whole_gone = !records(number, batch).any(|id| left.offsets.contains(&at(id)));
            match wrong {
                Some(_) if is_whole_gone && died.is_some_and(|death| !survives(batch.level, death)) => {
                    lost.push(number);
                }
                Some(wrong) => return Err(Finding(format!("{log:?}: {wrong} ({died:?})"))),
                None => {}
            }
        }
        for number in lost {
            if let Some(batch) = self.batches.get_mut(number) {
                batch.state = State::Never;
            }
        }
        Ok(())
    }

    /// Returns the keys that a tombstone may have deleted that may be gone.
    fn deleted_keys(&self, log: LogKey) -> BTreeSet<u64> {
        let expired = self.passes.expired.iter();
        let batches = expired.filter_map(|number| Some((*number, self.batches.get(*number)?)));
        let mine = batches.filter(|(_, batch)| batch.log == log);
        mine.flat_map(|(number, batch)| records(number, batch))
            .filter(|id| is_tombstone(*id))
            .map(key_of)
            .collect()
    }

    /// True if records of a batch replace older ones.
    fn replaces(&self, number: usize) -> bool {
        let transaction = self.batches.get(number).and_then(|batch| batch.transaction);
        let transaction = transaction.and_then(|number| self.transactions.all.get(number));
        transaction.is_none_or(|it| it.end == Some(TransactionEnd::Commit))
    }

    fn may_be_aborted(&self, batch: &Batch) -> bool {
        let transaction = batch.transaction;
        let transaction = transaction.and_then(|number| self.transactions.all.get(number));
        transaction.is_some_and(|it| match it.end {
            Some(end) => end == TransactionEnd::Abort,
            None => it.may_abort,
        })
    }

    /// True if a record of a compacted log may be gone, as far as is known without a read: there may be a
    /// newer one of its key, or it may have been deleted or aborted.
    pub(super) fn may_be_replaced(&self, log: LogKey, offset: u64, id: RecordId) -> bool {
        if policy(log.topic).is_none() {
            return false;
        }
        let key = key_of(id);
        let is_known_newer = self.seen.get(&log).is_some_and(|seen| {
            let mut newer = seen.range(offset + 1..);
            newer.any(|(_, other)| key_of(*other) == key)
        });
        let mut unknown = self
            .batches
            .iter()
            .enumerate()
            .filter(|(_, batch)| batch.log == log && !matches!(batch.state, State::Acknowledged { .. }));
        is_known_newer
            || self
                .batches
                .get(id.0)
                .is_some_and(|batch| self.may_be_aborted(batch))
            || self.passes.expired.contains(&id.0) && is_tombstone(id)
            || unknown.any(|(number, batch)| records(number, batch).any(|other| key_of(other) == key))
    }
}

/// Content of a compacted log.
#[derive(Debug)]
struct LeftKeys {
    offsets: BTreeSet<u64>,
    /// First and last offset of each key, without records of transactions that are not committed.
    ends: BTreeMap<u64, (u64, u64)>,
    /// Keys that a tombstone that may be gone deleted.
    deleted: BTreeSet<u64>,
}

impl LeftKeys {
    /// Returns the reason why an acknowledged record must not be missing, if it is.
    fn wrong(&self, id: RecordId, offset: u64, replaces: bool) -> Option<String> {
        let key = key_of(id);
        let ends = self.ends.get(&key).copied();
        if self.offsets.contains(&offset) || ends.is_some_and(|(_, last)| last > offset) {
            return None;
        }
        if !self.deleted.contains(&key) {
            return Some(format!(
                "{id:?} at {offset} is gone, and nothing newer of key {key} is there"
            ));
        }
        let (first, _) = ends.filter(|_| is_tombstone(id) && replaces)?;
        Some(format!(
            "{id:?} at {offset} deleted key {key} and is gone, and {first} is there"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_repeat_and_some_records_delete_theirs() {
        let all: Vec<RecordId> = (0..50)
            .flat_map(|batch| (0..20).map(move |at| (batch, at)))
            .collect();
        let keys: BTreeSet<u64> = all.iter().map(|id| key_of(*id)).collect();
        assert_eq!(keys.len() as u64, KEYS);
        let tombstones = all.iter().filter(|id| is_tombstone(**id)).count();
        assert!((100..250).contains(&tombstones), "{tombstones}");
    }
}
