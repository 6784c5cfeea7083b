//! A set of values found by hash, as a persistent trie: a clone copies a pointer and is immutable; an
//! insertion or removal copies one path of nodes.
//!
//! Each level takes six bits of the hash. A node stores only the filled slots, so a table takes little more
//! than its values; with 100,000 values a look-up passes three nodes, of which the upper two stay in the
//! processor's cache. (An ordered tree compares 17 other keys on its way, each somewhere else in memory.)
//!
//! ```text
//! node   filled   u64: bit n is set if the slot for the six bits n is present
//!        slots    in the order of their bits: a value | values of one hash | a node
//! ```
//!
//! The values contain their keys. Hashes are passed in; they should not be predictable for clients that
//! choose keys.

use std::fmt;
use std::sync::Arc;

use crate::cache_prefetch;

const BITS: u32 = 6;
const MASK: u64 = (1 << BITS) - 1;
/// Upper levels whose nodes stay in the processor's cache.
const LEVELS_NEAR: u32 = 2;

#[derive(Clone)]
pub(crate) struct HashTrie<V> {
    root: Node<V>,
    len: usize,
}

#[derive(Clone)]
struct Node<V> {
    filled: u64,
    slots: Arc<[Slot<V>]>,
}

#[derive(Clone)]
enum Slot<V> {
    One {
        hash: u64,
        value: V,
    },
    /// Values with equal hashes; at least two.
    Same {
        hash: u64,
        values: Arc<[V]>,
    },
    More(Node<V>),
}

impl<V> Default for HashTrie<V> {
    fn default() -> Self {
        Self {
            root: Node::default(),
            len: 0,
        }
    }
}

impl<V> Default for Node<V> {
    fn default() -> Self {
        Self {
            filled: 0,
            slots: Arc::default(),
        }
    }
}

impl<V> fmt::Debug for HashTrie<V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} values", self.len)
    }
}

impl<V: Clone> HashTrie<V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, hash: u64, is: impl Fn(&V) -> bool) -> Option<&V> {
        let mut node = &self.root;
        let mut rest = hash;
        loop {
            match node.slots.get(node.place(rest).ok()?)? {
                Slot::One { hash: known, value } => return (*known == hash && is(value)).then_some(value),
                Slot::Same { hash: known, values } => {
                    let mut values = values.iter().filter(|_| *known == hash);
                    return values.find(|value| is(value));
                }
                Slot::More(next) => node = next,
            }
            rest >>= BITS;
        }
    }

    /// Walks the levels that are in the cache and prefetches the slot behind them. `None` if a look-up ends
    /// before, as in small tables.
    pub(crate) fn prefetch(&self, hash: u64) -> Option<PrefetchedSlot<'_, V>> {
        let mut node = &self.root;
        let mut rest = hash;
        for _ in 0..LEVELS_NEAR {
            let Slot::More(next) = node.slots.get(node.place(rest).ok()?)? else {
                return None;
            };
            node = next;
            rest >>= BITS;
        }
        let slot = node.slots.get(node.place(rest).ok()?)?;
        cache_prefetch::prefetch(slot);
        Some(PrefetchedSlot(slot))
    }

    /// Returns a value for modification; its key must not change.
    pub(crate) fn get_mut(&mut self, hash: u64, is: impl Fn(&V) -> bool) -> Option<&mut V> {
        // A missing value is not worth copying the path.
        self.get(hash, &is)?;
        let mut node = &mut self.root;
        let mut rest = hash;
        loop {
            let place = node.place(rest).ok()?;
            match Arc::make_mut(&mut node.slots).get_mut(place)? {
                Slot::One { value, .. } => return Some(value),
                Slot::Same { values, .. } => return Arc::make_mut(values).iter_mut().find(|value| is(value)),
                Slot::More(next) => node = next,
            }
            rest >>= BITS;
        }
    }

    /// Adds a value whose key is not present yet.
    pub(crate) fn insert(&mut self, hash: u64, value: V) {
        self.root.insert(hash, 0, Slot::One { hash, value });
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, hash: u64, is: impl Fn(&V) -> bool) -> bool {
        if self.get(hash, &is).is_none() {
            return false;
        }
        self.root.remove(hash, &is);
        self.len -= 1;
        true
    }

    pub(crate) fn each<'a>(&'a self, visit: &mut impl FnMut(&'a V)) {
        self.root.each(visit);
    }

    /// Returns an arbitrary value, if there is one.
    pub(crate) fn any(&self) -> Option<&V> {
        let mut node = &self.root;
        loop {
            match node.slots.first()? {
                Slot::One { value, .. } => return Some(value),
                Slot::Same { values, .. } => return values.first(),
                Slot::More(next) => node = next,
            }
        }
    }
}

/// A prefetched slot on the way of a look-up; it may not have arrived from memory yet.
pub(crate) struct PrefetchedSlot<'a, V>(&'a Slot<V>);

impl<'a, V> PrefetchedSlot<'a, V> {
    /// Returns the value if the slot holds exactly one.
    pub(crate) fn value(&self) -> Option<&'a V> {
        match self.0 {
            Slot::One { value, .. } => Some(value),
            Slot::Same { .. } | Slot::More(_) => None,
        }
    }
}

/// Returns the bits of a hash from a level on.
fn at_level(hash: u64, shift: u32) -> u64 {
    hash.checked_shr(shift).unwrap_or(0)
}

impl<V: Clone> Node<V> {
    /// Returns the index of the slot for the lowest bits of `rest`, or as error the index where it would be
    /// inserted.
    fn place(&self, rest: u64) -> Result<usize, usize> {
        let bit = 1 << (rest & MASK);
        let before = (self.filled & (bit - 1)).count_ones() as usize;
        if self.filled & bit == 0 {
            Err(before)
        } else {
            Ok(before)
        }
    }

    /// Adds a slot of one value, or of values of one hash.
    fn insert(&mut self, hash: u64, shift: u32, new: Slot<V>) {
        let rest = at_level(hash, shift);
        let place = match self.place(rest) {
            Ok(place) => place,
            Err(place) => {
                let (before, behind) = self.slots.split_at(place);
                let slots = before.iter().cloned().chain([new]).chain(behind.iter().cloned());
                self.slots = slots.collect();
                self.filled |= 1 << (rest & MASK);
                return;
            }
        };
        let Some(slot) = Arc::make_mut(&mut self.slots).get_mut(place) else {
            return;
        };
        let known = match slot {
            Slot::More(next) => return next.insert(hash, shift + BITS, new),
            Slot::One { hash, .. } | Slot::Same { hash, .. } => *hash,
        };
        if known == hash {
            let values = slot.values().iter().chain(new.values()).cloned().collect();
            *slot = Slot::Same { hash, values };
            return;
        }
        // The hashes differ, so they part at some level.
        let mut next = Self::default();
        next.insert(known, shift + BITS, slot.clone());
        next.insert(hash, shift + BITS, new);
        *slot = Slot::More(next);
    }

    /// Removes a value that is present.
    fn remove(&mut self, hash: u64, is: &impl Fn(&V) -> bool) {
        self.remove_at(hash, 0, is);
    }

    fn remove_at(&mut self, hash: u64, shift: u32, is: &impl Fn(&V) -> bool) {
        let rest = at_level(hash, shift);
        let Ok(place) = self.place(rest) else { return };
        if let Some(Slot::One { .. }) = self.slots.get(place) {
            let slots = (0..).zip(&*self.slots).filter(|(at, _)| *at != place);
            self.slots = slots.map(|(_, slot)| slot.clone()).collect();
            self.filled &= !(1 << (rest & MASK));
            return;
        }
        let Some(slot) = Arc::make_mut(&mut self.slots).get_mut(place) else {
            return;
        };
        let smaller = match slot {
            Slot::One { .. } => None,
            Slot::Same { hash, values } => {
                let mut left: Vec<V> = values.iter().filter(|value| !is(value)).cloned().collect();
                match (left.len(), left.pop()) {
                    (1, Some(value)) => Some(Slot::One { hash: *hash, value }),
                    (_, last) => {
                        *values = left.into_iter().chain(last).collect();
                        None
                    }
                }
            }
            Slot::More(next) => {
                next.remove_at(hash, shift + BITS, is);
                match &*next.slots {
                    [Slot::More(_)] => None,
                    [only] => Some(only.clone()),
                    _ => None,
                }
            }
        };
        if let Some(smaller) = smaller {
            *slot = smaller;
        }
    }

    fn each<'a>(&'a self, visit: &mut impl FnMut(&'a V)) {
        for slot in &*self.slots {
            match slot {
                Slot::More(next) => next.each(visit),
                Slot::One { .. } | Slot::Same { .. } => slot.values().iter().for_each(&mut *visit),
            }
        }
    }
}

impl<V> Slot<V> {
    fn values(&self) -> &[V] {
        match self {
            Self::One { value, .. } => std::slice::from_ref(value),
            Self::Same { values, .. } => values,
            Self::More(_) => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Hashes with many equal ones, many that part late, and some of all kinds.
    fn hash_of(value: u16) -> u64 {
        let value = u64::from(value);
        match value % 4 {
            0 => 7,
            1 => value << 55,
            2 => value.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            _ => value >> 3,
        }
    }

    fn list(trie: &HashTrie<u16>) -> Vec<u16> {
        let mut all = Vec::new();
        trie.each(&mut |value| all.push(*value));
        all.sort_unstable();
        all
    }

    proptest! {
        #[test]
        fn a_trie_holds_what_a_set_holds_and_its_clones_stay_as_they_were(
            steps in prop::collection::vec((any::<bool>(), 0u16..300), 1..400),
        ) {
            let (mut trie, mut set) = (HashTrie::default(), BTreeSet::new());
            let mut clones = Vec::new();
            for (add, value) in steps {
                let hash = hash_of(value);
                if add && set.insert(value) {
                    trie.insert(hash, value);
                } else if !add {
                    prop_assert_eq!(trie.remove(hash, |known| *known == value), set.remove(&value));
                }
                prop_assert_eq!(trie.len(), set.len());
                if set.len() % 16 == 0 {
                    clones.push((trie.clone(), set.clone()));
                }
            }
            clones.push((trie, set));
            for (trie, set) in clones {
                prop_assert_eq!(list(&trie), set.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(trie.any().is_some(), !set.is_empty());
                for value in 0..300 {
                    let found = trie.get(hash_of(value), |known| *known == value);
                    prop_assert_eq!(found.copied(), set.get(&value).copied());
                }
            }
        }
    }

    #[test]
    fn what_a_look_up_finds_is_foreseen_in_a_large_table_and_nothing_in_a_small_one() {
        let hash_of = |value: u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut trie = HashTrie::default();
        (0..20).for_each(|value| trie.insert(hash_of(value), value));
        assert!((0..40).all(|value| trie.prefetch(hash_of(value)).is_none()));
        (20..50_000).for_each(|value| trie.insert(hash_of(value), value));
        let foreseen = |value| {
            trie.prefetch(hash_of(value))
                .and_then(|ahead| ahead.value().copied())
        };
        let right = (0..50_000)
            .filter(|value| foreseen(*value) == Some(*value))
            .count();
        assert!(right > 40_000, "{right} lie no deeper than it looks");
    }

    #[test]
    fn what_is_changed_in_one_is_not_changed_in_its_clone() {
        let key = |value: &u64| value / 1000;
        let mut trie = HashTrie::default();
        for number in 0..200 {
            trie.insert(number % 150, number * 1000);
        }
        let clone = trie.clone();
        for number in 0..200 {
            *trie.get_mut(number % 150, |value| key(value) == number).unwrap() += 1;
        }
        assert!(trie.get_mut(500, |_| true).is_none());
        for number in 0..200 {
            let of = |trie: &HashTrie<u64>| trie.get(number % 150, |value| key(value) == number).copied();
            assert_eq!(
                (of(&clone), of(&trie)),
                (Some(number * 1000), Some(number * 1000 + 1))
            );
        }
    }

    #[test]
    fn a_trie_that_was_emptied_takes_no_nodes() {
        let mut trie = HashTrie::default();
        let values: Vec<u16> = (0..300).collect();
        for value in &values {
            trie.insert(hash_of(*value), *value);
        }
        for value in &values {
            assert!(trie.remove(hash_of(*value), |known| known == value));
        }
        assert!(trie.is_empty() && trie.root.slots.is_empty() && trie.root.filled == 0);
    }
}
