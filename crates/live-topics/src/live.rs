//! Live topics: publishing, and listening.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stafett_journal::Journal;
use stafett_model::{Offset, ReadGuard, SharedLock, WriteGuard};
use stafett_routing::live::Patterns;
use stafett_store::{Clock, wall_ms};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::clients::{ClientName, ClientNumber, Clients, position};
use super::duplicates::{DuplicateCheck, DuplicateRule, Duplicates};
use super::filters::{ClientFilters, Filter, FilterError, Filters, Verdicts};
use super::log_delivery::{LiveLogs, PendingAppends};
use super::log_state::{LogPosition, PartitionProgress, Positions};
use super::message::{Encoded, Message};
use super::metrics::LiveMetrics;
use super::outbox::Outbox;
use super::settings::LiveSettings;
use super::topics::{TopicHash, TopicShards};

/// Number of turns, shared by clients by their numbers.
const TURNS: usize = 256;

#[derive(Debug)]
pub struct Live {
    pub(crate) journal: Arc<dyn Journal>,
    pub settings: LiveSettings,
    pub(crate) topics: TopicShards,
    patterns: SharedLock<Patterns>,
    any_patterns: AtomicBool,
    clients: SharedLock<Clients>,
    listeners: SharedLock<Listeners>,
    filters: Filters,
    duplicates: Duplicates,
    /// Turns, a semaphore of one permit each: held by the change of a client until it is stored.
    pub(crate) turns: Box<[Semaphore]>,
    /// Logs behind live topics, if there ever was a rule.
    pub(crate) logs: SharedLock<Option<Arc<LiveLogs>>>,
    /// Number of changes of the log rules; 0 if there never was one.
    pub(crate) logs_version: AtomicU64,
    pub(crate) positions: Positions,
    /// Changes in progress, and deliveries from logs.
    pub(crate) changes: TaskTracker,
    /// Cancelled to end deliveries from logs.
    pub(crate) ended: CancellationToken,
    clock: Arc<Clock>,
    pub(crate) metrics: Arc<LiveMetrics>,
}

/// Listening clients, by client number.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    pub(crate) outboxes: Vec<Option<Arc<Outbox>>>,
    pub(crate) filters: ClientFilters,
}

/// Outcome of a publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Delivered to this many listening clients.
    To(usize),
    Duplicate,
    /// To be stored, together with others, and delivered afterwards.
    Staged,
}

/// The bound on the number of clients is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {0} clients, which is the most that there may be")]
pub struct TooManyClients(pub usize);

impl Live {
    pub(crate) fn empty(journal: Arc<dyn Journal>, settings: LiveSettings, clock: Arc<Clock>) -> Self {
        let duplicates = Duplicates::new(settings.duplicates.clone(), settings.duplicates_max);
        Self {
            journal,
            settings,
            topics: TopicShards::default(),
            patterns: SharedLock::default(),
            any_patterns: AtomicBool::new(false),
            clients: SharedLock::default(),
            listeners: SharedLock::default(),
            filters: Filters::default(),
            duplicates,
            turns: (0..TURNS).map(|_| Semaphore::new(1)).collect(),
            logs: SharedLock::default(),
            logs_version: AtomicU64::new(0),
            positions: Positions::default(),
            changes: TaskTracker::new(),
            ended: CancellationToken::new(),
            clock,
            metrics: Arc::default(),
        }
    }

    pub fn metrics(&self) -> &Arc<LiveMetrics> {
        &self.metrics
    }

    /// Replaces the rules of the duplicate filter.
    pub fn change_duplicates(&self, rules: Vec<DuplicateRule>, entries_max: usize) {
        self.duplicates.change(rules, entries_max);
    }

    /// Sends a message to the listening subscribers of its topic. If a log lies behind the topic, the message
    /// is added to `staged` for [`Live::store`] instead.
    pub fn publish(&self, message: Message<'_>, staged: &mut PendingAppends) -> Published {
        let hash = self.topics.hash(message.topic);
        self.publish_prefetched(hash, message, staged)
    }

    /// Prefetches the look-up of a topic that is published to soon. A caller with several messages calls this
    /// for all their topics, then [`Live::prefetch_entry`] for each, and then publishes: so cache misses
    /// overlap.
    pub fn prefetch(&self, topic: &str) -> TopicHash {
        let hash = self.topics.hash(topic);
        self.topics.prefetch(hash);
        hash
    }

    /// Continues the prefetch of [`Live::prefetch`].
    pub fn prefetch_entry(&self, hash: TopicHash) {
        self.topics.prefetch_entry(hash);
    }

    /// Publishes like [`Live::publish`], with the hash of the message's topic.
    pub fn publish_prefetched(
        &self,
        hash: TopicHash,
        message: Message<'_>,
        staged: &mut PendingAppends,
    ) -> Published {
        self.metrics.published.inc();
        if self.duplicates.is_on() {
            match self.duplicates.see(&message, self.clock.elapsed_ms()) {
                DuplicateCheck::New => {}
                DuplicateCheck::NewForgetting(count) => {
                    self.metrics.duplicates_forgotten.inc_by(count as u64);
                }
                DuplicateCheck::Duplicate => {
                    self.metrics.duplicates.inc();
                    return Published::Duplicate;
                }
            }
        }
        if self.stage(&message, wall_ms, staged) {
            return Published::Staged;
        }
        let receivers = self.fan_out(hash, message, None);
        self.count_delivered(receivers);
        Published::To(receivers)
    }

    pub(crate) fn count_delivered(&self, receivers: usize) {
        if receivers == 0 {
            self.metrics.unheard.inc();
        } else {
            self.metrics.delivered.inc_by(receivers as u64);
        }
    }

    /// Puts a message into outboxes. For a message from a log, `log` is its partition, and the clients that
    /// are behind there are skipped.
    pub(crate) fn fan_out(
        &self,
        hash: TopicHash,
        message: Message<'_>,
        log: Option<(usize, &PartitionProgress)>,
    ) -> usize {
        let mut encoded = Encoded::new(message);
        let mut verdicts = Verdicts::new(&message, &self.metrics);
        let mut receivers = 0;
        let mut deliver = |listeners: &Listeners, client: u32| {
            if let Some(Some(outbox)) = listeners.outboxes.get(position(ClientNumber(client))) {
                if log.is_some_and(|(_, progress)| progress.is_held(client, outbox, message.topic)) {
                    return;
                }
                if !outbox.admits(message.topic) {
                    return;
                }
                let filter = listeners.filters.get(ClientNumber(client));
                if filter.is_some_and(|filter| !verdicts.admits(filter)) {
                    return;
                }
                let log_position = log
                    .zip(message.offset)
                    .map(|((place, _), offset)| LogPosition::new(client, place, Offset(offset), hash));
                let form = encoded.form(outbox.format());
                receivers += usize::from(outbox.push(form, log_position));
            }
        };
        if !self.any_patterns.load(Ordering::Acquire) {
            self.topics.subscribers_of(hash, message.topic, |subscribers| {
                let listeners = self.listeners();
                subscribers.for_each(|client| deliver(&listeners, client));
            });
            return receivers;
        }
        // A client that subscribes to the name and to patterns gets the message once.
        let mut clients = Vec::new();
        self.topics.subscribers_of(hash, message.topic, |subscribers| {
            subscribers.for_each(|client| clients.push(client));
        });
        let exact = clients.len();
        self.patterns().matching(message.topic, |subscribers| {
            subscribers.for_each(|client| clients.push(client));
        });
        if clients.len() > exact {
            clients.sort_unstable();
            clients.dedup();
        }
        let listeners = self.listeners();
        for client in clients {
            deliver(&listeners, client);
        }
        receivers
    }

    /// Lets a client listen with an outbox. An outbox that it listened with before is notified and gets
    /// nothing more.
    pub fn listen(&self, name: &ClientName, outbox: &Arc<Outbox>) -> Result<ClientNumber, TooManyClients> {
        self.listen_filtered(name, outbox, None)
    }

    /// Returns a filter for [`Live::listen_filtered`].
    pub fn filter(&self, source: &str) -> Result<Arc<Filter>, FilterError> {
        self.filters.get(source, self.settings.filters_max)
    }

    /// Lets a client listen like [`Live::listen`]; it gets the messages for which the filter is true.
    pub fn listen_filtered(
        &self,
        name: &ClientName,
        outbox: &Arc<Outbox>,
        filter: Option<Arc<Filter>>,
    ) -> Result<ClientNumber, TooManyClients> {
        let number = {
            let mut clients = self.clients_mut();
            if clients.len() >= self.settings.clients_max && clients.find(name).is_none() {
                return Err(TooManyClients(clients.len()));
            }
            let number = clients.find_or_add(name);
            clients.pin(number);
            number
        };
        let before = self.register_listener(number, outbox, filter);
        match before {
            // The listening client keeps the pin.
            None => {
                self.metrics.listening.inc();
            }
            Some(before) => {
                self.clients_mut().unpin(number);
                if !Arc::ptr_eq(&before, outbox) {
                    self.metrics.taken_over.inc();
                    before.on_taken_over(name.clone());
                    before.on_left();
                }
            }
        }
        Ok(number)
    }

    /// Directs a client's messages to `outbox` from now on; returns the previous outbox.
    fn register_listener(
        &self,
        number: ClientNumber,
        outbox: &Arc<Outbox>,
        filter: Option<Arc<Filter>>,
    ) -> Option<Arc<Outbox>> {
        let logs = self.logs_in_force();
        let logs = logs.as_deref();
        let mut still = logs.map(LiveLogs::pause_delivery);
        let place = position(number);
        let before = {
            let mut listeners = self.listeners_mut();
            if listeners.outboxes.len() <= place {
                listeners.outboxes.resize(place + 1, None);
            }
            listeners.filters.set(number, filter);
            listeners.outboxes.get_mut(place)?.replace(Arc::clone(outbox))
        };
        let is_new = before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, outbox));
        let mut left = None;
        if let Some((logs, still)) = logs.zip(still.as_mut()).filter(|_| is_new) {
            left = before
                .as_ref()
                .map(|before| self.leave_logs(logs, still, number, before, false));
            let now: Vec<Offset> = still.iter().map(|progress| progress.next()).collect();
            self.positions.on_listen(number, &now);
        }
        drop((still, left));
        before
    }

    /// Ends a client's listening with this outbox; no effect if it listens with another one by now. `is_gone`
    /// is true if nothing more is written to its connection.
    pub fn leave(&self, number: ClientNumber, outbox: &Arc<Outbox>, is_gone: bool) {
        if self.unregister_listener(number, outbox, is_gone) {
            self.metrics.listening.dec();
            self.clients_mut().unpin(number);
        }
        outbox.on_left();
    }

    fn unregister_listener(&self, number: ClientNumber, outbox: &Arc<Outbox>, is_gone: bool) -> bool {
        let logs = self.logs_in_force();
        let logs = logs.as_deref();
        let mut still = logs.map(LiveLogs::pause_delivery);
        let is_here = {
            let mut listeners = self.listeners_mut();
            let slot = listeners.outboxes.get_mut(position(number));
            let slot = slot.filter(|slot| slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, outbox)));
            let is_here = slot.is_some_and(|slot| slot.take().is_some());
            if is_here {
                listeners.filters.set(number, None);
            }
            is_here
        };
        let mut left = None;
        if let Some((logs, still)) = logs.zip(still.as_mut()).filter(|_| is_here) {
            left = Some(self.leave_logs(logs, still, number, outbox, is_gone));
        }
        drop((still, left));
        is_here
    }

    /// Returns the outbox that a client listens with.
    pub(crate) fn listener(&self, number: ClientNumber) -> Option<Arc<Outbox>> {
        self.listeners().outboxes.get(position(number)).cloned().flatten()
    }

    pub(crate) fn is_listening(&self, number: ClientNumber, outbox: &Arc<Outbox>) -> bool {
        let listeners = self.listeners();
        let current = listeners.outboxes.get(position(number)).and_then(Option::as_ref);
        current.is_some_and(|current| Arc::ptr_eq(current, outbox))
    }

    pub(crate) fn clients(&self) -> ReadGuard<'_, Clients> {
        self.clients.read()
    }

    pub(crate) fn clients_mut(&self) -> WriteGuard<'_, Clients> {
        self.clients.write()
    }

    pub(crate) fn listeners(&self) -> ReadGuard<'_, Listeners> {
        self.listeners.read()
    }

    fn listeners_mut(&self) -> WriteGuard<'_, Listeners> {
        self.listeners.write()
    }

    /// Returns the number of a client's patterns that match a topic.
    pub(crate) fn patterns_for(&self, topic: &str, number: ClientNumber) -> usize {
        if !self.any_patterns.load(Ordering::Acquire) {
            return 0;
        }
        let mut count = 0;
        self.patterns().matching(topic, |subscribers| {
            count += usize::from(subscribers.contains(number.0));
        });
        count
    }

    pub(crate) fn patterns(&self) -> ReadGuard<'_, Patterns> {
        self.patterns.read()
    }

    /// Changes the patterns with `edit`.
    pub(crate) fn edit_patterns<R>(&self, edit: impl FnOnce(&mut Patterns) -> R) -> R {
        let mut patterns = self.patterns.write();
        let edited = edit(&mut patterns);
        self.any_patterns.store(!patterns.is_empty(), Ordering::Release);
        edited
    }

    pub(crate) fn count_subscriptions(&self) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (topics, subscriptions) = self.topics.count();
        self.metrics.topics.set(gauge(topics));
        self.metrics.subscriptions.set(gauge(subscriptions));
    }
}
