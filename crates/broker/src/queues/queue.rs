//! A queue: its definition, its delivery state behind a short lock, and what is asked of it.
//!
//! Locks, in the order in which they may be taken: a queue's state → an outbox, shared credit, the journal. None is
//! held across an await, and no queue's is taken while another's is held.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use bytestring::ByteString;
use smallvec::SmallVec;
use stafett_model::{DeathReason, Epoch, LogId, StoredMessage};
use stafett_queue::consumers::Occupied;
use stafett_queue::{
    Changes, ConsumerKey, ConsumerRules, DeliveryId, LaneOrder, Overflow, QueueSettings, QueueState, Returned,
};
use tokio::sync::oneshot;

use super::ahead::ReadAhead;
use super::burial::Dying;
use super::credit::Credit;
use super::definition::{Declare, Definition, OwnerId, QueueId};
use super::grown::Grown;
use super::outbox::{Delivery, Event, Outbox};
use super::publication::Refused;
use super::registry::Queues;
use super::taking::Asking;
use crate::namespace::Namespace;
use crate::topic::{Topic, TopicId};

/// A queue.
pub struct Queue {
    pub id: QueueId,
    pub namespace: Namespace,
    pub name: ByteString,
    pub durable: bool,
    pub exclusive: Option<OwnerId>,
    pub auto_delete: bool,
    pub settings: Arc<QueueSettings>,
    /// The front end's own words.
    pub arguments: Bytes,
    /// The stored topic that its messages are those of.
    pub over: Option<TopicId>,
    pub(super) hub: Weak<Queues>,
    pub(super) deleted: AtomicBool,
    /// The definition is stored.
    pub(super) stored: AtomicBool,
    pub(super) inner: Mutex<Inner>,
}

/// What changes of a queue.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Inner {
    pub(super) state: QueueState,
    /// The logs are a topic's: what they keep, and for how long, is its affair.
    pub(super) lies_over: bool,
    /// Which logs to look at, where they are a topic's.
    pub(super) grown: Grown,
    /// The logs of its lanes, and how far each is freed.
    pub(super) logs: SmallVec<[LaneLog; 1]>,
    pub(super) links: BTreeMap<ConsumerKey, Link>,
    pub(super) getters: VecDeque<Getter>,
    /// What was read ahead: of messages that nobody had, and of those that came back.
    pub(super) ahead: ReadAhead,
    pub(super) back: ReadAhead,
    /// Somebody hands out, and somebody wants that to be done again.
    pub(super) pumping: bool,
    pub(super) again: bool,
    /// What is to be stored.
    pub(super) changes: Changes,
    pub(super) dirty: bool,
    /// Bytes of changes stored since the whole was, and bytes of the whole then.
    pub(super) changed_bytes: usize,
    pub(super) whole_bytes: usize,
    /// Messages that have died and are still in flight.
    pub(super) dying: Dying,
    /// Appends under way that settle something: until they are stored, the whole may not be.
    pub(super) moving: usize,
    /// There may be messages that end with this run of the program.
    pub(super) holds_transient: bool,
    pub(super) had_consumer: bool,
    /// Messages with a time of their own may be there.
    pub(super) may_expire: bool,
    /// When the message at the head expires.
    pub(super) head_expires: Option<(DeliveryId, i64)>,
    /// When the queue was last used, ms since 1970.
    pub(super) used_ms: i64,
    /// What is appended and cannot be seen yet, where there are limits.
    pub(super) staged: u64,
    /// When the timer looks at the queue, if it does.
    pub(super) timer_at: i64,
    /// Nothing is handed out before, as the log could not be read.
    pub(super) stalled_until: i64,
}

/// A log of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneLog {
    /// Its number: a priority, or a partition.
    pub(super) lane: u32,
    pub(super) log: LogId,
    /// What lies before it is freed.
    pub(super) freed: u64,
}

/// A consumer's end of the queue.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) outbox: Arc<Outbox>,
    pub(super) token: u64,
    pub(super) credit: Option<Arc<Credit>>,
    pub(super) settles: bool,
    /// About to be put into the outbox.
    pub(super) pending: Vec<Delivery>,
    pub(super) pending_bytes: usize,
}

/// Somebody who wants one message, now.
#[derive(Debug)]
pub(super) struct Getter {
    pub(super) settles: bool,
    pub(super) sender: oneshot::Sender<Option<(Delivery, u64)>>,
}

/// What a consumer wants.
#[derive(Debug, Clone)]
pub struct ConsumerSpec {
    /// It settles what it gets; false: what is delivered is settled.
    pub settles: bool,
    /// Nobody else may consume.
    pub exclusive: bool,
    /// The highest goes first.
    pub priority: i32,
    /// Messages in flight at once; `None`: any number.
    pub credit: Option<u32>,
    /// Credit that it shares with others.
    pub shared_credit: Option<Arc<Credit>>,
    pub owner: OwnerId,
}

/// A consumer; dropping it ends it. What it has in flight stays so until it is settled.
#[derive(Debug)]
pub struct Consumer {
    queue: Arc<Queue>,
    key: ConsumerKey,
}

/// Why there can be no such consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConsumeError {
    #[error("the queue has an exclusive consumer")]
    Exclusive,
    #[error("the queue has consumers: none can be exclusive")]
    InUse,
    #[error("the queue belongs to somebody else")]
    Locked,
    #[error("the queue is gone")]
    Gone,
}

/// What is to happen to a message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// It is done.
    Complete,
    /// It goes back to its place.
    Requeue,
    /// Nobody wants it: it goes where dead letters go.
    Discard,
}

/// How a queue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub ready: u64,
    pub in_flight: usize,
    pub consumers: usize,
}

impl Queue {
    pub(super) fn new(
        hub: Weak<Queues>,
        definition: Definition,
        topic: Option<&Topic>,
        owner: Option<OwnerId>,
        now_ms: i64,
    ) -> Self {
        let first = definition.logs.first().map_or(LogId(0), |(_, log)| *log);
        let settings = Arc::new(definition.settings);
        let state = QueueState::of(&settings);
        let (state, logs) = if let Some(topic) = topic {
            (state.with_order(LaneOrder::InTurn), LaneLog::of_topic(topic, 0))
        } else {
            let own = definition.logs.into_iter();
            let own = own.map(|(priority, log)| LaneLog::new(priority.into(), log));
            (state, own.collect())
        };
        Self {
            id: QueueId(first.0),
            namespace: definition.namespace,
            name: definition.name,
            durable: definition.durable,
            exclusive: owner,
            auto_delete: definition.auto_delete,
            arguments: definition.arguments,
            over: definition.over,
            hub,
            deleted: AtomicBool::new(false),
            stored: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                state,
                lies_over: definition.over.is_some(),
                grown: Grown::All,
                logs,
                links: BTreeMap::new(),
                getters: VecDeque::new(),
                ahead: ReadAhead::default(),
                back: ReadAhead::default(),
                pumping: false,
                again: false,
                changes: Changes::default(),
                dirty: false,
                changed_bytes: 0,
                whole_bytes: 0,
                dying: Dying::default(),
                moving: 0,
                holds_transient: false,
                had_consumer: false,
                // Which messages of a topic have a time of their own is not known.
                may_expire: settings.ttl_ms.is_some() || definition.over.is_some(),
                head_expires: None,
                used_ms: now_ms,
                staged: 0,
                timer_at: i64::MAX,
                stalled_until: i64::MIN,
            }),
            settings,
        }
    }

    /// The definition as it is stored.
    pub(super) fn definition(&self, inner: &Inner) -> Definition {
        Definition {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            durable: self.durable,
            exclusive: self.exclusive.is_some(),
            auto_delete: self.auto_delete,
            settings: (*self.settings).clone(),
            arguments: self.arguments.clone(),
            logs: self.own_logs(inner),
            over: self.over,
        }
    }

    /// The logs that are its own, by priority.
    pub(super) fn own_logs(&self, inner: &Inner) -> Vec<(u8, LogId)> {
        if inner.lies_over {
            return vec![(0, LogId(self.id.0))];
        }
        let own = inner.logs.iter();
        own.filter_map(|lane| Some((u8::try_from(lane.lane).ok()?, lane.log)))
            .collect()
    }

    /// What of a declaration differs from the queue, if anything does.
    pub(super) fn differs(&self, declare: &Declare) -> Option<&'static str> {
        if self.durable != declare.durable {
            Some("durable")
        } else if self.exclusive.is_some() != declare.exclusive.is_some() {
            Some("exclusive")
        } else if self.auto_delete != declare.auto_delete {
            Some("auto-delete")
        } else if *self.settings != self.as_stored(&declare.settings) {
            Some("settings")
        } else if self.arguments != declare.arguments {
            Some("arguments")
        } else {
            None
        }
    }

    /// Settings as a queue of these has them that an earlier version has stored: what that did not know stays as it was.
    fn as_stored(&self, settings: &QueueSettings) -> QueueSettings {
        QueueSettings {
            two_priorities: self.settings.two_priorities,
            active_yields: self.settings.active_yields,
            keeps_transient: self.settings.keeps_transient,
            ..settings.clone()
        }
    }

    /// Whether a message ended with the run of the program in which it was stored.
    pub(super) fn has_ended(&self, message: &StoredMessage, stored_by: Epoch, now: Epoch) -> bool {
        let is_kept = message.persistent() || self.settings.keeps_transient || self.over.is_some();
        !is_kept && stored_by < now
    }

    /// Whether it outlives a restart.
    pub(super) fn outlives(&self) -> bool {
        self.durable && self.exclusive.is_none()
    }

    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it stands.
    pub fn counts(&self) -> Counts {
        let mut inner = self.lock();
        if let Some(hub) = self.hub.upgrade() {
            inner.look_at_logs(&hub);
        }
        Counts {
            ready: inner.state.ready(),
            in_flight: inner.state.in_flight(),
            consumers: inner.state.consumers.len(),
        }
    }

    /// Registers a consumer; what it gets comes into the outbox under the token.
    pub fn consume(
        self: &Arc<Self>,
        spec: ConsumerSpec,
        outbox: Arc<Outbox>,
        token: u64,
    ) -> Result<Consumer, ConsumeError> {
        let hub = self.hub.upgrade().ok_or(ConsumeError::Gone)?;
        if self.exclusive.is_some_and(|owner| owner != spec.owner) {
            return Err(ConsumeError::Locked);
        }
        let key = {
            let mut inner = self.lock();
            if self.is_deleted() {
                return Err(ConsumeError::Gone);
            }
            let rules = ConsumerRules {
                priority: spec.priority,
                credit: spec.credit.filter(|_| spec.settles),
                settles: spec.settles,
                exclusive: spec.exclusive,
            };
            let key = inner
                .state
                .consumers
                .add(rules)
                .map_err(|occupied| match occupied {
                    Occupied::ByExclusive => ConsumeError::Exclusive,
                    Occupied::ByOthers => ConsumeError::InUse,
                })?;
            let link = Link {
                outbox,
                token,
                credit: spec.shared_credit.filter(|_| spec.settles),
                settles: spec.settles,
                pending: Vec::new(),
                pending_bytes: 0,
            };
            inner.links.insert(key, link);
            inner.had_consumer = true;
            inner.grown = Grown::All;
            inner.used_ms = hub.clock.now_ms();
            key
        };
        self.pump();
        Ok(Consumer {
            queue: Arc::clone(self),
            key,
        })
    }

    fn end_consumer(self: &Arc<Self>, key: ConsumerKey) {
        let Some(hub) = self.hub.upgrade() else { return };
        let last = {
            let mut inner = self.lock();
            if inner.links.remove(&key).is_none() {
                return;
            }
            inner.state.consumers.remove(key);
            inner.used_ms = hub.clock.now_ms();
            let last = inner.state.consumers.is_empty();
            if last {
                inner.forget_read();
                if let Some(at) = self.unused_at(&inner) {
                    inner.wake_at(&hub, self, at);
                }
            }
            last
        };
        if last && self.auto_delete {
            hub.delete_soon(self);
        } else if !last {
            self.pump();
        }
    }

    /// Takes one message, if one waits; with it, how many more wait. Without `settles` it is settled with that.
    pub async fn take_one(self: &Arc<Self>, settles: bool) -> Option<(Delivery, u64)> {
        let hub = self.hub.upgrade()?;
        let (sender, receiver) = oneshot::channel();
        {
            let mut inner = self.lock();
            if self.is_deleted() {
                return None;
            }
            inner.used_ms = hub.clock.now_ms();
            inner.getters.push_back(Getter { settles, sender });
            // What is stored is there for whoever asks, even if nobody has told of it yet.
            inner.grown = Grown::All;
        }
        drop(hub);
        self.pump();
        let asking = Asking {
            queue: self,
            receiver,
        };
        asking.answer().await
    }

    /// Hands out what can be, at once. Who does not wait for its log to grow calls it.
    pub fn pump_now(self: &Arc<Self>) {
        self.lock().grown = Grown::All;
        self.pump();
    }

    /// Settles messages in flight, all under one lock. Those that are not in flight are passed over; how many were.
    pub fn settle(self: &Arc<Self>, settlements: &[(DeliveryId, Settle)]) -> usize {
        let Some(hub) = self.hub.upgrade() else { return 0 };
        let mut settled = 0_u64;
        let mut known = 0;
        let mut dead: Vec<(DeliveryId, DeathReason)> = Vec::new();
        let goes_on = {
            let mut inner = self.lock();
            let Inner { state, changes, .. } = &mut *inner;
            for (id, what) in settlements {
                match what {
                    Settle::Complete => {
                        if state.complete(*id, changes) {
                            settled += 1;
                            known += 1;
                        }
                    }
                    Settle::Requeue => match state.requeue(*id, changes) {
                        Some(Returned::Waits) => known += 1,
                        Some(Returned::TooOften) => {
                            known += 1;
                            dead.push((*id, DeathReason::DeliveryLimit));
                        }
                        None => {}
                    },
                    Settle::Discard => {
                        if state.taken(*id).is_some() {
                            known += 1;
                            dead.push((*id, DeathReason::Rejected));
                        }
                    }
                }
            }
            if self.settings.dead_letter.is_none() {
                for (id, _) in dead.drain(..) {
                    settled += u64::from(state.complete(id, changes));
                }
            }
            for (id, _) in &dead {
                // Whoever had it does not wait until it is buried.
                state.disown(*id);
            }
            hub.mark_dirty(self, &mut inner);
            // A requeue may put something before a head that was looked at.
            inner.state.ready() > 0 && (inner.state.consumers.any_ready() || inner.may_expire)
        };
        hub.metrics.settled.inc_by(settled);
        if !dead.is_empty() {
            self.bury_all(&hub, dead);
        }
        if goes_on {
            self.pump();
        }
        known
    }

    /// Settles all that waits; how many messages that were.
    pub fn purge(self: &Arc<Self>) -> u64 {
        let Some(hub) = self.hub.upgrade() else { return 0 };
        let mut inner = self.lock();
        inner.look_at_logs(&hub);
        let Inner { state, changes, .. } = &mut *inner;
        let purged = state.purge(changes);
        inner.forget_read();
        inner.head_expires = None;
        hub.mark_dirty(self, &mut inner);
        purged
    }

    /// A message of so many bytes that was counted as being under way was not stored.
    pub(super) fn unstage(&self, bytes: u64) {
        let mut inner = self.lock();
        inner.staged = inner
            .staged
            .saturating_sub(u64::from(self.settings.overflow != Overflow::DropHead));
        inner.state.remove_bytes(bytes);
    }

    /// A consumer that was passed over can take more.
    pub(super) fn unblock(self: &Arc<Self>, consumer: ConsumerKey) {
        let goes_on = {
            let mut inner = self.lock();
            inner.state.consumers.unblock(consumer) && inner.state.ready() > 0
        };
        if goes_on && let Some(hub) = self.hub.upgrade() {
            hub.wake(self);
        }
    }

    /// Whether its logs could not be read just now.
    pub(crate) fn is_stalled(&self) -> bool {
        let stalled_until = self.lock().stalled_until;
        let hub = self.hub.upgrade();
        hub.is_some_and(|hub| hub.clock.now_ms() < stalled_until)
    }

    /// The log that a message of a priority goes to; made if there is none yet.
    pub(super) fn log_for(self: &Arc<Self>, priority: u8) -> Result<LogId, Refused> {
        let priority = self.settings.lane(priority);
        if self.over.is_some() {
            // Who knows keys has looked for a partition already.
            let first = self.lock().logs.first().map(|lane| lane.log);
            return first.ok_or(Refused::Gone);
        }
        if priority == 0 {
            return Ok(LogId(self.id.0));
        }
        let mut inner = self.lock();
        if let Some(log) = inner.log(priority.into()) {
            return Ok(log);
        }
        let hub = self.hub.upgrade().ok_or(Refused::Gone)?;
        hub.add_lanes(self, &mut inner, priority)
    }

    /// Ends it for all who use it.
    pub(super) fn end(&self, inner: &mut Inner) {
        self.deleted.store(true, Ordering::Release);
        inner.getters.clear();
        inner.forget_read();
        for (key, link) in std::mem::take(&mut inner.links) {
            inner.state.consumers.remove(key);
            link.outbox.tell(Event::ConsumerGone { token: link.token });
        }
    }
}

impl Inner {
    /// Learns how far the logs have grown.
    pub(super) fn look_at_logs(&mut self, hub: &Queues) {
        self.grown = Grown::none();
        for at in 0..self.logs.len() {
            if let Some(LaneLog { lane, log, .. }) = self.logs.get(at).copied() {
                self.look_at(hub, lane, log);
            }
        }
        hub.metrics.looks.inc_by(self.logs.len() as u64);
    }

    /// The same, of those logs only that may have grown.
    pub(super) fn look_at_grown(&mut self, hub: &Queues) {
        match self.grown.take() {
            Grown::These(lanes) if self.lies_over => {
                for lane in &lanes {
                    if let Some(log) = self.log(*lane) {
                        self.look_at(hub, *lane, log);
                    }
                }
                hub.metrics.looks.inc_by(lanes.len() as u64);
            }
            Grown::These(_) | Grown::All => self.look_at_logs(hub),
        }
    }

    fn look_at(&mut self, hub: &Queues, lane: u32, log: LogId) {
        let Some(bounds) = hub.journal.bounds(log) else {
            return;
        };
        if self.lies_over {
            let lost = self.state.start_at(lane, bounds.start.0, &mut self.changes);
            hub.metrics.lost.inc_by(lost);
        }
        let state = self.state.lane_mut(lane);
        let before = state.end();
        state.grow(bounds.end.0);
        self.staged = self.staged.saturating_sub(state.end() - before);
    }

    /// Forgets what was read ahead.
    pub(super) fn forget_read(&mut self) {
        self.ahead.clear();
        self.back.clear();
    }

    pub(super) fn log(&self, number: u32) -> Option<LogId> {
        // Those of topics are in their order.
        let guess = usize::try_from(number).ok().and_then(|at| self.logs.get(at));
        let lane = guess
            .filter(|lane| lane.lane == number)
            .or_else(|| self.logs.iter().find(|lane| lane.lane == number));
        lane.map(|lane| lane.log)
    }
}

impl LaneLog {
    pub(super) fn new(lane: u32, log: LogId) -> Self {
        Self { lane, log, freed: 0 }
    }

    /// Those of a topic's partitions, from one on.
    pub(super) fn of_topic(topic: &Topic, from: u32) -> SmallVec<[Self; 1]> {
        (from..topic.partitions())
            .filter_map(|partition| Some(Self::new(partition, topic.log(partition)?)))
            .collect()
    }
}

impl Consumer {
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Ends it. What it has in flight stays so until it is settled.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.queue.end_consumer(self.key);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("id", &self.id)
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
