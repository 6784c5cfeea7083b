//! Metrics. Handles are resolved once and then only incremented, per batch on hot paths.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};
use stafett_access::Rate;
use stafett_amqp_wire::ReplyCode;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabel {
    stage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RateLabel {
    rate: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExceptionLabels {
    code: &'static str,
    scope: &'static str,
}

/// Bounds of the sizes by which messages are counted, in bytes.
pub(crate) const SIZES: [usize; 8] = [
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
];

/// One more of a gauge, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn in_gauge(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
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
    pub channels_opened: Counter,
    /// Messages received on channels with confirms.
    pub published_to_confirm: Counter,
    /// Channels that have published.
    pub publishers: Gauge,
    pub queues_declared: Counter,
    pub got_unsettled: Counter,
    pub get_empty: Counter,
    sizes: [AtomicU64; SIZES.len() + 1],
    pub blocked: Gauge,
    exceptions: Family<ExceptionLabels, Counter>,
    throttled: Family<RateLabel, Counter>,
    throttle_ms: Family<RateLabel, Counter>,
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
            channels_opened: new(registry, "channels_opened", "Channels that were opened"),
            published_to_confirm: new(
                registry,
                "published_to_confirm",
                "Messages received on channels with confirms",
            ),
            publishers: new(
                registry,
                "publishers",
                "Channels that have published, and are open",
            ),
            queues_declared: new(registry, "queues_declared", "Declarations of queues"),
            got_unsettled: new(registry, "got_unsettled", "Messages got and settled by that"),
            get_empty: new(registry, "get_empty", "Requests for a message that got none"),
            sizes: std::array::from_fn(|_| AtomicU64::new(0)),
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
            throttled: new(
                registry,
                "throttled",
                "Times that a connection was beyond a quota, by rate",
            ),
            throttle_ms: new(
                registry,
                "throttle_milliseconds",
                "Milliseconds that connections beyond a quota had to wait, by rate",
            ),
            read,
            deliver,
            write,
        }
    }

    /// Counts a connection that is beyond a quota.
    pub(crate) fn on_throttled(&self, rate: Rate, wait: Duration) {
        let label = RateLabel { rate: rate.word() };
        self.throttled.get_or_create(&label).inc();
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.throttle_ms.get_or_create(&label).inc_by(ms);
    }

    /// Counts the sizes of messages.
    pub(crate) fn on_sizes(&self, sizes: impl Iterator<Item = usize>) {
        let mut counts = [0_u64; SIZES.len() + 1];
        for size in sizes {
            let at = SIZES.iter().filter(|bound| size > **bound).count();
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
        for (size, count) in self.sizes.iter().zip(counts) {
            if count > 0 {
                size.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Returns the numbers of messages by size: up to each of [`SIZES`], and beyond.
    pub(crate) fn sizes(&self) -> [u64; SIZES.len() + 1] {
        std::array::from_fn(|at| self.sizes.get(at).map_or(0, |size| size.load(Ordering::Relaxed)))
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
