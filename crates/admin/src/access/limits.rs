//! `/v1/limits`: numbers of things of namespaces and users.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Limit, Limited, Limits};
use stafett_broker::Broker;
use stafett_http::api::{get, put};
use stafett_http::list::List;
use stafett_http::{Code, Problem, Query, Slot, body};
use stafett_model::Namespace;

use super::routes::of_access;
use crate::caller::OnlyIfAbsent;
use crate::refusals;
use crate::{Routes, answer};

const LIST: List<(Limited, Limits), LimitsOf> = List {
    name: |(of, _)| match of {
        Limited::Namespace(name) => ("namespace", name),
        Limited::User(name) => ("user", name),
    },
    sorts: &[],
    shown: |(of, limits)| shown(of, limits),
};

/// Limits of a namespace or a user; absent or null for none, 0 permits nothing.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Limits")]
#[serde(deny_unknown_fields, default)]
struct LimitsOf {
    /// One of `namespace` and `user` is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Open connections of RabbitMQ's clients; of a user, those of Kafka's clients with a login and
    /// those over WebSocket too.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<u64>,
    /// Open channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<u64>,
    /// Queues of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    queues: Option<u64>,
    /// Stored topics of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    topics: Option<u64>,
    /// Messages in the queues of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
    /// Bytes of the messages in the queues of a namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

const OF_NAMESPACES: &[Limit] = &[
    Limit::Connections,
    Limit::Channels,
    Limit::Queues,
    Limit::Topics,
    Limit::Messages,
    Limit::Bytes,
];
const OF_USERS: &[Limit] = &[Limit::Connections, Limit::Channels];

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/limits", "Lists limits of namespaces and users.")
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            put(
                "/v1/limits",
                "Sets the limits of a namespace or a user; absent ones are removed. What is there beyond them stays.",
            )
            .body::<LimitsOf>()
            .answers::<LimitsOf>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchNamespace, Code::NoSuchUser, Code::Overloaded]),
            set,
        )
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let mut all = broker.get()?.access().directory().all_limits();
    all.sort();
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn set(State(broker): State<Slot<Broker>>, request: Request) -> Result<Response, Problem> {
    let only_if_absent = OnlyIfAbsent::is_in(&request);
    let wanted: LimitsOf = body::json(request).await?;
    let broker = broker.get()?;
    let (of, known) = match (&wanted.namespace, &wanted.user) {
        (Some(name), None) => {
            let (exchanges, namespace) = (broker.messaging().exchanges(), Namespace::new(name));
            if !exchanges.has_namespace(&namespace) && !exchanges.is_elsewhere(&namespace) {
                let why = format!("there is no namespace {name:?}");
                return Err(Problem::new(Code::NoSuchNamespace, why));
            }
            (Limited::Namespace(name.as_str().into()), OF_NAMESPACES)
        }
        (None, Some(name)) => {
            if broker.access().directory().user(name).is_none() {
                return Err(Problem::new(
                    Code::NoSuchUser,
                    format!("there is no user {name:?}"),
                ));
            }
            (Limited::User(name.as_str().into()), OF_USERS)
        }
        _ => return Err(Problem::bad_request("limits are of a namespace or of a user")),
    };
    let unknown = Limit::ALL.iter().find(|limit| {
        let is_given = wanted.number(**limit).is_some();
        is_given && !known.contains(limit)
    });
    if let Some(limit) = unknown {
        let field = format!("{limit:?}").to_lowercase();
        let why = format!("{field} is no limit of that: namespaces and users have others");
        return Err(Problem::bad_request(why).with("field", field));
    }
    let limits: Vec<_> = known
        .iter()
        .map(|limit| (*limit, wanted.number(*limit)))
        .collect();
    let by = super::caller(&broker);
    if only_if_absent {
        let made = broker.make_limits(&by, of, &limits).await.map_err(of_access)?;
        OnlyIfAbsent::check(made)?;
    } else {
        broker.set_limits(&by, of, &limits).await.map_err(of_access)?;
    }
    Ok(answer(StatusCode::OK, &wanted))
}

impl LimitsOf {
    fn number(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::Connections => self.connections,
            Limit::Channels => self.channels,
            Limit::Queues => self.queues,
            Limit::Topics => self.topics,
            Limit::Messages => self.messages,
            Limit::Bytes => self.bytes,
        }
    }
}

fn shown(of: &Limited, limits: &Limits) -> LimitsOf {
    let number = |limit| limits.get(&limit).copied();
    let (namespace, user) = match of {
        Limited::Namespace(name) => (Some(name.to_string()), None),
        Limited::User(name) => (None, Some(name.to_string())),
    };
    LimitsOf {
        namespace,
        user,
        connections: number(Limit::Connections),
        channels: number(Limit::Channels),
        queues: number(Limit::Queues),
        topics: number(Limit::Topics),
        messages: number(Limit::Messages),
        bytes: number(Limit::Bytes),
    }
}
