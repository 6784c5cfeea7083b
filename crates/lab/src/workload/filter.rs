//! The filter of duplicates that a system without one of its own gets before it, after P2 (section 3.1): producers
//! send to a queue that is shared out among filters; each of them asks what all of them have seen, and sends on what is new.
//!
//! What was seen is kept in the lab's own process, where the paper has a cache on another machine: the messages' second way
//! through the system is there, the cache's network is not.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::experiment::{Does, Plan, Role, TopicKind, Topics};

/// Messages that are remembered at most; beyond, the oldest are forgotten.
const REMEMBERED_MAX: usize = 4 << 20;
const FILTERS: u32 = 2;

/// A plan with a filter before every set of topics that wants one and is in a system without; otherwise the plan itself.
pub fn before(plan: &Plan, system: &str) -> Plan {
    let mut filtered = plan.clone();
    for (name, topics) in &plan.topics {
        let has_own = system == "stafett" && topics.kind == TopicKind::Live;
        if topics.filter.is_none() || has_own || topics.kind == TopicKind::Live {
            continue;
        }
        let unfiltered = format!("{name}-unfiltered");
        let uses = |role: &Role| role.topics.as_ref() == Some(name) || role.topics.is_none();
        let mut producer = None;
        for role in filtered.roles.values_mut() {
            if role.does == Does::Produce && uses(role) {
                // Both are named: there are several sets now.
                role.topics = Some(name.clone());
                role.via = Some(unfiltered.clone());
                producer.get_or_insert_with(|| role.clone());
            } else if role.topics.is_none() {
                role.topics = Some(name.clone());
            }
        }
        let Some(producer) = producer else { continue };
        let queue = Topics {
            count: 1,
            partitions: if topics.kind == TopicKind::Queue {
                1
            } else {
                FILTERS
            },
            filter: None,
            zipf: 0.0,
            ..topics.clone()
        };
        filtered.topics.insert(unfiltered.clone(), queue);
        filtered
            .roles
            .insert(format!("{name}-filter"), filter(producer, unfiltered, name));
    }
    filtered
}

/// The plan without what [`before`] put into it: what is told to other programs, which put it in themselves.
pub(crate) fn taken_out(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    let filters = plan.roles.extract_if(.., |_, role| role.does == Does::Filter);
    let queues: Vec<String> = filters.filter_map(|(_, role)| role.topics).collect();
    for queue in queues {
        plan.topics.remove(&queue);
    }
    plan.roles.values_mut().for_each(|role| role.via = None);
    plan
}

/// Who filters, and sends on as the producers send.
fn filter(producer: Role, from: String, to: &str) -> Role {
    Role {
        does: Does::Filter,
        clients: FILTERS,
        topics: Some(from),
        to: Some(to.to_owned()),
        via: None,
        rate: crate::experiment::Rate::Closed,
        window: None,
        duplicates: 0.0,
        copies: 1,
        ahead: None,
        total: None,
        after: None,
        arrive: None,
        kill: None,
        on: Vec::new(),
        ..producer
    }
}

/// What all filters of a role have seen. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Seen {
    window: Duration,
    books: Arc<Mutex<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    /// Until when each is remembered, in nanoseconds since the load began.
    until: HashMap<(u32, u64), u64>,
    /// In the order in which they may be forgotten; what was seen again stands there more than once.
    order: VecDeque<(u64, (u32, u64))>,
}

impl Seen {
    pub fn new(window: Duration) -> Self {
        Self {
            window,
            books: Arc::default(),
        }
    }

    /// Whether a message of a stream is new at `now`; from now on it is not, for as long as the window is. Messages with the
    /// same stream and number have the same content.
    pub fn is_new(&self, stream: u32, sequence: u64, now: u64) -> bool {
        let window = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX);
        let until = now.saturating_add(window);
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        books.forget(now);
        let known = books.until.insert((stream, sequence), until);
        books.order.push_back((until, (stream, sequence)));
        known.is_none()
    }
}

impl Books {
    fn forget(&mut self, now: u64) {
        while let Some((until, key)) = self.order.front().copied() {
            if until > now && self.order.len() < REMEMBERED_MAX {
                return;
            }
            self.order.pop_front();
            if self.until.get(&key).is_some_and(|latest| *latest == until) {
                self.until.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Source;

    #[test]
    fn a_duplicate_within_the_window_begins_it_anew() {
        let seen = Seen::new(Duration::from_nanos(10));
        assert!(seen.is_new(1, 1, 0));
        assert!(!seen.is_new(1, 1, 9));
        assert!(!seen.is_new(1, 1, 18), "the window began anew at 9");
        assert!(seen.is_new(1, 2, 18));
        assert!(seen.is_new(1, 1, 28));
        assert!(seen.is_new(1, 2, 100));
        let books = seen.books.lock().unwrap();
        assert_eq!(
            (books.until.len(), books.order.len()),
            (1, 1),
            "what is over takes no memory"
        );
    }

    #[test]
    fn a_filter_stands_between_producers_and_topics() {
        let text = "question = \"?\"\nsystems = [\"kafka\"]\n[topics.songs]\ncount = 5\nfilter = \"1s\"\n\
                    [roles.p]\ndoes = \"produce\"\n[roles.c]\ndoes = \"consume\"";
        let source = Source {
            place: "x".to_owned(),
            text: text.to_owned(),
        };
        let plan = source.plan(1.0, &std::collections::BTreeMap::new()).unwrap();
        let filtered = before(&plan, "kafka");
        assert_eq!(filtered.roles["p"].via.as_deref(), Some("songs-unfiltered"));
        assert_eq!(filtered.roles["c"].topics.as_deref(), Some("songs"));
        let filter = &filtered.roles["songs-filter"];
        assert_eq!(filter.topics.as_deref(), Some("songs-unfiltered"));
        assert_eq!(filter.to.as_deref(), Some("songs"));
        assert_eq!(filtered.topics["songs-unfiltered"].count, 1);
        let told = taken_out(&filtered);
        assert!(
            told.roles
                .values()
                .all(|role| role.does != Does::Filter && role.via.is_none())
        );
        assert_eq!(before(&told, "kafka"), filtered);
        let without = source_without_filter(&plan);
        assert_eq!(before(&without, "kafka"), without);
    }

    fn source_without_filter(plan: &Plan) -> Plan {
        let mut plan = plan.clone();
        plan.topics.values_mut().for_each(|topics| topics.filter = None);
        plan
    }
}
