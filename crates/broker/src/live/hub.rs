//! The whole of live topics: publishing, listening, presence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use stafett_journal::Journal;
use stafett_model::Offset;
use stafett_routing::live::Patterns;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::clients::{ClientName, ClientNumber, Clients, position};
use super::duplicates::{Duplicates, Seen};
use super::logs::{Follow, LiveLogs, Mark, Positions, Staged};
use super::message::{Encoded, Message};
use super::metrics::LiveMetrics;
use super::outbox::Outbox;
use super::settings::LiveSettings;
use super::topics::{TopicId, TopicShards};

/// Clients share turns by their numbers.
const TURNS: usize = 256;
/// Where patterns begin in a list of subscriptions: behind all topics.
const PATTERNS_FROM: u64 = 1 << 32;

#[derive(Debug)]
pub struct Live {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) settings: LiveSettings,
    pub(crate) topics: TopicShards,
    patterns: RwLock<Patterns>,
    any_patterns: AtomicBool,
    clients: RwLock<Clients>,
    /// By client number: who listens.
    listeners: RwLock<Vec<Option<Arc<Outbox>>>>,
    duplicates: Duplicates,
    /// One permit each: held by who changes what a client has, until that is stored.
    pub(crate) turns: Box<[Semaphore]>,
    /// The logs behind them, once they are open.
    pub(crate) logs: OnceLock<LiveLogs>,
    pub(crate) positions: Positions,
    /// Changes that are under way, and deliveries from logs.
    pub(crate) changes: TaskTracker,
    /// Deliveries from logs end.
    pub(crate) ended: CancellationToken,
    started: Instant,
    pub(crate) metrics: Arc<LiveMetrics>,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// It went to so many who listen.
    To(usize),
    Duplicate,
    /// It is to be stored, with others, and is delivered then.
    Staged,
}

/// There are as many clients as there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {0} clients, which is the most that there may be")]
pub struct TooManyClients(pub usize);

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// With subscriptions, or listening.
    pub clients: usize,
    pub listening: usize,
    /// Topics that somebody subscribes to.
    pub topics: usize,
    pub subscriptions: usize,
}

/// A part of a longer list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// From where the next page begins, if there is one.
    pub next: Option<u64>,
}

/// One subscription.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subscription {
    Topic(String),
    Pattern(String),
}

/// A client, and whether it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    pub client: ClientName,
    pub listening: bool,
}

impl Live {
    pub(crate) fn empty(journal: Arc<dyn Journal>, settings: LiveSettings) -> Self {
        let duplicates = Duplicates::new(settings.duplicates.clone(), settings.duplicates_max);
        Self {
            journal,
            settings,
            topics: TopicShards::default(),
            patterns: RwLock::default(),
            any_patterns: AtomicBool::new(false),
            clients: RwLock::default(),
            listeners: RwLock::default(),
            duplicates,
            turns: (0..TURNS).map(|_| Semaphore::new(1)).collect(),
            logs: OnceLock::new(),
            positions: Positions::default(),
            changes: TaskTracker::new(),
            ended: CancellationToken::new(),
            started: Instant::now(),
            metrics: Arc::default(),
        }
    }

    pub fn metrics(&self) -> &Arc<LiveMetrics> {
        &self.metrics
    }

    /// Sends a message to whoever subscribes to its topic and listens; if there is a log behind the topic, it is added to
    /// what is staged for [`Live::store`].
    pub fn publish(&self, message: Message<'_>, staged: &mut Staged) -> Published {
        self.metrics.published.inc();
        if self.duplicates.is_on() {
            let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            match self.duplicates.see(&message, now_ms) {
                Seen::New => {}
                Seen::NewForgetting(count) => {
                    self.metrics.duplicates_forgotten.inc_by(count as u64);
                }
                Seen::Duplicate => {
                    self.metrics.duplicates.inc();
                    return Published::Duplicate;
                }
            }
        }
        if let Some(logs) = self.logs.get()
            && logs.stage(&message, now_ms(), staged)
        {
            return Published::Staged;
        }
        let receivers = self.fan_out(message, None);
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

    /// Puts a message into outboxes; of one from a log it is said which partition it is from, and who is behind.
    pub(crate) fn fan_out(&self, message: Message<'_>, log: Option<(usize, &Follow)>) -> usize {
        let mut encoded = Encoded::new(message);
        let mut receivers = 0;
        let mut deliver = |listeners: &[Option<Arc<Outbox>>], client: u32| {
            if let Some(Some(outbox)) = listeners.get(position(ClientNumber(client))) {
                if log.is_some_and(|(_, follow)| follow.is_held(client, outbox, message.topic)) {
                    return;
                }
                let mark = log.zip(message.offset).map(|((place, _), offset)| Mark {
                    client,
                    place,
                    offset: Offset(offset),
                });
                let form = encoded.form(outbox.format());
                receivers += usize::from(outbox.push(form, mark));
            }
        };
        if !self.any_patterns.load(Ordering::Acquire) {
            self.topics.subscribers(message.topic, |subscribers| {
                let listeners = self.listeners();
                subscribers.for_each(|client| deliver(&listeners, client));
            });
            return receivers;
        }
        // Who subscribes to the name and to patterns gets it once.
        let mut clients = Vec::new();
        self.topics.subscribers(message.topic, |subscribers| {
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

    /// Lets a client listen with an outbox. If it listened with another one, that is told and gets nothing more.
    pub fn listen(&self, name: &ClientName, outbox: &Arc<Outbox>) -> Result<ClientNumber, TooManyClients> {
        let number = {
            let mut clients = self.clients_mut();
            if clients.len() >= self.settings.clients_max && clients.find(name).is_none() {
                return Err(TooManyClients(clients.len()));
            }
            let number = clients.find_or_add(name);
            clients.pin(number);
            number
        };
        let before = self.take_place(number, outbox);
        match before {
            // It keeps the pin.
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

    /// Delivers to `outbox` what is for a client from now on; gives the outbox to which it went before.
    fn take_place(&self, number: ClientNumber, outbox: &Arc<Outbox>) -> Option<Arc<Outbox>> {
        let logs = self.logs.get();
        let mut still = logs.map(LiveLogs::stand_still);
        let place = position(number);
        let before = {
            let mut listeners = self.listeners_mut();
            if listeners.len() <= place {
                listeners.resize(place + 1, None);
            }
            listeners.get_mut(place)?.replace(Arc::clone(outbox))
        };
        let is_new = before.as_ref().is_none_or(|before| !Arc::ptr_eq(before, outbox));
        let mut left = None;
        if let Some((logs, still)) = logs.zip(still.as_mut()).filter(|_| is_new) {
            left = before
                .as_ref()
                .map(|before| self.leave_logs(logs, still, number, before, true));
            let now: Vec<Offset> = still.iter().map(|follow| follow.next()).collect();
            self.positions.on_listen(number, &now);
        }
        drop((still, left));
        before
    }

    /// Ends that a client listens with this outbox; if it listens with another one by now, nothing changes. `is_gone` says that
    /// what was taken out of the outbox and is not known to be sent will not be.
    pub fn leave(&self, number: ClientNumber, outbox: &Arc<Outbox>, is_gone: bool) {
        let logs = self.logs.get();
        let mut still = logs.map(LiveLogs::stand_still);
        let is_here = {
            let mut listeners = self.listeners_mut();
            let slot = listeners.get_mut(position(number));
            let slot = slot.filter(|slot| slot.as_ref().is_some_and(|current| Arc::ptr_eq(current, outbox)));
            slot.is_some_and(|slot| slot.take().is_some())
        };
        let mut left = None;
        if let Some((logs, still)) = logs.zip(still.as_mut()).filter(|_| is_here) {
            left = Some(self.leave_logs(logs, still, number, outbox, is_gone));
        }
        drop((still, left));
        if is_here {
            self.metrics.listening.dec();
            self.clients_mut().unpin(number);
        }
        outbox.on_left();
    }

    pub(crate) fn is_listening(&self, number: ClientNumber, outbox: &Arc<Outbox>) -> bool {
        let listeners = self.listeners();
        let current = listeners.get(position(number)).and_then(Option::as_ref);
        current.is_some_and(|current| Arc::ptr_eq(current, outbox))
    }

    /// A page of what a client subscribes to: topics, then patterns.
    pub fn subscriptions(&self, name: &ClientName, from: u64, count: usize) -> Page<Subscription> {
        let clients = self.clients();
        let Some(client) = clients.find(name).and_then(|number| clients.get(number)) else {
            return Page {
                items: Vec::new(),
                next: None,
            };
        };
        let mut items = Vec::new();
        let mut next = None;
        if let Ok(first) = u32::try_from(from) {
            let ids = client.topics.from(first, count.saturating_add(1));
            next = ids.get(count).map(|id| u64::from(*id));
            for id in ids.into_iter().take(count) {
                items.extend(
                    self.topics
                        .name(TopicId(id), |name| Subscription::Topic(name.to_owned())),
                );
            }
        }
        if next.is_none() {
            let first = usize::try_from(from.saturating_sub(PATTERNS_FROM)).unwrap_or(usize::MAX);
            let left = count - items.len().min(count);
            let patterns = client.patterns.iter().skip(first);
            items.extend(
                patterns
                    .take(left)
                    .map(|pattern| Subscription::Pattern(pattern.text().to_owned())),
            );
            let behind = first.saturating_add(left);
            next = (behind < client.patterns.len()).then_some(PATTERNS_FROM + behind as u64);
        }
        Page { items, next }
    }

    /// A page of those who subscribe to a topic by its name.
    pub fn subscribers(&self, topic: &str, from: u64, count: usize) -> Page<Present> {
        let Ok(first) = u32::try_from(from) else {
            return Page {
                items: Vec::new(),
                next: None,
            };
        };
        let clients = self.clients();
        let ids = self
            .topics
            .subscribers(topic, |ids| ids.from(first, count.saturating_add(1)));
        self.page_of(&clients, ids.unwrap_or_default(), count)
    }

    /// A page of all clients.
    pub fn present(&self, from: u64, count: usize) -> Page<Present> {
        let clients = self.clients();
        let numbers = clients
            .numbers()
            .skip_while(|number| u64::from(number.0) < from)
            .take(count.saturating_add(1))
            .map(|number| number.0)
            .collect();
        self.page_of(&clients, numbers, count)
    }

    fn page_of(&self, clients: &Clients, numbers: Vec<u32>, count: usize) -> Page<Present> {
        let next = numbers.get(count).map(|number| u64::from(*number));
        let listeners = self.listeners();
        let present = |number: u32| {
            let client = clients.get(ClientNumber(number))?;
            Some(Present {
                client: client.name.clone(),
                listening: matches!(listeners.get(position(ClientNumber(number))), Some(Some(_))),
            })
        };
        let items = numbers.into_iter().take(count).filter_map(present).collect();
        Page { items, next }
    }

    /// How many subscribe to a topic by its name, and how many of them listen.
    pub fn topic_presence(&self, topic: &str) -> (usize, usize) {
        let count = self.topics.subscribers(topic, |ids| {
            let listeners = self.listeners();
            let mut listening = 0;
            ids.for_each(|id| {
                let listens = matches!(listeners.get(position(ClientNumber(id))), Some(Some(_)));
                listening += usize::from(listens);
            });
            (ids.len(), listening)
        });
        count.unwrap_or_default()
    }

    pub fn presence(&self) -> Presence {
        let clients = self.clients().len();
        let (topics, subscriptions) = self.topics.count();
        Presence {
            clients,
            listening: usize::try_from(self.metrics.listening.get()).unwrap_or(0),
            topics,
            subscriptions,
        }
    }

    pub(crate) fn clients(&self) -> RwLockReadGuard<'_, Clients> {
        self.clients.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clients_mut(&self) -> RwLockWriteGuard<'_, Clients> {
        self.clients.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> RwLockReadGuard<'_, Vec<Option<Arc<Outbox>>>> {
        self.listeners.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners_mut(&self) -> RwLockWriteGuard<'_, Vec<Option<Arc<Outbox>>>> {
        self.listeners.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a client has a pattern that matches a topic.
    pub(crate) fn has_pattern_for(&self, topic: &str, number: ClientNumber) -> bool {
        if !self.any_patterns.load(Ordering::Acquire) {
            return false;
        }
        let mut found = false;
        self.patterns()
            .matching(topic, |subscribers| found |= subscribers.contains(number.0));
        found
    }

    fn patterns(&self) -> RwLockReadGuard<'_, Patterns> {
        self.patterns.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `edit` change the patterns.
    pub(crate) fn edit_patterns<R>(&self, edit: impl FnOnce(&mut Patterns) -> R) -> R {
        let mut patterns = self.patterns.write().unwrap_or_else(PoisonError::into_inner);
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

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
