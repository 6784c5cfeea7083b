//! Metrics of share groups.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use stafett_delivery::DeliveryContext;

#[derive(Debug, Default)]
pub(crate) struct ShareMetrics {
    pub(super) released: Counter,
    pub(super) renewed: Counter,
    pub(super) expired: Counter,
}

impl ShareMetrics {
    pub(super) fn register(&self, context: &DeliveryContext, registry: &mut Registry) {
        let delivery = &context.metrics;
        let registry = registry.sub_registry_with_prefix("share");
        for (name, help, counter) in [
            ("delivered", "Messages that members took", &delivery.delivered),
            ("settled", "Messages that members accepted", &delivery.settled),
            ("rejected", "Messages that members rejected", &delivery.rejected),
            ("released", "Messages that members gave back", &self.released),
            ("renewed", "Messages whose lock was renewed", &self.renewed),
            ("expired", "Messages whose lock ran out", &self.expired),
            (
                "returned_too_often",
                "Messages that came back more often than they may",
                &delivery.returned_too_often,
            ),
            (
                "lost",
                "Messages that a log no longer had when their turn came",
                &delivery.lost,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}
