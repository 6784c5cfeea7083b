//! Answers in JSON, which nothing on the way may store.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Answers with a text that is JSON.
pub fn json(status: StatusCode, text: impl Into<Body>) -> Response {
    of_type("application/json", status, text.into())
}

pub(crate) fn of_type(content_type: &'static str, status: StatusCode, body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, body).into_response()
}
