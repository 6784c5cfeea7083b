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

use stafett_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use stafett_kafka_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::Offset;
use stafett_topics::{TimeQuery, Topic, is_internal};

use crate::call::Call;
use crate::context::{KafkaContext, RequestContext};
use crate::leader_epoch::{check_leader_epoch, leader_epoch};
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};
use crate::time_search::{OffsetAtTime, TimeSearch};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;
/// No offset, time or epoch.
const NONE: i64 = -1;

/// Offset, timestamp and leader epoch of a partition; `None` if they are searched for.
type FoundOffset = Result<Option<OffsetAtTime>, ErrorCode>;

pub(super) fn list_offsets(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ListOffsetsRequest = call.read(body)?;
    let has_internal = request.topics.iter().any(|topic| is_internal(&topic.name));
    Ok(PendingResponse::in_turn(move |context| {
        if has_internal {
            let refreshed = then(move |context, ()| Ok(run(context, call, request)));
            return Ok(Step::Await(Operation::RefreshOffsetsTopic(refreshed)));
        }
        Ok(run(context, call, request))
    }))
}

fn run(context: &RequestContext, call: Call, request: ListOffsetsRequest) -> Step {
    let shared = &*context.shared;
    let doubled = doubled(&request);
    let mut searches = Vec::new();
    let topics = request.topics.into_iter().map(|topic| {
        let known = shared.broker.topics().named(&topic.name);
        let find = |asked: ListOffsetsPartition| {
            let found = if doubled.contains(&(topic.name.clone(), asked.partition_index)) {
                Err(ErrorCode::InvalidRequest)
            } else {
                find(shared, call.version, known.as_deref(), &asked, &mut searches)
            };
            (asked.partition_index, found)
        };
        let found: Vec<(i32, FoundOffset)> = topic.partitions.into_iter().map(find).collect();
        (topic.name, found)
    });
    let topics: Vec<(Str, Vec<(i32, FoundOffset)>)> = topics.collect();
    let found = then(move |context, times: Vec<Result<OffsetAtTime, ErrorCode>>| {
        let mut times = times.into_iter();
        let mut partition = |(index, found): (i32, FoundOffset)| {
            let time = || times.next().unwrap_or(Err(ErrorCode::KafkaStorageError));
            let found = found.and_then(|known| known.map_or_else(time, Ok));
            answer(&context.shared, call, index, found)
        };
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopicResponse {
                name,
                partitions: partitions.into_iter().map(&mut partition).collect(),
            });
        call.answer::<ListOffsetsRequest>(&ListOffsetsResponse {
            throttle_time_ms: 0,
            topics: topics.collect(),
        })
    });
    Step::Await(Operation::FindTimes(searches, found))
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
    partition_index: i32,
    found: Result<OffsetAtTime, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let code = found.err().unwrap_or(ErrorCode::None);
    let (offset, timestamp, leader_epoch) = found.ok().flatten().unwrap_or((NONE, NONE, -1));
    ListOffsetsPartitionResponse {
        partition_index,
        error_code: shared.metrics.error(call.api, code),
        timestamp,
        offset,
        leader_epoch: if call.version >= 4 { leader_epoch } else { -1 },
    }
}

/// Returns the offset, or adds a search for it.
fn find(
    shared: &KafkaContext,
    version: i16,
    topic: Option<&Topic>,
    asked: &ListOffsetsPartition,
    searches: &mut Vec<TimeSearch>,
) -> FoundOffset {
    let partition = u32::try_from(asked.partition_index).ok();
    let log = topic
        .zip(partition)
        .and_then(|(topic, partition)| topic.log(partition));
    let log = log.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if asked.timestamp < 0 && first_version(asked.timestamp).is_none_or(|first| version < first) {
        return Err(ErrorCode::UnsupportedVersion);
    }
    check_leader_epoch(&shared.broker, asked.current_leader_epoch)?;
    let bounds = shared
        .broker
        .catalog()
        .bounds(log)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let query = match asked.timestamp {
        LATEST => return Ok(Some(Some((wire(bounds.end), NONE, leader_epoch(&shared.broker))))),
        EARLIEST | EARLIEST_LOCAL => return Ok(Some(Some((wire(bounds.start), NONE, -1)))),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => return Ok(Some(None)),
        MAX_TIMESTAMP => TimeQuery::Latest,
        time => TimeQuery::AtOrAfter(time),
    };
    searches.push(TimeSearch {
        log,
        query,
        start: bounds.start,
    });
    Ok(None)
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

fn wire(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
