//! `ShareGroupHeartbeat`: a member of a share group reports its subscription, and receives its partitions
//! (KIP-932).

use stafett_groups::HeartbeatResponse;
use stafett_groups::consumer::{EPOCH_JOIN, EPOCH_LEAVE, Heartbeat};
use stafett_kafka_wire::messages::share_group_heartbeat::{Assignment, TopicPartitions};
use stafett_kafka_wire::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use super::group_names::{client_host, is_blank};
use crate::call::{Call, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{GroupOperation, Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::share_request::MEMBER_BYTES_MAX;

pub(super) fn share_group_heartbeat(
    context: &RequestContext,
    call: Call,
    client: Option<&str>,
    body: Decoder,
) -> HandlerResult {
    let request: ShareGroupHeartbeatRequest = call.read(body)?;
    let shared = &context.shared;
    if let Some(wrong) = check(&request) {
        let refused = refused(shared, call, ErrorCode::InvalidRequest, wrong.to_owned());
        return Ok(PendingResponse::Ready(refused));
    }
    let owned = |text: &Str| Box::<str>::from(text.as_str());
    let beat = Heartbeat {
        member: owned(&request.member_id),
        epoch: request.member_epoch,
        rack: request.rack_id.as_ref().map(owned),
        client_id: client.unwrap_or_default().into(),
        host: client_host(context),
        names: request
            .subscribed_topic_names
            .as_ref()
            .map(|names| names.iter().map(owned).collect()),
        ..Heartbeat::default()
    };
    let member = beat.member.clone();
    let group = request.group_id.detach();
    let stepped = match shared.broker.groups().share_heartbeat(&group, beat) {
        Ok(stepped) => stepped,
        Err(error) => {
            let code = error::consumer(&error)?;
            let refused = refused(shared, call, code, error.to_string());
            return Ok(PendingResponse::Ready(refused));
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

/// Returns the first malformed part of a request. Does not look at the group.
fn check(request: &ShareGroupHeartbeatRequest) -> Option<&'static str> {
    let names = request.subscribed_topic_names.as_deref();
    let joins = request.member_epoch == EPOCH_JOIN;
    let rules = [
        (is_blank(&request.member_id), "MemberId can't be empty."),
        (
            request.member_id.len() > MEMBER_BYTES_MAX,
            "MemberId can't be longer than 36 characters.",
        ),
        (is_blank(&request.group_id), "GroupId can't be empty."),
        (
            request.rack_id.as_deref().is_some_and(is_blank),
            "RackId can't be empty.",
        ),
        (
            joins && names.is_none_or(<[_]>::is_empty),
            "SubscribedTopicNames must be set in first request.",
        ),
        (
            request.member_epoch < EPOCH_LEAVE,
            "MemberEpoch is invalid: expected -1 or more.",
        ),
    ];
    let wrong = rules.into_iter().find(|(is_wrong, _)| *is_wrong);
    wrong.map(|(_, wrong)| wrong)
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
    let assignment = reply.assignment.as_ref().map(|assignment| {
        let topics = assignment.by_topic().filter_map(|run| {
            let indexes = run.iter().filter_map(|one| i32::try_from(one.index).ok());
            // A right may have gone since the member subscribed.
            let first = run.first().filter(|first| context.may_see_id(first.topic))?;
            Some(TopicPartitions {
                topic_id: first.topic.0.into(),
                partitions: indexes.collect(),
            })
        });
        Assignment {
            topic_partitions: topics.collect(),
        }
    });
    call.answer::<ShareGroupHeartbeatRequest>(&ShareGroupHeartbeatResponse {
        member_id: Some(Str::copy_from(member)),
        member_epoch: reply.epoch,
        heartbeat_interval_ms: i32::try_from(interval).unwrap_or(i32::MAX),
        assignment,
        ..ShareGroupHeartbeatResponse::default()
    })
}

fn refused(shared: &KafkaContext, call: Call, code: ErrorCode, message: String) -> ResponseResult {
    call.answer::<ShareGroupHeartbeatRequest>(&ShareGroupHeartbeatResponse {
        error_code: shared.metrics.error(call.api, code),
        error_message: Some(message.into()),
        ..ShareGroupHeartbeatResponse::default()
    })
}
