//! Quotas: rates of users and clients, and the buckets that keep to them.
//!
//! A quota is of a user, of a client id, or of both; a *default* stands for all that have none of their own.
//! The first of these that is there counts:
//!
//! ```text
//! user and client > user and default client > user > default user and client > default user and client
//!   > default user > client > default client
//! ```
//!
//! A quota of a user is shared by all its clients; one of a user and a client by all connections of both.
//!
//! ```text
//! stored key    the two parts, each: u8 (0 none, 1 default, 2 named), text if named
//! stored value  u8 version (1), then u8 rate and f64 bytes or requests per second, repeated
//! ```

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stafett_model::Lock;
use stafett_model::codec::{get, get_text, put_text};

/// Format of stored values.
const VERSION: u8 = 1;
/// Quotas that there may be.
const QUOTAS_MAX: usize = 100_000;
/// Bytes of a name in a quota.
const NAME_BYTES_MAX: usize = 255;
/// Time whose bytes or requests may come at once.
const BURST: Duration = Duration::from_secs(1);
/// Longest time that a client is told to wait at once; a debt beyond it stays.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// Buckets that are kept without a look for those that are not in use.
const BUCKETS_MIN: usize = 1024;

/// Rate that a quota limits, per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Rate {
    /// Bytes.
    Produced,
    /// Bytes.
    Fetched,
    /// Number of requests.
    Requests,
}

impl Rate {
    pub const ALL: [Self; 3] = [Self::Produced, Self::Fetched, Self::Requests];

    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Produced => "produced",
            Self::Fetched => "fetched",
            Self::Requests => "requests",
        }
    }
}

/// Part of the name of a quota.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All that have no quota of their own.
    Default,
    Named(Box<str>),
}

/// Users and clients that a quota is for. At least one part is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entity {
    pub user: Option<Part>,
    pub client: Option<Part>,
}

/// A quota that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuota {
    #[error("a quota is of a user, a client, or both, with names of 1 to {NAME_BYTES_MAX} bytes")]
    Entity,
    #[error("a rate is a number above 0, per second")]
    Rate,
    #[error("there are {QUOTAS_MAX} quotas, and can be no more")]
    ManyQuotas,
}

/// Rates of an entity.
pub type Rates = BTreeMap<Rate, f64>;

impl fmt::Display for Entity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("user", &self.user), ("client", &self.client)];
        let named = parts
            .into_iter()
            .filter_map(|(kind, part)| Some((kind, part.as_ref()?)));
        for (place, (kind, part)) in named.enumerate() {
            let space = if place == 0 { "" } else { " " };
            match part {
                Part::Default => write!(out, "{space}{kind} *")?,
                Part::Named(name) => write!(out, "{space}{kind} {name:?}")?,
            }
        }
        Ok(())
    }
}

impl Entity {
    pub fn check(&self) -> Result<(), BadQuota> {
        let is_good = |part: &Option<Part>| match part {
            Some(Part::Named(name)) => (1..=NAME_BYTES_MAX).contains(&name.len()),
            Some(Part::Default) | None => true,
        };
        let is_some = self.user.is_some() || self.client.is_some();
        (is_some && is_good(&self.user) && is_good(&self.client))
            .then_some(())
            .ok_or(BadQuota::Entity)
    }

    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        for part in [&self.user, &self.client] {
            match part {
                None => key.push(0),
                Some(Part::Default) => key.push(1),
                Some(Part::Named(name)) => {
                    key.push(2);
                    put_text(name, &mut key);
                }
            }
        }
        key
    }

    fn decode(mut key: &[u8]) -> Option<Self> {
        let rest = &mut key;
        let mut part = || {
            Some(match get(rest)? {
                [0] => None,
                [1] => Some(Part::Default),
                [2] => Some(Part::Named(get_text(rest)?.into())),
                _ => return None,
            })
        };
        let (user, client) = (part()?, part()?);
        let entity = Self { user, client };
        (rest.is_empty() && entity.check().is_ok()).then_some(entity)
    }
}

/// Returns the stored form of rates.
#[must_use]
pub fn encode_rates(rates: &Rates) -> Vec<u8> {
    let mut value = vec![VERSION];
    for (rate, bytes) in rates {
        value.push(*rate as u8);
        value.extend(bytes.to_le_bytes());
    }
    value
}

/// Reads a stored quota. `None` if its format is unknown.
#[must_use]
pub fn decode_quota(key: &[u8], mut value: &[u8]) -> Option<(Entity, Rates)> {
    let rest = &mut value;
    let [VERSION] = get(rest)? else { return None };
    let mut rates = Rates::new();
    while !rest.is_empty() {
        let [number] = get(rest)?;
        let rate = Rate::ALL.into_iter().find(|rate| *rate as u8 == number)?;
        let bytes = f64::from_le_bytes(get(rest)?);
        check_rate(bytes).ok()?;
        rates.insert(rate, bytes);
    }
    Some((Entity::decode(key)?, rates))
}

/// Refuses a rate that is no positive number.
pub fn check_rate(bytes: f64) -> Result<(), BadQuota> {
    (bytes.is_finite() && bytes > 0.0)
        .then_some(())
        .ok_or(BadQuota::Rate)
}

/// Bytes or requests that may pass. Those beyond them are a debt.
#[derive(Debug)]
pub struct Bucket {
    per_second: f64,
    state: Lock<Level>,
}

#[derive(Debug)]
struct Level {
    /// Number that may pass at once; below 0 for a debt.
    left: f64,
    at: Duration,
}

impl Bucket {
    fn new(per_second: f64, now: Duration) -> Self {
        let left = per_second * BURST.as_secs_f64();
        let state = Lock::new(Level { left, at: now });
        Self { per_second, state }
    }

    /// Returns true if it is as good as a new one.
    fn is_full(&self, now: Duration) -> bool {
        let level = self.state.lock();
        let gained = now.saturating_sub(level.at).as_secs_f64() * self.per_second;
        level.left + gained >= self.per_second * BURST.as_secs_f64()
    }

    /// Takes bytes or requests that have come, and returns the time until the debt is gone. `now` is of a
    /// clock that never goes back.
    pub fn take(&self, count: usize, now: Duration) -> Duration {
        let mut level = self.state.lock();
        let gained = now.saturating_sub(level.at).as_secs_f64() * self.per_second;
        let full = self.per_second * BURST.as_secs_f64();
        level.left = (level.left + gained).min(full);
        level.at = level.at.max(now);
        #[expect(clippy::cast_precision_loss, reason = "bytes of a request")]
        let taken = count as f64;
        level.left -= taken;
        let debt = (-level.left / self.per_second).max(0.0);
        Duration::try_from_secs_f64(debt)
            .unwrap_or(WAIT_MAX)
            .min(WAIT_MAX)
    }
}

/// Quota of a connection, for a front end that knows no users.
pub trait Meter: fmt::Debug + Send + Sync {
    /// Returns true if there are quotas.
    fn is_on(&self) -> bool;

    /// Takes bytes or requests, and returns the time until the debt is gone. 0 only asks.
    fn charge(&self, rate: Rate, count: usize) -> Duration;
}

/// Users, clients and rate that share a bucket.
type BucketKey = (Option<Box<str>>, Option<Box<str>>, Rate);

/// All quotas, and the buckets in use.
#[derive(Debug, Default)]
pub struct Quotas {
    rates: BTreeMap<Entity, Rates>,
    /// Those in use, and those with less than a full second.
    buckets: Lock<HashMap<BucketKey, Arc<Bucket>>>,
}

impl Quotas {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Entity, &Rates)> {
        self.rates.iter()
    }

    #[must_use]
    pub fn rates(&self, entity: &Entity) -> Option<&Rates> {
        self.rates.get(entity)
    }

    /// Refuses a quota that is not there, if there are too many.
    pub fn check_room(&self, entity: &Entity) -> Result<(), BadQuota> {
        let is_full = self.rates.len() >= QUOTAS_MAX && !self.rates.contains_key(entity);
        if is_full {
            Err(BadQuota::ManyQuotas)
        } else {
            Ok(())
        }
    }

    /// Replaces the rates of an entity; without any it is removed.
    pub(crate) fn set(&mut self, entity: Entity, rates: Rates) {
        if rates.is_empty() {
            self.rates.remove(&entity);
        } else {
            self.rates.insert(entity, rates);
        }
    }

    /// Returns the bucket of a user and client. `None` if no quota limits the rate.
    pub fn bucket(&self, user: Option<&str>, client: &str, rate: Rate, now: Duration) -> Option<Arc<Bucket>> {
        let (per_second, by_user, by_client) = self.find(user, client, rate)?;
        let user = user.filter(|_| by_user).map(Into::into);
        let key = (user, by_client.then(|| client.into()), rate);
        let mut buckets = self.buckets.lock();
        let known = buckets.get(&key).cloned();
        #[expect(clippy::float_cmp, reason = "both are the number that was set")]
        if let Some(known) = known.filter(|bucket| bucket.per_second == per_second) {
            return Some(known);
        }
        if buckets.len() >= BUCKETS_MIN && buckets.len() == buckets.capacity() {
            buckets.retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.is_full(now));
        }
        let bucket = Arc::new(Bucket::new(per_second, now));
        buckets.insert(key, Arc::clone(&bucket));
        Some(bucket)
    }

    /// Returns the rate that counts, and whether it is of the user and of the client.
    fn find(&self, user: Option<&str>, client: &str, rate: Rate) -> Option<(f64, bool, bool)> {
        let named = |name: &str| Some(Part::Named(name.into()));
        let client = [named(client), Some(Part::Default)];
        let users = user.map(|user| [named(user), Some(Part::Default)]);
        let of_users = users.into_iter().flatten().flat_map(|user| {
            let clients = client.clone().into_iter().chain([None]);
            clients.map(move |client| Entity {
                user: user.clone(),
                client,
            })
        });
        let of_clients = client
            .clone()
            .into_iter()
            .map(|client| Entity { user: None, client });
        let mut all = of_users.chain(of_clients);
        all.find_map(|entity| {
            let bytes = *self.rates.get(&entity)?.get(&rate)?;
            Some((bytes, entity.user.is_some(), entity.client.is_some()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> Option<Part> {
        match text {
            "" => None,
            "*" => Some(Part::Default),
            name => Some(Part::Named(name.into())),
        }
    }

    fn entity(user: &str, client: &str) -> Entity {
        Entity {
            user: part(user),
            client: part(client),
        }
    }

    #[test]
    fn the_most_special_quota_counts() {
        let order = [
            ("", "*"),
            ("", "c"),
            ("*", ""),
            ("*", "*"),
            ("*", "c"),
            ("ann", ""),
            ("ann", "*"),
            ("ann", "c"),
        ];
        let mut quotas = Quotas::default();
        for (number, (user, client)) in (1_u8..).zip(order) {
            let entity = entity(user, client);
            entity.check().unwrap();
            quotas.set(entity, [(Rate::Produced, number.into())].into());
            let found = quotas.find(Some("ann"), "c", Rate::Produced).unwrap();
            assert_eq!(found, (number.into(), !user.is_empty(), !client.is_empty()));
        }
        assert_eq!(
            quotas.find(Some("bob"), "d", Rate::Produced),
            Some((4.0, true, true))
        );
        assert_eq!(quotas.find(None, "c", Rate::Produced), Some((2.0, false, true)));
        assert_eq!(quotas.find(Some("ann"), "c", Rate::Fetched), None);
        quotas.set(entity("ann", "c"), Rates::new());
        assert_eq!(
            quotas.find(Some("ann"), "c", Rate::Produced),
            Some((7.0, true, true))
        );
    }

    #[test]
    fn a_quota_of_a_user_is_shared_by_its_clients_and_a_debt_passes_with_time() {
        let mut quotas = Quotas::default();
        quotas.set(entity("*", ""), [(Rate::Produced, 100.0)].into());
        let at = Duration::from_secs;
        let of = |user: &str, client: &str| quotas.bucket(Some(user), client, Rate::Produced, at(0)).unwrap();
        let (one, other, bobs) = (of("ann", "a"), of("ann", "b"), of("bob", "a"));
        assert_eq!(one.take(100, at(0)), at(0));
        assert_eq!(other.take(50, at(0)), Duration::from_millis(500));
        assert_eq!(bobs.take(100, at(0)), at(0));
        assert_eq!(one.take(0, at(1)), at(0));
        assert_eq!(one.take(50, at(1)), at(0));
        // Between two requests, a bucket is kept.
        drop((one, other, bobs));
        let one = quotas.bucket(Some("ann"), "a", Rate::Produced, at(1)).unwrap();
        // A long silence gives no more than a second's bytes.
        assert_eq!(one.take(200, at(1000)), at(1));
        assert_eq!(one.take(1 << 30, at(1000)), WAIT_MAX);
    }

    #[test]
    fn quotas_survive_their_storage() {
        let rates: Rates = [(Rate::Produced, 1024.5), (Rate::Fetched, 1.0)].into();
        for (user, client) in [("ann", ""), ("*", "c"), ("", "*"), ("ännchen", "*")] {
            let entity = entity(user, client);
            let (key, value) = (entity.key(), encode_rates(&rates));
            assert_eq!(decode_quota(&key, &value), Some((entity, rates.clone())));
            assert_eq!(decode_quota(&key[..key.len() - 1], &value), None);
            assert_eq!(decode_quota(&key, &value[..value.len() - 1]), None);
        }
        assert_eq!(decode_quota(&[0, 0], &encode_rates(&rates)), None);
        for bytes in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(check_rate(bytes), Err(BadQuota::Rate));
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        assert_eq!(entity(&long, "").check(), Err(BadQuota::Entity));
    }

    #[test]
    fn buckets_that_nobody_uses_are_forgotten() {
        let mut quotas = Quotas::default();
        quotas.set(entity("", "*"), [(Rate::Fetched, 1.0)].into());
        for number in 0..100_000 {
            let client = number.to_string();
            assert!(
                quotas
                    .bucket(None, &client, Rate::Fetched, Duration::ZERO)
                    .is_some()
            );
        }
        assert!(quotas.buckets.lock().len() <= 4 * BUCKETS_MIN);
    }
}
