//! What can be set on live topics.

use super::duplicates::DuplicateRule;
use super::logs::LogRule;

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
    /// What is stored; nothing at first.
    pub logs: Vec<LogRule>,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            subscriptions_max: 4_194_304,
            patterns_max: 100_000,
            clients_max: 10_000_000,
            duplicates: Vec::new(),
            duplicates_max: 1_000_000,
            logs: Vec::new(),
        }
    }
}
