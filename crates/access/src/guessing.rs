//! Delays for peers and users with failed logins. Both tables are bounded: the oldest failure is
//! forgotten.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use stafett_model::Lock;

/// Entries of each table.
const ENTRIES_MAX: usize = 4096;
/// Failures without a delay.
const FREE: u32 = 3;
/// Delay of the first failure behind these; it doubles with each.
const FIRST_MS: u64 = 100;
/// Longest delay of a peer.
const PEER_MAX: Duration = Duration::from_secs(5);
/// Longest delay of a user: others who guess must not lock it out.
const USER_MAX: Duration = Duration::from_secs(1);
/// Failures are forgotten after this long.
const FORGOTTEN_MS: i64 = 60_000;

#[derive(Debug, Clone, Copy, Default)]
struct Failures {
    count: u32,
    last_ms: i64,
}

#[derive(Debug)]
struct Table<K>(HashMap<K, Failures>);

impl<K: Hash + Eq + Clone> Table<K> {
    fn delay(&self, key: &K, max: Duration, now_ms: i64) -> Duration {
        let failures = self.0.get(key).copied().unwrap_or_default();
        if failures.count <= FREE || now_ms - failures.last_ms > FORGOTTEN_MS {
            return Duration::ZERO;
        }
        let doubled = (failures.count - FREE - 1).min(16);
        Duration::from_millis(FIRST_MS << doubled).min(max)
    }

    fn on_failure(&mut self, key: K, now_ms: i64) {
        if self.0.len() >= ENTRIES_MAX && !self.0.contains_key(&key) {
            self.0
                .retain(|_, failures| now_ms - failures.last_ms <= FORGOTTEN_MS);
            if self.0.len() >= ENTRIES_MAX {
                let oldest = self.0.iter().min_by_key(|(_, failures)| failures.last_ms);
                let oldest = oldest.map(|(key, _)| key.clone());
                oldest.map(|key| self.0.remove(&key));
            }
        }
        let failures = self.0.entry(key).or_default();
        if now_ms - failures.last_ms > FORGOTTEN_MS {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last_ms = now_ms;
    }
}

/// Failed logins of peers and users.
#[derive(Debug)]
pub struct Guessing {
    peers: Lock<Table<IpAddr>>,
    users: Lock<Table<Box<str>>>,
}

impl Default for Guessing {
    fn default() -> Self {
        Self {
            peers: Lock::new(Table(HashMap::new())),
            users: Lock::new(Table(HashMap::new())),
        }
    }
}

impl Guessing {
    /// Returns how long a login of the peer for the user has to wait.
    #[must_use]
    pub fn delay(&self, peer: IpAddr, user: &str, now_ms: i64) -> Duration {
        let of_peer = self.peers.lock().delay(&network(peer), PEER_MAX, now_ms);
        of_peer.max(self.users.lock().delay(&user.into(), USER_MAX, now_ms))
    }

    pub fn on_failure(&self, peer: IpAddr, user: &str, now_ms: i64) {
        self.peers.lock().on_failure(network(peer), now_ms);
        let user = user.get(..user.floor_char_boundary(256)).unwrap_or_default();
        self.users.lock().on_failure(user.into(), now_ms);
    }

    /// Forgets the failures of a user that logged in; those of the peer stay, as it may know one password.
    pub fn on_success(&self, user: &str) {
        self.users.lock().0.remove(user);
    }
}

/// Returns the address, or the /64 of an IPv6 address: one host has all of these.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn failures_delay_the_peer_and_the_user_and_are_forgotten() {
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
        let other = [192, 0, 2, 1].into();
        assert_eq!(guessing.delay(HERE, "bob", 0), PEER_MAX);
        assert_eq!(guessing.delay(other, "ann", 0), USER_MAX);
        assert_eq!(guessing.delay(other, "bob", 0), Duration::ZERO);
        guessing.on_success("ann");
        assert_eq!(guessing.delay(other, "ann", 0), Duration::ZERO);
        assert_eq!(guessing.delay(HERE, "ann", FORGOTTEN_MS + 1), Duration::ZERO);
    }

    #[test]
    fn the_tables_are_bounded_and_keep_what_failed_last() {
        let guessing = Guessing::default();
        for number in 0..10_000_u32 {
            let user = number.to_string();
            guessing.on_failure(IpAddr::V4(number.into()), &user, number.into());
        }
        assert_eq!(guessing.peers.lock().0.len(), ENTRIES_MAX);
        assert_eq!(guessing.users.lock().0.len(), ENTRIES_MAX);
        assert!(guessing.users.lock().0.contains_key("9999"));
    }
}
