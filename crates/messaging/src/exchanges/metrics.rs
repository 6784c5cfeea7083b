//! Metrics of exchanges.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

#[derive(Debug, Default)]
pub(crate) struct ExchangeMetrics {
    pub(crate) published: Counter,
    pub(crate) unroutable: Counter,
    pub(crate) without_key: Counter,
    pub(crate) filter_errors: Counter,
}

impl ExchangeMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("exchanges");
        registry.register(
            "published",
            "Messages published to exchanges",
            self.published.clone(),
        );
        registry.register("unroutable", "Messages that led nowhere", self.unroutable.clone());
        registry.register(
            "without_key",
            "Dead letters and delayed messages that a compacted topic did not get, as they have no key",
            self.without_key.clone(),
        );
        registry.register(
            "filter_errors",
            "Evaluations of a binding's filter that was neither true nor false",
            self.filter_errors.clone(),
        );
    }
}
