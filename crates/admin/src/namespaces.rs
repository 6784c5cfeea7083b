//! Lists, shows, creates and deletes namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::{delete, get, put};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot};
use stafett_messaging::exchanges::NamespaceError;
use stafett_model::Namespace;

use crate::operations::{self, Operations, Plan, Progress};
use crate::refusals::{self, of_namespace};
use crate::{Routes, answer};

const LIST: List<Namespace, NamespaceStatus> = List {
    name: |namespace| ("", namespace.as_str()),
    sorts: &[],
    shown,
};

/// A namespace.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Namespace")]
struct NamespaceStatus {
    name: String,
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
            put(PATH, "Creates a namespace. One that is there stays as it is.")
                .event("namespace.made")
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

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let all = broker.get()?.messaging().exchanges().namespaces();
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn show(State(broker): State<Slot<Broker>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let namespace = Namespace::new(&name);
    if !broker.get()?.messaging().exchanges().has_namespace(&namespace) {
        return Err(of_namespace(&NamespaceError::NoSuchNamespace));
    }
    Ok(answer(StatusCode::OK, &shown(&namespace)))
}

async fn create(State(broker): State<Slot<Broker>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let namespace = Namespace::new(&name);
    let (is_new, stored) = broker
        .get()?
        .messaging()
        .exchanges()
        .create_namespace(&namespace)
        .map_err(|error| of_namespace(&error))?;
    stored.await.map_err(|error| of_namespace(&error.into()))?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(answer(status, &shown(&namespace)))
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
    let work = async move |_: Arc<Progress>| {
        let deleting = broker.delete_namespace(&namespace);
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

fn shown(namespace: &Namespace) -> NamespaceStatus {
    NamespaceStatus {
        name: namespace.to_string(),
    }
}
