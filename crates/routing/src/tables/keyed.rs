//! Bindings by exact key, and an entry type shared with other tables: a text with its hops.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::hash_trie::{HashTrie, PrefetchedSlot};
use crate::hops::{Hop, Hops, Target};

/// A key or a part of one; inline if short, as most are.
pub(super) type Text = SmallVec<[u8; 24]>;

/// A text, and the hops of all bindings that have it.
#[derive(Debug, Clone)]
pub(super) struct TextHops<T> {
    pub(super) text: Text,
    pub(super) hops: Hops<T>,
}

/// Hops by key.
#[derive(Debug, Clone)]
pub(crate) struct ByKey<T> {
    keys: HashTrie<Arc<TextHops<T>>>,
    /// Random per process, so that clients cannot choose colliding keys.
    hash: RandomState,
}

impl<T> Default for ByKey<T> {
    fn default() -> Self {
        Self {
            keys: HashTrie::default(),
            hash: RandomState::new(),
        }
    }
}

impl<T: Target> ByKey<T> {
    pub(super) fn bind(&mut self, key: &[u8], hop: Hop<T>) {
        let hash = self.hash.hash_one(key);
        match self.keys.get_mut(hash, |known| *known.text == *key) {
            Some(known) => Arc::make_mut(known).hops.add(hop),
            None => self.keys.insert(
                hash,
                Arc::new(TextHops {
                    text: Text::from_slice(key),
                    hops: Hops::One(hop),
                }),
            ),
        }
    }

    pub(super) fn unbind(&mut self, key: &[u8], hop: &Hop<T>) -> bool {
        let hash = self.hash.hash_one(key);
        let is = |known: &Arc<TextHops<T>>| *known.text == *key;
        let Some(known) = self.keys.get_mut(hash, is) else {
            return false;
        };
        let hops = &mut Arc::make_mut(known).hops;
        let found = hops.remove(hop);
        if hops.is_empty() {
            self.keys.remove(hash, is);
        }
        found
    }

    /// Prefetches the slot of a key; `None` if the table is small.
    pub(super) fn prefetch(&self, key: &[u8]) -> Option<PrefetchedSlot<'_, Arc<TextHops<T>>>> {
        self.keys.prefetch(self.hash.hash_one(key))
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Hops<T>> {
        if self.keys.is_empty() {
            return None;
        }
        let known = self
            .keys
            .get(self.hash.hash_one(key), |known| *known.text == *key);
        known.map(|known| &known.hops)
    }
}
