//! All queues: look-up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use prometheus_client::registry::Registry;
use stafett_counters::Sampler;
use stafett_journal::{Change, DiskSpace, Frame, Journal, LogSpec, Retention, StateUnreadable};
use stafett_model::{Durability, Lock, Message, Namespace, SharedLock};
use stafett_store::{Clock, spaces};
use stafett_topics::{TopicId, TopicSettings, Topics};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::bounds::Bounds;
use super::definition::{OwnerId, QueueId};
use super::metrics::{QueueGauges, QueueMetrics};
use super::policies::Policies;
use super::publication::Targets;
use super::queue::Queue;
use super::table::{OrderedQueues, QueuePage, QueueRange, QueueTable};
use stafett_delivery::DeliveryContext;
use stafett_delivery::Dispatcher;

/// Router of dead letters, and owner of the bindings to queues: implemented by the exchanges.
pub(crate) trait DeadLetterRouter: Send + Sync + std::fmt::Debug {
    /// Returns the targets of a dead letter, by its exchange and routing key. With `by_more_keys`, its
    /// further routing keys count too.
    fn targets(&self, namespace: &Namespace, message: &Message, by_more_keys: bool) -> Targets;

    /// Returns true if the namespace exists.
    fn has_namespace(&self, namespace: &Namespace) -> bool;

    /// Removes the bindings to a queue: calls `append` once, with the frames to store together with the
    /// queue's deletion. True if some are left: then [`Self::remove_more_bindings`] continues once the queue
    /// is deleted.
    fn remove_bindings(&self, queue: &Queue, append: &mut dyn FnMut(Vec<Frame>)) -> bool;

    /// Removes some more bindings of a deleted queue. False if they were the last.
    fn remove_more_bindings(&self, queue: &Queue) -> bool;

    /// Handles the end of a queue's deletion, which is staged.
    fn on_queue_removed(&self, queue: &Queue);
}

/// Memory of queues, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueMemory {
    /// Definitions and states, without what grows with messages in flight.
    pub state_bytes: usize,
    /// Messages that were read ahead of their hand-out.
    pub kept_bytes: usize,
    /// Indexes of messages by sender, context or header.
    pub index_bytes: usize,
}

/// All queues of a broker.
#[derive(Debug)]
pub struct Queues {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) topics: Arc<Topics>,
    pub(super) no_settings: Arc<TopicSettings>,
    pub(crate) context: Arc<DeliveryContext>,
    pub(super) metrics: QueueMetrics,
    pub(super) router: Arc<dyn DeadLetterRouter>,
    table: SharedLock<QueueTable>,
    /// Queues that may have messages, and those over topics.
    pub(super) pending: Lock<OrderedQueues>,
    /// Wakes requests that wait for a message of any queue, when a queue is added to `pending`.
    pub(super) listed: Notify,
    /// True while empty queues are removed from the list of pending ones.
    pub(super) removes_empty: AtomicBool,
    pub(super) owned: Lock<HashMap<OwnerId, Vec<Arc<Queue>>>>,
    pub(super) over: Lock<HashMap<TopicId, Vec<Arc<Queue>>>>,
    /// Deleted queues with bindings left. Their names cannot be taken meanwhile.
    pub(super) removing: Lock<Vec<Arc<Queue>>>,
    pub(super) policies: Policies,
    pub(super) bounds: Bounds,
    /// Turn to change policies.
    pub(super) policy_turn: Semaphore,
    pub(super) durability: Durability,
    /// Preferred size of a batch for the journal, in bytes.
    pub(super) batch_bytes: usize,
    last_owner: AtomicU64,
    /// Number of messages that were numbered in this run.
    pub(super) arrivals: AtomicU64,
    pub(super) count: AtomicUsize,
}

impl Queues {
    pub(crate) fn new(
        journal: Arc<dyn Journal>,
        topics: Arc<Topics>,
        durability: Durability,
        clock: Arc<Clock>,
        router: Arc<dyn DeadLetterRouter>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: DeliveryContext::new(Arc::clone(&journal), clock, spaces::DELIVERIES),
            metrics: QueueMetrics::default(),
            router,
            table: SharedLock::default(),
            pending: Lock::default(),
            listed: Notify::new(),
            removes_empty: AtomicBool::new(false),
            owned: Lock::default(),
            over: Lock::default(),
            removing: Lock::default(),
            policies: Policies::default(),
            bounds: Bounds::default(),
            policy_turn: Semaphore::new(1),
            durability,
            batch_bytes: journal.batch_bytes(),
            last_owner: AtomicU64::new(0),
            arrivals: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            no_settings: Arc::default(),
            topics,
            journal,
        })
    }

    /// Loads the queues and starts the tasks. Must be called within a Tokio runtime. State that does not
    /// survive a restart is deleted.
    pub(crate) fn open(self: &Arc<Self>) -> Result<(), StateUnreadable> {
        self.load_policies()?;
        self.load()?;
        let weak = Arc::downgrade(self);
        let all = move || {
            weak.upgrade()
                .map(|queues| queues.dispatchers())
                .unwrap_or_default()
        };
        self.context.start(all);
        Ok(())
    }

    /// Registers the metrics.
    pub fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        self.metrics.register(&self.context, registry);
        registry.register_collector(Box::new(QueueGauges(Arc::downgrade(self))));
    }

    /// Returns the number of declarations since the start, of queues that were there too.
    pub fn declared(&self) -> u64 {
        self.metrics.declared.get()
    }

    /// Returns the number of queues that were created since the start.
    pub fn created(&self) -> u64 {
        self.metrics.created.get()
    }

    /// Returns the number of queues that were deleted since the start.
    pub fn deleted(&self) -> u64 {
        self.metrics.deleted.get()
    }

    /// Returns the memory of all queues, approximately.
    pub fn memory(&self) -> QueueMemory {
        QueueMemory {
            state_bytes: self.len() * (size_of::<Queue>() + size_of::<Dispatcher>()),
            kept_bytes: self.context.kept_bytes(),
            index_bytes: self.context.index_bytes(),
        }
    }

    /// Returns the sampler of the queues' counters.
    pub fn sampler(&self) -> &Sampler<Dispatcher> {
        &self.context.sampler
    }

    /// Returns a new owner id.
    pub fn new_owner(&self) -> OwnerId {
        OwnerId(self.last_owner.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, namespace: &Namespace, name: &str) -> Option<Arc<Queue>> {
        self.read().get(namespace, name).cloned()
    }

    pub fn with_id(&self, id: QueueId) -> Option<Arc<Queue>> {
        self.read().with_id(id).cloned()
    }

    /// Returns a page of queues in the order of namespaces and names.
    pub fn page(&self, range: QueueRange<'_>) -> QueuePage {
        self.read().ordered().page(range)
    }

    /// Returns all queues, in no order.
    pub fn all(&self) -> Vec<Arc<Queue>> {
        self.read().iter().cloned().collect()
    }

    /// Returns the number of queues of a namespace.
    pub fn count_in(&self, namespace: &Namespace) -> usize {
        self.read().ordered().count_in(namespace)
    }

    /// Returns all queues in the order of namespaces and names.
    pub fn all_sorted(&self) -> Vec<Arc<Queue>> {
        self.read().ordered().all(None)
    }

    fn dispatchers(&self) -> Vec<Arc<Dispatcher>> {
        self.read()
            .iter()
            .map(|queue| Arc::<Dispatcher>::clone(queue))
            .collect()
    }

    /// Stores everything unstored and stops. The queues must not be used any more.
    pub async fn finish(&self) {
        self.context.finish().await;
        self.context.flush_all(&self.dispatchers()).await;
    }

    pub(crate) fn stopped(&self) -> CancellationToken {
        self.context.stop.clone()
    }

    /// Spawns a task that runs to its end even if no caller waits for it; [`Self::finish`] waits for it.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.context.tasks.spawn(work)
    }

    pub(crate) fn space(&self) -> DiskSpace {
        self.journal.space()
    }

    /// Returns true if this queue is the one under its name.
    pub(crate) fn is_registered(&self, queue: &Arc<Queue>) -> bool {
        self.get(&queue.namespace, &queue.name)
            .is_some_and(|found| Arc::ptr_eq(&found, queue))
    }

    pub(super) fn log_level(&self, queue: &Queue) -> Durability {
        self.log_spec(queue.durable, queue.settings().durability)
            .durability
    }

    pub(super) fn log_spec(&self, durable: bool, durability: Option<Durability>) -> LogSpec {
        LogSpec {
            durability: if durable {
                durability.unwrap_or(self.durability)
            } else {
                Durability::Os
            },
            retention: Retention::default(),
            compaction: None,
        }
    }

    pub(super) fn read(&self) -> stafett_model::ReadGuard<'_, QueueTable> {
        self.table.read()
    }

    pub(super) fn write(&self) -> stafett_model::WriteGuard<'_, QueueTable> {
        self.table.write()
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.context.stop.cancel();
    }
}

pub(super) fn definition_frame(id: QueueId, change: Change) -> Frame {
    spaces::QUEUES.change(Bytes::copy_from_slice(&id.0.to_be_bytes()), change)
}
