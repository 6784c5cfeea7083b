//! Groups and their offsets, from outside: list, describe, look up and move offsets, delete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_wire::consumer_protocol::{self, ConsumerProtocolAssignment};
use stafett_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use stafett_kafka_wire::messages::offset_delete::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use stafett_kafka_wire::messages::offset_fetch::OffsetFetchRequestGroup;
use stafett_kafka_wire::messages::{
    ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, consumer_group_describe, describe_groups,
};
use stafett_kafka_wire::{ApiKey, DecodeLimits, ErrorCode, Str};

use crate::client::Client;
use crate::error::ClientError;
use crate::refusal;

/// Newest versions that name topics instead of using ids.
const COMMIT_BY_NAME: i16 = 9;
const FETCH_BY_NAME: i16 = 9;
/// First version in which a fetch may ask for offsets that no open transaction changes.
const STABLE_FROM: i16 = 7;

/// Committed offsets by topic and partition.
pub type Offsets = BTreeMap<(Str, i32), Committed>;

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub offset: i64,
    pub metadata: Option<Str>,
}

/// A group in a list.
#[derive(Debug, Clone)]
pub struct Listed {
    pub name: Str,
    /// `consumer`, or the protocol type that the members chose.
    pub protocol_type: Str,
    pub state: Str,
    /// `classic`, `consumer` or another kind; empty if the broker is too old to tell.
    pub kind: Str,
}

/// A group as its coordinator describes it.
#[derive(Debug, Clone)]
pub struct Group {
    pub name: Str,
    /// `classic` or `consumer`.
    pub kind: &'static str,
    pub state: Str,
    /// Name of the assignor; empty while there are no members.
    pub assignor: Str,
    /// The group's epoch; only for the consumer protocol.
    pub epoch: Option<i32>,
    pub coordinator: Arc<str>,
    pub members: Vec<Member>,
}

/// A member of a group.
#[derive(Debug, Clone)]
pub struct Member {
    pub id: Str,
    /// Instance id of a static member.
    pub instance: Option<Str>,
    pub client: Str,
    pub host: Str,
    /// Current assignment: topic and partitions.
    pub assignment: Vec<(Str, Vec<i32>)>,
    /// Target assignment, if it differs.
    pub target: Option<Vec<(Str, Vec<i32>)>>,
}

impl Group {
    /// True if the group has no members, so that its offsets may be changed from outside.
    pub fn is_idle(&self) -> bool {
        self.members.is_empty()
    }
}

impl Client {
    /// Returns all groups of all brokers, sorted by name.
    pub async fn groups(&self) -> Result<Vec<Listed>, ClientError> {
        // Each broker knows only the groups that it coordinates.
        self.topics().await?;
        let mut found: Vec<Listed> = Vec::new();
        for id in self.broker_ids() {
            let listed = self
                .retrying(|| async {
                    let connection = self.broker(id).await?;
                    let answer = connection.call(&ListGroupsRequest::default()).await?;
                    refusal::check(
                        connection.broker(),
                        ApiKey::ListGroups,
                        answer.error_code,
                        None,
                        || "the list of groups".to_owned(),
                    )?;
                    Ok(answer)
                })
                .await?;
            found.extend(listed.groups.into_iter().map(|group| Listed {
                name: group.group_id,
                protocol_type: group.protocol_type,
                state: group.group_state,
                kind: group.group_type,
            }));
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Describes a group of either protocol. Fails if the group does not exist.
    pub async fn group(&self, name: &str) -> Result<Group, ClientError> {
        let classic = self.retrying(|| self.classic_group(name)).await;
        match classic {
            Ok(group) if !group.state.eq("Dead") => Ok(group),
            // Kafka describes groups of the other protocol as unknown or dead here.
            Ok(_) | Err(ClientError::Refused { .. }) => {
                match self.retrying(|| self.consumer_group(name)).await {
                    Err(ClientError::Unsupported { broker, .. }) => Err(unknown(&broker, name)),
                    other => other,
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn classic_group(&self, name: &str) -> Result<Group, ClientError> {
        let connection = self.coordinator(name).await?;
        let request = DescribeGroupsRequest {
            groups: vec![Str::copy_from(name)],
            include_authorized_operations: false,
        };
        let answer = connection.call(&request).await?;
        let broker = connection.broker();
        let group = answer.groups.into_iter().next();
        let group = group.ok_or_else(|| missing(broker, ApiKey::DescribeGroups, name))?;
        let message = group.error_message.as_ref();
        refusal::check(broker, ApiKey::DescribeGroups, group.error_code, message, || {
            format!("group `{name}`")
        })?;
        let is_consumer = group.protocol_type.eq("consumer");
        Ok(Group {
            name: group.group_id,
            kind: "classic",
            state: group.group_state,
            assignor: group.protocol_data,
            epoch: None,
            coordinator: Arc::clone(broker),
            members: group
                .members
                .into_iter()
                .map(|member| classic_member(member, is_consumer))
                .collect(),
        })
    }

    async fn consumer_group(&self, name: &str) -> Result<Group, ClientError> {
        let connection = self.coordinator(name).await?;
        let request = ConsumerGroupDescribeRequest {
            group_ids: vec![Str::copy_from(name)],
            include_authorized_operations: false,
        };
        let answer = connection.call(&request).await?;
        let broker = connection.broker();
        let group = answer.groups.into_iter().next();
        let group = group.ok_or_else(|| missing(broker, ApiKey::ConsumerGroupDescribe, name))?;
        if group.error_code == ErrorCode::GroupIdNotFound.code() {
            return Err(unknown(broker, name));
        }
        let message = group.error_message.as_ref();
        refusal::check(
            broker,
            ApiKey::ConsumerGroupDescribe,
            group.error_code,
            message,
            || format!("group `{name}`"),
        )?;
        Ok(Group {
            name: group.group_id,
            kind: "consumer",
            state: group.group_state,
            assignor: group.assignor_name,
            epoch: Some(group.group_epoch),
            coordinator: Arc::clone(broker),
            members: group.members.into_iter().map(consumer_member).collect(),
        })
    }

    /// Returns all offsets that a group has committed.
    pub async fn committed(&self, group: &str) -> Result<Offsets, ClientError> {
        self.retrying(|| self.fetch_committed(group, false)).await
    }

    /// Returns all offsets that a group has committed, once no transaction is about to change one of them
    /// (KIP-447). Brokers that cannot tell answer at once.
    pub async fn committed_for_good(&self, group: &str) -> Result<Offsets, ClientError> {
        self.retrying(|| self.fetch_committed(group, true)).await
    }

    async fn fetch_committed(&self, group: &str, is_final: bool) -> Result<Offsets, ClientError> {
        let connection = self.coordinator(group).await?;
        let version = connection.version::<OffsetFetchRequest>(FETCH_BY_NAME)?;
        let mut request = OffsetFetchRequest {
            topics: None,
            ..OffsetFetchRequest::default()
        };
        if version >= 8 {
            // Fields of older versions must stay at their defaults.
            request = OffsetFetchRequest::default();
            request.groups.push(OffsetFetchRequestGroup {
                group_id: Str::copy_from(group),
                topics: None,
                ..OffsetFetchRequestGroup::default()
            });
        } else {
            request.group_id = Str::copy_from(group);
        }
        request.require_stable = is_final && version >= STABLE_FROM;
        let answer = connection.send(&request, version, Duration::ZERO).await?.await?;
        let check = |code| {
            refusal::check(connection.broker(), ApiKey::OffsetFetch, code, None, || {
                format!("group `{group}`")
            })
        };
        check(answer.error_code)?;
        let mut offsets = Offsets::new();
        for topic in answer.topics {
            for row in topic.partitions {
                check(row.error_code)?;
                put(
                    &mut offsets,
                    &topic.name,
                    row.partition_index,
                    row.committed_offset,
                    row.metadata,
                );
            }
        }
        for group in answer.groups {
            check(group.error_code)?;
            for topic in group.topics {
                for row in topic.partitions {
                    check(row.error_code)?;
                    put(
                        &mut offsets,
                        &topic.name,
                        row.partition_index,
                        row.committed_offset,
                        row.metadata,
                    );
                }
            }
        }
        Ok(offsets)
    }

    /// Sets offsets of a group without members.
    pub async fn commit(&self, group: &str, offsets: &[((Str, i32), i64)]) -> Result<(), ClientError> {
        self.commit_as(group, "", -1, offsets).await
    }

    /// Commits as a member of a generation.
    pub(crate) async fn commit_as(
        &self,
        group: &str,
        member: &str,
        generation: i32,
        offsets: &[((Str, i32), i64)],
    ) -> Result<(), ClientError> {
        let mut topics: Vec<OffsetCommitRequestTopic> = Vec::new();
        for ((topic, partition), offset) in offsets {
            let row = OffsetCommitRequestPartition {
                partition_index: *partition,
                committed_offset: *offset,
                committed_metadata: Some(Str::default()),
                ..OffsetCommitRequestPartition::default()
            };
            match topics.last_mut().filter(|last| last.name == *topic) {
                Some(last) => last.partitions.push(row),
                None => topics.push(OffsetCommitRequestTopic {
                    name: topic.clone(),
                    partitions: vec![row],
                    ..OffsetCommitRequestTopic::default()
                }),
            }
        }
        let request = OffsetCommitRequest {
            group_id: Str::copy_from(group),
            generation_id_or_member_epoch: generation,
            member_id: Str::copy_from(member),
            topics,
            ..OffsetCommitRequest::default()
        };
        self.retrying(|| async {
            let connection = self.coordinator(group).await?;
            let version = connection.version::<OffsetCommitRequest>(COMMIT_BY_NAME)?;
            let answer = connection.send(&request, version, Duration::ZERO).await?.await?;
            for topic in &answer.topics {
                for row in &topic.partitions {
                    refusal::check(
                        connection.broker(),
                        ApiKey::OffsetCommit,
                        row.error_code,
                        None,
                        || {
                            let partition = crate::offsets::name(&topic.name, row.partition_index);
                            format!("the offset of group `{group}` for {partition}")
                        },
                    )?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Deletes committed offsets of a group.
    pub async fn delete_offsets(&self, group: &str, partitions: &[(Str, i32)]) -> Result<(), ClientError> {
        let mut topics: Vec<OffsetDeleteRequestTopic> = Vec::new();
        for (topic, partition) in partitions {
            let row = OffsetDeleteRequestPartition {
                partition_index: *partition,
            };
            match topics.last_mut().filter(|last| last.name == *topic) {
                Some(last) => last.partitions.push(row),
                None => topics.push(OffsetDeleteRequestTopic {
                    name: topic.clone(),
                    partitions: vec![row],
                }),
            }
        }
        let request = OffsetDeleteRequest {
            group_id: Str::copy_from(group),
            topics,
        };
        let connection = self.coordinator(group).await?;
        let answer = connection.call(&request).await?;
        let codes = answer.topics.iter().flat_map(|topic| &topic.partitions);
        for code in std::iter::once(answer.error_code).chain(codes.map(|row| row.error_code)) {
            refusal::check(connection.broker(), ApiKey::OffsetDelete, code, None, || {
                format!("offsets of group `{group}`")
            })?;
        }
        Ok(())
    }

    /// Deletes a group without members, and its offsets.
    pub async fn delete_group(&self, group: &str) -> Result<(), ClientError> {
        let request = DeleteGroupsRequest {
            groups_names: vec![Str::copy_from(group)],
        };
        let connection = self.coordinator(group).await?;
        let answer = connection.call(&request).await?;
        for row in &answer.results {
            refusal::check(
                connection.broker(),
                ApiKey::DeleteGroups,
                row.error_code,
                None,
                || format!("group `{group}`"),
            )?;
        }
        Ok(())
    }
}

fn put(offsets: &mut Offsets, topic: &Str, partition: i32, offset: i64, metadata: Option<Str>) {
    if offset >= 0 {
        offsets.insert((topic.clone(), partition), Committed { offset, metadata });
    }
}

fn missing(broker: &Arc<str>, api: ApiKey, group: &str) -> ClientError {
    ClientError::Missing {
        broker: Arc::clone(broker),
        api,
        what: format!("group `{group}`").into(),
    }
}

fn unknown(broker: &Arc<str>, group: &str) -> ClientError {
    ClientError::Refused {
        broker: Arc::clone(broker),
        api: ApiKey::DescribeGroups,
        about: format!("group `{group}`").into(),
        code: ErrorCode::GroupIdNotFound.code(),
        message: None,
    }
}

fn classic_member(member: describe_groups::DescribedGroupMember, is_consumer: bool) -> Member {
    let assignment = if is_consumer {
        read_assignment(member.member_assignment)
    } else {
        Vec::new()
    };
    Member {
        id: member.member_id,
        instance: member.group_instance_id,
        client: member.client_id,
        host: member.client_host,
        assignment,
        target: None,
    }
}

fn consumer_member(member: consumer_group_describe::Member) -> Member {
    let named = |assignment: consumer_group_describe::Assignment| {
        let named = |row: consumer_group_describe::TopicPartitions| (row.topic_name, row.partitions);
        let mut rows: Vec<_> = assignment.topic_partitions.into_iter().map(named).collect();
        for (_, partitions) in &mut rows {
            partitions.sort_unstable();
        }
        rows.sort();
        rows
    };
    let (assignment, target) = (named(member.assignment), named(member.target_assignment));
    Member {
        id: member.member_id,
        instance: member.instance_id,
        client: member.client_id,
        host: member.client_host,
        target: (target != assignment).then_some(target),
        assignment,
    }
}

/// Reads an assignment that the leader made. Empty if the bytes are not a consumer's assignment.
pub(crate) fn read_assignment(bytes: Bytes) -> Vec<(Str, Vec<i32>)> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let read = consumer_protocol::read::<ConsumerProtocolAssignment>(bytes, DecodeLimits::default());
    let mut rows: Vec<_> = read
        .map(|(_, assignment)| assignment.assigned_partitions)
        .unwrap_or_default()
        .into_iter()
        .map(|row| (row.topic, row.partitions))
        .collect();
    for (_, partitions) in &mut rows {
        partitions.sort_unstable();
    }
    rows.sort();
    rows
}
