//! Logins of requests, and the rights that routes need.
//!
//! ```text
//! request ─ who asks: Basic, Bearer, cookie ─ right of the route ([`rights`]) ─▶ handler ─ rights on names
//! in bodies
//! ```
//!
//! A request that may do everything passes at once. The caller is a value of the task, so that a handler that
//! finds names in a body asks for it where it resolves them ([`check`]).
//!
//! - `rights`: the right of every route
//! - `standing`: the end of waits and streams when their right is gone
//! - `may`: decisions about a user
//! - `pages`: pages of the broker that only show
//! - [`passed`]: the caller of a request that a node passes on to another one
//! - `permissions`: permissions of users in namespaces, and for routing keys
//! - `quotas`: `/v1/quotas`, and the quotas of requests; `limits`: `/v1/limits`
//! - `verifiers`: verifiers of passwords, in definitions
//! - `routes`: `/v1/login`, `/v1/whoami`, users, tokens and rules

mod limits;
mod may;
mod pages;
pub mod passed;
mod permissions;
mod quotas;
pub(crate) mod rights;
mod routes;
mod rules;
mod standing;
pub(crate) mod verifiers;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stafett_access::{Action, Caller, Limit, Limited, Resource, Tallied, TokenHash};
use stafett_broker::Broker;
use stafett_broker::{AccessControl, LoginError, Proof};
use stafett_http::{Code, Problem, Slot, Upgrade, server};
use stafett_model::Namespace;
use stafett_net::{Handover, TlsSession};

pub use pages::pages_only_show;
pub(crate) use pages::{OnlyShows, refusal as refusal_of_pages};
pub(crate) use quotas::SendQuota;
pub(crate) use routes::routes;
use standing::Standing;

use crate::caller::CLIENT;

/// Name of the exchange without a name, in rules.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// Name of the cookie of a session.
pub(crate) const COOKIE: &str = "stafett";

tokio::task_local! {
    static SCOPE: Scope;
}

/// The caller and the request of a task.
#[derive(Clone)]
struct Scope {
    caller: Arc<Caller>,
    /// `None` for a connection that goes on as another protocol.
    standing: Option<Arc<Standing>>,
}

/// Guards routes: each request is of a caller that may make it.
pub fn guard<S: Clone + Send + Sync + 'static>(broker: Slot<Broker>, routes: Router<S>) -> Router<S> {
    routes.route_layer(middleware::from_fn_with_state(broker, pass))
}

/// Returns the caller of the request that this task executes. Without a request, one without a name.
pub(crate) fn caller(broker: &Broker) -> Arc<Caller> {
    let known = SCOPE.try_with(|scope| Arc::clone(&scope.caller));
    known.unwrap_or_else(|_| broker.access().anonymous(Ipv4Addr::LOCALHOST.into()))
}

/// Returns the name of the user whose request this task executes. `None` for a caller without a name.
pub(crate) fn user() -> Option<String> {
    let named = SCOPE.try_with(|scope| scope.caller.name().map(str::to_owned));
    named.ok().flatten()
}

/// Executes a task for a caller.
pub(crate) async fn scope<F: Future>(caller: Arc<Caller>, task: F) -> F::Output {
    let standing = None;
    SCOPE.scope(Scope { caller, standing }, task).await
}

/// Returns true if this task's caller has a right.
pub(crate) fn may(broker: &Broker, action: Action, resource: &Resource<'_>) -> bool {
    caller(broker).may(action, resource)
}

/// Refuses an action of this task's caller on a thing that a body or a query names.
pub(crate) fn check(broker: &Broker, action: Action, resource: &Resource<'_>) -> Result<(), Problem> {
    rights::check_thing(broker, &caller(broker), action, resource)?;
    // Outside of requests nothing is noted.
    let _ = SCOPE.try_with(|scope| {
        scope
            .standing
            .as_ref()
            .map(|standing| standing.note(action, resource))
    });
    Ok(())
}

/// As [`check`], for a queue.
pub(crate) fn check_queue(
    broker: &Broker,
    action: Action,
    namespace: &Namespace,
    name: &str,
) -> Result<(), Problem> {
    check(broker, action, &Resource::queue(namespace.as_str(), name))
}

/// Refuses a definition that has the broker write messages to an exchange: dead letters of a queue, or
/// unroutable messages of another exchange. `key` is the routing key; `None` for the keys of messages.
pub(crate) fn check_forwarding(
    broker: &Broker,
    namespace: &Namespace,
    exchange: &str,
    key: Option<&str>,
) -> Result<(), Problem> {
    if !exchange.is_empty() {
        return check(
            broker,
            Action::Write,
            &Resource::exchange(namespace.as_str(), exchange),
        );
    }
    check(
        broker,
        Action::Write,
        &Resource::exchange(namespace.as_str(), DEFAULT_EXCHANGE),
    )?;
    let Some(key) = key else {
        // Any name of a topic is possible.
        return check(broker, Action::Write, &Resource::topic(""));
    };
    let is_queue = broker.messaging().queues().get(namespace, key).is_some();
    let topic = broker.topics().in_namespace(namespace, key).filter(|_| !is_queue);
    // A topic that was declared as a stream has the rights of queues.
    match topic.filter(|topic| topic.settings.declared.is_none()) {
        Some(topic) => check(broker, Action::Write, &Resource::topic(&topic.name)),
        None => Ok(()),
    }
}

/// Answer in place of one that came when another node may have taken over. `is_nothing`: nothing was changed.
fn late(is_nothing: bool) -> Problem {
    if is_nothing {
        return stafett_http::slot::closed();
    }
    let why = "another node may have taken over before the answer: it may be done or not";
    Problem::new(Code::OutcomeUnknown, why)
}

async fn pass(State(broker): State<Slot<Broker>>, mut request: Request, next: Next) -> Response {
    let peer = server::peer(&request).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let Ok(broker) = broker.get() else {
        // Users are not known yet, and the broker answers little. Operators on this machine
        // may do all.
        let is_open = rights::needs(request.method(), template(&request)) == Some(rights::Needs::Nothing);
        if is_open || peer.to_canonical().is_loopback() {
            return next.run(request).await;
        }
        return stafett_http::slot::closed().into_response();
    };
    let access = broker.access();
    let caller = match request.extensions().get::<Arc<Caller>>() {
        // A request of the process itself, or of another node.
        Some(caller) => Arc::clone(caller),
        // Apart, as requests that wait keep the memory of this future.
        None => match Box::pin(Proofs::of(&request).caller(access)).await {
            Ok(caller) => caller,
            Err(problem) => return unauthenticated(problem, &request),
        },
    };
    let token = bearer(request.headers()).map(TokenHash::of);
    // A token of an authorization server ends by itself.
    let token = token.filter(|_| caller.name().is_some() && caller.expires_ms().is_none());
    let standing = Arc::new(Standing::new(Arc::clone(&broker), caller, token, &request));
    let caller = Arc::clone(&standing.caller);
    if let Err(problem) = standing.check() {
        return if problem.code == Code::Unauthenticated {
            unauthenticated(problem, &request)
        } else {
            problem.into_response()
        };
    }
    if let Err(problem) = check_client(&caller, request.headers()) {
        return problem.into_response();
    }
    let charged = match quotas::charge(&broker, &caller, &mut request) {
        Ok(charged) => charged,
        Err(refused) => return *refused,
    };
    request.extensions_mut().insert(Arc::clone(&caller));
    let upgrade = match begin_upgrade(&broker, &caller, &mut request) {
        Ok(upgrade) => upgrade,
        Err(problem) => return problem.into_response(),
    };
    let scope = Scope {
        caller,
        standing: Some(Arc::clone(&standing)),
    };
    let is_safe = request.method().is_safe();
    let answered = SCOPE.scope(scope, next.run(request));
    let response = tokio::select! {
        biased;
        response = answered => response,
        problem = standing.revoked(), if standing.may_be_cut() => return problem.into_response(),
    };
    if !standing.may_answer() {
        return late(is_safe || !response.status().is_success()).into_response();
    }
    let response = quotas::charge_answer(&broker, &charged, response);
    if let Some(((outer, own), counted)) = upgrade
        && let Some(next) = own.take()
    {
        outer.give(standing::ended_by(standing, next, counted));
        return response;
    }
    standing::revocable(standing, response)
}

/// The slots for the next protocol, and the connection among those of its user.
type BegunUpgrade = ((Handover, Handover), Option<Tallied>);

/// Prepares a request that goes on as another protocol. `None` for others. Refuses it if the user has as many
/// connections as it may have.
fn begin_upgrade(
    broker: &Arc<Broker>,
    caller: &Arc<Caller>,
    request: &mut Request,
) -> Result<Option<BegunUpgrade>, Problem> {
    if !Upgrade::is_wanted(request.headers()) {
        return Ok(None);
    }
    let count = |user: &str| {
        let counted = broker
            .access()
            .count(Limited::User(user.into()), Limit::Connections);
        counted.map_err(|max| {
            let why = format!("the user {user:?} may have {max} connections, and has them");
            Problem::new(Code::LimitReached, why).with("limit", max)
        })
    };
    let counted = caller.name().map(count).transpose()?;
    let meter = quotas::ConnectionMeter::of(broker, caller, request);
    request.extensions_mut().insert(meter);
    Ok(standing::intercept(request).map(|slots| (slots, counted)))
}

fn template(request: &Request) -> &str {
    request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str)
}

/// Users act for the client of their own name only.
fn check_client(caller: &Caller, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(client) = headers.get(CLIENT).filter(|_| !caller.is_unrestricted()) else {
        return Ok(());
    };
    if caller.name().map(str::as_bytes) == Some(client.as_bytes()) {
        return Ok(());
    }
    let why = "Stafett-Client names the user itself, or is absent";
    Err(Problem::new(Code::Forbidden, why))
}

/// Returns the token of `Authorization: Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, rest) = split(headers.get(header::AUTHORIZATION)?);
    scheme.eq_ignore_ascii_case(b"bearer").then_some(rest)
}

/// Returns the session in the cookie.
pub(crate) fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let mut pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// Proofs of identity that a request has.
struct Proofs {
    peer: IpAddr,
    certificate: Option<Arc<TlsSession>>,
    headers: HeaderMap,
}

impl Proofs {
    fn of(request: &Request) -> Self {
        Self {
            peer: server::peer(request).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            certificate: server::tls(request).cloned(),
            headers: request.headers().clone(),
        }
    }

    async fn caller(self, access: &AccessControl) -> Result<Arc<Caller>, Problem> {
        if access.directory().user_count() == 0 {
            return Ok(access.anonymous(self.peer));
        }
        let user = self.certificate.as_deref().and_then(TlsSession::user);
        let before = access.before_login(user, self.peer);
        log_in(access, &self.headers, before).await
    }
}

/// Returns the caller that the headers prove; without any proof, the one of the connection.
async fn log_in(
    access: &AccessControl,
    headers: &HeaderMap,
    before: Arc<Caller>,
) -> Result<Arc<Caller>, Problem> {
    let peer = before.peer();
    let Some(given) = headers.get(header::AUTHORIZATION) else {
        let Some(session) = session(headers) else {
            return Ok(before);
        };
        // A cookie of an earlier session is no reason to refuse a request that needs no login.
        let known = access.login(Proof::Session(session), peer).await;
        return Ok(known.unwrap_or(before));
    };
    let login = if let Some(token) = bearer(headers) {
        access.login(Proof::Token(token), peer).await
    } else {
        let (scheme, rest) = split(given);
        let (user, password) = basic(scheme, rest)?;
        let (user, password) = (&*user, password.as_bytes());
        access.login(Proof::Password { user, password }, peer).await
    };
    login.map_err(refused)
}

pub(crate) fn refused(why: LoginError) -> Problem {
    match why {
        LoginError::Busy => Problem::new(Code::Overloaded, why),
        LoginError::Refused | LoginError::BadToken | LoginError::Scram(_) => {
            Problem::new(Code::Unauthenticated, why)
        }
    }
}

fn split(value: &HeaderValue) -> (&[u8], &[u8]) {
    let bytes = value.as_bytes();
    let space = bytes.iter().position(|byte| *byte == b' ').unwrap_or(bytes.len());
    let (scheme, rest) = bytes.split_at_checked(space).unwrap_or((bytes, &[]));
    (scheme, rest.trim_ascii())
}

fn basic(scheme: &[u8], encoded: &[u8]) -> Result<(String, String), Problem> {
    let decoded = STANDARD
        .decode(encoded)
        .ok()
        .filter(|_| scheme.eq_ignore_ascii_case(b"basic"));
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = text.as_deref().and_then(|text| text.split_once(':'));
    let (user, password) = pair.ok_or_else(|| {
        let why = "Authorization is Basic with user:password in base64, or Bearer with a token";
        Problem::new(Code::Unauthenticated, why)
    })?;
    Ok((user.to_owned(), password.to_owned()))
}

/// Refuses a request, and asks programs for credentials. Pages have a form of their own.
fn unauthenticated(problem: Problem, request: &Request) -> Response {
    let is_page = request.headers().contains_key("sec-fetch-site");
    let mut response = problem.into_response();
    if !is_page && *request.method() != Method::OPTIONS {
        let asks = HeaderValue::from_static("Basic realm=\"Stafett\", Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
    }
    response
}
