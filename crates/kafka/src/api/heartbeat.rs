//! `Heartbeat`: keeps a member alive and tells it to rejoin.
//!
//! Clients send a heartbeat every three seconds and learn of a rebalance from its answer. So the answer is
//! held back for a while if the group is stable and the client does not block on it: when the group changes,
//! its members learn it at once. The client's next request on the connection ends the wait, so it delays
//! nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use stafett_groups::{GroupError, StableWatch};
use stafett_kafka_wire::messages::{HeartbeatRequest, HeartbeatResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use tokio_util::sync::CancellationToken;

use crate::call::{Call, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{GroupOperation, HeldHeartbeat, Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

/// Divisor of the session timeout: the longest hold is the timeout divided by it.
const SESSION_PART: u32 = 4;

pub(super) fn heartbeat(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: HeartbeatRequest = call.read(body)?;
    let shared = &context.shared;
    let groups = shared.broker.groups();
    let heard = groups.heartbeat(
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_deref(),
        request.generation_id,
    );
    let may_hold = context.is_patient.load(Ordering::Relaxed) && !shared.settings.heartbeat_hold.is_zero();
    if heard.is_ok()
        && may_hold
        && let Some(watch) = groups.stable_watch(&request.group_id, &request.member_id)
    {
        let time_max = shared.settings.heartbeat_hold.min(watch.session / SESSION_PART);
        return Ok(hold(call, &request, watch, time_max));
    }
    Ok(PendingResponse::Ready(answer(shared, call, heard)))
}

/// Answers after a change of the group, the end of the hold time, the next request or a drain.
fn hold(call: Call, request: &HeartbeatRequest, watch: StableWatch, time_max: Duration) -> PendingResponse {
    let release = CancellationToken::new();
    let held = HeldHeartbeat {
        group: request.group_id.detach(),
        member: request.member_id.detach(),
        instance: request.group_instance_id.as_ref().map(Str::detach),
        generation: request.generation_id,
        watch,
        time_max,
        release: release.clone(),
    };
    let heard = then(move |context, heard| answer(&context.shared, call, heard));
    let operation = Operation::Group(GroupOperation::HoldHeartbeat(Box::new(held), heard));
    PendingResponse::awaiting(operation, Pipelining::Released(release))
}

fn answer(shared: &KafkaContext, call: Call, heard: Result<(), GroupError>) -> ResponseResult {
    let code = match heard {
        Ok(()) => ErrorCode::None,
        Err(error) => error::group(&error)?,
    };
    let response = HeartbeatResponse {
        throttle_time_ms: 0,
        error_code: shared.metrics.error(call.api, code),
    };
    call.answer::<HeartbeatRequest>(&response)
}
