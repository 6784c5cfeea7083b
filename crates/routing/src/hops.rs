//! What bindings lead to.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;

/// What a message can be stored in. The router only compares targets and passes them on.
pub trait Target: Ord + Clone {
    /// What it is called, different from every other target's: it decides which share of an exchange that
    /// spreads by hash it gets, and so has to be the same after a restart.
    fn identity(&self) -> Vec<u8>;
}

/// One step from an exchange.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop<T> {
    Target(T),
    Exchange(Arc<str>),
}

/// Hops up to which a list takes less than a tree.
const LISTED_MAX: usize = 32;

/// The hops of equal bindings: each hop once, with the number of bindings that ask for it. Mostly there is
/// one.
#[derive(Clone, Default)]
pub(crate) enum Hops<T> {
    #[default]
    None,
    One(Hop<T>),
    /// In their order.
    Few(Arc<[Counted<T>]>),
    Many(OrdMap<Hop<T>, u32>),
}

/// A hop and its bindings.
type Counted<T> = (Hop<T>, u32);

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

    /// Takes one binding away. False if there was none.
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
                let left: Vec<Counted<T>> = few.iter().filter_map(|counted| less(counted, hop)).collect();
                *self = Self::of(left);
            }
            Self::Many(many) => {
                match many.get_mut(hop) {
                    Some(bindings) if *bindings > 1 => *bindings -= 1,
                    _ => drop(many.remove(hop)),
                }
                // Far below the bound, so that one that comes and goes does not change the form every time.
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

    /// A few hops, in their order, in as little as they need.
    fn of(few: Vec<Counted<T>>) -> Self {
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

/// A list with one binding more.
fn with<T: Target>(few: &[Counted<T>], hop: Hop<T>) -> Arc<[Counted<T>]> {
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

/// A hop of a list from which a binding goes; `None` if it goes with it.
fn less<T: Target>((known, bindings): &Counted<T>, hop: &Hop<T>) -> Option<Counted<T>> {
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
            Hop::Exchange(_) => {}
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
