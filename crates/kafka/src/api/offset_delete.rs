//! `OffsetDelete`: deletes commits of a group, except in topics that its members subscribe to.

use std::collections::HashSet;

use smallvec::SmallVec;
use stafett_groups::{Group, GroupError, GroupKind};
use stafett_kafka_wire::consumer_protocol::{self, ConsumerProtocolSubscription};
use stafett_kafka_wire::messages::offset_delete::{
    OffsetDeleteRequestTopic, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use stafett_kafka_wire::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use stafett_kafka_wire::{DecodeLimits, Decoder, ErrorCode, Str};
use stafett_store::NotStored;

use crate::call::{Call, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

/// Place of a commit in the answer, and true if it was deleted.
type PlacedOutcome = ((usize, usize), bool);

/// Protocol type of consumers.
const CONSUMER: &str = "consumer";

pub(super) fn offset_delete(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: OffsetDeleteRequest = call.read(body)?;
    let shared = &*context.shared;
    let (topics, commits, places) = find(shared, request.topics);
    let is_allowed = |group: &Group| {
        let subscribed = subscribed(group)?;
        let is_allowed = |place: &(usize, usize)| match (&subscribed, topics.get(place.0)) {
            (Subscribed::Topics(names), Some(topic)) => !names.contains(&topic.name),
            (Subscribed::Unknown, _) | (_, None) => false,
        };
        Ok(places.iter().map(is_allowed).collect())
    };
    let transactions = shared.broker.transactions();
    match transactions.delete_commits(&request.group_id, &commits, is_allowed) {
        Ok((allowed, ticket)) => {
            let deleted = then(move |context, parts: SmallVec<[Result<(), NotStored>; 1]>| {
                let deleted = parts.into_iter().collect::<Result<(), NotStored>>();
                let deleted = deleted.map(|()| places.into_iter().zip(allowed).collect());
                answer(&context.shared, call, topics, deleted.map_err(GroupError::from))
            });
            let operation = Operation::AwaitCommits(ticket, deleted);
            Ok(PendingResponse::awaiting(operation, Pipelining::Free))
        }
        Err(why) => Ok(PendingResponse::Ready(answer(shared, call, topics, Err(why)))),
    }
}

/// Builds the answer.
fn answer(
    shared: &KafkaContext,
    call: Call,
    mut topics: Vec<OffsetDeleteResponseTopic>,
    deleted: Result<Vec<PlacedOutcome>, GroupError>,
) -> ResponseResult {
    let (topics, code) = match deleted {
        Ok(deleted) => {
            for ((topic, partition), _) in deleted.into_iter().filter(|(_, is_deleted)| !is_deleted) {
                let slot = topics.get_mut(topic);
                if let Some(slot) = slot.and_then(|topic| topic.partitions.get_mut(partition)) {
                    slot.error_code = shared.metrics.error(call.api, ErrorCode::GroupSubscribedToTopic);
                }
            }
            (topics, ErrorCode::None)
        }
        Err(why) => (Vec::new(), error::group(&why)?),
    };
    let response = OffsetDeleteResponse {
        error_code: shared.metrics.error(call.api, code),
        throttle_time_ms: 0,
        topics,
    };
    call.answer::<OffsetDeleteRequest>(&response)
}

/// Preliminary answer, commits to delete, and the place of each commit in the answer.
type DeletePlan = (
    Vec<OffsetDeleteResponseTopic>,
    Vec<(stafett_topics::TopicId, u32)>,
    Vec<(usize, usize)>,
);

fn find(shared: &KafkaContext, asked: Vec<OffsetDeleteRequestTopic>) -> DeletePlan {
    let mut commits = Vec::new();
    let mut places = Vec::new();
    let mut topics = Vec::with_capacity(asked.len());
    for topic in asked {
        let known = shared.broker.topics().named(&topic.name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let partition = u32::try_from(asked.partition_index).ok();
            let known = known.as_ref().zip(partition);
            let known = known.filter(|(topic, partition)| *partition < topic.partitions());
            let code = match known {
                Some((known, partition)) => {
                    places.push((topics.len(), partitions.len()));
                    commits.push((known.id, partition));
                    ErrorCode::None
                }
                None => ErrorCode::UnknownTopicOrPartition,
            };
            partitions.push(OffsetDeleteResponsePartition {
                partition_index: asked.partition_index,
                error_code: code.code(),
            });
        }
        topics.push(OffsetDeleteResponseTopic {
            name: topic.name,
            partitions,
        });
    }
    (topics, commits, places)
}

/// Topics that the members of a group subscribe to.
enum Subscribed {
    Topics(HashSet<Str>),
    /// A member's metadata cannot be read.
    Unknown,
}

fn subscribed(group: &Group) -> Result<Subscribed, GroupError> {
    let mut names = HashSet::new();
    match &group.kind {
        GroupKind::Classic(classic) if classic.is_empty() => {}
        GroupKind::Classic(classic) if classic.purpose() != Some(CONSUMER) => {
            return Err(GroupError::NotEmpty);
        }
        GroupKind::Classic(classic) => {
            for member in classic.members() {
                let read = consumer_protocol::read(member.metadata, DecodeLimits::default());
                let Ok((_, ConsumerProtocolSubscription { topics, .. })) = read else {
                    return Ok(Subscribed::Unknown);
                };
                names.extend(topics.iter().map(Str::detach));
            }
        }
        GroupKind::Share(_) => return Err(GroupError::NoSuchGroup),
        GroupKind::Consumer(kind) => names.extend(kind.group().topics().map(Str::copy_from)),
    }
    Ok(Subscribed::Topics(names))
}
