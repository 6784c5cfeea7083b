//! Things in the order of their names, for lists in pages.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// A thing with a name that does not change.
pub trait Named {
    fn name(&self) -> &str;
}

/// Things by name. Each name is there once.
#[derive(Debug)]
pub struct ByName<T>(BTreeSet<Entry<T>>);

/// Place in a list, and the choice of its names.
#[derive(Debug, Clone, Copy, Default)]
pub struct NameRange<'a> {
    /// Beginning of the names.
    pub prefix: &'a str,
    /// Name behind which the range begins.
    pub after: Option<&'a str>,
    pub descends: bool,
}

#[derive(Debug)]
struct Entry<T>(T);

impl<T: Named> Named for Arc<T> {
    fn name(&self) -> &str {
        T::name(self)
    }
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: Named> ByName<T> {
    /// Adds a thing, in place of another one of its name.
    pub fn insert(&mut self, thing: T) {
        self.0.replace(Entry(thing));
    }

    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.get(name).map(|entry| &entry.0)
    }

    /// Removes and returns the thing of a name.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        self.0.take(name).map(|entry| entry.0)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|entry| &entry.0)
    }

    /// Iterates over the things of a range, in its order.
    pub fn range<'a>(&'a self, range: NameRange<'a>) -> impl Iterator<Item = &'a T> {
        let NameRange {
            prefix,
            after,
            descends,
        } = range;
        let from = match after {
            Some(after) if !descends && after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let to = match after {
            Some(after) if descends => Bound::Excluded(after),
            _ => Bound::Unbounded,
        };
        // An empty range of a set is an error.
        let is_empty = descends && after.is_some_and(|after| after <= prefix);
        let found = (!is_empty).then(|| self.0.range::<str, _>((from, to)));
        let (up, down) = if descends { (None, found) } else { (found, None) };
        let has_prefix = move |entry: &&Entry<T>| entry.0.name().starts_with(prefix);
        let up = up.into_iter().flatten().take_while(has_prefix);
        // Names that begin with the prefix follow it; the first other one ends them.
        let down = down.into_iter().flat_map(Iterator::rev);
        let down = down
            .skip_while(move |entry| !has_prefix(entry))
            .take_while(has_prefix);
        up.chain(down).map(|entry| &entry.0)
    }

    /// Returns the number of things whose names begin with a prefix.
    pub fn count(&self, prefix: &str) -> usize {
        if prefix.is_empty() {
            return self.len();
        }
        let range = NameRange {
            prefix,
            ..NameRange::default()
        };
        self.range(range).count()
    }
}

impl<T: Named> Borrow<str> for Entry<T> {
    fn borrow(&self) -> &str {
        self.0.name()
    }
}

impl<T: Named> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

impl<T: Named> Eq for Entry<T> {}

impl<T: Named> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Named> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name().cmp(other.0.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Named for &str {
        fn name(&self) -> &str {
            self
        }
    }

    #[test]
    fn ranges_are_those_of_a_sorted_list() {
        let names = ["", "a", "ab", "aba", "abb", "b", "ba", "c"];
        let mut known = ByName::default();
        for name in names.iter().rev().chain(&names) {
            known.insert(*name);
        }
        assert_eq!(known.len(), names.len());
        let places = names
            .iter()
            .copied()
            .chain(["aa", "abz", "z"])
            .map(Some)
            .chain([None]);
        for after in places {
            for prefix in ["", "a", "ab", "abb", "abc", "z"] {
                for descends in [false, true] {
                    let is_behind = |name: &str| {
                        after.is_none_or(|after| if descends { name < after } else { name > after })
                    };
                    let wanted = names.iter().copied();
                    let mut expected: Vec<&str> = wanted
                        .filter(|name| name.starts_with(prefix) && is_behind(name))
                        .collect();
                    if descends {
                        expected.reverse();
                    }
                    let range = NameRange {
                        prefix,
                        after,
                        descends,
                    };
                    let found: Vec<&str> = known.range(range).copied().collect();
                    assert_eq!(found, expected, "{range:?}");
                }
                let with = names.iter().filter(|name| name.starts_with(prefix)).count();
                assert_eq!(known.count(prefix), with, "{prefix:?}");
            }
        }
        assert_eq!(known.remove("ab"), Some("ab"));
        assert_eq!(
            (known.remove("ab"), known.get("ab"), known.get("a")),
            (None, None, Some(&"a"))
        );
    }
}
