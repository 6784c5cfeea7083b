//! `OffsetFetch`: committed offsets of groups, for given partitions or for all with a commit.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use stafett_access::Action;
use stafett_groups::{CommittedOffset, Group};
use stafett_kafka_wire::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use stafett_kafka_wire::messages::{OffsetFetchRequest, OffsetFetchResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str, Uuid};
use stafett_topics::{Topic, TopicId};
use stafett_transactions::Place;

use crate::call::{Call, Close, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{Operation, Step, then, write_sized};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::transaction_operation::TransactionOperation;

/// Partitions of groups whose commits wait for the end of a transaction.
type Pending = HashMap<Str, BTreeSet<Place>>;

/// First version with several groups per request.
const MANY_FROM: i16 = 8;
/// First version that names topics by id.
const IDS_FROM: i16 = 10;
/// Maximum partitions per answer.
const PARTITIONS_MAX: usize = 1_000_000;
/// Partitions from which on an answer counts as large.
const LARGE: usize = 10_000;

pub(super) fn offset_fetch(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: OffsetFetchRequest = call.read(body)?;
    if request.require_stable && context.shared.is_further_cell() {
        let groups = groups_of(call, &request);
        let asked = groups.clone();
        let on_pending = then(move |context, pending: Option<Vec<Vec<Place>>>| {
            let Some(pending) = pending else {
                let code = ErrorCode::CoordinatorLoadInProgress;
                return refused(&context.shared, call, request, code).map(Step::Respond);
            };
            let places = pending.into_iter().map(|places| places.into_iter().collect());
            respond(context, call, request, groups.into_iter().zip(places).collect())
        });
        let operation = Operation::Transaction(TransactionOperation::Pending(asked, on_pending));
        return Ok(PendingResponse::awaiting(operation, Pipelining::Free));
    }
    Ok(PendingResponse::in_turn(move |context| {
        let mut pending = Pending::new();
        if request.require_stable {
            let transactions = context.shared.broker.transactions();
            let groups = groups_of(call, &request).into_iter();
            pending.extend(groups.map(|group| {
                let places = transactions.pending_commits(&group);
                (group, places)
            }));
        }
        respond(context, call, request, pending)
    }))
}

fn groups_of(call: Call, request: &OffsetFetchRequest) -> Vec<Str> {
    if call.version < MANY_FROM {
        return vec![request.group_id.clone()];
    }
    let groups = request.groups.iter();
    groups.map(|group| group.group_id.clone()).collect()
}

fn respond(
    context: &RequestContext,
    call: Call,
    request: OffsetFetchRequest,
    pending: Pending,
) -> Result<Step, Close> {
    let size = size(&context.shared, &request);
    if size > PARTITIONS_MAX {
        return refused(&context.shared, call, request, ErrorCode::InvalidRequest).map(Step::Respond);
    }
    write_sized(context, size >= LARGE, move |context| {
        answer(context, call, request, &pending)
    })
}

/// Rejects all groups of a request.
fn refused(
    shared: &KafkaContext,
    call: Call,
    request: OffsetFetchRequest,
    code: ErrorCode,
) -> ResponseResult {
    let error_code = shared.metrics.error(call.api, code);
    let group = |group: OffsetFetchRequestGroup| OffsetFetchResponseGroup {
        group_id: group.group_id,
        topics: Vec::new(),
        error_code,
    };
    let response = OffsetFetchResponse {
        error_code: if (2..MANY_FROM).contains(&call.version) {
            error_code
        } else {
            0
        },
        groups: request.groups.into_iter().map(group).collect(),
        ..OffsetFetchResponse::default()
    };
    call.answer::<OffsetFetchRequest>(&response)
}

/// Estimates the number of partitions in the answer.
fn size(shared: &KafkaContext, request: &OffsetFetchRequest) -> usize {
    let groups = shared.broker.groups();
    let all = |name: &str| groups.with_group(name, |group| group.map_or(0, |group| group.commits.len()));
    let asked = |topics: &[OffsetFetchRequestTopics]| -> usize {
        topics.iter().map(|topic| topic.partition_indexes.len()).sum()
    };
    let many: usize = request
        .groups
        .iter()
        .map(|group| match &group.topics {
            Some(topics) => asked(topics),
            None => all(&group.group_id),
        })
        .sum();
    let one = match &request.topics {
        Some(topics) => topics.iter().map(|topic| topic.partition_indexes.len()).sum(),
        None => all(&request.group_id),
    };
    many + one
}

fn answer(
    context: &RequestContext,
    call: Call,
    request: OffsetFetchRequest,
    pending: &Pending,
) -> ResponseResult {
    if call.version >= MANY_FROM {
        let mut groups = Vec::with_capacity(request.groups.len());
        for asked in request.groups {
            groups.push(of_group(context, call, pending, asked)?);
        }
        let response = OffsetFetchResponse {
            groups,
            ..OffsetFetchResponse::default()
        };
        return call.answer::<OffsetFetchRequest>(&response);
    }
    let topics = request.topics.map(|topics| {
        let asked = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            topic_id: Uuid::ZERO,
            partition_indexes: topic.partition_indexes,
        });
        asked.collect()
    });
    let asked = OffsetFetchRequestGroup {
        group_id: request.group_id,
        topics,
        ..OffsetFetchRequestGroup::default()
    };
    let one = of_group(context, call, pending, asked)?;
    let partition = |partition: OffsetFetchResponsePartitions| OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: partition.error_code,
    };
    let topics = one.topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    });
    let response = OffsetFetchResponse {
        topics: topics.collect(),
        error_code: one.error_code,
        ..OffsetFetchResponse::default()
    };
    call.answer::<OffsetFetchRequest>(&response)
}

fn of_group(
    context: &RequestContext,
    call: Call,
    pending: &Pending,
    asked: OffsetFetchRequestGroup,
) -> Result<OffsetFetchResponseGroup, Close> {
    let OffsetFetchRequestGroup {
        group_id,
        member_id,
        member_epoch,
        topics,
    } = asked;
    let shared = &*context.shared;
    let none = BTreeSet::new();
    let pending = pending.get(&group_id).unwrap_or(&none);
    let found = shared.broker.groups().with_group(&group_id, |group| {
        if let Some(group) = group {
            group.kind.check_fetch(member_id.as_deref(), member_epoch)?;
        }
        Ok(match topics {
            Some(topics) => topics
                .into_iter()
                .map(|topic| of_topic(context, call.version, group, pending, topic))
                .collect(),
            None => group.map_or_else(Vec::new, |group| {
                all_topics(context, call.version, group, pending)
            }),
        })
    });
    let (topics, code) = match found {
        Ok(topics) => (topics, ErrorCode::None),
        Err(why) => (Vec::new(), error::group(&why)?),
    };
    Ok(OffsetFetchResponseGroup {
        group_id,
        topics,
        error_code: shared.metrics.error(call.api, code),
    })
}

fn of_topic(
    context: &RequestContext,
    version: i16,
    group: Option<&Group>,
    pending: &BTreeSet<(TopicId, u32)>,
    asked: OffsetFetchRequestTopics,
) -> OffsetFetchResponseTopics {
    let topics = context.shared.broker.topics();
    let (topic, code) = if version >= IDS_FROM {
        let topic = topics.with_id(TopicId(asked.topic_id.into()));
        let code = if topic.is_none() {
            ErrorCode::UnknownTopicId
        } else {
            ErrorCode::None
        };
        (topic, code)
    } else {
        (topics.named(&asked.name), ErrorCode::None)
    };
    let name = topic.as_ref().map_or(&*asked.name, |topic| &*topic.name);
    // By an id without a topic nothing is named.
    let checked = if name.is_empty() {
        Ok(())
    } else {
        context.check_topic(Action::Describe, name)
    };
    let (topic, code) = match checked {
        Ok(()) => (topic, code),
        Err(refused) => (None, refused),
    };
    let partitions = asked.partition_indexes.into_iter().map(|index| {
        let commits = group.map(|group| &group.commits);
        let known = topic.as_ref().zip(u32::try_from(index).ok()).zip(commits);
        let committed = known.and_then(|((topic, partition), commits)| commits.get(topic.id, partition));
        let place = topic.as_ref().zip(u32::try_from(index).ok());
        if place.is_some_and(|(topic, partition)| pending.contains(&(topic.id, partition))) {
            return partition(index, None, ErrorCode::UnstableOffsetCommit);
        }
        partition(index, committed, code)
    });
    OffsetFetchResponseTopics {
        partitions: partitions.collect(),
        name: asked.name,
        topic_id: asked.topic_id,
    }
}

/// A topic and its commits by partition.
type TopicCommits<'a> = (Arc<Topic>, &'a [(u32, CommittedOffset)]);

/// Returns all existing topics in which the group has commits and that the caller may see, sorted by name.
fn all_topics(
    context: &RequestContext,
    version: i16,
    group: &Group,
    pending: &BTreeSet<(TopicId, u32)>,
) -> Vec<OffsetFetchResponseTopics> {
    let topics = context.shared.broker.topics();
    let mut known: Vec<TopicCommits<'_>> = group
        .commits
        .topics()
        .filter_map(|(id, partitions)| Some((topics.with_id(id)?, partitions)))
        .filter(|(topic, _)| context.may_topic(Action::Describe, &topic.name))
        .collect();
    known.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let of = |(topic, partitions): TopicCommits<'_>| {
        let partitions = partitions.iter().map(|(index, committed)| {
            let is_pending = pending.contains(&(topic.id, *index));
            let index = i32::try_from(*index).unwrap_or(i32::MAX);
            if is_pending {
                return partition(index, None, ErrorCode::UnstableOffsetCommit);
            }
            partition(index, Some(committed), ErrorCode::None)
        });
        let has_id = version >= IDS_FROM;
        OffsetFetchResponseTopics {
            name: if has_id {
                Str::default()
            } else {
                Str::copy_from(&topic.name)
            },
            topic_id: if has_id {
                Uuid::from(topic.id.0)
            } else {
                Uuid::ZERO
            },
            partitions: partitions.collect(),
        }
    };
    known.into_iter().map(of).collect()
}

fn partition(
    index: i32,
    committed: Option<&CommittedOffset>,
    code: ErrorCode,
) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index: index,
        committed_offset: committed.map_or(-1, |committed| committed.offset),
        committed_leader_epoch: committed.map_or(-1, |committed| committed.leader_epoch),
        metadata: Some(super::group_names::text(
            committed.and_then(|committed| committed.text.as_deref()),
        )),
        error_code: code.code(),
    }
}
