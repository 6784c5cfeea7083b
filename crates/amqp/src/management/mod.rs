//! The subset of RabbitMQ's management HTTP API that its tools use: `/api`.
//!
//! ```text
//! request ─ guard ─ credentials ─ path ─▶ one file per resource ─┬─▶ reads: the broker
//!                                                                └─▶ changes: a Client, which is a session
//! ```
//!
//! - `call`: a request: path, query, body
//! - `client`: a session of one request, so that a change has the rules and error texts of AMQP
//! - `refusal`: refusals in RabbitMQ's form
//! - `list`: pages, order and columns
//! - `values`: JSON to tables and back; `statistics`: numbers that every tool expects
//! - `connections`: connections, channels and consumers
//! - `overview`, `health`, `queues`, `messages`, `exchanges`, `bindings`, `vhosts`: the resources; `users`:
//!   users and permissions; `rights`: the right that each path needs; `limits`: limits of virtual hosts and
//!   users; `policies`, `policy_definition`: policies of queues; `access`: empty lists
//! - `prometheus`: metrics under RabbitMQ's names
//! - `definitions`: all definitions as one file; `import`: the way back
//!
//! Source: the documentation that RabbitMQ 4.0 serves below `/api`, and its answers as they were recorded in
//! `tests/clients/odd/management.tsv`.

mod access;
mod bindings;
mod call;
mod client;
mod connections;
mod definitions;
mod exchanges;
mod health;
mod import;
mod limits;
mod list;
mod messages;
mod overview;
mod policies;
mod policy_definition;
mod prometheus;
mod queues;
mod refusal;
mod rights;
mod statistics;
mod topic_permissions;
mod users;
mod values;
mod vhosts;

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use stafett_access::Rate;
use stafett_broker::{ConnectionQuota, LoginError, Proof};
use stafett_http::{Access, Policy, Slot};
use stafett_net::Connections;
use tokio::task::spawn_blocking;

use crate::auth::{self, AuthError, Credentials, LoggedIn};
use crate::context::AmqpContext;
use call::Call;
pub use import::{PASSED_OVER, definitions_of, passed_over_header};
use refusal::{Answered, Refusal};

/// Version whose behaviour is offered: tools decide by it.
const VERSION: &str = "4.0.5";
/// Name of the node, and of the cluster of it alone.
const NODE: &str = "stafett@localhost";
/// The only user.
const USER: &str = "guest";

/// The process that serves the API.
pub trait ManagedNode: Debug + Send + Sync {
    fn facts(&self) -> NodeFacts;
}

/// State of the process. A number that the system does not tell is 0.
#[derive(Debug, Clone, Default)]
pub struct NodeFacts {
    /// True if clients are served.
    pub is_serving: bool,
    /// Time since the start, in ms.
    pub uptime_ms: i64,
    /// Protocols with their addresses.
    pub listeners: Vec<(&'static str, SocketAddr)>,
    /// Open connections of AMQP.
    pub connections: i64,
    /// Connections of AMQP accepted since the start.
    pub connections_accepted: u64,
    pub memory_bytes: u64,
    pub memory_bytes_max: u64,
    pub descriptors: u64,
    pub descriptors_max: u64,
    pub disk_free_bytes: u64,
    pub disk_free_bytes_min: u64,
    pub processors: usize,
    pub product_version: &'static str,
}

/// The API. It answers with 503 until it is opened.
#[derive(Debug, Clone)]
pub struct Management {
    pub(crate) slot: Slot<AmqpContext>,
    node: Arc<dyn ManagedNode>,
    connections: Arc<Connections>,
}

impl Management {
    /// `connections` are those of the process.
    pub fn new(node: Arc<dyn ManagedNode>, connections: Arc<Connections>) -> Self {
        Self {
            slot: Slot::default(),
            node,
            connections,
        }
    }

    /// Answers with 503 again.
    pub fn close(&self) {
        self.slot.close();
    }

    /// Returns the routes, guarded against pages of other sites.
    pub fn router(&self, access: Access) -> Router {
        let routes = Router::new()
            .route("/api", any(answer))
            .route("/api/", any(answer))
            .route("/api/{*path}", any(answer))
            .with_state(self.clone());
        Policy::Api(access).guard(routes)
    }
}

async fn answer(State(management): State<Management>, request: Request) -> Response {
    let answered = respond(&management, request).await;
    let mut response = answered.unwrap_or_else(Refusal::into_response);
    let vary = HeaderValue::from_static("accept, accept-encoding, origin");
    response.headers_mut().entry(header::VARY).or_insert(vary);
    response
}

async fn respond(management: &Management, request: Request) -> Answered {
    let context = management.slot.get().map_err(|_| Refusal::starting())?;
    // A reference to the request cannot be held while its user logs in.
    let given = request.headers().get(header::AUTHORIZATION).cloned();
    let peer = stafett_http::server::peer(&request).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let given = given.ok_or_else(Refusal::no_credentials)?;
    let user = log_in(&context, given.as_bytes(), peer).await?;
    let connections = Arc::clone(&management.connections);
    let call = Call::read(context, user, management.node.facts(), connections, request).await?;
    rights::check(&call)?;
    charge(&call)?;
    let call = Arc::new(call);
    connections::prepare(&call).await;
    let listing = Arc::clone(&call);
    // Lists of many objects take a while: no connection waits for them.
    let listed = spawn_blocking(move || lists(&listing)).await;
    match listed.map_err(|_| Refusal::starting())? {
        Some(answered) => answered,
        None => dispatch(&call).await,
    }
}

/// Answers with lists and sums of all objects. `None` for other requests.
fn lists(call: &Call) -> Option<Answered> {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    let answered = match path.as_slice() {
        ["overview"] => call.only_get(|| overview::overview(call)),
        ["vhosts"] => call.only_get(|| vhosts::list(call)),
        ["queues"] | ["queues", "detailed"] => call.only_get(|| queues::list(call, None)),
        ["queues", vhost] => call.only_get(|| queues::list(call, Some(vhost))),
        ["queues", vhost, name, "bindings"] => call.only_get(|| bindings::of_queue(call, vhost, name)),
        ["exchanges"] => call.only_get(|| exchanges::list(call, None)),
        ["exchanges", vhost] => call.only_get(|| exchanges::list(call, Some(vhost))),
        ["exchanges", vhost, name, "bindings", side] => {
            call.only_get(|| bindings::of_exchange(call, vhost, name, side))
        }
        ["bindings"] => call.only_get(|| bindings::list(call, None)),
        ["bindings", vhost] => call.only_get(|| bindings::list(call, Some(vhost))),
        ["connections"] => call.only_get(|| connections::list(call, None)),
        ["vhosts", vhost, "connections"] => call.only_get(|| connections::list(call, Some(vhost))),
        ["connections", name, "channels"] => call.only_get(|| connections::channels_of(call, name)),
        ["channels"] => call.only_get(|| connections::channels(call, None)),
        ["vhosts", vhost, "channels"] => call.only_get(|| connections::channels(call, Some(vhost))),
        ["channels", name] => call.only_get(|| connections::channel(call, name)),
        ["consumers"] => call.only_get(|| connections::consumers(call, None)),
        ["consumers", vhost] => call.only_get(|| connections::consumers(call, Some(vhost))),
        ["definitions" | "all-configuration"] if call.method == Method::GET => {
            definitions::export(call, None)
        }
        ["definitions", vhost] if call.method == Method::GET => definitions::export(call, Some(vhost)),
        _ => return None,
    };
    Some(answered)
}

/// Takes a request from its quota, and refuses it while there is a debt. Messages are taken by the session
/// that publishes or gets them.
fn charge(call: &Call) -> Result<(), Refusal> {
    let access = call.context.broker.access();
    if !access.directory().has_quotas() {
        return Ok(());
    }
    let mut quota = ConnectionQuota::default();
    let of = (call.user.caller.name(), "");
    let mut take = |rate, count| access.charge(&mut quota, of, rate, count);
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    let content = match path.as_slice() {
        ["exchanges", _, _, "publish"] => Some(Rate::Produced),
        ["queues", _, _, "get"] => Some(Rate::Fetched),
        _ => None,
    };
    let debts = [Some(Rate::Requests), content];
    let debt = debts.into_iter().flatten().map(|rate| take(rate, 0)).max();
    if let Some(debt) = debt.filter(|debt| !debt.is_zero()) {
        return Err(Refusal::over_quota(debt));
    }
    take(Rate::Requests, 1);
    Ok(())
}

/// Returns the user of a request.
async fn log_in(context: &AmqpContext, given: &[u8], peer: IpAddr) -> Result<LoggedIn, Refusal> {
    let access = context.broker.access();
    if let Some(token) = auth::bearer(given) {
        let login = access.login(Proof::Token(token), peer).await;
        let caller = login.map_err(|why| match why {
            LoginError::Busy => Refusal::busy(why),
            LoginError::Refused | LoginError::BadToken | LoginError::Scram(_) => Refusal::not_authorized(),
        })?;
        let user = caller.name().unwrap_or_default().into();
        return Ok(LoggedIn { user, caller });
    }
    match auth::basic(given) {
        auth::Basic::Malformed => Err(Refusal::malformed()),
        auth::Basic::OtherScheme => Err(Refusal::not_authorized()),
        auth::Basic::Credentials { user, password } => {
            let credentials = Credentials {
                user,
                password: password.into_bytes(),
            };
            let login = auth::log_in(access, &credentials, peer).await;
            login.map_err(|why| refused(&why))
        }
    }
}

fn refused(why: &AuthError) -> Refusal {
    match why {
        AuthError::Busy => Refusal::busy(LoginError::Busy),
        AuthError::UnknownMechanism
        | AuthError::Malformed
        | AuthError::WrongCredentials { .. }
        | AuthError::NotFromHere { .. } => Refusal::not_authorized(),
    }
}

async fn other(call: &Call, path: &[&str]) -> Answered {
    if let Some(answered) = limits::dispatch(call, path).await {
        return answered;
    }
    if let Some(answered) = policies::dispatch(call, path).await {
        return answered;
    }
    match topic_permissions::dispatch(call, path).await {
        Some(answered) => answered,
        None => access::dispatch(call, path),
    }
}

/// Answers all requests but lists.
async fn dispatch(call: &Call) -> Answered {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    match path.as_slice() {
        [] => call.only_get(|| Ok(overview::index())),
        ["whoami"] => call.only_get(|| overview::whoami(call)),
        ["version"] => call.only_get(|| Ok(overview::version())),
        ["cluster-name"] => call.only_get(|| overview::cluster_name(call)),
        ["extensions"] => call.only_get(|| overview::extensions(call)),
        ["auth"] => call.only_get(|| overview::auth(call)),
        ["nodes"] => call.only_get(|| overview::nodes(call)),
        ["nodes", name] => call.only_get(|| overview::node(call, name)),
        ["nodes", name, "memory"] => call.only_get(|| overview::memory(call, name)),
        ["connections", "username", user] => connections::of_user(call, user),
        ["connections", name] => connections::connection(call, name),
        ["vhosts", vhost] => vhosts::vhost(call, vhost).await,
        ["queues", vhost, name] => queues::queue(call, vhost, name).await,
        ["queues", vhost, name, "contents"] => queues::contents(call, vhost, name).await,
        ["queues", vhost, name, "get"] => messages::get(call, vhost, name).await,
        ["exchanges", vhost, name] => exchanges::exchange(call, vhost, name).await,
        ["exchanges", vhost, name, "publish"] => messages::publish(call, vhost, name).await,
        ["bindings", vhost, "e", source, kind, destination] => {
            bindings::between(call, vhost, source, kind, destination).await
        }
        ["bindings", vhost, "e", source, kind, destination, key] => {
            bindings::binding(call, [vhost, source, kind, destination, key]).await
        }
        ["health", "checks", check @ ..] => call.only_get(|| health::check(call, check)),
        ["healthchecks", "node"] | ["healthchecks", "node", _] => call.only_get(|| Ok(health::ok())),
        ["aliveness-test", vhost] => health::aliveness(call, vhost).await,
        ["definitions" | "all-configuration"] => definitions::import(call, None).await,
        ["definitions", vhost] => definitions::import(call, Some(vhost)).await,
        ["feature-flags" | "deprecated-features"] | ["deprecated-features", "used"] => {
            call.only_get(|| list::values(call, Vec::new()))
        }
        _ => match users::dispatch(call, path.as_slice()).await {
            Some(answered) => answered,
            None => other(call, path.as_slice()).await,
        },
    }
}
