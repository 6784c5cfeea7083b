//! Transactions are not served: none are described or listed.

use stafett_kafka_wire::messages::describe_transactions::TransactionState;
use stafett_kafka_wire::messages::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, ListTransactionsRequest,
    ListTransactionsResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode};

use crate::response_queue::PendingResponse;
use crate::session::{Call, Close, Context};

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

pub(super) fn describe_transactions(
    context: &Context,
    call: Call,
    body: Decoder,
) -> Result<PendingResponse, Close> {
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
    Ok(PendingResponse::Ready(
        call.answer::<DescribeTransactionsRequest>(&response),
    ))
}

pub(super) fn list_transactions(_: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
    let request: ListTransactionsRequest = call.read(body)?;
    let unknown = request.state_filters.into_iter();
    let response = ListTransactionsResponse {
        unknown_state_filters: unknown.filter(|state| !STATES.contains(&&**state)).collect(),
        ..ListTransactionsResponse::default()
    };
    Ok(PendingResponse::Ready(
        call.answer::<ListTransactionsRequest>(&response),
    ))
}
