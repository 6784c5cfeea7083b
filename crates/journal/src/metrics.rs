//! Metrics of a journal.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Metrics of one journal, registered by the caller that opens it.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) groups: Counter,
    pub(crate) frames: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) appends: Counter,
    pub(crate) refused: Counter,
    pub(crate) disk_full: Counter,
    pub(crate) space_short: Gauge,
    pub(crate) segments_started: Counter,
    pub(crate) rewritten_bytes: Counter,
    pub(crate) compactions: Counter,
    pub(crate) compaction_seals: Counter,
    pub(crate) compacted_records: Counter,
    pub(crate) compacted_bytes: Counter,
    pub(crate) dirty_percent: Gauge,
    pub(crate) cold_reads: Counter,
    pub(crate) damaged_reads: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) truncations: Counter,
    pub(crate) scrubbed_segments: Counter,
    pub(crate) damaged_segments: Counter,
    pub(crate) missing_segments: Gauge,
    pub(crate) unknown_logs: Gauge,
    pub(crate) segment_files: Gauge,
    pub(crate) dead_bytes: Gauge,
    pub(crate) live_bytes: Gauge,
    pub(crate) tail_bytes: Gauge,
    pub(crate) logs: Gauge,
    pub(crate) write_seconds: Histogram,
    pub(crate) sync_seconds: Histogram,
    pub(crate) append_written_seconds: Histogram,
    pub(crate) append_synced_seconds: Histogram,
    /// `None` if nothing is told of single appends and syncs.
    pub(crate) observer: Option<Observer>,
}

/// Receiver of the times of single appends and syncs.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(Observed, Duration) + Send + Sync>);

/// An action of a journal that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// An append that is acknowledged once it is written.
    AppendWritten,
    /// An append that is acknowledged once it is synced.
    AppendSynced,
    Sync,
}

impl Observer {
    /// Calls `told` on the journal's own threads: it must not wait.
    pub fn new(told: impl Fn(Observed, Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(told))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl Metrics {
    pub fn new() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.000_01, 2.0, 20));
        Self {
            groups: Counter::default(),
            frames: Counter::default(),
            written_bytes: Counter::default(),
            appends: Counter::default(),
            refused: Counter::default(),
            disk_full: Counter::default(),
            space_short: Gauge::default(),
            segments_started: Counter::default(),
            rewritten_bytes: Counter::default(),
            compactions: Counter::default(),
            compaction_seals: Counter::default(),
            compacted_records: Counter::default(),
            compacted_bytes: Counter::default(),
            dirty_percent: Gauge::default(),
            cold_reads: Counter::default(),
            damaged_reads: Counter::default(),
            checkpoints: Counter::default(),
            truncations: Counter::default(),
            scrubbed_segments: Counter::default(),
            damaged_segments: Counter::default(),
            missing_segments: Gauge::default(),
            unknown_logs: Gauge::default(),
            segment_files: Gauge::default(),
            dead_bytes: Gauge::default(),
            live_bytes: Gauge::default(),
            tail_bytes: Gauge::default(),
            logs: Gauge::default(),
            write_seconds: seconds(),
            sync_seconds: seconds(),
            append_written_seconds: seconds(),
            append_synced_seconds: seconds(),
            observer: None,
        }
    }

    /// Has single appends and syncs told to an observer.
    #[must_use]
    pub fn observed_by(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    #[inline]
    pub(crate) fn tell(&self, what: Observed, took: Duration) {
        if let Some(Observer(told)) = &self.observer {
            told(what, took);
        }
    }

    /// Registers all metrics under the registry's prefix.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("journal");
        registry.register("write_groups", "Write groups written", self.groups.clone());
        registry.register("frames", "Frames written", self.frames.clone());
        registry.register(
            "written_bytes",
            "Bytes written to arrival segments",
            self.written_bytes.clone(),
        );
        registry.register("write_rounds", "Rounds of the writer", self.appends.clone());
        registry.register(
            "refused_appends",
            "Appends that were refused",
            self.refused.clone(),
        );
        registry.register(
            "disk_full",
            "Appends refused because the disk is full",
            self.disk_full.clone(),
        );
        registry.register(
            "space_short",
            "1 while no space can be taken ahead on the disk, so that publishers have to wait",
            self.space_short.clone(),
        );
        registry.register(
            "segments_started",
            "Segments taken into use",
            self.segments_started.clone(),
        );
        self.register_keeping(registry);
        self.register_compaction(registry);
    }

    fn register_compaction(&self, registry: &mut Registry) {
        registry.register("compactions", "Passes of compaction", self.compactions.clone());
        registry.register(
            "compaction_seals",
            "Segments sealed early, as records in them had to be compacted",
            self.compaction_seals.clone(),
        );
        registry.register(
            "compacted_records",
            "Records removed by compaction",
            self.compacted_records.clone(),
        );
        registry.register(
            "compacted_bytes",
            "Bytes of batches removed by compaction",
            self.compacted_bytes.clone(),
        );
        registry.register(
            "compaction_dirty_percent",
            "Largest share of a compacted log's sealed bytes that is not compacted yet, at the last look",
            self.dirty_percent.clone(),
        );
    }

    fn register_keeping(&self, registry: &mut Registry) {
        registry.register(
            "rewritten_bytes",
            "Bytes written again by rewriting",
            self.rewritten_bytes.clone(),
        );
        registry.register(
            "cold_reads",
            "Reads that went to segments",
            self.cold_reads.clone(),
        );
        registry.register(
            "damaged_reads",
            "Reads that met damage",
            self.damaged_reads.clone(),
        );
        registry.register("checkpoints", "Checkpoints stored", self.checkpoints.clone());
        registry.register(
            "truncations",
            "Logs that retention shortened",
            self.truncations.clone(),
        );
        registry.register(
            "scrubbed_segments",
            "Sealed segments read whole and found sound",
            self.scrubbed_segments.clone(),
        );
        registry.register(
            "damaged_segments",
            "Sealed segments found damaged",
            self.damaged_segments.clone(),
        );
        registry.register(
            "missing_segments",
            "Segments that were gone at the start, though nothing replaced them",
            self.missing_segments.clone(),
        );
        registry.register(
            "unknown_logs",
            "Logs that segments held batches of at the start and that nothing defined",
            self.unknown_logs.clone(),
        );
        registry.register("segments", "Segments with data", self.segment_files.clone());
        registry.register(
            "dead_bytes",
            "Bytes in segments that nobody can read",
            self.dead_bytes.clone(),
        );
        registry.register(
            "live_bytes",
            "Bytes in segments that can be read",
            self.live_bytes.clone(),
        );
        registry.register(
            "tail_bytes",
            "Bytes that the tail cache keeps alive",
            self.tail_bytes.clone(),
        );
        registry.register("logs", "Logs", self.logs.clone());
        self.register_times(registry);
    }

    fn register_times(&self, registry: &mut Registry) {
        registry.register(
            "write_seconds",
            "Time to write a group",
            self.write_seconds.clone(),
        );
        registry.register("sync_seconds", "Time to sync", self.sync_seconds.clone());
        registry.register(
            "append_written_seconds",
            "Time from an append to its acknowledgement, of those that wait to be written",
            self.append_written_seconds.clone(),
        );
        registry.register(
            "append_synced_seconds",
            "Time from an append to its acknowledgement, of those that wait to be synced",
            self.append_synced_seconds.clone(),
        );
    }

    pub(crate) fn on_group(&self, bytes: usize, frames: u32) {
        self.groups.inc();
        self.frames.inc_by(frames.into());
        self.written_bytes.inc_by(bytes as u64);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
