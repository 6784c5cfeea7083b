//! All queues: look-up and deletion.

use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use hashbrown::HashTable;
use prometheus_client::registry::Registry;
use stafett_journal::{
    Append, Change, DiskSpace, Frame, Journal, LogSpec, Retention, StateUnreadable, StateWait, Ticket,
};
use stafett_model::{Durability, Lock, Message, Namespace, SharedLock};
use stafett_store::{Clock, NotStored, spaces};
use stafett_topics::{TopicId, TopicSettings, Topics};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::definition::{OwnerId, QueueId};
use super::metrics::{QueueMetrics, Standing};
use super::publication::Targets;
use super::queue::Queue;
use super::removal::Removing;
use crate::delivery::DeliveryContext;
use crate::delivery::{DeliveryState, Dispatcher};

/// Queues of a namespace that are deleted before other tasks get their turns.
const DELETED_TOGETHER: usize = 64;

/// Router of dead letters, and owner of the bindings to queues: implemented by the exchanges.
pub(crate) trait DeadLetterRouter: Send + Sync + std::fmt::Debug {
    /// Returns the targets of a message published to an exchange. With `by_more_keys`, the message's further
    /// routing keys count too.
    fn targets(
        &self,
        namespace: &Namespace,
        exchange: &str,
        routing_key: &str,
        message: &Message,
        by_more_keys: bool,
    ) -> Targets;

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

/// All queues of a broker.
#[derive(Debug)]
pub struct Queues {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) topics: Arc<Topics>,
    pub(super) no_settings: Arc<TopicSettings>,
    pub(crate) context: Arc<DeliveryContext>,
    pub(super) metrics: QueueMetrics,
    pub(super) router: Arc<dyn DeadLetterRouter>,
    table: SharedLock<HashTable<Arc<Queue>>>,
    hash: RandomState,
    pub(super) owned: Lock<HashMap<OwnerId, Vec<Arc<Queue>>>>,
    pub(super) over: Lock<HashMap<TopicId, Vec<Arc<Queue>>>>,
    /// Deleted queues with bindings left. Their names cannot be taken meanwhile.
    pub(super) leaving: Lock<Vec<Arc<Queue>>>,
    durability: Durability,
    /// Preferred size of a batch for the journal, in bytes.
    pub(super) batch_bytes: usize,
    last_owner: AtomicU64,
    /// Number of messages that were numbered in this run.
    pub(super) arrivals: AtomicU64,
    pub(super) count: AtomicUsize,
}

/// Error of deleting a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeleteQueueError {
    #[error("there is no such queue")]
    NoSuchQueue,
    #[error("the queue has consumers")]
    InUse,
    #[error("the queue has messages")]
    NotEmpty,
    #[error("the queue belongs to somebody else")]
    Locked,
    #[error(transparent)]
    NotStored(#[from] NotStored),
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
            hash: RandomState::new(),
            owned: Lock::default(),
            over: Lock::default(),
            leaving: Lock::default(),
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
        registry.register_collector(Box::new(Standing(Arc::downgrade(self))));
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
        let hash = self.hash_of(namespace, name);
        self.read()
            .find(hash, |queue| is(queue, namespace, name))
            .cloned()
    }

    /// Returns all queues, in no order.
    pub fn all(&self) -> Vec<Arc<Queue>> {
        self.read().iter().cloned().collect()
    }

    fn dispatchers(&self) -> Vec<Arc<Dispatcher>> {
        self.read()
            .iter()
            .map(|queue| Arc::<Dispatcher>::clone(queue))
            .collect()
    }

    /// Returns the first `count` queues by namespace and name, of one namespace or of all, behind the one
    /// that `after` names.
    pub fn page(
        &self,
        only: Option<&Namespace>,
        after: Option<(&Namespace, &str)>,
        count: usize,
    ) -> Vec<Arc<Queue>> {
        let mut first: BinaryHeap<ByName<'_>> = BinaryHeap::new();
        let table = self.read();
        for queue in table.iter() {
            let key = (&queue.namespace, &*queue.name);
            let is_wanted = only.is_none_or(|only| queue.namespace == *only)
                && after.is_none_or(|after| key > after)
                && (first.len() < count || first.peek().is_some_and(|last| key < last.key()));
            if is_wanted {
                first.push(ByName(queue));
                if first.len() > count {
                    first.pop();
                }
            }
        }
        let sorted = first.into_sorted_vec().into_iter();
        sorted.map(|found| Arc::clone(found.0)).collect()
    }

    /// Deletes a queue with its messages. Returns the number of waiting messages, once the deletion is
    /// stored.
    pub async fn delete(
        self: &Arc<Self>,
        namespace: &Namespace,
        name: &str,
        if_unused: bool,
        if_empty: bool,
        owner: OwnerId,
    ) -> Result<u64, DeleteQueueError> {
        let queue = self.get(namespace, name).ok_or(DeleteQueueError::NoSuchQueue)?;
        if queue.exclusive.is_some_and(|known| known != owner) {
            return Err(DeleteQueueError::Locked);
        }
        let (ready, removing) = self.remove(&queue, |inner| {
            if if_unused && inner.has_consumers() {
                Err(DeleteQueueError::InUse)
            } else if if_empty && inner.ready() > 0 {
                Err(DeleteQueueError::NotEmpty)
            } else {
                Ok(())
            }
        })?;
        removing.stored().await?;
        Ok(ready)
    }

    /// Deletes all queues of a namespace that takes no more declarations, in batches.
    pub async fn delete_all_in(self: &Arc<Self>, namespace: &Namespace) -> Result<(), NotStored> {
        let in_it = |queue: &&Arc<Queue>| queue.namespace == *namespace;
        let all: Vec<_> = self.read().iter().filter(in_it).cloned().collect();
        for some in all.chunks(DELETED_TOGETHER) {
            // A queue may be deleted already.
            let removing = some
                .iter()
                .filter_map(|queue| self.remove(queue, |_| Ok(())).ok());
            let removing: Vec<_> = removing.map(|(_, removing)| removing).collect();
            for removing in removing {
                removing.stored().await?;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Deletes the exclusive queues of an owner.
    pub fn close_owner(self: &Arc<Self>, owner: OwnerId) {
        let had = self.owned.lock().remove(&owner);
        for queue in had.unwrap_or_default() {
            // A queue may be deleted already.
            drop(self.remove(&queue, |_| Ok(())));
        }
    }

    /// Deletes an unused queue, or an auto-delete one that has lost its last consumer. If it was used
    /// meanwhile, the timer checks it again later.
    pub(super) fn delete_unused(self: &Arc<Self>, queue: &Arc<Queue>, had_consumers: bool) {
        let removed = self.remove(queue, |inner| {
            let is_left = had_consumers && queue.auto_delete && !inner.has_consumers();
            if is_left || queue.is_overdue(&self.context, inner) {
                return Ok(());
            }
            Err(DeleteQueueError::InUse)
        });
        // If the journal refuses, the flush task retries.
        drop(removed);
    }

    /// Deletes a queue, unless `check` fails under the queue's lock.
    pub(super) fn remove(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        check: impl FnOnce(&mut DeliveryState) -> Result<(), DeleteQueueError>,
    ) -> Result<(u64, Removing), DeleteQueueError> {
        let (ready, ticket, has_more) = {
            let _alone = self.context.lock_for_removal();
            let ready = queue.end(&self.context, check)?;
            let ready = ready.ok_or(DeleteQueueError::NoSuchQueue)?;
            let own = queue.own_logs(&queue.lock());
            let mut frames = self.deletion(queue.id, own.into_iter().map(|(_, log)| log));
            frames.push(self.context.state_frame(queue, Change::Delete));
            let (ticket, has_more) = self.store_removal(queue, frames);
            let hash = self.hash_queue(queue);
            let mut table = self.write();
            if has_more {
                self.leaving().push(Arc::clone(queue));
            }
            if let Ok(entry) = table.find_entry(hash, |known| Arc::ptr_eq(known, queue)) {
                entry.remove();
            }
            (ready, ticket, has_more)
        };
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.hide(queue);
        self.lift(queue);
        if let Some(owner) = queue.exclusive {
            let mut owned = self.owned.lock();
            if let Some(queues) = owned.get_mut(&owner) {
                queues.retain(|known| !Arc::ptr_eq(known, queue));
                if queues.is_empty() {
                    owned.remove(&owner);
                }
            }
        }
        let rest = if has_more {
            Some(self.forget_rest(queue))
        } else {
            self.router.on_queue_removed(queue);
            None
        };
        Ok((ready, Removing { ticket, rest }))
    }

    /// Stores the deletion of a queue and of bindings to it; true if some bindings are left.
    fn store_removal(&self, queue: &Queue, mut frames: Vec<Frame>) -> (Option<Ticket>, bool) {
        let wait = if queue.outlives() {
            StateWait::Synced
        } else {
            StateWait::Written
        };
        let mut ticket = None;
        let mut append = |forget: Vec<Frame>| {
            let frames: Vec<Frame> = frames.drain(..).chain(forget).collect();
            let staged = self.journal.append(vec![Append::state(frames.clone(), wait)]);
            if staged.glance().committed() == Some(false) {
                self.context.dirty.push_refused(frames);
            }
            ticket = Some(staged);
        };
        let has_more = self.router.remove_bindings(queue, &mut append);
        (ticket, has_more)
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
    pub(crate) fn is_there(&self, queue: &Arc<Queue>) -> bool {
        self.get(&queue.namespace, &queue.name)
            .is_some_and(|found| Arc::ptr_eq(&found, queue))
    }

    pub(super) fn log_level(&self, queue: &Queue) -> Durability {
        self.log_spec(queue.durable, queue.settings.durability).durability
    }

    pub(super) fn log_spec(&self, durable: bool, durability: Option<Durability>) -> LogSpec {
        LogSpec {
            durability: if durable {
                durability.unwrap_or(self.durability)
            } else {
                Durability::Os
            },
            retention: Retention::default(),
        }
    }

    pub(super) fn hash_of(&self, namespace: &Namespace, name: &str) -> u64 {
        self.hash.hash_one((namespace.as_str(), name))
    }

    pub(super) fn hash_queue(&self, queue: &Queue) -> u64 {
        self.hash_of(&queue.namespace, &queue.name)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashTable<Arc<Queue>>> {
        self.table.read()
    }

    pub(super) fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashTable<Arc<Queue>>> {
        self.table.write()
    }
}

/// Ordering of queues in lists.
struct ByName<'a>(&'a Arc<Queue>);

impl ByName<'_> {
    fn key(&self) -> (&Namespace, &str) {
        (&self.0.namespace, &self.0.name)
    }
}

impl PartialEq for ByName<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ByName<'_> {}

impl PartialOrd for ByName<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.context.stop.cancel();
    }
}

pub(super) fn is(queue: &Queue, namespace: &Namespace, name: &str) -> bool {
    queue.name == name && queue.namespace == *namespace
}

pub(super) fn definition_frame(id: QueueId, change: Change) -> Frame {
    spaces::QUEUES.change(Bytes::copy_from_slice(&id.0.to_be_bytes()), change)
}
