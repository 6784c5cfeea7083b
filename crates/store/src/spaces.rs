//! Spaces of keyed state. The number of each is stored and never changes. The journal's own is 65,535.

use stafett_journal::StateSpace;

/// Definitions of topics: key topic id (big-endian).
pub const TOPICS: StateSpace = StateSpace(1);
/// Single values under fixed keys: the id of the cluster, the block of producer ids, the defaults that
/// topics' logs followed last.
pub const CLUSTER: StateSpace = StateSpace(2);
/// Committed offsets.
pub const COMMITS: StateSpace = StateSpace(3);
/// Consumer groups.
pub const GROUPS: StateSpace = StateSpace(4);
/// Definitions of queues: key queue id (big-endian).
pub const QUEUES: StateSpace = StateSpace(5);
/// Delivery state of queues: key queue id (big-endian).
pub const DELIVERIES: StateSpace = StateSpace(6);
/// Exchanges, namespaces being deleted, and buckets of delayed messages, told apart by the first byte of the
/// key.
pub const EXCHANGES: StateSpace = StateSpace(7);
/// Bindings.
pub const BINDINGS: StateSpace = StateSpace(8);
/// Clients of live topics.
pub const LIVE_CLIENTS: StateSpace = StateSpace(9);
/// Settings changed at run time.
pub const OVERRIDES: StateSpace = StateSpace(10);
/// Rows of subscriptions to live topics.
pub const LIVE_ROWS: StateSpace = StateSpace(11);
/// Positions of clients in the logs behind live topics.
pub const LIVE_POSITIONS: StateSpace = StateSpace(12);

/// All spaces; the next free number is 13.
pub const ALL: [StateSpace; 12] = [
    TOPICS,
    CLUSTER,
    COMMITS,
    GROUPS,
    QUEUES,
    DELIVERIES,
    EXCHANGES,
    BINDINGS,
    LIVE_CLIENTS,
    OVERRIDES,
    LIVE_ROWS,
    LIVE_POSITIONS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_space_has_a_number_of_its_own() {
        let mut numbers: Vec<u16> = ALL.iter().map(|space| space.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ALL.len());
    }
}
