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
//! - `routes`: `/v1/login`, `/v1/whoami`, users, tokens and rules

pub(crate) mod rights;
mod routes;
mod rules;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stafett_access::{Action, Caller, Resource};
use stafett_broker::Broker;
use stafett_broker::access::{AccessControl, LoginError, Proof};
use stafett_http::{Code, Problem, Slot, server};
use stafett_model::Namespace;

pub(crate) use routes::routes;

use crate::caller::CLIENT;

/// Name of the cookie of a session.
pub(crate) const COOKIE: &str = "stafett";

tokio::task_local! {
    static CALLER: Arc<Caller>;
}

/// Guards routes: each request is of a caller that may make it.
pub fn guard<S: Clone + Send + Sync + 'static>(broker: Slot<Broker>, routes: Router<S>) -> Router<S> {
    routes.route_layer(middleware::from_fn_with_state(broker, pass))
}

/// Returns the caller of the request that this task executes. Without a request, one without a name.
pub(crate) fn caller(broker: &Broker) -> Arc<Caller> {
    let known = CALLER.try_with(Arc::clone);
    known.unwrap_or_else(|_| broker.access().anonymous(Ipv4Addr::LOCALHOST.into()))
}

/// Executes a task for a caller.
pub(crate) async fn scope<F: Future>(caller: Arc<Caller>, task: F) -> F::Output {
    CALLER.scope(caller, task).await
}

/// Refuses what the caller of this task may not do to a thing that a body or a query names.
pub(crate) fn check(broker: &Broker, action: Action, resource: &Resource<'_>) -> Result<(), Problem> {
    let checked = caller(broker).check(action, resource);
    checked.map_err(|_| rights::forbidden(action, resource))
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

async fn pass(State(broker): State<Slot<Broker>>, mut request: Request, next: Next) -> Response {
    let peer = server::peer(&request).unwrap_or(Ipv4Addr::LOCALHOST.into());
    let Ok(broker) = broker.get() else {
        // Users are not known yet, and the broker answers little. What operators do from this machine is
        // possible.
        let is_open = rights::needs(request.method(), template(&request)) == Some(rights::Needs::Nothing);
        if is_open || peer.to_canonical().is_loopback() {
            return next.run(request).await;
        }
        return stafett_http::slot::closed().into_response();
    };
    let access = broker.access();
    // Requests of the process itself have their caller.
    let given = request.extensions().get::<Arc<Caller>>().cloned();
    let caller = match given {
        Some(caller) => caller,
        None if access.directory().user_count() == 0 || is_free(access, request.headers()) => {
            access.anonymous(peer)
        }
        None => {
            let headers = request.headers().clone();
            match log_in(access, &headers, peer).await {
                Ok(caller) => caller,
                Err(problem) => return unauthenticated(problem, &request),
            }
        }
    };
    if let Err(problem) = rights::check(&caller, &request) {
        return if problem.code == Code::Unauthenticated {
            unauthenticated(problem, &request)
        } else {
            problem.into_response()
        };
    }
    if let Err(problem) = check_client(&caller, request.headers()) {
        return problem.into_response();
    }
    request.extensions_mut().insert(Arc::clone(&caller));
    scope(caller, next.run(request)).await
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

/// Returns true if the caller needs no name, and gives none.
fn is_free(access: &AccessControl, headers: &HeaderMap) -> bool {
    access.is_open() && !has_credentials(headers)
}

fn has_credentials(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) || session(headers).is_some()
}

/// Returns the session in the cookie.
pub(crate) fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let mut pairs = cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// Returns the caller that the headers prove; one without a name if there are none.
async fn log_in(access: &AccessControl, headers: &HeaderMap, peer: IpAddr) -> Result<Arc<Caller>, Problem> {
    let login = match headers.get(header::AUTHORIZATION) {
        Some(given) => {
            let (scheme, rest) = split(given);
            if scheme.eq_ignore_ascii_case(b"bearer") {
                access.login(Proof::Token(rest), peer).await
            } else {
                let (user, password) = basic(scheme, rest)?;
                let password = password.as_bytes();
                access
                    .login(
                        Proof::Password {
                            user: &user,
                            password,
                        },
                        peer,
                    )
                    .await
            }
        }
        None => match session(headers) {
            // A cookie of an earlier session is no reason to refuse what needs no login.
            Some(session) => match access.login(Proof::Session(session), peer).await {
                Err(_) => Ok(access.anonymous(peer)),
                known => known,
            },
            None => Ok(access.anonymous(peer)),
        },
    };
    login.map_err(|why| refused(&why))
}

pub(crate) fn refused(why: &LoginError) -> Problem {
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
