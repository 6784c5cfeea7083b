//! `TxnOffsetCommit`: commits of a group that count with the end of a transaction.

use stafett_groups::NewCommit;
use stafett_kafka_wire::messages::txn_offset_commit::{
    TxnOffsetCommitRequestTopic, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use stafett_kafka_wire::messages::{TxnOffsetCommitRequest, TxnOffsetCommitResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::ProducerId;
use stafett_transactions::Instance;

use crate::call::{Call, ResponseResult};
use crate::cell_commits::CommittedWith;
use crate::context::{KafkaContext, RequestContext};
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::transaction_operation::TransactionOperation;

/// First version that begins the transaction, or adds the group to it (KIP-890).
const ADDS_FROM: i16 = 5;

pub(super) fn txn_offset_commit(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: TxnOffsetCommitRequest = call.read(body)?;
    let mut commits = Vec::new();
    let topics: Vec<_> = request
        .topics
        .iter()
        .map(|topic| stage(&context.shared, topic, &mut commits))
        .collect();
    if request.group_id.is_empty() {
        return Ok(answer(&context.shared, call, topics, ErrorCode::InvalidGroupId)?.into());
    }
    if commits.is_empty() {
        return Ok(answer(&context.shared, call, topics, ErrorCode::None)?.into());
    }
    let given = Instance {
        producer: ProducerId(request.producer_id),
        epoch: request.producer_epoch,
    };
    let stored = then(move |context, code| answer(&context.shared, call, topics, code));
    let asked = CommittedWith {
        id: request.transactional_id,
        by: given,
        adds: call.version >= ADDS_FROM,
        group: request.group_id,
        member: request.member_id,
        instance: request.group_instance_id,
        generation: request.generation_id,
        commits,
        version: call.version,
    };
    let operation = TransactionOperation::CommitOffsets(Box::new(asked), stored);
    Ok(PendingResponse::awaiting(
        Operation::Transaction(operation),
        Pipelining::Barrier,
    ))
}

/// Adds the valid commits of a topic to `commits` and returns the preliminary answer.
fn stage(
    shared: &KafkaContext,
    asked: &TxnOffsetCommitRequestTopic,
    commits: &mut Vec<NewCommit>,
) -> TxnOffsetCommitResponseTopic {
    let topic = shared.broker.topics().named(&asked.name);
    let text_bytes_max = shared.broker.groups().settings().commit_text_bytes_max;
    let partitions = asked.partitions.iter().map(|partition| {
        let known = topic.as_ref().zip(u32::try_from(partition.partition_index).ok());
        let known = known.filter(|(topic, number)| *number < topic.partitions());
        let text = partition
            .committed_metadata
            .as_deref()
            .filter(|text| !text.is_empty());
        let code = match known {
            None => ErrorCode::UnknownTopicOrPartition,
            Some(_) if text.is_some_and(|text| text.len() > text_bytes_max) => {
                ErrorCode::OffsetMetadataTooLarge
            }
            Some((topic, number)) => {
                commits.push(NewCommit {
                    topic: topic.id,
                    partition: number,
                    offset: partition.committed_offset,
                    leader_epoch: partition.committed_leader_epoch,
                    text: text.map(Into::into),
                });
                ErrorCode::None
            }
        };
        TxnOffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: code.code(),
        }
    });
    TxnOffsetCommitResponseTopic {
        partitions: partitions.collect(),
        name: asked.name.clone(),
    }
}

/// Answers with `code` for the partitions that had no error before.
fn answer(
    shared: &KafkaContext,
    call: Call,
    mut topics: Vec<TxnOffsetCommitResponseTopic>,
    code: ErrorCode,
) -> ResponseResult {
    for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        if partition.error_code == 0 {
            partition.error_code = code.code();
        }
        let code = ErrorCode::try_from(partition.error_code).unwrap_or(ErrorCode::UnknownServerError);
        shared.metrics.error(call.api, code);
    }
    call.answer::<TxnOffsetCommitRequest>(&TxnOffsetCommitResponse {
        throttle_time_ms: 0,
        topics,
    })
}
