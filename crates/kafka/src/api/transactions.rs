//! Transactions are not served: none are described or listed.

use stafett_kafka_wire::messages::describe_transactions::TransactionState;
use stafett_kafka_wire::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode};

use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

const STATES: &[&str] = &[
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

pub(super) fn describe_transactions(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeTransactionsRequest = call.read(body)?;
    let states = request.transactional_ids.into_iter().map(|transactional_id| {
        let code = if transactional_id.is_empty() {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TransactionalIdNotFound
        };
        TransactionState {
            error_code: context.shared.metrics.error(call.api, code),
            transactional_id,
            ..TransactionState::default()
        }
    });
    let response = DescribeTransactionsResponse {
        throttle_time_ms: 0,
        transaction_states: states.collect(),
    };
    Ok(call.answer::<DescribeTransactionsRequest>(&response)?.into())
}

pub(super) fn list_transactions(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ListTransactionsRequest = call.read(body)?;
    let unknown = request.state_filters.into_iter();
    let response = ListTransactionsResponse {
        unknown_state_filters: unknown.filter(|state| !STATES.contains(&&**state)).collect(),
        ..ListTransactionsResponse::default()
    };
    Ok(call.answer::<ListTransactionsRequest>(&response)?.into())
}
