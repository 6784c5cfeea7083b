//! Metrics of delayed messages.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

#[derive(Debug, Default)]
pub(crate) struct DelayedMetrics {
    pub(crate) delayed: Counter,
    pub(crate) released: Counter,
    pub(crate) unroutable: Counter,
}

impl DelayedMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("delayed");
        registry.register(
            "delayed",
            "Messages that came to wait for their time",
            self.delayed.clone(),
        );
        registry.register("released", "Messages whose time came", self.released.clone());
        registry.register(
            "unroutable",
            "Messages that led nowhere when their time came",
            self.unroutable.clone(),
        );
    }
}
