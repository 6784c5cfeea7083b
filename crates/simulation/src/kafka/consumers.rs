//! Members of groups whose partitions the broker assigns (KIP-848): they report, give back, commit, and leave
//! or fall silent.
//!
//! A member owns a partition from the answer that assigns it until the report without it. While its reports
//! are answered in time, no other member may be given the partition.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use stafett_kafka_wire::messages::consumer_group_heartbeat::{Assignment, RequestTopicPartitions};
use stafett_kafka_wire::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, OffsetCommitRequest,
};
use stafett_kafka_wire::{Str, Uuid};

use super::Known;
use super::commits::{Commits, PlaceKey};
use super::connection::Connection;
use super::group_steps::{COMMITS, GroupStep, STALE_EVERY};
use super::groups::{CLASSIC_GROUPS, code, commit_request};
use crate::server::Server;
use crate::world::{Finding, World};

/// Number of members that the broker assigns partitions to. They are in turn in two groups.
pub(super) const CONSUMERS: u8 = 4;
/// Milliseconds after which the broker removes a silent member.
pub const SESSION_MS: u64 = 10_000;
/// Milliseconds that a member has to give partitions back.
const REBALANCE_MS: i32 = 3_000;
/// Milliseconds that a member takes to give partitions back, by its number.
const GIVING_BACK_MS: [i64; 4] = [0, 0, 150, 1_000];
/// Version of heartbeats with patterns.
const VERSION: i16 = 1;
/// Version of commits with member epochs.
const COMMIT_VERSION: i16 = 9;

/// A partition of a topic.
pub(super) type Owned = (Uuid, i32);

/// A member.
#[derive(Debug, Clone)]
pub(super) struct Consumer {
    pub(super) number: u8,
    /// Number of earlier members in its place.
    lives: u32,
    connection: Option<Connection>,
    waiting: VecDeque<Asked>,
    /// True while it wants to be in its group.
    pub(super) is_in: bool,
    /// Epoch of its last answer; 0 joins.
    epoch: i32,
    /// Partitions that it consumes, each with the lowest epoch since which it may.
    pub(super) owned: BTreeMap<Owned, i32>,
    /// Partitions to give back, and the time.
    giving_back: Option<(i64, BTreeSet<Owned>)>,
    /// True if its next report has to name its partitions.
    is_changed: bool,
    /// True if an answer may have been lost.
    has_missed: bool,
    report_ms: i64,
    heard_ms: i64,
    /// Time of the last refusal: the broker may have decided then on a later answer.
    refused_ms: i64,
    /// The member that was in its place, with its epoch and partitions.
    ghost: Option<(String, i32, BTreeSet<Owned>)>,
}

/// A pending request.
#[derive(Debug, Clone)]
enum Asked {
    Report,
    Leave,
    Commit {
        key: PlaceKey,
        offset: u64,
        /// True if it must be refused.
        is_fenced: bool,
    },
}

pub(super) fn consumers() -> Vec<Consumer> {
    (0..CONSUMERS).map(|number| Consumer::new(number, 0)).collect()
}

impl Consumer {
    fn new(number: u8, lives: u32) -> Self {
        Self {
            number,
            lives,
            connection: None,
            waiting: VecDeque::new(),
            is_in: false,
            epoch: 0,
            owned: BTreeMap::new(),
            giving_back: None,
            is_changed: false,
            has_missed: false,
            report_ms: 0,
            heard_ms: 0,
            refused_ms: i64::MIN / 2,
            ghost: None,
        }
    }

    fn id(&self) -> String {
        format!("consumer-{}-{}", self.number, self.lives)
    }

    pub(super) fn group(&self) -> u8 {
        CLASSIC_GROUPS + self.number % 2
    }

    fn group_name(&self) -> Str {
        format!("g{}", self.group()).into()
    }

    /// True if it waits for a commit in a topic.
    pub(super) fn is_waiting_for(&self, topic: u8) -> bool {
        self.waiting
            .iter()
            .any(|asked| matches!(asked, Asked::Commit { key, .. } if key.1.topic == topic))
    }

    /// Handles the end of its connection. It goes on as the same member.
    pub(super) fn on_end(&mut self) {
        self.connection = None;
        self.has_missed |= self
            .waiting
            .iter()
            .any(|asked| matches!(asked, Asked::Report | Asked::Leave));
        self.is_changed = true;
        self.report_ms = 0;
        self.waiting.clear();
    }

    /// Ends without a word; another member comes in its place.
    fn cut(&mut self) {
        let ghost = (self.id(), self.epoch, self.owned.keys().copied().collect());
        *self = Self {
            ghost: self.is_in.then_some(ghost),
            ..Self::new(self.number, self.lives + 1)
        };
    }

    pub(super) fn connect(&mut self, server: &mut Server) -> Result<(), Finding> {
        if self.connection.is_none() {
            let socket = server
                .connect_kafka()
                .map_err(|error| Finding(error.to_string()))?;
            self.connection = Some(Connection::new(socket));
        }
        Ok(())
    }

    fn join(&mut self) {
        if !self.is_in {
            self.is_in = true;
            self.begin_again();
        }
    }

    /// Gives everything up; its next report joins.
    fn begin_again(&mut self) {
        (self.epoch, self.report_ms) = (0, 0);
        (self.has_missed, self.is_changed) = (false, true);
        self.owned.clear();
        self.giving_back = None;
    }

    fn is_reporting(&self) -> bool {
        self.waiting
            .iter()
            .any(|asked| matches!(asked, Asked::Report | Asked::Leave))
    }

    /// Reports if it is time: after the interval that it was told, or once partitions are given back.
    fn report(&mut self, now_ms: i64) {
        if !self.is_in || self.connection.is_none() || self.is_reporting() {
            return;
        }
        let is_due = |(at, _): &(i64, BTreeSet<Owned>)| *at <= now_ms;
        if let Some((_, given)) = self.giving_back.take_if(|giving| is_due(giving)) {
            self.owned.retain(|owned, _| !given.contains(owned));
            (self.is_changed, self.report_ms) = (true, 0);
        }
        if now_ms < self.report_ms {
            return;
        }
        let mut request = self.request(self.epoch);
        // Like Kafka's clients: where an answer may be lost, it says everything, and is told everything.
        let is_full = self.epoch == 0 || self.has_missed;
        if self.is_changed || is_full {
            request.topic_partitions = Some(topics_of(self.owned.keys()));
        }
        if is_full {
            request.rebalance_timeout_ms = REBALANCE_MS;
            if self.number < CONSUMERS / 2 {
                request.subscribed_topic_names = Some((0..crate::steps::TOPICS).map(name_of).collect());
            } else {
                request.subscribed_topic_regex = Some("t[0-9]".into());
            }
        }
        self.is_changed = false;
        self.send(VERSION, &request, Asked::Report);
    }

    fn request(&self, epoch: i32) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest {
            group_id: self.group_name(),
            member_id: self.id().into(),
            member_epoch: epoch,
            ..ConsumerGroupHeartbeatRequest::default()
        }
    }

    fn leave(&mut self) {
        if self.is_in && !self.is_reporting() {
            let request = self.request(-1);
            self.send(VERSION, &request, Asked::Leave);
        }
    }

    fn send<R: stafett_kafka_wire::Request>(&mut self, version: i16, request: &R, asked: Asked) {
        if let Some(connection) = &mut self.connection {
            connection.send(version, request);
            self.waiting.push_back(asked);
        }
    }

    /// Reports and processes answers.
    pub(super) fn turn(
        &mut self,
        commits: &mut Commits,
        may_refuse: bool,
        now_ms: i64,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        self.report(now_ms);
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        connection.turn();
        while let Some(answer) = self.connection.as_mut().and_then(Connection::answer) {
            self.on_answer(answer, commits, (may_refuse, now_ms), notes)?;
        }
        if self.connection.as_ref().is_some_and(|it| !it.socket.is_open) {
            notes.push(format!("consumer {} was cut off", self.number));
            self.on_end();
        }
        Ok(())
    }

    fn on_answer(
        &mut self,
        answer: Bytes,
        commits: &mut Commits,
        (may_refuse, now_ms): (bool, i64),
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let (Some(connection), Some(asked)) = (&mut self.connection, self.waiting.pop_front()) else {
            return Err(Finding("an answer that nothing was asked for".to_owned()));
        };
        let Asked::Commit {
            key,
            offset,
            is_fenced,
        } = asked
        else {
            let told = connection.read::<ConsumerGroupHeartbeatRequest>(VERSION, answer)?;
            notes.push(format!("consumer {} is answered {told:?}", self.number));
            return self.on_told(&told, &asked, may_refuse, now_ms);
        };
        let answer = connection.read::<OffsetCommitRequest>(COMMIT_VERSION, answer)?;
        let partition = answer.topics.first().and_then(|topic| topic.partitions.first());
        let code = partition.map_or(-1, |partition| partition.error_code);
        notes.push(format!(
            "consumer {} is answered {code} to {asked:?}",
            self.number
        ));
        match code {
            0 if is_fenced => Err(Finding(format!(
                "commit {offset} for {key:?} was taken from a member that is fenced"
            ))),
            0 => {
                commits.acknowledge(key, offset);
                Ok(())
            }
            code::STALE_EPOCH | code::UNKNOWN_MEMBER | code::NO_GROUP => {
                commits.refuse(key, offset);
                Ok(())
            }
            _ if may_refuse => {
                commits.refuse(key, offset);
                Ok(())
            }
            _ => Err(Finding(format!("a commit is answered {code}"))),
        }
    }

    fn on_told(
        &mut self,
        told: &ConsumerGroupHeartbeatResponse,
        asked: &Asked,
        may_refuse: bool,
        now_ms: i64,
    ) -> Result<(), Finding> {
        let wrong = |what: &str| Finding(format!("consumer {} {what}: {told:?}", self.number));
        match told.error_code {
            0 if matches!(asked, Asked::Leave) => {
                *self = Self {
                    connection: self.connection.take(),
                    waiting: std::mem::take(&mut self.waiting),
                    ..Self::new(self.number, self.lives + 1)
                };
                Ok(())
            }
            0 if told.member_epoch < self.epoch => Err(wrong("goes back")),
            0 => {
                self.heard_ms = now_ms;
                self.report_ms = now_ms + i64::from(told.heartbeat_interval_ms);
                if let Some(assignment) = &told.assignment {
                    self.on_assignment(assignment, told.member_epoch, now_ms);
                }
                (self.epoch, self.has_missed) = (told.member_epoch, false);
                Ok(())
            }
            code::UNKNOWN_MEMBER | code::FENCED_EPOCH | code::NO_GROUP => {
                if self.epoch > 0 && self.is_heard(now_ms) && !may_refuse {
                    return Err(wrong("is put out"));
                }
                self.begin_again();
                Ok(())
            }
            _ if may_refuse => {
                (self.is_changed, self.has_missed) = (true, true);
                (self.report_ms, self.refused_ms) = (now_ms + 100, now_ms);
                Ok(())
            }
            _ => Err(wrong("is refused")),
        }
    }

    fn on_assignment(&mut self, assignment: &Assignment, epoch: i32, now_ms: i64) {
        let assigned: BTreeSet<Owned> = assignment
            .topic_partitions
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|index| (topic.topic_id, *index)))
            .collect();
        let since = if self.has_missed { self.epoch } else { epoch };
        for owned in &assigned {
            self.owned.entry(*owned).or_insert(since);
        }
        let surplus = self.owned.keys().filter(|owned| !assigned.contains(owned));
        let surplus: BTreeSet<_> = surplus.copied().collect();
        let takes_ms = GIVING_BACK_MS.get(usize::from(self.number)).copied();
        self.giving_back = (!surplus.is_empty()).then_some((now_ms + takes_ms.unwrap_or(0), surplus));
        self.is_changed = true;
    }

    /// True if the broker cannot have put it out for its silence.
    pub(super) fn is_heard(&self, now_ms: i64) -> bool {
        let rebalance_ms = i64::from(REBALANCE_MS);
        let is_recent = now_ms - self.heard_ms < rebalance_ms - 1_000;
        self.is_in && !self.has_missed && is_recent && now_ms - self.refused_ms > rebalance_ms
    }

    /// Returns a commit: a member id and epoch, a partition, and true if it must be refused.
    fn draw_commit(&self, chosen: u8, taken: &BTreeSet<(u8, Owned)>) -> Option<(String, i32, Owned, bool)> {
        let at = |count: usize| usize::from(chosen) % count.max(1);
        if let Some((id, epoch, owned)) = &self.ghost
            && chosen.is_multiple_of(STALE_EVERY / 2)
        {
            let owned = owned.iter().nth(at(owned.len())).copied()?;
            return Some((id.clone(), *epoch, owned, taken.contains(&(self.group(), owned))));
        }
        let (owned, since) = self.owned.iter().nth(at(self.owned.len()))?;
        let is_stale = chosen.is_multiple_of(STALE_EVERY);
        let epoch = self.epoch - i32::from(is_stale);
        (self.epoch > 0).then(|| (self.id(), epoch, *owned, epoch < *since))
    }
}

/// Returns partitions by topic.
fn topics_of<'a>(owned: impl Iterator<Item = &'a Owned>) -> Vec<RequestTopicPartitions> {
    let mut topics: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (topic, index) in owned {
        topics.entry(*topic).or_default().push(*index);
    }
    let topic = |(topic_id, partitions)| RequestTopicPartitions { topic_id, partitions };
    topics.into_iter().map(topic).collect()
}

fn name_of(topic: u8) -> Str {
    format!("t{topic}").into()
}

impl World {
    pub(super) fn consumer_step(
        &mut self,
        server: &mut Server,
        number: u8,
        step: GroupStep,
    ) -> Result<(), Finding> {
        let Some(consumer) = self.kafka.consumers.get_mut(usize::from(number)) else {
            return Ok(());
        };
        consumer.connect(server)?;
        match step {
            GroupStep::Join { .. } => consumer.join(),
            GroupStep::Leave { .. } => consumer.leave(),
            GroupStep::Cut { .. } => consumer.cut(),
            GroupStep::Commit { chosen, .. } => self.commit_as_consumer(number, chosen),
            GroupStep::Fetch { .. } | GroupStep::Quiet | GroupStep::Wait { .. } => {}
        }
        Ok(())
    }

    /// Commits as a member, or as the one that was in its place.
    fn commit_as_consumer(&mut self, number: u8, chosen: u8) {
        for chosen in (0..COMMITS).map(|more| chosen.wrapping_add(more)) {
            let kafka = &mut self.kafka;
            let taken = kafka.owned();
            let Some(consumer) = kafka.consumers.get_mut(usize::from(number)) else {
                return;
            };
            let Some((id, epoch, owned, is_fenced)) = consumer.draw_commit(chosen, &taken) else {
                return;
            };
            let topic = kafka
                .topics
                .iter()
                .find(|topic| topic.known == Known::There(owned.0));
            let Some((topic, partition)) = topic.zip(u8::try_from(owned.1).ok()) else {
                return;
            };
            let key = (consumer.group(), topic.log(partition));
            let offset = kafka.commits.send(key);
            let request = commit_request(key, &id, epoch, offset);
            let asked = Asked::Commit {
                key,
                offset,
                is_fenced,
            };
            self.trace
                .note(|| format!("{id} of epoch {epoch} commits {offset} for {key:?}, {is_fenced}"));
            consumer.send(COMMIT_VERSION, &request, asked);
        }
    }
}
