//! What is counted. Handles are resolved once and then only incremented, per batch where there are many.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use stafett_amqp_wire::ReplyCode;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExceptionLabels {
    code: &'static str,
    scope: &'static str,
}

#[derive(Debug)]
pub(crate) struct Metrics {
    pub published: Counter,
    pub published_bytes: Counter,
    pub returned: Counter,
    pub confirmed: Counter,
    pub refused: Counter,
    pub delivered: Counter,
    pub settled: Counter,
    pub channels: Gauge,
    pub blocked: Gauge,
    exceptions: Family<ExceptionLabels, Counter>,
    read: Histogram,
    deliver: Histogram,
    write: Histogram,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_01, 2.0, 20))
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("amqp");
        let stages = Family::<StageLabel, Histogram>::new_with_constructor(seconds);
        let stage = |stage| stages.get_or_create(&StageLabel { stage }).clone();
        let it = Self {
            published: Counter::default(),
            published_bytes: Counter::default(),
            returned: Counter::default(),
            confirmed: Counter::default(),
            refused: Counter::default(),
            delivered: Counter::default(),
            settled: Counter::default(),
            channels: Gauge::default(),
            blocked: Gauge::default(),
            exceptions: Family::default(),
            read: stage("execute"),
            deliver: stage("deliver"),
            write: stage("write"),
        };
        registry.register("published", "Messages received", it.published.clone());
        registry.register(
            "published_bytes",
            "Bytes of their bodies",
            it.published_bytes.clone(),
        );
        registry.register(
            "returned",
            "Mandatory messages given back because they led nowhere",
            it.returned.clone(),
        );
        registry.register(
            "confirmed",
            "Messages acknowledged to publishers",
            it.confirmed.clone(),
        );
        registry.register(
            "refused",
            "Messages refused to publishers that want confirms",
            it.refused.clone(),
        );
        registry.register("delivered", "Messages sent to consumers", it.delivered.clone());
        registry.register("settled", "Deliveries settled by consumers", it.settled.clone());
        registry.register(
            "blocked_connections",
            "Connections that published while space was short, and wait",
            it.blocked.clone(),
        );
        registry.register("channels", "Channels that are open now", it.channels.clone());
        registry.register(
            "exceptions",
            "Channels and connections ended with a reason, by its code",
            it.exceptions.clone(),
        );
        registry.register(
            "stage_seconds",
            "Time that a connection spends at once in each stage: executing what was read, delivering, writing",
            stages,
        );
        it
    }

    pub(crate) fn on_exception(&self, code: ReplyCode, is_channel: bool) {
        let labels = ExceptionLabels {
            code: code.name(),
            scope: if is_channel { "channel" } else { "connection" },
        };
        self.exceptions.get_or_create(&labels).inc();
    }

    /// Frames that were read together were executed.
    pub(crate) fn on_executed(&self, took: Duration) {
        self.read.observe(took.as_secs_f64());
    }

    /// An outbox was emptied.
    pub(crate) fn on_delivered(&self, took: Duration) {
        self.deliver.observe(took.as_secs_f64());
    }

    /// Something was written.
    pub(crate) fn on_written(&self, took: Duration) {
        self.write.observe(took.as_secs_f64());
    }
}
