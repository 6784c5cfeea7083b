//! `AddPartitionsToTxn`, `AddOffsetsToTxn`: partitions and groups of a transaction.

use stafett_kafka_wire::messages::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResult, AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult, AddPartitionsToTxnTransaction,
};
use stafett_kafka_wire::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::ProducerId;
use stafett_topics::is_internal;
use stafett_transactions::{Instance, Parts, TransactionError};

use crate::call::{Call, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::transaction_operation::{AddedParts, TransactionOperation};

/// First version of brokers, with several transactions per request.
const MANY_FROM: i16 = 4;
/// First version that knows `PRODUCER_FENCED`.
const FENCED_FROM: i16 = 2;

/// A transaction of a request, and its partitions if all are there: they are added all or none.
type Asked = (AddPartitionsToTxnTransaction, Option<Parts>);

pub(super) fn add_partitions(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: AddPartitionsToTxnRequest = call.read(body)?;
    let transactions = if call.version < MANY_FROM {
        vec![AddPartitionsToTxnTransaction {
            transactional_id: request.v3_and_below_transactional_id,
            producer_id: request.v3_and_below_producer_id,
            producer_epoch: request.v3_and_below_producer_epoch,
            verify_only: false,
            topics: request.v3_and_below_topics,
        }]
    } else {
        request.transactions
    };
    let asked: Vec<Asked> = transactions
        .into_iter()
        .map(|asked| {
            let parts = find_all(&context.shared, &asked.topics);
            (asked, parts)
        })
        .collect();
    let added = asked.iter().filter_map(|(asked, parts)| {
        Some(AddedParts {
            id: asked.transactional_id.clone(),
            given: Instance {
                producer: ProducerId(asked.producer_id),
                epoch: asked.producer_epoch,
            },
            is_checked: asked.verify_only,
            parts: parts.clone()?,
        })
    });
    let added = added.collect();
    let done = then(move |context, outcomes| on_added(context, call, asked, outcomes));
    let operation = Operation::Transaction(TransactionOperation::AddParts(added, done));
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

fn on_added(
    context: &RequestContext,
    call: Call,
    asked: Vec<Asked>,
    outcomes: Vec<Result<(), TransactionError>>,
) -> ResponseResult {
    let mut outcomes = outcomes.into_iter();
    let mut results = Vec::new();
    for (asked, parts) in asked {
        let outcome = parts.and_then(|_| outcomes.next());
        let code = match outcome {
            None => ErrorCode::OperationNotAttempted,
            Some(Ok(())) => ErrorCode::None,
            Some(Err(why)) => {
                context.log_refused_transaction(&asked.transactional_id, &why);
                error::transaction(&why, call.version >= FENCED_FROM)?
            }
        };
        results.push(AddPartitionsToTxnResult {
            topic_results: answer(&context.shared, call, &asked.topics, code),
            transactional_id: asked.transactional_id,
        });
    }
    let response = if call.version < MANY_FROM {
        AddPartitionsToTxnResponse {
            results_by_topic_v3_and_below: results.pop().unwrap_or_default().topic_results,
            ..AddPartitionsToTxnResponse::default()
        }
    } else {
        AddPartitionsToTxnResponse {
            results_by_transaction: results,
            ..AddPartitionsToTxnResponse::default()
        }
    };
    call.answer::<AddPartitionsToTxnRequest>(&response)
}

/// Answers for the partitions of a transaction, with `code` for those that are there.
fn answer(
    shared: &KafkaContext,
    call: Call,
    topics: &[AddPartitionsToTxnTopic],
    code: ErrorCode,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let topics = topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|&partition_index| {
            let found = find(shared, &topic.name, partition_index, &mut Parts::default());
            let code = found.err().unwrap_or(code);
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
    topics.collect()
}

fn find_all(shared: &KafkaContext, topics: &[AddPartitionsToTxnTopic]) -> Option<Parts> {
    let mut parts = Parts::default();
    for topic in topics {
        for partition in &topic.partitions {
            find(shared, &topic.name, *partition, &mut parts).ok()?;
        }
    }
    Some(parts)
}

/// Adds a partition that producers may write to. A topic of the broker's own is refused as in Kafka: clients
/// retry a partition that is unknown, and give up here.
fn find(shared: &KafkaContext, topic: &str, partition: i32, parts: &mut Parts) -> Result<(), ErrorCode> {
    if is_internal(topic) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let topic = shared.broker.topics().named(topic);
    let place = topic.zip(u32::try_from(partition).ok());
    let is_found = place.is_some_and(|(topic, partition)| parts.add(&topic, partition));
    is_found.then_some(()).ok_or(ErrorCode::UnknownTopicOrPartition)
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
