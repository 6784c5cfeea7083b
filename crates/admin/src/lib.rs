//! Queues and namespaces over HTTP: listed, browsed, purged, moved, created and deleted.
//!
//! Answers are JSON; refusals are a line of text. It must not know how queues are kept, nor any message
//! protocol.
//!
//! | request | does |
//! |---|---|
//! | `GET /namespaces` | lists them |
//! | `PUT`, `DELETE /namespaces?namespace=N` | makes one; deletes one with all that is in it |
//! | `GET /queues[?namespace=N][&count=…][&after_namespace=…&after=…]` | lists queues with what waits in them, in pages |
//! | `DELETE /queues?queue=Q[&if_unused=true][&if_empty=true]` | deletes one |
//! | `GET /queues/messages?queue=Q[&count=…][&priority=…][&header.NAME=…]` | looks at messages that wait, without any effect |
//! | `POST /queues/purge?queue=Q` | settles all that wait |
//! | `POST /queues/move?queue=Q&to=R[&count=…]` | moves messages from the front to another queue |
//!
//! Of a queue, `namespace=N` may be said too; without it that is `/`.
//!
//! - [`front`]: where the broker is, once there is one
//! - `asker`: who may ask
//! - `query`: what a request says
//! - `queues`, `messages`, `namespaces`: the answers

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

/// Why a request is not answered, in the words of the answer.
type Refusal = (StatusCode, String);

/// The routes. What `front` has no broker for yet is answered with 503.
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
