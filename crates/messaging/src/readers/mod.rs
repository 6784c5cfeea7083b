//! Readers: whoever goes through a stored topic from a place of its own and is given its messages as credit
//! allows.
//!
//! Reading changes nothing: any number of readers share a topic, each with its own place, and what one is
//! given all others are given too. A place is not stored; whoever wants to go on later says from which
//! offset.
//!
//! ```text
//!            ┌ the log grew          (watch)
//! a task ◀───┼ credit came back      (settled, however)
//!            └ there is room again   (outbox)
//!   └──▶ read the partition whose turn it is ──▶ outbox
//! ```
//!
//! - `reader`: one reader, and what is asked of it
//! - `run`: its task; `place`: how far it has come in each partition
//! - `start`: where it begins; `wanted`: which messages

mod place;
mod reader;
mod run;
mod start;
mod wanted;

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, Weak};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use stafett_journal::Journal;
use stafett_model::Lock;
use stafett_topics::{Topic, TopicId};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::queues::Outbox;
use crate::queues::cursor::Kept;

pub use reader::{Reader, ReaderSpec, Reading};
pub use start::Start;
pub use wanted::Wanted;

/// All readers of a broker, by the topic that they read.
#[derive(Debug)]
pub struct Readers {
    journal: Arc<dyn Journal>,
    by_topic: Lock<HashMap<TopicId, Vec<Weak<Reader>>>>,
    kept: Arc<Kept>,
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
    pub(crate) fn new(journal: Arc<dyn Journal>) -> Arc<Self> {
        Arc::new(Self {
            journal,
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

    /// Begins to read a topic; what is read comes into the outbox under the token. Call it within a runtime.
    pub fn open(
        self: &Arc<Self>,
        topic: &Arc<Topic>,
        spec: &ReaderSpec,
        outbox: Arc<Outbox>,
        token: u64,
    ) -> Reading {
        let reader = Reader::new(topic, spec, outbox, token);
        self.lock()
            .entry(topic.id)
            .or_default()
            .push(Arc::downgrade(&reader));
        self.metrics.open.inc();
        let places = place::Places::begin(&*self.journal, topic, spec);
        self.tasks
            .spawn(run::run(Arc::clone(self), Arc::clone(&reader), places));
        Reading::of(reader, Arc::downgrade(self))
    }

    /// A topic has more partitions: they are read from their beginning.
    pub(crate) fn on_grown(&self, topic: &Arc<Topic>) {
        for reader in self.of(topic.id) {
            reader.follow(topic);
        }
    }

    /// A topic is gone.
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

    /// Forgets a reader that has ended.
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

    /// Stops all of them.
    pub(crate) async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TopicId, Vec<Weak<Reader>>>> {
        self.by_topic.lock()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
