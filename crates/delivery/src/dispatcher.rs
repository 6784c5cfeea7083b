//! A dispatcher: hands out the messages of a list of logs to consumers, and has their delivery state behind a
//! short lock.
//!
//! Lock order: a dispatcher's state → an outbox, shared credit, the journal. None is held across an await,
//! and no dispatcher's lock is taken under another's.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use smallvec::SmallVec;
use stafett_counters::Words;
use stafett_journal::{Frame, Watch};
use stafett_model::{DeathReason, Epoch, Lock, LockGuard, StoredMessage};
use stafett_queue::{Changes, ConsumerKey, DeliveryId, LaneOrder, QueueSettings, QueueState};
use stafett_store::NotStored;
use tokio::sync::Notify;

use super::consumers::ConsumerLink;
use super::context::DeliveryContext;
use super::counts::COUNTERS;
use super::dead_letters::DeadLetterQueue;
use super::filtered::FilterGroup;
use super::grown_lanes::GrownLanes;
use super::hand_out::IN_FLIGHT_MAX;
use super::lanes::{LaneLog, LogOwnership};
use super::leases::Leases;
use super::marking::Marking;
use super::outbox::Event;
use super::persistence::Persistence;
use super::pull::GetRequest;
use super::read_ahead::ReadAhead;
use super::selection::SelectionIndex;
use super::settings::SettingFlags;

/// Future of an append of dead letters.
pub type StoringLetters = Pin<Box<dyn Future<Output = Result<(), NotStored>> + Send>>;

/// Owner of a dispatcher: decides where dead letters go, and the fate of an unused dispatcher.
pub trait DispatcherOwner: fmt::Debug + Send + Sync {
    /// Returns the kind and name of the owner, for the log.
    fn describe(&self) -> String;

    /// Handles the end of the last consumer or, without `had_consumers`, the end of the time for which the
    /// dispatcher may be unused.
    fn on_unused(self: Arc<Self>, had_consumers: bool);

    /// Handles growth of a log, returned messages or a due deadline, if messages are pulled
    /// ([`DispatcherSpec::is_pulled`]).
    fn on_pull_due(self: Arc<Self>) {}

    /// Stores dead letters at their targets in one append, to which the frame joins that settles them here.
    fn store_dead_letters(
        self: Arc<Self>,
        letters: Vec<(StoredMessage, DeathReason)>,
        settlement: Option<Frame>,
    ) -> StoringLetters;
}

/// Parameters of a dispatcher.
#[derive(Debug)]
pub struct DispatcherSpec {
    /// Key of its stored state.
    pub id: u64,
    /// As declared.
    pub declared: Arc<QueueSettings>,
    /// In force.
    pub settings: Arc<QueueSettings>,
    pub is_paused: bool,
    pub logs: SmallVec<[LaneLog; 1]>,
    pub ownership: LogOwnership,
    /// True if the state is stored, and survives a restart.
    pub is_stored: bool,
    /// True if nothing is handed out by itself: the owner takes messages out of the state, and is notified
    /// when there may be some.
    pub is_pulled: bool,
}

/// Hands out the messages of a list of logs.
pub struct Dispatcher {
    pub(super) id: u64,
    /// As declared: for properties that never change.
    pub(super) declared: Arc<QueueSettings>,
    pub(super) flags: SettingFlags,
    pub(super) ownership: LogOwnership,
    pub(super) is_stored: bool,
    pub(super) is_pulled: bool,
    pub(super) context: Weak<DeliveryContext>,
    pub(super) owner: Weak<dyn DispatcherOwner>,
    /// Ends the interest in a topic's logs with the dispatcher.
    pub(super) topic_watch: OnceLock<Watch>,
    pub(super) counters: Words<COUNTERS>,
    is_ended: AtomicBool,
    inner: Lock<DeliveryState>,
}

/// Mutable part of a dispatcher.
#[derive(Debug)]
pub struct DeliveryState {
    pub state: QueueState,
    /// In force.
    pub settings: Arc<QueueSettings>,
    /// Logs to check for growth, if they are a topic's.
    pub(super) grown: GrownLanes,
    /// Logs of the lanes, with the offsets up to which they are freed.
    pub logs: SmallVec<[LaneLog; 1]>,
    pub(super) links: BTreeMap<ConsumerKey, ConsumerLink>,
    /// Consumers with filters.
    pub(super) groups: Vec<FilterGroup>,
    pub(super) getters: VecDeque<GetRequest>,
    pub(super) read_ahead: ReadAhead,
    /// True if a hand-out is in progress.
    pub(super) hands_out: bool,
    pub(super) persistence: Persistence,
    /// Hand-out marks that may not be stored yet.
    pub(super) marking: Vec<Marking>,
    /// Messages that have died and are still in flight.
    pub(super) dead_letters: DeadLetterQueue,
    /// True if ended messages of earlier runs and holes in the logs may count as ready: limits drop and
    /// refuse nothing until the scan after the start has removed them.
    pub(super) counts_too_many: bool,
    /// True if there may be messages with a TTL.
    pub(super) may_expire: bool,
    /// Expiry of the message at the head, in steady time.
    pub(super) head_expires: Option<(DeliveryId, i64)>,
    /// Last time at which no consumer could take a message that had arrived, in steady time.
    pub(super) waited_ms: i64,
    /// Time of the last use, in steady time.
    pub(super) used_ms: i64,
    /// Number of requests that wait for messages.
    pub(super) waiting_requests: usize,
    /// Number of messages that are appended and not visible yet, if there are limits.
    pub(super) staged: u64,
    /// Time at which the timer checks the dispatcher; `i64::MAX` if there is none.
    pub(super) timer_at: i64,
    /// Time before which nothing is handed out, as a log could not be read.
    pub(super) stalled_until: i64,
    /// Number of times that messages were put back to their places.
    pub(super) put_back: u64,
    /// Wakes searches when there may be new messages.
    pub(super) searches: Option<Arc<Notify>>,
    pub(super) leases: Option<Box<Leases>>,
    /// Indexes of headers by which messages are selected.
    pub(super) selections: Vec<Arc<SelectionIndex>>,
}

/// Counts of a dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub ready: u64,
    pub in_flight: usize,
    /// Messages in flight that have died and are not stored as dead letters yet.
    pub dying: usize,
    pub consumers: usize,
}

impl Dispatcher {
    pub fn new(
        spec: DispatcherSpec,
        context: &Arc<DeliveryContext>,
        owner: Weak<dyn DispatcherOwner>,
    ) -> Arc<Self> {
        let is_topics = spec.ownership == LogOwnership::Topic;
        let mut state = QueueState::of(&spec.settings);
        state.consumers.set_paused(spec.is_paused);
        if is_topics {
            state = state.with_order(LaneOrder::InTurn);
        }
        Arc::new(Self {
            flags: SettingFlags::of(&spec.settings),
            inner: Lock::new(DeliveryState {
                state,
                grown: GrownLanes::All,
                logs: spec.logs,
                links: BTreeMap::new(),
                groups: Vec::new(),
                getters: VecDeque::new(),
                read_ahead: ReadAhead::default(),
                hands_out: false,
                persistence: Persistence::default(),
                marking: Vec::new(),
                dead_letters: DeadLetterQueue::default(),
                counts_too_many: false,
                // It is unknown which messages of a topic have a TTL.
                may_expire: spec.settings.ttl_ms.is_some() || is_topics && !spec.is_pulled,
                settings: spec.settings,
                head_expires: None,
                waited_ms: context.clock.now_ms(),
                used_ms: context.clock.now_ms(),
                waiting_requests: 0,
                staged: 0,
                timer_at: i64::MAX,
                stalled_until: i64::MIN,
                put_back: 0,
                searches: None,
                leases: None,
                selections: Vec::new(),
            }),
            id: spec.id,
            declared: spec.declared,
            ownership: spec.ownership,
            is_stored: spec.is_stored,
            is_pulled: spec.is_pulled,
            context: Arc::downgrade(context),
            owner,
            topic_watch: OnceLock::new(),
            counters: Words::new(),
            is_ended: AtomicBool::new(false),
        })
    }

    /// Returns true if it hands out no more, as its owner is deleted.
    #[inline]
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    pub fn lock(&self) -> LockGuard<'_, DeliveryState> {
        self.inner.lock()
    }

    /// Returns the time of the last use, in ms, by a clock that is never set.
    pub fn used_ms(&self) -> i64 {
        self.lock().used_ms
    }

    /// Records a use: the idle time begins anew.
    pub fn use_now(self: &Arc<Self>) {
        if self.flags.expires()
            && let Some(context) = self.context.upgrade()
        {
            self.lock().note_use(&context, self);
        }
    }

    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        let mut inner = self.lock();
        if let Some(context) = self.context.upgrade() {
            inner.look_at_logs(self, &context);
        }
        Counts {
            ready: inner.state.ready(),
            in_flight: inner.state.in_flight(),
            dying: inner.dead_letters.count().min(inner.state.in_flight()),
            consumers: inner.state.consumers.len(),
        }
    }

    /// Returns true if one consumer gets all messages.
    pub fn has_sole_consumer(&self) -> bool {
        let inner = self.lock();
        let consumers = &inner.state.consumers;
        consumers.is_exclusive() || self.declared.single_active_consumer && !consumers.is_empty()
    }

    /// Returns true if as many messages are in flight as may be.
    pub fn is_full_of_taken(&self) -> bool {
        self.lock().state.in_flight() >= IN_FLIGHT_MAX
    }

    /// Returns true if it is stalled, as its logs could not be read.
    pub fn is_stalled(&self) -> bool {
        let stalled_until = self.lock().stalled_until;
        let context = self.context.upgrade();
        context.is_some_and(|context| context.clock.now_ms() < stalled_until)
    }

    /// Returns true if a message ended with the run in which it was stored.
    pub(super) fn is_of_ended_run(&self, message: &StoredMessage, stored_by: Epoch, now: Epoch) -> bool {
        let is_kept =
            message.persistent() || self.declared.keeps_transient || self.ownership == LogOwnership::Topic;
        !is_kept && stored_by < now
    }

    /// Ends the hand-out for all consumers, unless `check` fails under the lock. Returns the number of
    /// waiting messages; `None` if it has ended already.
    pub fn end<E>(
        self: &Arc<Self>,
        context: &DeliveryContext,
        check: impl FnOnce(&mut DeliveryState) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let mut inner = self.lock();
        if self.is_ended() {
            return Ok(None);
        }
        inner.look_at_logs(self, context);
        check(&mut inner)?;
        self.is_ended.store(true, Ordering::Release);
        // The next sweep takes its levels out of the totals, and its history.
        if self.is_counting() {
            self.touch(context);
        }
        inner.getters.clear();
        inner.leases = None;
        inner.selections = Vec::new();
        inner.groups = Vec::new();
        inner.wake_searches();
        inner.dead_letters.dismiss();
        inner.read_ahead.clear();
        let tokens = inner.logs.iter_mut().filter_map(LaneLog::take_token);
        context.wakeups.forget(self, tokens);
        let mut unused = Vec::new();
        for (key, link) in std::mem::take(&mut inner.links) {
            inner.state.consumers.remove(key);
            link.outbox.tell(Event::ConsumerGone { token: link.token });
            let count = link.unused_credit();
            unused.extend(link.credit.filter(|_| count > 0).map(|credit| (credit, count)));
        }
        if !unused.is_empty() {
            // Its release wakes other dispatchers, so no lock may be held.
            context.tasks.spawn(async move {
                for (credit, count) in unused {
                    credit.release(count);
                }
            });
        }
        Ok(Some(inner.state.ready()))
    }

    /// Returns the kind and name of the owner, for the log.
    pub(super) fn describe(&self) -> String {
        let owner = self.owner.upgrade();
        owner.map_or_else(|| format!("dispatcher {}", self.id), |owner| owner.describe())
    }
}

impl DeliveryState {
    /// Records a use: the idle time begins anew.
    pub(super) fn note_use(&mut self, context: &DeliveryContext, dispatcher: &Arc<Dispatcher>) {
        self.used_ms = context.clock.now_ms();
        if let Some(at) = self.unused_at() {
            self.wake_at(context, dispatcher, at);
        }
    }

    /// Returns the state, and the changes that its transitions add to.
    #[inline]
    pub fn parts(&mut self) -> (&mut QueueState, &mut Changes) {
        (&mut self.state, &mut self.persistence.changes)
    }

    pub fn has_consumers(&self) -> bool {
        !self.state.consumers.is_empty()
    }

    pub(super) fn wake_searches(&self) {
        if let Some(searches) = &self.searches {
            searches.notify_waiters();
        }
    }

    /// Returns the number of waiting messages.
    pub fn ready(&self) -> u64 {
        self.state.ready()
    }
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatcher")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
