//! `DescribeTopicPartitions`: topics in pages, sorted by name (KIP-966).

use std::collections::BTreeSet;
use std::sync::Arc;

use stafett_access::Action;
use stafett_kafka_wire::messages::describe_topic_partitions::{
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic, RequestCursor,
    ResponseCursor,
};
use stafett_kafka_wire::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str, Uuid};
use stafett_model::TopicName;
use stafett_topics::{Topic, is_internal};

use super::metadata::TOPIC_OPERATIONS;
use crate::call::Call;
use crate::cells::{Leaders, NO_LEADER};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::response_queue::{HandlerResult, PendingResponse};

/// Maximum partitions per answer, regardless of the request.
const PARTITIONS_MAX: usize = 2000;

/// A requested topic; its name if it does not exist.
type TopicLookup = Result<Arc<Topic>, Str>;

pub(super) fn describe_topic_partitions(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeTopicPartitionsRequest = call.read(body)?;
    Ok(PendingResponse::in_turn(move |context| {
        let shared = &*context.shared;
        let names: BTreeSet<Str> = request.topics.iter().map(|topic| topic.name.clone()).collect();
        let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
        let limit = limit.clamp(1, PARTITIONS_MAX);
        let cursor = request.cursor.as_ref();
        let is_lost = cursor.is_some_and(|cursor| {
            cursor.partition_index < 0 || !names.is_empty() && !names.contains(&cursor.topic_name)
        });
        let response = if is_lost {
            lost(shared, call, names)
        } else {
            page(context, call, names, cursor, limit)
        };
        call.answer::<DescribeTopicPartitionsRequest>(&response)
    }))
}

/// Reports an invalid cursor for each topic.
fn lost(shared: &KafkaContext, call: Call, names: BTreeSet<Str>) -> DescribeTopicPartitionsResponse {
    let topics = names
        .into_iter()
        .map(|name| DescribeTopicPartitionsResponseTopic {
            error_code: shared.metrics.error(call.api, ErrorCode::InvalidRequest),
            name: Some(name),
            topic_authorized_operations: i32::MIN,
            ..DescribeTopicPartitionsResponseTopic::default()
        });
    DescribeTopicPartitionsResponse {
        topics: topics.collect(),
        ..DescribeTopicPartitionsResponse::default()
    }
}

fn page(
    context: &RequestContext,
    call: Call,
    names: BTreeSet<Str>,
    cursor: Option<&RequestCursor>,
    limit: usize,
) -> DescribeTopicPartitionsResponse {
    let shared = &*context.shared;
    let from = cursor.map_or("", |cursor| &*cursor.topic_name);
    let entries = if names.is_empty() {
        all(context, from, limit)
    } else {
        let wanted = names.into_iter().filter(|name| **name >= *from);
        wanted
            .map(|name| {
                // A topic that may not be seen looks as if it were refused, whether it is there or not.
                let may_see = context.check_topic(Action::Describe, &name).is_ok();
                let topic = shared.broker.topics().named(&name);
                let topic = topic.filter(|topic| may_see && shared.shows(topic));
                topic.ok_or(name)
            })
            .collect()
    };
    let mut left = limit;
    let mut response = DescribeTopicPartitionsResponse::default();
    for entry in entries {
        let name = entry.as_ref().map_or_else(|name| &**name, |topic| &*topic.name);
        let next = |partition_index| {
            Some(ResponseCursor {
                topic_name: Str::copy_from(name),
                partition_index,
            })
        };
        if left == 0 {
            response.next_cursor = next(0);
            break;
        }
        let Ok(topic) = &entry else {
            response.topics.push(unknown(context, call, name));
            continue;
        };
        let first = cursor.filter(|cursor| *cursor.topic_name == *topic.name);
        let first = first.map_or(0, |cursor| cursor.partition_index);
        let partitions = i32::try_from(topic.partitions()).unwrap_or(i32::MAX);
        let end = first
            .saturating_add(i32::try_from(left).unwrap_or(i32::MAX))
            .min(partitions);
        left -= usize::try_from(end - first).unwrap_or(0);
        response.topics.push(described(shared, topic, first..end));
        if end < partitions {
            response.next_cursor = next(end);
            break;
        }
    }
    response
}

/// Returns the first topics at or behind a name: `limit`, and one more for the cursor.
fn all(context: &RequestContext, from: &str, limit: usize) -> Vec<TopicLookup> {
    let mut topics = context.shared.broker.topics().all();
    topics.retain(|topic| {
        context.shared.shows(topic)
            && *topic.name >= *from
            && context.may_topic(Action::Describe, &topic.name)
    });
    if topics.len() > limit + 1 {
        topics.select_nth_unstable_by(limit, |a, b| a.name.cmp(&b.name));
        topics.truncate(limit + 1);
    }
    topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    topics.into_iter().map(Ok).collect()
}

fn unknown(context: &RequestContext, call: Call, name: &str) -> DescribeTopicPartitionsResponseTopic {
    let shared = &*context.shared;
    let denied = (!context.may_topic(Action::Describe, name)).then_some(ErrorCode::TopicAuthorizationFailed);
    let code = denied
        .or_else(|| TopicName::check(name).map_err(error::name).err())
        .unwrap_or(ErrorCode::UnknownTopicOrPartition);
    DescribeTopicPartitionsResponseTopic {
        error_code: shared.metrics.error(call.api, code),
        name: Some(Str::copy_from(name)),
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn described(
    shared: &KafkaContext,
    topic: &Topic,
    partitions: std::ops::Range<i32>,
) -> DescribeTopicPartitionsResponseTopic {
    let leaders = Leaders::new(shared);
    let leader_epoch = leaders.epoch(topic);
    let partitions = partitions.map(|partition_index| {
        let leader = leaders.of(topic, partition_index);
        DescribeTopicPartitionsResponsePartition {
            error_code: leader
                .map_or(ErrorCode::LeaderNotAvailable, |_| ErrorCode::None)
                .code(),
            partition_index,
            leader_id: leader.unwrap_or(NO_LEADER),
            leader_epoch,
            replica_nodes: leader.into_iter().collect(),
            isr_nodes: leader.into_iter().collect(),
            eligible_leader_replicas: Some(Vec::new()),
            last_known_elr: Some(Vec::new()),
            ..DescribeTopicPartitionsResponsePartition::default()
        }
    });
    DescribeTopicPartitionsResponseTopic {
        name: Some(Str::copy_from(&topic.name)),
        is_internal: is_internal(&topic.name),
        topic_id: Uuid::from(topic.id.0),
        partitions: partitions.collect(),
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}
