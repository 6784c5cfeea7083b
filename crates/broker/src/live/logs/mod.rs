//! Logs behind live topics: topics whose names begin with a prefix share a stored topic, and its consumers see each message
//! as a record whose key is the live topic's name.
//!
//! One log for many live topics, not one for each: a name costs nothing until it is published to, any name can be stored,
//! millions of names are read in one sweep, and who reads with a protocol for logs sees one topic of theirs.
//!
//! Delivery is driven by the log: one task per stored topic reads what has become visible and sends it to subscribers, so
//! that whatever was appended by whomever is delivered, in the log's order, with its offset.
//!
//! - [`store`]: from messages to appends
//! - [`entry`]: records as messages
//! - [`follow`]: delivering what has become visible
//! - [`catch_up`]: from an earlier offset to the live stream, without a gap or a double
//! - [`positions`]: where clients were last

mod catch_up;
mod entry;
mod follow;
mod positions;
mod store;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stafett_model::{LogId, Offset};

use crate::broker::Broker;
use crate::definitions::{CreateError, NewTopic};
use crate::live::hub::Live;
use crate::topic::{Topic, TopicSettings};

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

/// The logs behind live topics.
#[derive(Debug, Default)]
pub(crate) struct LiveLogs {
    /// Longest prefix first.
    logs: Vec<LiveLog>,
    partitions: Vec<Partition>,
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
}

/// How far a partition has been delivered, and what is held back meanwhile.
#[derive(Debug)]
struct Follow {
    next: Offset,
    holds: Vec<Hold>,
    last_hold: u64,
}

/// What a client catches up with: these topics are not delivered to it live until it has.
#[derive(Debug)]
pub(crate) struct Hold {
    id: u64,
    client: u32,
    topics: Arc<HashSet<Box<str>>>,
    at: Offset,
}

/// Whether a message to `topic` is held back for a client.
pub(crate) fn is_held(holds: &[Hold], client: u32, topic: &str) -> bool {
    holds
        .iter()
        .any(|hold| hold.client == client && hold.topics.contains(topic))
}

impl LiveLogs {
    /// Makes the stored topics that are not there yet.
    pub(crate) async fn open(broker: &Arc<Broker>, rules: &[LogRule]) -> Result<Self, CreateError> {
        let mut opened = Self::default();
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
                    follow: Mutex::new(Follow {
                        next: end,
                        holds: Vec::new(),
                        last_hold: 0,
                    }),
                });
            }
            opened.logs.push(LiveLog {
                prefix: rule.prefix.clone(),
                partitions: first..opened.partitions.len(),
            });
        }
        opened.logs.sort_by_key(|log| std::cmp::Reverse(log.prefix.len()));
        Ok(opened)
    }

    /// The log behind a topic, if there is one.
    fn behind(&self, topic: &str) -> Option<&LiveLog> {
        self.logs.iter().find(|log| topic.starts_with(&*log.prefix))
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
}
