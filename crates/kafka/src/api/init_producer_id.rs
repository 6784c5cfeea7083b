//! `InitProducerId`: id for an idempotent producer.
//!
//! Transactions are not served. A transactional producer gets an error that clients report at once; most
//! other errors would be retried forever.

use stafett_kafka_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::ProducerId;

use crate::call::Call;
use crate::context::RequestContext;
use crate::error;
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

/// No producer id, or no epoch. A request has both or neither.
const NONE: i64 = -1;

pub(super) fn init_producer_id(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
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
        return Ok(call.answer::<InitProducerIdRequest>(&response)?.into());
    }
    if (request.producer_id == NONE) != (i64::from(request.producer_epoch) == NONE) {
        let response = InitProducerIdResponse {
            error_code: context.shared.metrics.error(call.api, ErrorCode::InvalidRequest),
            ..refused()
        };
        return Ok(call.answer::<InitProducerIdRequest>(&response)?.into());
    }
    let given = then(move |context, given| {
        let response = match given {
            Ok(ProducerId(id)) => InitProducerIdResponse {
                producer_id: id,
                producer_epoch: 0,
                ..InitProducerIdResponse::default()
            },
            Err(not_stored) => {
                let (code, _) = error::not_stored(&not_stored)?;
                InitProducerIdResponse {
                    error_code: context.shared.metrics.error(call.api, code),
                    ..refused()
                }
            }
        };
        call.answer::<InitProducerIdRequest>(&response)
    });
    let operation = Operation::NewProducerId(given);
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

fn refused() -> InitProducerIdResponse {
    InitProducerIdResponse {
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    }
}
