//! The registry as text, in the format that Prometheus scrapes.

use std::sync::{Arc, PoisonError, RwLock};

use axum::extract;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Content type of the `OpenMetrics` specification (1.0, "Overall Structure").
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`.
pub(crate) async fn get(extract::State(registry): extract::State<Arc<RwLock<Registry>>>) -> Response {
    let mut text = String::with_capacity(16 * 1024);
    let encoded = encode(
        &mut text,
        &registry.read().unwrap_or_else(PoisonError::into_inner),
    );
    match encoded {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "a metric cannot be written as text");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
