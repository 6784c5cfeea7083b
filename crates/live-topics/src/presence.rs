//! Clients, subscriptions and subscribers: counts, and pages of lists.
//!
//! A page is bounded in items, in bytes, and in the entries examined. So a page may be short, or even empty,
//! and not be the last. An item that exists throughout is in exactly one page.

use stafett_routing::live::{IdSet, Pattern};

use super::clients::{ClientName, ClientNumber, Clients, position};
use super::live::Live;
use super::topics::TopicId;

/// First position of patterns in a list of subscriptions: behind all topics.
const PATTERNS_FROM: u64 = 1 << 32;
/// Bytes of names after which a page ends.
const PAGE_BYTES: usize = 1 << 20;
/// Clients examined for one page.
const CLIENTS_AT_ONCE: usize = 100_000;
/// Bound on the patterns listed for a topic.
const PATTERNS_NAMED: usize = 100;

/// Counts of live topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// Clients with subscriptions, or listening.
    pub clients: usize,
    pub listening: usize,
    /// Topics with subscribers.
    pub topics: usize,
    pub subscriptions: usize,
    /// Patterns with subscribers.
    pub patterns: usize,
}

/// A part of a longer list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Position of the next page, if there is one.
    pub next: Option<u64>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            next: None,
        }
    }
}

/// One subscription.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subscription {
    Topic(String),
    Pattern(String),
}

/// A client, with its number of subscriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientPresence {
    pub client: ClientName,
    pub listening: bool,
    pub subscriptions: usize,
}

/// Counts of subscribers of one name or pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Audience {
    pub subscribers: usize,
    pub listening: usize,
}

/// A name, with its number of subscribers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubscriberCount {
    pub name: String,
    pub subscribers: usize,
}

impl Live {
    pub fn presence(&self) -> Presence {
        let clients = self.clients().len();
        let (topics, subscriptions) = self.topics.count();
        Presence {
            clients,
            listening: usize::try_from(self.metrics.listening.get()).unwrap_or(0),
            topics,
            subscriptions,
            patterns: self.patterns().len(),
        }
    }

    /// Returns the bytes of topics, clients and subscriptions in memory, approximately. All of them are
    /// looked at.
    pub fn memory_bytes(&self) -> usize {
        self.topics.heap_bytes() + self.clients().heap_bytes()
    }

    /// Returns a page of a client's subscriptions: topics, then patterns.
    pub fn subscriptions(&self, name: &ClientName, from: u64, count: usize) -> Page<Subscription> {
        let clients = self.clients();
        let mut page = Page::default();
        let Some(client) = clients.find(name).and_then(|number| clients.get(number)) else {
            return page;
        };
        let mut bytes = 0;
        if let Ok(first) = u32::try_from(from) {
            for id in client.topics.from(first, count.saturating_add(1)) {
                if page.items.len() >= count || bytes >= PAGE_BYTES {
                    page.next = Some(u64::from(id));
                    return page;
                }
                page.items.extend(self.topics.name(TopicId(id), |name| {
                    bytes += name.len();
                    Subscription::Topic(name.to_owned())
                }));
            }
        }
        let first = usize::try_from(from.saturating_sub(PATTERNS_FROM)).unwrap_or(usize::MAX);
        for (place, pattern) in client.patterns.iter().enumerate().skip(first) {
            if page.items.len() >= count || bytes >= PAGE_BYTES {
                page.next = Some(PATTERNS_FROM + place as u64);
                break;
            }
            bytes += pattern.text().len();
            page.items.push(Subscription::Pattern(pattern.text().to_owned()));
        }
        page
    }

    /// Returns a client; `None` if it neither listens nor has subscriptions.
    pub fn client(&self, name: &ClientName) -> Option<ClientPresence> {
        let clients = self.clients();
        let number = clients.find(name)?;
        self.page_of(&clients, vec![number.0], 1).items.pop()
    }

    /// Returns a page of all clients.
    pub fn present(&self, from: u64, count: usize) -> Page<ClientPresence> {
        let clients = self.clients();
        let Ok(first) = u32::try_from(from) else {
            return Page::default();
        };
        let (numbers, end) = clients.numbers_from(first, CLIENTS_AT_ONCE);
        let numbers = numbers.take(count.saturating_add(1)).map(|number| number.0);
        let page = self.page_of(&clients, numbers.collect(), count);
        Page {
            next: page.next.or_else(|| end.map(u64::from)),
            ..page
        }
    }

    /// Returns a page of the listening clients.
    pub fn listening(&self, from: u64, count: usize) -> Page<ClientPresence> {
        let clients = self.clients();
        let Ok(first) = u32::try_from(from) else {
            return Page::default();
        };
        let (mut found, mut end) = (Vec::new(), None);
        {
            let listeners = self.listeners();
            let behind = listeners
                .outboxes
                .get(position(ClientNumber(first))..)
                .unwrap_or_default();
            for (looked_at, (number, listener)) in (first..).zip(behind).enumerate() {
                if looked_at == CLIENTS_AT_ONCE {
                    end = Some(u64::from(number));
                    break;
                }
                if listener.is_some() {
                    found.push(number);
                    if found.len() > count {
                        break;
                    }
                }
            }
        }
        let page = self.page_of(&clients, found, count);
        Page {
            next: page.next.or(end),
            ..page
        }
    }

    /// Returns a page of the clients that subscribe to a topic by name.
    pub fn subscribers(&self, topic: &str, from: u64, count: usize) -> Page<ClientPresence> {
        let Ok(first) = u32::try_from(from) else {
            return Page::default();
        };
        let clients = self.clients();
        let ids = self
            .topics
            .subscribers(topic, |ids| ids.from(first, count.saturating_add(1)));
        self.page_of(&clients, ids.unwrap_or_default(), count)
    }

    /// Returns a page of the clients that subscribe to a pattern.
    pub fn pattern_subscribers(&self, pattern: &Pattern, from: u64, count: usize) -> Page<ClientPresence> {
        let Ok(first) = u32::try_from(from) else {
            return Page::default();
        };
        let clients = self.clients();
        let ids = self
            .patterns()
            .subscribers(pattern)
            .map(|ids| ids.from(first, count.saturating_add(1)));
        self.page_of(&clients, ids.unwrap_or_default(), count)
    }

    /// Counts the subscribers of a topic by name.
    pub fn topic_audience(&self, topic: &str) -> Audience {
        let audience = self.topics.subscribers(topic, |ids| self.audience(ids));
        audience.unwrap_or_default()
    }

    /// Counts the subscribers of a pattern.
    pub fn pattern_audience(&self, pattern: &Pattern) -> Audience {
        let patterns = self.patterns();
        let audience = patterns.subscribers(pattern).map(|ids| self.audience(ids));
        audience.unwrap_or_default()
    }

    /// Returns up to 100 patterns that match a topic, sorted by text.
    pub fn patterns_matching(&self, topic: &str) -> Vec<SubscriberCount> {
        let mut found = Vec::new();
        self.patterns().each_matching(topic, |pattern, ids| {
            found.push(SubscriberCount {
                name: pattern.text().to_owned(),
                subscribers: ids.len(),
            });
        });
        found.sort_unstable();
        found.truncate(PATTERNS_NAMED);
        found
    }

    /// Returns a page of topics, with their numbers of subscribers by name.
    pub fn subscribed_topics(&self, from: u64, count: usize) -> Page<SubscriberCount> {
        let (mut items, mut bytes) = (Vec::new(), 0);
        let next = self.topics.each_from(from, |name, subscribers| {
            let has_room = items.len() < count && bytes < PAGE_BYTES;
            if has_room {
                bytes += name.len();
                items.push(SubscriberCount {
                    name: name.to_owned(),
                    subscribers,
                });
            }
            has_room
        });
        Page { items, next }
    }

    fn audience(&self, ids: &IdSet) -> Audience {
        let listeners = self.listeners();
        let mut listening = 0;
        ids.for_each(|id| {
            let listens = matches!(listeners.outboxes.get(position(ClientNumber(id))), Some(Some(_)));
            listening += usize::from(listens);
        });
        Audience {
            subscribers: ids.len(),
            listening,
        }
    }

    fn page_of(&self, clients: &Clients, numbers: Vec<u32>, count: usize) -> Page<ClientPresence> {
        let next = numbers.get(count).map(|number| u64::from(*number));
        let listeners = self.listeners();
        let present = |number: u32| {
            let client = clients.get(ClientNumber(number))?;
            Some(ClientPresence {
                client: client.name.clone(),
                listening: matches!(
                    listeners.outboxes.get(position(ClientNumber(number))),
                    Some(Some(_))
                ),
                subscriptions: client.subscriptions(),
            })
        };
        let items = numbers.into_iter().take(count).filter_map(present).collect();
        Page { items, next }
    }
}
