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

use bytes::Bytes;
use stafett_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use stafett_kafka_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::{BatchHeader, LogId, Offset, max_timestamp_record, offset_for_timestamp};
use stafett_topics::{ReadError, TimeQuery, Topic, is_internal};

use crate::call::Call;
use crate::close::Close;
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::leader_epoch::{check_leader_epoch, leader_epoch};
use crate::operation::{OnDone, Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};

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

/// Log, time, and start of the log.
type TimeSearch = (LogId, TimeQuery, Offset);

/// Batch at a time. `None` if the journal is stopping.
type FoundBatch = Option<Result<Option<Bytes>, ReadError>>;

pub(super) fn list_offsets(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ListOffsetsRequest = call.read(body)?;
    let has_internal = request.topics.iter().any(|topic| is_internal(&topic.name));
    Ok(PendingResponse::in_turn(move |context| {
        let begin = move |context: &RequestContext, ()| ListOffsets::begin(context, call, request);
        if has_internal {
            return Ok(Step::Await(Operation::RefreshOffsetsTopic(then(begin))));
        }
        begin(context, ())
    }))
}

/// A request whose searches by time are made one after the other.
struct ListOffsets {
    call: Call,
    topics: Vec<ListOffsetsTopicResponse>,
    searches: std::vec::IntoIter<Search>,
    current: Option<Search>,
}

/// Search in a log, and the indexes of topic and partition in the response.
#[derive(Clone, Copy)]
struct Search {
    log: LogId,
    query: TimeQuery,
    start: Offset,
    place: (usize, usize),
}

impl ListOffsets {
    fn begin(context: &RequestContext, call: Call, request: ListOffsetsRequest) -> Result<Step, Close> {
        let shared = &*context.shared;
        let doubled = doubled(&request);
        let mut searches = Vec::new();
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let known = shared.broker.topics().named(&topic.name);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in topic.partitions {
                let found = if doubled.contains(&(topic.name.clone(), asked.partition_index)) {
                    Err(ErrorCode::InvalidRequest)
                } else {
                    find(shared, call.version, known.as_deref(), &asked)
                };
                let found = found.map(|found| {
                    found.unwrap_or_else(|(log, query, start)| {
                        let place = (topics.len(), partitions.len());
                        searches.push(Search {
                            log,
                            query,
                            start,
                            place,
                        });
                        None
                    })
                });
                partitions.push(answer(shared, call, asked.partition_index, found));
            }
            topics.push(ListOffsetsTopicResponse {
                name: topic.name,
                partitions,
            });
        }
        let request = Self {
            call,
            topics,
            searches: searches.into_iter(),
            current: None,
        };
        Box::new(request).next()
    }

    fn next(mut self: Box<Self>) -> Result<Step, Close> {
        self.current = self.searches.next();
        match self.current {
            Some(Search { log, query, .. }) => Ok(Step::Await(Operation::FindTime(log, query, self))),
            None => {
                let response = ListOffsetsResponse {
                    throttle_time_ms: 0,
                    topics: self.topics,
                };
                self.call
                    .answer::<ListOffsetsRequest>(&response)
                    .map(Step::Respond)
            }
        }
    }
}

impl OnDone<FoundBatch> for ListOffsets {
    fn on_done(mut self: Box<Self>, context: &RequestContext, batch: FoundBatch) -> Result<Step, Close> {
        if let Some(search) = self.current
            && let Some(topic) = self.topics.get_mut(search.place.0)
            && let Some(slot) = topic.partitions.get_mut(search.place.1)
        {
            let found = search.record(batch);
            *slot = answer(&context.shared, self.call, slot.partition_index, found);
        }
        self.next()
    }
}

impl Search {
    /// Finds the record in the batch that was found.
    fn record(self, batch: FoundBatch) -> Result<OffsetAtTime, ErrorCode> {
        let batch = batch.ok_or(ErrorCode::KafkaStorageError)?;
        let Some(batch) = batch.map_err(|error| error::read(&error))? else {
            return Ok(None);
        };
        let record = match self.query {
            TimeQuery::Latest => max_timestamp_record(&batch, BATCH_BYTES_MAX),
            TimeQuery::AtOrAfter(time) => offset_for_timestamp(&batch, time, self.start, BATCH_BYTES_MAX),
        };
        // Batches were checked on append, except the content of compressed records.
        let record = record.map_err(|_| ErrorCode::CorruptMessage)?;
        let epoch = BatchHeader::parse(&batch).map_or(-1, |header| header.leader_epoch);
        Ok(record.map(|(offset, timestamp)| (wire(offset), timestamp, epoch)))
    }
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

/// Returns the offset, or the search for it.
fn find(
    shared: &KafkaContext,
    version: i16,
    topic: Option<&Topic>,
    asked: &ListOffsetsPartition,
) -> Result<Result<OffsetAtTime, TimeSearch>, ErrorCode> {
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
    match asked.timestamp {
        LATEST => Ok(Ok(Some((wire(bounds.end), NONE, leader_epoch(&shared.broker))))),
        EARLIEST | EARLIEST_LOCAL => Ok(Ok(Some((wire(bounds.start), NONE, -1)))),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(Ok(None)),
        MAX_TIMESTAMP => Ok(Err((log, TimeQuery::Latest, bounds.start))),
        time => Ok(Err((log, TimeQuery::AtOrAfter(time), bounds.start))),
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

fn wire(offset: Offset) -> i64 {
    i64::try_from(offset.0).unwrap_or(i64::MAX)
}
