//! Requests about groups, and their commits.

use stafett_access::Action;
use stafett_kafka_wire::messages::delete_groups::DeletableGroupResult;
use stafett_kafka_wire::messages::describe_share_group_offsets::DescribeShareGroupOffsetsResponseGroup;
use stafett_kafka_wire::messages::offset_commit::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use stafett_kafka_wire::messages::offset_fetch::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};
use stafett_kafka_wire::messages::txn_offset_commit::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use stafett_kafka_wire::messages::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest, DeleteGroupsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, OffsetCommitRequest,
    OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse,
    ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest, ShareFetchResponse,
    ShareGroupDescribeRequest, ShareGroupDescribeResponse, ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse, SyncGroupRequest, SyncGroupResponse, TxnOffsetCommitRequest,
    TxnOffsetCommitResponse, consumer_group_describe as consumers, describe_groups as classic,
    share_group_describe as shares,
};
use stafett_kafka_wire::{ApiKey, ErrorCode, Str, Uuid};
use stafett_topics::TopicId;

use super::{Checked, Gate, Right};

/// First version of `OffsetCommit` that names topics by id.
const IDS_FROM: i16 = 10;
/// First version of `OffsetFetch` with several groups.
const MANY_FROM: i16 = 8;

/// Checks a right on the group of a request; the answer has one code.
macro_rules! group {
    ($gate:ident, $action:ident, $request:ident, $response:ident) => {
        $gate.check(
            |asked: &$request| $gate.context.check_group(Action::$action, &asked.group_id),
            |_, error_code| $response {
                error_code,
                ..$response::default()
            },
        )
    };
}

/// Checks the group of a heartbeat, and the topics that it names. Topics of a pattern that may not be seen
/// are left out of the answer.
macro_rules! subscription {
    ($gate:ident, $request:ident, $response:ident) => {
        $gate.check(
            |asked: &$request| {
                $gate.context.check_group(Action::Read, &asked.group_id)?;
                let names = asked.subscribed_topic_names.iter().flatten();
                $gate.topics(Action::Describe, names.map(|name| &**name))
            },
            |_, error_code| $response {
                error_code,
                ..$response::default()
            },
        )
    };
}

/// Checks a right on each of many groups.
macro_rules! descriptions {
    ($gate:ident, $request:ident, $field:ident, $response:ident, $group:path) => {
        $gate.check(
            |asked: &$request| {
                let mut groups = asked.$field.iter();
                groups.try_for_each(|group| $gate.context.check_group(Action::Describe, group))
            },
            |asked, _| {
                type Group = $group;
                let groups = asked.$field.into_iter().map(|group_id| Group {
                    error_code: code_of_group($gate, Action::Describe, &group_id),
                    error_message: None,
                    group_id,
                    ..Group::default()
                });
                $response {
                    groups: groups.collect(),
                    ..$response::default()
                }
            },
        )
    };
}

pub(super) const RIGHTS: &[(ApiKey, Right)] = &[
    (ApiKey::JoinGroup, |gate| {
        group!(gate, Read, JoinGroupRequest, JoinGroupResponse)
    }),
    (ApiKey::SyncGroup, |gate| {
        group!(gate, Read, SyncGroupRequest, SyncGroupResponse)
    }),
    (ApiKey::Heartbeat, |gate| {
        group!(gate, Read, HeartbeatRequest, HeartbeatResponse)
    }),
    (ApiKey::LeaveGroup, |gate| {
        group!(gate, Read, LeaveGroupRequest, LeaveGroupResponse)
    }),
    (ApiKey::ConsumerGroupHeartbeat, |gate| {
        subscription!(
            gate,
            ConsumerGroupHeartbeatRequest,
            ConsumerGroupHeartbeatResponse
        )
    }),
    (ApiKey::ShareGroupHeartbeat, |gate| {
        subscription!(gate, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse)
    }),
    (ApiKey::DescribeGroups, |gate| {
        descriptions!(
            gate,
            DescribeGroupsRequest,
            groups,
            DescribeGroupsResponse,
            classic::DescribedGroup
        )
    }),
    (ApiKey::ConsumerGroupDescribe, |gate| {
        descriptions!(
            gate,
            ConsumerGroupDescribeRequest,
            group_ids,
            ConsumerGroupDescribeResponse,
            consumers::DescribedGroup
        )
    }),
    (ApiKey::ShareGroupDescribe, |gate| {
        descriptions!(
            gate,
            ShareGroupDescribeRequest,
            group_ids,
            ShareGroupDescribeResponse,
            shares::DescribedGroup
        )
    }),
    (ApiKey::OffsetCommit, offset_commit),
    (ApiKey::OffsetFetch, offset_fetch),
    (ApiKey::TxnOffsetCommit, txn_offset_commit),
    (ApiKey::DeleteGroups, delete_groups),
    (ApiKey::OffsetDelete, offset_delete),
    (ApiKey::AlterShareGroupOffsets, alter_share_offsets),
    (ApiKey::DeleteShareGroupOffsets, delete_share_offsets),
    (ApiKey::DescribeShareGroupOffsets, describe_share_offsets),
    (ApiKey::ShareFetch, share_fetch),
    (ApiKey::ShareAcknowledge, share_acknowledge),
];

fn offset_delete(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &OffsetDeleteRequest| {
            gate.context.check_group(Action::Delete, &asked.group_id)?;
            gate.topics(Action::Read, asked.topics.iter().map(|topic| &*topic.name))
        },
        |_, error_code| OffsetDeleteResponse {
            error_code,
            ..OffsetDeleteResponse::default()
        },
    )
}

fn alter_share_offsets(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &AlterShareGroupOffsetsRequest| {
            gate.context.check_group(Action::Read, &asked.group_id)?;
            gate.topics(Action::Read, asked.topics.iter().map(|topic| &*topic.topic_name))
        },
        |_, error_code| AlterShareGroupOffsetsResponse {
            error_code,
            ..AlterShareGroupOffsetsResponse::default()
        },
    )
}

fn delete_share_offsets(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &DeleteShareGroupOffsetsRequest| {
            gate.context.check_group(Action::Delete, &asked.group_id)?;
            gate.topics(Action::Read, asked.topics.iter().map(|topic| &*topic.topic_name))
        },
        |_, error_code| DeleteShareGroupOffsetsResponse {
            error_code,
            ..DeleteShareGroupOffsetsResponse::default()
        },
    )
}

fn share_fetch(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &ShareFetchRequest| {
            let ids = asked.topics.iter().map(|topic| topic.topic_id);
            shared(gate, asked.group_id.as_ref(), ids)
        },
        |_, error_code| ShareFetchResponse {
            error_code,
            ..ShareFetchResponse::default()
        },
    )
}

fn share_acknowledge(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &ShareAcknowledgeRequest| {
            let ids = asked.topics.iter().map(|topic| topic.topic_id);
            shared(gate, asked.group_id.as_ref(), ids)
        },
        |_, error_code| ShareAcknowledgeResponse {
            error_code,
            ..ShareAcknowledgeResponse::default()
        },
    )
}

/// Checks a request of a member of a share group.
fn shared(gate: Gate<'_>, group: Option<&Str>, ids: impl Iterator<Item = Uuid>) -> Result<(), ErrorCode> {
    let group = group.map(|group| &**group).unwrap_or_default();
    gate.context.check_group(Action::Read, group)?;
    let names: Vec<Str> = ids.filter_map(|id| name_of(gate, id)).collect();
    gate.topics(Action::Read, names.iter().map(|name| &**name))
}

fn name_of(gate: Gate<'_>, id: Uuid) -> Option<Str> {
    let topics = gate.context.shared.broker.topics();
    topics
        .with_id(TopicId(id.into()))
        .map(|topic| Str::copy_from(&topic.name))
}

/// Returns the code for a group of a refused request.
fn code_of_group(gate: Gate<'_>, action: Action, name: &str) -> i16 {
    let checked = gate.context.check_group(action, name);
    gate.refused
        .or_else(|| checked.err())
        .unwrap_or(ErrorCode::OperationNotAttempted)
        .code()
}

/// Returns the code for a topic of a refused request about a group.
fn code_of_topic(gate: Gate<'_>, code: i16, action: Action, name: &str) -> i16 {
    if code == ErrorCode::TopicAuthorizationFailed.code() {
        gate.code_of_topic(action, name)
    } else {
        code
    }
}

fn offset_commit(gate: Gate<'_>) -> Checked {
    let named = |name: &Str, id: Uuid| {
        if gate.call.version >= IDS_FROM {
            name_of(gate, id)
        } else {
            Some(name.clone())
        }
    };
    gate.check(
        |asked: &OffsetCommitRequest| {
            gate.context.check_group(Action::Read, &asked.group_id)?;
            let topics = asked.topics.iter();
            let known = topics.filter_map(|topic| named(&topic.name, topic.topic_id));
            let known: Vec<Str> = known.collect();
            gate.topics(Action::Read, known.iter().map(|name| &**name))
        },
        |asked, code| {
            let topics = asked.topics.into_iter().map(|topic| {
                let name = named(&topic.name, topic.topic_id).unwrap_or_default();
                let error_code = code_of_topic(gate, code, Action::Read, &name);
                let partitions = topic
                    .partitions
                    .iter()
                    .map(|asked| OffsetCommitResponsePartition {
                        partition_index: asked.partition_index,
                        error_code,
                    });
                OffsetCommitResponseTopic {
                    partitions: partitions.collect(),
                    name: topic.name,
                    topic_id: topic.topic_id,
                }
            });
            OffsetCommitResponse {
                topics: topics.collect(),
                ..OffsetCommitResponse::default()
            }
        },
    )
}

fn txn_offset_commit(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &TxnOffsetCommitRequest| {
            gate.context
                .check_transaction(Action::Write, &asked.transactional_id)?;
            gate.context.check_group(Action::Read, &asked.group_id)?;
            gate.topics(Action::Read, asked.topics.iter().map(|topic| &*topic.name))
        },
        |asked, code| {
            let topics = asked.topics.into_iter().map(|topic| {
                let error_code = code_of_topic(gate, code, Action::Read, &topic.name);
                let partitions = topic.partitions.iter();
                let partitions = partitions.map(|asked| TxnOffsetCommitResponsePartition {
                    partition_index: asked.partition_index,
                    error_code,
                });
                TxnOffsetCommitResponseTopic {
                    partitions: partitions.collect(),
                    name: topic.name,
                }
            });
            TxnOffsetCommitResponse {
                topics: topics.collect(),
                ..TxnOffsetCommitResponse::default()
            }
        },
    )
}

/// Checks the groups. The handler checks topics, and leaves those out that are not named and may not be seen.
fn offset_fetch(gate: Gate<'_>) -> Checked {
    let check_group = |name: &str| gate.context.check_group(Action::Describe, name);
    gate.check(
        |asked: &OffsetFetchRequest| {
            if gate.call.version < MANY_FROM {
                return check_group(&asked.group_id);
            }
            asked
                .groups
                .iter()
                .try_for_each(|group| check_group(&group.group_id))
        },
        |asked, code| {
            let topics = asked.topics.into_iter().flatten().map(|topic| {
                let partitions = topic.partition_indexes.iter();
                let partitions = partitions.map(|index| OffsetFetchResponsePartition {
                    partition_index: *index,
                    committed_offset: -1,
                    error_code: code,
                    ..OffsetFetchResponsePartition::default()
                });
                OffsetFetchResponseTopic {
                    partitions: partitions.collect(),
                    name: topic.name,
                }
            });
            let groups = asked.groups.into_iter().map(|group| OffsetFetchResponseGroup {
                error_code: code_of_group(gate, Action::Describe, &group.group_id),
                group_id: group.group_id,
                ..OffsetFetchResponseGroup::default()
            });
            OffsetFetchResponse {
                topics: topics.collect(),
                error_code: if (2..MANY_FROM).contains(&gate.call.version) {
                    code
                } else {
                    0
                },
                groups: groups.collect(),
                ..OffsetFetchResponse::default()
            }
        },
    )
}

fn delete_groups(gate: Gate<'_>) -> Checked {
    let action = Action::Delete;
    gate.check(
        |asked: &DeleteGroupsRequest| {
            let mut names = asked.groups_names.iter();
            names.try_for_each(|name| gate.context.check_group(action, name))
        },
        |asked, _| {
            let results = asked
                .groups_names
                .into_iter()
                .map(|group_id| DeletableGroupResult {
                    error_code: code_of_group(gate, action, &group_id),
                    group_id,
                });
            DeleteGroupsResponse {
                results: results.collect(),
                ..DeleteGroupsResponse::default()
            }
        },
    )
}

fn describe_share_offsets(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &DescribeShareGroupOffsetsRequest| {
            asked.groups.iter().try_for_each(|group| {
                gate.context.check_group(Action::Describe, &group.group_id)?;
                let topics = group.topics.iter().flatten();
                gate.topics(Action::Describe, topics.map(|topic| &*topic.topic_name))
            })
        },
        |asked, code| {
            let groups = asked
                .groups
                .into_iter()
                .map(|group| DescribeShareGroupOffsetsResponseGroup {
                    error_code: code,
                    error_message: None,
                    group_id: group.group_id,
                    topics: Vec::new(),
                });
            DescribeShareGroupOffsetsResponse {
                groups: groups.collect(),
                ..DescribeShareGroupOffsetsResponse::default()
            }
        },
    )
}
