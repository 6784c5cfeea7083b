//! Keys that occur more than once in a request, which is an error for many.

use std::collections::HashSet;
use std::hash::Hash;

/// Returns the keys that occur more than once.
pub(super) fn repeated<K: Clone + Eq + Hash>(keys: impl Iterator<Item = K>) -> HashSet<K> {
    let mut seen = HashSet::new();
    keys.filter(|key| !seen.insert(key.clone())).collect()
}
