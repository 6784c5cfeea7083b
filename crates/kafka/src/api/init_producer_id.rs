//! `InitProducerId`: id for an idempotent producer, or another epoch for a transactional one.

use stafett_kafka_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::ProducerId;
use stafett_transactions::{Instance, TransactionError};

use crate::call::{Call, ResponseResult};
use crate::context::RequestContext;
use crate::error;
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::transaction_operation::TransactionOperation;

/// No producer id, or no epoch. A request has both or neither.
const NONE: i64 = -1;
/// Characters of a transactional id in the log.
const LOGGED_CHARS: usize = 64;
/// First version that knows `PRODUCER_FENCED`.
const FENCED_FROM: i16 = 4;

pub(super) fn init_producer_id(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: InitProducerIdRequest = call.read(body)?;
    if (request.producer_id == NONE) != (i64::from(request.producer_epoch) == NONE) {
        let response = InitProducerIdResponse {
            error_code: context.shared.metrics.error(call.api, ErrorCode::InvalidRequest),
            ..refused()
        };
        return Ok(call.answer::<InitProducerIdRequest>(&response)?.into());
    }
    if let Some(id) = request.transactional_id {
        let given = (request.producer_id != NONE).then_some(Instance {
            producer: ProducerId(request.producer_id),
            epoch: request.producer_epoch,
        });
        let name: Box<str> = id.chars().take(LOGGED_CHARS).collect();
        let begun = then(move |context, begun| on_begun(context, call, &name, begun));
        let operation = TransactionOperation::BeginProducer {
            id,
            timeout_ms: request.transaction_timeout_ms,
            given,
            then: begun,
        };
        return Ok(PendingResponse::awaiting(
            Operation::Transaction(operation),
            Pipelining::Barrier,
        ));
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

fn on_begun(
    context: &RequestContext,
    call: Call,
    id: &str,
    begun: Result<Instance, TransactionError>,
) -> ResponseResult {
    let response = match begun {
        Ok(Instance { producer, epoch }) => InitProducerIdResponse {
            producer_id: producer.0,
            producer_epoch: epoch,
            ..InitProducerIdResponse::default()
        },
        Err(why) => {
            let code = error::transaction(&why, call.version >= FENCED_FROM)?;
            context.log_refused_transaction(id, &why);
            InitProducerIdResponse {
                error_code: context.shared.metrics.error(call.api, code),
                ..refused()
            }
        }
    };
    call.answer::<InitProducerIdRequest>(&response)
}

fn refused() -> InitProducerIdResponse {
    InitProducerIdResponse {
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    }
}
