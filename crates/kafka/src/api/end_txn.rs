//! `EndTxn`: commits or aborts a transaction, in one append.

use stafett_kafka_wire::messages::{EndTxnRequest, EndTxnResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::{ProducerId, TransactionEnd};
use stafett_transactions::Instance;

use crate::call::Call;
use crate::context::RequestContext;
use crate::error;
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::transaction_operation::TransactionOperation;

/// First version in which each end begins another epoch (KIP-890).
const EPOCHS_FROM: i16 = 5;
/// First version that knows `PRODUCER_FENCED`.
const FENCED_FROM: i16 = 2;

pub(super) fn end_txn(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: EndTxnRequest = call.read(body)?;
    let given = Instance {
        producer: ProducerId(request.producer_id),
        epoch: request.producer_epoch,
    };
    let end = if request.committed {
        TransactionEnd::Commit
    } else {
        TransactionEnd::Abort
    };
    let id = request.transactional_id.clone();
    let ended = then(move |context, ended| {
        let (code, instance) = match ended {
            Ok(instance) => (ErrorCode::None, Some(instance)),
            Err(why) => {
                context.log_refused_transaction(&id, &why);
                (error::transaction(&why, call.version >= FENCED_FROM)?, None)
            }
        };
        let instance = instance.filter(|_| call.version >= EPOCHS_FROM);
        call.answer::<EndTxnRequest>(&EndTxnResponse {
            throttle_time_ms: 0,
            error_code: context.shared.metrics.error(call.api, code),
            producer_id: instance.map_or(-1, |instance: Instance| instance.producer.0),
            producer_epoch: instance.map_or(-1, |instance: Instance| instance.epoch),
        })
    });
    let operation = TransactionOperation::End {
        id: request.transactional_id,
        given,
        end,
        bumps: call.version >= EPOCHS_FROM,
        then: ended,
    };
    Ok(PendingResponse::awaiting(
        Operation::Transaction(operation),
        Pipelining::Barrier,
    ))
}
