//! `OffsetForLeaderEpoch`: end offset of an epoch, so that a client can detect that records it read are gone.
//!
//! Each start of the broker is an epoch of all partitions, and epochs rise along a log. The end of an epoch
//! is found by binary search, reading one batch per step. No log has to remember its epochs.

use std::ops::Range;

use stafett_kafka_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use stafett_kafka_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::{LogId, Offset};
use stafett_topics::{Batches, LogRead, ReadEnd, SkipReason};

use crate::call::Call;
use crate::close::Close;
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::leader_epoch::{check_leader_epoch, leader_epoch};
use crate::operation::{OnDone, Operation, Step};
use crate::response_queue::{HandlerResult, PendingResponse};

/// No epoch.
const NONE: i32 = -1;
const NO_OFFSET: i64 = -1;

/// The last epoch that is not newer than the requested one, and its end offset.
type EpochEnd = (i32, i64);

/// A batch: its epoch, its first offset, and the offset behind its last record.
struct BatchBounds {
    epoch: i32,
    base: u64,
    next: u64,
}

pub(super) fn offset_for_leader_epoch(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: OffsetForLeaderEpochRequest = call.read(body)?;
    Ok(PendingResponse::in_turn(move |context| {
        EndOffsets::begin(context, call, request)
    }))
}

/// A request whose searches are made one after the other.
struct EndOffsets {
    call: Call,
    topics: Vec<OffsetForLeaderTopicResult>,
    searches: std::vec::IntoIter<((usize, usize), Search)>,
    /// Search in progress, and the indexes of topic and partition in the response.
    current: Option<((usize, usize), Search)>,
}

impl EndOffsets {
    fn begin(
        context: &RequestContext,
        call: Call,
        request: OffsetForLeaderEpochRequest,
    ) -> Result<Step, Close> {
        let shared = &*context.shared;
        let mut searches = Vec::new();
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let known = shared.broker.topics().named(&topic.topic);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in topic.partitions {
                let number = u32::try_from(asked.partition).ok();
                let log = known
                    .as_ref()
                    .zip(number)
                    .and_then(|(topic, number)| topic.log(number));
                let found = find(shared, log, &asked).map(|found| {
                    found.unwrap_or_else(|search| {
                        searches.push(((topics.len(), partitions.len()), search));
                        (NONE, NO_OFFSET)
                    })
                });
                partitions.push(answer(shared, call, asked.partition, found));
            }
            topics.push(OffsetForLeaderTopicResult {
                topic: topic.topic,
                partitions,
            });
        }
        let request = Self {
            call,
            topics,
            searches: searches.into_iter(),
            current: None,
        };
        Box::new(request).next(context)
    }

    fn next(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        loop {
            if self.current.is_none() {
                self.current = self.searches.next();
            }
            let Some((place, search)) = &self.current else {
                let response = OffsetForLeaderEpochResponse {
                    throttle_time_ms: 0,
                    topics: self.topics,
                };
                let answered = self.call.answer::<OffsetForLeaderEpochRequest>(&response);
                return answered.map(Step::Respond);
            };
            if let Some(middle) = search.middle() {
                return Ok(Step::Await(Operation::ReadBatch(
                    search.log,
                    Offset(middle),
                    self,
                )));
            }
            let (place, found) = (*place, search.found());
            self.put(context, place, Ok(found));
        }
    }

    /// Ends the search in progress.
    fn put(&mut self, context: &RequestContext, place: (usize, usize), found: Result<EpochEnd, ErrorCode>) {
        self.current = None;
        let topic = self.topics.get_mut(place.0);
        if let Some(slot) = topic.and_then(|topic| topic.partitions.get_mut(place.1)) {
            *slot = answer(&context.shared, self.call, slot.partition, found);
        }
    }
}

impl OnDone<LogRead> for EndOffsets {
    fn on_done(mut self: Box<Self>, context: &RequestContext, read: LogRead) -> Result<Step, Close> {
        if let Some((place, search)) = &mut self.current
            && let Err(code) = batch_of(read).map(|batch| search.on_batch(batch))
        {
            let place = *place;
            self.put(context, place, Err(code));
        }
        self.next(context)
    }
}

fn answer(
    shared: &KafkaContext,
    call: Call,
    partition: i32,
    found: Result<EpochEnd, ErrorCode>,
) -> EpochEndOffset {
    let code = found.err().unwrap_or(ErrorCode::None);
    let (leader_epoch, end_offset) = found.unwrap_or((NONE, NO_OFFSET));
    EpochEndOffset {
        error_code: shared.metrics.error(call.api, code),
        partition,
        leader_epoch,
        end_offset,
    }
}

/// Returns the end of an epoch, or the search for it.
fn find(
    shared: &KafkaContext,
    log: Option<LogId>,
    asked: &OffsetForLeaderPartition,
) -> Result<Result<EpochEnd, Search>, ErrorCode> {
    let log = log.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let bounds = shared
        .broker
        .catalog()
        .bounds(log)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    check_leader_epoch(&shared.broker, asked.current_leader_epoch)?;
    let (wanted, current) = (asked.leader_epoch, leader_epoch(&shared.broker));
    if wanted == NONE || wanted > current {
        return Ok(Ok((NONE, NO_OFFSET)));
    }
    if wanted == current {
        return Ok(Ok((current, wire(bounds.end.0))));
    }
    let (start, end) = (bounds.start.0, bounds.end.0);
    Ok(Err(Search {
        log,
        wanted,
        start,
        range: start..end,
        older: None,
        newer: end,
    }))
}

/// Binary search for the end of an epoch in a log.
struct Search {
    log: LogId,
    wanted: i32,
    start: u64,
    /// Offsets at which the end of the epoch may be.
    range: Range<u64>,
    /// Epoch of the last batch that is not newer than `wanted`.
    older: Option<i32>,
    /// Offset of the first newer batch.
    newer: u64,
}

impl Search {
    /// Returns the offset to be read next. `None` if the search is over.
    fn middle(&self) -> Option<u64> {
        let Range { start, end } = self.range;
        (start < end).then(|| start + (end - start) / 2)
    }

    fn on_batch(&mut self, batch: Option<BatchBounds>) {
        let Some(middle) = self.middle() else { return };
        match batch {
            Some(found) if found.epoch <= self.wanted => {
                self.older = Some(found.epoch);
                self.range.start = found.next.max(middle + 1);
            }
            Some(found) => {
                self.newer = found.base.max(self.start);
                self.range.end = middle.min(self.newer);
            }
            None => self.range.end = middle,
        }
    }

    fn found(&self) -> EpochEnd {
        (self.older.unwrap_or(self.wanted), wire(self.newer))
    }
}

/// Returns the bounds of the batch that was read: the one that holds an offset, or the next one. `None` at the
/// end of the log.
fn batch_of(read: LogRead) -> Result<Option<BatchBounds>, ErrorCode> {
    let run = match read {
        LogRead::Batches(run) => run,
        LogRead::Skip(skipped) => match skipped.why {
            SkipReason::Gap => return Ok(None),
            SkipReason::Expired => return Err(ErrorCode::OffsetOutOfRange),
            SkipReason::Damaged => return Err(ErrorCode::CorruptMessage),
        },
        LogRead::End(ReadEnd::AtEnd) => return Ok(None),
        LogRead::End(ReadEnd::NoSuchLog) => return Err(ErrorCode::UnknownTopicOrPartition),
        LogRead::End(ReadEnd::Failed(why)) => return Err(error::read(&why)),
        LogRead::End(ReadEnd::Stopped) => return Err(ErrorCode::KafkaStorageError),
    };
    let header = Batches::of(run).header().ok_or(ErrorCode::CorruptMessage)?;
    let base = u64::try_from(header.base_offset).map_err(|_| ErrorCode::CorruptMessage)?;
    Ok(Some(BatchBounds {
        epoch: header.leader_epoch,
        base,
        next: base + header.span(),
    }))
}

fn wire(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
