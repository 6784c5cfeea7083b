//! `DeleteRecords`: deletes records before an offset.

use std::collections::HashMap;
use std::sync::Arc;

use stafett_kafka_wire::messages::delete_records::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use stafett_kafka_wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::{LogId, Offset};
use stafett_topics::is_internal;

use crate::context::KafkaContext;
use crate::error;
use crate::response_queue::{PendingResponse, ResponseResult};
use crate::session::{Call, Close, Context};

/// Offset that stands for all records.
const END: i64 = -1;
/// Low watermark of a failed deletion.
const NONE: i64 = -1;

pub(super) fn delete_records(context: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
    let request: DeleteRecordsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Barrier(Box::pin(async move {
        run(&shared, call, request).await
    })))
}

async fn run(shared: &KafkaContext, call: Call, request: DeleteRecordsRequest) -> ResponseResult {
    // Each partition once, with its last requested offset.
    let mut topics: Vec<(Str, Vec<(i32, i64)>)> = Vec::new();
    let mut known: HashMap<Str, usize> = HashMap::new();
    let mut places: HashMap<(usize, i32), usize> = HashMap::new();
    for topic in request.topics {
        let at = *known.entry(topic.name.clone()).or_insert_with(|| {
            topics.push((topic.name.clone(), Vec::new()));
            topics.len() - 1
        });
        let Some((_, partitions)) = topics.get_mut(at) else {
            continue;
        };
        for asked in topic.partitions {
            let place = *places.entry((at, asked.partition_index)).or_insert_with(|| {
                partitions.push((asked.partition_index, asked.offset));
                partitions.len() - 1
            });
            if let Some(slot) = partitions.get_mut(place) {
                slot.1 = asked.offset;
            }
        }
    }
    let mut cuts = Vec::new();
    let found: Vec<Vec<Result<LogId, ErrorCode>>> = topics
        .iter()
        .map(|(name, partitions)| {
            let find = |&(partition, offset): &(i32, i64)| {
                let (log, before) = cut(shared, name, partition, offset)?;
                cuts.push((log, before));
                Ok(log)
            };
            partitions.iter().map(find).collect()
        })
        .collect();
    let mut outcomes = shared.broker.catalog().truncate(&cuts).await.into_iter();
    let mut results = Vec::with_capacity(topics.len());
    for ((name, partitions), found) in topics.into_iter().zip(found) {
        let mut answers = Vec::with_capacity(partitions.len());
        for ((partition_index, _), log) in partitions.into_iter().zip(found) {
            let (low_watermark, code) = match log {
                Err(code) => (NONE, code),
                Ok(log) => match outcomes.next() {
                    Some(Ok(())) => match shared.broker.catalog().bounds(log) {
                        Some(bounds) => (wire(bounds.start), ErrorCode::None),
                        None => (NONE, ErrorCode::UnknownTopicOrPartition),
                    },
                    Some(Err(why)) => (NONE, error::not_stored(&why)?.0),
                    None => return Err(Close::OutcomeUnknown),
                },
            };
            answers.push(DeleteRecordsPartitionResult {
                partition_index,
                low_watermark,
                error_code: shared.metrics.error(call.api, code),
            });
        }
        results.push(DeleteRecordsTopicResult {
            name,
            partitions: answers,
        });
    }
    let response = DeleteRecordsResponse {
        throttle_time_ms: 0,
        topics: results,
    };
    call.answer::<DeleteRecordsRequest>(&response)
}

/// Returns the log and the offset before which it is truncated.
fn cut(shared: &KafkaContext, name: &str, partition: i32, offset: i64) -> Result<(LogId, Offset), ErrorCode> {
    if is_internal(name) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let topic = shared.broker.topics().named(name);
    let partition = u32::try_from(partition).ok();
    let log = topic
        .zip(partition)
        .and_then(|(topic, partition)| topic.log(partition));
    let log = log.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let bounds = shared
        .broker
        .catalog()
        .bounds(log)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let before = match offset {
        END => bounds.end,
        offset => Offset(u64::try_from(offset).map_err(|_| ErrorCode::OffsetOutOfRange)?),
    };
    if before > bounds.end {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    Ok((log, before))
}

fn wire(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
