//! The routes: `/live` and `/` for WebSocket, and routes below `/live` for the same over HTTP.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use stafett_access::Meter;
use stafett_http::front_page::{self, Link};
use stafett_http::{Policy, Problem, Upgrade, answer, body};
use stafett_live_topics::FilterError;
use stafett_ws::frame::put_text;
use stafett_ws::{connection, msgpack};

use crate::command;
use crate::fault::Fault;
use crate::front::LiveFront;
use crate::json::{self, JsonFormat};
use crate::msgpack::MsgpackFormat;
use crate::rights::Rights;
use crate::session::{self, Dialect, Session};
use crate::{events, lists};

/// Subprotocol name of JSON, which is also the default.
const JSON_PROTOCOL: &str = "stafett.live.json";
const MSGPACK_PROTOCOL: &str = "stafett.live.msgpack";

static JSON: Dialect = Dialect {
    format: &JsonFormat,
    frame: put_text,
    read_binary: None,
};
static MSGPACK: Dialect = Dialect {
    format: &MsgpackFormat,
    frame: msgpack::put_packed,
    read_binary: Some(msgpack::to_json),
};

/// Links on the page at the root path, in addition to the standard ones.
const LINKS: [Link; 1] = [Link {
    about: "Live topics in a browser, to try",
    path: "/live/try",
}];

/// The example page, which also works from a file.
const PAGE: &str = include_str!("../../../examples/live/wishlist.html");

/// Returns the routes to merge into the HTTP listener.
pub fn router(front: LiveFront) -> Router {
    let policy = Policy::Origins {
        allowed: front.settings().origins.clone(),
        setting: "live.origins",
    };
    let routes = Router::new()
        .route("/live", get(websocket))
        .route("/live/publish", post(publish).options(preflight))
        .route("/live/events", get(events::get))
        .route("/live/presence", get(lists::presence))
        .route("/live/subscriptions", get(lists::subscriptions))
        .with_state(front.clone());
    // A page at the root path is for everyone, also by a link from elsewhere.
    let root = Root {
        front,
        policy: policy.clone(),
    };
    policy
        .guard(routes)
        .route("/", get(at_root).with_state(root))
        .route(
            "/live/try",
            get(([(header::CONTENT_TYPE, "text/html; charset=utf-8")], PAGE)),
        )
}

#[derive(Debug, Clone)]
struct Root {
    front: LiveFront,
    policy: Policy,
}

/// `GET /`: continues as a WebSocket where the client wants that, under the rules of `/live`.
async fn at_root(State(root): State<Root>, request: Request) -> Result<Response, Problem> {
    let headers = request.headers();
    let upgrades = headers.get_all(header::UPGRADE).iter();
    let mut protocols = upgrades
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    if !protocols.any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket")) {
        return Ok(front_page::answer(headers, &LINKS));
    }
    root.policy.check(headers)?;
    websocket(State(root.front), request).await
}

/// `GET /live`: continues as a WebSocket.
async fn websocket(State(front): State<LiveFront>, request: Request) -> Result<Response, Problem> {
    let upgrade = match Upgrade::read(&request, &[JSON_PROTOCOL, MSGPACK_PROTOCOL]) {
        Ok(upgrade) => upgrade,
        Err(refusal) => return Ok(*refusal),
    };
    let live = front.live()?;
    let dialect = if upgrade.protocol() == Some(MSGPACK_PROTOCOL) {
        MSGPACK
    } else {
        JSON
    };
    let meter = request.extensions().get::<Arc<dyn Meter>>().cloned();
    let session = Session::new(live, front.settings(), dialect, Rights::of(&request)).metered(meter);
    Ok(upgrade.accept(Box::new(move |connection, received| {
        Box::pin(async move {
            let _counted = front.connections().token();
            let limits = front.settings().limits();
            connection::run(
                "live topics",
                connection,
                received,
                session,
                limits,
                front.ending(),
            )
            .await;
        })
    })))
}

/// `POST /live/publish`: one message, or a list of messages.
async fn publish(State(front): State<LiveFront>, request: Request) -> Result<Response, Problem> {
    let live = front.live()?;
    let settings = front.settings();
    let limit = body::Limit {
        bytes_max: settings.message_bytes_max,
        setting: "live.message_bytes_max",
    };
    let rights = Rights::of(&request);
    let posted = body::read(request, limit).await?;
    let read = command::read_messages(posted.text()?, settings.bounds());
    let checked = read.and_then(|messages| rights.check_write(&messages).map(|()| messages));
    let published = match checked {
        Ok(messages) => session::publish_and_store(&live, &messages).await,
        Err(fault) => Err(fault),
    };
    Ok(answer(
        published.map(|counts| json::success(None, &counts.fields())),
    ))
}

/// Answers the CORS preflight of a page on another site.
async fn preflight() -> impl IntoResponse {
    let told = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type"),
    ];
    (StatusCode::NO_CONTENT, told)
}

/// Answers as the command would be over a WebSocket.
pub(crate) fn answer(answer: Result<Vec<u8>, Fault>) -> Response {
    match answer {
        Ok(text) => answer::json(StatusCode::OK, text),
        Err(fault) => answer::json(status_of(&fault), json::error(None, &fault)),
    }
}

fn status_of(fault: &Fault) -> StatusCode {
    match fault {
        Fault::NotJson(_)
        | Fault::Missing(_)
        | Fault::Value { .. }
        | Fault::TooLong { .. }
        | Fault::Both(..)
        | Fault::NotListening
        | Fault::Filter(FilterError::Bad(_))
        | Fault::Command
        | Fault::Query(_)
        | Fault::Binary => StatusCode::BAD_REQUEST,
        Fault::Forbidden { .. } => StatusCode::FORBIDDEN,
        Fault::OverQuota { .. } => StatusCode::TOO_MANY_REQUESTS,
        Fault::Overloaded | Fault::OutcomeUnknown => StatusCode::SERVICE_UNAVAILABLE,
        Fault::Change(change) if change.is_outcome_unknown() => StatusCode::SERVICE_UNAVAILABLE,
        Fault::Filter(FilterError::TooMany { .. })
        | Fault::Change(_)
        | Fault::Clients(_)
        | Fault::Crowded { .. }
        | Fault::NotStored => StatusCode::INSUFFICIENT_STORAGE,
    }
}

#[cfg(test)]
mod tests {
    use stafett_live_topics::{ChangeError, NotStored, Refusal};

    use super::*;

    #[test]
    fn an_outcome_that_is_not_known_is_never_called_not_stored() {
        let refused = ChangeError::NotStored(NotStored::Refused(Refusal::DiskFull));
        let unknown = ChangeError::NotStored(NotStored::Unknown);
        for (fault, kind, status) in [
            (Fault::NotStored, "not_stored", StatusCode::INSUFFICIENT_STORAGE),
            (refused.into(), "not_stored", StatusCode::INSUFFICIENT_STORAGE),
            (
                Fault::OutcomeUnknown,
                "outcome_unknown",
                StatusCode::SERVICE_UNAVAILABLE,
            ),
            (unknown.into(), "outcome_unknown", StatusCode::SERVICE_UNAVAILABLE),
        ] {
            assert_eq!((fault.kind(), status_of(&fault)), (kind, status));
            assert_eq!(
                fault.message().contains("nothing of it was stored"),
                kind == "not_stored"
            );
        }
    }
}
