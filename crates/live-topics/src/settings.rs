//! Settings of live topics.

use stafett_model::Tenure;

use super::duplicates::DuplicateRule;
use super::log_delivery::LogRule;

#[derive(Debug, Clone)]
pub struct LiveSettings {
    /// Bound on the subscriptions of one client, topics and patterns together.
    pub subscriptions_max: usize,
    /// Bound on the patterns of all clients together: each publish may have to examine many of them.
    pub patterns_max: usize,
    /// Bound on the distinct filters of all clients together: each publish may have to evaluate many of them.
    pub filters_max: usize,
    /// Bound on the clients that have subscriptions or listen.
    pub clients_max: usize,
    /// Rules of the duplicate filter; empty by default.
    pub duplicates: Vec<DuplicateRule>,
    /// Bound on the entries of the duplicate filter.
    pub duplicates_max: usize,
    /// Rules for logs behind live topics; empty by default.
    pub logs: Vec<LogRule>,
    /// Time for which clients may be answered.
    pub tenure: Tenure,
}

impl Default for LiveSettings {
    fn default() -> Self {
        Self {
            subscriptions_max: 4_194_304,
            patterns_max: 100_000,
            filters_max: 1000,
            clients_max: 10_000_000,
            duplicates: Vec::new(),
            duplicates_max: 1_000_000,
            logs: Vec::new(),
            tenure: Tenure::default(),
        }
    }
}
