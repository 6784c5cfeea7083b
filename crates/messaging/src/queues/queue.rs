//! A queue: its definition, its delivery state behind a short lock, and its operations.
//!
//! Lock order: a queue's state → an outbox, shared credit, the journal. None is held across an await, and no
//! queue's lock is taken under another's.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, Weak};

use bytes::Bytes;
use bytestring::ByteString;
use smallvec::SmallVec;
use stafett_journal::Watch;
use stafett_model::{Epoch, Lock, LogId, Namespace, StoredMessage};
use stafett_queue::{Changes, ConsumerKey, DeliveryId, LaneOrder, Overflow, QueueSettings, QueueState};
use stafett_topics::{Topic, TopicId};
use tokio::sync::oneshot;

use super::ahead::ReadAhead;
use super::burial::Dying;
use super::consumer::Link;
use super::context::DeliveryContext;
use super::definition::{Declare, Definition, OwnerId, QueueId};
use super::flush::Persistence;
use super::grown::Grown;
use super::lanes::{LaneLog, LogOwnership};
use super::marking::Marking;
use super::outbox::{Delivery, Event};
use super::publication::Refused;
use super::registry::Queues;
use super::taking::Asking;

/// A queue.
pub struct Queue {
    pub id: QueueId,
    pub namespace: Namespace,
    pub name: ByteString,
    pub durable: bool,
    pub exclusive: Option<OwnerId>,
    pub auto_delete: bool,
    pub settings: Arc<QueueSettings>,
    /// Declaration in the front end's own format.
    pub arguments: Bytes,
    /// Stored topic whose messages are those of the queue.
    pub over: Option<TopicId>,
    /// Ends the interest in the topic's logs with the queue.
    pub(super) topic_watch: OnceLock<Watch>,
    pub(super) queues: Weak<Queues>,
    pub(super) context: Weak<DeliveryContext>,
    pub(super) deleted: AtomicBool,
    /// True if the definition is stored.
    pub(super) stored: AtomicBool,
    pub(super) inner: Lock<Inner>,
}

/// Mutable part of a queue.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) state: QueueState,
    pub(super) ownership: LogOwnership,
    /// Logs to check for growth, if they are a topic's.
    pub(super) grown: Grown,
    /// Logs of the lanes, with the offsets up to which they are freed.
    pub(super) logs: SmallVec<[LaneLog; 1]>,
    pub(super) links: BTreeMap<ConsumerKey, Link>,
    pub(super) getters: VecDeque<Getter>,
    /// Read-ahead of messages that were not handed out before.
    pub(super) ahead: ReadAhead,
    /// Read-ahead of returned messages.
    pub(super) back: ReadAhead,
    pub(super) hand_out_state: HandOutState,
    pub(super) persistence: Persistence,
    /// Hand-out marks that may not be stored yet.
    pub(super) marking: Vec<Marking>,
    /// Messages that have died and are still in flight.
    pub(super) dying: Dying,
    /// True if there may be messages with a TTL.
    pub(super) may_expire: bool,
    /// Expiry of the message at the head, in steady time.
    pub(super) head_expires: Option<(DeliveryId, i64)>,
    /// Time of the last use, in steady time.
    pub(super) used_ms: i64,
    /// Number of messages that are appended and not visible yet, if the queue has limits.
    pub(super) staged: u64,
    /// Time at which the timer checks the queue; `i64::MAX` if there is none.
    pub(super) timer_at: i64,
    /// Time before which nothing is handed out, as the log could not be read.
    pub(super) stalled_until: i64,
}

/// Progress of a hand-out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandOutState {
    Idle,
    Running,
    /// A hand-out is in progress, and another round was requested meanwhile.
    RunAgain,
}

/// Request for one message, if there is one now.
#[derive(Debug)]
pub(super) struct Getter {
    pub(super) settles: bool,
    /// True if consumers had a whole turn before it.
    pub(super) has_waited: bool,
    pub(super) sender: oneshot::Sender<Option<(Delivery, u64)>>,
}

/// Counts of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub ready: u64,
    pub in_flight: usize,
    /// Messages in flight that have died and are not buried yet.
    pub dying: usize,
    pub consumers: usize,
}

impl Queue {
    pub(super) fn new(
        queues: Weak<Queues>,
        context: Weak<DeliveryContext>,
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
            topic_watch: OnceLock::new(),
            queues,
            context,
            deleted: AtomicBool::new(false),
            stored: AtomicBool::new(false),
            inner: Lock::new(Inner {
                state,
                ownership: if definition.over.is_some() {
                    LogOwnership::Topic
                } else {
                    LogOwnership::Own
                },
                grown: Grown::All,
                logs,
                links: BTreeMap::new(),
                getters: VecDeque::new(),
                ahead: ReadAhead::default(),
                back: ReadAhead::default(),
                hand_out_state: HandOutState::Idle,
                persistence: Persistence::default(),
                marking: Vec::new(),
                dying: Dying::default(),
                // It is unknown which messages of a topic have a TTL.
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

    /// Returns the definition to be stored.
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

    /// Returns the queue's own logs, by priority.
    pub(super) fn own_logs(&self, inner: &Inner) -> Vec<(u8, LogId)> {
        if inner.ownership == LogOwnership::Topic {
            return vec![(0, LogId(self.id.0))];
        }
        let own = inner.logs.iter();
        own.filter_map(|lane| Some((u8::try_from(lane.lane).ok()?, lane.log)))
            .collect()
    }

    /// Returns the name of the first property in which a declaration differs; `None` if there is none.
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

    /// Returns settings as a queue stored by an earlier version has them: properties unknown to it are taken
    /// from the queue.
    fn as_stored(&self, settings: &QueueSettings) -> QueueSettings {
        QueueSettings {
            two_priorities: self.settings.two_priorities,
            active_yields: self.settings.active_yields,
            keeps_transient: self.settings.keeps_transient,
            ..settings.clone()
        }
    }

    /// Returns true if a message ended with the run in which it was stored.
    pub(super) fn has_ended(&self, message: &StoredMessage, stored_by: Epoch, now: Epoch) -> bool {
        let is_kept = message.persistent() || self.settings.keeps_transient || self.over.is_some();
        !is_kept && stored_by < now
    }

    /// Deletes the queue, if it is unused or, with `had_consumers`, has no consumers.
    pub(super) fn delete_unused(self: &Arc<Self>, had_consumers: bool) {
        if let Some(queues) = self.queues.upgrade() {
            queues.delete_unused(self, had_consumers);
        }
    }

    /// Returns true if the queue survives a restart.
    pub(super) fn outlives(&self) -> bool {
        self.durable && self.exclusive.is_none()
    }

    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Returns the time of the last use, in ms, by a clock that is never set.
    pub fn used_ms(&self) -> i64 {
        self.lock().used_ms
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        let mut inner = self.lock();
        if let Some(context) = self.context.upgrade() {
            inner.look_at_logs(&context);
        }
        Counts {
            ready: inner.state.ready(),
            in_flight: inner.state.in_flight(),
            dying: inner.dying.count().min(inner.state.in_flight()),
            consumers: inner.state.consumers.len(),
        }
    }

    /// Takes one message, if one is waiting; returns it with the number of further ones. Without `settles`,
    /// this settles it.
    pub async fn take_one(self: &Arc<Self>, settles: bool) -> Option<(Delivery, u64)> {
        let context = self.context.upgrade()?;
        let (sender, receiver) = oneshot::channel();
        {
            let mut inner = self.lock();
            if self.is_deleted() {
                return None;
            }
            inner.used_ms = context.clock.now_ms();
            inner.getters.push_back(Getter {
                settles,
                has_waited: false,
                sender,
            });
            // Stored messages are available at once, even if their growth was not reported yet.
            inner.grown = Grown::All;
        }
        drop(context);
        self.pump();
        let asking = Asking {
            queue: self,
            receiver,
        };
        asking.answer().await
    }

    /// Hands out messages at once. For callers that do not wait for the growth of a log.
    pub fn pump_now(self: &Arc<Self>) {
        self.lock().grown = Grown::All;
        self.pump();
    }

    /// Removes a staged message of `bytes` bytes that was not stored from the counts.
    pub(super) fn unstage(&self, bytes: u64) {
        let mut inner = self.lock();
        inner.staged = inner
            .staged
            .saturating_sub(u64::from(self.settings.overflow != Overflow::DropHead));
        inner.state.remove_bytes(bytes);
    }

    /// Returns true if the queue is stalled, as its logs could not be read.
    pub(crate) fn is_stalled(&self) -> bool {
        let stalled_until = self.lock().stalled_until;
        let context = self.context.upgrade();
        context.is_some_and(|context| context.clock.now_ms() < stalled_until)
    }

    /// Returns the log for messages of a priority, which is created if it does not exist.
    pub(super) fn log_for(self: &Arc<Self>, priority: u8) -> Result<LogId, Refused> {
        let priority = self.settings.lane(priority);
        if self.over.is_some() {
            // A caller that knows message keys has chosen a partition already.
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
        let queues = self.queues.upgrade().ok_or(Refused::Gone)?;
        queues.add_lanes(self, &mut inner, priority)
    }

    /// Ends the queue for all its users.
    pub(super) fn end(&self, inner: &mut Inner) {
        self.deleted.store(true, Ordering::Release);
        inner.getters.clear();
        inner.dying.dismiss();
        inner.forget_read();
        for (key, link) in std::mem::take(&mut inner.links) {
            inner.state.consumers.remove(key);
            link.outbox.tell(Event::ConsumerGone { token: link.token });
        }
    }
}

impl Inner {
    /// Returns the state, and the changes that its transitions add to.
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut QueueState, &mut Changes) {
        (&mut self.state, &mut self.persistence.changes)
    }

    /// Drops the read-ahead.
    pub(super) fn forget_read(&mut self) {
        self.ahead.clear();
        self.back.clear();
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
