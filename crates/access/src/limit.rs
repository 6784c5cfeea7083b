//! Limits on the number of things of a namespace or a user.
//!
//! ```text
//! stored key    u8 (0 namespace, 1 user), name
//! stored value  u8 version (1), then u8 limit and u64 number, repeated
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use stafett_model::Lock;
use stafett_model::codec::get;

/// Format of stored values.
const VERSION: u8 = 1;

/// Kind of things that are limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Limit {
    Connections,
    Channels,
    Queues,
    /// Stored topics.
    Topics,
    /// Messages in queues.
    Messages,
    /// Bytes of messages in queues.
    Bytes,
}

impl Limit {
    pub const ALL: [Self; 6] = [
        Self::Connections,
        Self::Channels,
        Self::Queues,
        Self::Topics,
        Self::Messages,
        Self::Bytes,
    ];
}

/// Owner of things that are limited.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limited {
    Namespace(Box<str>),
    User(Box<str>),
}

/// Limits of an owner; 0 permits none.
pub type Limits = BTreeMap<Limit, u64>;

impl Limited {
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        let (kind, name) = match self {
            Self::Namespace(name) => (0, name),
            Self::User(name) => (1, name),
        };
        let mut key = vec![kind];
        key.extend(name.as_bytes());
        key
    }
}

/// Returns the stored form of limits.
#[must_use]
pub fn encode_limits(limits: &Limits) -> Vec<u8> {
    let mut value = vec![VERSION];
    for (limit, number) in limits {
        value.push(*limit as u8);
        value.extend(number.to_le_bytes());
    }
    value
}

/// Reads stored limits. `None` if their format is unknown.
#[must_use]
pub fn decode_limits(key: &[u8], mut value: &[u8]) -> Option<(Limited, Limits)> {
    let (kind, name) = key.split_first()?;
    let name = std::str::from_utf8(name).ok()?.into();
    let limited = match kind {
        0 => Limited::Namespace(name),
        1 => Limited::User(name),
        _ => return None,
    };
    let rest = &mut value;
    let [VERSION] = get(rest)? else { return None };
    let mut limits = Limits::new();
    while !rest.is_empty() {
        let [number] = get(rest)?;
        let limit = Limit::ALL.into_iter().find(|limit| *limit as u8 == number)?;
        limits.insert(limit, u64::from_le_bytes(get(rest)?));
    }
    Some((limited, limits))
}

/// Numbers of things that are there, by owner. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Lock<HashMap<(Limited, Limit), u64>>>);

/// A thing that is counted until it is dropped.
#[derive(Debug)]
pub struct Tallied {
    tally: Tally,
    key: (Limited, Limit),
}

impl Tally {
    /// Counts a thing, unless as many as `max` are there.
    #[must_use]
    pub fn add(&self, owner: Limited, limit: Limit, max: Option<u64>) -> Option<Tallied> {
        let key = (owner, limit);
        let mut counts = self.0.lock();
        let count = counts.entry(key.clone()).or_default();
        if max.is_some_and(|max| *count >= max) {
            if *count == 0 {
                counts.remove(&key);
            }
            return None;
        }
        *count += 1;
        drop(counts);
        let tally = self.clone();
        Some(Tallied { tally, key })
    }
}

impl Drop for Tallied {
    fn drop(&mut self) {
        let mut counts = self.tally.0.lock();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_survive_their_storage() {
        let limits: Limits = [
            (Limit::Connections, 0),
            (Limit::Queues, u64::MAX),
            (Limit::Bytes, 7),
        ]
        .into();
        for limited in [Limited::Namespace("/".into()), Limited::User("ännchen".into())] {
            let (key, value) = (limited.key(), encode_limits(&limits));
            assert_eq!(decode_limits(&key, &value), Some((limited, limits.clone())));
            for end in 2..value.len() {
                let cut = decode_limits(&key, &value[..end]);
                assert!(cut.is_none_or(|(_, cut)| cut != limits));
            }
        }
        assert_eq!(decode_limits(&[2, b'a'], &encode_limits(&limits)), None);
        assert_eq!(decode_limits(&[], &encode_limits(&limits)), None);
    }

    #[test]
    fn things_are_counted_until_they_are_dropped() {
        let tally = Tally::default();
        let ann = || Limited::User("ann".into());
        let add = |max| tally.add(ann(), Limit::Channels, max);
        assert!(add(Some(0)).is_none());
        let (one, two) = (add(Some(2)).unwrap(), add(None).unwrap());
        assert!(add(Some(2)).is_none());
        assert!(tally.add(ann(), Limit::Connections, Some(1)).is_some());
        drop(one);
        let three = add(Some(2));
        assert!(three.is_some());
        drop((two, three));
        assert!(tally.0.lock().is_empty());
    }
}
