//! `/v1/limits`: limits on the number of things of namespaces and users.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Limit, Limited};
use stafett_broker::Broker;
use stafett_http::api::{get, put};
use stafett_http::list::List;
use stafett_http::{Code, Problem, Query, Slot, body};
use stafett_messaging::exchanges::NamespaceError;
use stafett_model::Namespace;

use super::routes::{no_such_user, of_access};
use crate::refusals::{self, of_namespace};
use crate::{Routes, answer};

const LIST: List<Limits, Limits> = List {
    name: |limits| (limits.kind(), limits.name()),
    sorts: &[],
    shown: Limits::clone,
};

/// Limits of a namespace or a user.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Limits {
    /// One of `namespace` and `user` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Connections of AMQP. Absent or null for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connections_max: Option<u64>,
    /// Channels of all its connections; of users alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    channels_max: Option<u64>,
    /// Queues that AMQP or `/api` declares; of namespaces alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queues_max: Option<u64>,
}

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
                "Sets the limits of a namespace or a user; those that are absent are removed. More than a limit is \
                 refused from then on; what is there stays.",
            )
            .body::<Limits>()
            .answers::<Limits>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchNamespace, Code::NoSuchUser, Code::Overloaded]),
            set,
        )
}

impl Limits {
    fn of(owner: Limited, limits: &stafett_access::Limits) -> Self {
        let (namespace, user) = match owner {
            Limited::Namespace(name) => (Some(name.into()), None),
            Limited::User(name) => (None, Some(name.into())),
        };
        let number = |limit| limits.get(&limit).copied();
        Self {
            namespace,
            user,
            connections_max: number(Limit::Connections),
            channels_max: number(Limit::Channels),
            queues_max: number(Limit::Queues),
        }
    }

    fn kind(&self) -> &str {
        if self.user.is_some() { "user" } else { "namespace" }
    }

    fn name(&self) -> &str {
        self.user
            .as_deref()
            .or(self.namespace.as_deref())
            .unwrap_or_default()
    }

    fn numbers(&self) -> [(Limit, Option<u64>); 3] {
        [
            (Limit::Connections, self.connections_max),
            (Limit::Channels, self.channels_max),
            (Limit::Queues, self.queues_max),
        ]
    }

    /// Returns the owner, which is there, and has things of these kinds.
    fn owner(&self, broker: &Broker) -> Result<Limited, Problem> {
        match (&self.namespace, &self.user) {
            (Some(name), None) if self.channels_max.is_none() => {
                let namespace = Namespace::new(name);
                if !broker.messaging().exchanges().has_namespace(&namespace) {
                    return Err(of_namespace(&NamespaceError::NoSuchNamespace));
                }
                Ok(Limited::Namespace(namespace.as_str().into()))
            }
            (None, Some(name)) if self.queues_max.is_none() => {
                let user = broker.access().directory().user(name);
                user.map(|user| Limited::User(user.name.clone()))
                    .ok_or_else(|| no_such_user(name))
            }
            (Some(_), None) => Err(Problem::bad_request("channels_max is a limit of users")),
            (None, Some(_)) => Err(Problem::bad_request("queues_max is a limit of namespaces")),
            (Some(_), Some(_)) | (None, None) => Err(Problem::bad_request(
                "limits are of a namespace or of a user, one of them",
            )),
        }
    }
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let all = broker.get()?.access().directory().all_limits().into_iter();
    let all = all.map(|(owner, limits)| Limits::of(owner, &limits)).collect();
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn set(State(broker): State<Slot<Broker>>, request: Request) -> Result<Response, Problem> {
    let wanted: Limits = body::json(request).await?;
    let broker = broker.get()?;
    let owner = wanted.owner(&broker)?;
    let by = super::caller(&broker);
    let set = broker.access().set_limits(&by, owner, &wanted.numbers()).await;
    set.map_err(of_access)?;
    Ok(answer(StatusCode::OK, &wanted))
}
