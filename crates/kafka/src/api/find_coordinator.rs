//! `FindCoordinator`: there are no groups yet, and the answer says so.
//!
//! It is served all the same: librdkafka compresses with LZ4 only where this API is offered. The error is the one after
//! which clients ask again: librdkafka looks for a coordinator also for consumers that assign their partitions
//! themselves, and any other error would reach their applications.

use stafett_kafka_wire::messages::find_coordinator::Coordinator;
use stafett_kafka_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::answers::Kind;
use crate::session::{Call, Close, Context};

/// From this version on, several coordinators are asked for at once.
const MANY_FROM: i16 = 4;

pub(super) fn find_coordinator(context: &Context, call: Call, body: Decoder) -> Result<Kind, Close> {
    let request: FindCoordinatorRequest = call.read(body)?;
    let error_code = context
        .shared
        .metrics
        .error(call.api, ErrorCode::CoordinatorNotAvailable);
    let error_message = Some(Str::from("groups and transactions are not served"));
    let response = if call.version < MANY_FROM {
        FindCoordinatorResponse {
            error_code,
            error_message,
            node_id: -1,
            port: -1,
            ..Default::default()
        }
    } else {
        let coordinator = |key| Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code,
            error_message: error_message.clone(),
            ..Default::default()
        };
        let coordinators = request.coordinator_keys.into_iter().map(coordinator).collect();
        FindCoordinatorResponse {
            coordinators,
            ..Default::default()
        }
    };
    Ok(Kind::Ready(call.answer::<FindCoordinatorRequest>(&response)))
}
