//! `AddPartitionsToTxn`, `AddOffsetsToTxn`: partitions and groups of a transaction.

use stafett_kafka_wire::messages::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult, AddPartitionsToTxnTransaction,
};
use stafett_kafka_wire::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::{LogId, ProducerId};
use stafett_topics::is_internal;
use stafett_transactions::Instance;

use crate::call::{Call, Close};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::response_queue::{HandlerResult, PendingResponse};

/// First version of brokers, with several transactions per request.
const MANY_FROM: i16 = 4;
/// First version that knows `PRODUCER_FENCED`.
const FENCED_FROM: i16 = 2;

pub(super) fn add_partitions(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: AddPartitionsToTxnRequest = call.read(body)?;
    Ok(PendingResponse::barrier(move |context| {
        let response = if call.version < MANY_FROM {
            let transaction = AddPartitionsToTxnTransaction {
                transactional_id: request.v3_and_below_transactional_id,
                producer_id: request.v3_and_below_producer_id,
                producer_epoch: request.v3_and_below_producer_epoch,
                verify_only: false,
                topics: request.v3_and_below_topics,
            };
            AddPartitionsToTxnResponse {
                results_by_topic_v3_and_below: add(context, call, &transaction)?,
                ..AddPartitionsToTxnResponse::default()
            }
        } else {
            let added = request.transactions.iter().map(|transaction| {
                Ok(AddPartitionsToTxnResult {
                    transactional_id: transaction.transactional_id.clone(),
                    topic_results: add(context, call, transaction)?,
                })
            });
            AddPartitionsToTxnResponse {
                results_by_transaction: added.collect::<Result<_, Close>>()?,
                ..AddPartitionsToTxnResponse::default()
            }
        };
        call.answer::<AddPartitionsToTxnRequest>(&response)
    }))
}

/// Adds the partitions of a transaction, all or none.
fn add(
    context: &RequestContext,
    call: Call,
    asked: &AddPartitionsToTxnTransaction,
) -> Result<Vec<AddPartitionsToTxnTopicResult>, Close> {
    let shared = &*context.shared;
    let mut logs = Vec::new();
    let mut is_refused = false;
    for (topic, partition) in partitions(&asked.topics) {
        let log = find(shared, topic, partition);
        is_refused |= log.is_err();
        logs.extend(log);
    }
    let given = Instance {
        producer: ProducerId(asked.producer_id),
        epoch: asked.producer_epoch,
    };
    let transactions = shared.broker.transactions();
    let added = match (is_refused, asked.verify_only) {
        (true, _) => Ok(()),
        (false, true) => transactions.check_logs(&asked.transactional_id, given, &logs),
        (false, false) => transactions.add_logs(&asked.transactional_id, given, logs),
    };
    let code = match added {
        Ok(()) if is_refused => ErrorCode::OperationNotAttempted,
        Ok(()) => ErrorCode::None,
        Err(why) => {
            context.log_refused_transaction(&asked.transactional_id, &why);
            error::transaction(&why, call.version >= FENCED_FROM)?
        }
    };
    let topics = asked.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|&partition_index| {
            let code = find(shared, &topic.name, partition_index).err().unwrap_or(code);
            AddPartitionsToTxnPartitionResult {
                partition_index,
                partition_error_code: shared.metrics.error(call.api, code),
            }
        });
        AddPartitionsToTxnTopicResult {
            name: topic.name.clone(),
            results_by_partition: partitions.collect(),
        }
    });
    Ok(topics.collect())
}

fn partitions(topics: &[AddPartitionsToTxnTopic]) -> impl Iterator<Item = (&str, i32)> {
    topics.iter().flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|partition| (&*topic.name, *partition))
    })
}

/// Returns the log of a partition that producers may write to. A topic of the broker's own is refused as in
/// Kafka: clients retry a partition that is unknown, and give up here.
fn find(shared: &KafkaContext, topic: &str, partition: i32) -> Result<LogId, ErrorCode> {
    if is_internal(topic) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let topic = shared.broker.topics().named(topic);
    if topic
        .as_ref()
        .is_some_and(|topic| shared.broker.catalog().is_spread(topic))
    {
        // No transaction goes over cells.
        return Err(ErrorCode::PolicyViolation);
    }
    let partition = u32::try_from(partition).ok();
    let log = topic
        .zip(partition)
        .and_then(|(topic, partition)| topic.log(partition));
    log.ok_or(ErrorCode::UnknownTopicOrPartition)
}

pub(super) fn add_offsets(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: AddOffsetsToTxnRequest = call.read(body)?;
    Ok(PendingResponse::barrier(move |context| {
        let given = Instance {
            producer: ProducerId(request.producer_id),
            epoch: request.producer_epoch,
        };
        let transactions = context.shared.broker.transactions();
        let code = match transactions.add_group(&request.transactional_id, given, &request.group_id) {
            Ok(()) => ErrorCode::None,
            Err(why) => {
                context.log_refused_transaction(&request.transactional_id, &why);
                error::transaction(&why, call.version >= FENCED_FROM)?
            }
        };
        call.answer::<AddOffsetsToTxnRequest>(&AddOffsetsToTxnResponse {
            throttle_time_ms: 0,
            error_code: context.shared.metrics.error(call.api, code),
        })
    }))
}
