//! Settling messages: leased ones, and waiting ones by their ids.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_broker::Broker;
use stafett_delivery::{LeaseId, Settle};
use stafett_http::api::post;
use stafett_http::{Code, Parameter, Path, Problem, Query, Slot, body, stamp};
use stafett_messaging::queues::SettleLeases;

use crate::caller::Caller;
use crate::message::{parse_lease, parse_message_id};
use crate::queues::{MessageCount, NAMESPACE, find};
use crate::receive::{is_stored, lease_ms};
use crate::refusals::{self, of_receiving, of_storage};
use crate::{Routes, answer, namespace};

/// Settlements of leased messages.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Settlement {
    /// Leases of messages that are done.
    complete: Vec<String>,
    /// Leases of messages that return to the queue.
    requeue: Vec<String>,
    /// Leases of messages that are dead-lettered, or dropped.
    discard: Vec<String>,
    extend: Vec<Extension>,
}

/// A lease that is to last longer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Extension {
    lease: String,
    /// Time from now on, such as 30s.
    by: String,
}

/// Result of settling.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Settled")]
pub(crate) struct SettledLeases {
    pub(crate) settled: usize,
    pub(crate) extended: usize,
    /// Leases that have ended, or never were.
    pub(crate) unknown: Vec<String>,
}

/// Messages to be removed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Discard {
    /// Ids of messages that wait.
    ids: Vec<String>,
    /// True if they are dead-lettered.
    #[serde(default)]
    dead_letter: bool,
}
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            post("/v1/queues/{queue}/settle", "Settles or extends leases.")
                .query(&[
                    NAMESPACE,
                    Parameter::text(
                        "settled",
                        "soon, the default; or stored: answers when it is as durable as the queue.",
                    ),
                ])
                .body::<Settlement>()
                .answers::<SettledLeases>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchQueue, Code::Forbidden]),
            settle,
        )
        .route(
            post("/v1/queues/{queue}/discard", "Removes messages that wait.")
                .query(&[NAMESPACE])
                .body::<Discard>()
                .answers::<MessageCount>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&refusals::RECEIVING),
            discard,
        )
}

async fn settle(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let stored = is_stored(&query)?;
    let wanted: Settlement = body::json(request).await?;
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    caller.check_receives(&queue)?;
    let extensions = wanted.extend.iter().map(|one| {
        let ms = lease_ms(&one.by);
        let ms = ms.ok_or_else(|| Problem::bad_request(format!("by is 1s to 12h, not {:?}", one.by)))?;
        Ok((one.lease.as_str(), ms))
    });
    let extensions = extensions.collect::<Result<Vec<_>, Problem>>()?;
    let mut unknown = Vec::new();
    let mut known = |text: &str| {
        let lease = parse_lease(text);
        if lease.is_none() {
            unknown.push(text.to_owned());
        }
        lease
    };
    let kinds = [
        (&wanted.complete, Settle::Complete),
        (&wanted.requeue, Settle::Requeue),
        (&wanted.discard, Settle::Discard),
    ];
    let mut leases = Vec::new();
    for (texts, what) in kinds {
        leases.extend(texts.iter().filter_map(|text| Some((known(text)?, what))));
    }
    let extensions: Vec<(LeaseId, u64)> = extensions
        .iter()
        .filter_map(|(text, ms)| Some((known(text)?, *ms)))
        .collect();
    let ids: Vec<LeaseId> = leases.iter().map(|(id, _)| *id).collect();
    let settled = stamp::storing(queue.settle_leases(SettleLeases { leases, stored })).await;
    let settled = settled.map_err(|why| of_storage(why, why))?;
    let extended = queue.extend_leases(&extensions);
    let all = ids
        .iter()
        .zip(&settled)
        .chain(extensions.iter().map(|(id, _)| id).zip(&extended));
    let ended = all.filter(|(_, is_known)| !**is_known);
    unknown.extend(ended.map(|(id, _)| crate::message::lease_text(*id)));
    let count = |all: &[bool]| all.iter().filter(|is_known| **is_known).count();
    let result = SettledLeases {
        settled: count(&settled),
        extended: count(&extended),
        unknown,
    };
    Ok(answer(StatusCode::OK, &result))
}

async fn discard(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    caller: Caller,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Discard = body::json(request).await?;
    let queue = find(&*broker.get()?, &namespace(&query), &name)?;
    caller.check_receives(&queue)?;
    let ids = wanted
        .ids
        .iter()
        .filter_map(|text| parse_message_id(queue.id, text));
    let what = if wanted.dead_letter {
        Settle::Discard
    } else {
        Settle::Complete
    };
    let ids: Vec<_> = ids.collect();
    let messages = stamp::storing(queue.discard(&ids, what))
        .await
        .map_err(of_receiving)?;
    Ok(answer(StatusCode::OK, &MessageCount { messages }))
}
