//! The routes: `/live` for WebSocket, and routes below it for the same over HTTP.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use stafett_net::{Connection, Handover};
use stafett_ws::frame::put_text;
use stafett_ws::handshake;

use crate::command;
use crate::connection::{self, Times};
use crate::fault::Fault;
use crate::front::LiveFront;
use crate::json::{self, JsonFormat};
use crate::msgpack::{self, MsgpackFormat};
use crate::session::{self, Dialect, Session};
use crate::{events, lists, origin, posted};

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

/// The example page, which also works from a file.
const PAGE: &str = include_str!("../../../examples/live/wishlist.html");

/// Returns the routes to merge into the HTTP listener.
pub fn router(front: LiveFront) -> Router {
    Router::new()
        .route("/live", get(websocket))
        .route("/live/publish", post(publish).options(preflight))
        .route("/live/events", get(events::get))
        .route("/live/presence", get(lists::presence))
        .route("/live/subscriptions", get(lists::subscriptions))
        .route(
            "/live/try",
            get(([(header::CONTENT_TYPE, "text/html; charset=utf-8")], PAGE)),
        )
        .with_state(front)
}

/// `GET /live`: continues as a WebSocket.
async fn websocket(State(front): State<LiveFront>, request: Request) -> Response {
    let headers = request.headers();
    let accept = match handshake::accept(request.method(), headers) {
        Ok(accept) => accept,
        Err(error) => {
            let told = [
                (header::UPGRADE, "websocket"),
                (header::SEC_WEBSOCKET_VERSION, "13"),
            ];
            return (StatusCode::UPGRADE_REQUIRED, told, format!("{error}\n")).into_response();
        }
    };
    if origin::check(headers, &front.settings().origins).is_err() {
        return refused_origin();
    }
    let (Some(live), Some(handover)) = (front.live(), request.extensions().get::<Handover>()) else {
        return not_ready();
    };
    let protocol = handshake::subprotocol(headers, &[JSON_PROTOCOL, MSGPACK_PROTOCOL]);
    let dialect = if protocol == Some(MSGPACK_PROTOCOL) {
        MSGPACK
    } else {
        JSON
    };
    let live = std::sync::Arc::clone(live);
    let session = Session::new(std::sync::Arc::clone(&live), front.settings(), dialect);
    let served = front.clone();
    handover.give(Box::new(move |connection: Connection, received| {
        Box::pin(async move {
            let _counted = served.connections().token();
            let settings = served.settings();
            let times = Times {
                idle: settings.idle_timeout,
                write: settings.write_timeout,
            };
            let max = settings.message_bytes_max;
            connection::run(live, connection, received, session, max, times, served.ending()).await;
        })
    }));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    response
}

/// `POST /live/publish`: one message, or a list of messages.
async fn publish(State(front): State<LiveFront>, request: Request) -> Response {
    let Ok(origin) = origin::check(request.headers(), &front.settings().origins) else {
        return refused_origin();
    };
    let Some(live) = front.live() else {
        return not_ready();
    };
    let posted = match posted::read(request, front.settings().message_bytes_max).await {
        Ok(posted) => posted,
        Err(refused) => return refused.into_response(),
    };
    let text = match posted.text() {
        Ok(text) => text,
        Err(refused) => return refused.into_response(),
    };
    let published = match command::read_messages(text, front.settings().bounds()) {
        Ok(messages) => session::publish_and_store(live, &messages).await,
        Err(fault) => Err(fault),
    };
    let (status, answer) = match published {
        Ok(counts) => (StatusCode::OK, json::success(None, &counts.fields())),
        Err(fault) => (status_of(&fault), json::error(None, &fault)),
    };
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], answer).into_response();
    allow(origin, response.headers_mut());
    response
}

/// Answers the CORS preflight of a page on another site.
async fn preflight(State(front): State<LiveFront>, headers: HeaderMap) -> Response {
    let Ok(origin) = origin::check(&headers, &front.settings().origins) else {
        return refused_origin();
    };
    let told = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type"),
    ];
    let mut response = (StatusCode::NO_CONTENT, told).into_response();
    allow(origin, response.headers_mut());
    response
}

/// Lets a page on another site read the response.
pub(crate) fn allow(origin: Option<HeaderValue>, headers: &mut HeaderMap) {
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
}

pub(crate) fn status_of(fault: &Fault) -> StatusCode {
    match fault {
        Fault::NotJson(_)
        | Fault::Missing(_)
        | Fault::Value { .. }
        | Fault::TooLong { .. }
        | Fault::Both(..)
        | Fault::NotListening
        | Fault::Command
        | Fault::Binary => StatusCode::BAD_REQUEST,
        Fault::OutcomeUnknown => StatusCode::SERVICE_UNAVAILABLE,
        Fault::Change(change) if change.is_outcome_unknown() => StatusCode::SERVICE_UNAVAILABLE,
        Fault::Change(_) | Fault::Clients(_) | Fault::Crowded { .. } | Fault::NotStored => {
            StatusCode::INSUFFICIENT_STORAGE
        }
    }
}

pub(crate) fn refused_origin() -> Response {
    let why = "pages of this site may not use live topics: see the setting live.origins\n";
    (StatusCode::FORBIDDEN, why).into_response()
}

pub(crate) fn not_ready() -> Response {
    let why = "the broker is starting or stopping\n";
    (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}
