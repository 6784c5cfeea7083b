//! The filter of duplicates that a system without one of its own gets before it, after P2 (section 3.1):
//! producers send to a queue that is shared out among filters; each of them asks a memory of all
//! of them, and sends on new messages.
//!
//! The memory is in the lab's own process, where the paper has a cache on another machine: the
//! messages' second way through the system is there, the cache's network is not.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use stafett_model::Lock;

use crate::experiment::{Does, Plan, Role, TopicKind, Topics};

/// Messages of a stream that are remembered together: most come about in their order.
const BLOCK: u64 = 64;
const PLACES: usize = 64;
/// Blocks that are remembered at most, some 40 MB; beyond, the oldest are forgotten.
const BLOCKS_MAX: usize = 1 << 16;
const FILTERS: u32 = 2;

/// A plan with a filter before every set of topics that wants one and is in a system without; otherwise the
/// plan itself.
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

/// Returns the plan without the additions of [`before`], for other programs, which make them themselves.
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

/// Returns the role that filters, and sends on as the producers send.
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

/// Messages that the filters of a role have seen. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SeenMessages {
    window: Duration,
    books: Arc<Lock<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    /// By stream and number of the block.
    blocks: BTreeMap<(u32, u64), Block>,
    /// In the order in which they were begun, and may be forgotten.
    order: VecDeque<(u32, u64)>,
    /// Blocks that were forgotten before their time.
    forgotten: u64,
}

#[derive(Debug)]
struct Block {
    /// Until when each message is remembered, in nanoseconds since the load began; 0 of one that was not
    /// seen.
    until: Box<[u64; PLACES]>,
    /// Of the one that is remembered longest.
    latest: u64,
}

impl SeenMessages {
    pub fn new(window: Duration) -> Self {
        Self {
            window,
            books: Arc::default(),
        }
    }

    /// Returns true if a message of a stream is new at `now`, and remembers it for as long as the window is.
    /// Messages with the same stream and number have the same content.
    pub fn is_new(&self, stream: u32, sequence: u64, now: u64) -> bool {
        let window = u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX);
        let until = now.saturating_add(window);
        let mut books = self.books.lock();
        books.forget(now);
        let key = (stream, sequence / BLOCK);
        if !books.blocks.contains_key(&key) {
            books.order.push_back(key);
        }
        let block = books.blocks.entry(key).or_insert_with(|| Block {
            until: Box::new([0; PLACES]),
            latest: 0,
        });
        block.latest = block.latest.max(until);
        let place = usize::try_from(sequence % BLOCK).unwrap_or(0);
        let known = block.until.get_mut(place);
        known.is_none_or(|known| std::mem::replace(known, until) <= now)
    }

    /// Returns true if some were forgotten before their time.
    pub fn is_overrun(&self) -> bool {
        let books = self.books.lock();
        books.forgotten > 0
    }
}

impl Books {
    fn forget(&mut self, now: u64) {
        while let Some(key) = self.order.front() {
            let is_over = self.blocks.get(key).is_none_or(|block| block.latest <= now);
            if !is_over && self.order.len() < BLOCKS_MAX {
                return;
            }
            self.forgotten += u64::from(!is_over);
            self.blocks.remove(key);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Source;

    #[test]
    fn a_duplicate_within_the_window_begins_it_anew() {
        let seen = SeenMessages::new(Duration::from_nanos(10));
        assert!(seen.is_new(1, 1, 0));
        assert!(!seen.is_new(1, 1, 9));
        assert!(!seen.is_new(1, 1, 18), "the window began anew at 9");
        assert!(seen.is_new(1, 2, 18));
        assert!(seen.is_new(2, 1, 18), "another stream's");
        assert!(seen.is_new(1, 1, 28));
        assert!(seen.is_new(1, 2, 100));
        let books = seen.books.lock();
        assert_eq!(
            (books.blocks.len(), books.order.len()),
            (1, 1),
            "what is over takes no memory"
        );
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_passing_it_is_said() {
        let seen = SeenMessages::new(Duration::from_secs(1));
        let all = BLOCK * BLOCKS_MAX as u64;
        for sequence in (0..all + BLOCK).step_by(PLACES) {
            assert!(seen.is_new(1, sequence, 5));
        }
        assert!(seen.is_overrun());
        assert!(seen.is_new(1, 0, 6), "it was forgotten");
        assert!(!seen.is_new(1, all, 6));
        let books = seen.books.lock();
        assert!(books.order.len() <= BLOCKS_MAX && books.blocks.len() == books.order.len());
    }

    #[test]
    fn a_filter_stands_between_producers_and_topics() {
        let text = "question = \"?\"\nsystems = [\"kafka\"]\n[topics.songs]\ncount = 5\nfilter = \"1s\"\n\
                    [roles.p]\ndoes = \"produce\"\n[roles.c]\ndoes = \"consume\"";
        let source = Source::new("x", text);
        let plan = source.plan(1.0, &BTreeMap::new()).unwrap();
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
