//! Delays for logins that guess. All tables are bounded: the oldest entry is forgotten.
//!
//! | failures | delay |
//! |---|---|
//! | of a user at an address | that user at that address, up to 5 s |
//! | of a user anywhere | that user elsewhere, up to 1 s: guesses must not lock it out |
//! | of many users at an address | other users of that address, up to 1 s |
//!
//! The last two are for guesses that are spread: over addresses, or over users. A user that logged in at an
//! address before is spared them there. A client that repeats one wrong password counts only a few times
//! for its address, so that others at the address go on.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use stafett_model::Lock;

/// Entries of each table.
const ENTRIES_MAX: usize = 4096;
/// Bytes of a user's name that are told apart.
const NAME_BYTES_MAX: usize = 256;
/// Failures of a user without a delay.
const FREE: u32 = 3;
/// Failures of an address, over all its users, without a delay.
const FREE_AT_ADDRESS: u32 = 32;
/// Delay of the first failure behind these; it doubles with each.
const FIRST_MS: u64 = 100;
/// Longest delay of a user at an address.
const PAIR_MAX: Duration = Duration::from_secs(5);
/// Longest delay of a user, and of an address.
const SPREAD_MAX: Duration = Duration::from_secs(1);
/// Failures are forgotten after this long.
const FORGOTTEN_MS: i64 = 60_000;
/// Logins are remembered for this long.
const LOGIN_MS: i64 = 24 * 3600 * 1000;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    count: u32,
    last_ms: i64,
}

#[derive(Debug)]
struct Table<K> {
    entries: HashMap<K, Entry>,
    /// Time after which an entry is forgotten.
    kept_ms: i64,
}

impl<K: Hash + Eq + Clone> Table<K> {
    fn new(kept_ms: i64) -> Self {
        let entries = HashMap::new();
        Self { entries, kept_ms }
    }

    fn count(&self, key: &K, now_ms: i64) -> u32 {
        let entry = self.entries.get(key);
        entry
            .filter(|entry| now_ms - entry.last_ms <= self.kept_ms)
            .map_or(0, |entry| entry.count)
    }

    /// Counts one more, and returns the count.
    fn add(&mut self, key: K, now_ms: i64) -> u32 {
        let kept_ms = self.kept_ms;
        if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&key) {
            self.entries.retain(|_, entry| now_ms - entry.last_ms <= kept_ms);
            if self.entries.len() >= ENTRIES_MAX {
                let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_ms);
                let oldest = oldest.map(|(key, _)| key.clone());
                oldest.map(|key| self.entries.remove(&key));
            }
        }
        let entry = self.entries.entry(key).or_default();
        if now_ms - entry.last_ms > kept_ms {
            entry.count = 0;
        }
        entry.count = entry.count.saturating_add(1);
        entry.last_ms = now_ms;
        entry.count
    }
}

type Pair = (IpAddr, Box<str>);

#[derive(Debug)]
struct Tables {
    pairs: Table<Pair>,
    users: Table<Box<str>>,
    addresses: Table<IpAddr>,
    /// Users that logged in, with their address.
    logins: Table<Pair>,
}

/// Failed logins of addresses and users.
#[derive(Debug)]
pub struct Guessing(Lock<Tables>);

impl Default for Guessing {
    fn default() -> Self {
        Self(Lock::new(Tables {
            pairs: Table::new(FORGOTTEN_MS),
            users: Table::new(FORGOTTEN_MS),
            addresses: Table::new(FORGOTTEN_MS),
            logins: Table::new(LOGIN_MS),
        }))
    }
}

impl Guessing {
    /// Returns how long a login of the user at the address has to wait.
    #[must_use]
    pub fn delay(&self, peer: IpAddr, user: &str, now_ms: i64) -> Duration {
        let pair = pair(peer, user);
        let tables = self.0.lock();
        let own = delay(tables.pairs.count(&pair, now_ms), FREE, PAIR_MAX);
        if tables.logins.count(&pair, now_ms) > 0 {
            return own;
        }
        let spread = [
            delay(tables.users.count(&pair.1, now_ms), FREE, SPREAD_MAX),
            delay(
                tables.addresses.count(&pair.0, now_ms),
                FREE_AT_ADDRESS,
                SPREAD_MAX,
            ),
        ];
        spread.into_iter().fold(own, Duration::max)
    }

    /// Returns the address, or the /64 of an IPv6 address: one host has all of these.
    #[must_use]
    pub fn network(peer: IpAddr) -> IpAddr {
        match peer.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
            four @ IpAddr::V4(_) => four,
        }
    }

    pub fn on_failure(&self, peer: IpAddr, user: &str, now_ms: i64) {
        let (address, user) = pair(peer, user);
        let mut tables = self.0.lock();
        let count = tables.pairs.add((address, user.clone()), now_ms);
        tables.users.add(user, now_ms);
        // A pair that is slowed itself counts no more for the others.
        if count <= FREE {
            tables.addresses.add(address, now_ms);
        }
    }

    /// Notes a login. The failures of its user are forgotten; those of the address stay, as it may know one
    /// password. Returns true if the user did not log in at the address within the last minute.
    pub fn on_success(&self, peer: IpAddr, user: &str, now_ms: i64) -> bool {
        let pair = pair(peer, user);
        let mut tables = self.0.lock();
        tables.pairs.entries.remove(&pair);
        tables.users.entries.remove(&pair.1);
        let before = tables.logins.entries.get(&pair).map(|entry| entry.last_ms);
        tables.logins.add(pair, now_ms);
        before.is_none_or(|last_ms| now_ms - last_ms > FORGOTTEN_MS)
    }
}

fn delay(failures: u32, free: u32, max: Duration) -> Duration {
    if failures <= free {
        return Duration::ZERO;
    }
    let doubled = (failures - free - 1).min(16);
    Duration::from_millis(FIRST_MS << doubled).min(max)
}

fn pair(peer: IpAddr, user: &str) -> Pair {
    let user = user.get(..user.floor_char_boundary(NAME_BYTES_MAX));
    (Guessing::network(peer), user.unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn failures_delay_the_user_at_its_address_and_are_forgotten() {
        let guessing = Guessing::default();
        for _ in 0..FREE {
            guessing.on_failure(HERE, "ann", 0);
            assert_eq!(guessing.delay(HERE, "ann", 0), Duration::ZERO);
        }
        guessing.on_failure(HERE, "ann", 0);
        assert_eq!(guessing.delay(HERE, "ann", 0), Duration::from_millis(100));
        for _ in 0..100 {
            guessing.on_failure(HERE, "ann", 0);
        }
        assert_eq!(guessing.delay(HERE, "ann", 0), PAIR_MAX);
        assert_eq!(guessing.delay(THERE, "ann", 0), SPREAD_MAX);
        assert_eq!(guessing.delay(HERE, "ann", FORGOTTEN_MS + 1), Duration::ZERO);
        assert!(guessing.on_success(HERE, "ann", 0));
        assert!(!guessing.on_success(HERE, "ann", 1) && guessing.on_success(THERE, "ann", 1));
        assert_eq!(guessing.delay(HERE, "ann", 0), Duration::ZERO);
        assert_eq!(guessing.delay(THERE, "ann", 0), Duration::ZERO);
    }

    #[test]
    fn one_client_with_a_wrong_password_delays_no_other_user_at_its_address() {
        let guessing = Guessing::default();
        for _ in 0..1000 {
            guessing.on_failure(HERE, "ann", 0);
        }
        assert_eq!(guessing.delay(HERE, "ann", 0), PAIR_MAX);
        assert_eq!(guessing.delay(HERE, "bob", 0), Duration::ZERO);
    }

    #[test]
    fn guesses_over_many_users_delay_the_address_but_not_users_that_logged_in_there() {
        let guessing = Guessing::default();
        assert!(guessing.on_success(HERE, "bob", 0));
        for number in 0..1000 {
            guessing.on_failure(HERE, &number.to_string(), 0);
        }
        assert_eq!(guessing.delay(HERE, "eve", 0), SPREAD_MAX);
        assert_eq!(guessing.delay(HERE, "bob", 0), Duration::ZERO);
        assert_eq!(guessing.delay(THERE, "eve", 0), Duration::ZERO);
        for number in 0..4_u8 {
            guessing.on_failure([192, 0, 2, number].into(), "bob", 0);
        }
        assert_eq!(guessing.delay(HERE, "bob", 0), Duration::ZERO);
        assert_eq!(
            guessing.delay([192, 0, 2, 9].into(), "bob", 0),
            Duration::from_millis(100)
        );
        for _ in 0..=FREE {
            guessing.on_failure(HERE, "bob", 0);
        }
        assert!(
            guessing.delay(HERE, "bob", 0) > Duration::ZERO,
            "its own failures count"
        );
        assert_eq!(guessing.delay(HERE, "eve", LOGIN_MS), Duration::ZERO);
    }

    #[test]
    fn the_tables_are_bounded_and_keep_what_failed_last() {
        let guessing = Guessing::default();
        for number in 0..10_000_u32 {
            let (user, peer) = (number.to_string(), IpAddr::V4(number.into()));
            guessing.on_failure(peer, &user, number.into());
            assert!(guessing.on_success(IpAddr::V4(0.into()), &format!("other {user}"), number.into()));
        }
        let tables = guessing.0.lock();
        assert_eq!(tables.pairs.entries.len(), ENTRIES_MAX);
        assert_eq!(tables.users.entries.len(), ENTRIES_MAX);
        assert_eq!(tables.addresses.entries.len(), ENTRIES_MAX);
        assert_eq!(tables.logins.entries.len(), ENTRIES_MAX);
        assert!(tables.users.entries.contains_key("9999"));
    }
}
