//! `ShareAcknowledge`: a member settles records that it holds (KIP-932). Answered once that is stored.

use stafett_kafka_wire::messages::share_acknowledge::{PartitionData, ShareAcknowledgeTopicResponse};
use stafett_kafka_wire::messages::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::call::{Call, Close, ResponseResult};
use crate::context::RequestContext;
use crate::error;
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};
use crate::share_operation::ShareOperation;
use crate::share_request::{
    Acknowledged, PartitionAcknowledgements, acknowledge, member, settings_of, settled_places, topic_id,
};
use crate::share_sessions::{EPOCH_CLOSE, EPOCH_OPEN};

/// First version that tells the duration of locks.
const LOCK_FROM: i16 = 2;

pub(super) fn share_acknowledge(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ShareAcknowledgeRequest = call.read(body)?;
    Ok(PendingResponse::in_turn(move |context| {
        run(context, call, request)
    }))
}

fn run(context: &RequestContext, call: Call, request: ShareAcknowledgeRequest) -> Result<Step, Close> {
    let shared = &context.shared;
    let refuse = |code, why: &str| refused(context, call, code, why).map(Step::Respond);
    let member = match member(request.group_id.as_ref(), request.member_id.as_ref()) {
        Ok(member) => member,
        Err(why) => return refuse(ErrorCode::InvalidRequest, why),
    };
    let sessions = &shared.share_sessions;
    let opened = context.opened_sessions.lock();
    let session = match request.share_session_epoch {
        EPOCH_OPEN => Err(ErrorCode::InvalidShareSessionEpoch),
        EPOCH_CLOSE => sessions.find(&member, &opened).map(Some),
        epoch => sessions.go_on(&member, epoch, (&[], &[]), &opened).map(|_| None),
    };
    drop(opened);
    let closed = match session {
        Ok(closed) => closed,
        Err(code) => return refuse(code, "The share session does not go on with this epoch."),
    };
    let settings = settings_of(shared, &member.group);
    let all = request.topics.into_iter().flat_map(|topic| {
        let id = topic_id(topic.topic_id);
        let partitions = topic.partitions.into_iter();
        let partitions = partitions.filter(|partition| !partition.acknowledgement_batches.is_empty());
        partitions.map(move |partition| PartitionAcknowledgements {
            partition: (id, partition.partition_index),
            batches: partition
                .acknowledgement_batches
                .into_iter()
                .map(Into::into)
                .collect(),
        })
    });
    let done = acknowledge(shared, &member, &settings, request.is_renew_ack, all.collect());
    if let Some(session) = closed {
        shared.end_share_session(&session);
    }
    let lock_ms = settings.rules.lock_ms;
    let places = settled_places(&done);
    let stored = then(move |context, stored| match stored {
        Ok(()) => respond(context, call, lock_ms, done),
        Err(why) => {
            let (code, message) = error::not_stored(&why)?;
            refused(context, call, code, &message)
        }
    });
    Ok(Step::Await(Operation::Share(ShareOperation::AwaitStored(
        places, stored,
    ))))
}

fn respond(context: &RequestContext, call: Call, lock_ms: u32, done: Vec<Acknowledged>) -> ResponseResult {
    let mut responses: Vec<ShareAcknowledgeTopicResponse> = Vec::new();
    for Acknowledged { partition, error, .. } in done {
        let (topic, index) = partition;
        let (code, message) = error.map_or((ErrorCode::None, None), |(code, why)| (code, Some(why.into())));
        let data = PartitionData {
            partition_index: index,
            error_code: context.shared.metrics.error(call.api, code),
            error_message: message,
            ..PartitionData::default()
        };
        match responses.last_mut() {
            Some(last) if topic_id(last.topic_id) == topic => last.partitions.push(data),
            _ => responses.push(ShareAcknowledgeTopicResponse {
                topic_id: topic.0.into(),
                partitions: vec![data],
            }),
        }
    }
    let lock_ms = if call.version >= LOCK_FROM { lock_ms } else { 0 };
    call.answer::<ShareAcknowledgeRequest>(&ShareAcknowledgeResponse {
        acquisition_lock_timeout_ms: i32::try_from(lock_ms).unwrap_or(i32::MAX),
        responses,
        ..ShareAcknowledgeResponse::default()
    })
}

fn refused(context: &RequestContext, call: Call, code: ErrorCode, why: &str) -> ResponseResult {
    call.answer::<ShareAcknowledgeRequest>(&ShareAcknowledgeResponse {
        error_code: context.shared.metrics.error(call.api, code),
        error_message: Some(Str::copy_from(why)),
        ..ShareAcknowledgeResponse::default()
    })
}
