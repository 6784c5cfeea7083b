//! `ListOffsets`: offsets at the start, at the end or at a time.
//!
//! | timestamp | from version | answered with |
//! |---|---|---|
//! | -1 latest | 1 | the end; of committed records, the last stable offset |
//! | -2 earliest | 1 | the start |
//! | -3 max timestamp | 7 | the first record with the latest timestamp |
//! | -4 earliest local | 8 | the start: everything is local |
//! | -5 latest tiered | 9 | no offset: nothing is tiered |
//! | -6 earliest to be uploaded | 11 | no offset |
//! | 0 and up | 1 | the first record at or behind the time |
//!
//! Of committed records, a record at or behind the last stable offset is not found.

use stafett_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use stafett_kafka_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::Offset;
use stafett_topics::{TimeQuery, Topic, is_internal};

use super::repeated::repeated;
use crate::call::Call;
use crate::cells::own_bounds;
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::leader_epoch::{check_leader_epoch, leader_epoch};
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};
use crate::time_search::{FoundOffset, TimeSearch, wire};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;
const READ_COMMITTED: i8 = 1;
/// No offset, time or epoch.
const NONE: i64 = -1;

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
    let keys = request.topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|asked| (topic.name.clone(), asked.partition_index))
    });
    let repeated = repeated(keys);
    let is_committed = request.isolation_level == READ_COMMITTED;
    let mut searches = Vec::new();
    for topic in &request.topics {
        let known = shared.broker.topics().named(&topic.name);
        let known = known.filter(|topic| shared.shows(topic));
        searches.extend(topic.partitions.iter().map(|asked| {
            if repeated.contains(&(topic.name.clone(), asked.partition_index)) {
                return Err(Err(ErrorCode::InvalidRequest));
            }
            search(shared, call.version, known.as_deref(), asked, is_committed)
        }));
    }
    let found = then(move |context, found: Vec<FoundOffset>| {
        let mut found = found.into_iter();
        let mut partition = |asked: ListOffsetsPartition| {
            let found = found.next().unwrap_or(Err(ErrorCode::KafkaStorageError));
            answer(&context.shared, call, asked.partition_index, found)
        };
        let topics = request.topics.into_iter().map(|topic| ListOffsetsTopicResponse {
            name: topic.name,
            partitions: topic.partitions.into_iter().map(&mut partition).collect(),
        });
        call.answer::<ListOffsetsRequest>(&ListOffsetsResponse {
            throttle_time_ms: 0,
            topics: topics.collect(),
        })
    });
    Step::Await(Operation::FindTimes(searches, found))
}

fn answer(
    shared: &KafkaContext,
    call: Call,
    partition_index: i32,
    found: FoundOffset,
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

/// Returns the search for an offset, or the offset if it is known.
fn search(
    shared: &KafkaContext,
    version: i16,
    topic: Option<&Topic>,
    asked: &ListOffsetsPartition,
    is_committed: bool,
) -> Result<TimeSearch, FoundOffset> {
    let partition = u32::try_from(asked.partition_index).ok();
    let log = topic
        .zip(partition)
        .and_then(|(topic, partition)| topic.log(partition));
    let log = log.ok_or(Err(ErrorCode::UnknownTopicOrPartition))?;
    if asked.timestamp < 0 && first_version(asked.timestamp).is_none_or(|first| version < first) {
        return Err(Err(ErrorCode::UnsupportedVersion));
    }
    let bounds = own_bounds(shared.broker.catalog(), log);
    let bounds = bounds.ok_or_else(|| Err(error::missing(log)))?;
    check_leader_epoch(&shared.broker, asked.current_leader_epoch).map_err(Err)?;
    let start = bounds.start;
    let end = if is_committed { bounds.stable } else { bounds.end };
    let query = match asked.timestamp {
        LATEST => return Err(Ok(Some((wire(end), NONE, leader_epoch(&shared.broker))))),
        EARLIEST | EARLIEST_LOCAL => return Err(Ok(Some((wire(start), NONE, -1)))),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => return Err(Ok(None)),
        MAX_TIMESTAMP => TimeQuery::Latest,
        time => TimeQuery::AtOrAfter(time),
    };
    Ok(TimeSearch {
        log,
        query,
        start,
        // Records that become readable meanwhile may be found.
        end: if is_committed { end } else { Offset(u64::MAX) },
    })
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
