//! `CreateTopics`: each of the request's topics, or why not.

use std::collections::HashMap;
use std::sync::Arc;

use stafett_broker::{NewTopic, Topic};
use stafett_kafka_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult,
};
use stafett_kafka_wire::messages::{CreateTopicsRequest, CreateTopicsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str, Uuid};

use super::describe_configs::{DEFAULT_SOURCE, TOPIC_SOURCE};
use crate::answers::{Answered, Kind};
use crate::configs;
use crate::error;
use crate::kafka::Shared;
use crate::session::{Call, Close, Context};
use crate::settings::BROKER_ID;

/// There is one copy of everything, as far as clients can tell.
const REPLICATION_FACTOR: i16 = 1;
/// What says that the broker is to choose.
const ANY: i32 = -1;
/// The answer shows the settings of each topic of a request of so many at most: they take far more than what asked.
const SHOWN_MAX: usize = 1000;

/// Why a topic is not created.
type Refused = (ErrorCode, String);

pub(super) fn create_topics(context: &Context, call: Call, body: Decoder) -> Result<Kind, Close> {
    let request: CreateTopicsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(Kind::Barrier(Box::pin(async move {
        run(&shared, call, request).await
    })))
}

async fn run(shared: &Shared, call: Call, request: CreateTopicsRequest) -> Answered {
    let mut named: HashMap<&Str, usize> = HashMap::new();
    for topic in &request.topics {
        *named.entry(&topic.name).or_default() += 1;
    }
    let mut prepared: Vec<Result<NewTopic, Refused>> = request
        .topics
        .iter()
        .map(|topic| match named.get(&topic.name) {
            Some(1) => prepare(topic),
            _ => Err((
                ErrorCode::InvalidRequest,
                format!("{} is in the request twice", topic.name),
            )),
        })
        .collect();
    let created = create(shared, &mut prepared, request.validate_only).await?;
    let shows = request.topics.len() <= SHOWN_MAX;
    let mut created = created.into_iter();
    let topics = request
        .topics
        .iter()
        .zip(prepared)
        .map(|(asked, prepared)| match prepared {
            Ok(new) => made(shared, asked, &new, created.next().flatten().as_deref(), shows),
            Err((code, message)) => CreatableTopicResult {
                name: asked.name.clone(),
                error_code: shared.metrics.error(call.api, code),
                error_message: Some(message.into()),
                configs: None,
                ..CreatableTopicResult::default()
            },
        });
    let response = CreateTopicsResponse {
        throttle_time_ms: 0,
        topics: topics.collect(),
    };
    call.answer::<CreateTopicsRequest>(&response)
}

/// Creates what can be; what cannot becomes an error. Gives what was made of each that is left, if it was.
async fn create(
    shared: &Shared,
    prepared: &mut [Result<NewTopic, Refused>],
    validate_only: bool,
) -> Result<Vec<Option<Arc<Topic>>>, Close> {
    let broker = &shared.broker;
    if validate_only {
        for slot in &mut *prepared {
            if let Ok(new) = slot
                && let Err(error) = broker.check_new(new)
            {
                *slot = Err(error::create(&error)?);
            }
        }
        return Ok(Vec::new());
    }
    let new = prepared
        .iter()
        .filter_map(|prepared| prepared.as_ref().ok().cloned())
        .collect();
    let mut results = broker.create_topics(new).await.into_iter();
    let mut created = Vec::new();
    for slot in prepared {
        if slot.is_err() {
            continue;
        }
        match results.next() {
            Some(Ok(topic)) => created.push(Some(topic)),
            Some(Err(error)) => *slot = Err(error::create(&error)?),
            None => return Err(Close::OutcomeUnknown),
        }
    }
    Ok(created)
}

fn prepare(asked: &CreatableTopic) -> Result<NewTopic, Refused> {
    let partitions = if asked.assignments.is_empty() {
        let factor = asked.replication_factor;
        if factor != REPLICATION_FACTOR && i32::from(factor) != ANY {
            let message = format!("a replication factor of {factor} is not possible: there is one broker");
            return Err((ErrorCode::InvalidReplicationFactor, message));
        }
        asked.num_partitions
    } else {
        assigned_partitions(asked)?
    };
    let partitions = match partitions {
        ANY => None,
        count => Some(
            u32::try_from(count)
                .ok()
                .filter(|count| *count > 0)
                .ok_or_else(|| {
                    (
                        ErrorCode::InvalidPartitions,
                        format!("{count} partitions are not possible: expected 1 or more"),
                    )
                })?,
        ),
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

/// The number of partitions that were assigned by hand: each to the one broker there is.
fn assigned_partitions(asked: &CreatableTopic) -> Result<i32, Refused> {
    if asked.num_partitions != ANY || i32::from(asked.replication_factor) != ANY {
        let message = "partitions and replication factor are -1 where replicas are assigned by hand";
        return Err((ErrorCode::InvalidRequest, message.to_owned()));
    }
    let mut numbers: Vec<i32> = asked
        .assignments
        .iter()
        .map(|assignment| assignment.partition_index)
        .collect();
    numbers.sort_unstable();
    if !numbers
        .iter()
        .copied()
        .eq(0..i32::try_from(numbers.len()).unwrap_or(i32::MAX))
    {
        let message = "partitions that are assigned by hand are numbered from 0 on, each once";
        return Err((ErrorCode::InvalidReplicaAssignment, message.to_owned()));
    }
    match asked
        .assignments
        .iter()
        .find(|assignment| assignment.broker_ids != [BROKER_ID])
    {
        Some(assignment) => {
            let (partition, brokers) = (assignment.partition_index, &assignment.broker_ids);
            let message =
                format!("partition {partition} cannot be on brokers {brokers:?}: there is broker 1 only");
            Err((ErrorCode::InvalidReplicaAssignment, message))
        }
        None => Ok(i32::try_from(numbers.len()).unwrap_or(i32::MAX)),
    }
}

/// What is said of a topic that was created, or could be.
fn made(
    shared: &Shared,
    asked: &CreatableTopic,
    new: &NewTopic,
    topic: Option<&Topic>,
    shows: bool,
) -> CreatableTopicResult {
    let partitions = new
        .partitions
        .unwrap_or_else(|| shared.broker.settings().partitions);
    let value_of = |config: &'static configs::Config| {
        let own = configs::value_in(&new.settings, config.name);
        let config_source = if own.is_some() {
            TOPIC_SOURCE
        } else {
            DEFAULT_SOURCE
        };
        CreatableTopicConfigs {
            name: config.name.into(),
            value: Some(
                own.unwrap_or_else(|| configs::default_value(&shared.broker, config))
                    .into(),
            ),
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
