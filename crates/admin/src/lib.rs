//! The HTTP API `/v1`: messages, clients, queues, namespaces, transactions, the journal and the node.
//!
//! A file per resource has its routes with their descriptions, its handlers and its shapes. The document
//! that is made of them, `/v1/openapi.json` and `docs/openapi.json`, lists all routes. Answers are JSON, and
//! so are refusals (`application/problem+json`). This crate must not know how things are kept, nor any
//! message protocol.
//!
//! Names are path segments, percent-encoded. Requests about a queue may have `namespace=N`; the default is
//! `/`. Lists have pages, sorts and choices: [`stafett_http::list`].
//!
//! - `queues`, `queue_details`, `definition`, `queue_changes`, `exchanges`, `bindings`, `namespaces`,
//!   `transactions`, `journal`, [`node`], [`cluster`]: the resources
//! - `connections`, `consumers`: open connections, their channels, and consumers; `waits`: numbers of those
//!   that wait
//! - `send`, `receive`, `settle`, `clients`: messages, and registered clients with queues of their own
//! - `publish`: messages to exchanges
//! - `topics`: topics, their partitions and producers; `records`: records stored and read;
//!   `groups`: groups of consumers and their commits
//! - `live`, `live_publish`: live topics; `find`: names of all kinds
//! - `apps`: stateful consumers and the commands of their workers
//! - [`sinks`]: sinks that the broker keeps, and their runner's state
//! - `sender`: messages of one request, built and stored
//! - `message`: a message in answers, and its choice by a query; `content`: its content; `mask`: its hidden
//!   parts; `queue_events`: new messages and counts of a queue, as they come
//! - [`ws`]: the same over WebSocket, and watched lists
//! - `access`: logins, rights of routes, users, tokens and rules
//! - `caller`: the client for which a request is made
//! - [`audit`]: actions and refusals with their callers
//! - [`events`]: events and the log; `feed`: entries of these that are kept, and come
//! - `operations`: long work
//! - `overview`: totals and rates; `metrics`: the last hour, and metrics of single objects
//! - `definitions`: all that is defined, exported and imported
//! - `about`: product and version, the document, explanations of codes
//! - `refusals`: refusals of the broker's errors
//! - `time`: times in answers

mod about;
mod access;
mod apps;
pub mod audit;
mod bindings;
mod caller;
mod clients;
pub mod cluster;
mod connections;
mod consumers;
mod content;
mod definition;
mod definitions;
pub mod events;
mod exchanges;
mod feed;
mod find;
mod groups;
mod journal;
mod key;
mod live;
mod live_publish;
mod mask;
mod message;
mod metrics;
mod moves;
mod namespaces;
pub mod node;
mod node_memory;
mod operations;
pub mod overload;
mod overview;
mod policies;
mod publish;
mod queue_changes;
mod queue_details;
mod queue_events;
mod queues;
mod receive;
mod records;
mod refusals;
mod send;
mod sender;
mod settle;
pub mod sinks;
#[cfg(test)]
mod tests;
mod time;
mod topics;
mod transactions;
mod waits;
pub mod ws;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use stafett_broker::Broker;
use stafett_http::api::Endpoint;
use stafett_http::{Access, Api, Policy, Query, Slot, openapi};
use stafett_model::Namespace;
use stafett_net::Connections;

pub use access::{guard, pages_only_show, passed};
use events::Feeds;
pub use groups::PollingMembers;
pub use journal::JournalDesk;
pub use mask::Masks;
pub use node::Node;
pub use operations::Operations;
pub use overview::Overviews;
pub use records::Reads;
pub use ws::WebSockets;

/// The parts of the process behind the API. Clones share them.
#[derive(Debug, Clone)]
pub struct Backend {
    pub broker: Slot<Broker>,
    pub journal: JournalDesk,
    pub operations: Operations,
    pub reads: Reads,
    pub members: PollingMembers,
    pub connections: Arc<Connections>,
    pub overviews: Overviews,
    pub node: Arc<dyn Node>,
    pub sockets: WebSockets,
    pub feeds: Feeds,
    pub sinks: sinks::Desk,
    pub masks: Masks,
}

impl FromRef<Backend> for Masks {
    fn from_ref(backend: &Backend) -> Self {
        backend.masks.clone()
    }
}

impl FromRef<Backend> for sinks::Desk {
    fn from_ref(backend: &Backend) -> Self {
        Arc::clone(&backend.sinks)
    }
}

impl FromRef<Backend> for Slot<Broker> {
    fn from_ref(backend: &Backend) -> Self {
        backend.broker.clone()
    }
}

impl FromRef<Backend> for JournalDesk {
    fn from_ref(backend: &Backend) -> Self {
        backend.journal.clone()
    }
}

impl FromRef<Backend> for Arc<dyn Node> {
    fn from_ref(backend: &Backend) -> Self {
        Arc::clone(&backend.node)
    }
}

impl FromRef<Backend> for Operations {
    fn from_ref(backend: &Backend) -> Self {
        backend.operations.clone()
    }
}

impl FromRef<Backend> for Feeds {
    fn from_ref(backend: &Backend) -> Self {
        backend.feeds.clone()
    }
}

impl FromRef<Backend> for Arc<Connections> {
    fn from_ref(backend: &Backend) -> Self {
        Arc::clone(&backend.connections)
    }
}

impl FromRef<Backend> for Overviews {
    fn from_ref(backend: &Backend) -> Self {
        backend.overviews.clone()
    }
}

impl FromRef<Backend> for PollingMembers {
    fn from_ref(backend: &Backend) -> Self {
        backend.members.clone()
    }
}

impl FromRef<Backend> for Reads {
    fn from_ref(backend: &Backend) -> Self {
        backend.reads.clone()
    }
}

/// Routes with their descriptions.
type Routes = Api<Backend>;

const TITLE: &str = "Stafett";
const ABOUT: &str = "Names are segments of the path, percent-encoded: the queue a/b is /v1/queues/a%2Fb. Keys of a \
                     query that a route does not describe are refused. Refusals are application/problem+json; \
                     x-problems lists their codes, with the use of sending a request again.";

/// Returns the routes. They answer with 503 while there is no broker.
pub fn router(backend: Backend, access: Access) -> Router {
    router_across(backend, access, |routes| routes, |routes| routes)
}

/// As [`router`], in a cluster: both functions have routes treat requests that are about things of other
/// cells. `sockets_across` is given those that the broker asks itself for commands and watches of a
/// WebSocket, `definitions_across` those that it asks for exports and imports.
pub fn router_across(
    backend: Backend,
    access: Access,
    sockets_across: impl FnOnce(Router) -> Router,
    definitions_across: impl FnOnce(Router) -> Router,
) -> Router {
    let routes = routes();
    let states = routes.endpoints().iter().filter(|route| route.shows_state());
    let states = states.map(Endpoint::path).collect();
    let (broker, sockets, operations) = (
        backend.broker.clone(),
        backend.sockets.clone(),
        backend.operations.clone(),
    );
    let shown = guard(broker.clone(), routes.into_router().merge(metrics::router())).with_state(backend);
    let front = ws::Front::new(broker.clone(), sockets, sockets_across(shown.clone()), states);
    let sockets = guard(broker.clone(), ws::routes().into_router()).with_state(front);
    let parts = definitions::Parts {
        broker: broker.clone(),
        operations,
        router: definitions_across(shown.clone()),
    };
    let definitions = guard(broker, definitions::routes().into_router()).with_state(parts);
    Policy::Api(access).guard(shown.merge(sockets).merge(definitions))
}

/// Returns the `OpenAPI` document of all routes, as text.
#[must_use]
pub fn document() -> String {
    let document = openapi::document(TITLE, env!("CARGO_PKG_VERSION"), ABOUT, &endpoints());
    format!("{document:#}\n")
}

/// Returns the descriptions of all routes.
fn endpoints() -> Vec<Endpoint> {
    let (routes, sockets, definitions) = (routes(), ws::routes(), definitions::routes());
    [routes.endpoints(), sockets.endpoints(), definitions.endpoints()].concat()
}

fn routes() -> Routes {
    Routes::default()
        .with(about::routes)
        .with(namespaces::routes)
        .with(queues::routes)
        .with(definition::routes)
        .with(queue_changes::routes)
        .with(queue_events::routes)
        .with(policies::routes)
        .with(send::routes)
        .with(receive::routes)
        .with(settle::routes)
        .with(clients::routes)
        .with(exchanges::routes)
        .with(bindings::routes)
        .with(publish::routes)
        .with(topics::routes)
        .with(records::routes)
        .with(groups::routes)
        .with(apps::routes)
        .with(sinks::routes)
        .with(live::routes)
        .with(live_publish::routes)
        .with(find::routes)
        .with(connections::routes)
        .with(consumers::routes)
        .with(transactions::routes)
        .with(journal::routes)
        .with(operations::routes)
        .with(node::routes)
        .with(node_memory::routes)
        .with(cluster::routes)
        .with(events::routes)
        .with(audit::routes)
        .with(overview::routes)
        .with(access::routes)
        .with(metrics::routes)
}

/// Returns the namespace that a request names, or the default one.
fn namespace(query: &Query) -> Namespace {
    query
        .get("namespace")
        .map_or_else(Namespace::default, Namespace::new)
}

fn answer(status: StatusCode, value: &impl Serialize) -> Response {
    // Serializing the shapes of this crate does not fail.
    answer_text(status, serde_json::to_string(value).unwrap_or_default())
}

fn answer_text(status: StatusCode, mut json: String) -> Response {
    json.push('\n');
    stafett_http::answer::json(status, json)
}
