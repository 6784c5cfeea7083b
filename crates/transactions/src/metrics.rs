//! Metrics of transactions.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stafett_model::TransactionEnd;

#[derive(Debug, Default)]
pub(crate) struct TransactionMetrics {
    pub(crate) ids: Gauge,
    pub(crate) open: Gauge,
    /// Of the open ones: those that have ended in this cell, and not in all others.
    pub(crate) owed: Gauge,
    pub(crate) committed: Counter,
    pub(crate) aborted: Counter,
    pub(crate) overdue: Counter,
}

impl TransactionMetrics {
    pub(crate) fn on_end(&self, end: TransactionEnd) {
        match end {
            TransactionEnd::Commit => self.committed.inc(),
            TransactionEnd::Abort => self.aborted.inc(),
        };
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("transactional_ids", "Transactional ids", self.ids.clone());
        registry.register("transactions_open", "Open transactions", self.open.clone());
        registry.register(
            "transactions_owed",
            "Open transactions whose end is stored, and that other cells are still to end",
            self.owed.clone(),
        );
        registry.register(
            "transactions_committed",
            "Transactions committed",
            self.committed.clone(),
        );
        registry.register(
            "transactions_aborted",
            "Transactions aborted",
            self.aborted.clone(),
        );
        registry.register(
            "transactions_overdue",
            "Transactions aborted because they took too long",
            self.overdue.clone(),
        );
    }
}
