//! `FindCoordinator`: the broker of the first cell, which is this one unless there are several.

use stafett_kafka_wire::messages::find_coordinator::Coordinator;
use stafett_kafka_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

/// First version with several coordinators per request.
const MANY_FROM: i16 = 4;
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

pub(super) fn find_coordinator(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: FindCoordinatorRequest = call.read(body)?;
    let is_served = matches!(request.key_type, GROUP | TRANSACTION);
    let coordinator = context.controller().filter(|_| is_served);
    let code = match &coordinator {
        Some(_) => ErrorCode::None,
        None if is_served => ErrorCode::CoordinatorNotAvailable,
        None => ErrorCode::InvalidRequest,
    };
    let error_code = context.shared.metrics.error(call.api, code);
    let (node_id, host, port) = coordinator.unwrap_or_else(|| (-1, Str::default(), -1));
    let refused = || (!is_served).then(|| Str::from("only groups and transactions have coordinators"));
    let response = if call.version < MANY_FROM {
        FindCoordinatorResponse {
            error_code,
            error_message: refused()
                .or(Some(Str::from("NONE")))
                .filter(|_| call.version >= 1),
            node_id,
            host,
            port,
            ..Default::default()
        }
    } else {
        let coordinator = |key| Coordinator {
            key,
            node_id,
            host: host.clone(),
            port,
            error_code,
            error_message: refused().or(Some(Str::default())),
        };
        let coordinators = request.coordinator_keys.into_iter().map(coordinator).collect();
        FindCoordinatorResponse {
            coordinators,
            ..Default::default()
        }
    };
    Ok(call.answer::<FindCoordinatorRequest>(&response)?.into())
}
