//! `DeleteRecords`: deletes records before an offset.

use std::collections::HashMap;

use stafett_kafka_wire::messages::delete_records::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult};
use stafett_kafka_wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::{LogId, Offset};
use stafett_store::NotStored;
use stafett_topics::{TruncateError, cell_of, is_internal};

use crate::call::{Call, Close, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::events::record;
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};

/// Offset that stands for all records.
const END: i64 = -1;
/// Low watermark of a failed deletion.
const NONE: i64 = -1;

/// Name of a topic, and the logs of its partitions.
type FoundTopic = (Str, Vec<(i32, Result<LogId, ErrorCode>)>);

pub(super) fn delete_records(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DeleteRecordsRequest = call.read(body)?;
    Ok(PendingResponse::barrier(move |context| {
        Ok(run(context, call, request))
    }))
}

fn run(context: &RequestContext, call: Call, request: DeleteRecordsRequest) -> Step {
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
    let found = topics.into_iter().map(|(name, partitions)| {
        let find = |(partition, offset)| {
            let cut = cut(&context.shared, &name, partition, offset);
            cuts.extend(cut.ok());
            (partition, cut.map(|(log, _)| log))
        };
        let partitions = partitions.into_iter().map(find).collect();
        (name, partitions)
    });
    let found = found.collect();
    let truncated = then(move |context, truncated| answer(context, call, found, truncated));
    Step::Await(Operation::Truncate(cuts, truncated))
}

/// Builds the answer. `truncated` has the results of the partitions that were found.
fn answer(
    context: &RequestContext,
    call: Call,
    found: Vec<FoundTopic>,
    truncated: Vec<Result<(), NotStored>>,
) -> ResponseResult {
    let shared = &*context.shared;
    let mut truncated = truncated.into_iter();
    let mut topics = Vec::with_capacity(found.len());
    for (name, found) in found {
        let mut partitions = Vec::with_capacity(found.len());
        for (partition_index, log) in found {
            let (low_watermark, code) = match log {
                Err(code) => (NONE, code),
                Ok(log) => match truncated.next() {
                    Some(Ok(())) => match shared.broker.catalog().bounds(log) {
                        Some(bounds) => (wire(bounds.start), ErrorCode::None),
                        None => (NONE, ErrorCode::UnknownTopicOrPartition),
                    },
                    Some(Err(why)) => (NONE, error::not_stored(&why)?.0),
                    None => return Err(Close::OutcomeUnknown),
                },
            };
            partitions.push(DeleteRecordsPartitionResult {
                partition_index,
                low_watermark,
                error_code: shared.metrics.error(call.api, code),
            });
        }
        let is_cut = |it: &DeleteRecordsPartitionResult| it.error_code == ErrorCode::None.code();
        if partitions.iter().any(is_cut) {
            record(context.caller(), "topic.truncated", &name);
        }
        topics.push(DeleteRecordsTopicResult { name, partitions });
    }
    let response = DeleteRecordsResponse {
        throttle_time_ms: 0,
        topics,
    };
    call.answer::<DeleteRecordsRequest>(&response)
}

/// Returns the log and the offset before which it is truncated.
fn cut(shared: &KafkaContext, name: &str, partition: i32, offset: i64) -> Result<(LogId, Offset), ErrorCode> {
    if is_internal(name) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let topic = shared.broker.topics().named(name);
    let topic = topic.filter(|topic| shared.shows(topic));
    let place = topic.zip(u32::try_from(partition).ok());
    let (topic, partition) = place.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if let Some(log) = topic.log(partition).filter(|log| cell_of(*log).is_some()) {
        return Err(error::missing(log));
    }
    let defaults = shared.broker.catalog().defaults();
    let policy = topic.settings.cleanup.unwrap_or(defaults.cleanup);
    if policy.compacts && !policy.deletes && partition < topic.partitions() {
        return Err(ErrorCode::PolicyViolation);
    }
    let before = match offset {
        END => None,
        offset => Some(u64::try_from(offset).map_err(|_| ErrorCode::OffsetOutOfRange)?),
    };
    let checked = shared
        .broker
        .catalog()
        .check_truncation(&topic, partition, before.map(Offset));
    checked.map_err(|why| match why {
        TruncateError::Internal => ErrorCode::InvalidTopicException,
        TruncateError::NoSuchPartition => ErrorCode::UnknownTopicOrPartition,
        TruncateError::BehindEnd(_) => ErrorCode::OffsetOutOfRange,
    })
}

fn wire(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
