//! `OffsetForLeaderEpoch`: end offset of an epoch, so that a client can detect that records it read are gone.
//!
//! Each start of the broker is an epoch of all partitions, and epochs rise along a log.

use stafett_kafka_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use stafett_kafka_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::LogId;

use crate::call::Call;
use crate::context::{KafkaContext, RequestContext};
use crate::epoch_search::{EpochEnd, EpochSearch, wire};
use crate::leader_epoch::{check_leader_epoch, leader_epoch};
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};

/// No epoch.
const NONE: i32 = -1;
const NO_OFFSET: i64 = -1;

/// End of an epoch in a partition; `None` if it is searched for.
type FoundEnd = Result<Option<EpochEnd>, ErrorCode>;

pub(super) fn offset_for_leader_epoch(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: OffsetForLeaderEpochRequest = call.read(body)?;
    Ok(PendingResponse::in_turn(move |context| {
        Ok(run(context, call, request))
    }))
}

fn run(context: &RequestContext, call: Call, request: OffsetForLeaderEpochRequest) -> Step {
    let shared = &*context.shared;
    let mut searches = Vec::new();
    let topics = request.topics.into_iter().map(|topic| {
        let known = shared.broker.topics().named(&topic.topic);
        let find = |asked: OffsetForLeaderPartition| {
            let number = u32::try_from(asked.partition).ok();
            let log = known.as_ref().zip(number);
            let log = log.and_then(|(topic, number)| topic.log(number));
            (asked.partition, find(shared, log, &asked, &mut searches))
        };
        let found: Vec<(i32, FoundEnd)> = topic.partitions.into_iter().map(find).collect();
        (topic.topic, found)
    });
    let topics: Vec<(Str, Vec<(i32, FoundEnd)>)> = topics.collect();
    let found = then(move |context, ends: Vec<Result<EpochEnd, ErrorCode>>| {
        let mut ends = ends.into_iter();
        let mut partition = |(partition, found): (i32, FoundEnd)| {
            let end = || ends.next().unwrap_or(Err(ErrorCode::KafkaStorageError));
            let found = found.and_then(|known| known.map_or_else(end, Ok));
            answer(&context.shared, call, partition, found)
        };
        let topics = topics
            .into_iter()
            .map(|(topic, partitions)| OffsetForLeaderTopicResult {
                topic,
                partitions: partitions.into_iter().map(&mut partition).collect(),
            });
        call.answer::<OffsetForLeaderEpochRequest>(&OffsetForLeaderEpochResponse {
            throttle_time_ms: 0,
            topics: topics.collect(),
        })
    });
    Step::Await(Operation::FindEpochEnds(searches, found))
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

/// Returns the end of an epoch, or adds a search for it.
fn find(
    shared: &KafkaContext,
    log: Option<LogId>,
    asked: &OffsetForLeaderPartition,
    searches: &mut Vec<EpochSearch>,
) -> FoundEnd {
    let log = log.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let bounds = shared
        .broker
        .catalog()
        .bounds(log)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    check_leader_epoch(&shared.broker, asked.current_leader_epoch)?;
    let (wanted, current) = (asked.leader_epoch, leader_epoch(&shared.broker));
    if wanted == NONE || wanted > current {
        return Ok(Some((NONE, NO_OFFSET)));
    }
    if wanted == current {
        return Ok(Some((current, wire(bounds.end.0))));
    }
    searches.push(EpochSearch { log, bounds, wanted });
    Ok(None)
}
