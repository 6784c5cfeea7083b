//! Lists, creates and deletes namespaces.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use stafett_messaging::exchanges::NamespaceError;
use stafett_model::Namespace;

use crate::front::AdminFront;
use crate::query::Query;
use crate::{Refusal, answer, refuse};

pub(crate) async fn list(
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    Query::read(query, &[])?;
    let names = front.broker()?.messaging().exchanges().namespaces();
    let names: Vec<_> = names.iter().map(Namespace::as_str).collect();
    Ok(answer(StatusCode::OK, &json!({ "namespaces": names })))
}

pub(crate) async fn create(
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query, &["namespace"])?;
    let namespace = Namespace::new(query.wanted("namespace")?);
    let (is_new, stored) = front
        .broker()?
        .messaging()
        .exchanges()
        .create_namespace(&namespace)
        .map_err(|error| refused(&error))?;
    stored.await.map_err(|error| refused(&error.into()))?;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(answer(status, &json!({ "namespace": namespace.as_str() })))
}

pub(crate) async fn delete(
    State(front): State<AdminFront>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let query = Query::read(query, &["namespace"])?;
    let namespace = Namespace::new(query.wanted("namespace")?);
    let deleting = front.broker()?.delete_namespace(&namespace);
    deleting.await.map_err(|error| refused(&error))?;
    Ok(answer(
        StatusCode::OK,
        &json!({ "namespace": namespace.as_str() }),
    ))
}

fn refused(error: &NamespaceError) -> Refusal {
    let status = match error {
        NamespaceError::NoSuchNamespace => StatusCode::NOT_FOUND,
        NamespaceError::IsDefault | NamespaceError::Closing => StatusCode::CONFLICT,
        NamespaceError::BadName => StatusCode::BAD_REQUEST,
        NamespaceError::NotStored(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refuse(status, error)
}
