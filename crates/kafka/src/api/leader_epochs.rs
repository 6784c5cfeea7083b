//! `OffsetForLeaderEpoch`: end offset of an epoch, so that a client can detect that records it read are gone.
//!
//! Each start of the broker is an epoch of all partitions, and epochs rise along a log. The end of an epoch
//! is found by binary search, reading one batch per step. No log has to remember its epochs.

use std::sync::Arc;

use stafett_kafka_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use stafett_kafka_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::{LogId, Offset};
use stafett_topics::{Batches, Bounds, LogRead, ReadEnd, SkipReason};

use crate::context::KafkaContext;
use crate::error;
use crate::response_queue::PendingResponse;
use crate::session::{Call, Close, Context};

/// No epoch.
const NONE: i32 = -1;
const NO_OFFSET: i64 = -1;

/// The last epoch that is not newer than the requested one, and its end offset.
type Ended = (i32, i64);

/// A batch: its epoch, its first offset, and the offset behind its last record.
struct BatchBounds {
    epoch: i32,
    base: u64,
    next: u64,
}

pub(super) fn offset_for_leader_epoch(
    context: &Context,
    call: Call,
    body: Decoder,
) -> Result<PendingResponse, Close> {
    let request: OffsetForLeaderEpochRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Task(Box::pin(async move {
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
                let found = find(&shared, log, &asked).await;
                let code = found.err().unwrap_or(ErrorCode::None);
                let (leader_epoch, end_offset) = found.unwrap_or((NONE, NO_OFFSET));
                partitions.push(EpochEndOffset {
                    error_code: shared.metrics.error(call.api, code),
                    partition: asked.partition,
                    leader_epoch,
                    end_offset,
                });
            }
            topics.push(OffsetForLeaderTopicResult {
                topic: topic.topic,
                partitions,
            });
        }
        call.answer::<OffsetForLeaderEpochRequest>(&OffsetForLeaderEpochResponse {
            throttle_time_ms: 0,
            topics,
        })
    })))
}

async fn find(
    shared: &KafkaContext,
    log: Option<LogId>,
    asked: &OffsetForLeaderPartition,
) -> Result<Ended, ErrorCode> {
    let log = log.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let bounds = shared
        .broker
        .catalog()
        .bounds(log)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    shared.check_leader_epoch(asked.current_leader_epoch)?;
    let (wanted, current) = (asked.leader_epoch, shared.leader_epoch());
    if wanted == NONE || wanted > current {
        return Ok((NONE, NO_OFFSET));
    }
    if wanted == current {
        return Ok((current, wire(bounds.end.0)));
    }
    search(shared, log, bounds, wanted).await
}

async fn search(shared: &KafkaContext, log: LogId, bounds: Bounds, wanted: i32) -> Result<Ended, ErrorCode> {
    let (mut low, mut high) = (bounds.start.0, bounds.end.0);
    // Epoch of the last batch that is not newer than `wanted`, and offset of the first newer batch.
    let (mut older, mut newer) = (None, bounds.end.0);
    while low < high {
        let middle = low + (high - low) / 2;
        match batch_at(shared, log, middle).await? {
            Some(found) if found.epoch <= wanted => {
                older = Some(found.epoch);
                low = found.next.max(middle + 1);
            }
            Some(found) => {
                newer = found.base.max(bounds.start.0);
                high = middle.min(newer);
            }
            None => high = middle,
        }
    }
    Ok((older.unwrap_or(wanted), wire(newer)))
}

/// Reads the batch that holds an offset, or the next one. `None` at the end of the log.
async fn batch_at(shared: &KafkaContext, log: LogId, offset: u64) -> Result<Option<BatchBounds>, ErrorCode> {
    let read = shared.broker.catalog().read_log(log, Offset(offset), 1);
    let run = match read.finish().await {
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
