//! Group members: they join, are assigned partitions by their leader, commit, and leave or vanish.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use stafett_kafka_wire::messages::join_group::JoinGroupRequestProtocol;
use stafett_kafka_wire::messages::leave_group::MemberIdentity;
use stafett_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use stafett_kafka_wire::messages::sync_group::SyncGroupRequestAssignment;
use stafett_kafka_wire::messages::{
    HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, OffsetCommitRequest,
    SyncGroupRequest,
};

use super::commits::{Commits, PlaceKey};
use super::connection::Connection;
use crate::server::Server;
use crate::steps::{PARTITIONS, TOPICS};
use crate::world::Finding;

/// Members of classic groups. The last one commits without being a member. In steps, the members of other
/// groups follow.
pub(super) const MEMBERS: u8 = 5;
pub(super) const LONER: u8 = 4;
/// Number of classic groups. The groups that the broker assigns follow.
pub(super) const CLASSIC_GROUPS: u8 = 3;
const HEARTBEAT_MS: i64 = 1_000;
/// Static members, which keep their places when they come back without their ids, and their name.
const STATIC: std::ops::Range<u8> = 2..4;
pub(super) const STATIC_NAME: &str = "static";

/// A member of a group.
#[derive(Debug, Clone)]
pub(super) struct Member {
    number: u8,
    pub(super) connection: Option<Connection>,
    pub(super) waiting: VecDeque<Asked>,
    /// Member id from the broker.
    pub(super) id: String,
    /// Generation of its assignment.
    pub(super) generation: Option<i32>,
    pub(super) partitions: Vec<(u8, u8)>,
    heartbeat_ms: i64,
    /// The static member that it replaces.
    pub(super) ghost: Option<Ghost>,
}

/// Former self of a static member: the id before it came back without one.
#[derive(Debug, Clone)]
pub(super) struct Ghost {
    pub(super) id: String,
    pub(super) generation: i32,
    pub(super) partitions: Vec<(u8, u8)>,
    /// True once its successor has its answer: it must be refused from then on.
    pub(super) is_fenced: bool,
    /// True once that is stored: with its successor's assignment, or at once in a generation that goes on.
    pub(super) is_for_good: bool,
}

/// A pending request.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    /// Join, with the minimum generation of the answer.
    Join(i32),
    Sync(i32),
    Heartbeat,
    Leave,
    Commit {
        key: PlaceKey,
        offset: u64,
        /// True if a later generation already had its assignment, or a static member was replaced.
        is_fenced: bool,
        is_of_ghost: bool,
    },
}

/// Error codes of Kafka.
pub(super) mod code {
    pub(in crate::kafka) const ILLEGAL_GENERATION: i16 = 22;
    pub(in crate::kafka) const UNKNOWN_MEMBER: i16 = 25;
    pub(in crate::kafka) const REBALANCING: i16 = 27;
    pub(in crate::kafka) const NO_GROUP: i16 = 69;
    pub(in crate::kafka) const MEMBER_ID_REQUIRED: i16 = 79;
    pub(in crate::kafka) const FENCED_INSTANCE: i16 = 82;
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
            ghost: None,
        }
    }

    pub(super) fn group(&self) -> u8 {
        if self.number == LONER { 2 } else { self.number % 2 }
    }

    fn group_name(&self) -> stafett_kafka_wire::Str {
        format!("g{}", self.group()).into()
    }

    /// Returns its name as a static member, if it is one.
    pub(super) fn instance(&self) -> Option<stafett_kafka_wire::Str> {
        STATIC
            .contains(&self.number)
            .then(|| format!("{STATIC_NAME}{}", self.number).into())
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

    /// Drops its connection and its identity. A static member leaves a ghost.
    pub(super) fn cut(&mut self) {
        let ghost = self.generation.map(|generation| Ghost {
            id: self.id.clone(),
            generation,
            partitions: self.partitions.clone(),
            is_fenced: false,
            is_for_good: false,
        });
        *self = Self {
            ghost: ghost
                .or_else(|| self.ghost.take())
                .filter(|_| self.instance().is_some()),
            ..Self::new(self.number)
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

    fn is_joining(&self) -> bool {
        let joins = |asked: &Asked| matches!(asked, Asked::Join(_) | Asked::Sync(_) | Asked::Leave);
        self.waiting.iter().any(joins)
    }

    pub(super) fn join(&mut self, commits: &Commits) {
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
            group_instance_id: self.instance(),
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
            group_instance_id: self.instance(),
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
            group_instance_id: self.instance(),
        };
        if now_ms >= self.heartbeat_ms + HEARTBEAT_MS
            && let Some(connection) = &mut self.connection
        {
            self.heartbeat_ms = now_ms;
            connection.send(3, &request);
            self.waiting.push_back(Asked::Heartbeat);
        }
    }

    pub(super) fn leave(&mut self) {
        if self.id.is_empty() || self.is_joining() {
            return;
        }
        let request = LeaveGroupRequest {
            group_id: self.group_name(),
            members: vec![MemberIdentity {
                member_id: self.id.clone().into(),
                group_instance_id: self.instance(),
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
        if Connection::is_cut(self.connection.as_ref()) {
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
                    self.ghost.iter_mut().for_each(|ghost| ghost.is_for_good = true);
                    self.generation = Some(*generation);
                    self.partitions = share.split(',').filter_map(partition_of).collect();
                }
                given.error_code
            }
            Asked::Heartbeat => connection.read::<HeartbeatRequest>(3, answer)?.error_code,
            Asked::Leave => {
                let left = connection.read::<LeaveGroupRequest>(3, answer)?;
                let member = left.members.first();
                let code = member.map_or(left.error_code, |member| member.error_code);
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
            is_of_ghost,
        } = asked
        {
            if is_of_ghost && code != 0 {
                commits.refuse(key, offset);
                return Ok(());
            }
            match code {
                0 if is_fenced => {
                    return Err(Finding(format!(
                        "commit {offset} of a generation that is over, or of a replaced member, was taken"
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
                if let Some(ghost) = &mut self.ghost {
                    ghost.is_fenced = true;
                    ghost.is_for_good |= joined.generation_id == ghost.generation;
                }
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
            code::UNKNOWN_MEMBER | code::ILLEGAL_GENERATION | code::REBALANCING | code::FENCED_INSTANCE
                if self.number != LONER && (code != code::FENCED_INSTANCE || self.instance().is_some()) =>
            {
                if matches!(code, code::UNKNOWN_MEMBER | code::FENCED_INSTANCE) {
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
