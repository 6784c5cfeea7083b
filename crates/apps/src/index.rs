//! Index of the entries of a task's log: for each key, the offset of its latest record. Keys are not kept.
//!
//! An entry takes 16 bytes: 76 bits of a keyed hash, the size of the record in 8 bits (1/16 exact), and 44
//! bits of offset. Entries stand in the order of their hashes, in leaves of up to 256. Two keys with one
//! hash would share an entry: among 10 million keys, that has a chance below 1 in a thousand million, and
//! as the hash has random keys of this process, a client cannot choose such keys.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

const OFFSET_BITS: u32 = 44;
const SIZE_BITS: u32 = 8;
const HASH_SHIFT: u32 = OFFSET_BITS + SIZE_BITS;
const LEAF_MAX: usize = 256;
/// Entries for which a leaf takes memory at a time.
const LEAF_STEP: usize = 16;
/// Offsets that an index can hold are below this.
pub(crate) const OFFSETS_MAX: u64 = 1 << OFFSET_BITS;

/// Hash of a record's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyHash(u128);

/// Hashes record keys with random keys of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyHasher(RandomState, RandomState);

impl KeyHasher {
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let both = u128::from(self.0.hash_one(key)) << 64 | u128::from(self.1.hash_one(key));
        KeyHash(both >> HASH_SHIFT)
    }
}

#[derive(Debug, Default)]
pub(crate) struct KeyIndex {
    /// Leaves by the hash that they begin at.
    leaves: BTreeMap<u128, Vec<u128>>,
    len: usize,
    /// Sum of the sizes, each as exact as it is stored.
    bytes: u64,
}

impl KeyIndex {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes of all records, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the offset of the record with this key.
    pub(crate) fn offset(&self, hash: KeyHash) -> Option<u64> {
        self.entry(hash).map(offset_of)
    }

    /// Returns the size of the record with this key as it is counted, 0 if there is none.
    pub(crate) fn size(&self, hash: KeyHash) -> u64 {
        self.entry(hash).map_or(0, |entry| size_of(size_in(entry)))
    }

    fn entry(&self, hash: KeyHash) -> Option<u128> {
        let (_, leaf) = self.leaves.range(..=hash.0).next_back()?;
        let entry = *leaf.get(place(leaf, hash))?;
        (entry >> HASH_SHIFT == hash.0).then_some(entry)
    }

    pub(crate) fn insert(&mut self, hash: KeyHash, offset: u64, bytes: usize) {
        debug_assert!(offset < OFFSETS_MAX, "checked before it is stored");
        let size = size_class(bytes);
        let entry = hash.0 << HASH_SHIFT | u128::from(size) << OFFSET_BITS | u128::from(offset);
        self.bytes += size_of(size);
        let key = match self.leaves.range(..=hash.0).next_back() {
            Some((key, _)) => *key,
            None => 0,
        };
        let leaf = self.leaves.entry(key).or_default();
        let at = place(leaf, hash);
        if let Some(known) = leaf.get_mut(at).filter(|known| **known >> HASH_SHIFT == hash.0) {
            self.bytes -= size_of(size_in(*known));
            *known = entry;
            return;
        }
        if leaf.len() == leaf.capacity() {
            leaf.reserve_exact(LEAF_STEP);
        }
        leaf.insert(at, entry);
        self.len += 1;
        if leaf.len() > LEAF_MAX {
            let upper = leaf.split_off(LEAF_MAX / 2);
            leaf.shrink_to(LEAF_MAX / 2 + LEAF_STEP);
            if let Some(first) = upper.first().map(|first| first >> HASH_SHIFT) {
                self.leaves.insert(first, upper);
            }
        }
    }

    pub(crate) fn remove(&mut self, hash: KeyHash) -> bool {
        let Some((key, leaf)) = self.leaves.range_mut(..=hash.0).next_back() else {
            return false;
        };
        let (key, at) = (*key, place(leaf, hash));
        let Some(known) = leaf
            .get(at)
            .copied()
            .filter(|known| known >> HASH_SHIFT == hash.0)
        else {
            return false;
        };
        leaf.remove(at);
        if leaf.is_empty() {
            self.leaves.remove(&key);
        } else if leaf.capacity() > 2 * (leaf.len() + LEAF_STEP) {
            leaf.shrink_to(leaf.len() + LEAF_STEP);
        }
        self.len -= 1;
        self.bytes -= size_of(size_in(known));
        true
    }
}

fn place(leaf: &[u128], hash: KeyHash) -> usize {
    leaf.partition_point(|entry| entry >> HASH_SHIFT < hash.0)
}

fn offset_of(entry: u128) -> u64 {
    u64::try_from(entry & u128::from(OFFSETS_MAX - 1)).unwrap_or(0)
}

fn size_in(entry: u128) -> u8 {
    u8::try_from(entry >> OFFSET_BITS & 0xff).unwrap_or(0)
}

/// Three bits behind the highest one, and the place of that one.
fn size_class(bytes: usize) -> u8 {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).max(8);
    let exponent = bytes.ilog2();
    let mantissa = (bytes >> (exponent - 3)) & 7;
    u8::try_from((exponent - 3) << 3 | mantissa).unwrap_or(u8::MAX)
}

/// Returns the size of a record as it is counted.
pub(crate) fn counted(bytes: usize) -> u64 {
    size_of(size_class(bytes))
}

fn size_of(class: u8) -> u64 {
    let (exponent, mantissa) = (class >> 3, class & 7);
    (8 + u64::from(mantissa)) << exponent
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_a_sixteenth_exact() {
        for bytes in [8, 9, 15, 16, 17, 100, 1000, 12_345, 8 << 20] {
            let stored = size_of(size_class(bytes));
            assert!(
                stored <= bytes as u64 && stored * 9 / 8 >= bytes as u64 - 1,
                "{bytes}: {stored}"
            );
        }
        assert_eq!(size_of(size_class(0)), 8);
    }

    #[test]
    fn an_entry_takes_about_sixteen_bytes() {
        let (mut index, hasher) = (KeyIndex::default(), KeyHasher::default());
        for number in 0..300_000_u32 {
            index.insert(hasher.hash(&number.to_le_bytes()), number.into(), 10);
        }
        let capacity: usize = index.leaves.values().map(Vec::capacity).sum();
        assert_eq!(index.len(), 300_000);
        let per_entry = capacity as f64 * 16.0 / 300_000.0;
        assert!(per_entry < 18.0, "{per_entry} bytes");
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_holds(changes in prop::collection::vec((0..400_u16, prop::option::of(0..1000_usize)), 0..2000)) {
            let (mut index, hasher) = (KeyIndex::default(), KeyHasher::default());
            let mut map = HashMap::new();
            for (offset, (key, size)) in (0_u64..).zip(changes) {
                let hash = hasher.hash(&key.to_le_bytes());
                if let Some(size) = size {
                    index.insert(hash, offset, size);
                    map.insert(key, (offset, size_of(size_class(size))));
                } else {
                    prop_assert_eq!(index.remove(hash), map.remove(&key).is_some());
                }
                prop_assert_eq!(index.len(), map.len());
            }
            for key in 0..400_u16 {
                let hash = hasher.hash(&key.to_le_bytes());
                prop_assert_eq!(index.offset(hash), map.get(&key).map(|(offset, _)| *offset));
            }
            prop_assert_eq!(index.bytes(), map.values().map(|(_, size)| size).sum::<u64>());
        }
    }
}
