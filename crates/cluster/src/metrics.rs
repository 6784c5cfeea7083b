//! Metrics of a cell, registered by the caller that opens it.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Metrics of one cell's storage.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) commits: Counter,
    pub(crate) inline_bytes: Counter,
    pub(crate) object_bytes: Counter,
    pub(crate) puts: Counter,
    pub(crate) failed_puts: Counter,
    pub(crate) hedged_puts: Counter,
    pub(crate) put_seconds: Histogram,
    pub(crate) gets: Counter,
    pub(crate) get_seconds: Histogram,
    pub(crate) sealed_segments: Counter,
    pub(crate) deleted_objects: Counter,
    pub(crate) missing_objects: Counter,
    pub(crate) lost_objects: Gauge,
    pub(crate) cache_bytes: Gauge,
}

fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 16))
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            commits: Counter::default(),
            inline_bytes: Counter::default(),
            object_bytes: Counter::default(),
            puts: Counter::default(),
            failed_puts: Counter::default(),
            hedged_puts: Counter::default(),
            put_seconds: seconds(),
            gets: Counter::default(),
            get_seconds: seconds(),
            sealed_segments: Counter::default(),
            deleted_objects: Counter::default(),
            missing_objects: Counter::default(),
            lost_objects: Gauge::default(),
            cache_bytes: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Returns the number of objects that could not be read at the last look, and are needed.
    pub fn lost_objects(&self) -> u64 {
        u64::try_from(self.lost_objects.get()).unwrap_or_default()
    }

    /// Registers all metrics under the registry's prefix.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("cluster");
        let counters = [
            (
                "commits",
                "Commits of written bytes in the database",
                &self.commits,
            ),
            (
                "inline_bytes",
                "Bytes committed within the database",
                &self.inline_bytes,
            ),
            (
                "object_bytes",
                "Bytes committed as references to objects",
                &self.object_bytes,
            ),
            ("puts", "Objects put into the store", &self.puts),
            (
                "failed_puts",
                "Puts without success, which were repeated under other names",
                &self.failed_puts,
            ),
            ("hedged_puts", "Second puts beside a slow one", &self.hedged_puts),
            ("gets", "Objects read from the store", &self.gets),
            (
                "sealed_segments",
                "Segments moved from the database to the store",
                &self.sealed_segments,
            ),
            (
                "deleted_objects",
                "Objects deleted from the store",
                &self.deleted_objects,
            ),
            (
                "missing_objects",
                "Reads of objects that are not in the store",
                &self.missing_objects,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let times = [
            ("put_seconds", "Time of a put", &self.put_seconds),
            ("get_seconds", "Time of a read of an object", &self.get_seconds),
        ];
        for (name, help, histogram) in times {
            registry.register(name, help, histogram.clone());
        }
        registry.register(
            "lost_objects",
            "Objects that could not be read at the last look, and are needed",
            self.lost_objects.clone(),
        );
        registry.register(
            "cache_bytes",
            "Bytes of local copies of what is stored",
            self.cache_bytes.clone(),
        );
    }
}
