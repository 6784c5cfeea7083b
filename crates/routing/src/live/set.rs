//! A set of numbers, 16 bytes in size plus its content on the heap.
//!
//! | numbers | form | bytes each |
//! |---|---|---|
//! | up to 3 | inline | none |
//! | up to 4,096 | a sorted list | 4, plus the list's spare capacity |
//! | more | [`Chunks`] | about 2 at most; 1/8 if dense |
//!
//! Most topics have few subscribers and most clients few topics, so the first two forms take most of the
//! memory. A shrinking set is converted back at half of the size at which it grew, so that alternating
//! changes do not convert back and forth.

use super::chunks::Chunks;

const FEW_MAX: usize = 3;
const LIST_MAX: usize = 4096;

#[derive(Debug, Clone)]
pub struct IdSet(Form);

#[derive(Debug, Clone)]
enum Form {
    Few {
        len: u8,
        ids: [u32; FEW_MAX],
    },
    #[expect(
        clippy::box_collection,
        reason = "a set pays one pointer, not a list's three words"
    )]
    List(Box<Vec<u32>>),
    Chunks(Box<Chunks>),
}

impl Default for IdSet {
    fn default() -> Self {
        Self(Form::Few {
            len: 0,
            ids: [0; FEW_MAX],
        })
    }
}

impl IdSet {
    /// Adds a number; false if it was present.
    pub fn insert(&mut self, id: u32) -> bool {
        match &mut self.0 {
            Form::Few { len, ids } => {
                let used = usize::from(*len);
                if ids.iter().take(used).any(|known| *known == id) {
                    return false;
                }
                if let Some(slot) = ids.get_mut(used) {
                    *slot = id;
                    *len += 1;
                } else {
                    let mut list = Vec::with_capacity(FEW_MAX + 3);
                    list.extend_from_slice(ids);
                    list.push(id);
                    list.sort_unstable();
                    self.0 = Form::List(Box::new(list));
                }
                true
            }
            Form::List(list) => {
                let Err(place) = list.binary_search(&id) else {
                    return false;
                };
                if list.len() < LIST_MAX {
                    if list.len() == list.capacity() {
                        list.reserve_exact((list.len() / 2).max(4));
                    }
                    list.insert(place, id);
                } else {
                    let mut chunks: Chunks = list.iter().copied().collect();
                    chunks.insert(id);
                    self.0 = Form::Chunks(Box::new(chunks));
                }
                true
            }
            Form::Chunks(chunks) => chunks.insert(id),
        }
    }

    /// Removes a number; false if it was not present.
    pub fn remove(&mut self, id: u32) -> bool {
        match &mut self.0 {
            Form::Few { len, ids } => {
                let used = usize::from(*len);
                let Some(place) = ids.iter().take(used).position(|known| *known == id) else {
                    return false;
                };
                ids.swap(place, used - 1);
                *len -= 1;
                true
            }
            Form::List(list) => {
                let Ok(place) = list.binary_search(&id) else {
                    return false;
                };
                list.remove(place);
                if list.len() <= FEW_MAX / 2 {
                    self.0 = Form::few(list);
                } else if list.len() < list.capacity() / 4 {
                    list.shrink_to(list.len() * 2);
                }
                true
            }
            Form::Chunks(chunks) => {
                let removed = chunks.remove(id);
                if chunks.len() <= LIST_MAX / 2 {
                    self.0 = Form::List(Box::new(chunks.iter().collect()));
                }
                removed
            }
        }
    }

    pub fn contains(&self, id: u32) -> bool {
        match &self.0 {
            Form::Few { len, ids } => ids.iter().take(usize::from(*len)).any(|known| *known == id),
            Form::List(list) => list.binary_search(&id).is_ok(),
            Form::Chunks(chunks) => chunks.contains(id),
        }
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Few { len, .. } => usize::from(*len),
            Form::List(list) => list.len(),
            Form::Chunks(chunks) => chunks.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Visits the numbers, in ascending order except in the smallest form.
    pub fn for_each(&self, mut visit: impl FnMut(u32)) {
        match &self.0 {
            Form::Few { len, ids } => ids.iter().take(usize::from(*len)).copied().for_each(visit),
            Form::List(list) => list.iter().copied().for_each(visit),
            Form::Chunks(chunks) => chunks.iter().for_each(&mut visit),
        }
    }

    /// Returns up to `count` numbers from `first` on, smallest first.
    pub fn from(&self, first: u32, count: usize) -> Vec<u32> {
        match &self.0 {
            Form::Few { len, ids } => {
                let mut found: Vec<u32> = ids
                    .iter()
                    .take(usize::from(*len))
                    .copied()
                    .filter(|id| *id >= first)
                    .collect();
                found.sort_unstable();
                found.truncate(count);
                found
            }
            Form::List(list) => {
                let from = list.partition_point(|id| *id < first);
                list.iter().skip(from).take(count).copied().collect()
            }
            Form::Chunks(chunks) => chunks.iter_from(first).take(count).collect(),
        }
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Few { .. } => 0,
            Form::List(list) => size_of::<Vec<u32>>() + list.capacity() * size_of::<u32>(),
            Form::Chunks(chunks) => size_of::<Chunks>() + chunks.heap_bytes(),
        }
    }
}

impl Form {
    fn few(list: &[u32]) -> Self {
        let mut ids = [0; FEW_MAX];
        let mut len = 0;
        for (slot, id) in ids.iter_mut().zip(list) {
            *slot = *id;
            len += 1;
        }
        Self::Few { len, ids }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_set_of_up_to_three_costs_sixteen_bytes() {
        assert_eq!(size_of::<IdSet>(), 16);
        let set: IdSet = [1, 2, 3].into_iter().fold(IdSet::default(), |mut set, id| {
            set.insert(id);
            set
        });
        assert_eq!(set.heap_bytes(), 0);
    }

    #[test]
    fn two_million_neighbours_take_an_eighth_of_a_byte_each() {
        let mut set = IdSet::default();
        for id in 0..2_097_152 {
            assert!(set.insert(id));
        }
        assert_eq!(set.len(), 2_097_152);
        assert!(set.heap_bytes() < 300_000, "{}", set.heap_bytes());
    }

    #[test]
    fn ten_thousand_scattered_numbers_take_less_than_eight_bytes_each() {
        let mut set = IdSet::default();
        for id in 0..10_000_u32 {
            set.insert(id.wrapping_mul(2_654_435_761) % 1_000_000);
        }
        assert!(set.heap_bytes() < 8 * set.len(), "{}", set.heap_bytes());
    }

    /// Numbers clustered so that every form occurs, and both forms of a chunk.
    fn id() -> impl Strategy<Value = u32> {
        prop_oneof![0..20_u32, 0..12_000_u32, 65_000..66_000_u32, any::<u32>()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn it_holds_what_a_plain_set_holds(
            runs in proptest::collection::vec((any::<bool>(), id(), 1..6000_u32), 1..24),
            first in id(),
        ) {
            let mut set = IdSet::default();
            let mut model = BTreeSet::new();
            for (insert, from, count) in runs {
                for id in from..from.saturating_add(count) {
                    if insert {
                        prop_assert_eq!(set.insert(id), model.insert(id));
                    } else {
                        prop_assert_eq!(set.remove(id), model.remove(&id));
                    }
                }
                prop_assert_eq!(set.len(), model.len());
            }
            let mut seen = Vec::new();
            set.for_each(|id| seen.push(id));
            seen.sort_unstable();
            prop_assert_eq!(&seen, &model.iter().copied().collect::<Vec<_>>());
            let page: Vec<u32> = model.range(first..).take(100).copied().collect();
            prop_assert_eq!(set.from(first, 100), page);
            for id in seen.iter().take(50).copied().chain([first]) {
                prop_assert_eq!(set.contains(id), model.contains(&id));
            }
        }
    }
}
