//! Logs behind live topics: topics with a common prefix share a stored topic, whose consumers see each
//! message as a record with the live topic's name as its key.
//!
//! There is one log for many live topics, not one for each: a name costs nothing until it is published to,
//! any name can be stored, millions of names are read in one sweep, and consumers of log protocols see a
//! single topic.
//!
//! Delivery is driven by the log: one task per stored topic reads newly visible records and sends them to
//! subscribers. So records of any producer are delivered, in the log's order, with their offsets.
//!
//! The rules may change at run time. Then a new [`LiveLogs`] replaces the previous one. Partitions keep their
//! places in it, and are followed until the process ends, so that messages in transit through a log arrive.
//!
//! Lock order: logs → progress locks of all partitions, by place → positions → topics → listeners → outbox;
//! the clients' lock is not taken under any of them.
//!
//! - [`append`]: messages to appends
//! - [`record`]: records to messages
//! - [`follow`]: delivery of newly visible messages
//! - [`catch_up`]: from an earlier offset to the live stream, without gaps or duplicates
//! - [`crate::log_state`]: known clients, their positions and the logs

mod append;
mod catch_up;
mod follow;
mod record;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use stafett_journal::Journal;
use stafett_model::{Lock, LockGuard, LogId, Offset, ReadGuard};
use stafett_topics::{Topic, TopicId};
use tokio::sync::Semaphore;

use crate::clients::ClientNumber;
use crate::live::Live;
use crate::log_state::{Backlog, Index, PartitionProgress};
use crate::outbox::Outbox;

pub use append::PendingAppends;
pub use catch_up::{HeldSubscription, StartFrom};

/// Rule that live topics whose names begin with `prefix` are stored in the stored topic `topic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRule {
    pub prefix: Box<str>,
    pub topic: Box<str>,
    /// Number of partitions if the topic has to be created.
    pub partitions: u32,
}

/// Bound on concurrent readings for clients that catch up: the index learnt by one serves the others.
const READINGS: usize = 4;
/// Bound on the entries of the indexes of all partitions, one per topic in a stretch, 4 bytes each.
const INDEX_ENTRIES_MAX: usize = 16 << 20;

/// Logs behind live topics under the current rules.
#[derive(Debug)]
pub(crate) struct LiveLogs {
    /// Rules, longest prefix first.
    rules: Vec<LiveLog>,
    /// Partitions of all rules that ever were in force.
    pub(crate) partitions: Vec<Arc<Partition>>,
    limits: Arc<CatchUpLimits>,
}

#[derive(Debug)]
struct LiveLog {
    prefix: Box<str>,
    /// Places of its partitions in [`LiveLogs::partitions`].
    partitions: Arc<[usize]>,
}

/// State that outlives changes of the rules.
#[derive(Debug)]
struct CatchUpLimits {
    readings: Semaphore,
    /// Hash of topics in indexes.
    hash: RandomState,
}

/// A partition of a stored topic.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) topic: Arc<Topic>,
    pub(crate) number: u32,
    log: LogId,
    /// End of the log when it was opened: earlier records are delivered only to clients that catch up.
    pub(crate) opened: Offset,
    progress: Lock<PartitionProgress>,
    index: Lock<Index>,
}

impl LiveLogs {
    /// Returns the successor of `before` under other rules, and the places of its new partitions, by stored
    /// topic.
    fn after(
        before: Option<&Self>,
        rules: Vec<(LogRule, Arc<Topic>)>,
        journal: &dyn Journal,
    ) -> (Self, Vec<Vec<usize>>) {
        let limits = || CatchUpLimits {
            readings: Semaphore::new(READINGS),
            hash: RandomState::new(),
        };
        let mut after = Self {
            rules: Vec::with_capacity(rules.len()),
            partitions: before.map_or_else(Vec::new, |before| before.partitions.clone()),
            limits: before.map_or_else(|| Arc::new(limits()), |before| Arc::clone(&before.limits)),
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

    /// Returns the place of a partition, which is added if it is unknown. Several rules may lead to it.
    fn place_of(&mut self, topic: &Arc<Topic>, number: u32, log: LogId, journal: &dyn Journal) -> usize {
        let known = self.partitions.iter().position(|known| known.log == log);
        known.unwrap_or_else(|| {
            let end = journal.bounds(log).map_or(Offset::ZERO, |bounds| bounds.stable);
            self.partitions.push(Arc::new(Partition {
                topic: Arc::clone(topic),
                number,
                log,
                opened: end,
                progress: Lock::new(PartitionProgress::new(end)),
                index: Lock::default(),
            }));
            self.partitions.len() - 1
        })
    }

    /// Returns the log behind a topic, if any.
    fn behind(&self, topic: &str) -> Option<&LiveLog> {
        self.rules.iter().find(|log| topic.starts_with(&*log.prefix))
    }

    /// Returns the hash of a topic in an index.
    fn short_hash(&self, topic: &str) -> u32 {
        let hash = self.limits.hash.hash_one(topic);
        u32::try_from(hash >> 32).unwrap_or(u32::MAX)
    }

    /// Locks all partitions: no log delivers anything while the caller holds the guards.
    pub(crate) fn pause_delivery(&self) -> Vec<LockGuard<'_, PartitionProgress>> {
        self.partitions
            .iter()
            .map(|partition| partition.progress())
            .collect()
    }
}

impl Live {
    /// Records the position of a client that no longer listens with `outbox`, and takes back its unsent
    /// messages. The returned state may be large and should be dropped without the locks.
    pub(crate) fn leave_logs(
        &self,
        logs: &LiveLogs,
        still: &mut [LockGuard<'_, PartitionProgress>],
        client: ClientNumber,
        outbox: &Outbox,
        is_gone: bool,
    ) -> Vec<Backlog> {
        let mut at: Vec<Offset> = still.iter().map(|progress| progress.position(client.0)).collect();
        for log_position in outbox.forget(client, is_gone) {
            if let Some(at) = at.get_mut(log_position.place()) {
                *at = log_position.offset.min(*at);
            }
        }
        self.positions.on_left(&*self.journal, logs, client, &at);
        let forget = |progress: &mut LockGuard<'_, PartitionProgress>| progress.forget(client.0);
        still.iter_mut().filter_map(forget).collect()
    }

    /// Replaces the rules. Messages in transit through a log whose rule is gone are still delivered.
    pub fn set_logs(self: &Arc<Self>, rules: Vec<(LogRule, Arc<Topic>)>) {
        let mut current = self.logs.write();
        if current.is_none() && rules.is_empty() {
            return;
        }
        let (after, begun) = LiveLogs::after(current.as_deref(), rules, &*self.journal);
        let after = Arc::new(after);
        *current = Some(Arc::clone(&after));
        // Publishers check this alone.
        self.logs_version.fetch_add(1, Ordering::Release);
        drop(current);
        for places in begun {
            drop(
                self.changes
                    .spawn(Arc::clone(self).follow(Arc::clone(&after), places)),
            );
        }
    }

    /// Returns the prefixes of the live topics whose messages go through a stored topic.
    pub fn prefixes_over(&self, topic: TopicId) -> Vec<Box<str>> {
        let logs = self.logs();
        let rules = logs.iter().flat_map(|logs| {
            let is_over = |rule: &&LiveLog| {
                let first = rule
                    .partitions
                    .first()
                    .and_then(|place| logs.partitions.get(*place));
                first.is_some_and(|partition| partition.topic.id == topic)
            };
            logs.rules.iter().filter(is_over)
        });
        rules.map(|rule| rule.prefix.clone()).collect()
    }

    /// Returns the logs behind live topics, if there ever was a rule.
    pub(crate) fn logs(&self) -> Option<Arc<LiveLogs>> {
        self.logs_in_force().clone()
    }

    /// Returns the logs, which stay in force while the caller holds the guard.
    pub(crate) fn logs_in_force(&self) -> ReadGuard<'_, Option<Arc<LiveLogs>>> {
        self.logs.read()
    }
}

impl Partition {
    fn progress(&self) -> LockGuard<'_, PartitionProgress> {
        self.progress.lock()
    }

    fn index(&self) -> LockGuard<'_, Index> {
        self.index.lock()
    }
}
