//! `DeleteTopics`: by name or id.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stafett_kafka_wire::messages::delete_topics::{DeletableTopicResult, DeleteTopicState};
use stafett_kafka_wire::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str, Uuid};
use stafett_topics::{Topic, TopicId, is_internal};

use crate::context::KafkaContext;
use crate::error;
use crate::response_queue::{PendingResponse, ResponseResult};
use crate::session::{Call, Close, Context};

/// First version in which a topic has a name or an id.
const IDS_FROM: i16 = 6;

/// Reason why a topic is not deleted.
type Refused = (ErrorCode, String);

pub(super) fn delete_topics(context: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
    let request: DeleteTopicsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Barrier(Box::pin(async move {
        run(&shared, call, request).await
    })))
}

async fn run(shared: &KafkaContext, call: Call, request: DeleteTopicsRequest) -> ResponseResult {
    let asked: Vec<DeleteTopicState> = if call.version >= IDS_FROM {
        request.topics
    } else {
        let named = |name| DeleteTopicState {
            name: Some(name),
            topic_id: Uuid::ZERO,
        };
        request.topic_names.into_iter().map(named).collect()
    };
    let mut times: HashMap<(Option<Str>, Uuid), usize> = HashMap::new();
    for topic in &asked {
        *times.entry((topic.name.clone(), topic.topic_id)).or_default() += 1;
    }
    let twice = named_twice(shared, &asked);
    // All deletions are begun before the first is awaited: they share the journal's syncs.
    let mut seen = HashSet::new();
    let begun: Vec<_> = asked
        .into_iter()
        .filter(|topic| seen.insert((topic.name.clone(), topic.topic_id)))
        .filter(|topic| topic.name.is_some() || !twice.contains(&topic.topic_id))
        .map(|topic| {
            let is_once = times.get(&(topic.name.clone(), topic.topic_id)) == Some(&1);
            let found = find(shared, &topic, is_once, &twice);
            let deleting = found.map(|found| {
                let deletion = shared.broker.delete_topic(found.id);
                (found, deletion)
            });
            (topic, deleting)
        })
        .collect();
    let mut responses = Vec::with_capacity(begun.len());
    for (topic, deleting) in begun {
        let (name, topic_id, deleted) = match deleting {
            Ok((found, deletion)) => {
                let name = Some(Str::copy_from(&found.name));
                let deleted = deletion.await;
                shared.on_deletion();
                let deleted = deleted.map_err(|error| error::delete(&error));
                (name, Uuid::from(found.id.0), deleted)
            }
            Err(refused) => (topic.name, topic.topic_id, Err(Ok(refused))),
        };
        let (code, message) = match deleted {
            Ok(()) => (ErrorCode::None, None),
            Err(refused) => {
                let (code, message) = refused?;
                (code, Some(message.into()))
            }
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
