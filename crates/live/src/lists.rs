//! `GET` routes for presence and for a client's subscriptions.

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use stafett_live_topics::Live;

use crate::command::{self, Bounds, Command};
use crate::fault::Fault;
use crate::front::LiveFront;
use crate::router::{allow, not_ready, refused_origin, status_of};
use crate::{json, origin, presence, query};

/// `GET /live/presence`: same answer as the command `presence`.
pub(crate) async fn presence(front: State<LiveFront>, query: RawQuery, headers: HeaderMap) -> Response {
    answer("presence", &front, &query, &headers)
}

/// `GET /live/subscriptions`: same answer as the command `list`.
pub(crate) async fn subscriptions(front: State<LiveFront>, query: RawQuery, headers: HeaderMap) -> Response {
    answer("list", &front, &query, &headers)
}

fn answer(name: &str, front: &LiveFront, RawQuery(query): &RawQuery, headers: &HeaderMap) -> Response {
    let Ok(origin) = origin::check(headers, &front.settings().origins) else {
        return refused_origin();
    };
    let Some(live) = front.live() else {
        return not_ready();
    };
    let query = query.as_deref().unwrap_or_default();
    let (status, answer) = match found(name, query, live, front.settings().bounds()) {
        Ok(answer) => (StatusCode::OK, answer),
        Err(fault) => (status_of(&fault), json::error(None, &fault)),
    };
    let told = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let mut response = (status, told, answer).into_response();
    allow(origin, response.headers_mut());
    response
}

fn found(name: &str, query: &str, live: &Live, bounds: Bounds) -> Result<Vec<u8>, Fault> {
    let text = query::command(name, query)?;
    let request = command::read(&text, bounds).map_err(|(_, fault)| fault)?;
    let fields = match &request.command {
        Command::List(page) => presence::list(live, &request.client, *page),
        Command::Presence(of, page) => presence::presence(live, of, *page),
        Command::Listen { .. }
        | Command::Leave
        | Command::Subscribe(_)
        | Command::SubscribeFrom(..)
        | Command::Unsubscribe(_)
        | Command::Publish { .. }
        | Command::Ping => return Err(Fault::Command),
    };
    Ok(json::success(None, &fields))
}
