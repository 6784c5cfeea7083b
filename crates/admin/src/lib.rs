//! Queues and namespaces over HTTP: list, browse, purge, move, create and delete.
//!
//! Responses are JSON, and so are refusals (`application/problem+json`). This crate must not know how queues
//! are stored, nor any message protocol.
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
//! - `queues`, `messages`, `namespaces`: the handlers
//! - `refusals`: their kinds of refusals

mod messages;
mod namespaces;
mod queues;
mod refusals;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::Value;
use stafett_broker::Broker;
use stafett_http::{Policy, Query, Slot};
use stafett_model::Namespace;

/// Returns the routes. They answer with 503 while there is no broker.
pub fn router(broker: Slot<Broker>) -> Router {
    let namespaces = get(namespaces::list)
        .put(namespaces::create)
        .delete(namespaces::delete);
    let routes = Router::new()
        .route("/namespaces", namespaces)
        .route("/queues", get(queues::list).delete(queues::delete))
        .route("/queues/messages", get(messages::peek))
        .route("/queues/purge", post(queues::purge))
        .route("/queues/move", post(queues::move_messages))
        .with_state(broker);
    Policy::Programs.guard(routes)
}

/// Returns the namespace that a request names, or the default one.
fn namespace(query: &Query) -> Namespace {
    query
        .get("namespace")
        .map_or_else(Namespace::default, Namespace::new)
}

fn answer(status: StatusCode, value: &Value) -> Response {
    answer_text(status, value.to_string())
}

fn answer_text(status: StatusCode, mut json: String) -> Response {
    json.push('\n');
    stafett_http::answer::json(status, json)
}
