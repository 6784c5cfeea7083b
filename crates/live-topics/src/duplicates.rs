//! Duplicate filter: of equal messages published within a window, by any publisher, only the first is
//! delivered.
//!
//! Without a rule for its topic, a message passes, as does one that cannot be compared. A message is
//! remembered by 128 bits of two keyed hashes. Memory is two tables per shard. New entries go into the young
//! one; when it is full, or as old as the longest window, the old one is dropped and the young one takes its
//! place.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use serde_json::value::RawValue;
use smallvec::SmallVec;
use stafett_model::{Lock, SharedLock};

use super::message::{Message, Payload};

/// Criterion by which two messages of a topic are equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SameBy {
    /// The payload, byte for byte.
    Payload,
    /// A field of the payload, which is a JSON object.
    Field(Box<str>),
    /// The id given by the publisher.
    Id,
}

/// Rule for the topics whose names begin with `prefix`; the longest matching prefix wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateRule {
    pub prefix: Box<str>,
    pub window_ms: u64,
    /// True if each duplicate restarts the window.
    pub restarts: bool,
    pub by: SameBy,
}

const SHARDS: usize = 16;

#[derive(Debug)]
pub(crate) struct Duplicates {
    rules: SharedLock<Rules>,
    /// True if there are any rules.
    is_on: AtomicBool,
    hashes: [RandomState; 2],
    shards: Box<[Lock<Shard>]>,
}

#[derive(Debug)]
struct Rules {
    /// Rules, longest prefix first.
    ordered: Vec<DuplicateRule>,
    /// Bound on the entries of one table.
    table_max: usize,
    window_ms_max: u64,
}

impl Rules {
    fn new(mut rules: Vec<DuplicateRule>, entries_max: usize) -> Self {
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.prefix.len()));
        let window_ms_max = rules.iter().map(|rule| rule.window_ms).max().unwrap_or(0);
        Self {
            ordered: rules,
            table_max: (entries_max / SHARDS / 2).max(1),
            window_ms_max,
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    young: Table,
    old: Table,
    /// Time at which the young table was begun.
    since_ms: u64,
}

/// Time at which each message was last seen.
type Table = HashMap<u128, u64, BuildHasherDefault<Upper>>;

/// Hasher for keys that are keyed hashes already: takes their upper half. The lower half has chosen the
/// shard.
#[derive(Debug, Default)]
struct Upper(u64);

impl Hasher for Upper {
    fn write(&mut self, bytes: &[u8]) {
        let upper = bytes.last_chunk().copied().unwrap_or_default();
        self.0 = u64::from_le_bytes(upper);
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = u64::try_from(key >> 64).unwrap_or(0);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Verdict of the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DuplicateCheck {
    New,
    /// New, but to remember it this many entries were dropped before their windows had ended.
    NewForgetting(usize),
    Duplicate,
}

impl Duplicates {
    pub(crate) fn new(rules: Vec<DuplicateRule>, entries_max: usize) -> Self {
        Self {
            is_on: AtomicBool::new(!rules.is_empty()),
            rules: SharedLock::new(Rules::new(rules, entries_max)),
            hashes: [RandomState::new(), RandomState::new()],
            shards: (0..SHARDS).map(|_| Lock::default()).collect(),
        }
    }

    /// Replaces the rules. Entries are kept: they count for new rules with the same criterion, within their
    /// windows.
    pub(crate) fn change(&self, rules: Vec<DuplicateRule>, entries_max: usize) {
        let is_on = !rules.is_empty();
        *self.rules.write() = Rules::new(rules, entries_max);
        self.is_on.store(is_on, Ordering::Release);
    }

    /// Looks up a message and remembers it; `now_ms` never goes back.
    pub(crate) fn see(&self, message: &Message<'_>, now_ms: u64) -> DuplicateCheck {
        let rules = self.rules.read();
        let Some(rule) = rules
            .ordered
            .iter()
            .find(|rule| message.topic.starts_with(&*rule.prefix))
        else {
            return DuplicateCheck::New;
        };
        let Some(key) = self.key(rule, message) else {
            return DuplicateCheck::New;
        };
        let shard = usize::try_from(key % SHARDS as u128).unwrap_or(0);
        let Some(shard) = self.shards.get(shard) else {
            return DuplicateCheck::New;
        };
        let mut shard = shard.lock();
        let forgotten = shard.make_room(rules.table_max, rules.window_ms_max, now_ms);
        let Shard { young, old, .. } = &mut *shard;
        let is_within = |at: &u64| now_ms.saturating_sub(*at) < rule.window_ms;
        let is_duplicate = match young.entry(key) {
            Entry::Occupied(mut entry) => {
                let is_duplicate = is_within(entry.get());
                if !is_duplicate || rule.restarts {
                    entry.insert(now_ms);
                }
                is_duplicate
            }
            Entry::Vacant(entry) => {
                let is_duplicate = old.get(&key).is_some_and(is_within);
                if !is_duplicate || rule.restarts {
                    entry.insert(now_ms);
                }
                is_duplicate
            }
        };
        match forgotten {
            _ if is_duplicate => DuplicateCheck::Duplicate,
            0 => DuplicateCheck::New,
            count => DuplicateCheck::NewForgetting(count),
        }
    }

    fn key(&self, rule: &DuplicateRule, message: &Message<'_>) -> Option<u128> {
        let same = match (&rule.by, message.payload) {
            (SameBy::Payload, payload) => Cow::Borrowed(payload.bytes()),
            (SameBy::Id, _) => Cow::Borrowed(message.id?.as_bytes()),
            (SameBy::Field(name), Payload::Json(text)) => {
                let fields: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(text).ok()?;
                Cow::Borrowed(fields.get(&**name)?.get().as_bytes())
            }
            (SameBy::Field(_), Payload::Bytes(_)) => return None,
        };
        let is_json = matches!(message.payload, Payload::Json(_));
        // Hashed in one piece, which is faster than many small ones. The criterion is included, as rules may
        // change and criteria must not be mixed.
        let mut text = Whole::default();
        message.topic.hash(&mut text);
        rule.by.hash(&mut text);
        is_json.hash(&mut text);
        same.hash(&mut text);
        let mut parts = self.hashes.iter().map(|hash| {
            let mut hasher = hash.build_hasher();
            hasher.write(&text.0);
            u128::from(hasher.finish())
        });
        Some((parts.next()? << 64) | parts.next()?)
    }

    /// Returns true if there are any rules.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }
}

/// Hasher that collects the bytes to hash.
#[derive(Default)]
struct Whole(SmallVec<[u8; 512]>);

impl Hasher for Whole {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

impl Shard {
    /// Drops the old table if the young one is full or too old. Returns the number of entries dropped before
    /// their time.
    fn make_room(&mut self, table_max: usize, window_ms_max: u64, now_ms: u64) -> usize {
        let age = now_ms.saturating_sub(self.since_ms);
        if self.young.len() < table_max && age < window_ms_max {
            return 0;
        }
        self.since_ms = now_ms;
        let dropped = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        // Messages seen again since are in the younger table too.
        let live = |(key, at): &(&u128, &u64)| {
            now_ms.saturating_sub(**at) < window_ms_max && !self.old.contains_key(*key)
        };
        dropped.iter().filter(live).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(restarts: bool, by: SameBy, max: usize) -> Duplicates {
        let rule = DuplicateRule {
            prefix: "songs/".into(),
            window_ms: 1000,
            restarts,
            by,
        };
        Duplicates::new(vec![rule], max)
    }

    fn message<'a>(topic: &'a str, payload: &'a str, id: Option<&'a str>) -> Message<'a> {
        Message {
            topic,
            payload: Payload::Json(payload),
            timestamp: None,
            id,
            offset: None,
        }
    }

    #[test]
    fn a_duplicate_restarts_the_window_only_if_the_rule_says_so() {
        for (restarts, last) in [(true, DuplicateCheck::Duplicate), (false, DuplicateCheck::New)] {
            let filter = filter(restarts, SameBy::Payload, 1000);
            let song = message("songs/a", "1", None);
            assert_eq!(filter.see(&song, 0), DuplicateCheck::New);
            assert_eq!(filter.see(&song, 900), DuplicateCheck::Duplicate);
            assert_eq!(filter.see(&song, 1800), last);
            assert_eq!(filter.see(&song, 4000), DuplicateCheck::New);
        }
    }

    #[test]
    fn nothing_is_filtered_that_differs_or_that_no_rule_names() {
        let filter = filter(true, SameBy::Payload, 1000);
        for (topic, payload) in [
            ("songs/a", "1"),
            ("songs/a", "\"1\""),
            ("songs/a", "2"),
            ("songs/b", "1"),
            ("news", "1"),
            ("news", "1"),
        ] {
            assert_eq!(
                filter.see(&message(topic, payload, None), 5),
                DuplicateCheck::New,
                "{topic} {payload}"
            );
        }
        let bytes = Message {
            payload: Payload::Bytes(b"1"),
            ..message("songs/a", "", None)
        };
        assert_eq!(
            filter.see(&bytes, 5),
            DuplicateCheck::New,
            "bytes are not the JSON of the same letters"
        );
    }

    #[test]
    fn messages_are_compared_by_a_field_or_by_their_id_if_they_have_one() {
        let by_field = filter(true, SameBy::Field("title".into()), 1000);
        let see = |payload| by_field.see(&message("songs/a", payload, None), 1);
        assert_eq!(see(r#"{"title":"x","at":1}"#), DuplicateCheck::New);
        assert_eq!(see(r#"{"at":2,"title":"x"}"#), DuplicateCheck::Duplicate);
        for other in [r#"{"at":2}"#, r#"{"at":2}"#, "[1]", "[1]"] {
            assert_eq!(see(other), DuplicateCheck::New, "{other}");
        }
        let by_id = filter(true, SameBy::Id, 1000);
        let see = |payload, id| by_id.see(&message("songs/a", payload, id), 1);
        assert_eq!(see("1", Some("x")), DuplicateCheck::New);
        assert_eq!(see("2", Some("x")), DuplicateCheck::Duplicate);
        assert_eq!(
            (see("1", None), see("1", None)),
            (DuplicateCheck::New, DuplicateCheck::New)
        );
    }

    #[test]
    fn rules_change_and_what_was_seen_under_one_that_compares_the_same_is_remembered() {
        let filter = filter(true, SameBy::Payload, 1000);
        let rule = |window_ms, by| DuplicateRule {
            prefix: "songs/".into(),
            window_ms,
            restarts: false,
            by,
        };
        let see = |payload, now_ms| filter.see(&message("songs/a", payload, None), now_ms);
        assert_eq!(see("1", 0), DuplicateCheck::New);
        filter.change(vec![rule(5000, SameBy::Payload)], 1000);
        assert_eq!(see("1", 4000), DuplicateCheck::Duplicate);
        // The payload `"x"` and the field value "x" are not the same.
        assert_eq!(see("\"x\"", 4000), DuplicateCheck::New);
        filter.change(vec![rule(5000, SameBy::Field("title".into()))], 1000);
        assert_eq!(see("{\"title\":\"x\"}", 4001), DuplicateCheck::New);
        filter.change(Vec::new(), 1000);
        assert!(!filter.is_on());
        assert_eq!(see("{\"title\":\"x\"}", 4002), DuplicateCheck::New);
    }

    #[test]
    fn memory_is_bounded_and_what_was_forgotten_too_early_is_counted() {
        let filter = filter(true, SameBy::Payload, 320);
        let mut forgotten = 0;
        for number in 0..10_000 {
            let payload = number.to_string();
            match filter.see(&message("songs/a", &payload, None), 1) {
                DuplicateCheck::NewForgetting(count) => forgotten += count,
                DuplicateCheck::New => {}
                DuplicateCheck::Duplicate => panic!("{number} was not there before"),
            }
        }
        let kept: usize = filter
            .shards
            .iter()
            .map(|shard| shard.lock())
            .map(|shard| shard.young.len() + shard.old.len())
            .sum();
        assert!(kept <= 320, "{kept}");
        assert_eq!(forgotten + kept, 10_000);
    }
}
