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
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};
use crate::transaction_operation::{AddedParts, TransactionOperation};

/// First version of brokers, with several transactions per request.
const MANY_FROM: i16 = 4;
/// First version that knows `PRODUCER_FENCED`.
const FENCED_FROM: i16 = 2;

/// A transaction of a request; its partitions are added all or none.
struct Asked {
    transaction: AddPartitionsToTxnTransaction,
    /// Refused partitions, in the order of the request.
    found: Vec<Result<(), ErrorCode>>,
}

pub(super) fn add_partitions(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
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
    Ok(PendingResponse::barrier(move |context| {
        let (mut all, mut added) = (Vec::new(), Vec::new());
        for transaction in transactions {
            let mut parts = Parts::default();
            let found: Vec<_> = partitions(&transaction.topics)
                .map(|(topic, partition)| find(&context.shared, topic, partition, &mut parts))
                .collect();
            if found.iter().all(Result::is_ok) {
                added.push(AddedParts {
                    id: transaction.transactional_id.clone(),
                    given: Instance {
                        producer: ProducerId(transaction.producer_id),
                        epoch: transaction.producer_epoch,
                    },
                    is_checked: transaction.verify_only,
                    parts,
                });
            }
            all.push(Asked { transaction, found });
        }
        let done = then(move |context, outcomes| on_added(context, call, all, outcomes));
        let operation = TransactionOperation::AddParts(added, done);
        Ok(Step::Await(Operation::Transaction(operation)))
    }))
}

fn on_added(
    context: &RequestContext,
    call: Call,
    all: Vec<Asked>,
    outcomes: Vec<Result<(), TransactionError>>,
) -> ResponseResult {
    let mut outcomes = outcomes.into_iter();
    let mut results = Vec::new();
    for Asked { transaction, found } in all {
        let is_asked = found.iter().all(Result::is_ok);
        let outcome = if is_asked { outcomes.next() } else { None };
        let code = match outcome {
            None => ErrorCode::OperationNotAttempted,
            Some(Ok(())) => ErrorCode::None,
            Some(Err(why)) => {
                context.log_refused_transaction(&transaction.transactional_id, &why);
                error::transaction(&why, call.version >= FENCED_FROM)?
            }
        };
        let codes = found.into_iter().map(|found| found.err().unwrap_or(code));
        results.push(AddPartitionsToTxnResult {
            topic_results: answer(&context.shared, call, &transaction.topics, codes),
            transactional_id: transaction.transactional_id,
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

/// Answers for the partitions of a transaction, with a code for each.
fn answer(
    shared: &KafkaContext,
    call: Call,
    topics: &[AddPartitionsToTxnTopic],
    mut codes: impl Iterator<Item = ErrorCode>,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let mut answer_one = |partition_index| AddPartitionsToTxnPartitionResult {
        partition_index,
        partition_error_code: {
            let code = codes.next().unwrap_or(ErrorCode::UnknownServerError);
            shared.metrics.error(call.api, code)
        },
    };
    let topics = topics.iter().map(|topic| AddPartitionsToTxnTopicResult {
        name: topic.name.clone(),
        results_by_partition: topic.partitions.iter().map(|&it| answer_one(it)).collect(),
    });
    topics.collect()
}

fn partitions(topics: &[AddPartitionsToTxnTopic]) -> impl Iterator<Item = (&str, i32)> {
    topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|partition| (&*topic.name, *partition))
    })
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
