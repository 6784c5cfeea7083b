//! `CreateTopics`: creates each topic of the request, or reports an error for it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stafett_kafka_wire::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult,
};
use stafett_kafka_wire::messages::{CreateTopicsRequest, CreateTopicsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str, Uuid};
use stafett_model::TopicName;
use stafett_topics::{NewTopic, Topic};

use super::describe_configs::{DEFAULT_SOURCE, TOPIC_SOURCE, sources};
use crate::context::KafkaContext;
use crate::response_queue::{PendingResponse, ResponseResult};
use crate::session::{Call, Close, Context};
use crate::settings::BROKER_ID;
use crate::{configs, error};

/// Clients see one replica of each partition.
const REPLICATION_FACTOR: i16 = 1;
/// Value that leaves the choice to the broker.
const ANY: i32 = -1;
/// Maximum topics of a request whose answer shows their settings. Settings are far larger than the request.
const SHOWN_MAX: usize = 1000;

/// Reason why a topic is not created.
type Refused = (ErrorCode, String);

pub(super) fn create_topics(context: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
    let request: CreateTopicsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Barrier(Box::pin(async move {
        run(&shared, call, request).await
    })))
}

async fn run(shared: &KafkaContext, call: Call, mut request: CreateTopicsRequest) -> ResponseResult {
    let mut named: HashMap<Str, usize> = HashMap::new();
    for topic in &request.topics {
        *named.entry(topic.name.clone()).or_default() += 1;
    }
    let mut seen = HashSet::new();
    request.topics.retain(|topic| seen.insert(topic.name.clone()));
    let mut prepared: Vec<Result<NewTopic, Refused>> = request
        .topics
        .iter()
        .map(|topic| match named.get(&topic.name) {
            Some(1) => prepare(topic),
            _ => Err((ErrorCode::InvalidRequest, "Duplicate topic name.".to_owned())),
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
                num_partitions: ANY,
                replication_factor: -1,
                configs: Some(Vec::new()),
                ..CreatableTopicResult::default()
            },
        });
    let response = CreateTopicsResponse {
        throttle_time_ms: 0,
        topics: topics.collect(),
    };
    call.answer::<CreateTopicsRequest>(&response)
}

/// Creates the topics and replaces failed ones in `prepared` by their errors. Returns the created topics in
/// order; empty if `validate_only`.
async fn create(
    shared: &KafkaContext,
    prepared: &mut [Result<NewTopic, Refused>],
    validate_only: bool,
) -> Result<Vec<Option<Arc<Topic>>>, Close> {
    let broker = &shared.broker;
    if validate_only {
        for slot in &mut *prepared {
            if let Ok(new) = slot
                && let Err(error) = broker.catalog().check_new(new)
            {
                *slot = Err(error::create(&new.name, &error)?);
            }
        }
        return Ok(Vec::new());
    }
    let new = prepared
        .iter()
        .filter_map(|prepared| prepared.as_ref().ok().cloned())
        .collect();
    let mut results = broker.catalog().create(new).await.into_iter();
    let mut created = Vec::new();
    for slot in prepared {
        if slot.is_err() {
            continue;
        }
        match results.next() {
            Some(Ok(topic)) => created.push(Some(topic)),
            Some(Err(error)) => {
                let name = slot.as_ref().map_or_else(|_| "".into(), |new| new.name.clone());
                *slot = Err(error::create(&name, &error)?);
            }
            None => return Err(Close::OutcomeUnknown),
        }
    }
    Ok(created)
}

fn prepare(asked: &CreatableTopic) -> Result<NewTopic, Refused> {
    TopicName::check(&asked.name).map_err(|why| (error::name(why), error::name_text(&asked.name, why)))?;
    let partitions = if asked.assignments.is_empty() {
        check_factor(asked.replication_factor)?;
        match asked.num_partitions {
            ANY => None,
            count => Some(positive(count)?),
        }
    } else {
        Some(assigned_partitions(asked)?)
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
fn assigned_partitions(asked: &CreatableTopic) -> Result<u32, Refused> {
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
        check_assignment(&assignment.broker_ids).map_err(refused)?;
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

/// Checks a manual assignment: the one broker, once.
pub(super) fn check_assignment(brokers: &[i32]) -> Result<(), String> {
    match brokers {
        [] => Err("The manual partition assignment includes an empty replica list.".to_owned()),
        [BROKER_ID] => Ok(()),
        [BROKER_ID, BROKER_ID, ..] => Err(format!(
            "The manual partition assignment includes the broker {BROKER_ID} more than once."
        )),
        brokers => {
            let other = brokers
                .iter()
                .find(|broker| **broker != BROKER_ID)
                .unwrap_or(&BROKER_ID);
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
