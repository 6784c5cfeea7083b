//! `OffsetForLeaderEpoch`: end offset of an epoch, so that a client can detect that records it read are gone.
//!
//! Each start of the broker is an epoch of all partitions, and epochs rise along a log.

use stafett_kafka_wire::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use stafett_kafka_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::LogId;

use crate::call::Call;
use crate::cells::own_bounds;
use crate::context::{KafkaContext, RequestContext};
use crate::epoch_search::{EpochSearch, FoundEnd, wire};
use crate::error;
use crate::leader_epoch::{check_leader_epoch, leader_epoch};
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};

/// No epoch.
const NONE: i32 = -1;
const NO_OFFSET: i64 = -1;

pub(super) fn offset_for_leader_epoch(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: OffsetForLeaderEpochRequest = call.read(body)?;
    Ok(PendingResponse::in_turn(move |context| {
        Ok(run(context, call, request))
    }))
}

fn run(context: &RequestContext, call: Call, request: OffsetForLeaderEpochRequest) -> Step {
    let shared = &*context.shared;
    let mut searches = Vec::new();
    for topic in &request.topics {
        let known = shared.broker.topics().named(&topic.topic);
        searches.extend(topic.partitions.iter().map(|asked| {
            let number = u32::try_from(asked.partition).ok();
            let log = known.as_ref().zip(number);
            let log = log.and_then(|(topic, number)| topic.log(number));
            search(shared, log, asked)
        }));
    }
    let found = then(move |context, found: Vec<FoundEnd>| {
        let mut found = found.into_iter();
        let mut partition = |asked: OffsetForLeaderPartition| {
            let found = found.next().unwrap_or(Err(ErrorCode::KafkaStorageError));
            answer(&context.shared, call, asked.partition, found)
        };
        let topics = request
            .topics
            .into_iter()
            .map(|topic| OffsetForLeaderTopicResult {
                topic: topic.topic,
                partitions: topic.partitions.into_iter().map(&mut partition).collect(),
            });
        call.answer::<OffsetForLeaderEpochRequest>(&OffsetForLeaderEpochResponse {
            throttle_time_ms: 0,
            topics: topics.collect(),
        })
    });
    Step::Await(Operation::FindEpochEnds(searches, found))
}

fn answer(shared: &KafkaContext, call: Call, partition: i32, found: FoundEnd) -> EpochEndOffset {
    let code = found.err().unwrap_or(ErrorCode::None);
    let (leader_epoch, end_offset) = found.unwrap_or((NONE, NO_OFFSET));
    EpochEndOffset {
        error_code: shared.metrics.error(call.api, code),
        partition,
        leader_epoch,
        end_offset,
    }
}

/// Returns the search for the end of an epoch, or the end if it is known.
fn search(
    shared: &KafkaContext,
    log: Option<LogId>,
    asked: &OffsetForLeaderPartition,
) -> Result<EpochSearch, FoundEnd> {
    let log = log.ok_or(Err(ErrorCode::UnknownTopicOrPartition))?;
    let bounds = own_bounds(shared.broker.catalog(), log);
    let bounds = bounds.ok_or_else(|| Err(error::missing(log)))?;
    check_leader_epoch(&shared.broker, asked.current_leader_epoch).map_err(Err)?;
    let (wanted, current) = (asked.leader_epoch, leader_epoch(&shared.broker));
    if wanted == NONE || wanted > current {
        return Err(Ok((NONE, NO_OFFSET)));
    }
    if wanted == current {
        return Err(Ok((current, wire(bounds.end.0))));
    }
    Ok(EpochSearch { log, bounds, wanted })
}
