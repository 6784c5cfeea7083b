//! `ListOffsets`: offsets at the start, at the end or at a time.
//!
//! | timestamp | from version | answered with |
//! |---|---|---|
//! | -1 latest | 1 | the end |
//! | -2 earliest | 1 | the start |
//! | -3 max timestamp | 7 | the first record with the latest timestamp |
//! | -4 earliest local | 8 | the start: everything is local |
//! | -5 latest tiered | 9 | no offset: nothing is tiered |
//! | -6 earliest to be uploaded | 11 | no offset |
//! | 0 and up | 1 | the first record at or behind the time |

use std::collections::HashSet;
use std::sync::Arc;

use stafett_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use stafett_kafka_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::{BatchHeader, LogId, Offset, max_timestamp_record, offset_for_timestamp};
use stafett_topics::{TimeQuery, Topic, is_internal};

use crate::context::KafkaContext;
use crate::error;
use crate::response_queue::PendingResponse;
use crate::session::{Call, Close, Context};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;
/// No offset, time or epoch.
const NONE: i64 = -1;
/// Maximum decompressed bytes of a batch that is searched for a time.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Offset, timestamp and leader epoch; `None` if there is no such record.
type OffsetAtTime = Option<(i64, i64, i32)>;

pub(super) fn list_offsets(context: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
    let request: ListOffsetsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Task(Box::pin(async move {
        let doubled = doubled(&request);
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let known = shared.broker.topics().named(&topic.name);
            if is_internal(&topic.name) {
                shared.offsets_topic.refresh(&shared).await;
            }
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in topic.partitions {
                let found = if doubled.contains(&(topic.name.clone(), asked.partition_index)) {
                    Err(ErrorCode::InvalidRequest)
                } else {
                    find(&shared, call.version, known.as_deref(), &asked).await
                };
                partitions.push(answer(&shared, call, &asked, found));
            }
            topics.push(ListOffsetsTopicResponse {
                name: topic.name,
                partitions,
            });
        }
        call.answer::<ListOffsetsRequest>(&ListOffsetsResponse {
            throttle_time_ms: 0,
            topics,
        })
    })))
}

/// Returns the partitions that occur more than once.
fn doubled(request: &ListOffsetsRequest) -> HashSet<(Str, i32)> {
    let asked = request.topics.iter().flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|partition| (topic.name.clone(), partition.partition_index))
    });
    let mut seen = HashSet::new();
    asked.filter(|key| !seen.insert(key.clone())).collect()
}

fn answer(
    shared: &KafkaContext,
    call: Call,
    asked: &ListOffsetsPartition,
    found: Result<OffsetAtTime, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let code = found.err().unwrap_or(ErrorCode::None);
    let (offset, timestamp, leader_epoch) = found.ok().flatten().unwrap_or((NONE, NONE, -1));
    ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        error_code: shared.metrics.error(call.api, code),
        timestamp,
        offset,
        leader_epoch: if call.version >= 4 { leader_epoch } else { -1 },
    }
}

async fn find(
    shared: &KafkaContext,
    version: i16,
    topic: Option<&Topic>,
    asked: &ListOffsetsPartition,
) -> Result<OffsetAtTime, ErrorCode> {
    let partition = u32::try_from(asked.partition_index).ok();
    let log = topic
        .zip(partition)
        .and_then(|(topic, partition)| topic.log(partition));
    let log = log.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if asked.timestamp < 0 && first_version(asked.timestamp).is_none_or(|first| version < first) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    shared.check_leader_epoch(asked.current_leader_epoch)?;
    let bounds = shared
        .broker
        .catalog()
        .bounds(log)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    match asked.timestamp {
        LATEST => Ok(Some((wire(bounds.end), NONE, shared.leader_epoch()))),
        EARLIEST | EARLIEST_LOCAL => Ok(Some((wire(bounds.start), NONE, -1))),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(None),
        MAX_TIMESTAMP => find_time(shared, log, TimeQuery::Latest, bounds.start).await,
        time => find_time(shared, log, TimeQuery::AtOrAfter(time), bounds.start).await,
    }
}

fn first_version(timestamp: i64) -> Option<i16> {
    match timestamp {
        LATEST | EARLIEST => Some(1),
        MAX_TIMESTAMP => Some(7),
        EARLIEST_LOCAL => Some(8),
        LATEST_TIERED => Some(9),
        EARLIEST_PENDING_UPLOAD => Some(11),
        _ => None,
    }
}

async fn find_time(
    shared: &KafkaContext,
    log: LogId,
    query: TimeQuery,
    start: Offset,
) -> Result<OffsetAtTime, ErrorCode> {
    let found = shared.broker.catalog().find_time(log, query).finish().await;
    let found = found.map_err(|_| ErrorCode::KafkaStorageError)?;
    let Some(batch) = found.map_err(|error| error::read(&error))? else {
        return Ok(None);
    };
    let record = match query {
        TimeQuery::Latest => max_timestamp_record(&batch, BATCH_BYTES_MAX),
        TimeQuery::AtOrAfter(time) => offset_for_timestamp(&batch, time, start, BATCH_BYTES_MAX),
    };
    // Batches were checked on append, except the content of compressed records.
    let record = record.map_err(|_| ErrorCode::CorruptMessage)?;
    let epoch = BatchHeader::parse(&batch).map_or(-1, |header| header.leader_epoch);
    Ok(record.map(|(offset, timestamp)| (wire(offset), timestamp, epoch)))
}

fn wire(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
