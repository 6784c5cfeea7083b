//! Readers: each reads a stored topic from its own position and gets messages as its credit allows.
//!
//! Reading changes nothing: any number of readers share a topic, each with its own position, and each gets
//! all messages. Positions are not stored; a client that continues later names an offset.
//!
//! ```text
//!            ┌ the log grew          (watch)
//! a task ◀───┼ credit was returned   (any settlement)
//!            └ there is room again   (outbox)
//!   └──▶ read the partition whose turn it is ──▶ outbox
//! ```
//!
//! - `reader`: one reader
//! - `task`: its task; `partition_cursors`: its positions in the partitions
//! - `header_filter`: its filter

mod header_filter;
mod partition_cursors;
mod reader;
mod task;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stafett_journal::Journal;
use stafett_model::{Lock, LockGuard};
use stafett_topics::{ReadAheadBudget, Topic, TopicId, Topics};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use stafett_delivery::Outbox;

pub use header_filter::HeaderFilter;
pub use reader::{Reader, ReaderHandle, ReaderSpec, WeakReader};

/// All readers of a broker, by topic.
#[derive(Debug)]
pub struct Readers {
    journal: Arc<dyn Journal>,
    topics: Arc<Topics>,
    by_topic: Lock<HashMap<TopicId, Vec<Weak<Reader>>>>,
    kept: Arc<ReadAheadBudget>,
    tasks: TaskTracker,
    stop: CancellationToken,
    metrics: ReaderMetrics,
}

#[derive(Debug, Default)]
struct ReaderMetrics {
    open: Gauge,
    delivered: Counter,
    passed_over: Counter,
}

impl Readers {
    pub(crate) fn new(journal: Arc<dyn Journal>, topics: Arc<Topics>) -> Arc<Self> {
        Arc::new(Self {
            journal,
            topics,
            by_topic: Lock::default(),
            kept: Arc::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            metrics: ReaderMetrics::default(),
        })
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("readers");
        let ReaderMetrics {
            open,
            delivered,
            passed_over,
        } = &self.metrics;
        registry.register("open", "Readers of stored topics", open.clone());
        registry.register("delivered", "Messages given to readers", delivered.clone());
        registry.register(
            "passed_over",
            "Messages that readers did not want",
            passed_over.clone(),
        );
    }

    /// Begins to read a topic; messages are put into `outbox` under `token`. Must be called within a Tokio
    /// runtime.
    pub fn open(
        self: &Arc<Self>,
        topic: &Arc<Topic>,
        spec: &ReaderSpec,
        outbox: Arc<Outbox>,
        token: u64,
    ) -> ReaderHandle {
        let reader = Reader::new(topic, spec, outbox, token);
        self.lock()
            .entry(topic.id)
            .or_default()
            .push(Arc::downgrade(&reader));
        self.metrics.open.inc();
        let places = partition_cursors::PartitionCursors::begin(&*self.journal, topic, spec);
        self.tasks
            .spawn(task::run(Arc::clone(self), Arc::clone(&reader), places));
        ReaderHandle::of(reader, Arc::downgrade(self))
    }

    /// Handles the growth of a topic: readers read the new partitions from their beginning.
    pub(crate) fn on_grown(&self, topic: &Arc<Topic>) {
        for reader in self.of(topic.id) {
            reader.follow(topic);
        }
    }

    /// Handles the deletion of a topic: its readers end.
    pub(crate) fn on_deleted(&self, topic: TopicId) {
        let readers = self.of(topic);
        self.lock().remove(&topic);
        for reader in readers {
            reader.on_gone();
        }
    }

    fn of(&self, topic: TopicId) -> Vec<Arc<Reader>> {
        let by_topic = self.lock();
        let readers = by_topic.get(&topic);
        readers.into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    /// Removes a reader that has ended.
    fn forget(&self, reader: &Arc<Reader>) {
        self.metrics.open.dec();
        let mut by_topic = self.lock();
        if let Some(readers) = by_topic.get_mut(&reader.topic) {
            readers.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(reader)));
            if readers.is_empty() {
                by_topic.remove(&reader.topic);
            }
        }
    }

    /// Stops all readers.
    pub(crate) async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> LockGuard<'_, HashMap<TopicId, Vec<Weak<Reader>>>> {
        self.by_topic.lock()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
