//! `DeleteTopics`: by name or id.

use std::collections::HashSet;
use std::sync::Arc;

use stafett_kafka_wire::messages::delete_topics::{DeletableTopicResult, DeleteTopicState};
use stafett_kafka_wire::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str, Uuid};
use stafett_topics::{DeleteError, Topic, TopicId, is_internal};

use super::repeated::repeated;
use crate::call::{Call, Close, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::events::record;
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};

/// First version in which a topic has a name or an id.
const IDS_FROM: i16 = 6;

/// Reason why a topic is not deleted.
type Refused = (ErrorCode, String);

pub(super) fn delete_topics(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DeleteTopicsRequest = call.read(body)?;
    Ok(PendingResponse::barrier(move |context| {
        Ok(run(context, call, request))
    }))
}

fn run(context: &RequestContext, call: Call, request: DeleteTopicsRequest) -> Step {
    let shared = &*context.shared;
    let asked: Vec<DeleteTopicState> = if call.version >= IDS_FROM {
        request.topics
    } else {
        let named = |name| DeleteTopicState {
            name: Some(name),
            topic_id: Uuid::ZERO,
        };
        request.topic_names.into_iter().map(named).collect()
    };
    let repeated = repeated(asked.iter().map(|topic| (topic.name.clone(), topic.topic_id)));
    let twice = named_twice(shared, &asked);
    let mut seen = HashSet::new();
    let mut ids = Vec::new();
    let mut found = Vec::with_capacity(asked.len());
    for topic in asked {
        let is_repeated = !seen.insert((topic.name.clone(), topic.topic_id));
        if is_repeated || topic.name.is_none() && twice.contains(&topic.topic_id) {
            continue;
        }
        let is_once = !repeated.contains(&(topic.name.clone(), topic.topic_id));
        found.push(match find(shared, &topic, is_once, &twice) {
            Ok(known) => {
                ids.push(known.id);
                (Some(Str::copy_from(&known.name)), Uuid::from(known.id.0), Ok(()))
            }
            Err(refused) => (topic.name, topic.topic_id, Err(refused)),
        });
    }
    let deleted = then(move |context, deleted| answer(context, call, found, deleted));
    Step::Await(Operation::DeleteTopics(ids, deleted))
}

/// Builds the answer. `deleted` has the results of the topics that were found.
fn answer(
    context: &RequestContext,
    call: Call,
    found: Vec<(Option<Str>, Uuid, Result<(), Refused>)>,
    deleted: Vec<Result<(), DeleteError>>,
) -> ResponseResult {
    let shared = &*context.shared;
    let mut deleted = deleted.into_iter();
    let mut responses = Vec::with_capacity(found.len());
    for (name, topic_id, found) in found {
        let outcome = match found {
            Ok(()) => Ok(deleted.next().ok_or(Close::OutcomeUnknown)?),
            Err(refused) => Err(refused),
        };
        let refused = match outcome {
            Ok(Ok(())) => {
                let name = name.as_deref().map(str::to_owned);
                record(
                    context.caller(),
                    "topic.deleted",
                    &name.unwrap_or_else(|| topic_id.to_string()),
                );
                None
            }
            Ok(Err(why)) => Some(error::delete(&why)?),
            Err(refused) => Some(refused),
        };
        let (code, message) = match refused {
            None => (ErrorCode::None, None),
            Some((code, message)) => (code, Some(message.into())),
        };
        responses.push(DeletableTopicResult {
            name,
            topic_id: if call.version >= IDS_FROM {
                topic_id
            } else {
                Uuid::ZERO
            },
            error_code: shared.metrics.error(call.api, code),
            error_message: message.filter(|_| call.version >= 5),
        });
    }
    let response = DeleteTopicsResponse {
        throttle_time_ms: 0,
        responses,
    };
    call.answer::<DeleteTopicsRequest>(&response)
}

/// Returns the ids of topics that the request contains both by name and by id. Such a request is an error.
fn named_twice(shared: &KafkaContext, asked: &[DeleteTopicState]) -> HashSet<Uuid> {
    let ids: HashSet<Uuid> = asked
        .iter()
        .filter(|topic| topic.name.is_none())
        .map(|topic| topic.topic_id)
        .collect();
    if ids.is_empty() {
        return ids;
    }
    let named = asked.iter().filter_map(|topic| topic.name.as_deref());
    let named = named.filter_map(|name| Some(Uuid::from(shared.broker.topics().named(name)?.id.0)));
    named.filter(|id| ids.contains(id)).collect()
}

/// Finds the topic to delete. Fails for the internal topic.
fn find(
    shared: &KafkaContext,
    asked: &DeleteTopicState,
    is_once: bool,
    twice: &HashSet<Uuid>,
) -> Result<Arc<Topic>, Refused> {
    let topic = find_any(shared, asked, is_once, twice)?;
    if is_internal(&topic.name) {
        let message = "The broker's own topic cannot be deleted.";
        return Err((ErrorCode::InvalidTopicException, message.to_owned()));
    }
    Ok(topic)
}

fn find_any(
    shared: &KafkaContext,
    asked: &DeleteTopicState,
    is_once: bool,
    twice: &HashSet<Uuid>,
) -> Result<Arc<Topic>, Refused> {
    let topics = shared.broker.topics();
    let invalid = |message: &str| (ErrorCode::InvalidRequest, message.to_owned());
    let unknown = |code, message: &'static str| move || (code, message.to_owned());
    match &asked.name {
        _ if !is_once => Err(invalid("Duplicate topic name.")),
        Some(_) if !asked.topic_id.is_zero() => {
            Err(invalid("You may not specify both topic name and topic id."))
        }
        Some(name) => match topics.named(name) {
            Some(found) if twice.contains(&Uuid::from(found.id.0)) => Err(invalid(
                "The provided topic name maps to an ID that was already supplied.",
            )),
            found => found.ok_or_else(unknown(
                ErrorCode::UnknownTopicOrPartition,
                "This server does not host this topic-partition.",
            )),
        },
        None if asked.topic_id.is_zero() => Err(invalid("Neither topic name nor id were specified.")),
        None => topics.with_id(TopicId(asked.topic_id.into())).ok_or_else(unknown(
            ErrorCode::UnknownTopicId,
            "This server does not host this topic ID.",
        )),
    }
}
