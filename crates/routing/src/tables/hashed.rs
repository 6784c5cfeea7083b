//! Bindings that share messages by hash, in proportion to their weights.
//!
//! The hash of a message selects one of a fixed number of slots. Each slot belongs to the hop with the best
//! lot for it; a lot depends only on hop, slot and the hop's weight (weighted rendezvous hashing). So the
//! distribution does not depend on the order of binding: it is the same after a restart, and adding or
//! removing a hop moves only that hop's messages. A look-up costs one hash, a change about one lot per slot.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;

use crate::hash::{hash, mix};
use crate::hops::{Hop, Hops, Target};
use crate::message_view::MessageView;
use crate::routes::{DependsOn, Routes};
use crate::spec::{BadPattern, ExchangeKind, HashOn, Pattern};

const SLOTS: u32 = 1 << 14;
const HOPS_MAX: usize = 1 << 10;
pub(crate) const WEIGHT_MAX: u32 = 1_000_000;
const NOBODY: u16 = u16::MAX;

#[derive(Clone)]
pub(crate) struct Hashed<T> {
    /// Bound hops with their number of bindings by weight; the largest weight counts.
    hops: OrdMap<Hop<T>, OrdMap<u32, u32>>,
    members: OrdMap<u16, Member<T>>,
    /// Number of the member that owns each slot.
    slots: Arc<[u16]>,
}

#[derive(Debug, Clone)]
struct Member<T> {
    hop: Hop<T>,
    seed: u64,
    weight: u32,
}

impl<T> fmt::Debug for Hashed<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} hops share by hash", self.members.len())
    }
}

impl<T> Default for Hashed<T> {
    fn default() -> Self {
        Self {
            hops: OrdMap::new(),
            members: OrdMap::new(),
            slots: Arc::default(),
        }
    }
}

impl<T: Target> Hashed<T> {
    pub(crate) fn check(&self, pattern: &Pattern, hop: &Hop<T>) -> Result<(), BadPattern> {
        weight(pattern)?;
        if pattern.headers.filter.is_some() {
            return Err(BadPattern::Filtered);
        }
        // One more binding of a bound hop may change its weight only.
        if self.hops.len() >= HOPS_MAX && !self.hops.contains_key(hop) {
            return Err(BadPattern::TooMany { max: HOPS_MAX });
        }
        Ok(())
    }

    pub(crate) fn bind(&mut self, pattern: &Pattern, hop: Hop<T>) -> Result<(), BadPattern> {
        let weight = weight(pattern)?;
        let weights = self.hops.entry(hop.clone()).or_default();
        let before = weights.get_max().map(|(weight, _)| *weight);
        *weights.entry(weight).or_insert(0) += 1;
        if before < Some(weight) {
            self.leave(&hop);
            self.join(hop, weight);
        }
        Ok(())
    }

    pub(crate) fn unbind(&mut self, pattern: &Pattern, hop: &Hop<T>) -> bool {
        let Ok(weight) = weight(pattern) else { return false };
        let Some(weights) = self.hops.get_mut(hop) else {
            return false;
        };
        let Some(bindings) = weights.get_mut(&weight) else {
            return false;
        };
        *bindings -= 1;
        if *bindings > 0 {
            return true;
        }
        weights.remove(&weight);
        let left = weights.get_max().map(|(weight, _)| *weight);
        match left {
            None => {
                self.hops.remove(hop);
                self.leave(hop);
            }
            Some(left) if left < weight => {
                self.leave(hop);
                self.join(hop.clone(), left);
            }
            Some(_) => {}
        }
        true
    }

    pub(crate) fn route(&self, kind: &ExchangeKind, message: &dyn MessageView, routes: &mut Routes<T>) {
        let ExchangeKind::Hashed(on) = kind else { return };
        routes.depend(match on {
            HashOn::Key => DependsOn::Keys,
            HashOn::Header(_) | HashOn::Property(_) => DependsOn::Message,
        });
        let hash = match on {
            HashOn::Key => hash(message.key()),
            HashOn::Header(name) => hash(&header(message, name)),
            HashOn::Property(property) => hash(&message.property(*property).unwrap_or_default()),
        };
        let slot = usize::try_from(hash % u64::from(SLOTS)).unwrap_or(0);
        let owner = self.slots.get(slot).and_then(|owner| self.members.get(owner));
        if let Some(member) = owner {
            routes.add(&Hops::One(member.hop.clone()));
        }
    }

    fn join(&mut self, hop: Hop<T>, weight: u32) {
        let seed = hash(&identity(&hop));
        let free = (0..NOBODY).find(|number| !self.members.contains_key(number));
        let Some(number) = free else { return };
        let member = Member { hop, seed, weight };
        if self.slots.is_empty() {
            self.slots = (0..SLOTS).map(|_| number).collect();
        } else {
            let members = &self.members;
            let slots = Arc::make_mut(&mut self.slots);
            for (slot, owner) in (0u64..).zip(slots) {
                if members.get(owner).is_none_or(|owner| member.beats(owner, slot)) {
                    *owner = number;
                }
            }
        }
        self.members.insert(number, member);
    }

    fn leave(&mut self, hop: &Hop<T>) {
        let number = self.members.iter().find(|(_, member)| member.hop == *hop);
        let Some(number) = number.map(|(number, _)| *number) else {
            return;
        };
        self.members.remove(&number);
        if self.members.is_empty() {
            self.slots = Arc::default();
            return;
        }
        let others: Vec<(u16, &Member<T>)> = self
            .members
            .iter()
            .map(|(number, member)| (*number, member))
            .collect();
        let slots = Arc::make_mut(&mut self.slots);
        for (slot, owner) in (0u64..).zip(slots).filter(|(_, owner)| **owner == number) {
            let best = others.iter().copied().reduce(
                |best, other| {
                    if other.1.beats(best.1, slot) { other } else { best }
                },
            );
            *owner = best.map_or(NOBODY, |(number, _)| number);
        }
    }
}

impl<T: Target> Member<T> {
    /// Returns a pseudo-random number for this hop and slot.
    fn lot(&self, slot: u64) -> u64 {
        mix(self.seed ^ mix(slot))
    }

    fn beats(&self, other: &Self, slot: u64) -> bool {
        let (own, others) = (self.lot(slot), other.lot(slot));
        if self.weight == other.weight {
            return (own, self.seed) > (others, other.seed);
        }
        wait(own, self.weight) < wait(others, other.weight)
    }
}

/// Turns a lot into an exponentially distributed time: the chance to be the earliest is proportional to the
/// weight.
fn wait(lot: u64, weight: u32) -> f64 {
    let uniform = ((lot >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    -uniform.ln() / f64::from(weight)
}

fn weight(pattern: &Pattern) -> Result<u32, BadPattern> {
    let text = std::str::from_utf8(&pattern.key).ok();
    let weight = text.and_then(|text| text.parse().ok());
    weight
        .filter(|weight| (1..=WEIGHT_MAX).contains(weight))
        .ok_or_else(|| BadPattern::Weight {
            given: String::from_utf8_lossy(&pattern.key).into_owned(),
            max: WEIGHT_MAX,
        })
}

fn identity<T: Target>(hop: &Hop<T>) -> Vec<u8> {
    match hop {
        Hop::Target(target) => target.identity(),
        Hop::Exchange(name) => [b"exchange:", name.as_bytes()].concat(),
        Hop::Filtered(filtered) => identity(&filtered.hop),
    }
}

fn header(message: &dyn MessageView, wanted: &str) -> Bytes {
    let mut found = Bytes::new();
    message.headers(&mut |name, value| {
        if name == wanted.as_bytes() {
            found = value.to_bytes();
        }
    });
    found
}
