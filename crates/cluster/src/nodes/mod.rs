//! The nodes of a cluster: each is registered in the database, and raises its beat there.
//!
//! ```text
//! node    number, name, incarnation, key, version, addresses, beat, seen, is_here
//! ```
//!
//! A node keeps its number for as long as it comes back under its name. Its key proves to it that another
//! node reads the same table (`peer.rs`). Beats of nodes decide nothing: the owner is the cell's row alone,
//! and a node that is held for dead by mistake is left out of lists for a moment.

mod balance;
mod registry;
mod sightings;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

pub use self::balance::surplus;
pub use self::registry::Registry;
pub use self::sightings::Sightings;
use crate::database::{DatabaseError, Nonce, Owner, nonce};

/// Secret of one start of a node. It is never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub(crate) [u8; 32]);

impl Key {
    /// Returns an unpredictable key.
    pub fn random() -> Self {
        Self(random())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Returns an unpredictable number.
pub(crate) fn random() -> [u8; 32] {
    let mut number = [0; 32];
    let (one, other) = number.split_at_mut(16);
    one.copy_from_slice(&nonce());
    other.copy_from_slice(&nonce());
    number
}

/// Name of the address for other nodes.
pub const PEER: &str = "peer";

/// Facts that a node gives of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Empty: the first address is the name.
    pub name: String,
    /// This start of the node.
    pub incarnation: Nonce,
    pub key: Key,
    pub version: String,
    /// Addresses `HOST:PORT` by the names of listeners, in an order of the node's choice.
    pub addresses: Vec<(String, String)>,
}

impl NodeFacts {
    /// Returns the address of a listener.
    pub fn address(&self, listener: &str) -> Option<&str> {
        let found = self.addresses.iter().find(|(name, _)| name == listener);
        found.map(|(_, address)| address.as_str())
    }

    /// Replaces addresses that only this node understands, such as `0.0.0.0:1`, by those of a host, and gives
    /// the node a name if it has none. Returns true if others cannot reach the node for lack of a host.
    pub(crate) fn settle(&mut self, host: Option<IpAddr>) -> bool {
        let mut is_unknown = false;
        for (_, address) in &mut self.addresses {
            let Ok(socket) = address.parse::<SocketAddr>() else {
                continue;
            };
            if socket.ip().is_unspecified() {
                is_unknown |= host.is_none_or(|host| host.is_loopback());
                let host = host.unwrap_or_else(|| Ipv4Addr::LOCALHOST.into());
                *address = SocketAddr::new(host, socket.port()).to_string();
            }
        }
        if self.name.is_empty() {
            let first = self.addresses.first();
            self.name = first.map(|(_, address)| address.clone()).unwrap_or_default();
        }
        is_unknown
    }
}

/// A node as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From 1 on.
    pub number: u32,
    pub facts: NodeFacts,
    pub beat: u64,
    /// Milliseconds since the last beat, by the database's clock.
    pub silent_ms: u64,
}

/// All that a node sees with one beat.
#[derive(Debug, Clone, Default)]
pub struct Roll {
    pub entries: Vec<Entry>,
    /// Owner of each cell, by its number.
    pub owners: Vec<Owner>,
    /// False if another node has taken the name of this one.
    pub is_registered: bool,
    /// Names of groups that any node has brought.
    pub spread_groups: Vec<String>,
}

/// The table of nodes.
pub trait Directory: Send + Sync + fmt::Debug {
    /// Registers a node, and completes its facts; names of groups that it brings are added to those of the
    /// cluster. Returns its number. With `silence`, not in the place of a node of its name that beat in this
    /// time: then `None`.
    fn join(&self, facts: &mut NodeFacts, silence: Option<Duration>) -> Result<Option<u32>, DatabaseError>;
    /// Raises the beat of a node, and returns all nodes.
    fn roll(&self, number: u32, incarnation: Nonce) -> Result<Roll, DatabaseError>;
    /// Notes that a node has ended.
    fn leave(&self, number: u32, incarnation: Nonce) -> Result<(), DatabaseError>;
}

/// A node as another one sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub number: u32,
    pub facts: NodeFacts,
    /// False once its beat has stood still for longer than it may.
    pub is_alive: bool,
    pub silent_ms: u64,
}

/// The cluster as one node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// Number of this node; 0 before it is registered.
    pub own: u32,
    pub nodes: Vec<Node>,
    /// Incarnation of the owner of the cell that is looked at.
    pub owner: Option<Nonce>,
    pub epoch: u64,
    /// Owner of each cell, by its number.
    pub cells: Vec<Owner>,
    /// Names of groups that are spread over the cells: all that any node has brought.
    pub spread_groups: Vec<String>,
}

impl View {
    /// Returns the same nodes with the owner of another cell. A cell that is not known has none.
    #[must_use]
    pub fn of_cell(&self, cell: u32) -> Self {
        let owner = usize::try_from(cell).ok().and_then(|cell| self.cells.get(cell));
        let owner = owner.copied().unwrap_or_default();
        Self {
            owner: owner.node,
            epoch: owner.epoch,
            ..self.clone()
        }
    }

    /// Returns this node.
    pub fn this(&self) -> Option<&Node> {
        self.nodes.iter().find(|node| node.number == self.own)
    }

    /// Returns the owner, if it is registered.
    pub fn owner(&self) -> Option<&Node> {
        let owner = self.owner?;
        self.nodes.iter().find(|node| node.facts.incarnation == owner)
    }

    /// Iterates over the other nodes that live.
    pub fn others(&self) -> impl Iterator<Item = &Node> {
        let is_other = |node: &&Node| node.number != self.own && node.is_alive;
        self.nodes.iter().filter(is_other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(addresses: &[(&str, &str)]) -> NodeFacts {
        let owned = |(name, address): &(&str, &str)| ((*name).to_owned(), (*address).to_owned());
        NodeFacts {
            name: String::new(),
            incarnation: [1; 16],
            key: Key::random(),
            version: String::new(),
            addresses: addresses.iter().map(owned).collect(),
        }
    }

    #[test]
    fn addresses_that_only_the_node_understands_get_its_host() {
        let host: IpAddr = "10.0.0.5".parse().unwrap();
        let mut node = facts(&[("a", "0.0.0.0:1"), ("b", "[::]:2"), ("c", "broker.example:3")]);
        assert!(!node.settle(Some(host)));
        assert_eq!(node.address("a"), Some("10.0.0.5:1"));
        assert_eq!(node.address("b"), Some("10.0.0.5:2"));
        assert_eq!(node.address("c"), Some("broker.example:3"));
        assert_eq!(node.name, "10.0.0.5:1");
    }

    #[test]
    fn a_host_that_is_not_known_is_said_to_be_missing() {
        for host in [None, Some(Ipv4Addr::LOCALHOST.into())] {
            let mut node = facts(&[("a", "0.0.0.0:1")]);
            assert!(node.settle(host));
            assert_eq!(node.address("a"), Some("127.0.0.1:1"));
        }
        let mut named = facts(&[("a", "127.0.0.1:1")]);
        named.name = "one".to_owned();
        assert!(!named.settle(None), "an address of this machine is meant");
        assert_eq!(named.name, "one");
    }

    #[test]
    fn a_key_is_not_printed() {
        let key = Key([7; 32]);
        assert_eq!(format!("{key:?}"), "Key");
        assert_ne!(Key::random(), Key::random());
    }
}
