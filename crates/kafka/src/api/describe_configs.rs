//! `DescribeConfigs`: settings of topics, the broker and groups, each with its source.

use stafett_broker::Scope;
use stafett_kafka_wire::messages::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use stafett_kafka_wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::TopicName;
use stafett_topics::{Topic, TopicSettings};

use crate::call::{Call, ResponseResult};
use crate::configs::{self, BrokerView, Config};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::write_sized;
use crate::resources::Resource;
use crate::response_queue::{HandlerResult, PendingResponse};

/// Kafka's numbers for the source of a value (`DescribeConfigsResponse.ConfigSource`).
pub(super) const TOPIC_SOURCE: i8 = 1;
const BROKER_SOURCE: i8 = 2;
const CLUSTER_SOURCE: i8 = 3;
const STATIC_SOURCE: i8 = 4;
pub(super) const DEFAULT_SOURCE: i8 = 5;
const LOGGER_SOURCE: i8 = 6;
const GROUP_SOURCE: i8 = 8;
/// Maximum resources per answer: a description is a hundred times as large as the resource's name.
const RESOURCES_MAX: usize = 2000;
/// Resources from which on an answer counts as large.
const LARGE_RESOURCES: usize = 100;

/// Reason why a resource is not described.
type Refused = (ErrorCode, String);

/// Requested parts of each setting.
#[derive(Debug, Clone, Copy)]
struct DescribeOptions {
    synonyms: bool,
    documentation: bool,
    version: i16,
}

/// Name, value and source.
pub(super) type Sourced = (&'static str, String, i8);

pub(super) fn describe_configs(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeConfigsRequest = call.read(body)?;
    Ok(PendingResponse::in_turn(move |context| {
        let is_large = request.resources.len() >= LARGE_RESOURCES;
        write_sized(context, is_large, move |context| {
            run(&context.shared, call, &request)
        })
    }))
}

fn run(shared: &KafkaContext, call: Call, request: &DescribeConfigsRequest) -> ResponseResult {
    let wanted = DescribeOptions {
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
            Ok(configs) => (ErrorCode::None, String::new(), configs),
            Err((code, message)) => (code, message, Vec::new()),
        };
        DescribeConfigsResult {
            error_code: shared.metrics.error(call.api, code),
            error_message: Some(message.into()),
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
    shared: &KafkaContext,
    resource: &DescribeConfigsResource,
    wanted: DescribeOptions,
) -> Result<Vec<DescribeConfigsResourceResult>, Refused> {
    let is_asked = |key: &str| {
        resource
            .configuration_keys
            .as_ref()
            .is_none_or(|keys| keys.is_empty() || keys.iter().any(|asked| **asked == *key))
    };
    let all = match Resource::of(&shared.settings, resource.resource_type, &resource.resource_name)? {
        Resource::Topic(name) => {
            TopicName::check(name).map_err(|why| (error::name(why), error::name_text(name, why)))?;
            let topic = shared.broker.topics().named(name);
            let topic = topic.ok_or_else(|| (ErrorCode::UnknownTopicOrPartition, String::new()))?;
            of_topic(shared, &topic, wanted)
        }
        Resource::AllBrokers => of_scope(&shared.broker.scoped_settings(&Scope::Cluster), wanted),
        Resource::Broker => of_broker(shared, wanted),
        Resource::Logger => of_logger(),
        Resource::ClientMetrics(_) => of_client_metrics(wanted),
        Resource::Group(name) => of_group(shared, name, wanted),
    };
    Ok(all.into_iter().filter(|config| is_asked(&config.name)).collect())
}

fn of_topic(
    shared: &KafkaContext,
    topic: &Topic,
    wanted: DescribeOptions,
) -> Vec<DescribeConfigsResourceResult> {
    let all = configs::ALL.iter();
    all.map(|config| {
        let own = configs::value_in(&topic.settings, config, config.name);
        let own = own.map(|value| (config.name, value, TOPIC_SOURCE));
        let mut sourced: Vec<Sourced> = own.into_iter().collect();
        let default = sources(shared, config);
        let is_named = !config.broker_name.is_empty();
        if is_named || sourced.is_empty() {
            sourced.extend(default);
        }
        let described = plain(config.name, config.kind, config.about, sourced, wanted);
        if is_named || described.config_source == TOPIC_SOURCE {
            return described;
        }
        DescribeConfigsResourceResult {
            synonyms: Vec::new(),
            ..described
        }
    })
    .collect()
}

/// Returns the values for topics that do not set it, nearest source first.
pub(super) fn sources(shared: &KafkaContext, config: &'static Config) -> Vec<Sourced> {
    let broker = &shared.broker;
    let name = if config.broker_name.is_empty() {
        config.name
    } else {
        config.broker_name
    };
    let mut found = Vec::new();
    for (scope, source) in [(Scope::Broker, BROKER_SOURCE), (Scope::Cluster, CLUSTER_SOURCE)] {
        let set = configs::value_in(&broker.scoped_settings(&scope), config, name);
        found.extend(set.map(|value| (name, value, source)));
    }
    let base = configs::base_value(&broker.base_settings(), config);
    if base != config.default {
        found.push((name, base, STATIC_SOURCE));
    }
    found.push((name, config.default.to_owned(), DEFAULT_SOURCE));
    found
}

/// Describes the broker: settings of its own that Kafka has names for, and the defaults of topics.
fn of_broker(shared: &KafkaContext, wanted: DescribeOptions) -> Vec<DescribeConfigsResourceResult> {
    let KafkaContext { broker, settings, .. } = shared;
    let view = BrokerView { broker, settings };
    let own = configs::BROKER.iter().map(|config| {
        let mut found: Vec<Sourced> = Vec::new();
        for (scope, source) in [(Scope::Broker, BROKER_SOURCE), (Scope::Cluster, CLUSTER_SOURCE)] {
            let settings = broker.scoped_settings(&scope);
            let set = settings.other.get(config.name);
            found.extend(set.map(|value| (config.name, value.to_string(), source)));
        }
        let source = if config.is_stated {
            STATIC_SOURCE
        } else {
            DEFAULT_SOURCE
        };
        found.push((config.name, (config.value)(&view), source));
        DescribeConfigsResourceResult {
            read_only: config.is_fixed,
            ..plain(config.name, config.kind, config.about, found, wanted)
        }
    });
    let defaults = configs::broker_configs().map(|config| {
        let found = sources(shared, config);
        plain(config.broker_name, config.kind, config.about, found, wanted)
    });
    own.chain(defaults).collect()
}

/// Describes only settings that were changed at run time for all brokers.
fn of_scope(settings: &TopicSettings, wanted: DescribeOptions) -> Vec<DescribeConfigsResourceResult> {
    let own = configs::BROKER.iter().filter_map(|config| {
        let value = settings.other.get(config.name)?.to_string();
        let found = vec![(config.name, value, CLUSTER_SOURCE)];
        Some(plain(config.name, config.kind, config.about, found, wanted))
    });
    let defaults = configs::broker_configs().filter_map(|config| {
        let value = configs::value_in(settings, config, config.broker_name)?;
        let found = vec![(config.broker_name, value, CLUSTER_SOURCE)];
        Some(plain(
            config.broker_name,
            config.kind,
            config.about,
            found,
            wanted,
        ))
    });
    own.chain(defaults).collect()
}

fn of_group(
    shared: &KafkaContext,
    name: &str,
    wanted: DescribeOptions,
) -> Vec<DescribeConfigsResourceResult> {
    let settings = shared.broker.scoped_settings(&Scope::Group(name.into()));
    let base = shared.broker.groups().settings();
    let all = configs::GROUP.iter();
    all.map(|config| {
        let set = settings.other.get(config.name);
        let mut found: Vec<Sourced> = set
            .map(|value| (config.name, value.to_string(), GROUP_SOURCE))
            .into_iter()
            .collect();
        let value = configs::group_base_value(base, config);
        if value != config.default {
            found.push((config.broker_name, value, STATIC_SOURCE));
        }
        found.push((config.broker_name, config.default.to_owned(), DEFAULT_SOURCE));
        plain(config.name, config.kind, config.about, found, wanted)
    })
    .collect()
}

/// Describes the only logger. Its level is a setting of the process.
fn of_logger() -> Vec<DescribeConfigsResourceResult> {
    let max = tracing::level_filters::LevelFilter::current();
    let level = match max.into_level() {
        Some(tracing::Level::ERROR) => "ERROR",
        Some(tracing::Level::WARN) => "WARN",
        Some(tracing::Level::INFO) => "INFO",
        Some(tracing::Level::DEBUG) => "DEBUG",
        Some(tracing::Level::TRACE) => "TRACE",
        None => "OFF",
    };
    vec![DescribeConfigsResourceResult {
        name: "root".into(),
        value: Some(level.into()),
        config_source: LOGGER_SOURCE,
        ..DescribeConfigsResourceResult::default()
    }]
}

/// Describes a subscription for client metrics. None are collected, so each is empty.
fn of_client_metrics(wanted: DescribeOptions) -> Vec<DescribeConfigsResourceResult> {
    let list = configs::ConfigType::SomeOf(&[]);
    let all = [
        ("interval.ms", configs::ConfigType::Long { min: 100 }, "300000"),
        ("match", list, ""),
        ("metrics", list, ""),
    ];
    all.into_iter()
        .map(|(name, kind, value)| {
            let about = "No metrics of clients are collected here.";
            let found = vec![(name, value.to_owned(), DEFAULT_SOURCE)];
            plain(
                name,
                kind,
                about,
                found,
                DescribeOptions {
                    synonyms: false,
                    ..wanted
                },
            )
        })
        .collect()
}

/// Describes a setting. Its value is the first of `found`.
fn plain(
    name: &'static str,
    kind: configs::ConfigType,
    about: &'static str,
    found: Vec<Sourced>,
    wanted: DescribeOptions,
) -> DescribeConfigsResourceResult {
    let is_typed = wanted.version >= 3;
    let first = found.first();
    let value = first.map(|(_, value, _)| Str::copy_from(value));
    let config_source = first.map_or(DEFAULT_SOURCE, |(_, _, source)| *source);
    let synonyms = if wanted.synonyms {
        found.into_iter().map(synonym).collect()
    } else {
        Vec::new()
    };
    DescribeConfigsResourceResult {
        name: name.into(),
        value,
        read_only: false,
        config_source,
        is_sensitive: false,
        synonyms,
        config_type: if is_typed { kind.code() } else { 0 },
        documentation: (is_typed && wanted.documentation).then(|| about.into()),
    }
}

fn synonym((name, value, source): Sourced) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym {
        name: name.into(),
        value: Some(value.into()),
        source,
    }
}
