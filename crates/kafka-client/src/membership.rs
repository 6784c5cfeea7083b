//! Member of a group, in the classic protocol: join, get partitions, send heartbeats, commit, leave.
//!
//! ```text
//!  join ──▶ (leader: share out) ──▶ sync ──▶ stable ──heartbeat says rebalance──▶ join
//!                                              └──leave──▶ gone
//! ```
//!
//! Records are not read here. The owner of a [`Membership`] reads its partitions, calls [`Membership::beat`]
//! at least every [`HEARTBEAT`], and joins again on [`Beat::Rebalance`]. All partitions are released at each
//! rebalance (eager protocol).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_wire::consumer_protocol::{self, ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use stafett_kafka_wire::messages::consumer_protocol_assignment::TopicPartition;
use stafett_kafka_wire::messages::join_group::{JoinGroupRequestProtocol, JoinGroupResponse};
use stafett_kafka_wire::messages::leave_group::MemberIdentity;
use stafett_kafka_wire::messages::sync_group::SyncGroupRequestAssignment;
use stafett_kafka_wire::messages::{HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest};
use stafett_kafka_wire::{ApiKey, DecodeLimits, ErrorCode, Str};

use crate::assignor::{self, Shares, Wishes};
use crate::client::{Backoff, Client};
use crate::error::ClientError;
use crate::groups::read_assignment;
use crate::refusal;

/// Interval between heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(2);
const SESSION: Duration = Duration::from_secs(30);
const REBALANCE: Duration = Duration::from_mins(1);
const PROTOCOL_TYPE: Str = Str::from_static("consumer");
const RANGE: Str = Str::from_static("range");
const ROUND_ROBIN: Str = Str::from_static("roundrobin");
/// Version of written subscriptions and assignments; every client reads it.
const DATA_VERSION: i16 = 0;

/// A member of a group.
#[derive(Debug)]
pub struct Membership {
    client: Client,
    group: Str,
    topics: Vec<Str>,
    session: Duration,
    member: Str,
    generation: i32,
    /// True if a join was sent and has no answer.
    joining: bool,
}

/// Result of a heartbeat or commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    Stable,
    /// The group redistributes its partitions; the member has to join again.
    Rebalance,
}

impl Membership {
    pub fn new(client: Client, group: &str, topics: &[&str]) -> Self {
        Self {
            client,
            group: Str::copy_from(group),
            topics: topics.iter().copied().map(Str::copy_from).collect(),
            session: SESSION,
            member: Str::default(),
            generation: -1,
            joining: false,
        }
    }

    /// Sets the silence after which the group takes the member for dead.
    #[must_use]
    pub fn with_session(self, session: Duration) -> Self {
        Self { session, ..self }
    }

    pub fn generation(&self) -> i32 {
        self.generation
    }

    fn about(&self) -> String {
        format!("group `{}`", self.group)
    }

    /// Joins and returns the assigned topics and partitions. Waits for the other members as long as the group
    /// needs. The future can be dropped; then only [`Membership::leave`] is of use.
    pub async fn join(&mut self) -> Result<Vec<(Str, Vec<i32>)>, ClientError> {
        self.joining = true;
        let joined = self.join_in_time().await;
        self.joining = false;
        joined
    }

    async fn join_in_time(&mut self) -> Result<Vec<(Str, Vec<i32>)>, ClientError> {
        let mut backoff = Backoff::new(self.client.options().retry_for);
        loop {
            let error = match self.try_join().await {
                Ok(assignment) => return Ok(assignment),
                Err(error) => error,
            };
            let code = error.code();
            if code == Some(ErrorCode::UnknownMemberId) {
                self.member = Str::default();
            }
            let again = error.is_retriable()
                || matches!(
                    code,
                    Some(
                        ErrorCode::UnknownMemberId
                            | ErrorCode::RebalanceInProgress
                            | ErrorCode::IllegalGeneration
                    )
                );
            if !again || !backoff.wait().await {
                return Err(error);
            }
        }
    }

    async fn try_join(&mut self) -> Result<Vec<(Str, Vec<i32>)>, ClientError> {
        let joined = self.send_join().await?;
        self.generation = joined.generation_id;
        let protocol = joined.protocol_name.clone().unwrap_or_default();
        let assignments = if joined.leader == self.member {
            self.share_out(&joined, &protocol).await?
        } else {
            Vec::new()
        };
        let connection = self.client.coordinator(&self.group).await?;
        let version = connection.version::<SyncGroupRequest>(i16::MAX)?;
        let request = SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member.clone(),
            protocol_type: (version >= 5).then_some(PROTOCOL_TYPE),
            protocol_name: (version >= 5).then_some(protocol),
            assignments,
            ..SyncGroupRequest::default()
        };
        let answer = connection.send(&request, version, REBALANCE).await?.await?;
        refusal::check(
            connection.broker(),
            ApiKey::SyncGroup,
            answer.error_code,
            None,
            || self.about(),
        )?;
        Ok(read_assignment(answer.assignment))
    }

    async fn send_join(&mut self) -> Result<JoinGroupResponse, ClientError> {
        let connection = self.client.coordinator(&self.group).await?;
        let subscription = ConsumerProtocolSubscription {
            topics: self.topics.clone(),
            ..ConsumerProtocolSubscription::default()
        };
        let metadata = data(&subscription, ApiKey::JoinGroup)?;
        let protocols = [RANGE, ROUND_ROBIN].map(|name| JoinGroupRequestProtocol {
            name,
            metadata: metadata.clone(),
        });
        loop {
            let request = JoinGroupRequest {
                group_id: self.group.clone(),
                session_timeout_ms: milliseconds(self.session),
                rebalance_timeout_ms: milliseconds(REBALANCE),
                member_id: self.member.clone(),
                protocol_type: PROTOCOL_TYPE,
                protocols: protocols.to_vec(),
                ..JoinGroupRequest::default()
            };
            let version = connection.version::<JoinGroupRequest>(i16::MAX)?;
            let answer = connection.send(&request, version, REBALANCE).await?.await?;
            let named = answer.error_code == ErrorCode::MemberIdRequired.code();
            if !named || answer.member_id.is_empty() || answer.member_id == self.member {
                refusal::check(
                    connection.broker(),
                    ApiKey::JoinGroup,
                    answer.error_code,
                    None,
                    || self.about(),
                )?;
                self.member = answer.member_id.detach();
                return Ok(answer);
            }
            // The first answer only assigns the member id to join with (KIP-394).
            self.member = answer.member_id.detach();
        }
    }

    /// Assigns partitions to each member, as the leader.
    async fn share_out(
        &self,
        joined: &JoinGroupResponse,
        protocol: &Str,
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let mut wishes = Wishes::new();
        for member in &joined.members {
            let read = consumer_protocol::read::<ConsumerProtocolSubscription>(
                member.metadata.clone(),
                DecodeLimits::default(),
            );
            let topics = read.map(|(_, wish)| wish.topics).unwrap_or_default();
            wishes.insert(member.member_id.clone(), topics.into_iter().collect());
        }
        let all: BTreeSet<&Str> = wishes.values().flatten().collect();
        let mut partitions = BTreeMap::new();
        for name in all {
            match self.client.topic(name).await {
                Ok(topic) => {
                    let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
                    partitions.insert(name.clone(), count);
                }
                // Other members may subscribe to topics that do not exist.
                Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
                Err(error) => return Err(error),
            }
        }
        let shares: Shares = if *protocol == ROUND_ROBIN {
            assignor::round_robin(&wishes, &partitions)
        } else {
            assignor::range(&wishes, &partitions)
        };
        let assignment = |(member, share): (Str, BTreeMap<Str, Vec<i32>>)| {
            let row = |(topic, partitions)| TopicPartition { topic, partitions };
            let assignment = ConsumerProtocolAssignment {
                assigned_partitions: share.into_iter().map(row).collect(),
                user_data: None,
            };
            Ok(SyncGroupRequestAssignment {
                member_id: member,
                assignment: data(&assignment, ApiKey::SyncGroup)?,
            })
        };
        shares.into_iter().map(assignment).collect()
    }

    /// Sends a heartbeat.
    pub async fn beat(&mut self) -> Result<Beat, ClientError> {
        let request = HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member.clone(),
            ..HeartbeatRequest::default()
        };
        let beaten = self
            .client
            .retrying(|| async {
                let connection = self.client.coordinator(&self.group).await?;
                let answer = connection.call(&request).await?;
                refusal::check(
                    connection.broker(),
                    ApiKey::Heartbeat,
                    answer.error_code,
                    None,
                    || self.about(),
                )
            })
            .await;
        self.after(beaten)
    }

    /// Commits offsets, each that of the next record to read.
    pub async fn commit(&mut self, offsets: &[((Str, i32), i64)]) -> Result<Beat, ClientError> {
        let committed = self
            .client
            .commit_as(&self.group, &self.member, self.generation, offsets)
            .await;
        self.after(committed)
    }

    fn after(&mut self, result: Result<(), ClientError>) -> Result<Beat, ClientError> {
        match result.map_err(|error| (error.code(), error)) {
            Ok(()) => Ok(Beat::Stable),
            Err((Some(ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration), _)) => {
                Ok(Beat::Rebalance)
            }
            Err((Some(ErrorCode::UnknownMemberId), _)) => {
                self.member = Str::default();
                Ok(Beat::Rebalance)
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Leaves, so that the others need not wait for the session timeout.
    pub async fn leave(self) -> Result<(), ClientError> {
        if self.member.is_empty() {
            return Ok(());
        }
        if self.joining {
            self.client.reconnect();
        }
        let connection = self.client.coordinator(&self.group).await?;
        let version = connection.version::<LeaveGroupRequest>(i16::MAX)?;
        let mut request = LeaveGroupRequest {
            group_id: self.group.clone(),
            ..LeaveGroupRequest::default()
        };
        if version >= 3 {
            request.members.push(MemberIdentity {
                member_id: self.member.clone(),
                ..MemberIdentity::default()
            });
        } else {
            request.member_id = self.member.clone();
        }
        let answer = connection.send(&request, version, Duration::ZERO).await?.await?;
        refusal::check(
            connection.broker(),
            ApiKey::LeaveGroup,
            answer.error_code,
            None,
            || self.about(),
        )
    }
}

fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

fn data<M: stafett_kafka_wire::Message>(message: &M, api: ApiKey) -> Result<Bytes, ClientError> {
    consumer_protocol::write(DATA_VERSION, message).map_err(|error| ClientError::Encode { api, error })
}
