//! All consumers, of queues and of stored topics, with whose they are: listed without a part in their work,
//! and cancelled.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_delivery::{ConsumerState, Dispatcher, WeakConsumer};
use stafett_model::{Lock, Namespace};
use stafett_queue::consumers::ConsumerKey;
use stafett_topics::TopicId;

use crate::queues::QueueId;
use crate::readers::WeakReader;

/// Entries that are copied under one lock.
const PAGE: usize = 1000;

/// Origin of a consumer's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConsumerSource {
    Queue(QueueId),
    Topic(TopicId),
}

/// Description of a consumer, by the front end that made it.
#[derive(Debug, Clone)]
pub struct ConsumerFacts {
    /// Id of the connection.
    pub connection: u64,
    /// Number of the channel on it.
    pub channel: u16,
    /// Name that the client knows it by.
    pub name: ByteString,
    pub source: ConsumerSource,
    pub namespace: Namespace,
    /// Name of the queue or topic.
    pub source_name: ByteString,
    pub settles: bool,
    pub exclusive: bool,
    pub priority: i32,
    /// Bound on its messages in flight; `None` for no bound.
    pub credit: Option<u32>,
    /// Arguments in the format of the front end.
    pub arguments: Bytes,
}

/// A consumer in the list.
#[derive(Debug)]
pub struct ConsumerEntry {
    /// Unique in this run of the broker.
    pub id: u64,
    pub facts: ConsumerFacts,
    holder: ConsumerHolder,
}

/// A consumer that may have ended.
#[derive(Debug)]
pub enum ConsumerHolder {
    Queue(WeakConsumer),
    Reader(WeakReader),
}

impl ConsumerEntry {
    /// Returns its present state. `None` if it has ended.
    pub fn state(&self) -> Option<ConsumerState> {
        match &self.holder {
            ConsumerHolder::Queue(consumer) => consumer.state(),
            ConsumerHolder::Reader(reader) => reader.state(),
        }
    }

    /// Returns true if this is the consumer of a queue with this key.
    pub fn is(&self, dispatcher: &Arc<Dispatcher>, key: ConsumerKey) -> bool {
        match &self.holder {
            ConsumerHolder::Queue(consumer) => consumer.is(dispatcher, key),
            ConsumerHolder::Reader(_) => false,
        }
    }

    /// Ends the consumer and tells its client. Messages that wait for it return to their places; those that
    /// it has stay in flight until it settles them or its channel ends. Returns false if it has ended.
    pub fn cancel(&self) -> bool {
        match &self.holder {
            ConsumerHolder::Queue(consumer) => consumer.cancel(),
            ConsumerHolder::Reader(reader) => reader.cancel(),
        }
    }
}

/// The list of consumers.
#[derive(Debug, Default)]
pub struct Consumers(Lock<Table>);

#[derive(Debug, Default)]
struct Table {
    last_id: u64,
    by_id: BTreeMap<u64, Arc<ConsumerEntry>>,
    by_source: HashMap<ConsumerSource, BTreeSet<u64>>,
}

impl Consumers {
    /// Adds a consumer, which is listed as long as the returned value lives.
    pub fn add(self: &Arc<Self>, facts: ConsumerFacts, holder: ConsumerHolder) -> ListedConsumer {
        let mut table = self.0.lock();
        table.last_id += 1;
        let id = table.last_id;
        table.by_source.entry(facts.source).or_default().insert(id);
        let entry = Arc::new(ConsumerEntry { id, facts, holder });
        table.by_id.insert(id, entry);
        ListedConsumer {
            id,
            consumers: Arc::clone(self),
        }
    }

    pub fn get(&self, id: u64) -> Option<Arc<ConsumerEntry>> {
        self.0.lock().by_id.get(&id).cloned()
    }

    pub fn len(&self) -> usize {
        self.0.lock().by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the consumers of a queue or topic, the oldest first.
    pub fn of(&self, source: ConsumerSource) -> Vec<Arc<ConsumerEntry>> {
        let table = self.0.lock();
        let ids = table.by_source.get(&source).into_iter().flatten();
        ids.filter_map(|id| table.by_id.get(id).cloned()).collect()
    }

    /// Returns all consumers by id. The list is locked for some at a time.
    pub fn all(&self) -> Vec<Arc<ConsumerEntry>> {
        let mut all: Vec<Arc<ConsumerEntry>> = Vec::new();
        loop {
            let after = all.last().map_or(0, |last| last.id);
            let table = self.0.lock();
            let behind = table.by_id.range((Bound::Excluded(after), Bound::Unbounded));
            let known = all.len();
            all.extend(behind.take(PAGE).map(|(_, entry)| Arc::clone(entry)));
            if all.len() < known + PAGE {
                return all;
            }
        }
    }
}

/// Lists a consumer until it is dropped.
#[derive(Debug)]
pub struct ListedConsumer {
    id: u64,
    consumers: Arc<Consumers>,
}

impl Drop for ListedConsumer {
    fn drop(&mut self) {
        let mut table = self.consumers.0.lock();
        let Some(entry) = table.by_id.remove(&self.id) else {
            return;
        };
        if let Some(ids) = table.by_source.get_mut(&entry.facts.source) {
            ids.remove(&self.id);
            if ids.is_empty() {
                table.by_source.remove(&entry.facts.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(source: ConsumerSource) -> ConsumerFacts {
        ConsumerFacts {
            connection: 1,
            channel: 1,
            name: ByteString::default(),
            source,
            namespace: Namespace::default(),
            source_name: ByteString::default(),
            settles: true,
            exclusive: false,
            priority: 0,
            credit: None,
            arguments: Bytes::new(),
        }
    }

    #[test]
    fn consumers_are_found_by_id_and_by_source_until_they_end() {
        let consumers = Arc::<Consumers>::default();
        let queue = |id| ConsumerSource::Queue(QueueId(id));
        let add = |id| consumers.add(facts(queue(id)), ConsumerHolder::Queue(WeakConsumer::ended()));
        let mut listed: Vec<_> = (0..2500).map(|n| add(n % 2)).collect();
        let ids = |all: Vec<Arc<ConsumerEntry>>| all.iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(consumers.all()), (1..=2500).collect::<Vec<_>>());
        assert_eq!(ids(consumers.of(queue(1))).first(), Some(&2));
        assert_eq!(consumers.of(queue(1)).len(), 1250);
        let first = consumers.get(1).unwrap();
        assert!(first.state().is_none() && !first.cancel(), "it has ended");
        listed.truncate(1);
        assert_eq!((ids(consumers.all()), consumers.of(queue(1)).len()), (vec![1], 0));
        listed.clear();
        assert!(consumers.is_empty() && consumers.0.lock().by_source.is_empty());
    }
}
