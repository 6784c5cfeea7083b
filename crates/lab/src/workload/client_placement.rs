//! Hosts of the clients of a load. Without other hosts all of them sit here.
//!
//! Clients of a role take its hosts in turn, so that every host has about as many. Clients that send the same
//! messages (`copies`) stay together: their moments are on one clock.

use serde::{Deserialize, Serialize};

/// Streams of a role have numbers from here on, times the role's place.
pub const STREAMS_PER_ROLE: u32 = 1 << 20;

/// Hosts of all clients. Roles stand in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seating {
    /// Number of this host.
    pub host: u32,
    pub roles: Vec<RoleSeats>,
}

/// Hosts of the clients of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleSeats {
    /// The hosts that the clients take in turn.
    pub hosts: Vec<u32>,
    /// Number of clients in a row that stay together.
    pub together: u32,
}

impl RoleSeats {
    fn host(&self, party: u32) -> Option<u32> {
        let count = u32::try_from(self.hosts.len()).ok().filter(|count| *count > 0)?;
        self.hosts.get(usize::try_from(party % count).ok()?).copied()
    }
}

impl Seating {
    /// Returns true if a client of the role at `place` sits here.
    pub fn is_here(&self, place: usize, client: u32) -> bool {
        match self.roles.get(place) {
            None => true,
            Some(seats) => seats.host(client / seats.together.max(1)) == Some(self.host),
        }
    }

    /// Returns true if the clients that send a stream sit here.
    pub fn has_stream(&self, stream: u32) -> bool {
        let place = (stream / STREAMS_PER_ROLE)
            .checked_sub(1)
            .and_then(|place| usize::try_from(place).ok());
        let seats = place.and_then(|place| self.roles.get(place));
        seats.is_none_or(|seats| seats.host(stream % STREAMS_PER_ROLE) == Some(self.host))
    }

    /// Returns how many of a role's clients sit here.
    pub fn clients_here(&self, place: usize, clients: u32) -> u32 {
        self.on(self.host, place, clients)
    }

    /// Returns how many of a role's clients sit on a host, by its number.
    pub fn clients_on(&self, host: usize, place: usize, clients: u32) -> u32 {
        u32::try_from(host).map_or(0, |host| self.on(host, place, clients))
    }

    fn on(&self, host: u32, place: usize, clients: u32) -> u32 {
        let Some(seats) = self.roles.get(place) else {
            return clients;
        };
        let here = (0..clients).filter(|client| seats.host(client / seats.together.max(1)) == Some(host));
        u32::try_from(here.count()).unwrap_or(u32::MAX)
    }

    /// Returns this host's part of the role's total; the parts of all hosts add up to it.
    pub fn part_of(&self, place: usize, clients: u32, total: u64) -> u64 {
        let before: u32 = (0..self.host).map(|host| self.on(host, place, clients)).sum();
        let here = self.clients_here(place, clients);
        if self.roles.is_empty() {
            return total;
        }
        let up_to = |count: u32| u128::from(total) * u128::from(count) / u128::from(clients.max(1));
        u64::try_from(up_to(before + here) - up_to(before)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seating(host: u32) -> Seating {
        Seating {
            host,
            roles: vec![
                RoleSeats {
                    hosts: vec![0, 1, 2],
                    together: 1,
                },
                RoleSeats {
                    hosts: vec![2, 0],
                    together: 5,
                },
            ],
        }
    }

    #[test]
    fn every_client_sits_on_one_host_and_its_stream_with_it() {
        for client in 0..20 {
            for (place, together) in [(0, 1), (1, 5)] {
                let hosts: Vec<u32> = (0..3)
                    .filter(|host| seating(*host).is_here(place, client))
                    .collect();
                assert_eq!(hosts.len(), 1);
                let stream = u32::try_from(place + 1).unwrap() * STREAMS_PER_ROLE + client / together;
                let of_stream: Vec<u32> = (0..3).filter(|host| seating(*host).has_stream(stream)).collect();
                assert_eq!(hosts, of_stream);
            }
        }
        assert!((0..5).all(|client| seating(2).is_here(1, client)));
        assert_eq!(seating(1).clients_here(1, 20), 0);
    }

    #[test]
    fn parts_of_a_total_add_up_to_it() {
        for total in [0, 1, 7, 1_000_000_007, u64::MAX] {
            for place in [0, 1] {
                let parts: u128 = (0..3)
                    .map(|host| u128::from(seating(host).part_of(place, 10, total)))
                    .sum();
                assert_eq!(parts, u128::from(total));
            }
        }
        assert_eq!(seating(1).part_of(1, 10, 5), 0);
    }

    #[test]
    fn alone_everything_is_here() {
        let alone = Seating::default();
        assert!(alone.is_here(7, 9));
        assert!(alone.has_stream(0));
        assert_eq!(alone.clients_here(0, 5), 5);
        assert_eq!(alone.part_of(0, 5, 3), 3);
    }
}
