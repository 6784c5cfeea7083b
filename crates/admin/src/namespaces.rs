//! Lists, creates and deletes namespaces.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use stafett_broker::Broker;
use stafett_http::{Problem, Query, Slot};
use stafett_model::Namespace;

use crate::answer;
use crate::refusals::of_namespace;

pub(crate) async fn list(
    State(broker): State<Slot<Broker>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    Query::strict(query.as_deref(), &[])?;
    let names = broker.get()?.messaging().exchanges().namespaces();
    let names: Vec<_> = names.iter().map(Namespace::as_str).collect();
    Ok(answer(StatusCode::OK, &json!({ "namespaces": names })))
}

pub(crate) async fn create(
    State(broker): State<Slot<Broker>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace"])?;
    let namespace = Namespace::new(query.wanted("namespace")?);
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
    Ok(answer(status, &json!({ "namespace": namespace.as_str() })))
}

pub(crate) async fn delete(
    State(broker): State<Slot<Broker>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::strict(query.as_deref(), &["namespace"])?;
    let namespace = Namespace::new(query.wanted("namespace")?);
    let deleting = broker.get()?.delete_namespace(&namespace);
    deleting.await.map_err(|error| of_namespace(&error))?;
    Ok(answer(
        StatusCode::OK,
        &json!({ "namespace": namespace.as_str() }),
    ))
}
