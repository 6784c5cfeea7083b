//! Policies: settings for all queues of a namespace whose names match a pattern.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_broker::Broker;
use stafett_http::api::{delete, get, put};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body};
use stafett_messaging::queues::{
    DeliveryLimit, NewPolicy, Policy, PolicyError, PolicyKind, PolicyScope, PolicySettings,
};
use stafett_model::Namespace;
use stafett_net::EVENTS;

use crate::access;
use crate::caller::OnlyIfAbsent;
use crate::definition::{OverflowWord, check_expires};
use crate::queues::NAMESPACE;
use crate::refusals::{self, of_storage};
use crate::{Routes, answer, namespace};

const PATH: &str = "/v1/policies/{policy}";
const OPERATOR: Parameter = Parameter::flag(
    "operator",
    "Policies of operators, which bound those of others and what is changed at a queue.",
);

const LIST: List<(Namespace, Arc<Policy>), PolicyStatus> = List {
    name: |(namespace, policy)| (namespace.as_str(), &policy.new.name),
    sorts: &[],
    shown: |(namespace, policy)| shown(namespace, policy),
};

/// Policy that is to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "NewPolicy")]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Regular expression, without backtracking, that finds a place in the name of a queue; empty for all.
    pattern: String,
    /// Of several policies that match a queue, the one with the highest priority is in force.
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    queues: Scope,
    settings: Settings,
}

/// Kinds of queues.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "PolicyQueues")]
enum Scope {
    #[default]
    All,
    /// All but those with two priorities.
    Plain,
    /// Queues with two priorities, normal and high: those that RabbitMQ's clients call quorum queues.
    TwoPriorities,
    /// None: a policy with settings that queues of its kind do not have.
    None,
}

/// Settings of a policy; absent ones are as declared. They are left out of answers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "PolicySettings")]
struct Settings {
    /// Longest time of a message in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl_ms: Option<u64>,
    /// Time without use after which the queue is deleted.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overflow: Option<OverflowWord>,
    /// Exchange for dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_exchange: Option<String>,
    /// Routing key of dead letters; that of the message if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_key: Option<String>,
    /// Number of returns after which a message dies; -1 for no limit.
    #[schemars(range(min = -1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery_limit: Option<i64>,
}

/// A policy.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Policy")]
struct PolicyStatus {
    name: String,
    namespace: String,
    pattern: String,
    priority: i32,
    queues: Scope,
    settings: Settings,
}

/// Answer to a deletion.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PolicyDeletion")]
struct Deleted {
    name: String,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/policies", "Lists policies of queues.")
                .query(&[NAMESPACE, OPERATOR])
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            get(PATH, "Shows a policy.")
                .query(&[NAMESPACE, OPERATOR])
                .answers::<PolicyStatus>(200)
                .refuses(&[Code::NotServing, Code::NoSuchPolicy]),
            show,
        )
        .route(
            put(
                PATH,
                "Makes or replaces a policy. It is in force for all queues when this is answered: of two numbers the \
                 smaller one, otherwise what a queue was declared with.",
            )
            .event("policy.made")
            .query(&[NAMESPACE, OPERATOR])
            .body::<Wanted>()
            .answers::<PolicyStatus>(200)
            .answers::<PolicyStatus>(201)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchNamespace, Code::OutOfRange]),
            make,
        )
        .route(
            delete(PATH, "Deletes a policy. Queues have their declared settings again.")
                .event("policy.deleted")
                .query(&[NAMESPACE, OPERATOR])
                .answers::<Deleted>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchPolicy]),
            remove,
        )
}

fn kind(query: &Query) -> Result<PolicyKind, Problem> {
    Ok(if query.flag("operator")? {
        PolicyKind::Operator
    } else {
        PolicyKind::User
    })
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let mut all = broker.get()?.messaging().queues().policies(kind(&query)?);
    if let Some(name) = query.get("namespace") {
        all.retain(|(namespace, _)| namespace.as_str() == name);
    }
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn show(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let namespace = namespace(&query);
    let broker = broker.get()?;
    let policy = broker
        .messaging()
        .queues()
        .policy(kind(&query)?, &namespace, &name);
    let policy = policy.ok_or_else(|| refused(&PolicyError::NoSuchPolicy))?;
    Ok(answer(StatusCode::OK, &shown(&namespace, &policy)))
}

async fn make(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let only_if_absent = OnlyIfAbsent::is_in(&request);
    let wanted: Wanted = body::json(request).await?;
    let new = wanted.policy(&name)?;
    let (broker, namespace, kind) = (broker.get()?, namespace(&query), kind(&query)?);
    let queues = broker.messaging().queues();
    let put = if only_if_absent {
        queues.make_policy(kind, &namespace, new).await
    } else {
        queues.put_policy(kind, &namespace, new).await
    };
    let is_new = put.map_err(|error| refused(&error))?;
    OnlyIfAbsent::check(is_new || !only_if_absent)?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    if !is_new {
        // Routes record only a PUT that has made something.
        let by = access::caller(&broker);
        let (by, from) = (by.name().unwrap_or("operator"), by.peer());
        tracing::info!(target: EVENTS, kind = "policy.changed", name, %namespace, by, %from, via = "http", "changed");
    }
    // Another request may have deleted it meanwhile.
    let policy = queues.policy(kind, &namespace, &name);
    let policy = policy.ok_or_else(|| refused(&PolicyError::NoSuchPolicy))?;
    Ok(answer(status, &shown(&namespace, &policy)))
}

async fn remove(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let queues = broker.messaging().queues();
    let deleted = queues
        .delete_policy(kind(&query)?, &namespace(&query), &name)
        .await;
    deleted.map_err(|error| refused(&error))?;
    Ok(answer(StatusCode::OK, &Deleted { name }))
}

fn refused(error: &PolicyError) -> Problem {
    match error {
        PolicyError::NoSuchNamespace => Problem::new(Code::NoSuchNamespace, error),
        PolicyError::NoSuchPolicy => Problem::new(Code::NoSuchPolicy, error),
        PolicyError::NotStored(why) => of_storage(*why, *why),
        PolicyError::Bad(_) | PolicyError::TooMany => Problem::bad_request(error),
    }
}

impl Wanted {
    fn policy(self, name: &str) -> Result<NewPolicy, Problem> {
        check_expires(self.settings.expires_ms)?;
        let (plain, two_priorities) = match self.queues {
            Scope::All => (true, true),
            Scope::Plain => (true, false),
            Scope::TwoPriorities => (false, true),
            Scope::None => (false, false),
        };
        Ok(NewPolicy {
            name: name.into(),
            pattern: self.pattern.into(),
            priority: self.priority,
            scope: PolicyScope {
                plain,
                two_priorities,
            },
            settings: self.settings.into_core()?,
            definition: Bytes::new(),
        })
    }
}

impl Settings {
    fn into_core(self) -> Result<PolicySettings, Problem> {
        let limit = |limit: i64| match limit {
            -1 => Ok(DeliveryLimit::None),
            _ => u32::try_from(limit).map(DeliveryLimit::Returns).map_err(|_| {
                let why = format!("delivery_limit is -1 to {}, not {limit}", u32::MAX);
                let problem = Problem::new(Code::OutOfRange, why).with("field", "delivery_limit");
                problem.with("min", -1).with("max", u32::MAX)
            }),
        };
        Ok(PolicySettings {
            ttl_ms: self.ttl_ms,
            expires_ms: self.expires_ms,
            length_max: self.length_max,
            bytes_max: self.bytes_max,
            overflow: self.overflow.map(Into::into),
            dead_letter_exchange: self.dead_letter_exchange.map(Into::into),
            dead_letter_key: self.dead_letter_key.map(Into::into),
            delivery_limit: self.delivery_limit.map(limit).transpose()?,
        })
    }
}

impl From<&PolicySettings> for Settings {
    fn from(settings: &PolicySettings) -> Self {
        Self {
            ttl_ms: settings.ttl_ms,
            expires_ms: settings.expires_ms,
            length_max: settings.length_max,
            bytes_max: settings.bytes_max,
            overflow: settings.overflow.map(Into::into),
            dead_letter_exchange: settings.dead_letter_exchange.as_ref().map(ToString::to_string),
            dead_letter_key: settings.dead_letter_key.as_ref().map(ToString::to_string),
            delivery_limit: settings.delivery_limit.map(|limit| match limit {
                DeliveryLimit::None => -1,
                DeliveryLimit::Returns(count) => count.into(),
            }),
        }
    }
}

fn shown(namespace: &Namespace, policy: &Policy) -> PolicyStatus {
    let NewPolicy {
        name,
        pattern,
        priority,
        scope,
        settings,
        ..
    } = &policy.new;
    PolicyStatus {
        name: name.to_string(),
        namespace: namespace.to_string(),
        pattern: pattern.to_string(),
        priority: *priority,
        queues: match (scope.plain, scope.two_priorities) {
            (true, true) => Scope::All,
            (true, false) => Scope::Plain,
            (false, true) => Scope::TwoPriorities,
            (false, false) => Scope::None,
        },
        settings: settings.into(),
    }
}
