//! What can be set on live topics.

use super::duplicates::DuplicateRule;

#[derive(Debug, Clone)]
pub struct LiveSettings {
    /// Subscriptions of one client, topics and patterns together.
    pub subscriptions_max: usize,
    /// Patterns of all clients together: each publish may have to look at many of them.
    pub patterns_max: usize,
    /// Clients that have subscriptions or listen.
    pub clients_max: usize,
    /// What is filtered; nothing at first.
    pub duplicates: Vec<DuplicateRule>,
    /// What the filter remembers, in all.
    pub duplicates_max: usize,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            subscriptions_max: 4_194_304,
            patterns_max: 100_000,
            clients_max: 10_000_000,
            duplicates: Vec::new(),
            duplicates_max: 1_000_000,
        }
    }
}
