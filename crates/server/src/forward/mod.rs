//! Requests about things of another cell: they go to the owner of that cell, and its answers come back.
//!
//! | request | cell |
//! |---|---|
//! | `/v1/…?namespace=NAME`, `/v1/namespaces/NAME` | that of the namespace |
//! | `/api/KIND/VHOST/…`, for things in virtual hosts | that of the virtual host |
//! | `GET …?cell=NUMBER` | the given one |
//! | `/v1/groups/NAME`, its offsets, resets and members, of groups that are spread | that of the group |
//! | lists of things in namespaces without a namespace (`gather`) | all |
//! | `POST /api/definitions`, which are split (`import`) | all |
//! | all others | the first one |
//!
//! A WebSocket goes on at the owner of its namespace's cell (`tunnel`).
//!
//! Users, rights, quotas and limits are those of the first cell, where the login of a request is checked. The
//! owner is told of the caller (`stafett_admin::passed`), and decides by its copy of them.

mod gather;
mod import;
mod tunnel;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use stafett_admin::passed;
use stafett_broker::Broker;
use stafett_http::query::decoded;
use stafett_http::{Code, Problem, Slot, Upgrade, server, slot};
use stafett_net::ToCell;
use tokio_util::task::TaskTracker;

use crate::cluster::{Member, home};

/// Kinds of things in virtual hosts, below `/api`.
const IN_HOSTS: [&str; 9] = [
    "aliveness-test",
    "bindings",
    "consumers",
    "definitions",
    "exchanges",
    "operator-policies",
    "policies",
    "queues",
    "vhosts",
];

/// The way from the owner of the first cell to others.
#[derive(Debug, Clone)]
struct Forward {
    member: Arc<Member>,
    broker: Slot<Broker>,
    tasks: TaskTracker,
}

/// Has requests about things of other cells go to their owners.
pub(crate) fn layered(
    router: Router,
    member: Option<&Arc<Member>>,
    broker: &Slot<Broker>,
    tasks: &TaskTracker,
) -> Router {
    let Some(member) = member else { return router };
    let forward = Forward {
        member: Arc::clone(member),
        broker: broker.clone(),
        tasks: tasks.clone(),
    };
    router.layer(from_fn_with_state(forward, serve))
}

async fn serve(State(forward): State<Forward>, mut request: Request, next: Next) -> Response {
    let cells = forward.member.cell_count();
    if let Some(problem) = forward.waiting_commits(&request) {
        return problem.into_response();
    }
    let cell = match (cells, forward.cell_of_group(request.method(), request.uri())) {
        (1, _) => Ok(0),
        (_, Some(cell)) => Ok(cell),
        (_, None) => place(request.method(), request.uri(), cells),
    };
    let answered = match cell {
        Ok(0) if cells > 1 && request.method() == Method::GET => {
            if let Some(list) = gather::Gathered::of(request.uri(), forward.are_groups_spread()) {
                forward.gather(list, cells, request, next).await
            } else {
                drop_cell(request.uri_mut());
                Ok(next.run(request).await)
            }
        }
        Ok(0) if cells > 1 && import::is_one(&request) => forward.import(cells, request, next).await,
        Ok(0) => Ok(next.run(request).await),
        Ok(cell) => forward.pass(cell, request).await,
        Err(problem) => Err(problem),
    };
    answered.unwrap_or_else(IntoResponse::into_response)
}

/// Has routes refuse requests that are about things of another cell than their own: a session at the owner of
/// a cell asks for things of this cell alone.
pub(crate) fn kept(router: Router, own: u32, cells: u32) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| async move {
        match place(request.method(), request.uri(), cells) {
            Ok(cell) if cell == own => next.run(request).await,
            Ok(_) => {
                let why = "this WebSocket is at the owner of its namespace's cell, and reaches namespaces of this \
                           cell alone: name one";
                Problem::bad_request(why).into_response()
            }
            Err(problem) => problem.into_response(),
        }
    }))
}

/// Returns the value of a key in the query of an address, as it stands there.
fn value<'a>(uri: &'a Uri, key: &str) -> Option<&'a str> {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

/// Returns true for RabbitMQ's definitions of all virtual hosts.
fn is_definitions(uri: &Uri) -> bool {
    let path = uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    ["/api/definitions", "/api/all-configuration"].contains(&path)
}

/// Returns the cell that a request is about.
fn place(method: &Method, uri: &Uri, cells: u32) -> Result<u32, Problem> {
    if let Some(cell) = value(uri, "cell").filter(|_| method == Method::GET) {
        let known = cell.parse().ok().filter(|cell| *cell < cells);
        return known
            .ok_or_else(|| Problem::bad_request(format!("cell: the cluster has cells 0 to {}", cells - 1)));
    }
    let mut segments = uri.path().split('/').skip(1);
    let [version, kind, name] = std::array::from_fn(|_| segments.next());
    let namespace = match (version, kind) {
        (Some("v1"), Some("users")) => None,
        // An import makes each thing through its owner.
        (Some("v1"), Some("definitions")) if method != Method::GET => None,
        _ if is_definitions(uri) => {
            let vhost = value(uri, "vhost").filter(|_| method == Method::POST);
            vhost.map(|text| text.replace('+', " "))
        }
        (Some("v1"), Some("namespaces")) => name.map(str::to_owned),
        (Some("v1"), _) => value(uri, "namespace").map(|text| text.replace('+', " ")),
        // A list of all virtual hosts.
        (Some("api"), Some("queues")) if name == Some("detailed") => None,
        (Some("api"), Some(kind)) if IN_HOSTS.contains(&kind) => name.map(str::to_owned),
        _ => None,
    };
    // A malformed name is refused where it is read.
    let namespace = namespace.and_then(|text| decoded(&text));
    Ok(namespace.map_or(0, |namespace| home(&namespace, cells)))
}

/// Takes the cell out of an address: routes do not know it.
fn drop_cell(uri: &mut Uri) {
    let Some(query) = uri.query().filter(|query| query.contains("cell=")) else {
        return;
    };
    let rest: Vec<&str> = query
        .split('&')
        .filter(|pair| !pair.starts_with("cell="))
        .collect();
    let text = match rest.join("&") {
        query if query.is_empty() => uri.path().to_owned(),
        query => format!("{}?{query}", uri.path()),
    };
    if let Ok(without) = text.parse::<PathAndQuery>() {
        *uri = Uri::from(without);
    }
}

/// Removes headers that are about one connection.
fn clean(headers: &mut HeaderMap) {
    for name in [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::TE,
        header::TRAILER,
    ] {
        headers.remove(name);
    }
}

/// Returns the group that a request is about, or whose commits or member. Members over HTTP are in the first
/// cell.
fn group(uri: &Uri) -> Option<String> {
    let mut segments = uri.path().strip_prefix("/v1/groups/")?.split('/');
    let [name, part, member, rest] = std::array::from_fn(|_| segments.next());
    let is_known = match (part, member) {
        (None | Some("offsets" | "reset"), None) => true,
        (Some("members"), Some(_)) => rest.is_none(),
        _ => false,
    };
    name.filter(|_| is_known).and_then(decoded)
}

/// Returns true if a request about a group is about one of its members.
fn is_of_member(uri: &Uri) -> bool {
    let rest = uri.path().strip_prefix("/v1/groups/").unwrap_or_default();
    rest.split('/').nth(1) == Some("members")
}

impl Forward {
    fn are_groups_spread(&self) -> bool {
        self.broker.get().is_ok_and(|broker| broker.groups().are_spread())
    }

    /// Returns the cell of the group that a request is about. `None` if it is about something else, or about
    /// the first cell.
    fn cell_of_group(&self, method: &Method, uri: &Uri) -> Option<u32> {
        let group = group(uri)?;
        let is_given = method == Method::GET && value(uri, "cell").is_some();
        let broker = self.broker.get().ok().filter(|_| !is_given)?;
        Some(broker.groups().cell_of(&group)).filter(|cell| *cell != 0)
    }

    /// Returns the refusal of a deletion of a group of another cell, or of its commits, while commits of
    /// transactions wait here: they would bring it back.
    fn waiting_commits(&self, request: &Request) -> Option<Problem> {
        self.cell_of_group(request.method(), request.uri())
            .filter(|_| request.method() == Method::DELETE && !is_of_member(request.uri()))?;
        let group = group(request.uri())?;
        let waiting = self.broker.get().ok()?.transactions().pending_commits(&group);
        let why =
            format!("commits of transactions wait for the group {group:?}: try again when these have ended");
        (!waiting.is_empty()).then(|| Problem::new(Code::InUse, why))
    }

    /// Has the owner of a cell answer a request.
    async fn pass(&self, cell: u32, mut request: Request) -> Result<Response, Problem> {
        let client = passed::client(&request).or_else(|| server::peer(&request));
        let client = client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        passed::note(&self.broker, self.member.epoch(), &mut request).await;
        let client = SocketAddr::new(client, 0);
        let reached = self.member.reach_owner(cell, "http", client).await;
        let ToCell { stream, lost } = reached.ok_or_else(slot::closed)?;
        let failed = |error: hyper::Error| {
            slot::not_serving(format!("the owner of cell {cell} gave no answer: {error}"))
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        if request.method() == Method::GET {
            drop_cell(request.uri_mut());
        }
        request
            .headers_mut()
            .entry(header::HOST)
            .or_insert(header::HeaderValue::from_static("localhost"));
        if Upgrade::is_wanted(request.headers()) {
            self.tasks.spawn(connection.with_upgrades());
            return tunnel::open(sender, request, lost).await.map_err(failed);
        }
        // An answer that the owner does not finish ends with it.
        self.tasks.spawn(async move {
            tokio::select! {
                _ = connection => {}
                () = lost => {}
            }
        });
        clean(request.headers_mut());
        let mut response = sender.send_request(request).await.map_err(failed)?.map(Body::new);
        clean(response.headers_mut());
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(method: &Method, uri: &str) -> Result<u32, &'static str> {
        let placed = place(method, &uri.parse().unwrap(), 16);
        placed.map_err(|problem| problem.code.word())
    }

    #[test]
    fn a_request_is_about_the_cell_of_its_namespace() {
        for (uri, expected) in [
            ("/v1/queues/q?namespace=shop&count=1", 9),
            ("/v1/queues?namespace=%73hop", 9),
            ("/v1/queues?namespace=%2F", 0),
            ("/v1/queues?namespace=%zz", 0),
            ("/v1/queues", 0),
            ("/v1/users/anna/permissions?namespace=shop", 0),
            ("/v1/namespaces/shop", 9),
            ("/v1/namespaces", 0),
            ("/api/queues/shop/q", 9),
            ("/api/queues/%2f/q", 0),
            ("/api/queues", 0),
            ("/api/queues/detailed", 0),
            ("/api/vhosts/shop", 9),
            ("/api/permissions/shop/anna", 0),
            ("/api/vhost-limits/shop/max-queues", 0),
            ("/console/?namespace=shop", 0),
        ] {
            assert_eq!(cell(&Method::GET, uri), Ok(expected), "{uri}");
            assert_eq!(cell(&Method::PUT, uri), Ok(expected), "{uri}");
        }
    }

    #[test]
    fn a_group_is_named_by_its_path() {
        for (uri, expected) in [
            ("/v1/groups/g", Some("g")),
            ("/v1/groups/a%2Fb/offsets?if_epoch=1", Some("a/b")),
            ("/v1/groups/g/members", None),
            ("/v1/groups/g/reset", Some("g")),
            ("/v1/groups/g/members/m", Some("g")),
            ("/v1/groups/g/members/m/poll", None),
            ("/v1/groups/g/reset/", None),
            ("/v1/groups", None),
            ("/v1/groups/%zz", None),
        ] {
            assert_eq!(group(&uri.parse().unwrap()).as_deref(), expected, "{uri}");
        }
        for (uri, expected) in [
            ("members/offsets", false),
            ("members", false),
            ("g/members/m", true),
        ] {
            let uri = format!("/v1/groups/{uri}").parse().unwrap();
            assert_eq!(is_of_member(&uri), expected, "{uri}");
        }
    }

    #[test]
    fn imports_go_by_their_things() {
        let import = "/v1/definitions?namespace=shop";
        assert_eq!(cell(&Method::GET, import), Ok(9));
        assert_eq!(cell(&Method::POST, import), Ok(0));
        for (uri, expected) in [
            ("/api/definitions", 0),
            ("/api/definitions/?vhost=shop", 9),
            ("/api/all-configuration?vhost=shop", 9),
            ("/api/definitions/shop", 9),
        ] {
            assert_eq!(cell(&Method::POST, uri), Ok(expected), "{uri}");
        }
    }

    #[test]
    fn any_cell_can_be_looked_at() {
        assert_eq!(cell(&Method::GET, "/v1/queues?cell=15&namespace=shop"), Ok(15));
        assert_eq!(cell(&Method::GET, "/metrics?cell=0"), Ok(0));
        assert_eq!(cell(&Method::GET, "/metrics?cell=16"), Err("bad_request"));
        assert_eq!(
            cell(&Method::PUT, "/v1/queues/q?cell=3"),
            Ok(0),
            "changes go by names"
        );
    }

    #[test]
    fn the_cell_is_taken_out_of_an_address() {
        for (uri, expected) in [
            ("/v1/queues?cell=1", "/v1/queues"),
            (
                "/v1/queues?count=1&cell=1&sort=name",
                "/v1/queues?count=1&sort=name",
            ),
            ("/v1/queues", "/v1/queues"),
        ] {
            let mut without = uri.parse().unwrap();
            drop_cell(&mut without);
            assert_eq!(without, *expected);
        }
    }
}
