//! `GET` routes for presence and for a client's subscriptions.

use axum::extract::{RawQuery, Request, State};
use axum::response::Response;
use stafett_http::{Problem, Query};
use stafett_live_topics::Live;

use crate::command::Bounds;
use crate::fault::Fault;
use crate::front::LiveFront;
use crate::presence::Fields;
use crate::rights::Rights;
use crate::router::answer;
use crate::{json, presence, query};

/// `GET /live/presence`: same answer as the command `presence`.
pub(crate) async fn presence(
    State(front): State<LiveFront>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    let (live, bounds) = (front.live()?, front.settings().bounds());
    Ok(told(audience(
        &live,
        query.as_deref(),
        bounds,
        &Rights::of(&request),
    )))
}

/// `GET /live/subscriptions`: same answer as the command `list`.
pub(crate) async fn subscriptions(
    State(front): State<LiveFront>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    let rights = Rights::of(&request);
    Ok(told(subscribed(&*front.live()?, query.as_deref(), &rights)))
}

fn told(fields: Result<Fields, Fault>) -> Response {
    answer(fields.map(|fields| json::success(None, &fields)))
}

fn audience(live: &Live, query: Option<&str>, bounds: Bounds, rights: &Rights) -> Result<Fields, Fault> {
    let query = Query::lenient(query, &["topic", "pattern", "of", "from", "count"])?;
    let of = query::presence_of(&query, bounds)?;
    rights.check_presence(&of)?;
    Ok(presence::presence(live, &of, query::page(&query)?, rights))
}

fn subscribed(live: &Live, query: Option<&str>, rights: &Rights) -> Result<Fields, Fault> {
    let query = Query::lenient(query, &["client_id", "from", "count"])?;
    let client = query::client(&query)?;
    Ok(presence::list(live, &client, query::page(&query)?, rights))
}
