//! `SyncGroup`: a member's assignment in this generation; answered when the leader has sent it.

use bytes::Bytes;
use stafett_groups::classic::Sync;
use stafett_groups::{GroupError, SyncReply};
use stafett_kafka_wire::messages::{SyncGroupRequest, SyncGroupResponse};
use stafett_kafka_wire::{Decoder, Str};

use crate::call::{Call, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{GroupOperation, Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

/// First version in which requests and answers carry protocol type and name.
const BELIEFS_FROM: i16 = 5;

pub(super) fn sync_group(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: SyncGroupRequest = call.read(body)?;
    let group: Box<str> = (&*request.group_id).into();
    let has_beliefs = request.protocol_type.is_some() && request.protocol_name.is_some();
    let sync = sync(&request);
    if call.version >= BELIEFS_FROM && !has_beliefs {
        let refused = answer(&context.shared, call, Err(GroupError::NoCommonStrategy));
        return Ok(PendingResponse::Ready(refused));
    }
    let synced = then(move |context, synced| answer(&context.shared, call, synced));
    let operation = Operation::Group(GroupOperation::Sync(group, Box::new(sync), synced));
    Ok(PendingResponse::awaiting(operation, Pipelining::LongBarrier))
}

fn sync(request: &SyncGroupRequest) -> Sync {
    let assignments = request.assignments.iter().map(|given| {
        let assignment = Bytes::copy_from_slice(&given.assignment);
        ((&*given.member_id).into(), assignment)
    });
    Sync {
        member: (&*request.member_id).into(),
        instance: request.group_instance_id.as_deref().map(Into::into),
        generation: request.generation_id,
        purpose: request.protocol_type.as_deref().map(Into::into),
        strategy: request.protocol_name.as_deref().map(Into::into),
        assignments: assignments.collect(),
    }
}

fn answer(shared: &KafkaContext, call: Call, synced: Result<SyncReply, GroupError>) -> ResponseResult {
    let text = |text: Option<Box<str>>| {
        text.as_deref()
            .map(Str::copy_from)
            .filter(|_| call.version >= BELIEFS_FROM)
    };
    let response = match synced {
        Ok(synced) => SyncGroupResponse {
            protocol_type: text(synced.purpose),
            protocol_name: text(synced.strategy),
            assignment: synced.assignment,
            ..SyncGroupResponse::default()
        },
        Err(error) => SyncGroupResponse {
            error_code: shared.metrics.error(call.api, error::group(&error)?),
            ..SyncGroupResponse::default()
        },
    };
    call.answer::<SyncGroupRequest>(&response)
}
