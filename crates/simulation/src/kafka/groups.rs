//! Group members: they join, are assigned partitions by their leader, commit, and leave or vanish.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use stafett_kafka_wire::messages::join_group::JoinGroupRequestProtocol;
use stafett_kafka_wire::messages::leave_group::MemberIdentity;
use stafett_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use stafett_kafka_wire::messages::offset_fetch::OffsetFetchRequestTopic;
use stafett_kafka_wire::messages::sync_group::SyncGroupRequestAssignment;
use stafett_kafka_wire::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, OffsetCommitRequest,
    OffsetFetchRequest, SyncGroupRequest,
};

use super::commits::{Commits, PlaceKey};
use super::connection::Connection;
use super::consumers::CONSUMERS;
use crate::ledger::LogKey;
use crate::random::Random;
use crate::server::Server;
use crate::steps::{PARTITIONS, TOPICS};
use crate::world::{Broken, Finding, World};

/// Members of classic groups. The last one commits without being a member. In steps, the members of other
/// groups follow.
const MEMBERS: u8 = 5;
const LONER: u8 = 4;
/// Number of classic groups. The groups that the broker assigns follow.
pub(super) const CLASSIC_GROUPS: u8 = 3;
const GROUPS: u8 = CLASSIC_GROUPS + 2;
const HEARTBEAT_MS: i64 = 1_000;
/// One in this many commits uses the previous generation.
pub(super) const STALE_EVERY: u8 = 16;
/// Commits that are sent together.
pub(super) const COMMITS: u8 = 3;

/// Step of a member or of a reader of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupStep {
    /// A member joins, or rejoins.
    Join {
        member: u8,
    },
    /// A member commits in one of its partitions, selected by `chosen`.
    Commit {
        member: u8,
        chosen: u8,
    },
    Leave {
        member: u8,
    },
    /// A member's connection ends without a leave request.
    Cut {
        member: u8,
    },
    /// All commits of a group are read.
    Fetch {
        group: u8,
    },
    /// Waits until all partitions are assigned, in groups that the broker assigns.
    Quiet,
    /// Time passes, in which a group can rebalance and silent members time out.
    Wait {
        ms: u32,
    },
}

impl GroupStep {
    pub fn draw(random: &mut Random) -> Self {
        let mut small = |bound: u8| u8::try_from(random.below(bound.into())).unwrap_or(0);
        let (kind, member, chosen) = (small(21), small(MEMBERS + CONSUMERS), small(u8::MAX));
        match kind {
            0..=3 => Self::Join { member },
            4 => Self::Leave { member },
            5 => Self::Cut { member },
            6 => Self::Wait {
                ms: if chosen < 200 { 30 } else { 11_000 },
            },
            20 => Self::Quiet,
            7 | 8 => Self::Fetch {
                group: chosen % GROUPS,
            },
            _ => Self::Commit { member, chosen },
        }
    }
}

/// A member of a group.
#[derive(Debug, Clone)]
pub(super) struct Member {
    number: u8,
    connection: Option<Connection>,
    waiting: VecDeque<Asked>,
    /// Member id from the broker.
    id: String,
    /// Generation of its assignment.
    generation: Option<i32>,
    partitions: Vec<(u8, u8)>,
    heartbeat_ms: i64,
}

/// A pending request.
#[derive(Debug, Clone)]
enum Asked {
    /// Join, with the minimum generation of the answer.
    Join(i32),
    Sync(i32),
    Heartbeat,
    Leave,
    Commit {
        key: PlaceKey,
        offset: u64,
        /// True if a later generation already had its assignment.
        is_fenced: bool,
    },
}

/// Error codes of Kafka.
pub(super) mod code {
    pub(in crate::kafka) const ILLEGAL_GENERATION: i16 = 22;
    pub(in crate::kafka) const UNKNOWN_MEMBER: i16 = 25;
    pub(in crate::kafka) const REBALANCING: i16 = 27;
    pub(in crate::kafka) const NO_GROUP: i16 = 69;
    pub(in crate::kafka) const MEMBER_ID_REQUIRED: i16 = 79;
    pub(in crate::kafka) const FENCED_EPOCH: i16 = 110;
    pub(in crate::kafka) const STALE_EPOCH: i16 = 113;
}

pub(super) fn members() -> Vec<Member> {
    (0..MEMBERS).map(Member::new).collect()
}

impl Member {
    fn new(number: u8) -> Self {
        Self {
            number,
            connection: None,
            waiting: VecDeque::new(),
            id: String::new(),
            generation: None,
            partitions: Vec::new(),
            heartbeat_ms: 0,
        }
    }

    fn group(&self) -> u8 {
        if self.number == LONER { 2 } else { self.number % 2 }
    }

    fn group_name(&self) -> stafett_kafka_wire::Str {
        format!("g{}", self.group()).into()
    }

    /// True if it waits for a commit in a topic.
    pub(super) fn is_waiting_for(&self, topic: u8) -> bool {
        self.waiting
            .iter()
            .any(|asked| matches!(asked, Asked::Commit { key, .. } if key.1.topic == topic))
    }

    /// Handles the end of the program. It continues as the same member.
    pub(super) fn on_end(&mut self) {
        self.connection = None;
        self.waiting.clear();
    }

    /// Drops its connection and its identity.
    fn cut(&mut self) {
        *self = Self::new(self.number);
    }

    fn connect(&mut self, server: &mut Server) -> Result<(), Finding> {
        if self.connection.is_none() {
            let socket = server
                .connect_kafka()
                .map_err(|error| Finding(error.to_string()))?;
            self.connection = Some(Connection::new(socket));
        }
        Ok(())
    }

    fn is_joining(&self) -> bool {
        let joins = |asked: &Asked| matches!(asked, Asked::Join(_) | Asked::Sync(_) | Asked::Leave);
        self.waiting.iter().any(joins)
    }

    fn join(&mut self, commits: &Commits) {
        if self.is_joining() || self.number == LONER {
            return;
        }
        self.generation = None;
        self.partitions.clear();
        let request = JoinGroupRequest {
            group_id: self.group_name(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 3_000,
            member_id: self.id.clone().into(),
            protocol_type: "simulated".into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "all".into(),
                metadata: Bytes::from_static(b"topics"),
            }],
            ..JoinGroupRequest::default()
        };
        if let Some(connection) = &mut self.connection {
            connection.send(5, &request);
            self.waiting.push_back(Asked::Join(commits.joined(self.group())));
        }
    }

    fn sync(&mut self, joined: &JoinGroupResponse, commits: &mut Commits) {
        let mut shares = BTreeMap::new();
        if *joined.leader == self.id {
            let mut all: Vec<(u8, u8)> = Vec::new();
            for topic in 0..TOPICS {
                all.extend((0..PARTITIONS).map(|partition| (topic, partition)));
            }
            let count = joined.members.len().max(1);
            for (index, member) in joined.members.iter().enumerate() {
                let share: Vec<_> = all.iter().skip(index).step_by(count).collect();
                let share = share
                    .iter()
                    .map(|(topic, partition)| format!("{topic}:{partition}"));
                let share = share.collect::<Vec<_>>().join(",");
                shares.insert(member.member_id.to_string(), share);
            }
            commits.share(self.group(), joined.generation_id, shares.clone());
        }
        let assignment = |(member, share): (String, String)| SyncGroupRequestAssignment {
            member_id: member.into(),
            assignment: share.into(),
        };
        let request = SyncGroupRequest {
            group_id: self.group_name(),
            generation_id: joined.generation_id,
            member_id: self.id.clone().into(),
            assignments: shares.into_iter().map(assignment).collect(),
            ..SyncGroupRequest::default()
        };
        if let Some(connection) = &mut self.connection {
            connection.send(3, &request);
            self.waiting.push_back(Asked::Sync(joined.generation_id));
        }
    }

    fn heartbeat(&mut self, now_ms: i64) {
        let Some(generation) = self.generation.filter(|_| !self.is_joining()) else {
            return;
        };
        let request = HeartbeatRequest {
            group_id: self.group_name(),
            generation_id: generation,
            member_id: self.id.clone().into(),
            ..HeartbeatRequest::default()
        };
        if now_ms >= self.heartbeat_ms + HEARTBEAT_MS
            && let Some(connection) = &mut self.connection
        {
            self.heartbeat_ms = now_ms;
            connection.send(3, &request);
            self.waiting.push_back(Asked::Heartbeat);
        }
    }

    fn leave(&mut self) {
        if self.id.is_empty() || self.is_joining() {
            return;
        }
        let request = LeaveGroupRequest {
            group_id: self.group_name(),
            members: vec![MemberIdentity {
                member_id: self.id.clone().into(),
                ..MemberIdentity::default()
            }],
            ..LeaveGroupRequest::default()
        };
        if let Some(connection) = &mut self.connection {
            connection.send(3, &request);
            self.waiting.push_back(Asked::Leave);
        }
    }

    /// Sends heartbeats and processes answers.
    pub(super) fn turn(
        &mut self,
        commits: &mut Commits,
        may_refuse: bool,
        now_ms: i64,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        self.heartbeat(now_ms);
        if !self.id.is_empty() && self.generation.is_none() {
            self.join(commits);
        }
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        connection.turn();
        while let Some(answer) = self.connection.as_mut().and_then(Connection::answer) {
            self.on_answer(answer, commits, may_refuse, notes)?;
        }
        if self
            .connection
            .as_ref()
            .is_some_and(|connection| !connection.socket.is_open)
        {
            notes.push(format!("member {} was cut off", self.number));
            self.on_end();
        }
        Ok(())
    }

    fn on_answer(
        &mut self,
        answer: Bytes,
        commits: &mut Commits,
        may_refuse: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let (Some(connection), Some(asked)) = (&mut self.connection, self.waiting.pop_front()) else {
            return Err(Finding("an answer that nothing was asked for".to_owned()));
        };
        let code = match &asked {
            Asked::Join(_) => {
                let joined = connection.read::<JoinGroupRequest>(5, answer)?;
                return self.on_joined(&joined, &asked, commits, may_refuse, notes);
            }
            Asked::Sync(generation) => {
                let given = connection.read::<SyncGroupRequest>(3, answer)?;
                if given.error_code == 0 {
                    let share = String::from_utf8_lossy(&given.assignment).into_owned();
                    notes.push(format!("member {} is given {share}", self.number));
                    commits.on_given(self.group(), *generation, &self.id, &share)?;
                    self.generation = Some(*generation);
                    self.partitions = share.split(',').filter_map(partition_of).collect();
                }
                given.error_code
            }
            Asked::Heartbeat => connection.read::<HeartbeatRequest>(3, answer)?.error_code,
            Asked::Leave => {
                let left = connection.read::<LeaveGroupRequest>(3, answer)?;
                let code = left
                    .members
                    .first()
                    .map_or(left.error_code, |member| member.error_code);
                if code == 0 {
                    self.id.clear();
                    self.generation = None;
                    self.partitions.clear();
                }
                code
            }
            Asked::Commit { .. } => {
                let answer = connection.read::<OffsetCommitRequest>(8, answer)?;
                let topic = answer.topics.first();
                let partition = topic.and_then(|topic| topic.partitions.first());
                partition.map_or(-1, |partition| partition.error_code)
            }
        };
        notes.push(format!("member {} is answered {code} to {asked:?}", self.number));
        if let Asked::Commit {
            key,
            offset,
            is_fenced,
        } = asked
        {
            match code {
                0 if is_fenced => {
                    return Err(Finding(format!(
                        "commit {offset} of a generation that is over was taken"
                    )));
                }
                0 => commits.acknowledge(key, offset),
                _ => commits.refuse(key, offset),
            }
        }
        self.on_code(code, commits, may_refuse)
    }

    fn on_joined(
        &mut self,
        joined: &JoinGroupResponse,
        asked: &Asked,
        commits: &mut Commits,
        may_refuse: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        notes.push(format!("member {} is answered {joined:?}", self.number));
        match (joined.error_code, asked) {
            (code::MEMBER_ID_REQUIRED, _) => {
                self.id = joined.member_id.to_string();
                self.join(commits);
                Ok(())
            }
            (0, Asked::Join(least)) => {
                self.id = joined.member_id.to_string();
                commits.on_joined(self.group(), joined.generation_id, *least, &joined.leader)?;
                self.sync(joined, commits);
                Ok(())
            }
            (code, _) => self.on_code(code, commits, may_refuse),
        }
    }

    /// Reacts to an error code.
    fn on_code(&mut self, code: i16, commits: &Commits, may_refuse: bool) -> Result<(), Finding> {
        match code {
            0 => Ok(()),
            code::UNKNOWN_MEMBER | code::ILLEGAL_GENERATION | code::REBALANCING if self.number != LONER => {
                if code == code::UNKNOWN_MEMBER {
                    self.id.clear();
                }
                self.join(commits);
                Ok(())
            }
            _ if may_refuse => Ok(()),
            _ => Err(Finding(format!("member {} is answered {code}", self.number))),
        }
    }
}

/// Builds a commit; its metadata repeats the offset.
pub(super) fn commit_request(key: PlaceKey, member: &str, epoch: i32, offset: u64) -> OffsetCommitRequest {
    let (group, log) = key;
    OffsetCommitRequest {
        group_id: format!("g{group}").into(),
        generation_id_or_member_epoch: epoch,
        member_id: member.to_owned().into(),
        topics: vec![OffsetCommitRequestTopic {
            name: format!("t{}", log.topic).into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: log.partition.into(),
                committed_offset: i64::try_from(offset).unwrap_or(i64::MAX),
                committed_leader_epoch: -1,
                committed_metadata: Some(format!("commit {offset}").into()),
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    }
}

fn partition_of(text: &str) -> Option<(u8, u8)> {
    let (topic, partition) = text.split_once(':')?;
    Some((topic.parse().ok()?, partition.parse().ok()?))
}

impl World {
    pub async fn group_step(&mut self, server: &mut Server, step: GroupStep) -> Result<(), Broken> {
        let number = match step {
            GroupStep::Fetch { group } => return self.check_group(server, group).await.map(drop),
            GroupStep::Wait { ms } => return self.rest(server, ms.into()).await,
            GroupStep::Quiet => return self.check_owners(server).await,
            GroupStep::Join { member }
            | GroupStep::Commit { member, .. }
            | GroupStep::Leave { member }
            | GroupStep::Cut { member } => member,
        };
        if let Some(number) = number.checked_sub(MEMBERS) {
            return Ok(self.consumer_step(server, number, step)?);
        }
        let Some(member) = self.kafka.members.get_mut(usize::from(number)) else {
            return Ok(());
        };
        member.connect(server)?;
        match step {
            GroupStep::Join { .. } => member.join(&self.kafka.commits),
            GroupStep::Leave { .. } => member.leave(),
            GroupStep::Cut { .. } => member.cut(),
            GroupStep::Commit { chosen, .. } => {
                for more in 0..COMMITS {
                    self.commit(number, chosen.wrapping_add(more));
                }
            }
            GroupStep::Fetch { .. } | GroupStep::Quiet | GroupStep::Wait { .. } => {}
        }
        Ok(())
    }

    fn commit(&mut self, number: u8, chosen: u8) {
        let Some(member) = self.kafka.members.get(usize::from(number)) else {
            return;
        };
        let place = if number == LONER {
            Some((chosen % TOPICS, chosen / TOPICS % PARTITIONS))
        } else {
            let count = member.partitions.len().max(1);
            member.partitions.get(usize::from(chosen) % count).copied()
        };
        let Some((topic, partition)) = place else { return };
        let is_there = self.kafka.topic(topic).is_some_and(super::Topic::is_there);
        let Some(log) = self.kafka.log(topic, partition).filter(|_| is_there) else {
            return;
        };
        let commits = &mut self.kafka.commits;
        let Some(member) = self.kafka.members.get_mut(usize::from(number)) else {
            return;
        };
        let mut generation = member.generation.unwrap_or(-1);
        if number != LONER && generation < 0 {
            return;
        }
        if number != LONER && chosen.is_multiple_of(STALE_EVERY) {
            // Like a member that missed the last rebalance.
            generation -= 1;
        }
        let key = (member.group(), log);
        let offset = commits.send(key);
        let request = commit_request(key, &member.id, generation, offset);
        if let Some(connection) = &mut member.connection {
            connection.send(8, &request);
            member.waiting.push_back(Asked::Commit {
                key,
                offset,
                is_fenced: generation < commits.given(key.0) && number != LONER,
            });
        }
        self.trace
            .note(|| format!("member {number} of generation {generation} commits {offset} for {key:?}"));
    }

    /// Checks the commits of all groups after a start.
    pub async fn check_groups(&mut self, server: &mut Server) -> Result<(), Broken> {
        for group in 0..GROUPS {
            if !self.check_group(server, group).await? {
                self.kafka.commits.forget_group(group);
            }
        }
        self.kafka.commits.forget();
        // Members reconnect.
        self.kafka.connect_consumers(server)?;
        for member in &mut self.kafka.members {
            if !member.id.is_empty() {
                member.connect(server)?;
            }
        }
        Ok(())
    }

    /// Checks the commits of a group. Returns false if there are none.
    async fn check_group(&mut self, server: &mut Server, group: u8) -> Result<bool, Broken> {
        let mut is_there = false;
        let topics = (0..TOPICS).filter(|topic| self.kafka.topic(*topic).is_some_and(super::Topic::is_there));
        let logs: BTreeSet<LogKey> = topics
            .flat_map(|topic| (0..PARTITIONS).map(move |partition| (topic, partition)))
            .filter_map(|(topic, partition)| self.kafka.log(topic, partition))
            .collect();
        let floors = logs.iter().map(|log| self.kafka.commits.floor((group, *log)));
        let floors: Vec<u64> = floors.collect();
        let asked = |log: &LogKey| OffsetFetchRequestTopic {
            name: format!("t{}", log.topic).into(),
            partition_indexes: vec![log.partition.into()],
        };
        let request = OffsetFetchRequest {
            group_id: format!("g{group}").into(),
            topics: Some(logs.iter().map(asked).collect()),
            ..OffsetFetchRequest::default()
        };
        let answer = self.ask(server, 7, &request).await?;
        for (index, (log, floor)) in logs.into_iter().zip(floors).enumerate() {
            let topic = answer.topics.get(index);
            let partition = topic
                .and_then(|topic| topic.partitions.first())
                .filter(|partition| partition.error_code == 0 && answer.error_code == 0)
                .ok_or_else(|| Finding(format!("commits cannot be read: {answer:?}")))?;
            let offset = u64::try_from(partition.committed_offset).ok();
            let text = offset.map_or_else(String::new, |offset| format!("commit {offset}"));
            if partition.metadata.as_deref().unwrap_or_default() != text {
                return Err(Finding(format!("a commit is not whole: {partition:?}")).into());
            }
            self.kafka.commits.check((group, log), floor, offset)?;
            is_there |= offset.is_some();
        }
        Ok(is_there)
    }
}
