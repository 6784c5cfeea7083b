//! `CreateTopics`: creates each topic of the request, or reports an error for it.

use std::collections::HashSet;
use std::sync::Arc;

use stafett_kafka_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult,
};
use stafett_kafka_wire::messages::{CreateTopicsRequest, CreateTopicsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Uuid};
use stafett_model::TopicName;
use stafett_topics::{CreateError, NewTopic, Topic};

use super::describe_configs::{DEFAULT_SOURCE, TOPIC_SOURCE, sources};
use super::repeated::repeated;
use crate::call::{Call, Close, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::events::record;
use crate::operation::{Operation, Step, then};
use crate::response_queue::{HandlerResult, PendingResponse};
use crate::{configs, error};

/// Clients see one replica of each partition.
const REPLICATION_FACTOR: i16 = 1;
/// Value that leaves the choice to the broker.
const ANY: i32 = -1;
/// Maximum topics of a request whose answer shows their settings. Settings are far larger than the request.
const SHOWN_MAX: usize = 1000;

/// Reason why a topic is not created.
type Refused = (ErrorCode, String);

pub(super) fn create_topics(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: CreateTopicsRequest = call.read(body)?;
    Ok(PendingResponse::barrier(move |context| {
        run(context, call, request)
    }))
}

fn run(context: &RequestContext, call: Call, mut request: CreateTopicsRequest) -> Result<Step, Close> {
    let repeated = repeated(request.topics.iter().map(|topic| topic.name.clone()));
    let mut seen = HashSet::new();
    request.topics.retain(|topic| seen.insert(topic.name.clone()));
    let prepared: Vec<Result<NewTopic, Refused>> = request
        .topics
        .iter()
        .map(|topic| {
            if repeated.contains(&topic.name) {
                let message = "Duplicate topic name.".to_owned();
                return Err((ErrorCode::InvalidRequest, message));
            }
            let new = prepare(context.broker_id(), topic)?;
            let settings = context.shared.created(new.settings);
            Ok(NewTopic { settings, ..new })
        })
        .collect();
    let valid = prepared.iter().filter_map(|prepared| prepared.as_ref().ok());
    if request.validate_only {
        let catalog = context.shared.broker.catalog();
        let new: Vec<NewTopic> = valid.cloned().collect();
        let checked = catalog.check_all(&new).into_iter();
        let checked = checked.map(|checked| checked.map(|()| None)).collect();
        return answer(context, call, &request, prepared, checked).map(Step::Respond);
    }
    let new = valid.cloned().collect();
    let created = then(move |context, created: Vec<Result<Arc<Topic>, CreateError>>| {
        let created = created.into_iter().map(|created| created.map(Some));
        answer(context, call, &request, prepared, created.collect())
    });
    Ok(Step::Await(Operation::CreateTopics(new, created)))
}

/// Builds the answer. `created` has the results of the valid topics; `None` for one that would be created.
fn answer(
    context: &RequestContext,
    call: Call,
    request: &CreateTopicsRequest,
    prepared: Vec<Result<NewTopic, Refused>>,
    created: Vec<Result<Option<Arc<Topic>>, CreateError>>,
) -> ResponseResult {
    let shared = &*context.shared;
    let shows = request.topics.len() <= SHOWN_MAX;
    let mut created = created.into_iter();
    let mut topics = Vec::with_capacity(request.topics.len());
    for (asked, prepared) in request.topics.iter().zip(prepared) {
        let outcome = match prepared {
            Ok(new) => Ok((new, created.next().ok_or(Close::OutcomeUnknown)?)),
            Err(refused) => Err(refused),
        };
        let made = match outcome {
            Ok((new, Ok(topic))) => {
                if topic.is_some() {
                    record(context.caller(), "topic.made", &new.name);
                }
                Ok(made(shared, asked, &new, topic.as_deref(), shows))
            }
            Ok((new, Err(why))) => Err(error::create(&new.name, &why)?),
            Err(refused) => Err(refused),
        };
        topics.push(made.unwrap_or_else(|(code, message)| CreatableTopicResult {
            name: asked.name.clone(),
            error_code: shared.metrics.error(call.api, code),
            error_message: Some(message.into()),
            num_partitions: ANY,
            replication_factor: -1,
            configs: Some(Vec::new()),
            ..CreatableTopicResult::default()
        }));
    }
    call.answer::<CreateTopicsRequest>(&CreateTopicsResponse {
        throttle_time_ms: 0,
        topics,
    })
}

fn prepare(broker: i32, asked: &CreatableTopic) -> Result<NewTopic, Refused> {
    TopicName::check(&asked.name).map_err(|why| (error::name(why), error::name_text(&asked.name, why)))?;
    let partitions = if asked.assignments.is_empty() {
        check_factor(asked.replication_factor)?;
        match asked.num_partitions {
            ANY => None,
            count => Some(positive(count)?),
        }
    } else {
        Some(assigned_partitions(broker, asked)?)
    };
    let set = asked
        .configs
        .iter()
        .map(|config| (&*config.name, config.value.as_deref()));
    let settings = configs::settings(set).map_err(|bad| (ErrorCode::InvalidConfig, bad.to_string()))?;
    Ok(NewTopic {
        name: asked.name.as_str().into(),
        partitions,
        settings,
    })
}

fn check_factor(factor: i16) -> Result<(), Refused> {
    let message = match factor {
        REPLICATION_FACTOR | -1 => return Ok(()),
        ..=0 => "Replication factor must be larger than 0, or -1 to use the default value.".to_owned(),
        _ => format!(
            "Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be \
             reached because only 1 broker(s) are registered."
        ),
    };
    Err((ErrorCode::InvalidReplicationFactor, message))
}

fn positive(count: i32) -> Result<u32, Refused> {
    let positive = u32::try_from(count).ok().filter(|count| *count > 0);
    positive.ok_or_else(|| {
        let message = "Number of partitions was set to an invalid non-positive value.";
        (ErrorCode::InvalidPartitions, message.to_owned())
    })
}

/// Returns the number of manually assigned partitions, all of them on the one broker.
fn assigned_partitions(broker: i32, asked: &CreatableTopic) -> Result<u32, Refused> {
    let invalid = |what: &str| {
        let message = format!("A manual partition assignment was specified, but {what} was not set to -1.");
        Err((ErrorCode::InvalidRequest, message))
    };
    if i32::from(asked.replication_factor) != ANY {
        return invalid("replication factor");
    }
    if asked.num_partitions != ANY {
        return invalid("numPartitions");
    }
    let refused = |message: String| (ErrorCode::InvalidReplicaAssignment, message);
    let mut seen = HashSet::new();
    for assignment in &asked.assignments {
        let partition = assignment.partition_index;
        if !seen.insert(partition) {
            let message = format!("Found multiple manual partition assignments for partition {partition}");
            return Err(refused(message));
        }
        check_assignment(broker, &assignment.broker_ids).map_err(refused)?;
    }
    let count = u32::try_from(seen.len()).unwrap_or(u32::MAX);
    if (0..count).all(|number| i32::try_from(number).is_ok_and(|number| seen.contains(&number))) {
        Ok(count)
    } else {
        Err(refused(
            "partitions should be a consecutive 0-based integer sequence".to_owned(),
        ))
    }
}

/// Checks a manual assignment: this broker, once.
pub(super) fn check_assignment(broker: i32, brokers: &[i32]) -> Result<(), String> {
    match brokers {
        [] => Err("The manual partition assignment includes an empty replica list.".to_owned()),
        [one] if *one == broker => Ok(()),
        [one, other, ..] if (*one, *other) == (broker, broker) => Err(format!(
            "The manual partition assignment includes the broker {broker} more than once."
        )),
        brokers => {
            let other = brokers.iter().find(|one| **one != broker).unwrap_or(&broker);
            Err(format!(
                "The manual partition assignment includes broker {other}, but no such broker is registered."
            ))
        }
    }
}

/// Builds the result of a topic that was created or passed validation.
fn made(
    shared: &KafkaContext,
    asked: &CreatableTopic,
    new: &NewTopic,
    topic: Option<&Topic>,
    shows: bool,
) -> CreatableTopicResult {
    let partitions = new
        .partitions
        .unwrap_or_else(|| shared.broker.catalog().defaults().partitions);
    let value_of = |config: &'static configs::Config| {
        let own = configs::value_in(&new.settings, config, config.name);
        let found = own
            .map(|value| (config.name, value, TOPIC_SOURCE))
            .or_else(|| sources(shared, config).into_iter().next());
        let (_, value, config_source) = found.unwrap_or((config.name, String::new(), DEFAULT_SOURCE));
        CreatableTopicConfigs {
            name: config.name.into(),
            value: Some(value.into()),
            read_only: false,
            config_source,
            is_sensitive: false,
        }
    };
    CreatableTopicResult {
        name: asked.name.clone(),
        topic_id: topic.map_or(Uuid::ZERO, |topic| Uuid::from(topic.id.0)),
        error_message: None,
        num_partitions: i32::try_from(partitions).unwrap_or(i32::MAX),
        replication_factor: REPLICATION_FACTOR,
        configs: shows.then(|| configs::ALL.iter().map(value_of).collect()),
        ..CreatableTopicResult::default()
    }
}
