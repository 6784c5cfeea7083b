//! Destinations of bindings.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;

use crate::filter::Filter;

/// A destination in which messages are stored. The router only compares targets and passes them on.
pub trait Target: Ord + Clone {
    /// Returns a unique name of the target. It decides the target's share of a hash exchange, so it must be
    /// stable across restarts.
    fn identity(&self) -> Vec<u8>;
}

/// Destination of a binding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop<T> {
    Target(T),
    Exchange(Arc<str>),
    /// A hop of messages that a filter admits.
    Filtered(Arc<FilteredHop<T>>),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilteredHop<T> {
    pub filter: Arc<Filter>,
    pub hop: Hop<T>,
}

/// Most hops of a list; more are kept as a tree.
const LISTED_MAX: usize = 32;

/// Hops of bindings with equal patterns: each hop once, with its number of bindings. Usually there is one.
#[derive(Clone, Default)]
pub(crate) enum Hops<T> {
    #[default]
    None,
    One(Hop<T>),
    /// Sorted.
    Few(Arc<[CountedHop<T>]>),
    Many(OrdMap<Hop<T>, u32>),
}

/// A hop and its number of bindings.
type CountedHop<T> = (Hop<T>, u32);

impl<T> fmt::Debug for Hops<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        };
        write!(out, "{count} hops")
    }
}

impl<T: Target> Hops<T> {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn add(&mut self, hop: Hop<T>) {
        match self {
            Self::None => *self = Self::One(hop),
            Self::One(first) => *self = Self::Few(with(&[(first.clone(), 1)], hop)),
            Self::Few(few) if few.len() < LISTED_MAX => *few = with(few, hop),
            Self::Few(few) => {
                let mut many: OrdMap<_, _> = few.iter().cloned().collect();
                *many.entry(hop).or_insert(0) += 1;
                *self = Self::Many(many);
            }
            Self::Many(many) => *many.entry(hop).or_insert(0) += 1,
        }
    }

    /// Removes one binding. False if there was none.
    pub(crate) fn remove(&mut self, hop: &Hop<T>) -> bool {
        let found = match self {
            Self::None => false,
            Self::One(only) => only == hop,
            Self::Few(few) => few.binary_search_by(|(known, _)| known.cmp(hop)).is_ok(),
            Self::Many(many) => many.contains_key(hop),
        };
        if !found {
            return false;
        }
        match self {
            Self::None => {}
            Self::One(_) => *self = Self::None,
            Self::Few(few) => {
                let left: Vec<CountedHop<T>> = few.iter().filter_map(|counted| less(counted, hop)).collect();
                *self = Self::of(left);
            }
            Self::Many(many) => {
                match many.get_mut(hop) {
                    Some(bindings) if *bindings > 1 => *bindings -= 1,
                    _ => drop(many.remove(hop)),
                }
                // Far below the bound, so that alternating changes do not convert back and forth.
                if many.len() <= LISTED_MAX / 2 {
                    *self = Self::of(
                        many.iter()
                            .map(|(hop, bindings)| (hop.clone(), *bindings))
                            .collect(),
                    );
                }
            }
        }
        true
    }

    /// Builds the smallest form for a few sorted hops.
    fn of(few: Vec<CountedHop<T>>) -> Self {
        match few.first() {
            None => Self::None,
            Some((hop, 1)) if few.len() == 1 => Self::One(hop.clone()),
            Some(_) => Self::Few(few.into()),
        }
    }

    pub(crate) fn each(&self, mut visit: impl FnMut(&Hop<T>)) {
        match self {
            Self::None => {}
            Self::One(hop) => visit(hop),
            Self::Few(few) => few.iter().for_each(|(hop, _)| visit(hop)),
            Self::Many(many) => many.keys().for_each(visit),
        }
    }
}

/// Returns a list with one more binding.
fn with<T: Target>(few: &[CountedHop<T>], hop: Hop<T>) -> Arc<[CountedHop<T>]> {
    let mut few = few.to_vec();
    match few.binary_search_by(|(known, _)| known.cmp(&hop)) {
        Ok(at) => {
            if let Some((_, bindings)) = few.get_mut(at) {
                *bindings += 1;
            }
        }
        Err(at) => few.insert(at, (hop, 1)),
    }
    few.into()
}

/// Returns the hop of a list without one binding to `hop`; `None` if it was the last.
fn less<T: Target>((known, bindings): &CountedHop<T>, hop: &Hop<T>) -> Option<CountedHop<T>> {
    let left = bindings - u32::from(known == hop);
    (left > 0).then(|| (known.clone(), left))
}

impl Target for u32 {
    fn identity(&self) -> Vec<u8> {
        self.to_be_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hops: &Hops<u32>) -> Vec<u32> {
        let mut all = Vec::new();
        hops.each(|hop| match hop {
            Hop::Target(target) => all.push(*target),
            Hop::Exchange(_) | Hop::Filtered(_) => {}
        });
        all
    }

    #[test]
    fn many_hops_come_and_go_in_order() {
        let mut hops = Hops::default();
        let all: Vec<u32> = (0..100).collect();
        for target in all.iter().rev().chain(&all) {
            hops.add(Hop::Target(*target));
        }
        assert!(matches!(hops, Hops::Many(_)));
        assert_eq!(list(&hops), all);
        for target in &all {
            assert!(hops.remove(&Hop::Target(*target)));
            assert_eq!(list(&hops), all, "each was bound twice");
        }
        for target in &all {
            assert!(hops.remove(&Hop::Target(*target)));
            assert!(!hops.remove(&Hop::Target(*target)));
            assert_eq!(
                list(&hops),
                all[all.len().min(usize::try_from(*target).unwrap() + 1)..]
            );
        }
        assert!(hops.is_empty());
    }

    #[test]
    fn a_hop_stays_until_its_last_binding_goes() {
        let mut hops = Hops::default();
        for target in [1, 2, 1] {
            hops.add(Hop::Target(target));
        }
        assert_eq!(list(&hops), [1, 2]);
        assert!(hops.remove(&Hop::Target(2)));
        assert!(hops.remove(&Hop::Target(1)));
        assert_eq!(list(&hops), [1]);
        assert!(matches!(hops, Hops::One(_)), "one hop takes no map");
        assert!(!hops.remove(&Hop::Target(2)));
        assert!(hops.remove(&Hop::Target(1)));
        assert!(hops.is_empty());
    }
}
