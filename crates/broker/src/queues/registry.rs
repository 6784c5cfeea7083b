//! All queues: where they live, how they are declared, found, deleted, filled and loaded.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use hashbrown::HashTable;
use prometheus_client::registry::Registry;
use smallvec::SmallVec;
use stafett_journal::{
    Append, Change, Frame, Journal, LogSpec, Retention, StateChange, StateItem, StateSpace, StateUnreadable,
    StateWait, Ticket,
};
use stafett_model::{Durability, Epoch, LogId, Message};
use stafett_queue::Overflow;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::clock::WallClock;
use super::cursor::Kept;
use super::definition::{Declare, Definition, OwnerId, QueueId};
use super::flush::{self, Dirty};
use super::metrics::{QueueMetrics, Standing};
use super::publication::{AppendTicket, Publication, Refused, Targets};
use super::queue::{Inner, LaneLog, Queue};
use super::shard::{self, Shards};
use super::timer::{self, Timer};
use crate::broker::{NotStored, only};
use crate::namespace::Namespace;
use crate::topic::TopicSettings;
use crate::topics::Topics;

/// Definitions of queues: key queue id (big-endian), value [`Definition::encode`].
pub(super) const QUEUE_SPACE: StateSpace = StateSpace(5);
/// What of them is settled: key queue id (big-endian), as `stafett_queue::change` has it.
pub(super) const STATE_SPACE: StateSpace = StateSpace(6);
/// Frames that are stored together.
const FRAMES_MAX: usize = 500;

/// Finds out where a message goes. Implemented by who knows exchanges and bindings.
pub trait Route: Send + Sync + std::fmt::Debug {
    /// Where a message goes that is published to an exchange.
    fn targets(&self, namespace: &Namespace, exchange: &str, routing_key: &str, message: &Message)
    -> Targets;

    /// What makes the journal forget what leads to a queue; stored together with the queue's deletion.
    fn forget(&self, queue: &Queue) -> Vec<Frame>;

    /// The queue is deleted, and its deletion is staged.
    fn forgotten(&self, queue: &Queue);
}

/// All queues of a broker.
#[derive(Debug)]
pub struct Queues {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) topics: Arc<Topics>,
    pub(super) no_settings: Arc<TopicSettings>,
    pub(super) epoch: Epoch,
    pub(super) clock: WallClock,
    pub(super) metrics: QueueMetrics,
    pub(super) router: OnceLock<Arc<dyn Route>>,
    pub(super) kept: Arc<Kept>,
    pub(super) dirty: Dirty,
    pub(super) timer: Timer,
    pub(super) tasks: TaskTracker,
    pub(super) flushes: AtomicU64,
    table: RwLock<HashTable<Arc<Queue>>>,
    hash: RandomState,
    owned: Mutex<HashMap<OwnerId, Vec<Arc<Queue>>>>,
    /// Held for reading while appends are staged, so that no queue goes between being looked at and being written to.
    going: RwLock<()>,
    shards: Shards,
    durability: Durability,
    last_owner: AtomicU64,
    count: AtomicUsize,
    stop: CancellationToken,
}

/// Why a queue was not declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    #[error("the queue exists with other {what}")]
    Differs { what: &'static str },
    #[error("the queue belongs to somebody else")]
    Locked,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Why a queue was not deleted.
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

/// A stored queue could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadQueuesError {
    #[error(transparent)]
    State(#[from] StateUnreadable),
    #[error("the definition of queue {0:016x} is of a format that this version does not know")]
    Definition(u64),
    #[error("the state of queue {0} is of a format that this version does not know")]
    Queue(String),
}

/// A queue that is being declared. It is there at once; this resolves once it is stored.
#[derive(Debug)]
pub struct Declaring {
    queues: Arc<Queues>,
    result: Result<Arc<Queue>, DeclareError>,
    ticket: Option<Ticket>,
}

impl Queues {
    /// Loads what is stored and starts to keep time. Call it within a runtime. What does not outlive a restart is freed.
    pub(crate) fn open(
        journal: Arc<dyn Journal>,
        topics: Arc<Topics>,
        durability: Durability,
    ) -> Result<Arc<Self>, LoadQueuesError> {
        let parallel = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let queues = Arc::new(Self {
            epoch: journal.epoch(),
            clock: WallClock::start(),
            metrics: QueueMetrics::default(),
            router: OnceLock::new(),
            kept: Arc::default(),
            dirty: Dirty::default(),
            timer: Timer::default(),
            tasks: TaskTracker::new(),
            flushes: AtomicU64::new(0),
            table: RwLock::default(),
            hash: RandomState::new(),
            owned: Mutex::default(),
            going: RwLock::default(),
            shards: Shards::new(&*journal, parallel),
            durability,
            last_owner: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            stop: CancellationToken::new(),
            no_settings: Arc::default(),
            topics,
            journal,
        });
        queues.load()?;
        for shard in queues.shards.all() {
            queues
                .tasks
                .spawn(shard::run(Arc::clone(shard), queues.stop.clone()));
        }
        let weak = || Arc::downgrade(&queues);
        queues.tasks.spawn(flush::run(weak(), queues.stop.clone()));
        queues.tasks.spawn(timer::run(weak(), queues.stop.clone()));
        Ok(queues)
    }

    /// Who finds out where dead letters go; once.
    pub fn set_router(&self, router: Arc<dyn Route>) {
        // A second one changes nothing.
        let _ = self.router.set(router);
    }

    /// Makes its metrics visible.
    pub fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        self.metrics.register(registry);
        registry.register_collector(Box::new(Standing(Arc::downgrade(self))));
    }

    /// An owner that nobody was.
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

    /// All queues there are now, in no order.
    pub fn all(&self) -> Vec<Arc<Queue>> {
        self.read().iter().cloned().collect()
    }

    /// Declares a queue: it is there as soon as this returns, and stored once what it returns has resolved.
    pub fn declare(self: &Arc<Self>, namespace: &Namespace, name: &str, declare: Declare) -> Declaring {
        let declaring = |result, ticket| Declaring {
            queues: Arc::clone(self),
            result,
            ticket,
        };
        if let Some(queue) = self.get(namespace, name) {
            let result = self.declare_again(&queue, &declare).map(|()| Arc::clone(&queue));
            // Whoever declared it first may still wait.
            let waits = result.is_ok() && !queue.stored.load(Ordering::Acquire);
            let ticket = waits.then(|| self.store_definition(&queue, &queue.lock()));
            return declaring(result, ticket);
        }
        let now_ms = self.clock.now_ms();
        let hash = self.hash_of(namespace, name);
        let (queue, ticket) = {
            let mut table = self.write();
            if let Some(queue) = table.find(hash, |queue| is(queue, namespace, name)).cloned() {
                drop(table);
                let result = self.declare_again(&queue, &declare).map(|()| queue);
                return declaring(result, None);
            }
            let log = self.journal.allocate(1);
            let definition = Definition {
                namespace: namespace.clone(),
                name: name.into(),
                durable: declare.durable,
                exclusive: declare.exclusive.is_some(),
                auto_delete: declare.auto_delete,
                settings: declare.settings,
                arguments: declare.arguments,
                logs: vec![(0, log)],
            };
            let frames = [
                Frame::CreateLogs {
                    first: log,
                    count: 1,
                    spec: self.log_spec(definition.durable, definition.settings.durability),
                },
                definition_frame(QueueId(log.0), Change::Put(definition.encode().into())),
            ];
            let queue = Arc::new(Queue::new(
                Arc::downgrade(self),
                definition,
                declare.exclusive,
                now_ms,
            ));
            let wait = if queue.outlives() {
                StateWait::Synced
            } else {
                StateWait::Written
            };
            let ticket = self.journal.append(vec![Append::state(frames, wait)]);
            self.shards.watch(&*self.journal, &queue, LogId(queue.id.0));
            table.insert_unique(hash, Arc::clone(&queue), |queue| self.hash_queue(queue));
            (queue, ticket)
        };
        self.count.fetch_add(1, Ordering::Relaxed);
        self.show(&queue, &queue.lock());
        if let Some(owner) = declare.exclusive {
            let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
            owned.entry(owner).or_default().push(Arc::clone(&queue));
        }
        self.use_now(&queue);
        declaring(Ok(queue), Some(ticket))
    }

    fn declare_again(&self, queue: &Arc<Queue>, declare: &Declare) -> Result<(), DeclareError> {
        if queue
            .exclusive
            .is_some_and(|owner| Some(owner) != declare.exclusive)
        {
            return Err(DeclareError::Locked);
        }
        if let Some(what) = queue.differs(declare) {
            return Err(DeclareError::Differs { what });
        }
        self.use_now(queue);
        Ok(())
    }

    /// The queue is used now: its time without use begins anew.
    fn use_now(&self, queue: &Arc<Queue>) {
        if queue.settings.expires_ms.is_some() {
            let mut inner = queue.lock();
            inner.used_ms = self.clock.now_ms();
            if let Some(at) = queue.unused_at(&inner) {
                inner.wake_at(self, queue, at);
            }
        }
    }

    /// Deletes a queue with what it holds; how many messages waited. Resolves once that is stored.
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
        let (ready, ticket) = self.remove(&queue, if_unused, if_empty)?;
        only(ticket.await.pop().as_ref())?;
        Ok(ready)
    }

    /// Deletes what an owner had for itself.
    pub fn close_owner(self: &Arc<Self>, owner: OwnerId) {
        let owned = self
            .owned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&owner);
        for queue in owned.unwrap_or_default() {
            // It may be gone by now.
            drop(self.remove(&queue, false, false));
        }
    }

    /// Deletes a queue that nobody uses any more, if that is still so.
    pub(super) fn delete_soon(self: &Arc<Self>, queue: &Arc<Queue>) {
        let unused = {
            let inner = queue.lock();
            let idle = queue.unused_at(&inner);
            inner.state.consumers.is_empty()
                && ((queue.auto_delete && inner.had_consumer)
                    || idle.is_some_and(|at| at <= self.clock.now_ms()))
        };
        if unused {
            drop(self.remove(queue, true, false));
        }
    }

    fn remove(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<(u64, Ticket), DeleteQueueError> {
        let router = self.router.get();
        let (ready, ticket) = {
            let _alone = self.going.write().unwrap_or_else(PoisonError::into_inner);
            let mut inner = queue.lock();
            if queue.is_deleted() {
                return Err(DeleteQueueError::NoSuchQueue);
            }
            if if_unused && !inner.state.consumers.is_empty() {
                return Err(DeleteQueueError::InUse);
            }
            inner.look_at_logs(self);
            let ready = inner.state.ready();
            if if_empty && ready > 0 {
                return Err(DeleteQueueError::NotEmpty);
            }
            queue.end(&mut inner);
            let logs = inner.logs.iter().map(|lane| Frame::DeleteLogs {
                first: lane.log,
                count: 1,
            });
            let mut frames: Vec<Frame> = logs.collect();
            frames.push(definition_frame(queue.id, Change::Delete));
            frames.push(super::pump::state_frame(queue, Change::Delete));
            drop(inner);
            frames.extend(router.map(|router| router.forget(queue)).unwrap_or_default());
            let wait = if queue.outlives() {
                StateWait::Synced
            } else {
                StateWait::Written
            };
            let ticket = self.journal.append(vec![Append::state(frames, wait)]);
            let hash = self.hash_queue(queue);
            if let Ok(entry) = self.write().find_entry(hash, |known| Arc::ptr_eq(known, queue)) {
                entry.remove();
            }
            (ready, ticket)
        };
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.hide(queue);
        if let Some(owner) = queue.exclusive {
            let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(queues) = owned.get_mut(&owner) {
                queues.retain(|known| !Arc::ptr_eq(known, queue));
                if queues.is_empty() {
                    owned.remove(&owner);
                }
            }
        }
        if let Some(router) = router {
            router.forgotten(queue);
        }
        Ok((ready, ticket))
    }

    /// Appends messages; resolves to what became of each. Per batch: no lock and no allocation is per message.
    pub fn append(self: &Arc<Self>, publication: Publication) -> AppendTicket {
        self.append_with(publication, SmallVec::new())
    }

    /// The same; `frames` are stored together with what is atomic.
    pub(crate) fn append_with(
        self: &Arc<Self>,
        publication: Publication,
        frames: SmallVec<[Frame; 1]>,
    ) -> AppendTicket {
        let now_ms = self.clock.now_ms();
        let (mut refused, mut limited) = (Vec::new(), Vec::new());
        let (mut published, mut index) = (0_u64, 0_u32);
        let there = self.there();
        let (appends, ticket) = publication.into_appends(
            now_ms,
            |message, targets| {
                index += 1;
                if let Some(full) = targets.queues.iter().find(|queue| !self.has_room(queue, message)) {
                    self.metrics.refused.inc();
                    if full.settings.overflow == Overflow::RejectPublishDeadLetter {
                        refused.push((Arc::clone(full), message.clone()));
                    }
                    return Some(Refused::QueueFull);
                }
                published += targets.queues.len() as u64;
                for queue in &targets.queues {
                    if self.count_in(queue, message) {
                        limited.push((Arc::clone(queue), index - 1));
                    }
                }
                None
            },
            frames,
        );
        self.metrics.published.inc_by(published);
        let staged = (!appends.is_empty()).then(|| self.journal.append(appends));
        drop(there);
        if !refused.is_empty() {
            self.dead_letter_refused(refused);
        }
        ticket.wait_for(staged, limited)
    }

    /// While this is held, no queue and no log of one goes.
    pub(super) fn there(&self) -> std::sync::RwLockReadGuard<'_, ()> {
        self.going.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a queue takes a message more.
    fn has_room(&self, queue: &Queue, message: &Message) -> bool {
        let settings = &queue.settings;
        if !settings.has_limits() || settings.overflow == Overflow::DropHead {
            return true;
        }
        let mut inner = queue.lock();
        inner.look_at_logs(self);
        let waiting = inner.state.ready() + inner.staged;
        let bytes = inner.state.bytes_ready() + message.value.len() as u64;
        settings.length_max.is_none_or(|max| waiting < max)
            && settings.bytes_max.is_none_or(|max| bytes <= max)
    }

    /// Notes what a queue has to know of a message that is appended to it. True if it has to hear that it was not stored.
    fn count_in(&self, queue: &Queue, message: &Message) -> bool {
        let settings = &queue.settings;
        let is_last_run = !message.persistent && queue.outlives();
        if message.ttl_ms.is_none() && !settings.has_limits() && !is_last_run {
            return false;
        }
        let mut inner = queue.lock();
        inner.may_expire |= message.ttl_ms.is_some();
        if is_last_run && !inner.holds_transient {
            inner.note_transient(self, queue);
        }
        if settings.has_limits() {
            inner.state.add_bytes(message.value.len() as u64);
            inner.staged += u64::from(settings.overflow != Overflow::DropHead);
        }
        settings.has_limits() && settings.overflow != Overflow::DropHead
    }

    /// Makes the logs of a priority and of those below it, and stores that the queue has them.
    pub(super) fn add_lanes(&self, queue: &Arc<Queue>, inner: &mut Inner, highest: u8) -> Option<LogId> {
        if queue.is_deleted() {
            return None;
        }
        let lowest = inner.logs.iter().map(|lane| lane.priority + 1).max().unwrap_or(0);
        let count = u32::from(highest.checked_sub(lowest)?) + 1;
        let first = self.journal.allocate(count);
        for (priority, log) in (lowest..=highest).zip(first.0..) {
            let log = LogId(log);
            inner.logs.push(LaneLog {
                priority,
                log,
                freed: 0,
            });
        }
        let create = Frame::CreateLogs {
            first,
            count,
            spec: self.log_spec(queue.durable, queue.settings.durability),
        };
        let definition = queue.definition(inner).encode();
        let put = definition_frame(queue.id, Change::Put(definition.into()));
        drop(
            self.journal
                .append(vec![Append::state([create, put], StateWait::Written)]),
        );
        for log in first.0..first.0 + u64::from(count) {
            self.shards.watch(&*self.journal, queue, LogId(log));
        }
        self.show(queue, inner);
        inner.log(highest)
    }

    /// Lets a queue hand out soon.
    pub(super) fn wake(&self, queue: &Arc<Queue>) {
        self.shards.wake(queue);
    }

    /// Stores what is to be stored and stops. Queues are not to be used any more.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.flush_all();
    }

    fn store_definition(&self, queue: &Queue, inner: &Inner) -> Ticket {
        let definition = queue.definition(inner).encode();
        let frame = definition_frame(queue.id, Change::Put(definition.into()));
        self.journal
            .append(vec![Append::state([frame], StateWait::Synced)])
    }

    pub(super) fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    fn log_level(&self, queue: &Queue) -> Durability {
        self.log_spec(queue.durable, queue.settings.durability).durability
    }

    fn log_spec(&self, durable: bool, durability: Option<Durability>) -> LogSpec {
        LogSpec {
            durability: if durable {
                durability.unwrap_or(self.durability)
            } else {
                Durability::Memory
            },
            retention: Retention::default(),
        }
    }

    fn hash_of(&self, namespace: &Namespace, name: &str) -> u64 {
        self.hash.hash_one((namespace.as_str(), name))
    }

    fn hash_queue(&self, queue: &Queue) -> u64 {
        self.hash_of(&queue.namespace, &queue.name)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashTable<Arc<Queue>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashTable<Arc<Queue>>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(self: &Arc<Self>) -> Result<(), LoadQueuesError> {
        let mut found: HashMap<u64, Arc<Queue>> = HashMap::new();
        let mut gone: Vec<Frame> = Vec::new();
        // State of queues that are no more.
        let mut left_over: BTreeSet<Bytes> = BTreeSet::new();
        let (mut unknown, mut malformed) = (None, None);
        let now_ms = self.clock.now_ms();
        self.journal.load_state(QUEUE_SPACE, &mut |item| {
            let StateItem::Value { key, value } = item else {
                return;
            };
            let id = key.try_into().map_or(0, u64::from_be_bytes);
            match Definition::decode(value) {
                None => unknown = Some(id),
                Some(definition) if definition.durable && !definition.exclusive => {
                    let queue = Queue::new(Arc::downgrade(self), definition, None, now_ms);
                    queue.stored.store(true, Ordering::Release);
                    found.insert(id, Arc::new(queue));
                }
                Some(definition) => {
                    gone.extend(definition.logs.iter().map(|(_, log)| Frame::DeleteLogs {
                        first: *log,
                        count: 1,
                    }));
                    gone.push(definition_frame(QueueId(id), Change::Delete));
                }
            }
        })?;
        if let Some(id) = unknown {
            return Err(LoadQueuesError::Definition(id));
        }
        self.journal.load_state(STATE_SPACE, &mut |item| {
            let (StateItem::Value { key, .. } | StateItem::Delta { key, .. }) = item;
            let Some(queue) = key
                .try_into()
                .ok()
                .and_then(|id| found.get(&u64::from_be_bytes(id)))
            else {
                left_over.insert(Bytes::copy_from_slice(key));
                return;
            };
            let mut inner = queue.lock();
            let restored = match item {
                StateItem::Value { value, .. } => inner.state.restore(value),
                StateItem::Delta { delta, .. } => inner.state.apply(delta),
            };
            match restored {
                Ok(transient) => inner.holds_transient |= transient,
                Err(_) => malformed = Some(queue.name.to_string()),
            }
        })?;
        if let Some(name) = malformed {
            return Err(LoadQueuesError::Queue(name));
        }
        gone.extend(left_over.into_iter().map(|key| {
            Frame::State(StateChange {
                space: STATE_SPACE,
                key,
                change: Change::Delete,
            })
        }));
        for queue in found.into_values() {
            self.adopt(&queue);
        }
        let mut gone = gone.into_iter().peekable();
        while gone.peek().is_some() {
            let append = Append::state(gone.by_ref().take(FRAMES_MAX), StateWait::Written);
            drop(self.journal.append(vec![append]));
        }
        Ok(())
    }

    /// Takes a queue in that was loaded.
    fn adopt(self: &Arc<Self>, queue: &Arc<Queue>) {
        let waits = {
            let mut inner = queue.lock();
            let lanes = inner.logs.clone();
            for lane in &lanes {
                if let Some(bounds) = self.journal.bounds(lane.log) {
                    let state = inner.state.lane_mut(lane.priority);
                    state.start_at(bounds.start.0);
                    state.grow(bounds.end.0);
                    let waiting = state.ready();
                    let all = bounds.end.0.saturating_sub(bounds.start.0).max(1);
                    // What waits has its share of the bytes that are stored.
                    let bytes = u128::from(bounds.bytes) * u128::from(waiting) / u128::from(all);
                    inner.state.add_bytes(u64::try_from(bytes).unwrap_or(u64::MAX));
                }
            }
            for lane in &mut inner.logs {
                lane.freed = self.journal.bounds(lane.log).map_or(0, |bounds| bounds.start.0);
            }
            // Which messages have a time of their own is not known: the head is looked at.
            inner.may_expire = true;
            inner.state.ready() > 0
        };
        let ragged = queue.lock().holds_transient || self.log_level(queue) != Durability::Sync;
        for lane in queue.lock().logs.clone() {
            self.shards.watch(&*self.journal, queue, lane.log);
        }
        let hash = self.hash_queue(queue);
        self.write()
            .insert_unique(hash, Arc::clone(queue), |queue| self.hash_queue(queue));
        self.count.fetch_add(1, Ordering::Relaxed);
        self.show(queue, &queue.lock());
        self.use_now(queue);
        if queue.namespace == super::delayed::hidden() {
            self.open_in_time(queue);
        }
        if waits {
            self.wake(queue);
        }
        if waits && ragged {
            self.scan_soon(queue);
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Declaring {
    /// The queue, without waiting until it is stored: what is published to it is stored behind it.
    pub(super) fn started(self) -> Option<Arc<Queue>> {
        self.result.ok()
    }
}

impl Future for Declaring {
    type Output = Result<Arc<Queue>, DeclareError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let (Ok(queue), Some(ticket)) = (&this.result, &mut this.ticket) {
            let Poll::Ready(mut outcomes) = Pin::new(ticket).poll(context) else {
                return Poll::Pending;
            };
            match only(outcomes.pop().as_ref()) {
                Ok(()) => queue.stored.store(true, Ordering::Release),
                Err(why) => {
                    // It was never there; what was put into it goes with it.
                    drop(this.queues.remove(queue, false, false));
                    this.result = Err(why.into());
                }
            }
        }
        this.ticket = None;
        Poll::Ready(this.result.clone())
    }
}

fn is(queue: &Queue, namespace: &Namespace, name: &str) -> bool {
    queue.name == name && queue.namespace == *namespace
}

fn definition_frame(id: QueueId, change: Change) -> Frame {
    Frame::State(StateChange {
        space: QUEUE_SPACE,
        key: Bytes::copy_from_slice(&id.0.to_be_bytes()),
        change,
    })
}
