//! `WriteTxnMarkers`: of brokers in Kafka; here the abort of an open transaction by an operator
//! (`kafka-transactions.sh abort`), which ends the whole of it and fences its producer.

use stafett_kafka_wire::messages::write_txn_markers::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use stafett_kafka_wire::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::ProducerId;
use stafett_topics::is_internal;
use stafett_transactions::{Instance, Parts, TransactionError};

use crate::call::{Call, Close};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::transaction_operation::TransactionOperation;

pub(super) fn write_txn_markers(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: WriteTxnMarkersRequest = call.read(body)?;
    let (mut aborts, mut known) = (Vec::new(), Vec::new());
    for marker in &request.markers {
        let given = Instance {
            producer: ProducerId(marker.producer_id),
            epoch: marker.producer_epoch,
        };
        for topic in &marker.topics {
            for partition in &topic.partition_indexes {
                known.push(match find(&context.shared, &topic.name, *partition) {
                    None => Err(ErrorCode::UnknownTopicOrPartition),
                    // Only its producer commits a transaction.
                    Some(_) if marker.transaction_result => Err(ErrorCode::ClusterAuthorizationFailed),
                    Some(parts) => {
                        aborts.push((parts, given));
                        Ok(())
                    }
                });
            }
        }
    }
    let aborted = then(move |context, outcomes: Vec<Result<(), TransactionError>>| {
        let mut outcomes = outcomes.into_iter();
        let code = |known: Result<(), ErrorCode>| match (known, known.ok().and_then(|()| outcomes.next())) {
            (Err(code), _) => Ok(code),
            (Ok(()), Some(Err(why))) => error::transaction(&why, false),
            (Ok(()), _) => Ok(ErrorCode::None),
        };
        let codes: Vec<ErrorCode> = known.into_iter().map(code).collect::<Result<_, Close>>()?;
        let response = answer(&context.shared, call, request, codes);
        call.answer::<WriteTxnMarkersRequest>(&response)
    });
    let operation = Operation::Transaction(TransactionOperation::Abort(aborts, aborted));
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

fn answer(
    shared: &KafkaContext,
    call: Call,
    request: WriteTxnMarkersRequest,
    codes: Vec<ErrorCode>,
) -> WriteTxnMarkersResponse {
    let mut codes = codes.into_iter();
    let mut markers = Vec::new();
    for marker in request.markers {
        let mut topics = Vec::new();
        for topic in marker.topics {
            let mut partitions = Vec::new();
            for partition_index in topic.partition_indexes {
                let code = codes.next().unwrap_or(ErrorCode::UnknownServerError);
                partitions.push(WritableTxnMarkerPartitionResult {
                    partition_index,
                    error_code: shared.metrics.error(call.api, code),
                });
            }
            topics.push(WritableTxnMarkerTopicResult {
                name: topic.name,
                partitions,
            });
        }
        markers.push(WritableTxnMarkerResult {
            producer_id: marker.producer_id,
            topics,
        });
    }
    WriteTxnMarkersResponse { markers }
}

fn find(shared: &KafkaContext, topic: &str, partition: i32) -> Option<Parts> {
    let topic = shared.broker.topics().named(topic)?;
    let partition = u32::try_from(partition)
        .ok()
        .filter(|_| !is_internal(&topic.name))?;
    let mut parts = Parts::default();
    parts.add(&topic, partition).then_some(parts)
}
