//! `InitProducerId`: id for an idempotent producer.
//!
//! Transactions are not served. A transactional producer gets an error that clients report at once; most
//! other errors would be retried forever.

use std::sync::Arc;

use stafett_kafka_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};

use crate::error;
use crate::response_queue::PendingResponse;
use crate::session::{Call, Close, Context};

/// No producer id, or no epoch. A request has both or neither.
const NONE: i64 = -1;

pub(super) fn init_producer_id(
    context: &Context,
    call: Call,
    body: Decoder,
) -> Result<PendingResponse, Close> {
    let request: InitProducerIdRequest = call.read(body)?;
    if let Some(name) = &request.transactional_id {
        let code = if name.is_empty() {
            ErrorCode::InvalidRequest
        } else {
            ErrorCode::TransactionalIdAuthorizationFailed
        };
        let code = context.shared.metrics.error(call.api, code);
        let response = InitProducerIdResponse {
            error_code: code,
            ..refused()
        };
        return Ok(PendingResponse::Ready(
            call.answer::<InitProducerIdRequest>(&response),
        ));
    }
    if (request.producer_id == NONE) != (i64::from(request.producer_epoch) == NONE) {
        let response = InitProducerIdResponse {
            error_code: context.shared.metrics.error(call.api, ErrorCode::InvalidRequest),
            ..refused()
        };
        return Ok(PendingResponse::Ready(
            call.answer::<InitProducerIdRequest>(&response),
        ));
    }
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Barrier(Box::pin(async move {
        let response = match shared.broker.catalog().new_producer_id().await {
            Ok(id) => InitProducerIdResponse {
                producer_id: id.0,
                producer_epoch: 0,
                ..InitProducerIdResponse::default()
            },
            Err(not_stored) => {
                let (code, _) = error::not_stored(&not_stored)?;
                InitProducerIdResponse {
                    error_code: shared.metrics.error(call.api, code),
                    ..refused()
                }
            }
        };
        call.answer::<InitProducerIdRequest>(&response)
    })))
}

fn refused() -> InitProducerIdResponse {
    InitProducerIdResponse {
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    }
}
