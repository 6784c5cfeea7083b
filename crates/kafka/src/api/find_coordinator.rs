//! `FindCoordinator`: the broker of the first cell, which is this one unless there are several, or that of
//! the cell of a group.

use std::collections::HashMap;

use stafett_kafka_wire::messages::find_coordinator::Coordinator;
use stafett_kafka_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::call::Call;
use crate::context::{FIRST_CELL, RequestContext};
use crate::group_cells::GROUP;
use crate::response_queue::HandlerResult;

/// First version with several coordinators per request.
const MANY_FROM: i16 = 4;
const TRANSACTION: i8 = 1;

pub(super) fn find_coordinator(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: FindCoordinatorRequest = call.read(body)?;
    let response = if call.version < MANY_FROM {
        let mut brokers = HashMap::new();
        let found = find(context, call, &mut brokers, request.key_type, request.key);
        FindCoordinatorResponse {
            error_code: found.error_code,
            error_message: found
                .error_message
                .filter(|message| !message.is_empty())
                .or(Some(Str::from("NONE")))
                .filter(|_| call.version >= 1),
            node_id: found.node_id,
            host: found.host,
            port: found.port,
            ..Default::default()
        }
    } else {
        let mut brokers = HashMap::new();
        let keys = request.coordinator_keys.into_iter();
        let found = keys.map(|key| find(context, call, &mut brokers, request.key_type, key));
        FindCoordinatorResponse {
            coordinators: found.collect(),
            ..Default::default()
        }
    };
    Ok(call.answer::<FindCoordinatorRequest>(&response)?.into())
}

/// Brokers of cells, as a request finds them: it may have many keys.
type Brokers = HashMap<u32, Option<(i32, Str, i32)>>;

fn find(context: &RequestContext, call: Call, brokers: &mut Brokers, key_type: i8, key: Str) -> Coordinator {
    let home = match key_type {
        GROUP => Some(context.shared.broker.groups().cell_of(&key)),
        TRANSACTION => Some(FIRST_CELL),
        _ => None,
    };
    let of_cell = |cell: u32| {
        let broker = brokers.entry(cell);
        broker.or_insert_with(|| context.broker_of(cell)).clone()
    };
    let coordinator = home.map(of_cell);
    let code = match &coordinator {
        Some(Some(_)) => ErrorCode::None,
        Some(None) => ErrorCode::CoordinatorNotAvailable,
        None => ErrorCode::InvalidRequest,
    };
    let refused = coordinator
        .is_none()
        .then(|| Str::from("only groups and transactions have coordinators"));
    let (node_id, host, port) = coordinator.flatten().unwrap_or_else(|| (-1, Str::default(), -1));
    Coordinator {
        key,
        node_id,
        host,
        port,
        error_code: context.shared.metrics.error(call.api, code),
        error_message: refused.or(Some(Str::default())),
    }
}
