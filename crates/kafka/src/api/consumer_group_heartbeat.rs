//! `ConsumerGroupHeartbeat`: a member of a consumer group reports its subscription and partitions, and
//! receives its assignment (KIP-848).

use stafett_groups::HeartbeatResponse;
use stafett_groups::consumer::{Assignor, EPOCH_JOIN, EPOCH_LEAVE_STATIC, Heartbeat, Partition, Partitions};
use stafett_kafka_wire::messages::consumer_group_heartbeat::{
    Assignment, RequestTopicPartitions, ResponseTopicPartitions,
};
use stafett_kafka_wire::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_topics::TopicId;

use super::group_names::{client_host, is_blank, new_member_id};
use crate::call::{Call, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{GroupOperation, Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

pub(super) fn consumer_group_heartbeat(
    context: &RequestContext,
    call: Call,
    client: Option<&str>,
    body: Decoder,
) -> HandlerResult {
    let mut request: ConsumerGroupHeartbeatRequest = call.read(body)?;
    let shared = &context.shared;
    // Members choose their ids, except in version 0.
    if call.version == 0 && request.member_epoch == EPOCH_JOIN && request.member_id.is_empty() {
        request.member_id = Str::copy_from(&new_member_id(client.unwrap_or_default()));
    }
    let beat = match read(&request, client, context) {
        Ok(beat) => beat,
        Err(wrong) => return Ok(PendingResponse::Ready(refused(shared, call, wrong.0, wrong.1))),
    };
    let member = beat.member.clone();
    let group = request.group_id.detach();
    let stepped = match shared.broker.groups().consumer_heartbeat(&group, beat) {
        Ok(stepped) => stepped,
        Err(error) => {
            let code = error::consumer(&error)?;
            return Ok(PendingResponse::Ready(refused(
                shared,
                call,
                code,
                error.to_string(),
            )));
        }
    };
    if stepped.stored.is_none() {
        return Ok(PendingResponse::Ready(response(
            context,
            call,
            &member,
            &stepped.value,
        )));
    }
    let stored = then(move |context, stored| match stored {
        Ok(answer) => response(context, call, &member, &answer),
        Err(error) => refused(&context.shared, call, error::group(&error)?, error.to_string()),
    });
    let operation = Operation::Group(GroupOperation::AwaitStep(group, Box::new(stepped), stored));
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

/// Converts a request. Fails if it is malformed or names an unknown assignor.
fn read(
    request: &ConsumerGroupHeartbeatRequest,
    client: Option<&str>,
    context: &RequestContext,
) -> Result<Heartbeat, (ErrorCode, String)> {
    if let Some(wrong) = check(request) {
        return Err((ErrorCode::InvalidRequest, wrong.to_owned()));
    }
    let assignor = match &request.server_assignor {
        None => None,
        Some(name) => Some(Assignor::named(name).ok_or_else(|| {
            let known = Assignor::ALL.map(Assignor::name).join(", ");
            let message = format!(
                "there is no assignor {:?}: expected one of {known}",
                name.as_str()
            );
            (ErrorCode::UnsupportedAssignor, message)
        })?),
    };
    let owned = |text: &Str| Box::<str>::from(text.as_str());
    Ok(Heartbeat {
        member: owned(&request.member_id),
        epoch: request.member_epoch,
        instance: request.instance_id.as_ref().map(owned),
        rack: request.rack_id.as_ref().map(owned),
        client_id: client.unwrap_or_default().into(),
        host: client_host(context),
        rebalance_timeout_ms: match request.rebalance_timeout_ms {
            -1 => None,
            ms => Some(u32::try_from(ms).unwrap_or(0)),
        },
        names: request
            .subscribed_topic_names
            .as_ref()
            .map(|names| names.iter().map(owned).collect()),
        pattern: request.subscribed_topic_regex.as_ref().map(owned),
        assignor,
        owned: request.topic_partitions.as_deref().map(partitions),
        connection: Some(context.entry.id),
    })
}

/// Returns the first malformed part of a request. Does not look at the group.
fn check(request: &ConsumerGroupHeartbeatRequest) -> Option<&'static str> {
    let is_empty = |text: &Option<Str>| text.as_deref().is_some_and(is_blank);
    let joins = request.member_epoch == EPOCH_JOIN;
    let owns_nothing = request.topic_partitions.as_ref().is_some_and(Vec::is_empty);
    let wants = request.subscribed_topic_names.is_some() || request.subscribed_topic_regex.is_some();
    let rules = [
        (is_blank(&request.member_id), "a member needs an id"),
        (is_blank(&request.group_id), "a group needs a name"),
        (
            is_empty(&request.instance_id),
            "the instance id is empty: leave it out, or give one",
        ),
        (
            is_empty(&request.rack_id),
            "the rack is empty: leave it out, or give one",
        ),
        (
            joins && request.rebalance_timeout_ms == -1,
            "a member that joins has to say its rebalance timeout",
        ),
        (
            joins && !owns_nothing,
            "a member that joins has to say that it has no partitions",
        ),
        (
            joins && !wants,
            "a member that joins has to say what it subscribes to",
        ),
        (
            request.member_epoch == EPOCH_LEAVE_STATIC && request.instance_id.is_none(),
            "only a member with an instance id can leave for a while",
        ),
        (
            request.member_epoch < EPOCH_LEAVE_STATIC,
            "there is no such epoch: expected -2 or more",
        ),
    ];
    rules
        .into_iter()
        .find(|(is_wrong, _)| *is_wrong)
        .map(|(_, wrong)| wrong)
}

fn partitions(topics: &[RequestTopicPartitions]) -> Partitions {
    let all = topics.iter().flat_map(|topic| {
        let id = TopicId(topic.topic_id.into());
        let indexes = topic
            .partitions
            .iter()
            .filter_map(|index| u32::try_from(*index).ok());
        indexes.map(move |index| Partition { topic: id, index })
    });
    all.collect()
}

fn response(
    context: &RequestContext,
    call: Call,
    member: &str,
    response: &HeartbeatResponse,
) -> ResponseResult {
    let HeartbeatResponse { reply, heartbeat_ms } = response;
    // A leaving member sends no more heartbeats.
    let interval = if reply.epoch < EPOCH_JOIN {
        0
    } else {
        *heartbeat_ms
    };
    let assignment = reply.assignment.as_ref().map(|assignment| Assignment {
        topic_partitions: assignment
            .by_topic()
            .filter_map(|run| {
                // A pattern also matches topics that may not be seen.
                let first = run.first().filter(|first| context.may_see_id(first.topic))?;
                Some(ResponseTopicPartitions {
                    topic_id: first.topic.0.into(),
                    partitions: run
                        .iter()
                        .filter_map(|one| i32::try_from(one.index).ok())
                        .collect(),
                })
            })
            .collect(),
    });
    call.answer::<ConsumerGroupHeartbeatRequest>(&ConsumerGroupHeartbeatResponse {
        member_id: Some(Str::copy_from(member)),
        member_epoch: reply.epoch,
        heartbeat_interval_ms: i32::try_from(interval).unwrap_or(i32::MAX),
        assignment,
        ..ConsumerGroupHeartbeatResponse::default()
    })
}

fn refused(shared: &KafkaContext, call: Call, code: ErrorCode, message: String) -> ResponseResult {
    call.answer::<ConsumerGroupHeartbeatRequest>(&ConsumerGroupHeartbeatResponse {
        error_code: shared.metrics.error(call.api, code),
        error_message: Some(message.into()),
        ..ConsumerGroupHeartbeatResponse::default()
    })
}
