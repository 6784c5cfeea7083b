//! What bindings lead to.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;

/// What a message can be stored in. The router only compares targets and passes them on.
pub trait Target: Ord + Clone {
    /// What it is called, different from every other target's: it decides which share of an exchange that spreads by
    /// hash it gets, and so has to be the same after a restart.
    fn identity(&self) -> Vec<u8>;
}

/// One step from an exchange.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop<T> {
    Target(T),
    Exchange(Arc<str>),
}

/// The hops of equal bindings: each hop once, with the number of bindings that ask for it. Mostly there is one.
#[derive(Clone, Default)]
pub(crate) enum Hops<T> {
    #[default]
    None,
    One(Hop<T>),
    Many(OrdMap<Hop<T>, u32>),
}

impl<T> fmt::Debug for Hops<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = match self {
            Self::None => 0,
            Self::One(_) => 1,
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
            Self::One(first) => {
                let mut many = OrdMap::unit(first.clone(), 1);
                *many.entry(hop).or_insert(0) += 1;
                *self = Self::Many(many);
            }
            Self::Many(many) => *many.entry(hop).or_insert(0) += 1,
        }
    }

    /// Takes one binding away. False if there was none.
    pub(crate) fn remove(&mut self, hop: &Hop<T>) -> bool {
        match self {
            Self::None => false,
            Self::One(only) => {
                let found = only == hop;
                if found {
                    *self = Self::None;
                }
                found
            }
            Self::Many(many) => {
                let Some(bindings) = many.get_mut(hop) else {
                    return false;
                };
                *bindings -= 1;
                if *bindings == 0 {
                    many.remove(hop);
                }
                self.shrink();
                true
            }
        }
    }

    /// Makes the set as small as what it holds.
    fn shrink(&mut self) {
        let Self::Many(many) = self else { return };
        let mut left = many.iter();
        let only = match (left.next(), left.next()) {
            (None, _) => Some(Self::None),
            (Some((hop, 1)), None) => Some(Self::One(hop.clone())),
            _ => None,
        };
        drop(left);
        if let Some(only) = only {
            *self = only;
        }
    }

    pub(crate) fn each(&self, mut visit: impl FnMut(&Hop<T>)) {
        match self {
            Self::None => {}
            Self::One(hop) => visit(hop),
            Self::Many(many) => many.keys().for_each(visit),
        }
    }
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
