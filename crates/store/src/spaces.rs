//! All tables of keyed state. Their numbers and tags are on disk and never change. Space 65,535 is the
//! journal's own; the next free number is 19.

use stafett_journal::{Journal, StateItem, StateSpace, StateUnreadable};

use crate::table::{SingleValue, Table, load_together};

/// Definitions of topics: key topic id (big-endian).
pub const TOPICS: Table = Table::new(1, "the definition of topic");
/// The id of the cluster.
pub const CLUSTER_ID: SingleValue = SingleValue::new(2, b"cluster-id");
/// The settings that the logs of topics followed last.
pub const DEFAULTS: SingleValue = SingleValue::new(2, b"defaults");
/// End of the block of producer ids that are given out.
pub const PRODUCER_IDS: SingleValue = SingleValue::new(2, b"producer-ids");
/// Committed offsets.
pub const COMMITS: Table = Table::new(3, "a committed offset of group");
/// Consumer groups.
pub const GROUPS: Table = Table::new(4, "the state of group");
/// Definitions of queues: key queue id (big-endian).
pub const QUEUES: Table = Table::new(5, "the definition of queue");
/// Delivery state of queues: key queue id (big-endian).
pub const DELIVERIES: Table = Table::new(6, "the state of queue");
/// Namespaces that exist or are being deleted.
pub const NAMESPACES: Table = Table::tagged(7, 0, "the namespace");
/// Exchanges.
pub const EXCHANGES: Table = Table::tagged(7, 1, "the exchange");
/// Buckets of delayed messages: key minute since 1970 (big-endian).
pub const BUCKETS: Table = Table::tagged(7, 2, "the bucket of delayed messages");
/// Bindings.
pub const BINDINGS: Table = Table::new(8, "the binding");
/// Clients of live topics.
pub const LIVE_CLIENTS: Table = Table::new(9, "the client of live topics");
/// Settings that were made while running.
pub const OVERRIDES: Table = Table::new(10, "the settings of scope");
/// Rows of subscriptions to live topics.
pub const LIVE_ROWS: Table = Table::new(11, "the subscriptions of a client of live topics in row");
/// Positions of clients in the logs behind live topics.
pub const LIVE_POSITIONS: Table = Table::new(12, "the positions of client");
/// Transactional producers, and the commits of their transactions: key transactional id.
pub const TRANSACTIONS: Table = Table::new(13, "the transactional id");

/// Share groups' places in topics: key id (big-endian).
pub const SHARES: Table = Table::tagged(14, 0, "the place of a share group in topic");
/// Delivery state of share groups: key id (big-endian).
pub const SHARE_DELIVERIES: Table = Table::tagged(14, 1, "the state of share group");

/// Apps: key name.
pub const APPS: Table = Table::new(15, "the app");

/// Users: key name.
pub const USERS: Table = Table::tagged(16, 0, "the user");
/// Tokens of users: key hash.
pub const TOKENS: Table = Table::tagged(16, 1, "the token");
/// Rules of access: key all of the rule but its actions.
pub const RULES: Table = Table::tagged(16, 2, "the rule");
/// Quotas: key user and client.
pub const QUOTAS: Table = Table::tagged(16, 3, "the quota");
/// Limits of namespaces and users: key owner.
pub const LIMITS: Table = Table::tagged(16, 4, "the limits");
/// Permissions for routing keys: key user, namespace and exchange.
pub const TOPIC_PERMISSIONS: Table = Table::tagged(16, 5, "the topic permission");

/// Policies of queues: key maker, namespace and name.
pub const POLICIES: Table = Table::new(17, "the policy");

/// Definitions of sinks: key name.
pub const SINKS: Table = Table::new(18, "the sink");

const TABLES: [Table; 25] = [
    TOPICS,
    COMMITS,
    GROUPS,
    QUEUES,
    DELIVERIES,
    NAMESPACES,
    EXCHANGES,
    BUCKETS,
    BINDINGS,
    LIVE_CLIENTS,
    OVERRIDES,
    LIVE_ROWS,
    LIVE_POSITIONS,
    TRANSACTIONS,
    SHARES,
    SHARE_DELIVERIES,
    USERS,
    TOKENS,
    RULES,
    QUOTAS,
    LIMITS,
    TOPIC_PERMISSIONS,
    APPS,
    POLICIES,
    SINKS,
];

/// Visitor of rows; returns `None` if it does not know a row's format.
pub type VisitRow<'a> = &'a mut dyn FnMut(StateItem<'_>) -> Option<()>;

/// Loads [`NAMESPACES`], [`EXCHANGES`] and [`BUCKETS`], which share a space, in one pass. As [`Table::load`].
pub fn load_routing<'a>(
    journal: &dyn Journal,
    namespaces: VisitRow<'a>,
    exchanges: VisitRow<'a>,
    buckets: VisitRow<'a>,
) -> Result<(), StateUnreadable> {
    let mut tables = [
        (NAMESPACES, namespaces),
        (EXCHANGES, exchanges),
        (BUCKETS, buckets),
    ];
    load_together(journal, &mut tables)
}

/// Loads [`USERS`], [`TOKENS`] and [`RULES`], which share a space, in one pass. As [`Table::load`].
pub fn load_access(
    journal: &dyn Journal,
    [users, tokens, rules, quotas, limits, topic_permissions]: [VisitRow<'_>; 6],
) -> Result<(), StateUnreadable> {
    let mut tables = [
        (USERS, users),
        (TOKENS, tokens),
        (RULES, rules),
        (QUOTAS, quotas),
        (LIMITS, limits),
        (TOPIC_PERMISSIONS, topic_permissions),
    ];
    load_together(journal, &mut tables)
}

/// True if a table of the space has the tag.
pub(crate) fn has_tag(space: StateSpace, tag: Option<u8>) -> bool {
    TABLES
        .iter()
        .any(|table| table.number_and_tag() == (space.0, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tables_have_the_same_number_and_tag() {
        let mut rows: Vec<_> = TABLES.iter().map(|table| table.number_and_tag()).collect();
        rows.sort_unstable();
        let overlap = rows
            .windows(2)
            .find(|pair| pair[0].0 == pair[1].0 && (pair[0].1.is_none() || pair[0].1 == pair[1].1));
        assert_eq!(overlap, None);
        assert!(rows.iter().all(|(number, _)| *number != 2), "2 has single values");
    }
}
