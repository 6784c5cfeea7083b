//! `FindCoordinator`: always this broker.

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
    let code = if is_served {
        ErrorCode::None
    } else {
        ErrorCode::InvalidRequest
    };
    let error_code = context.shared.metrics.error(call.api, code);
    let (host, port) = context.endpoint();
    let (node_id, host, port) = if is_served {
        (context.broker_id(), host, port)
    } else {
        (-1, Str::default(), -1)
    };
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
