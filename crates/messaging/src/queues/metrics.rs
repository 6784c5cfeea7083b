//! Metrics of queues.

use std::fmt;
use std::sync::Weak;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::policies::PolicyKind;
use super::registry::Queues;
use stafett_delivery::DeliveryContext;

#[derive(Debug, Default)]
pub(crate) struct QueueMetrics {
    pub(super) published: Counter,
    pub(super) refused: Counter,
    pub(super) declared: Counter,
    pub(super) created: Counter,
    pub(super) deleted: Counter,
}

impl QueueMetrics {
    pub(crate) fn register(&self, context: &DeliveryContext, registry: &mut Registry) {
        let delivery = &context.metrics;
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
            (
                "declared",
                "Declarations of queues, of those that were there too",
                &self.declared,
            ),
            ("created", "Queues that were created", &self.created),
            ("deleted", "Queues that were deleted", &self.deleted),
            ("delivered", "Messages handed out", &delivery.delivered),
            ("settled", "Messages that consumers completed", &delivery.settled),
            ("expired", "Messages that waited for too long", &delivery.expired),
            (
                "overflowed",
                "Messages dropped because there were too many",
                &delivery.overflowed,
            ),
            (
                "rejected",
                "Messages that consumers did not want",
                &delivery.rejected,
            ),
            (
                "returned_too_often",
                "Messages that came back more often than they may",
                &delivery.returned_too_often,
            ),
            (
                "dead_lettered",
                "Messages that went where dead letters go",
                &delivery.dead_lettered,
            ),
            (
                "lost",
                "Messages that a log no longer had when their turn came",
                &delivery.lost,
            ),
            ("looks", "Looks at a log for what is new in it", &delivery.looks),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}

/// Totals of all queues, collected on demand.
#[derive(Debug)]
pub(super) struct QueueGauges(pub(super) Weak<Queues>);

impl Collector for QueueGauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(queues) = self.0.upgrade() else {
            return Ok(());
        };
        let (mut ready, mut in_flight, mut dying, mut consumers) = (0_u64, 0_usize, 0_usize, 0_usize);
        for queue in queues.all() {
            let counts = queue.counts();
            ready = ready.saturating_add(counts.ready);
            in_flight += counts.in_flight - counts.dying;
            dying += counts.dying;
            consumers += counts.consumers;
        }
        let policies: usize = PolicyKind::ALL
            .map(|kind| queues.policies(kind).len())
            .iter()
            .sum();
        let gauges = [
            ("queues_queues", "Queues", queues.len() as u64),
            ("queues_policies", "Policies of queues", policies as u64),
            ("queues_ready", "Messages that wait", ready),
            (
                "queues_in_flight",
                "Messages that consumers have",
                in_flight as u64,
            ),
            (
                "queues_dying",
                "Messages that have died and are not yet where dead letters go",
                dying as u64,
            ),
            ("queues_consumers", "Consumers", consumers as u64),
            (
                "queues_selection_entries",
                "Messages in the indexes of headers by which messages are selected",
                queues.context.selection_entries() as u64,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let kind = gauge.metric_type();
            gauge.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        }
        Ok(())
    }
}
