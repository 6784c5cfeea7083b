//! `Heartbeat`: a member says that it is there, and hears whether it has to join again.

use stafett_kafka_wire::messages::{HeartbeatRequest, HeartbeatResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};

use crate::answers::Kind;
use crate::error;
use crate::session::{Call, Close, Context};

pub(super) fn heartbeat(context: &Context, call: Call, body: Decoder) -> Result<Kind, Close> {
    let request: HeartbeatRequest = call.read(body)?;
    let heard = context.shared.broker.groups().heartbeat(
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_deref(),
        request.generation_id,
    );
    let code = match heard {
        Ok(()) => ErrorCode::None,
        Err(error) => error::group(&error)?,
    };
    let response = HeartbeatResponse {
        throttle_time_ms: 0,
        error_code: context.shared.metrics.error(call.api, code),
    };
    Ok(Kind::Ready(call.answer::<HeartbeatRequest>(&response)))
}
