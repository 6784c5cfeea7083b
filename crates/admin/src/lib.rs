//! The HTTP API `/v1`: queues, namespaces and transactions.
//!
//! Responses are JSON, and so are refusals (`application/problem+json`). This crate must not know how queues
//! are stored, nor any message protocol.
//!
//! | request | effect |
//! |---|---|
//! | `GET /v1` | product and version |
//! | `GET /v1/namespaces` | lists namespaces |
//! | `GET`, `PUT`, `DELETE /v1/namespaces/N` | shows, creates, deletes one, with everything in it |
//! | `GET /v1/queues` | lists queues and counts, of `namespace=N` or of all |
//! | `GET /v1/queues/Q` | shows one |
//! | `DELETE /v1/queues/Q[?if_unused=true][&if_empty=true]` | deletes it |
//! | `GET /v1/queues/Q/messages[?count=…][&priority=…][&header.NAME=…]` | shows ready messages |
//! | `POST /v1/queues/Q/purge` | settles all ready messages |
//! | `POST /v1/queues/Q/move` `{"to": {"queue": "R"}, "count": 7}` | moves messages from the front |
//! | `GET /v1/transactions` | lists transactional ids; of open transactions alone with `open=true` |
//! | `GET /v1/transactions/ID` | shows one, with the partitions that wait for its end |
//!
//! Names are path segments, percent-encoded. Requests about a queue may have `namespace=N`; the default is
//! `/`. Lists have pages, sorts and choices: [`stafett_http::list`].
//!
//! - `queues`, `messages`, `namespaces`, `transactions`: the handlers
//! - `refusals`: their kinds of refusals

mod messages;
mod namespaces;
mod queues;
mod refusals;
#[cfg(test)]
mod tests;
mod transactions;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use stafett_broker::Broker;
use stafett_http::{Policy, Problem, Query, Slot, list};
use stafett_model::Namespace;

/// Returns the routes. They answer with 503 while there is no broker.
pub fn router(broker: Slot<Broker>) -> Router {
    let namespace = get(namespaces::show)
        .put(namespaces::create)
        .delete(namespaces::delete);
    let routes = Router::new()
        .route("/v1", get(product))
        .route("/v1/namespaces", get(namespaces::list))
        .route("/v1/namespaces/{namespace}", namespace)
        .route("/v1/queues", get(queues::list))
        .route("/v1/queues/{queue}", get(queues::show).delete(queues::delete))
        .route("/v1/queues/{queue}/messages", get(messages::peek))
        .route("/v1/queues/{queue}/purge", post(queues::purge))
        .route("/v1/queues/{queue}/move", post(queues::move_messages))
        .route("/v1/transactions", get(transactions::list))
        .route("/v1/transactions/{id}", get(transactions::show))
        .with_state(broker);
    Policy::Programs.guard(routes)
}

async fn product() -> Response {
    answer(
        StatusCode::OK,
        &json!({ "product": "Stafett", "version": env!("CARGO_PKG_VERSION") }),
    )
}

/// Returns the namespace that a request names, or the default one.
fn namespace(query: &Query) -> Namespace {
    query
        .get("namespace")
        .map_or_else(Namespace::default, Namespace::new)
}

/// Reads the query of a list, which may have `more` keys.
fn list_query(text: Option<&str>, more: &[&str]) -> Result<Query, Problem> {
    let keys: Vec<&str> = more.iter().copied().chain(list::KEYS).collect();
    Query::strict(text, &keys)
}

fn answer(status: StatusCode, value: &Value) -> Response {
    answer_text(status, value.to_string())
}

fn answer_text(status: StatusCode, mut json: String) -> Response {
    json.push('\n');
    stafett_http::answer::json(status, json)
}
