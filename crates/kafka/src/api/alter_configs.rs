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

use crate::call::Call;
use crate::close::Close;
use crate::configs::{self, Area, BadConfig, ConfigChange, Edit};
use crate::context::RequestContext;
use crate::error;
use crate::operation::{AlterTarget, OnDone, Operation, Step};
use crate::resources::Resource;
use crate::response::ResponseResult;
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
        AlterConfigs::new(call, requests.collect(), true, request.validate_only, respond).next(context)
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
        AlterConfigs::new(call, requests.collect(), false, request.validate_only, respond).next(context)
    }))
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

/// A request whose resources are changed one after the other.
struct AlterConfigs {
    call: Call,
    requests: std::vec::IntoIter<AlterRequest>,
    /// Number of requests for each resource.
    times: HashMap<(i8, Str), usize>,
    /// True if settings that are not named return to their defaults.
    is_whole: bool,
    validate_only: bool,
    /// Resource and area of the change in progress.
    current: (i8, Str, Area),
    results: Vec<AlterResult>,
    respond: fn(Call, Vec<AlterResult>) -> ResponseResult,
}

impl AlterConfigs {
    fn new(
        call: Call,
        requests: Vec<AlterRequest>,
        is_whole: bool,
        validate_only: bool,
        respond: fn(Call, Vec<AlterResult>) -> ResponseResult,
    ) -> Box<Self> {
        let mut times = HashMap::new();
        for one in &requests {
            *times.entry((one.kind, one.name.clone())).or_default() += 1;
        }
        Box::new(Self {
            call,
            results: Vec::with_capacity(requests.len()),
            requests: requests.into_iter(),
            times,
            is_whole,
            validate_only,
            current: (0, Str::default(), Area::Topic),
            respond,
        })
    }

    /// Changes the next resource.
    fn next(mut self: Box<Self>, context: &RequestContext) -> Result<Step, Close> {
        while let Some(AlterRequest { kind, name, edits }) = self.requests.next() {
            let is_once = self.times.get(&(kind, name.clone())) == Some(&1);
            let target = if is_once {
                target(context, kind, &name)
            } else {
                let message = "Each resource must appear at most once.";
                Err((ErrorCode::InvalidRequest, message.to_owned()))
            };
            let (target, before, edits) = match (target, edits) {
                (Ok((target, before)), Ok(edits)) => (target, before, edits),
                (Err(refused), _) | (_, Err(refused)) => {
                    self.push(context, (kind, name), Err(refused));
                    continue;
                }
            };
            let change = ConfigChange {
                area: target.area(),
                is_whole: self.is_whole,
                edits,
            };
            self.current = (kind, name, change.area);
            if !self.validate_only {
                return Ok(Step::Await(Operation::Alter(target, change, self)));
            }
            let checked = change.apply(&before).map(drop);
            self.on_altered(context, checked.map_err(AlterError::Unwanted))?;
        }
        (self.respond)(self.call, self.results).map(Step::Respond)
    }

    fn on_altered(
        &mut self,
        context: &RequestContext,
        altered: Result<(), AlterError<BadConfig>>,
    ) -> Result<(), Close> {
        let (kind, name, area) = self.current.clone();
        let altered = match altered {
            Ok(()) => Ok(()),
            Err(why) => {
                let (code, message) = error::alter(&why)?;
                // Kafka reports an invalid value of a broker setting as an invalid request.
                let is_broken = area == Area::Broker && code == ErrorCode::InvalidConfig;
                let code = if is_broken {
                    ErrorCode::InvalidRequest
                } else {
                    code
                };
                Err((code, message))
            }
        };
        self.push(context, (kind, name), altered);
        Ok(())
    }

    fn push(&mut self, context: &RequestContext, (kind, name): (i8, Str), altered: Result<(), Refused>) {
        let (code, message) = match altered {
            Ok(()) => (ErrorCode::None, None),
            Err((code, message)) => (code, Some(message.into())),
        };
        self.results.push(AlterResult {
            kind,
            name,
            code: context.shared.metrics.error(self.call.api, code),
            message,
        });
    }
}

impl OnDone<Result<(), AlterError<BadConfig>>> for AlterConfigs {
    fn on_done(
        mut self: Box<Self>,
        context: &RequestContext,
        altered: Result<(), AlterError<BadConfig>>,
    ) -> Result<Step, Close> {
        self.on_altered(context, altered)?;
        self.next(context)
    }
}

/// Finds the target of a change, and its settings.
fn target(
    context: &RequestContext,
    kind: i8,
    name: &str,
) -> Result<(AlterTarget, Arc<TopicSettings>), Refused> {
    let broker = &context.shared.broker;
    let scope = match Resource::of(kind, name)? {
        Resource::Topic(name) => {
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
