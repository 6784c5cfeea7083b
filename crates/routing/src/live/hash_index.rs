//! Index from the hash of a name to its number: most look-ups read one cache line, however many entries there
//! are.
//!
//! Open addressing with linear probing. An entry is 32 bits of the hash and the number. Its home slot is
//! given by the highest bits of that hash, so that growing and removing read no names. The caller compares
//! names if hashes are equal.

use crate::cache_prefetch;

const ENTRIES_MIN: usize = 8;

/// Hash table from hash to number. An entry is 0 if empty, otherwise the hash and the number plus 1.
#[derive(Debug, Default)]
pub(super) struct HashIndex {
    /// Length is a power of two, or 0.
    entries: Box<[u64]>,
    len: usize,
}

fn entry_of(hash: u32, number: u32) -> u64 {
    (u64::from(hash) << 32) | (u64::from(number) + 1)
}

fn hash_of(entry: u64) -> u32 {
    u32::try_from(entry >> 32).unwrap_or(0)
}

fn number_of(entry: u64) -> u32 {
    u32::try_from((entry & u64::from(u32::MAX)) - 1).unwrap_or(0)
}

impl HashIndex {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.entries.len() * size_of::<u64>()
    }

    /// Prefetches the home slot of a hash.
    pub(super) fn prefetch(&self, hash: u32) {
        if let Some(place) = self.entries.get(self.home(hash)) {
            cache_prefetch::prefetch(place);
        }
    }

    /// Returns the number under a hash for which `is_it` is true.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.find_place(hash, is_it).map(|at| number_of(self.entry(at)))
    }

    /// Adds a number that is not present. It must be less than `u32::MAX`.
    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        if (self.len + 1) * 4 > self.entries.len() * 3 {
            self.grow();
        }
        self.put(entry_of(hash, number));
        self.len += 1;
    }

    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        let Some(mut hole) = self.find_place(hash, |known| known == number) else {
            return;
        };
        self.len -= 1;
        // Entries behind the hole move up as far as their home slot allows.
        let mask = self.mask();
        let mut at = self.behind(hole);
        loop {
            let entry = self.entry(at);
            if entry == 0 {
                break;
            }
            let steps_from = |place: usize| at.wrapping_sub(place) & mask;
            if steps_from(self.home(hash_of(entry))) >= steps_from(hole) {
                self.set(hole, entry);
                hole = at;
            }
            at = self.behind(at);
        }
        self.set(hole, 0);
    }

    fn find_place(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let entry = self.entry(at);
            if entry == 0 {
                return None;
            }
            if hash_of(entry) == hash && is_it(number_of(entry)) {
                return Some(at);
            }
            at = self.behind(at);
        }
    }

    fn grow(&mut self) {
        let count = (self.entries.len() * 2).max(ENTRIES_MIN);
        let before = std::mem::replace(&mut self.entries, vec![0; count].into());
        for entry in before.into_iter().filter(|entry| *entry != 0) {
            self.put(entry);
        }
    }

    fn put(&mut self, entry: u64) {
        let mut at = self.home(hash_of(entry));
        while self.entry(at) != 0 {
            at = self.behind(at);
        }
        self.set(at, entry);
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    /// Returns the home slot of a hash: its highest bits.
    fn home(&self, hash: u32) -> usize {
        let bits = self.entries.len().trailing_zeros();
        usize::try_from(u64::from(hash) << bits >> 32).unwrap_or(0)
    }

    fn behind(&self, at: usize) -> usize {
        (at + 1) & self.mask()
    }

    fn entry(&self, at: usize) -> u64 {
        self.entries.get(at).copied().unwrap_or(0)
    }

    fn set(&mut self, at: usize, entry: u64) {
        if let Some(place) = self.entries.get_mut(at) {
            *place = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few distinct hashes at both ends, so that entries collide and runs wrap around.
        #[test]
        fn it_has_what_a_plain_set_has(
            changes in proptest::collection::vec((any::<bool>(), 0..12_u32, 0..200_u32), 0..600),
        ) {
            let mut index = HashIndex::default();
            let mut model = BTreeSet::new();
            for (add, hash, number) in changes {
                let hash = if hash < 6 { hash << 27 } else { u32::MAX - hash };
                if add && model.insert((hash, number)) {
                    index.insert(hash, number);
                } else if !add {
                    model.remove(&(hash, number));
                    index.remove(hash, number);
                }
                prop_assert_eq!(index.len(), model.len());
            }
            for hash in (0..6_u32).map(|hash| hash << 27).chain((6..12).map(|hash| u32::MAX - hash)) {
                for number in 0..200 {
                    let found = index.find(hash, |known| known == number);
                    prop_assert_eq!(found.is_some(), model.contains(&(hash, number)));
                }
            }
        }
    }
}
