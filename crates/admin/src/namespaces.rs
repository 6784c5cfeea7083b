//! Lists, shows, creates and deletes namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_broker::Broker;
use stafett_delivery::MessageCounts;
use stafett_http::api::{delete, get, put};
use stafett_http::body::{self, Object};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_messaging::exchanges::NamespaceError;
use stafett_model::Namespace;
use stafett_net::Connections;

use crate::access;
use crate::caller::OnlyIfAbsent;
use crate::operations::{self, Operations, Plan, Progress};
use crate::queues::{Counters, Rates};
use crate::refusals::{self, of_namespace};
use crate::{Routes, answer};

const LIST: List<NamespaceStatus, NamespaceStatus> = List {
    name: |row| ("", &row.name),
    sorts: &[
        ("queues", |row| row.queues as u64),
        ("ready", |row| row.ready),
        ("in_flight", |row| row.in_flight),
        ("connections", |row| row.connections),
    ],
    shown: NamespaceStatus::clone,
};

/// A namespace, with its numbers.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(rename = "Namespace")]
struct NamespaceStatus {
    name: String,
    /// Empty if it has none.
    description: String,
    queues: usize,
    exchanges: usize,
    /// Messages that wait in its queues.
    ready: u64,
    /// Messages of its queues that consumers have and did not settle yet.
    in_flight: u64,
    /// Connections of clients that work in it.
    connections: u64,
    /// Sums over its queues; a queue that is deleted takes its counts with it.
    counters: Counters,
    rates: Rates,
    #[serde(skip)]
    counts: MessageCounts,
}

/// Settings of a namespace.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(rename = "NewNamespace")]
#[serde(deny_unknown_fields, default)]
struct Wanted {
    /// Absent or null: it stays as it is.
    description: Option<String>,
}

/// Contents of a namespace that is deleted, or would be.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NamespaceDeletion")]
struct Deletion {
    name: String,
    queues: usize,
    exchanges: usize,
    bindings: usize,
    /// Messages in its queues.
    messages: u64,
}

/// Returns the routes of namespaces.
pub(crate) fn routes(routes: Routes) -> Routes {
    const PATH: &str = "/v1/namespaces/{namespace}";
    routes
        .route(
            get("/v1/namespaces", "Lists namespaces.")
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            get(PATH, "Shows a namespace.")
                .answers::<NamespaceStatus>(200)
                .refuses(&[Code::NotServing, Code::NoSuchNamespace]),
            show,
        )
        .route(
            put(PATH, "Creates a namespace, or changes its description.")
                .event("namespace.made")
                .body::<Wanted>()
                .answers::<NamespaceStatus>(200)
                .answers::<NamespaceStatus>(201)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::Closing]),
            create,
        )
        .route(
            operations::begins::<Deletion>(delete(
                PATH,
                "Deletes a namespace with everything in it. Connections of clients in it are closed.",
            ))
            .event("namespace.deleted")
            .query(&[Parameter::flag("dry_run", "Only counts; nothing is deleted.")])
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchNamespace, Code::IsDefault, Code::Closing]),
            delete_namespace,
        )
}

async fn list(
    State(broker): State<Slot<Broker>>,
    State(connections): State<Arc<Connections>>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let all = broker.messaging().exchanges().namespaces();
    let all = counted(&broker, &connections, &all);
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn show(
    State(broker): State<Slot<Broker>>,
    State(connections): State<Arc<Connections>>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let namespace = Namespace::new(&name);
    let broker = broker.get()?;
    if !broker.messaging().exchanges().has_namespace(&namespace) {
        return Err(of_namespace(&NamespaceError::NoSuchNamespace));
    }
    Ok(answer(StatusCode::OK, &shown(&broker, &connections, namespace)))
}

async fn create(
    State(broker): State<Slot<Broker>>,
    State(connections): State<Arc<Connections>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let only_if_absent = OnlyIfAbsent::is_in(&request);
    let Object(Wanted { description }) = body::json(request).await?;
    let namespace = Namespace::new(&name);
    let broker = broker.get()?;
    let exchanges = broker.messaging().exchanges();
    let created = exchanges.create_namespace(&namespace);
    let (is_new, stored) = created.map_err(|error| of_namespace(&error))?;
    OnlyIfAbsent::check(is_new || !only_if_absent)?;
    stored.await.map_err(|error| of_namespace(&error.into()))?;
    if let Some(description) = description {
        let described = exchanges.describe_namespace(&namespace, &description);
        let described = described.map_err(|error| of_namespace(&error))?;
        described.await.map_err(|error| of_namespace(&error.into()))?;
    }
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(answer(status, &shown(&broker, &connections, namespace)))
}

async fn delete_namespace(
    State(broker): State<Slot<Broker>>,
    State(operations): State<Operations>,
    Path(name): Path<String>,
    query: Query,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let namespace = Namespace::new(&name);
    if !broker.messaging().exchanges().has_namespace(&namespace) {
        return Err(of_namespace(&NamespaceError::NoSuchNamespace));
    }
    let contents = contents(&broker, &namespace);
    if query.flag("dry_run")? {
        return Ok(answer(StatusCode::OK, &contents));
    }
    let plan = Plan {
        what: "delete_namespace",
        on: BTreeMap::from([("namespace", name)]),
        unit: "namespaces",
        stops: false,
    };
    let by = access::caller(&broker);
    let work = async move |_: Arc<Progress>| {
        let deleting = broker.delete_namespace(&by, &namespace);
        deleting.await.map_err(|error| of_namespace(&error))?;
        Ok(contents)
    };
    operations.run(plan, &query, work).await
}

fn contents(broker: &Broker, namespace: &Namespace) -> Deletion {
    let exchanges = broker.messaging().exchanges();
    let mut queues = broker.messaging().queues().all();
    queues.retain(|queue| queue.namespace == *namespace);
    let counts = queues.iter().map(|queue| queue.counts());
    Deletion {
        name: namespace.to_string(),
        queues: queues.len(),
        exchanges: exchanges.list(namespace).len(),
        bindings: exchanges.bindings(namespace).len(),
        messages: counts.map(|counts| counts.ready + counts.in_flight as u64).sum(),
    }
}

fn shown(broker: &Broker, connections: &Connections, namespace: Namespace) -> NamespaceStatus {
    counted(broker, connections, &[namespace])
        .pop()
        .unwrap_or_default()
}

/// Returns namespaces with their numbers, in one pass over all queues and connections.
fn counted(broker: &Broker, connections: &Connections, namespaces: &[Namespace]) -> Vec<NamespaceStatus> {
    let exchanges = broker.messaging().exchanges();
    let row = |namespace: &Namespace| NamespaceStatus {
        name: namespace.to_string(),
        description: exchanges.description(namespace).to_string(),
        exchanges: exchanges.list(namespace).len(),
        ..NamespaceStatus::default()
    };
    let mut rows: BTreeMap<&Namespace, NamespaceStatus> = namespaces
        .iter()
        .map(|namespace| (namespace, row(namespace)))
        .collect();
    for queue in broker.messaging().queues().all() {
        let Some(row) = rows.get_mut(&queue.namespace) else {
            continue;
        };
        row.queues += 1;
        // Most queues have no messages, and are not looked at.
        if queue.may_have_messages() {
            let counts = queue.counts();
            row.ready += counts.ready;
            row.in_flight += counts.in_flight as u64;
        }
        let counts = queue.message_counts();
        // Most queues were never used.
        if counts != MessageCounts::default() {
            row.counts += counts;
            row.rates.add(&Rates::of(&queue));
        }
    }
    for entry in connections.all() {
        let namespace = entry.client().and_then(|client| client.words().namespace);
        if let Some(row) = namespace.and_then(|name| rows.get_mut(&Namespace::new(&name))) {
            row.connections += 1;
        }
    }
    let counted = rows.into_values().map(|row| NamespaceStatus {
        counters: Counters::of(row.counts),
        ..row
    });
    counted.collect()
}
