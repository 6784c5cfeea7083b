//! Metrics. Handles are resolved once and then only incremented, per batch on hot paths.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
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
        let (read, deliver, write) = (stage("execute"), stage("deliver"), stage("write"));
        registry.register(
            "stage_seconds",
            "Time that a connection spends at once in each stage: executing what was read, delivering, writing",
            stages,
        );
        Self {
            published: new(registry, "published", "Messages received"),
            published_bytes: new(registry, "published_bytes", "Bytes of their bodies"),
            returned: new(
                registry,
                "returned",
                "Mandatory messages given back because they led nowhere",
            ),
            confirmed: new(registry, "confirmed", "Messages acknowledged to publishers"),
            refused: new(
                registry,
                "refused",
                "Messages refused to publishers that want confirms",
            ),
            delivered: new(registry, "delivered", "Messages sent to consumers"),
            settled: new(registry, "settled", "Deliveries settled by consumers"),
            channels: new(registry, "channels", "Channels that are open now"),
            blocked: new(
                registry,
                "blocked_connections",
                "Connections that published while space was short, and wait",
            ),
            exceptions: new(
                registry,
                "exceptions",
                "Channels and connections ended with a reason, by its code",
            ),
            read,
            deliver,
            write,
        }
    }

    pub(crate) fn on_exception(&self, code: ReplyCode, is_channel: bool) {
        let labels = ExceptionLabels {
            code: code.name(),
            scope: if is_channel { "channel" } else { "connection" },
        };
        self.exceptions.get_or_create(&labels).inc();
    }

    /// Records the time to execute the frames of one read.
    pub(crate) fn on_executed(&self, took: Duration) {
        self.read.observe(took.as_secs_f64());
    }

    /// Records the time to empty the outbox.
    pub(crate) fn on_delivered(&self, took: Duration) {
        self.deliver.observe(took.as_secs_f64());
    }

    /// Records the time until all waiting bytes were written.
    pub(crate) fn on_written(&self, took: Duration) {
        self.write.observe(took.as_secs_f64());
    }
}

/// Registers a metric, which starts at zero.
fn new<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}
