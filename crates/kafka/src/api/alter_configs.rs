//! `IncrementalAlterConfigs`: changes single settings. `AlterConfigs`: replaces all settings of a resource.
//!
//! Each resource is changed as a whole or not at all.

use std::sync::Arc;

use stafett_broker::Scope;
use stafett_kafka_wire::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, alter_configs as whole, incremental_alter_configs as incremental,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_model::TopicName;
use stafett_topics::{AlterError, TopicSettings, is_internal};

use super::repeated::repeated;
use crate::call::{Call, Close, ResponseResult};
use crate::configs::{self, Area, BadConfig, ConfigChange, Edit};
use crate::context::RequestContext;
use crate::error;
use crate::events::record;
use crate::operation::{AlterTarget, Operation, Step, then};
use crate::resources::Resource;
use crate::response_queue::{HandlerResult, PendingResponse};

/// Reason why settings are not changed.
type Refused = (ErrorCode, String);

/// Requested change of one resource.
struct AlterRequest {
    kind: i8,
    name: Str,
    edits: Result<Vec<Edit>, Refused>,
}

/// Result for one resource.
struct AlterResult {
    kind: i8,
    name: Str,
    code: i16,
    message: Option<Str>,
}

pub(super) fn alter_configs(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: AlterConfigsRequest = call.read(body)?;
    Ok(PendingResponse::barrier(move |context| {
        let requests = request.resources.into_iter().map(|resource| {
            let set = resource.configs.into_iter().map(|config| Edit {
                name: config.name.as_str().into(),
                operation: configs::Operation::Set,
                value: config.value.as_deref().map(Into::into),
            });
            AlterRequest {
                kind: resource.resource_type,
                name: resource.resource_name,
                edits: once_each(set.collect()),
            }
        });
        let respond = |call: Call, results: Vec<AlterResult>| {
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
        };
        run(
            context,
            call,
            requests.collect(),
            (true, request.validate_only),
            respond,
        )
    }))
}

pub(super) fn incremental_alter_configs(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: IncrementalAlterConfigsRequest = call.read(body)?;
    Ok(PendingResponse::barrier(move |context| {
        let requests = request.resources.into_iter().map(|resource| {
            let edits = resource.configs.into_iter().map(|config| {
                Ok(Edit {
                    name: config.name.as_str().into(),
                    operation: configs::Operation::of(config.config_operation)?,
                    value: config.value.as_deref().map(Into::into),
                })
            });
            let edits: Result<Vec<Edit>, BadConfig> = edits.collect();
            let edits = edits.map_err(|bad| (error::config(&bad), bad.to_string()));
            AlterRequest {
                kind: resource.resource_type,
                name: resource.resource_name,
                edits: edits.and_then(once_each),
            }
        });
        let respond = |call: Call, results: Vec<AlterResult>| {
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
        };
        run(
            context,
            call,
            requests.collect(),
            (false, request.validate_only),
            respond,
        )
    }))
}

fn once_each(edits: Vec<Edit>) -> Result<Vec<Edit>, Refused> {
    if repeated(edits.iter().map(|edit| &edit.name)).is_empty() {
        Ok(edits)
    } else {
        let message = "Error due to duplicate config keys".to_owned();
        Err((ErrorCode::InvalidRequest, message))
    }
}

/// Changes the resources in order. `respond` builds the answer.
fn run(
    context: &RequestContext,
    call: Call,
    requests: Vec<AlterRequest>,
    (is_whole, validate_only): (bool, bool),
    respond: fn(Call, Vec<AlterResult>) -> ResponseResult,
) -> Result<Step, Close> {
    let repeated = repeated(requests.iter().map(|one| (one.kind, one.name.clone())));
    let mut changes = Vec::new();
    let prepared = requests.into_iter().map(|request| {
        let AlterRequest { kind, name, edits } = request;
        let prepared = if repeated.contains(&(kind, name.clone())) {
            let message = "Each resource must appear at most once.".to_owned();
            Err((ErrorCode::InvalidRequest, message))
        } else {
            Resource::of(&context.shared.settings, kind, &name).and_then(|resource| {
                let edits = edits?;
                Ok((target(context, resource)?, edits))
            })
        };
        let area = prepared.map(|((target, before), edits)| {
            let area = target.area();
            let change = ConfigChange {
                area,
                is_whole,
                edits,
            };
            changes.push((target, before, change));
            area
        });
        (kind, name, area)
    });
    let prepared: Vec<(i8, Str, Result<Area, Refused>)> = prepared.collect();
    let finish = move |context: &RequestContext, altered: Vec<Result<(), AlterError<BadConfig>>>| {
        let mut altered = altered.into_iter();
        let mut results = Vec::with_capacity(prepared.len());
        for (kind, name, area) in prepared {
            let outcome = match area {
                Ok(area) => Ok((area, altered.next().ok_or(Close::OutcomeUnknown)?)),
                Err(refused) => Err(refused),
            };
            let refused = match outcome {
                Ok((area, Ok(()))) => done(context, area, &name, validate_only),
                Ok((area, Err(why))) => Some(refused(&why, area)?),
                Err(refused) => Some(refused),
            };
            let (code, message) = match refused {
                None => (ErrorCode::None, None),
                Some((code, message)) => (code, Some(message.into())),
            };
            results.push(AlterResult {
                kind,
                name,
                code: context.shared.metrics.error(call.api, code),
                message,
            });
        }
        respond(call, results)
    };
    if validate_only {
        let check = |(_, before, change): (_, Arc<TopicSettings>, ConfigChange)| {
            change.apply(&before).map(drop).map_err(AlterError::Unwanted)
        };
        return finish(context, changes.into_iter().map(check).collect()).map(Step::Respond);
    }
    let changes = changes.into_iter().map(|(target, _, change)| (target, change));
    Ok(Step::Await(Operation::Alter(changes.collect(), then(finish))))
}

/// Notes a change of a topic's settings that is stored.
fn done(context: &RequestContext, area: Area, name: &str, validate_only: bool) -> Option<Refused> {
    if area == Area::Topic && !validate_only {
        record(context.caller(), "topic.changed", name);
    }
    None
}

fn refused(why: &AlterError<BadConfig>, area: Area) -> Result<Refused, Close> {
    let (code, message) = error::alter(why)?;
    // Kafka reports an invalid value of a broker setting as an invalid request.
    let is_broken = area == Area::Broker && code == ErrorCode::InvalidConfig;
    let code = if is_broken {
        ErrorCode::InvalidRequest
    } else {
        code
    };
    Ok((code, message))
}

/// Finds the target of a change, and its settings.
fn target(
    context: &RequestContext,
    resource: Resource<'_>,
) -> Result<(AlterTarget, Arc<TopicSettings>), Refused> {
    let broker = &context.shared.broker;
    let scope = match resource {
        Resource::Topic(name) => {
            if is_internal(name) {
                let message = "The settings of the broker's own topic cannot be changed.";
                return Err((ErrorCode::InvalidTopicException, message.to_owned()));
            }
            let topic = broker.topics().named(name).ok_or_else(|| unknown_topic(name))?;
            return Ok((AlterTarget::Topic(topic.id), Arc::clone(&topic.settings)));
        }
        Resource::Broker => Scope::Broker,
        Resource::AllBrokers => Scope::Cluster,
        Resource::Group(name) => Scope::Group(name.into()),
        Resource::Logger => {
            let message = "the level of the log is a setting of the process";
            return Err((ErrorCode::InvalidRequest, message.to_owned()));
        }
        Resource::ClientMetrics(_) => {
            let message = "no metrics of clients are collected here";
            return Err((ErrorCode::InvalidRequest, message.to_owned()));
        }
    };
    let before = broker.scoped_settings(&scope);
    Ok((AlterTarget::Scope(scope), before))
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
