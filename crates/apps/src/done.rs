//! Finished keys of a task, and which of them may be forgotten.
//!
//! A key is kept until the safe offset has passed its last record in every input. So that a commit looks at
//! no other keys than those that it passes, each key is filed under one input that keeps it, by the offset
//! there. When that input has passed it, the key is filed under another one, or is over.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;

/// Place of keys that no input keeps.
const OVER: u8 = u8::MAX;

/// Finished keys, with the offset behind their last record per input, 0 for none.
#[derive(Debug, Default)]
pub(crate) struct DoneKeys {
    keys: Arc<HashMap<Bytes, Box<[u64]>>>,
    /// Input, offset there, and key.
    filed: BTreeSet<(u8, u64, Bytes)>,
    bytes: u64,
}

impl DoneKeys {
    pub(crate) fn keys(&self) -> &Arc<HashMap<Bytes, Box<[u64]>>> {
        &self.keys
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes by which a change makes the keys more, or fewer.
    pub(crate) fn growth(&self, key: &Bytes, offsets: Option<&[u64]>) -> i64 {
        let known = self.keys.get(key).map(|known| &**known);
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        signed(size(key, offsets)) - signed(size(key, known))
    }

    /// Sets or removes a key. `safe` is the safe offset per input.
    pub(crate) fn set(&mut self, key: Bytes, offsets: Option<Box<[u64]>>, safe: &[u64]) {
        let keys = Arc::make_mut(&mut self.keys);
        let before = match &offsets {
            Some(offsets) => keys.insert(key.clone(), offsets.clone()),
            None => keys.remove(&key),
        };
        if let Some(before) = before {
            self.bytes -= size(&key, Some(&before));
            // It is filed under one of these.
            for (input, behind) in places(&before) {
                self.filed.remove(&(input, behind, key.clone()));
            }
            self.filed.remove(&(OVER, 0, key.clone()));
        }
        if let Some(offsets) = offsets {
            self.bytes += size(&key, Some(&offsets));
            let (input, behind) = keeper(&offsets, safe);
            self.filed.insert((input, behind, key));
        }
    }

    /// Files keys anew that an input has passed.
    pub(crate) fn pass(&mut self, safe: &[u64]) {
        for (input, safe_here) in (0_u8..).zip(safe) {
            let passed: Vec<_> = self.passed(input, *safe_here).cloned().collect();
            for (at, behind, key) in passed {
                let (to, until) = self.keys.get(&key).map_or((OVER, 0), |known| keeper(known, safe));
                self.filed.remove(&(at, behind, key.clone()));
                self.filed.insert((to, until, key));
            }
        }
    }

    /// Returns keys that are over at a safe offset per input.
    pub(crate) fn over(&self, safe: &[u64]) -> impl Iterator<Item = &Bytes> {
        let passed = (0_u8..).zip(safe).map(|(input, safe)| self.passed(input, *safe));
        let filed = passed.flatten().chain(self.passed(OVER, 0));
        let is_over = |key: &&Bytes| self.keys.get(*key).is_some_and(|known| !is_kept(known, safe));
        filed.map(|(_, _, key)| key).filter(is_over)
    }

    /// Returns the keys that are filed under an input up to an offset.
    fn passed(&self, input: u8, safe: u64) -> impl Iterator<Item = &(u8, u64, Bytes)> {
        let filed = self.filed.range((input, 0, Bytes::new())..);
        filed.take_while(move |(at, behind, _)| *at == input && *behind <= safe)
    }

    /// Forgets an input: keys of no other one are removed.
    pub(crate) fn forget(&mut self, forgotten: u8, safe: &[u64]) {
        let keys: Vec<Bytes> = self.keys.keys().cloned().collect();
        for key in keys {
            let left = self.keys.get(&key).and_then(|known| without(known, &[forgotten]));
            self.set(key, left, safe);
        }
    }
}

/// Returns offsets without those of some inputs. `None` if no input is left.
pub(crate) fn without(offsets: &[u64], forgotten: &[u8]) -> Option<Box<[u64]>> {
    let left = (0_u8..).zip(offsets).map(
        |(input, behind)| {
            if forgotten.contains(&input) { 0 } else { *behind }
        },
    );
    let left: Box<[u64]> = left.collect();
    left.iter().any(|behind| *behind > 0).then_some(left)
}

/// True while an input has a record of the key at or behind its safe offset.
pub(crate) fn is_kept(offsets: &[u64], safe: &[u64]) -> bool {
    let mut inputs = offsets.iter().zip(safe);
    inputs.any(|(behind, safe)| behind > safe)
}

/// Returns an input that keeps a key, and the offset there.
fn keeper(offsets: &[u64], safe: &[u64]) -> (u8, u64) {
    let inputs = places(offsets).zip(safe);
    let mut keeps = inputs.filter(|((_, behind), safe)| behind > *safe);
    keeps.next().map_or((OVER, 0), |(place, _)| place)
}

fn places(offsets: &[u64]) -> impl Iterator<Item = (u8, u64)> {
    (0_u8..).zip(offsets.iter().copied())
}

fn size(key: &Bytes, offsets: Option<&[u64]>) -> u64 {
    offsets.map_or(0, |offsets| (key.len() + 8 * offsets.len()) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_that_are_over_are_those_of_a_scan(
            steps in prop::collection::vec((0..12_u8, prop::option::of((0..20_u64, 0..20_u64)), 0..3_u64, 0..3_u64), 0..80),
        ) {
            let (mut done, mut naive, mut safe) = (DoneKeys::default(), HashMap::new(), vec![0_u64, 0]);
            for (key, offsets, one, other) in steps {
                let key = Bytes::from(vec![key]);
                let offsets: Option<Box<[u64]>> = offsets.map(|(one, other)| Box::from([one, other]));
                match &offsets {
                    Some(offsets) => drop(naive.insert(key.clone(), offsets.clone())),
                    None => drop(naive.remove(&key)),
                }
                done.set(key, offsets, &safe);
                let next = vec![safe[0] + one, safe[1] + other];
                let mut found: Vec<_> = done.over(&next).cloned().collect();
                found.sort();
                let mut wanted: Vec<Bytes> = Vec::new();
                wanted.extend(naive.iter().filter(|(_, known)| !is_kept(known, &next)).map(|(key, _)| key.clone()));
                wanted.sort();
                prop_assert_eq!(found, wanted);
                safe = next;
                done.pass(&safe);
                prop_assert_eq!(done.filed.len(), naive.len());
                let bytes: u64 = naive.iter().map(|(key, known)| size(key, Some(known))).sum();
                prop_assert_eq!(done.bytes(), bytes);
            }
            done.forget(0, &safe);
            prop_assert!(done.keys().values().all(|known| known[0] == 0 && known[1] > 0));
        }
    }

    #[test]
    fn a_commit_looks_at_no_keys_that_it_does_not_pass() {
        let mut done = DoneKeys::default();
        for number in 0..10_000_u64 {
            let key = Bytes::from(number.to_string());
            done.set(key, Some(Box::from([number + 1, 1])), &[0, 0]);
        }
        done.pass(&[5, 1]);
        assert_eq!(done.passed(OVER, 0).count(), 5);
        assert_eq!(done.passed(0, 5).count() + done.passed(1, 1).count(), 0);
        assert_eq!(done.over(&[7, 1]).count(), 7);
    }
}
