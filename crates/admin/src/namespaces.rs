//! Lists, shows, creates and deletes namespaces.

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use stafett_broker::Broker;
use stafett_http::list::List;
use stafett_http::{Problem, Query, Slot};
use stafett_messaging::exchanges::NamespaceError;
use stafett_model::Namespace;

use crate::refusals::of_namespace;
use crate::{answer, list_query};

const LIST: List<Namespace> = List {
    name: |namespace| ("", namespace.as_str()),
    sorts: &[],
    shown,
};

pub(crate) async fn list(
    State(broker): State<Slot<Broker>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = list_query(query.as_deref(), &[])?;
    let all = broker.get()?.messaging().exchanges().namespaces();
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

pub(crate) async fn show(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    Query::strict(query.as_deref(), &[])?;
    let namespace = Namespace::new(&name);
    if !broker.get()?.messaging().exchanges().has_namespace(&namespace) {
        return Err(of_namespace(&NamespaceError::NoSuchNamespace));
    }
    Ok(answer(StatusCode::OK, &shown(&namespace)))
}

pub(crate) async fn create(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    Query::strict(query.as_deref(), &[])?;
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

pub(crate) async fn delete(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    Query::strict(query.as_deref(), &[])?;
    let namespace = Namespace::new(&name);
    let deleting = broker.get()?.delete_namespace(&namespace);
    deleting.await.map_err(|error| of_namespace(&error))?;
    Ok(answer(StatusCode::OK, &shown(&namespace)))
}

fn shown(namespace: &Namespace) -> Value {
    json!({ "name": namespace.as_str() })
}
