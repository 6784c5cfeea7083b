//! Offset map: the newest offset of each key in the dirty ranges of a pass, in bounded memory.
//!
//! An open table with linear probing. Of a key it has 128 bits of keyed hash: at a billion keys, two that are
//! taken for one are about as likely as a wrong bit that the checksums of the disk let pass. Hash keys are
//! random per map, so keys cannot be chosen to collide.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use stafett_model::{LogId, Offset};

/// Two halves of a hash, and an offset plus one; 0 in an empty slot.
type Slot = [u64; 3];

/// Hash of a log and a key.
pub(super) type KeyHash = [u64; 2];

/// Keys that are looked up together.
pub(super) const TOGETHER: usize = 64;

/// Bytes of a key in the map.
const SLOT_BYTES: usize = size_of::<Slot>();

pub(super) struct OffsetMap {
    slots: Vec<Slot>,
    len: usize,
    /// Keys that the map holds at most.
    len_max: usize,
    /// With the keys of the map.
    hasher: SipHasher13,
}

impl OffsetMap {
    /// Creates a map that takes at most `bytes` bytes, but holds at least one key. Pages of it take memory
    /// once keys are in them.
    pub(super) fn new(bytes: usize) -> Self {
        let slots = (bytes / SLOT_BYTES).max(2);
        Self {
            slots: vec![[0; 3]; slots],
            len: 0,
            len_max: (slots / 5 * 4).max(1),
            hasher: SipHasher13::new_with_keys(random(), random()),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no room for another key.
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.len_max
    }

    /// Records later offsets of keys, up to [`TOGETHER`] of them. Returns the first one of a new key for
    /// which there is no room; those behind it are not recorded.
    pub(super) fn insert_all(&mut self, keys: &[(KeyHash, Offset)]) -> Option<Offset> {
        self.load(keys.iter().map(|(hash, _)| hash));
        let refused = keys.iter().find(|(hash, offset)| !self.insert(*hash, *offset));
        refused.map(|(_, offset)| *offset)
    }

    /// Loads the slots of keys from memory, all at the same time: one by one, each look-up waits for its own.
    pub(super) fn load<'a>(&self, hashes: impl Iterator<Item = &'a KeyHash>) {
        let words = hashes.map(|hash| {
            self.slots
                .get(self.place(*hash))
                .map_or(0, |slot| slot[0] ^ slot[2])
        });
        std::hint::black_box(words.fold(0, |all, word| all ^ word));
    }

    /// Records a later offset of a key. False if the key is new and there is no room for it.
    fn insert(&mut self, hash: KeyHash, offset: Offset) -> bool {
        let at = self.slot(hash);
        let is_full = self.is_full();
        let Some(slot) = self.slots.get_mut(at) else {
            return false;
        };
        let is_new = slot[2] == 0;
        if is_new && is_full {
            return false;
        }
        self.len += usize::from(is_new);
        *slot = [hash[0], hash[1], offset.0 + 1];
        true
    }

    /// Returns the newest offset of a key; `None` if the dirty ranges do not have it.
    pub(super) fn newest(&self, hash: KeyHash) -> Option<Offset> {
        let found = self.slots.get(self.slot(hash))?;
        found[2].checked_sub(1).map(Offset)
    }

    pub(super) fn hash(&self, log: LogId, key: &[u8]) -> KeyHash {
        let mut hasher = self.hasher;
        hasher.write_u64(log.0);
        hasher.write(key);
        let hash = hasher.finish128();
        [hash.h1, hash.h2]
    }

    /// Returns the first slot where a hash can be.
    fn place(&self, hash: KeyHash) -> usize {
        // The upper half of the product spreads the hash over the slots.
        let spread = (u128::from(hash[0]) * self.slots.len() as u128) >> 64;
        usize::try_from(spread).unwrap_or(0)
    }

    /// Returns the slot of a hash, or the empty one where it belongs. One is always empty.
    fn slot(&self, hash: KeyHash) -> usize {
        let (count, mut at) = (self.slots.len(), self.place(hash));
        while let Some(slot) = self.slots.get(at)
            && slot[2] != 0
            && [slot[0], slot[1]] != hash
        {
            at = if at + 1 == count { 0 } else { at + 1 };
        }
        at
    }
}

/// Returns random bits, as the standard library takes them for its hash tables.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_last_offset_of_each_key_is_found_also_in_a_full_map() {
        let mut map = OffsetMap::new(100 * SLOT_BYTES);
        let mut known = HashMap::new();
        for n in 0..1000_u64 {
            let (log, key) = (LogId(n % 3), (n * 7 % 61).to_string());
            let is_taken = map.insert(map.hash(log, key.as_bytes()), Offset(n));
            assert_eq!(
                is_taken,
                known.len() < 80 || known.contains_key(&(log, key.clone()))
            );
            if is_taken {
                known.insert((log, key), Offset(n));
            }
        }
        assert_eq!((map.len(), known.len()), (80, 80));
        for ((log, key), offset) in known {
            assert_eq!(map.newest(map.hash(log, key.as_bytes())), Some(offset));
        }
        assert_eq!(map.newest(map.hash(LogId(9), b"1")), None);
    }

    #[test]
    fn the_table_takes_its_bytes_whatever_the_number_of_keys() {
        for bytes in [1 << 12, 100_000, 1 << 20] {
            let mut map = OffsetMap::new(bytes);
            let taken = (0..1_000_000_u64)
                .filter(|n| map.insert(map.hash(LogId(1), &n.to_le_bytes()), Offset(*n)))
                .count();
            assert!(map.slots.capacity() * SLOT_BYTES <= bytes);
            assert_eq!((taken, map.is_full()), (bytes / SLOT_BYTES / 5 * 4, true));
        }
    }

    #[test]
    fn the_smallest_map_holds_a_key() {
        let mut map = OffsetMap::new(0);
        let [one, other] = [b"".as_slice(), b"b"].map(|key| map.hash(LogId(1), key));
        let all = [
            (one, Offset(0)),
            (one, Offset(3)),
            (other, Offset(4)),
            (one, Offset(5)),
        ];
        assert_eq!(map.insert_all(&all), Some(Offset(4)));
        assert_eq!((map.newest(one), map.newest(other)), (Some(Offset(3)), None));
    }
}
