//! A member that polls over HTTP: its heartbeats, its reading and its commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_broker::Broker;
use stafett_groups::consumer::{EPOCH_JOIN, Heartbeat, HeartbeatError, Partition, Partitions};
use stafett_groups::{CommitSender, ConsumerError, GroupError, NewCommit};
use stafett_http::{Code, Problem};
use stafett_journal::Visibility;
use stafett_topics::Topic;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::offsets::readable;
use crate::content::Form;
use crate::records::read::{BYTES, Wanted};
use crate::records::{Reads, RecordShown, position};
use crate::refusals::{self, of_group};

/// Time to give partitions back.
const REBALANCE_MS: u32 = 60_000;
/// Heartbeats of one poll: each may bring another assignment.
const BEATS_MAX: usize = 8;

/// Group and member.
pub(super) type Key = (String, String);

/// State of a member.
#[derive(Debug)]
pub(super) struct Member {
    topics: Vec<Box<str>>,
    begins: Begins,
    client: Box<str>,
    host: Box<str>,
    epoch: i32,
    pub(super) owned: Partitions,
    /// Next offset to read.
    next: BTreeMap<Partition, u64>,
    /// The same, before the last answer.
    before: BTreeMap<Partition, u64>,
    /// Places behind records that were given and are not committed.
    pub(super) given: BTreeMap<Partition, u64>,
    /// Number of the last answer.
    pub(super) answers: u64,
    pub(super) heartbeat_ms: u32,
}

/// Place in partitions without a commit.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Begins {
    #[default]
    Earliest,
    Latest,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GroupRecord")]
pub(super) struct PolledRecord {
    topic: String,
    #[serde(flatten)]
    record: RecordShown,
}

/// Result of a read. It counts as given with the answer: a request may end before.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) records: Vec<PolledRecord>,
    /// Places behind the records.
    behind: BTreeMap<Partition, u64>,
}

impl Member {
    pub(super) fn new(topics: Vec<String>, begins: Begins, client: &str, host: String) -> Self {
        Self {
            topics: topics.into_iter().map(Into::into).collect(),
            begins,
            client: client.into(),
            host: host.into(),
            epoch: EPOCH_JOIN,
            owned: Partitions::default(),
            next: BTreeMap::new(),
            before: BTreeMap::new(),
            given: BTreeMap::new(),
            answers: 0,
            heartbeat_ms: 0,
        }
    }

    /// Goes back to the answer before the last one, if that has not come.
    pub(super) fn answered(&mut self, after: Option<u64>) -> Result<(), Problem> {
        match after {
            None => {}
            Some(after) if after == self.answers => {}
            Some(after) if after.checked_add(1) == Some(self.answers) => {
                self.next.clone_from(&self.before);
                self.given.clear();
                // The next answer takes the place of the lost one, however often it is lost.
                self.answers = after;
            }
            Some(_) => {
                let why = format!("after is the number of the last answer, {}", self.answers);
                return Err(Problem::bad_request(why).with("field", "after"));
            }
        }
        self.before.clone_from(&self.next);
        Ok(())
    }

    /// Reports to the group, and takes its assignment. Returns the partitions that it has no longer.
    pub(super) async fn beat(&mut self, broker: &Broker, key: &Key) -> Result<Vec<Partition>, Problem> {
        let groups = broker.groups();
        let (group, id) = key;
        let mut revoked = Vec::new();
        for _ in 0..BEATS_MAX {
            let joins = self.epoch == EPOCH_JOIN;
            let beat = Heartbeat {
                member: id.as_str().into(),
                epoch: self.epoch,
                client_id: self.client.clone(),
                host: self.host.clone(),
                rebalance_timeout_ms: joins.then_some(REBALANCE_MS),
                names: joins.then(|| self.topics.clone()),
                owned: Some(self.owned.clone()),
                ..Heartbeat::default()
            };
            let stepped = groups.consumer_heartbeat(group, beat);
            let stepped = stepped.map_err(|why| of_heartbeat(&why, key))?;
            let stored = groups.consumer_stored(group, stepped).await;
            let response = stored.map_err(|why| of_member(&why, key))?;
            self.epoch = response.reply.epoch;
            self.heartbeat_ms = response.heartbeat_ms;
            let Some(given) = response.reply.assignment.filter(|given| *given != self.owned) else {
                break;
            };
            let gone = self.owned.as_slice().iter().filter(|one| !given.contains(**one));
            revoked.extend(gone.copied());
            self.owned = given;
            for places in [&mut self.next, &mut self.before, &mut self.given] {
                places.retain(|place, _| self.owned.contains(*place));
            }
        }
        Ok(revoked)
    }

    pub(super) async fn commit_given(&mut self, broker: &Broker, key: &Key) -> Result<usize, Problem> {
        let given = std::mem::take(&mut self.given);
        let committed = self.commit(broker, key, &given).await;
        if let Err(why) = committed {
            self.given = given;
            return Err(why);
        }
        Ok(given.len())
    }

    pub(super) async fn commit(
        &self,
        broker: &Broker,
        key: &Key,
        places: &BTreeMap<Partition, u64>,
    ) -> Result<(), Problem> {
        if places.is_empty() {
            return Ok(());
        }
        let commits = places.iter().map(|(place, offset)| NewCommit {
            topic: place.topic,
            partition: place.index,
            offset: i64::try_from(*offset).unwrap_or(i64::MAX),
            leader_epoch: -1,
            text: None,
        });
        let (group, id) = key;
        let by = CommitSender {
            member: id,
            instance: None,
            epoch: self.epoch,
            is_transactional: false,
        };
        let staged = broker.groups().commit(group, &by, commits.collect());
        let stored = staged.map_err(|why| of_member(&why, key))?.durable().await;
        stored.map_err(|why| refusals::of_storage(why, why))
    }

    /// Reads its partitions; waits for a record where there is none.
    pub(super) async fn read_until(
        &mut self,
        (broker, group): (&Broker, &str),
        reads: &Reads,
        count: usize,
        until: Instant,
        draining: &CancellationToken,
    ) -> Result<Found, Problem> {
        let catalog = broker.catalog();
        let watch = catalog.watch();
        for (topic, place) in self.places(broker)? {
            if let Some(log) = topic.log(place.index) {
                catalog.watch_log(&watch, log, 0);
            }
        }
        loop {
            let found = self.read(broker, group, reads, count).await?;
            if !found.records.is_empty() || Instant::now() >= until || draining.is_cancelled() {
                return Ok(found);
            }
            self.pass(found.behind);
            // At the end of the wait, the logs are read once more.
            let _grown = timeout_at(until, draining.run_until_cancelled(watch.grown())).await;
        }
    }

    /// Returns its partitions. Refuses topics that may not be read any more.
    fn places(&self, broker: &Broker) -> Result<Vec<(Arc<Topic>, Partition)>, Problem> {
        let mut places = Vec::with_capacity(self.owned.len());
        for run in self.owned.by_topic() {
            let topic = run.first().and_then(|one| broker.topics().with_id(one.topic));
            // It was deleted, and the group will say so.
            let Some(topic) = topic else { continue };
            readable(broker, &topic.name)?;
            places.extend(run.iter().map(|one| (Arc::clone(&topic), *one)));
        }
        Ok(places)
    }

    async fn read(
        &mut self,
        broker: &Broker,
        group: &str,
        reads: &Reads,
        count: usize,
    ) -> Result<Found, Problem> {
        let catalog = broker.catalog();
        let mut found = Found::default();
        let mut failed = None;
        let mut places = self.places(broker)?;
        // Each answer begins with another partition.
        let turn = usize::try_from(self.answers).unwrap_or(0);
        let turn = turn.checked_rem(places.len()).unwrap_or(0);
        places.rotate_left(turn);
        for (topic, place) in places {
            let known = topic.log(place.index);
            let Some((log, bounds)) = known.and_then(|log| Some((log, catalog.bounds(log)?))) else {
                continue;
            };
            let end = position::end(bounds, Visibility::Committed);
            let from = self.next.get(&place).copied();
            let from = from.unwrap_or_else(|| match (committed(broker, group, place), self.begins) {
                (Some(offset), _) => offset,
                (None, Begins::Earliest) => bounds.start.0,
                (None, Begins::Latest) => end,
            });
            self.next.entry(place).or_insert(from);
            self.before.entry(place).or_insert(from);
            if from >= end || found.records.len() >= count {
                continue;
            }
            let wanted = Wanted {
                partition: place.index,
                log,
                count: count - found.records.len(),
                bytes: usize::try_from(BYTES).unwrap_or(usize::MAX),
                form: Form::Auto,
                visibility: Visibility::Committed,
            };
            let read = match Box::pin(wanted.read(catalog, &topic, from, reads)).await {
                Ok(read) => read,
                Err(why) => {
                    // A partition that cannot be read does not keep back the others.
                    let is_last = why.code != Code::Unreadable;
                    failed.get_or_insert(why);
                    if is_last {
                        break;
                    }
                    continue;
                }
            };
            if read.next > from {
                found.behind.insert(place, read.next);
            }
            found
                .records
                .extend(read.records.into_iter().map(|record| PolledRecord {
                    topic: topic.name.to_string(),
                    record,
                }));
        }
        match failed {
            Some(why) if found.records.is_empty() => Err(why),
            _ => Ok(found),
        }
    }

    /// Counts an answer with these records, and returns them.
    pub(super) fn give(&mut self, found: Found) -> Vec<PolledRecord> {
        self.answers += 1;
        self.pass(found.behind);
        found.records
    }

    /// Reads on from these places.
    fn pass(&mut self, behind: BTreeMap<Partition, u64>) {
        self.given.extend(&behind);
        self.next.extend(behind);
    }
}

pub(super) fn no_such_member((group, id): &Key) -> Problem {
    let why = format!(
        "group {group:?} has no member {id:?} that polls: it never joined, or was silent for too long"
    );
    Problem::new(Code::NoSuchMember, why)
}

/// Returns the committed offset of a partition.
fn committed(broker: &Broker, group: &str, place: Partition) -> Option<u64> {
    broker.groups().with_group(group, |group| {
        let commits = group?.commits.of_topic(place.topic).iter();
        let mut found = commits.filter(|(index, _)| *index == place.index);
        u64::try_from(found.next()?.1.offset).ok()
    })
}

/// Refuses a member. One that its group has ended is unknown.
fn of_member(error: &GroupError, key: &Key) -> Problem {
    let is_ended = matches!(
        error,
        GroupError::NoSuchGroup
            | GroupError::UnknownMember
            | GroupError::OtherGeneration
            | GroupError::StaleEpoch
    );
    if is_ended {
        no_such_member(key)
    } else {
        of_group(error, &key.0)
    }
}

/// Refuses a heartbeat.
fn of_heartbeat(error: &ConsumerError, key: &Key) -> Problem {
    match error {
        ConsumerError::Group(why) => of_member(why, key),
        ConsumerError::Heartbeat(HeartbeatError::UnknownMember(_) | HeartbeatError::FencedEpoch { .. }) => {
            no_such_member(key)
        }
        ConsumerError::Heartbeat(why @ HeartbeatError::Full(_)) => Problem::new(Code::Overloaded, why),
        ConsumerError::Heartbeat(why) => Problem::new(Code::InUse, why),
    }
}
