//! Logs behind live topics: topics whose names begin with a prefix share a stored topic, and its consumers see each message
//! as a record whose key is the live topic's name.
//!
//! One log for many live topics, not one for each: a name costs nothing until it is published to, any name can be stored,
//! millions of names are read in one sweep, and who reads with a protocol for logs sees one topic of theirs.
//!
//! Delivery is driven by the log: one task per stored topic reads what has become visible and sends it to subscribers, so
//! that whatever was appended by whomever is delivered, in the log's order, with its offset.
//!
//! Locks: those of all partitions, in their order → positions → topics → listeners → outbox; under none of them that of the
//! clients is taken.
//!
//! - [`store`]: from messages to appends
//! - [`entry`]: records as messages
//! - [`follow`]: delivering what has become visible
//! - [`catch_up`]: from an earlier offset to the live stream, without a gap or a double
//! - [`behind`]: who is behind, and with what
//! - [`index`]: which stretches of a log have messages to a topic
//! - [`positions`]: where clients were last

mod behind;
mod catch_up;
mod entry;
mod follow;
mod index;
mod positions;
mod store;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stafett_model::{LogId, Offset};
use tokio::sync::Semaphore;

use crate::broker::Broker;
use crate::definitions::{CreateError, NewTopic};
use crate::live::clients::ClientNumber;
use crate::live::hub::Live;
use crate::live::outbox::Outbox;
use crate::topic::{Topic, TopicSettings};
use index::Index;

use behind::Behind;
pub(crate) use behind::Follow;
pub use catch_up::From;
pub use positions::Mark;
pub(crate) use positions::Positions;
pub use store::Staged;

/// Live topics whose names begin with `prefix` are stored in the stored topic `topic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRule {
    pub prefix: Box<str>,
    pub topic: Box<str>,
    /// If it has to be created.
    pub partitions: u32,
}

/// Readings for clients that catch up, at once: what one of them finds out for the index serves the others.
const READINGS: usize = 4;
/// Topics that the indexes of all partitions remember, each where it is: 4 bytes.
const INDEX_ENTRIES_MAX: usize = 16 << 20;

/// The logs behind live topics.
#[derive(Debug)]
pub(crate) struct LiveLogs {
    /// Longest prefix first.
    logs: Vec<LiveLog>,
    partitions: Vec<Partition>,
    readings: Semaphore,
    /// Of topics in indexes.
    hash: RandomState,
}

#[derive(Debug)]
struct LiveLog {
    prefix: Box<str>,
    /// Its partitions among those of all.
    partitions: std::ops::Range<usize>,
}

/// A partition of a stored topic.
#[derive(Debug)]
pub(crate) struct Partition {
    topic: Arc<Topic>,
    number: u32,
    log: LogId,
    follow: Mutex<Follow>,
    index: Mutex<Index>,
}

impl LiveLogs {
    /// Makes the stored topics that are not there yet.
    pub(crate) async fn open(broker: &Arc<Broker>, rules: &[LogRule]) -> Result<Self, CreateError> {
        let mut opened = Self {
            logs: Vec::new(),
            partitions: Vec::new(),
            readings: Semaphore::new(READINGS),
            hash: RandomState::new(),
        };
        for rule in rules {
            let topic = match broker.topics().named(&rule.topic) {
                Some(topic) => topic,
                None => create(broker, rule).await?,
            };
            let first = opened.partitions.len();
            for number in 0..topic.partitions() {
                let Some(log) = topic.log(number) else { continue };
                let end = broker.bounds(log).map_or(Offset::ZERO, |bounds| bounds.end);
                opened.partitions.push(Partition {
                    topic: Arc::clone(&topic),
                    number,
                    log,
                    follow: Mutex::new(Follow::new(end)),
                    index: Mutex::default(),
                });
            }
            opened.logs.push(LiveLog {
                prefix: rule.prefix.clone(),
                partitions: first..opened.partitions.len(),
            });
        }
        opened.logs.sort_by_key(|log| std::cmp::Reverse(log.prefix.len()));
        let share = INDEX_ENTRIES_MAX / opened.partitions.len().max(1);
        for partition in &opened.partitions {
            partition.index().set_max(share);
        }
        Ok(opened)
    }

    /// The log behind a topic, if there is one.
    fn behind(&self, topic: &str) -> Option<&LiveLog> {
        self.logs.iter().find(|log| topic.starts_with(&*log.prefix))
    }

    /// Stands for a topic in an index.
    fn short_hash(&self, topic: &str) -> u32 {
        let hash = self.hash.hash_one(topic);
        u32::try_from(hash >> 32).unwrap_or(u32::MAX)
    }

    /// Nothing is delivered from any log while the caller has this.
    pub(crate) fn stand_still(&self) -> Vec<MutexGuard<'_, Follow>> {
        self.partitions.iter().map(Partition::follow).collect()
    }
}

async fn create(broker: &Arc<Broker>, rule: &LogRule) -> Result<Arc<Topic>, CreateError> {
    let new = NewTopic {
        name: rule.topic.clone(),
        partitions: Some(rule.partitions),
        settings: TopicSettings::default(),
    };
    match broker.create_topics(vec![new]).await.pop() {
        Some(created) => created,
        None => Err(CreateError::Changing),
    }
}

impl Live {
    /// Remembers where a client is that listens with `outbox` no more, and takes back what it was not given. What is given back
    /// may be much, and is to be dropped without the locks.
    pub(crate) fn leave_logs(
        &self,
        logs: &LiveLogs,
        still: &mut [MutexGuard<'_, Follow>],
        client: ClientNumber,
        outbox: &Outbox,
        is_gone: bool,
    ) -> Vec<Behind> {
        let mut at: Vec<Offset> = still.iter().map(|follow| follow.position(client.0)).collect();
        for mark in outbox.forget(client, is_gone) {
            if let Some(at) = at.get_mut(mark.place) {
                *at = mark.offset.min(*at);
            }
        }
        self.positions.on_left(&*self.journal, logs, client, &at);
        let forget = |follow: &mut MutexGuard<'_, Follow>| follow.forget(client.0);
        still.iter_mut().filter_map(forget).collect()
    }

    pub(crate) fn open_logs(self: &Arc<Self>, logs: LiveLogs) {
        let count = logs.logs.len();
        if self.logs.set(logs).is_ok() {
            for log in 0..count {
                drop(self.changes.spawn(Arc::clone(self).follow(log)));
            }
        }
    }
}

impl Partition {
    fn follow(&self) -> MutexGuard<'_, Follow> {
        self.follow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
