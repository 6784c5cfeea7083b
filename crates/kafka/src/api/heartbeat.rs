//! `Heartbeat`: keeps a member alive and tells it to rejoin.
//!
//! Clients send a heartbeat every three seconds and learn of a rebalance from its answer. So the answer is
//! held back for a while if the group is stable and the client does not block on it: when the group changes,
//! its members learn it at once. The client's next request on the connection ends the wait, so it delays
//! nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use stafett_groups::{GroupError, StableWatch};
use stafett_kafka_wire::messages::{HeartbeatRequest, HeartbeatResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use tokio_util::sync::CancellationToken;

use crate::context::KafkaContext;
use crate::error;
use crate::response_queue::{PendingResponse, ResponseResult, Task};
use crate::session::{Call, Close, Context};

/// Divisor of the session timeout: the longest hold is the timeout divided by it.
const SESSION_PART: u32 = 4;

pub(super) fn heartbeat(context: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
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
        let release = CancellationToken::new();
        let task = hold(context, call, &request, watch, release.clone());
        return Ok(PendingResponse::Held(task, release));
    }
    Ok(PendingResponse::Ready(answer(shared, call, heard)))
}

/// Waits for a change of the group, the end of the hold time, the next request or a drain, then answers.
fn hold(
    context: &Context,
    call: Call,
    request: &HeartbeatRequest,
    watch: StableWatch,
    release: CancellationToken,
) -> Task {
    let shared = Arc::clone(&context.shared);
    let drain = context.drain.clone();
    let group = request.group_id.detach();
    let member = request.member_id.detach();
    let instance = request
        .group_instance_id
        .as_ref()
        .map(stafett_kafka_wire::Str::detach);
    let generation = request.generation_id;
    let patience = shared.settings.heartbeat_hold.min(watch.session / SESSION_PART);
    Box::pin(async move {
        let check = || {
            let groups = shared.broker.groups();
            groups.check_alive(&group, &member, instance.as_deref(), generation)
        };
        tokio::select! {
            biased;
            () = release.cancelled() => {}
            () = drain.cancelled() => {}
            () = watch.wait_for_change(|| check().is_ok()) => {}
            () = tokio::time::sleep(patience) => {}
        }
        answer(&shared, call, check())
    })
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
