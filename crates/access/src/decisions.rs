//! Decisions that a caller remembers, until the directory changes.
//!
//! A table with few places for each decision, which follow that of a hash of its subject. Requests
//! repeat the same few, so that finding one costs a hash and a comparison. The table grows when half of it is
//! taken, up to a bound; a decision whose places are all taken takes the first from the one before.

use crate::action::Action;
use crate::resource::{Kind, Resource};

/// Places of the first table.
const PLACES_MIN: usize = 16;
/// Places of the largest table.
const PLACES_MAX: usize = 1024;
/// Places of one decision.
const WAYS: usize = 8;
/// Odd number by which hashes are multiplied: the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone)]
struct Decision {
    hash: u64,
    action: Action,
    kind: Kind,
    namespace: Box<str>,
    name: Box<str>,
    is_allowed: bool,
    /// True once its refusal is in the audit.
    is_noted: bool,
}

pub(crate) struct Decisions {
    generation: u64,
    /// Empty, or a power of two.
    places: Vec<Option<Decision>>,
    taken: usize,
}

impl Decisions {
    pub(crate) const fn new() -> Self {
        Self {
            generation: 0,
            places: Vec::new(),
            taken: 0,
        }
    }

    /// Forgets all decisions of other generations of the directory.
    pub(crate) fn begin(&mut self, generation: u64) {
        if self.generation != generation {
            self.places.clear();
            self.taken = 0;
            self.generation = generation;
        }
    }

    /// Returns a decision, if it is remembered.
    pub(crate) fn find(&self, action: Action, resource: &Resource<'_>) -> Option<bool> {
        let place = self.find_place(action, resource)?;
        let found = self.places.get(place)?.as_ref()?;
        Some(found.is_allowed)
    }

    /// Notes a refusal. Returns true for the first time, as far as it is remembered.
    pub(crate) fn note(&mut self, action: Action, resource: &Resource<'_>) -> bool {
        let place = self.find_place(action, resource);
        let decision = place.and_then(|place| self.places.get_mut(place)?.as_mut());
        decision.is_none_or(|decision| !std::mem::replace(&mut decision.is_noted, true))
    }

    fn find_place(&self, action: Action, resource: &Resource<'_>) -> Option<usize> {
        let hash = hash(action, resource);
        // None is ever taken out alone, so that a free place ends the search.
        for way in 0..WAYS {
            let place = self.place(hash, way);
            let found = self.places.get(place)?.as_ref()?;
            if found.hash == hash && found.is_about(action, resource) {
                return Some(place);
            }
        }
        None
    }

    /// Remembers a decision that was not found.
    pub(crate) fn insert(&mut self, action: Action, resource: &Resource<'_>, is_allowed: bool) {
        let decision = Decision {
            hash: hash(action, resource),
            action,
            kind: resource.kind,
            namespace: resource.namespace.into(),
            name: resource.name.into(),
            is_allowed,
            is_noted: false,
        };
        if 2 * self.taken >= self.places.len() {
            self.grow();
        }
        self.put(decision);
    }

    fn put(&mut self, decision: Decision) {
        let place = self.free_place(decision.hash);
        let place = place.unwrap_or_else(|| self.place(decision.hash, 0));
        if let Some(place) = self.places.get_mut(place) {
            self.taken += usize::from(place.is_none());
            *place = Some(decision);
        }
    }

    fn free_place(&self, hash: u64) -> Option<usize> {
        let mut places = (0..WAYS).map(|way| self.place(hash, way));
        places.find(|place| matches!(self.places.get(*place), Some(None)))
    }

    fn grow(&mut self) {
        let places = (2 * self.places.len()).clamp(PLACES_MIN, PLACES_MAX);
        if places == self.places.len() {
            return;
        }
        let before = std::mem::replace(&mut self.places, vec![None; places]);
        self.taken = 0;
        for decision in before.into_iter().flatten() {
            self.put(decision);
        }
    }

    fn place(&self, hash: u64, way: usize) -> usize {
        // The upper bits depend on all that was multiplied.
        let [.., first, second] = hash.to_le_bytes();
        (usize::from(u16::from_le_bytes([first, second])) + way) & self.places.len().saturating_sub(1)
    }
}

impl Decision {
    fn is_about(&self, action: Action, resource: &Resource<'_>) -> bool {
        self.action == action
            && self.kind == resource.kind
            && *self.name == *resource.name
            && self.is_in(resource.namespace)
    }

    fn is_in(&self, namespace: &str) -> bool {
        // Most lie in none: the comparison of texts is a call.
        self.namespace.len() == namespace.len() && (namespace.is_empty() || *self.namespace == *namespace)
    }
}

/// Returns a quick hash. Names that are made to share one cost their own caller its memory.
fn hash(action: Action, resource: &Resource<'_>) -> u64 {
    let start = (action as u64) << 8 | resource.kind as u64;
    let named = hash_text(start, resource.name);
    let all = if resource.namespace.is_empty() {
        named
    } else {
        hash_text(named, resource.namespace)
    };
    // A product's bits depend on lower ones alone, and names differ at their ends, which are upper ones.
    (all ^ all >> 32).wrapping_mul(MULTIPLIER)
}

fn hash_text(hash: u64, text: &str) -> u64 {
    let bytes = text.as_bytes();
    let hash = hash ^ (bytes.len() as u64) << 16;
    // The last word overlaps the one before it.
    if let Some(last) = bytes.last_chunk::<8>() {
        let (words, _) = bytes.as_chunks::<8>();
        let of_words = words
            .iter()
            .fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        return mix(of_words, u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        return mix(hash, u64::from(first) << 32 | u64::from(last));
    }
    mix(
        hash,
        bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    )
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(26) ^ word).wrapping_mul(MULTIPLIER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_those_that_were_remembered_last_and_of_one_generation() {
        let mut decisions = Decisions::new();
        let topic = |number: usize| format!("topic-{number}");
        decisions.begin(1);
        for number in 0..5000 {
            let name = topic(number);
            assert_eq!(decisions.find(Action::Read, &Resource::topic(&name)), None);
            decisions.insert(Action::Read, &Resource::topic(&name), number % 3 == 0);
            let found = decisions.find(Action::Read, &Resource::topic(&name));
            assert_eq!(found, Some(number % 3 == 0));
        }
        assert_eq!(decisions.places.len(), PLACES_MAX);
        let kept = (0..5000).filter(|number| {
            let name = topic(*number);
            assert_eq!(decisions.find(Action::Write, &Resource::topic(&name)), None);
            assert_eq!(decisions.find(Action::Read, &Resource::group(&name)), None);
            assert_eq!(decisions.find(Action::Read, &Resource::queue("/", &name)), None);
            let found = decisions.find(Action::Read, &Resource::topic(&name));
            assert!(found.is_none_or(|found| found == (number % 3 == 0)));
            found.is_some()
        });
        assert!(kept.count() > PLACES_MAX * 3 / 4, "places are shared evenly");
        decisions.begin(2);
        assert_eq!(decisions.find(Action::Read, &Resource::topic("topic-4999")), None);
    }

    #[test]
    fn some_decisions_take_a_small_table_and_are_found() {
        let mut decisions = Decisions::new();
        let names: Vec<String> = (0..100).map(|number| format!("orders-{number}")).collect();
        // One may lose its place to another, and is decided again.
        for name in names.iter().cycle().take(3 * names.len()) {
            let topic = Resource::topic(name);
            if decisions.find(Action::Write, &topic).is_none() {
                decisions.insert(Action::Write, &topic, true);
            }
        }
        assert!(decisions.places.len() <= 256, "{}", decisions.places.len());
        let found = |name: &&String| decisions.find(Action::Write, &Resource::topic(name)) == Some(true);
        assert!(names.iter().filter(found).count() >= 98);
    }

    #[test]
    fn a_name_and_its_namespace_are_told_apart() {
        let mut decisions = Decisions::new();
        decisions.insert(Action::Read, &Resource::queue("a", "bc"), true);
        for (namespace, name) in [("ab", "c"), ("", "abc"), ("abc", ""), ("a", "bc\0")] {
            assert_eq!(
                decisions.find(Action::Read, &Resource::queue(namespace, name)),
                None
            );
        }
    }
}
