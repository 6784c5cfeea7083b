//! `DescribeConfigs`: the settings of topics and of the broker, with where each comes from.

use std::sync::Arc;

use stafett_broker::{Broker, Topic};
use stafett_kafka_wire::messages::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use stafett_kafka_wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::TopicName;

use crate::answers::{Answered, Kind, Reply};
use crate::configs::{self, Config};
use crate::error;
use crate::kafka::{Shared, large_answer};
use crate::session::{Call, Close, Context};
use crate::settings::BROKER_ID;

/// Kafka's numbers for where a value comes from: `DYNAMIC_TOPIC_CONFIG` and `DEFAULT_CONFIG`.
pub(super) const TOPIC_SOURCE: i8 = 1;
pub(super) const DEFAULT_SOURCE: i8 = 5;
/// Kafka's numbers for what has settings.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// More are not described in one answer: they take a hundred times as much as their names.
const RESOURCES_MAX: usize = 2000;
/// From so many on, an answer is a large one.
const LARGE_RESOURCES: usize = 100;

/// Why something is not described.
type Refused = (ErrorCode, String);

/// What of a setting is wanted.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    synonyms: bool,
    documentation: bool,
    version: i16,
}

pub(super) fn describe_configs(context: &Context, call: Call, body: Decoder) -> Result<Kind, Close> {
    let request: DescribeConfigsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(Kind::Task(Box::pin(async move {
        let is_large = request.resources.len() >= LARGE_RESOURCES;
        let turn = if is_large {
            large_answer(&shared).await
        } else {
            None
        };
        Ok(Reply {
            turn,
            ..run(&shared, call, &request)?
        })
    })))
}

fn run(shared: &Shared, call: Call, request: &DescribeConfigsRequest) -> Answered {
    let wanted = Wanted {
        synonyms: request.include_synonyms,
        documentation: request.include_documentation,
        version: call.version,
    };
    let results = request.resources.iter().enumerate().map(|(index, resource)| {
        let described = if index < RESOURCES_MAX {
            describe(shared, resource, wanted)
        } else {
            let message = format!("at most {RESOURCES_MAX} resources are described at once");
            Err((ErrorCode::InvalidRequest, message))
        };
        let (code, message, configs) = match described {
            Ok(configs) => (ErrorCode::None, None, configs),
            Err((code, message)) => (code, Some(message.into()), Vec::new()),
        };
        DescribeConfigsResult {
            error_code: shared.metrics.error(call.api, code),
            error_message: message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            configs,
        }
    });
    let response = DescribeConfigsResponse {
        throttle_time_ms: 0,
        results: results.collect(),
    };
    call.answer::<DescribeConfigsRequest>(&response)
}

fn describe(
    shared: &Shared,
    resource: &DescribeConfigsResource,
    wanted: Wanted,
) -> Result<Vec<DescribeConfigsResourceResult>, Refused> {
    let name = &*resource.resource_name;
    let is_asked = |key: &str| {
        resource
            .configuration_keys
            .as_ref()
            .is_none_or(|keys| keys.iter().any(|asked| **asked == *key))
    };
    match resource.resource_type {
        TOPIC => {
            TopicName::check(name).map_err(|error| (error::name(error), error.to_string()))?;
            let unknown = || {
                (
                    ErrorCode::UnknownTopicOrPartition,
                    "there is no such topic".to_owned(),
                )
            };
            let topic = shared.broker.topics().named(name).ok_or_else(unknown)?;
            let asked = configs::ALL.iter().filter(|config| is_asked(config.name));
            Ok(asked
                .map(|config| of_topic(&shared.broker, &topic, config, wanted))
                .collect())
        }
        // The empty name asks for what holds for all brokers beyond the defaults: nothing.
        BROKER if name.is_empty() => Ok(Vec::new()),
        BROKER if name == BROKER_ID.to_string() => Ok(of_broker(shared, is_asked, wanted)),
        BROKER => {
            let message = format!("there is no broker {name:?}: expected {BROKER_ID} or the empty name");
            Err((ErrorCode::InvalidRequest, message))
        }
        other => {
            let message =
                format!("resources of type {other} have no settings here: expected {TOPIC} or {BROKER}");
            Err((ErrorCode::InvalidRequest, message))
        }
    }
}

fn of_topic(
    broker: &Broker,
    topic: &Topic,
    config: &'static Config,
    wanted: Wanted,
) -> DescribeConfigsResourceResult {
    let own = configs::value_in(&topic.settings, config.name);
    let default = configs::default_value(broker, config);
    let mut synonyms = Vec::new();
    if wanted.synonyms {
        if let Some(own) = &own {
            synonyms.push(synonym(config.name, own, TOPIC_SOURCE));
        }
        if !config.broker_name.is_empty() {
            synonyms.push(synonym(config.broker_name, &default, DEFAULT_SOURCE));
        }
    }
    let config_source = if own.is_some() {
        TOPIC_SOURCE
    } else {
        DEFAULT_SOURCE
    };
    let value = own.unwrap_or(default);
    DescribeConfigsResourceResult {
        config_source,
        synonyms,
        ..plain(config.name, value, config.kind, config.about, wanted)
    }
}

/// The broker's settings: its own that Kafka has a name for, and the defaults of topics. None can be changed here.
fn of_broker(
    shared: &Shared,
    is_asked: impl Fn(&str) -> bool,
    wanted: Wanted,
) -> Vec<DescribeConfigsResourceResult> {
    let own = configs::BROKER.iter();
    let own = own.map(|config| (config.name, config.kind, config.about, (config.value)(shared)));
    let defaults = configs::ALL
        .iter()
        .filter(|config| !config.broker_name.is_empty());
    let defaults = defaults.map(|config| {
        (
            config.broker_name,
            config.kind,
            config.about,
            configs::default_value(&shared.broker, config),
        )
    });
    let asked = own.chain(defaults).filter(|(name, ..)| is_asked(name));
    asked
        .map(|(name, kind, about, value)| {
            let synonyms = if wanted.synonyms {
                vec![synonym(name, &value, DEFAULT_SOURCE)]
            } else {
                Vec::new()
            };
            let read_only = true;
            DescribeConfigsResourceResult {
                read_only,
                synonyms,
                ..plain(name, value, kind, about, wanted)
            }
        })
        .collect()
}

fn plain(
    name: &'static str,
    value: String,
    kind: configs::Kind,
    about: &'static str,
    wanted: Wanted,
) -> DescribeConfigsResourceResult {
    let is_typed = wanted.version >= 3;
    DescribeConfigsResourceResult {
        name: name.into(),
        value: Some(value.into()),
        read_only: false,
        config_source: DEFAULT_SOURCE,
        is_sensitive: false,
        synonyms: Vec::new(),
        config_type: if is_typed { kind.code() } else { 0 },
        documentation: (is_typed && wanted.documentation).then(|| about.into()),
    }
}

fn synonym(name: &'static str, value: &str, source: i8) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym {
        name: name.into(),
        value: Some(Str::copy_from(value)),
        source,
    }
}
