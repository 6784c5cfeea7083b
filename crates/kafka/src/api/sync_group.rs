//! `SyncGroup`: a member's assignment in this generation; answered when the leader has sent it.

use std::sync::Arc;

use bytes::Bytes;
use stafett_groups::classic::Sync;
use stafett_groups::{GroupError, SyncReply};
use stafett_kafka_wire::messages::{SyncGroupRequest, SyncGroupResponse};
use stafett_kafka_wire::{Decoder, Str};

use crate::context::KafkaContext;
use crate::error;
use crate::response_queue::{PendingResponse, ResponseResult};
use crate::session::{Call, Close, Context};

/// First version in which requests and answers carry protocol type and name.
const BELIEFS_FROM: i16 = 5;

pub(super) fn sync_group(context: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
    let request: SyncGroupRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    let drain = context.drain.clone();
    let group: Box<str> = (&*request.group_id).into();
    let has_beliefs = request.protocol_type.is_some() && request.protocol_name.is_some();
    let sync = sync(&request);
    Ok(PendingResponse::Waiting(Box::pin(async move {
        let synced = if call.version >= BELIEFS_FROM && !has_beliefs {
            Err(GroupError::NoCommonStrategy)
        } else {
            tokio::select! {
                biased;
                synced = shared.broker.groups().sync(&group, sync) => synced,
                () = drain.cancelled() => Err(GroupError::Stopping),
            }
        };
        answer(&shared, call, synced)
    })))
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
