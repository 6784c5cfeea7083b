//! What queues count.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use stafett_model::DeathReason;

#[derive(Debug, Default)]
pub(crate) struct QueueMetrics {
    pub(super) published: Counter,
    pub(super) refused: Counter,
    pub(super) delivered: Counter,
    pub(super) settled: Counter,
    pub(super) expired: Counter,
    pub(super) overflowed: Counter,
    pub(super) rejected: Counter,
    pub(super) returned_too_often: Counter,
    pub(super) dead_lettered: Counter,
    pub(super) lost: Counter,
}

impl QueueMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("queues");
        for (name, help, counter) in [
            (
                "published",
                "Messages appended to queues, once per queue",
                &self.published,
            ),
            (
                "refused",
                "Messages refused by a queue at its limit",
                &self.refused,
            ),
            ("delivered", "Messages handed out", &self.delivered),
            ("settled", "Messages that consumers completed", &self.settled),
            ("expired", "Messages that waited for too long", &self.expired),
            (
                "overflowed",
                "Messages dropped because there were too many",
                &self.overflowed,
            ),
            ("rejected", "Messages that consumers did not want", &self.rejected),
            (
                "returned_too_often",
                "Messages that came back more often than they may",
                &self.returned_too_often,
            ),
            (
                "dead_lettered",
                "Messages that went where dead letters go",
                &self.dead_lettered,
            ),
            (
                "lost",
                "Messages that a log no longer had when their turn came",
                &self.lost,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }

    pub(super) fn on_death(&self, reason: DeathReason) {
        match reason {
            DeathReason::Expired => self.expired.inc(),
            DeathReason::Length => self.overflowed.inc(),
            DeathReason::Rejected => self.rejected.inc(),
            DeathReason::DeliveryLimit => self.returned_too_often.inc(),
        };
    }
}
