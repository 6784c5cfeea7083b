//! `IncrementalAlterConfigs`: changes single settings. `AlterConfigs`: replaces all settings of a resource.
//!
//! Each resource is changed as a whole or not at all.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stafett_broker::Scope;
use stafett_kafka_wire::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs as whole, incremental_alter_configs as incremental,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::TopicName;
use stafett_topics::{AlterError, TopicSettings};

use crate::configs::{self, Area, BadConfig, Edit, Operation};
use crate::context::KafkaContext;
use crate::error;
use crate::resources::Resource;
use crate::response_queue::PendingResponse;
use crate::session::{Call, Close, Context};

/// Reason why settings are not changed.
type Refused = (ErrorCode, String);

/// Requested change of one resource.
struct AlterRequest {
    kind: i8,
    name: Str,
    edits: Result<Vec<Edit>, Refused>,
    /// True if settings that are not named return to their defaults.
    is_whole: bool,
}

/// Result for one resource.
struct AlterResult {
    kind: i8,
    name: Str,
    code: i16,
    message: Option<Str>,
}

pub(super) fn alter_configs(context: &Context, call: Call, body: Decoder) -> Result<PendingResponse, Close> {
    let request: AlterConfigsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Barrier(Box::pin(async move {
        let wanted = request.resources.into_iter().map(|resource| {
            let set = resource.configs.into_iter().map(|config| Edit {
                name: config.name.as_str().into(),
                operation: Operation::Set,
                value: config.value.as_deref().map(Into::into),
            });
            AlterRequest {
                kind: resource.resource_type,
                name: resource.resource_name,
                edits: once_each(set.collect()),
                is_whole: true,
            }
        });
        let results = run(&shared, call, wanted.collect(), request.validate_only).await?;
        let responses = results
            .into_iter()
            .map(|result| whole::AlterConfigsResourceResponse {
                error_code: result.code,
                error_message: result.message,
                resource_type: result.kind,
                resource_name: result.name,
            });
        call.answer::<AlterConfigsRequest>(&AlterConfigsResponse {
            throttle_time_ms: 0,
            responses: responses.collect(),
        })
    })))
}

pub(super) fn incremental_alter_configs(
    context: &Context,
    call: Call,
    body: Decoder,
) -> Result<PendingResponse, Close> {
    let request: IncrementalAlterConfigsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Barrier(Box::pin(async move {
        let wanted = request.resources.into_iter().map(|resource| {
            let edits: Result<Vec<Edit>, BadConfig> = resource
                .configs
                .into_iter()
                .map(|config| {
                    Ok(Edit {
                        name: config.name.as_str().into(),
                        operation: Operation::of(config.config_operation)?,
                        value: config.value.as_deref().map(Into::into),
                    })
                })
                .collect();
            let edits = edits.map_err(|bad| (error::config(&bad), bad.to_string()));
            AlterRequest {
                kind: resource.resource_type,
                name: resource.resource_name,
                edits: edits.and_then(once_each),
                is_whole: false,
            }
        });
        let results = run(&shared, call, wanted.collect(), request.validate_only).await?;
        let responses = results
            .into_iter()
            .map(|result| incremental::AlterConfigsResourceResponse {
                error_code: result.code,
                error_message: result.message,
                resource_type: result.kind,
                resource_name: result.name,
            });
        call.answer::<IncrementalAlterConfigsRequest>(&IncrementalAlterConfigsResponse {
            throttle_time_ms: 0,
            responses: responses.collect(),
        })
    })))
}

fn once_each(edits: Vec<Edit>) -> Result<Vec<Edit>, Refused> {
    let mut names = HashSet::new();
    if edits.iter().all(|edit| names.insert(edit.name.clone())) {
        Ok(edits)
    } else {
        let message = "Error due to duplicate config keys".to_owned();
        Err((ErrorCode::InvalidRequest, message))
    }
}

async fn run(
    shared: &KafkaContext,
    call: Call,
    wanted: Vec<AlterRequest>,
    validate_only: bool,
) -> Result<Vec<AlterResult>, Close> {
    let mut times: HashMap<(i8, Str), usize> = HashMap::new();
    for one in &wanted {
        *times.entry((one.kind, one.name.clone())).or_default() += 1;
    }
    let mut results = Vec::with_capacity(wanted.len());
    for one in wanted {
        let AlterRequest { kind, name, .. } = &one;
        let (kind, name) = (*kind, name.clone());
        let changed = if times.get(&(kind, name.clone())) == Some(&1) {
            change(shared, one, validate_only).await?
        } else {
            Err((
                ErrorCode::InvalidRequest,
                "Each resource must appear at most once.".to_owned(),
            ))
        };
        let (code, message) = match changed {
            Ok(()) => (ErrorCode::None, None),
            Err((code, message)) => (code, Some(message.into())),
        };
        results.push(AlterResult {
            kind,
            name,
            code: shared.metrics.error(call.api, code),
            message,
        });
    }
    Ok(results)
}

async fn change(
    shared: &KafkaContext,
    wanted: AlterRequest,
    validate_only: bool,
) -> Result<Result<(), Refused>, Close> {
    let AlterRequest {
        kind,
        name,
        edits,
        is_whole,
    } = wanted;
    let (resource, edits) = match (Resource::of(kind, &name), edits) {
        (Ok(resource), Ok(edits)) => (resource, edits),
        (Err(refused), _) | (_, Err(refused)) => return Ok(Err(refused)),
    };
    let broker = &shared.broker;
    let edit = move |area| {
        move |before: &TopicSettings| {
            let nothing = TopicSettings::default();
            configs::edit(area, if is_whole { &nothing } else { before }, &edits)
        }
    };
    let scope = match resource {
        Resource::Topic(name) => {
            let Some(topic) = broker.topics().named(name) else {
                return Ok(Err(unknown_topic(name)));
            };
            let edit = edit(Area::Topic);
            let altered = if validate_only {
                edit(&topic.settings).map(drop).map_err(AlterError::Unwanted)
            } else {
                broker.catalog().alter(topic.id, edit).await.map(drop)
            };
            return refused(altered);
        }
        Resource::Broker => Scope::Broker,
        Resource::AllBrokers => Scope::Cluster,
        Resource::Group(name) => Scope::Group(name.into()),
        Resource::Logger => {
            let message = "the level of the log is a setting of the process";
            return Ok(Err((ErrorCode::InvalidRequest, message.to_owned())));
        }
        Resource::ClientMetrics(_) => {
            let message = "no metrics of clients are collected here";
            return Ok(Err((ErrorCode::InvalidRequest, message.to_owned())));
        }
    };
    let area = if matches!(scope, Scope::Group(_)) {
        Area::Group
    } else {
        Area::Broker
    };
    let edit = edit(area);
    let altered = if validate_only {
        let checked = edit(&broker.scoped_settings(&scope));
        checked.map(drop).map_err(AlterError::Unwanted)
    } else {
        broker.alter_scope(scope, edit).await
    };
    let changed = refused(altered)?;
    // Kafka reports an invalid value of a broker setting as an invalid request.
    Ok(changed.map_err(|(code, message)| {
        let is_broken = area == Area::Broker && code == ErrorCode::InvalidConfig;
        let code = if is_broken {
            ErrorCode::InvalidRequest
        } else {
            code
        };
        (code, message)
    }))
}

fn refused(altered: Result<(), AlterError<BadConfig>>) -> Result<Result<(), Refused>, Close> {
    match altered {
        Ok(()) => Ok(Ok(())),
        Err(why) => Ok(Err(error::alter(&why)?)),
    }
}

fn unknown_topic(name: &str) -> Refused {
    if name.is_empty() {
        let message = "Default topic resources are not allowed.".to_owned();
        return (ErrorCode::InvalidRequest, message);
    }
    if let Err(why) = TopicName::check(name) {
        return (error::name(why), error::name_text(name, why));
    }
    let message = format!("The topic '{name}' does not exist.");
    (ErrorCode::UnknownTopicOrPartition, message)
}
