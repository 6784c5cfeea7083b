//! Logs behind live topics: topics whose names begin with a prefix share a stored topic, and its consumers
//! see each message as a record whose key is the live topic's name.
//!
//! One log for many live topics, not one for each: a name costs nothing until it is published to, any name
//! can be stored, millions of names are read in one sweep, and who reads with a protocol for logs sees one
//! topic of theirs.
//!
//! Delivery is driven by the log: one task per stored topic reads what has become visible and sends it to
//! subscribers, so that whatever was appended by whomever is delivered, in the log's order, with its offset.
//!
//! The rules may change while the broker runs. Then another [`LiveLogs`] takes the place of the one before;
//! partitions keep their places in it, and are followed up to the end of the process, so that what is on its
//! way through a log arrives.
//!
//! Locks: logs → those of all partitions, in their order → positions → topics → listeners → outbox; under
//! none of them that of the clients is taken.
//!
//! - [`store`]: from messages to appends
//! - [`entry`]: records as messages
//! - [`follow`]: delivering what has become visible
//! - [`catch_up`]: from an earlier offset to the live stream, without a gap or a double
//! - [`behind`]: who is behind, and with what
//! - [`index`]: which stretches of a log have messages to a topic
//! - [`positions`]: where clients were last
//! - [`missed`]: what they do not get

mod behind;
mod catch_up;
mod entry;
mod follow;
mod index;
mod missed;
mod positions;
mod store;

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, RwLockReadGuard};

use stafett_journal::Journal;
use stafett_model::{Lock, LogId, Offset};
use stafett_topics::Topic;
use tokio::sync::Semaphore;

use crate::clients::ClientNumber;
use crate::hub::Live;
use crate::outbox::Outbox;
use behind::Behind;
use index::Index;

pub(crate) use behind::Follow;
pub use catch_up::From;
pub use missed::{Missed, MissedWhy};
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

/// The logs behind live topics, as the rules in force have them.
#[derive(Debug)]
pub(crate) struct LiveLogs {
    /// Longest prefix first.
    rules: Vec<LiveLog>,
    /// Those of all rules that there were.
    partitions: Vec<Arc<Partition>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct LiveLog {
    prefix: Box<str>,
    /// The places of its partitions among those of all.
    partitions: Arc<[usize]>,
}

/// What stays when rules change.
#[derive(Debug)]
struct Shared {
    readings: Semaphore,
    /// Of topics in indexes.
    hash: RandomState,
}

/// A partition of a stored topic.
#[derive(Debug)]
pub(crate) struct Partition {
    topic: Arc<Topic>,
    number: u32,
    log: LogId,
    /// What lies before this is not delivered but to those who catch up.
    opened: Offset,
    follow: Lock<Follow>,
    index: Lock<Index>,
}

impl LiveLogs {
    /// What follows `before` under other rules, and the places of the partitions that are new in it, of each
    /// stored topic.
    fn after(
        before: Option<&Self>,
        rules: Vec<(LogRule, Arc<Topic>)>,
        journal: &dyn Journal,
    ) -> (Self, Vec<Vec<usize>>) {
        let shared = || Shared {
            readings: Semaphore::new(READINGS),
            hash: RandomState::new(),
        };
        let mut after = Self {
            rules: Vec::with_capacity(rules.len()),
            partitions: before.map_or_else(Vec::new, |before| before.partitions.clone()),
            shared: before.map_or_else(|| Arc::new(shared()), |before| Arc::clone(&before.shared)),
        };
        let mut begun = Vec::new();
        for (rule, topic) in rules {
            let known = after.partitions.len();
            let partitions = (0..topic.partitions()).filter_map(|number| {
                let log = topic.log(number)?;
                Some(after.place_of(&topic, number, log, journal))
            });
            let partitions = partitions.collect();
            begun.push((known..after.partitions.len()).collect());
            after.rules.push(LiveLog {
                prefix: rule.prefix,
                partitions,
            });
        }
        after
            .rules
            .sort_by_key(|rule| std::cmp::Reverse(rule.prefix.len()));
        let share = INDEX_ENTRIES_MAX / after.partitions.len().max(1);
        for partition in &after.partitions {
            partition.index().set_max(share);
        }
        begun.retain(|places: &Vec<usize>| !places.is_empty());
        (after, begun)
    }

    /// The place of a partition, which is there from now on: however many rules lead to it, it is one.
    fn place_of(&mut self, topic: &Arc<Topic>, number: u32, log: LogId, journal: &dyn Journal) -> usize {
        let known = self.partitions.iter().position(|known| known.log == log);
        known.unwrap_or_else(|| {
            let end = journal.bounds(log).map_or(Offset::ZERO, |bounds| bounds.end);
            self.partitions.push(Arc::new(Partition {
                topic: Arc::clone(topic),
                number,
                log,
                opened: end,
                follow: Lock::new(Follow::new(end)),
                index: Lock::default(),
            }));
            self.partitions.len() - 1
        })
    }

    /// The log behind a topic, if there is one.
    fn behind(&self, topic: &str) -> Option<&LiveLog> {
        self.rules.iter().find(|log| topic.starts_with(&*log.prefix))
    }

    /// Stands for a topic in an index.
    fn short_hash(&self, topic: &str) -> u32 {
        let hash = self.shared.hash.hash_one(topic);
        u32::try_from(hash >> 32).unwrap_or(u32::MAX)
    }

    /// Nothing is delivered from any log while the caller has this.
    pub(crate) fn stand_still(&self) -> Vec<MutexGuard<'_, Follow>> {
        self.partitions
            .iter()
            .map(|partition| partition.follow())
            .collect()
    }
}

impl Live {
    /// Remembers where a client is that listens with `outbox` no more, and takes back what it was not given.
    /// What is given back may be much, and is to be dropped without the locks.
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

    /// Puts other rules in force. What is on its way through a log whose rule is gone is still delivered.
    pub fn set_logs(self: &Arc<Self>, rules: Vec<(LogRule, Arc<Topic>)>) {
        let mut current = self.logs.write();
        if current.is_none() && rules.is_empty() {
            return;
        }
        let (after, begun) = LiveLogs::after(current.as_deref(), rules, &*self.journal);
        let after = Arc::new(after);
        *current = Some(Arc::clone(&after));
        // Those who publish look at this alone.
        self.logs_version.fetch_add(1, Ordering::Release);
        drop(current);
        for places in begun {
            drop(
                self.changes
                    .spawn(Arc::clone(self).follow(Arc::clone(&after), places)),
            );
        }
    }

    /// The logs behind live topics, if there ever was a rule.
    pub(crate) fn logs(&self) -> Option<Arc<LiveLogs>> {
        self.logs_in_force().clone()
    }

    /// The same, which stay in force while the caller has this.
    pub(crate) fn logs_in_force(&self) -> RwLockReadGuard<'_, Option<Arc<LiveLogs>>> {
        self.logs.read()
    }
}

impl Partition {
    fn follow(&self) -> MutexGuard<'_, Follow> {
        self.follow.lock()
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }
}
