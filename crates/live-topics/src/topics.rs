//! Topics in shards, so that publishes and changes rarely contend.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

use stafett_model::{ReadGuard, SharedLock, WriteGuard};
use stafett_routing::live::{IdSet, Slot, TopicTable};

const SHARD_BITS: u32 = 6;
const SHARDS: u32 = 1 << SHARD_BITS;
/// Slots examined for one page of topics.
const PLACES_AT_ONCE: u32 = 100_000;

/// Id of a topic in all shards; reused after the topic is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicId(pub(crate) u32);

/// Hash of a topic's name, constant while the broker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TopicHash(u64);

/// Number of topics up to which all of them fit into the processor's caches.
const NEAR_MAX: usize = 16_384;

#[derive(Debug)]
pub(crate) struct TopicShards {
    shards: Box<[SharedLock<TopicTable>]>,
    hash: RandomState,
    /// True if there are enough topics for prefetching to pay.
    is_large: AtomicBool,
}

impl Default for TopicShards {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| SharedLock::default()).collect(),
            hash: RandomState::new(),
            is_large: AtomicBool::new(false),
        }
    }
}

impl TopicShards {
    /// Adds a subscription; true if it is new.
    pub(crate) fn subscribe(&self, name: &str, client: u32) -> (TopicId, bool) {
        let hash = self.hash.hash_one(name);
        let shard = shard_of(hash);
        let (slot, added) = self.write(shard).subscribe(hash, name, client);
        (TopicId((slot.0 << SHARD_BITS) | shard), added)
    }

    /// Removes a subscription; `None` if it did not exist.
    pub(crate) fn unsubscribe(&self, name: &str, client: u32) -> Option<TopicId> {
        let hash = self.hash.hash_one(name);
        let shard = shard_of(hash);
        let slot = self.write(shard).unsubscribe(hash, name, client)?;
        Some(TopicId((slot.0 << SHARD_BITS) | shard))
    }

    pub(crate) fn hash(&self, name: &str) -> TopicHash {
        TopicHash(self.hash.hash_one(name))
    }

    /// Begins the prefetch of a topic's entry.
    pub(crate) fn prefetch(&self, TopicHash(hash): TopicHash) {
        if self.is_large.load(Ordering::Relaxed) {
            self.read(shard_of(hash)).prefetch(hash);
        }
    }

    /// Continues the prefetch.
    pub(crate) fn prefetch_entry(&self, TopicHash(hash): TopicHash) {
        if self.is_large.load(Ordering::Relaxed) {
            self.read(shard_of(hash)).prefetch_topic(hash);
        }
    }

    /// Calls `visit` with the subscribers of a topic, if it has any.
    pub(crate) fn subscribers<R>(&self, name: &str, visit: impl FnOnce(&IdSet) -> R) -> Option<R> {
        self.subscribers_of(self.hash(name), name, visit)
    }

    /// Like [`Self::subscribers`], with the hash of the name.
    pub(crate) fn subscribers_of<R>(
        &self,
        TopicHash(hash): TopicHash,
        name: &str,
        visit: impl FnOnce(&IdSet) -> R,
    ) -> Option<R> {
        self.read(shard_of(hash)).subscribers(hash, name).map(visit)
    }

    /// Returns true if a client subscribes to a topic.
    pub(crate) fn has(&self, name: &str, client: u32) -> bool {
        self.subscribers(name, |ids| ids.contains(client)) == Some(true)
    }

    /// Calls `visit` with a topic's name.
    pub(crate) fn name<R>(&self, id: TopicId, visit: impl FnOnce(&str) -> R) -> Option<R> {
        let shard = self.read(id.0 % SHARDS);
        shard.name(Slot(id.0 >> SHARD_BITS)).map(visit)
    }

    /// Visits topics with their numbers of subscribers, from a position on, until `visit` returns false.
    /// Returns the next position: a shard, and a slot in it.
    pub(crate) fn each_from(&self, from: u64, mut visit: impl FnMut(&str, usize) -> bool) -> Option<u64> {
        let (mut shard, mut first) = (from >> 32, u32::try_from(from & u64::from(u32::MAX)).unwrap_or(0));
        // Empty slots cost time too.
        let mut left = PLACES_AT_ONCE;
        while shard < u64::from(SHARDS) {
            let table = self.read(u32::try_from(shard).unwrap_or(0));
            let end = table.end().0.min(first.saturating_add(left));
            for (slot, name, subscribers) in table.from(Slot(first), Slot(end)) {
                if !visit(name, subscribers.len()) {
                    return Some((shard << 32) | u64::from(slot.0));
                }
            }
            left -= end.saturating_sub(first).min(left);
            if left == 0 {
                return Some((shard << 32) | u64::from(end));
            }
            (shard, first) = (shard + 1, 0);
        }
        None
    }

    /// Returns the number of topics, and of subscriptions to them.
    pub(crate) fn count(&self) -> (usize, usize) {
        let shards = self.shards.iter().map(|shard| shard.read());
        let count = shards.fold((0, 0), |(topics, subscriptions), shard| {
            (topics + shard.len(), subscriptions + shard.subscriptions())
        });
        // Every change of topics calls this.
        self.is_large.store(count.0 > NEAR_MAX, Ordering::Relaxed);
        count
    }

    /// Returns the bytes of all topics and their subscribers, approximately.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().heap_bytes()).sum()
    }

    #[expect(clippy::indexing_slicing, reason = "the shard is a hash modulo their number")]
    fn read(&self, shard: u32) -> ReadGuard<'_, TopicTable> {
        self.shards[shard as usize].read()
    }

    #[expect(clippy::indexing_slicing, reason = "the shard is a hash modulo their number")]
    fn write(&self, shard: u32) -> WriteGuard<'_, TopicTable> {
        self.shards[shard as usize].write()
    }
}

/// Returns the shard of a hash. Tables use the lower half.
fn shard_of(hash: u64) -> u32 {
    u32::try_from(hash >> 32 & u64::from(SHARDS - 1)).unwrap_or(0)
}
