//! `DescribeShareGroupOffsets`, `AlterShareGroupOffsets`, `DeleteShareGroupOffsets`: the places of share
//! groups in topics (KIP-932).

use std::sync::Arc;

use stafett_access::Action;
use stafett_groups::{GroupError, GroupKind};
use stafett_kafka_wire::messages::alter_share_group_offsets::{
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use stafett_kafka_wire::messages::delete_share_group_offsets::DeleteShareGroupOffsetsResponseTopic;
use stafett_kafka_wire::messages::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition, DescribeShareGroupOffsetsResponseTopic,
};
use stafett_kafka_wire::messages::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse, DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::Offset;
use stafett_store::NotStored;
use stafett_topics::Topic;

use crate::call::{Call, Close, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::share_operation::{ShareOperation, TopicStarts};

/// Offset and lag of a partition in which a group has not begun.
const NONE: i64 = -1;
const NO_PLACE: &str = "There is no offset information to delete.";
const NO_TOPIC: &str = "This server does not host this topic-partition.";

pub(super) fn describe(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeShareGroupOffsetsRequest = call.read(body)?;
    let groups = request.groups.into_iter();
    let groups = groups.map(|group| describe_group(context, call, group));
    let response = DescribeShareGroupOffsetsResponse {
        throttle_time_ms: 0,
        groups: groups.collect(),
    };
    Ok(call.answer::<DescribeShareGroupOffsetsRequest>(&response)?.into())
}

fn describe_group(
    context: &RequestContext,
    call: Call,
    group: DescribeShareGroupOffsetsRequestGroup,
) -> DescribeShareGroupOffsetsResponseGroup {
    let shared = &*context.shared;
    let name = group.group_id;
    // A group that does not exist has no places.
    if let Err((code, message)) = has_members(shared, &name) {
        return DescribeShareGroupOffsetsResponseGroup {
            group_id: name,
            error_code: shared.metrics.error(call.api, code),
            error_message: Some(message.into()),
            ..DescribeShareGroupOffsetsResponseGroup::default()
        };
    }
    let topics = shared.broker.topics();
    let described = if let Some(asked) = group.topics {
        let asked = asked.into_iter();
        asked
            .map(|asked| match topics.named(&asked.topic_name) {
                Some(topic) => describe_topic(shared, call, &name, &topic, asked.partitions),
                None => no_such_topic(asked.topic_name, asked.partitions),
            })
            .collect()
    } else {
        let places = shared.broker.shares().of_group(&name);
        let topics = places.iter().filter_map(|place| topics.with_id(place.topic));
        topics
            .filter(|topic| context.may_topic(Action::Describe, &topic.name))
            .map(|topic| {
                let all = 0..i32::try_from(topic.partitions()).unwrap_or(i32::MAX);
                describe_topic(shared, call, &name, &topic, all)
            })
            .collect()
    };
    DescribeShareGroupOffsetsResponseGroup {
        group_id: name,
        topics: described,
        ..DescribeShareGroupOffsetsResponseGroup::default()
    }
}

fn describe_topic(
    shared: &KafkaContext,
    call: Call,
    group: &str,
    topic: &Topic,
    partitions: impl IntoIterator<Item = i32>,
) -> DescribeShareGroupOffsetsResponseTopic {
    let place = shared.broker.shares().get(group, topic.id);
    let partitions = partitions.into_iter().map(|index| {
        let number = u32::try_from(index).ok();
        let number = number.filter(|index| *index < topic.partitions());
        let counts = number.and_then(|index| place.as_ref()?.counts(index));
        let Some(counts) = counts else {
            return without_place(index);
        };
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        DescribeShareGroupOffsetsResponsePartition {
            start_offset: number(counts.start.0),
            lag: match call.version {
                0 => NONE,
                _ => number(counts.unsettled),
            },
            ..without_place(index)
        }
    });
    DescribeShareGroupOffsetsResponseTopic {
        topic_name: Str::copy_from(&topic.name),
        topic_id: topic.id.0.into(),
        partitions: partitions.collect(),
    }
}

/// Describes a partition in which the group has not begun, or that does not exist.
fn without_place(index: i32) -> DescribeShareGroupOffsetsResponsePartition {
    DescribeShareGroupOffsetsResponsePartition {
        partition_index: index,
        start_offset: NONE,
        lag: NONE,
        ..DescribeShareGroupOffsetsResponsePartition::default()
    }
}

fn no_such_topic(topic_name: Str, partitions: Vec<i32>) -> DescribeShareGroupOffsetsResponseTopic {
    DescribeShareGroupOffsetsResponseTopic {
        topic_name,
        partitions: partitions.into_iter().map(without_place).collect(),
        ..DescribeShareGroupOffsetsResponseTopic::default()
    }
}

/// A group that is not as a request needs it.
type GroupFailure = (ErrorCode, String);

/// Returns true if there is a share group of this name and it has members; false if there is none.
fn has_members(shared: &KafkaContext, name: &str) -> Result<Option<bool>, GroupFailure> {
    shared
        .broker
        .groups()
        .with_group(name, |group| match group.map(|group| &group.kind) {
            None => Ok(None),
            Some(GroupKind::Share(kind)) => Ok(Some(!kind.group().is_empty())),
            Some(GroupKind::Classic(_) | GroupKind::Consumer(_)) => {
                let message = format!("Group {name} is not a share group.");
                Err((ErrorCode::GroupIdNotFound, message))
            }
        })
}

/// Checks that a share group has no members. Returns false if there is none of this name.
fn find_empty(shared: &KafkaContext, name: &str) -> Result<bool, GroupFailure> {
    match has_members(shared, name)? {
        Some(true) => Err((ErrorCode::NonEmptyGroup, "The group is not empty.".to_owned())),
        Some(false) => Ok(true),
        None => Ok(false),
    }
}

pub(super) fn alter(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: AlterShareGroupOffsetsRequest = call.read(body)?;
    let shared = &context.shared;
    // The group is made if it does not exist, as its first member would make it.
    let is_there = find_empty(shared, &request.group_id).and_then(|_| {
        let made = shared.broker.groups().make_share_group(&request.group_id);
        let code = |why: &GroupError| error::group(why).unwrap_or(ErrorCode::UnknownServerError);
        made.map_err(|why| (code(&why), why.to_string()))
    });
    if let Err((code, message)) = is_there {
        let response = AlterShareGroupOffsetsResponse {
            error_code: shared.metrics.error(call.api, code),
            error_message: Some(message.into()),
            ..AlterShareGroupOffsetsResponse::default()
        };
        return Ok(call.answer::<AlterShareGroupOffsetsRequest>(&response)?.into());
    }
    let mut starting: Vec<TopicStarts> = Vec::new();
    let mut responses = Vec::new();
    for asked in request.topics {
        let topic = shared.broker.topics().named(&asked.topic_name);
        let mut starts = Vec::new();
        let partitions = asked.partitions.into_iter().map(|partition| {
            let index = u32::try_from(partition.partition_index).ok();
            let index = index.filter(|index| topic.as_ref().is_some_and(|topic| *index < topic.partitions()));
            let code = match (index, u64::try_from(partition.start_offset)) {
                (Some(_), Ok(_)) if is_spread(topic.as_deref()) => ErrorCode::PolicyViolation,
                (Some(index), Ok(offset)) => {
                    starts.push((index, Offset(offset)));
                    ErrorCode::None
                }
                (Some(_), Err(_)) => ErrorCode::InvalidRequest,
                (None, _) => ErrorCode::UnknownTopicOrPartition,
            };
            AlterShareGroupOffsetsResponsePartition {
                partition_index: partition.partition_index,
                error_code: shared.metrics.error(call.api, code),
                error_message: (code == ErrorCode::UnknownTopicOrPartition).then(|| NO_TOPIC.into()),
            }
        });
        let partitions = partitions.collect();
        responses.push(AlterShareGroupOffsetsResponseTopic {
            topic_name: asked.topic_name,
            topic_id: topic.as_ref().map(|topic| topic.id.0.into()).unwrap_or_default(),
            partitions,
        });
        if let Some(topic) = topic.filter(|_| !starts.is_empty()) {
            starting.push((topic, starts));
        }
    }
    let response = AlterShareGroupOffsetsResponse {
        responses,
        ..AlterShareGroupOffsetsResponse::default()
    };
    let moved = then(move |context, moved: Vec<Result<(), NotStored>>| {
        let mut response = response;
        if let Some(Err(why)) = moved.into_iter().find(Result::is_err) {
            let (code, message) = error::not_stored(&why)?;
            response = AlterShareGroupOffsetsResponse {
                error_code: context.shared.metrics.error(call.api, code),
                error_message: Some(message.into()),
                ..AlterShareGroupOffsetsResponse::default()
            };
        }
        call.answer::<AlterShareGroupOffsetsRequest>(&response)
    });
    let operation = Operation::Share(ShareOperation::Move(request.group_id, starting, moved));
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

pub(super) fn delete(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DeleteShareGroupOffsetsRequest = call.read(body)?;
    let shared = &context.shared;
    let is_there = find_empty(shared, &request.group_id).and_then(|is_there| {
        let absent = || {
            (
                ErrorCode::GroupIdNotFound,
                format!("Group {} not found.", &*request.group_id),
            )
        };
        is_there.then_some(()).ok_or_else(absent)
    });
    if let Err((code, message)) = is_there {
        let response = DeleteShareGroupOffsetsResponse {
            error_code: shared.metrics.error(call.api, code),
            error_message: Some(message.into()),
            ..DeleteShareGroupOffsetsResponse::default()
        };
        return Ok(call.answer::<DeleteShareGroupOffsetsRequest>(&response)?.into());
    }
    let names = request.topics.into_iter().map(|topic| topic.topic_name);
    let topics: Vec<(Str, Option<Arc<Topic>>)> = names
        .map(|name| {
            let topic = shared.broker.topics().named(&name);
            (name, topic)
        })
        .collect();
    let known = topics.iter().filter_map(|(_, topic)| Some(topic.as_ref()?.id));
    let known: Vec<_> = known.collect();
    let deleted =
        then(move |context, deleted| respond_deleted(context, call, topics, deleted).map(Step::Respond));
    let operation = Operation::Share(ShareOperation::Delete(request.group_id, known, deleted));
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

fn respond_deleted(
    context: &RequestContext,
    call: Call,
    topics: Vec<(Str, Option<Arc<Topic>>)>,
    deleted: Vec<Result<bool, NotStored>>,
) -> ResponseResult {
    let mut deleted = deleted.into_iter();
    let mut responses = Vec::with_capacity(topics.len());
    for (topic_name, topic) in topics {
        let (code, message) = match &topic {
            None => (ErrorCode::UnknownTopicOrPartition, Some(NO_TOPIC.to_owned())),
            Some(_) => match deleted.next() {
                Some(Ok(true)) => (ErrorCode::None, None),
                Some(Ok(false)) => (ErrorCode::UnknownTopicOrPartition, Some(NO_PLACE.to_owned())),
                Some(Err(why)) => error::not_stored(&why).map(|(code, why)| (code, Some(why)))?,
                None => return Err(Close::OutcomeUnknown),
            },
        };
        responses.push(DeleteShareGroupOffsetsResponseTopic {
            topic_name,
            topic_id: topic.map(|topic| topic.id.0.into()).unwrap_or_default(),
            error_code: context.shared.metrics.error(call.api, code),
            error_message: message.map(Into::into),
        });
    }
    call.answer::<DeleteShareGroupOffsetsRequest>(&DeleteShareGroupOffsetsResponse {
        responses,
        ..DeleteShareGroupOffsetsResponse::default()
    })
}

/// Returns true if partitions lie in other cells, which share groups do not read.
fn is_spread(topic: Option<&Topic>) -> bool {
    topic.is_some_and(|topic| !topic.is_whole())
}
