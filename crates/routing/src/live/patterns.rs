//! Subscribers by pattern.
//!
//! Patterns are found by their fixed prefix: one look-up per prefix length in use. Without patterns a name
//! costs nothing, and patterns with another prefix cost nothing.

use std::collections::BTreeMap;
use std::hash::RandomState;

use hashbrown::HashMap;

use super::pattern::Pattern;
use super::set::IdSet;

#[derive(Debug, Default)]
pub struct Patterns {
    by_prefix: HashMap<Box<str>, Vec<PatternEntry>, RandomState>,
    /// Number of distinct prefixes by their length in bytes.
    lengths: BTreeMap<usize, usize>,
    len: usize,
}

#[derive(Debug)]
struct PatternEntry {
    pattern: Pattern,
    subscribers: IdSet,
}

impl Patterns {
    /// Adds a subscription; false if it was present.
    pub fn subscribe(&mut self, pattern: &Pattern, client: u32) -> bool {
        let entries = if let Some(entries) = self.by_prefix.get_mut(pattern.prefix()) {
            entries
        } else {
            *self.lengths.entry(pattern.prefix().len()).or_default() += 1;
            self.by_prefix.entry(pattern.prefix().into()).or_default()
        };
        if let Some(entry) = entries.iter_mut().find(|entry| entry.pattern == *pattern) {
            return entry.subscribers.insert(client);
        }
        let mut subscribers = IdSet::default();
        subscribers.insert(client);
        entries.push(PatternEntry {
            pattern: pattern.clone(),
            subscribers,
        });
        self.len += 1;
        true
    }

    /// Removes a subscription; false if it was not present.
    pub fn unsubscribe(&mut self, pattern: &Pattern, client: u32) -> bool {
        let Some(entries) = self.by_prefix.get_mut(pattern.prefix()) else {
            return false;
        };
        let Some(place) = entries.iter().position(|entry| entry.pattern == *pattern) else {
            return false;
        };
        let Some(entry) = entries.get_mut(place) else {
            return false;
        };
        let removed = entry.subscribers.remove(client);
        if entry.subscribers.is_empty() {
            entries.swap_remove(place);
            self.len -= 1;
        }
        if entries.is_empty() {
            self.by_prefix.remove(pattern.prefix());
            let bytes = pattern.prefix().len();
            if let Some(count) = self.lengths.get_mut(&bytes) {
                *count -= 1;
                if *count == 0 {
                    self.lengths.remove(&bytes);
                }
            }
        }
        removed
    }

    /// Visits the subscribers of every pattern that matches a name. A client with several of them is visited
    /// several times.
    pub fn matching(&self, name: &str, mut visit: impl FnMut(&IdSet)) {
        self.each_matching(name, |_, subscribers| visit(subscribers));
    }

    /// Visits the patterns that match a name, with their subscribers.
    pub fn each_matching(&self, name: &str, mut visit: impl FnMut(&Pattern, &IdSet)) {
        for bytes in self.lengths.keys() {
            let Some((prefix, behind)) = name.split_at_checked(*bytes) else {
                continue;
            };
            let entries = self.by_prefix.get(prefix).into_iter().flatten();
            for entry in entries.filter(|entry| entry.pattern.matches_behind(behind)) {
                visit(&entry.pattern, &entry.subscribers);
            }
        }
    }

    /// Returns the subscribers of a pattern, compared by its text.
    pub fn subscribers(&self, pattern: &Pattern) -> Option<&IdSet> {
        let entries = self.by_prefix.get(pattern.prefix())?;
        let entry = entries.iter().find(|entry| entry.pattern == *pattern)?;
        Some(&entry.subscribers)
    }

    /// Returns the number of patterns.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_reaches_exactly_those_whose_pattern_matches(
            changes in proptest::collection::vec((any::<bool>(), "[ab*?]{0,4}", 0..5_u32), 0..60),
            name in "[ab]{0,6}",
        ) {
            let mut patterns = Patterns::default();
            let mut model = BTreeSet::new();
            for (subscribe, text, client) in changes {
                let pattern = Pattern::parse(&text).unwrap();
                if subscribe {
                    prop_assert_eq!(patterns.subscribe(&pattern, client), model.insert((text, client)));
                } else {
                    prop_assert_eq!(patterns.unsubscribe(&pattern, client), model.remove(&(text, client)));
                }
            }
            let texts: BTreeSet<_> = model.iter().map(|(text, _)| text).collect();
            prop_assert_eq!(patterns.len(), texts.len());
            let mut found = Vec::new();
            patterns.matching(&name, |clients| clients.for_each(|client| found.push(client)));
            found.sort_unstable();
            let mut expected: Vec<u32> = model
                .iter()
                .filter(|(text, _)| Pattern::parse(text).unwrap().matches(&name))
                .map(|(_, client)| *client)
                .collect();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
