//! Topics by name, each with its subscribers. A topic exists as long as it has a subscriber.
//!
//! A topic takes 64 bytes with its name, if that has at most 46, and 11 to 21 in the index: a look-up reads
//! two cache lines. The caller hashes the name, since it may keep several tables and choose one by the upper
//! half of the hash; the lower half is used here.

use super::hash_index::HashIndex;
use super::name::Name;
use super::set::IdSet;
use crate::cache_prefetch;

/// Index of a topic in its table. Reused after the topic is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

#[derive(Debug, Default)]
pub struct TopicTable {
    by_name: HashIndex,
    topics: Vec<Option<Topic>>,
    free: Vec<u32>,
    subscriptions: usize,
}

/// Aligned to fill exactly one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Topic {
    name: Name,
    subscribers: IdSet,
}

impl Topic {
    fn name(&self) -> &str {
        self.name.text()
    }
}

impl TopicTable {
    /// Adds a subscription, and the topic if it is the first. True if the subscription is new.
    pub fn subscribe(&mut self, hash: u64, name: &str, client: u32) -> (Slot, bool) {
        if let Some(slot) = self.find(hash, name) {
            let topic = self.topic_mut(slot);
            let added = topic.is_some_and(|topic| topic.subscribers.insert(client));
            self.subscriptions += usize::from(added);
            return (slot, added);
        }
        let mut subscribers = IdSet::default();
        subscribers.insert(client);
        let topic = Some(Topic {
            name: Name::new(name),
            subscribers,
        });
        let index = if let Some(index) = self.free.pop() {
            if let Some(place) = self.topics.get_mut(position(index)) {
                *place = topic;
            }
            index
        } else {
            self.topics.push(topic);
            u32::try_from(self.topics.len() - 1).expect("there are fewer topics than numbers")
        };
        self.by_name.insert(lower(hash), index);
        self.subscriptions += 1;
        (Slot(index), true)
    }

    /// Removes a subscription, and the topic with its last one. `None` if there was no such subscription.
    pub fn unsubscribe(&mut self, hash: u64, name: &str, client: u32) -> Option<Slot> {
        let slot = self.find(hash, name)?;
        let topic = self.topic_mut(slot)?;
        if !topic.subscribers.remove(client) {
            return None;
        }
        let is_last = topic.subscribers.is_empty();
        self.subscriptions -= 1;
        if is_last {
            self.forget(hash, slot);
        }
        Some(slot)
    }

    /// Prefetches the index entry of a hash, so that [`TopicTable::prefetch_topic`] waits less.
    pub fn prefetch(&self, hash: u64) {
        self.by_name.prefetch(lower(hash));
    }

    /// Prefetches the topic of a hash, so that a look-up waits less. With colliding hashes it may prefetch
    /// another topic.
    pub fn prefetch_topic(&self, hash: u64) {
        let topic = self.by_name.find(lower(hash), |_| true);
        if let Some(topic) = topic.and_then(|index| self.topics.get(position(index))) {
            cache_prefetch::prefetch(topic);
        }
    }

    /// Returns the subscribers of a topic; `None` if there are none.
    pub fn subscribers(&self, hash: u64, name: &str) -> Option<&IdSet> {
        self.find(hash, name)
            .and_then(|slot| self.topic(slot))
            .map(|topic| &topic.subscribers)
    }

    /// Returns the slot of a topic.
    pub fn find(&self, hash: u64, name: &str) -> Option<Slot> {
        let is_it = |index: u32| {
            let topic = self.topics.get(position(index)).and_then(Option::as_ref);
            topic.is_some_and(|topic| topic.name.is(name))
        };
        self.by_name.find(lower(hash), is_it).map(Slot)
    }

    pub fn name(&self, slot: Slot) -> Option<&str> {
        self.topic(slot).map(Topic::name)
    }

    /// Iterates over the topics from slot `first` up to `end`, in slot order.
    pub fn from(&self, first: Slot, end: Slot) -> impl Iterator<Item = (Slot, &str, &IdSet)> {
        let places = position(first.0).min(self.topics.len())..position(end.0).min(self.topics.len());
        let topics = self.topics.get(places).unwrap_or_default();
        (first.0..).zip(topics).filter_map(|(slot, topic)| {
            let topic = topic.as_ref()?;
            Some((Slot(slot), topic.name(), &topic.subscribers))
        })
    }

    /// Returns the end of the slots, including those of removed topics.
    pub fn end(&self) -> Slot {
        Slot(u32::try_from(self.topics.len()).unwrap_or(u32::MAX))
    }

    /// Returns the number of topics.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.len() == 0
    }

    /// Returns the bytes on the heap, approximately: those of long names are left out.
    pub fn heap_bytes(&self) -> usize {
        let sets = self
            .topics
            .iter()
            .flatten()
            .map(|topic| topic.subscribers.heap_bytes());
        self.topics.capacity() * size_of::<Option<Topic>>()
            + self.by_name.heap_bytes()
            + self.free.capacity() * size_of::<u32>()
            + sets.sum::<usize>()
    }

    /// Returns the number of subscriptions to all topics.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    fn topic(&self, slot: Slot) -> Option<&Topic> {
        self.topics.get(position(slot.0)).and_then(Option::as_ref)
    }

    fn topic_mut(&mut self, slot: Slot) -> Option<&mut Topic> {
        self.topics.get_mut(position(slot.0)).and_then(Option::as_mut)
    }

    fn forget(&mut self, hash: u64, slot: Slot) {
        self.by_name.remove(lower(hash), slot.0);
        if let Some(place) = self.topics.get_mut(position(slot.0)) {
            *place = None;
        }
        if self.is_empty() {
            *self = Self::default();
        } else {
            self.free.push(slot.0);
        }
    }
}

fn lower(hash: u64) -> u32 {
    u32::try_from(hash & u64::from(u32::MAX)).unwrap_or(0)
}

fn position(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::hash::{DefaultHasher, Hash, Hasher};

    use proptest::prelude::*;

    use super::*;

    fn hash(name: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn a_topic_is_one_line_of_the_cache() {
        assert_eq!(
            (size_of::<Option<Topic>>(), align_of::<Option<Topic>>()),
            (64, 64)
        );
    }

    #[test]
    fn a_topic_is_gone_with_its_last_subscriber() {
        let mut table = TopicTable::default();
        let (slot, _) = table.subscribe(hash("a"), "a", 1);
        table.subscribe(hash("a"), "a", 2);
        assert_eq!(table.unsubscribe(hash("a"), "a", 1), Some(slot));
        assert_eq!(table.unsubscribe(hash("a"), "a", 1), None);
        assert_eq!(table.name(slot), Some("a"));
        table.unsubscribe(hash("a"), "a", 2);
        assert_eq!((table.name(slot), table.len()), (None, 0));
    }

    proptest! {
        #[test]
        fn it_knows_what_a_plain_map_knows(
            changes in proptest::collection::vec((any::<bool>(), 0..40_u32, 0..30_u32), 0..400),
        ) {
            let mut table = TopicTable::default();
            let mut model: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
            for (subscribe, topic, client) in changes {
                let name = format!("topic {topic}");
                if subscribe {
                    let (slot, added) = table.subscribe(hash(&name), &name, client);
                    prop_assert_eq!(added, model.entry(name.clone()).or_default().insert(client));
                    prop_assert_eq!(table.name(slot), Some(&*name));
                } else {
                    let removed = table.unsubscribe(hash(&name), &name, client).is_some();
                    let known = model.get_mut(&name).is_some_and(|clients| clients.remove(&client));
                    prop_assert_eq!(removed, known);
                    model.retain(|_, clients| !clients.is_empty());
                }
                prop_assert_eq!(table.len(), model.len());
            }
            prop_assert_eq!(table.subscriptions(), model.values().map(BTreeSet::len).sum::<usize>());
            let listed: BTreeMap<String, usize> = table
                .from(Slot(0), table.end())
                .map(|(_, name, subscribers)| (name.to_owned(), subscribers.len()))
                .collect();
            let expected = model.iter().map(|(name, clients)| (name.clone(), clients.len()));
            prop_assert_eq!(listed, expected.collect());
            for (name, clients) in &model {
                table.prefetch(hash(name));
                table.prefetch_topic(hash(name));
                let mut found = Vec::new();
                table.subscribers(hash(name), name).unwrap().for_each(|client| found.push(client));
                found.sort_unstable();
                prop_assert_eq!(found, clients.iter().copied().collect::<Vec<_>>());
            }
        }
    }
}
