//! Topics in shards, so that publishes and changes rarely meet.

use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use stafett_routing::live::{IdSet, Slot, TopicTable};

const SHARD_BITS: u32 = 6;
const SHARDS: u32 = 1 << SHARD_BITS;

/// A topic among all shards; given to another one when this one is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicId(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct TopicShards {
    shards: Box<[RwLock<TopicTable>]>,
    hash: RandomState,
}

impl Default for TopicShards {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            hash: RandomState::new(),
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

    /// Takes a subscription out; `None` if there was none.
    pub(crate) fn unsubscribe(&self, name: &str, client: u32) -> Option<TopicId> {
        let hash = self.hash.hash_one(name);
        let shard = shard_of(hash);
        let slot = self.write(shard).unsubscribe(hash, name, client)?;
        Some(TopicId((slot.0 << SHARD_BITS) | shard))
    }

    /// Lets `visit` see the subscribers of a topic, if it has any.
    pub(crate) fn subscribers<R>(&self, name: &str, visit: impl FnOnce(&IdSet) -> R) -> Option<R> {
        let hash = self.hash.hash_one(name);
        self.read(shard_of(hash)).subscribers(hash, name).map(visit)
    }

    /// Whether a client subscribes to a topic.
    pub(crate) fn has(&self, name: &str, client: u32) -> bool {
        self.subscribers(name, |ids| ids.contains(client)) == Some(true)
    }

    /// Lets `visit` see a topic's name.
    pub(crate) fn name<R>(&self, id: TopicId, visit: impl FnOnce(&str) -> R) -> Option<R> {
        let shard = self.read(id.0 % SHARDS);
        shard.name(Slot(id.0 >> SHARD_BITS)).map(visit)
    }

    /// Topics, and subscriptions to them.
    pub(crate) fn count(&self) -> (usize, usize) {
        let shards = self
            .shards
            .iter()
            .map(|shard| shard.read().unwrap_or_else(PoisonError::into_inner));
        shards.fold((0, 0), |(topics, subscriptions), shard| {
            (topics + shard.len(), subscriptions + shard.subscriptions())
        })
    }

    #[expect(clippy::indexing_slicing, reason = "the shard is a hash modulo their number")]
    fn read(&self, shard: u32) -> RwLockReadGuard<'_, TopicTable> {
        self.shards[shard as usize]
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(clippy::indexing_slicing, reason = "the shard is a hash modulo their number")]
    fn write(&self, shard: u32) -> RwLockWriteGuard<'_, TopicTable> {
        self.shards[shard as usize]
            .write()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tables inside use the lower half.
fn shard_of(hash: u64) -> u32 {
    u32::try_from(hash >> 32 & u64::from(SHARDS - 1)).unwrap_or(0)
}
