//! `CreatePartitions`: adds partitions to topics. Existing partitions do not change; clients see the new ones
//! in their next metadata.

use std::collections::HashSet;
use std::sync::Arc;

use stafett_kafka_wire::messages::create_partitions::{CreatePartitionsTopic, CreatePartitionsTopicResult};
use stafett_kafka_wire::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_topics::{GrowError, PARTITIONS_MAX, Topic, TopicId, is_internal};

use super::create_topics::check_assignment;
use super::repeated::repeated;
use crate::call::{Call, Close, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::events::record;
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};

/// A requested topic, and the reason why it does not grow.
type CheckedTopic = (Str, Result<(), Result<Refused, Close>>);

/// Reason why a topic does not grow.
type Refused = (ErrorCode, Option<String>);

pub(super) fn create_partitions(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: CreatePartitionsRequest = call.read(body)?;
    Ok(PendingResponse::barrier(move |context| {
        run(context, call, request)
    }))
}

fn run(context: &RequestContext, call: Call, request: CreatePartitionsRequest) -> Result<Step, Close> {
    let repeated = repeated(request.topics.iter().map(|topic| topic.name.clone()));
    let mut seen = HashSet::new();
    let mut grown = Vec::new();
    let mut checked = Vec::with_capacity(request.topics.len());
    for asked in request.topics {
        if !seen.insert(asked.name.clone()) {
            continue;
        }
        let is_once = !repeated.contains(&asked.name);
        let change = check(&context.shared, &asked, is_once).map(|change| grown.push(change));
        checked.push((asked.name, change));
    }
    if request.validate_only {
        let valid = grown.iter().map(|_| Ok(()));
        return answer(&context.shared, call, checked, valid, |_| ()).map(Step::Respond);
    }
    let done = then(move |context, grown: Vec<Result<Arc<Topic>, GrowError>>| {
        let grown = grown.into_iter().map(|grown| grown.map(drop));
        let done = |name: &str| record(context.caller(), "topic.changed", name);
        answer(&context.shared, call, checked, grown, done)
    });
    Ok(Step::Await(Operation::GrowTopics(grown, done)))
}

/// Builds the answer. `grown` has the results of the valid topics; `done` takes the names of those that grew.
fn answer(
    shared: &KafkaContext,
    call: Call,
    checked: Vec<CheckedTopic>,
    mut grown: impl Iterator<Item = Result<(), GrowError>>,
    done: impl Fn(&str),
) -> ResponseResult {
    let mut results = Vec::with_capacity(checked.len());
    for (name, checked) in checked {
        let outcome = match checked {
            Ok(()) => Ok(grown.next().ok_or(Close::OutcomeUnknown)?),
            Err(refused) => Err(refused?),
        };
        let refused: Option<Refused> = match outcome {
            Ok(Ok(())) => {
                done(&name);
                None
            }
            Ok(Err(why)) => Some(error::grow(&name, &why)?),
            Err(refused) => Some(refused),
        };
        let (code, message) = refused.unwrap_or((ErrorCode::None, None));
        results.push(CreatePartitionsTopicResult {
            name,
            error_code: shared.metrics.error(call.api, code),
            error_message: message.map(Into::into),
        });
    }
    let response = CreatePartitionsResponse {
        throttle_time_ms: 0,
        results,
    };
    call.answer::<CreatePartitionsRequest>(&response)
}

/// Returns the id of the topic and its new number of partitions.
fn check(
    shared: &KafkaContext,
    asked: &CreatePartitionsTopic,
    is_once: bool,
) -> Result<(TopicId, u32), Result<Refused, Close>> {
    if !is_once {
        let message = "Duplicate topic name.".to_owned();
        return Err(Ok((ErrorCode::InvalidRequest, Some(message))));
    }
    let name = &*asked.name;
    if is_internal(name) {
        let message = "The broker's own topic has the partitions that it needs.".to_owned();
        return Err(Ok((ErrorCode::InvalidTopicException, Some(message))));
    }
    let grow = |why| error::grow(name, &why);
    let topic = shared.broker.topics().named(name);
    let topic = topic.ok_or_else(|| grow(GrowError::NoSuchTopic))?;
    let has = topic.partitions();
    let Some(wanted) = u32::try_from(asked.count).ok().filter(|wanted| *wanted > has) else {
        let count = asked.count;
        let message = if i64::from(count) == i64::from(has) {
            format!("Topic already has {has} partition(s).")
        } else {
            format!("The topic {name} currently has {has} partition(s); {count} would not be an increase.")
        };
        return Err(Ok((ErrorCode::InvalidPartitions, Some(message))));
    };
    if wanted > PARTITIONS_MAX {
        return Err(grow(GrowError::TooMany(wanted)));
    }
    if let Some(assignments) = &asked.assignments {
        let refused = |message| Ok((ErrorCode::InvalidReplicaAssignment, Some(message)));
        let (more, given) = (wanted - has, assignments.len());
        if usize::try_from(more) != Ok(given) {
            return Err(refused(format!(
                "Attempted to add {more} additional partition(s), but only {given} assignment(s) were specified."
            )));
        }
        for assignment in assignments {
            check_assignment(shared.settings.broker_id, &assignment.broker_ids).map_err(refused)?;
        }
    }
    Ok((topic.id, wanted))
}
