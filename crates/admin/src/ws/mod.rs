//! `/v1/ws`: the operations of the routes as commands of a WebSocket, consumers, and watched lists;
//! `/v1/watch`: one of these as server-sent events.
//!
//! - [`command`]: reads commands
//! - `session`: executes them
//! - `routed`: commands that are requests of routes
//! - `consumers`: consumers of queues
//! - `watch`: watched states
//! - `work`: `/v1/apps/APP/work`, the commands of an app's worker; `work_command` reads them, and
//!   `work_flow` has the events and records that it is sent

pub mod command;
mod consumers;
pub(crate) mod routed;
mod session;
#[cfg(test)]
mod tests;
mod watch;
mod work;
mod work_command;
mod work_flow;
#[cfg(test)]
mod work_tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::{Api, Code, Draining, Parameter, Problem, Query, Slot, Upgrade, sse};
use stafett_net::{ByteBudget, Shutdown};
use stafett_ws::connection::{self, Ending, Limits};
use stafett_ws::frame::put_text;
use stafett_ws::msgpack;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::TaskTracker;

use crate::access;
use crate::caller::Caller;
use crate::namespace;
use crate::queues::NAMESPACE;
use routed::Routes;
use session::{Dialect, Parts, Session};
use watch::{Watches, What};

/// Subprotocol of JSON, which is also the default.
const JSON_PROTOCOL: &str = "stafett.v1.json";
const MSGPACK_PROTOCOL: &str = "stafett.v1.msgpack";

const JSON: Dialect = Dialect {
    frame: put_text,
    read_binary: None,
};
const MSGPACK: Dialect = Dialect {
    frame: msgpack::put_packed,
    read_binary: Some(msgpack::to_json),
};

/// Time without a piece after which a comment is sent.
const TICK: Duration = Duration::from_secs(10);

/// The connections of a process: their limits and their end. Clones share it.
#[derive(Debug, Clone)]
pub struct WebSockets {
    pub limits: Limits,
    pub shutdown: Shutdown,
    /// Tasks to wait for when the front ends drain, although HTTP goes on.
    pub tasks: TaskTracker,
}

impl Default for WebSockets {
    fn default() -> Self {
        Self {
            limits: Limits {
                message_bytes_max: 16 << 20,
                idle: Duration::from_mins(1),
                write: Duration::from_mins(1),
            },
            shutdown: Shutdown::new(),
            tasks: TaskTracker::new(),
        }
    }
}

/// Parts behind the routes.
#[derive(Debug, Clone)]
pub(crate) struct Front {
    pub(super) broker: Slot<Broker>,
    pub(super) sockets: WebSockets,
    /// The other routes.
    router: Router,
    watches: Watches,
}

impl Front {
    /// Creates the front over the other routes, and the paths of those that show a state.
    pub(crate) fn new(
        broker: Slot<Broker>,
        sockets: WebSockets,
        router: Router,
        states: Vec<&'static str>,
    ) -> Self {
        Self {
            watches: Watches::new(broker.clone(), states, sockets.tasks.clone()),
            broker,
            sockets,
            router,
        }
    }
}

pub(crate) fn routes() -> Api<Front> {
    Api::default()
        .route(
            get(
                "/v1/ws",
                "Continues as a WebSocket with the operations of these routes as commands, of the subprotocol \
                 stafett.v1.json or stafett.v1.msgpack. docs/http.md describes them.",
            )
            .query(&[
                NAMESPACE,
                Parameter::text("client", "Client that the connection acts for, where no header can name it."),
            ])
            .refuses(&[
                Code::NotServing,
                Code::NoWebsocket,
                Code::Forbidden,
                Code::LimitReached,
            ]),
            upgrade,
        )
        .with(work::routes)
        .route(
            get(
                "/v1/watch",
                "Sends a list or an object again and again, as server-sent events. It is computed once for all that \
                 watch it.",
            )
            .query(&[
                Parameter::text("list", "Path of a list below /v1, such as queues."),
                Parameter::text("query", "Query of the list, percent-encoded, such as sort%3D-ready."),
                Parameter::text("of", "Path of an object below /v1, such as queues/orders, instead of a list."),
                Parameter::duration("every", watch::EVERY_MAX, "Time between states: 1s to 1m; 2s if it is absent."),
            ])
            .streams::<serde_json::Value>(sse::TYPE)
            .refuses(&[Code::NotServing]),
            watch,
        )
}

async fn upgrade(
    State(front): State<Front>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let upgrade = match Upgrade::read(&request, &[JSON_PROTOCOL, MSGPACK_PROTOCOL]) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return Ok(*refusal),
    };
    if front.sockets.shutdown.draining().is_cancelled() {
        return Err(stafett_http::slot::closed());
    }
    let named = query.get("client").filter(|name| !name.is_empty());
    let broker = front.broker.get()?;
    let by = access::caller(&broker);
    if named.is_some_and(|name| !by.is_unrestricted() && by.name() != Some(name)) {
        let why = "client is the name of the user, or is absent";
        return Err(Problem::new(Code::Forbidden, why));
    }
    let parts = Parts {
        broker,
        caller: Caller(caller.0.or_else(|| named.map(str::to_owned))),
        namespace: namespace(&query),
        routes: front.routes(request.extensions().get()),
        watches: front.watches.clone(),
        only_shows: request.extensions().get::<access::OnlyShows>().is_some(),
        dialect: if upgrade.protocol() == Some(MSGPACK_PROTOCOL) {
            MSGPACK
        } else {
            JSON
        },
    };
    let WebSockets {
        limits,
        shutdown,
        tasks,
    } = front.sockets;
    let ending = Ending {
        drain: shutdown.draining().child_token(),
        abort: shutdown.aborting().child_token(),
    };
    Ok(upgrade.accept(Box::new(move |connection, received| {
        Box::pin(async move {
            let _counted = tasks.token();
            let session = Session::new(parts);
            let served = connection::run("/v1/ws", connection, received, session, limits, ending);
            access::scope(by, served).await;
        })
    })))
}

impl Front {
    fn routes(&self, budget: Option<&Arc<ByteBudget>>) -> Routes {
        Routes {
            router: self.router.clone(),
            budget: budget.cloned(),
            draining: Draining(self.sockets.shutdown.draining().clone()),
        }
    }
}

async fn watch(
    State(front): State<Front>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let broker = front.broker.get()?;
    let what = match (query.get("list"), query.get("of")) {
        (Some(list), None) => What::List {
            list: list.to_owned(),
            query: query.get("query").unwrap_or_default().to_owned(),
        },
        (None, Some(of)) if query.get("query").is_none() => What::Object { of: of.to_owned() },
        _ => {
            let why = "list=NAME, with query= of its own, or of=PATH says what is watched";
            return Err(Problem::bad_request(why));
        }
    };
    let every = query.duration("every", watch::EVERY_MAX)?.unwrap_or(watch::EVERY);
    let every = watch::check_every(every)?;
    let state = front.watches.state(&what, &caller, &access::caller(&broker))?;
    let routes = front.routes(request.extensions().get());
    let since = Instant::now();
    Ok(sse::answer(
        (state, routes, since),
        move |(state, routes, next)| async move {
            let draining = routes.draining.0.clone();
            let waited = draining
                .run_until_cancelled(timeout(TICK, sleep_until(next)))
                .await?;
            if waited.is_err() {
                let comment = Bytes::from_static(sse::COMMENT.as_bytes());
                return Some(((state, routes, next), comment));
            }
            let shown = state.get(&routes, since).await;
            let mut piece = String::new();
            sse::put(&mut piece, None, "state", &String::from_utf8_lossy(&shown));
            Some(((state, routes, Instant::now() + every), piece.into()))
        },
    ))
}
