//! Queues and namespaces over HTTP: list, browse, purge, move, create and delete.
//!
//! Responses are JSON; refusals are a line of text. This crate must not know how queues are stored, nor any
//! message protocol.
//!
//! | request | effect |
//! |---|---|
//! | `GET /namespaces` | lists the namespaces |
//! | `PUT`, `DELETE /namespaces?namespace=N` | creates a namespace; deletes one with everything in it |
//! | `GET /queues[?namespace=N][&count=…][&after_namespace=…&after=…]` | lists queues and counts, in pages |
//! | `DELETE /queues?queue=Q[&if_unused=true][&if_empty=true]` | deletes a queue |
//! | `GET /queues/messages?queue=Q[&count=…][&priority=…][&header.NAME=…]` | shows ready messages |
//! | `POST /queues/purge?queue=Q` | settles all ready messages |
//! | `POST /queues/move?queue=Q&to=R[&count=…]` | moves messages from the front to another queue |
//!
//! Requests about a queue may also have `namespace=N`; the default is `/`.
//!
//! - [`front`]: handle to the broker
//! - `asker`: rejects requests from web pages
//! - `query`: parameters of a request
//! - `queues`, `messages`, `namespaces`: the handlers

mod asker;
pub mod front;
mod messages;
mod namespaces;
mod query;
mod queues;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::Value;

pub use front::AdminFront;

/// Status and text of a refused request.
type Refusal = (StatusCode, String);

/// Returns the routes. They answer with 503 while `front` has no broker.
pub fn router(front: AdminFront) -> Router {
    Router::new()
        .route(
            "/namespaces",
            get(namespaces::list)
                .put(namespaces::create)
                .delete(namespaces::delete),
        )
        .route("/queues", get(queues::list).delete(queues::delete))
        .route("/queues/messages", get(messages::peek))
        .route("/queues/purge", post(queues::purge))
        .route("/queues/move", post(queues::move_messages))
        .layer(middleware::from_fn(asker::check))
        .with_state(front)
}

fn refuse(status: StatusCode, why: impl std::fmt::Display) -> Refusal {
    (status, format!("{why}\n"))
}

fn answer(status: StatusCode, value: &Value) -> Response {
    answer_text(status, value.to_string())
}

fn answer_text(status: StatusCode, mut json: String) -> Response {
    json.push('\n');
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, json).into_response()
}
