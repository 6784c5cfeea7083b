//! Results outside of commits.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::body::{self, Object};
use stafett_http::{Code, Path, Problem, Slot};

use super::commit::{Emit, Place, check_targets, places, queued_of, results};
use super::worker::{NamedClaim, Names, command};
use super::{WORKERS, find, of_app, session};
use crate::{Routes, answer, refusals};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppEmit")]
struct Wanted {
    task: String,
    epoch: u64,
    /// Results: all of them are stored, or none.
    emit: Vec<Object<Emit>>,
}

/// Results that are stored.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppEmittedNow")]
struct Stored {
    emitted: Vec<Place>,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        post(
            command!("emit"),
            "Stores results outside of a commit, of an app that is declared as at-least-once. Sent again, they are stored \
             again.",
        )
        .body::<Wanted>()
        .answers::<Stored>(200)
        .refuses(&WORKERS)
        .refuses(&refusals::STORAGE)
        .refuses(&[
            Code::NoSuchTopic,
            Code::NoSuchQueue,
            Code::QueueFull,
            Code::MessageTooLarge,
            Code::Forbidden,
        ]),
        emit,
    )
}

async fn emit(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Wanted = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let broker = broker.get()?;
    let app = find(&broker, &name)?;
    check_targets(&broker, &wanted.emit)?;
    let (task, epoch) = (wanted.task, wanted.epoch);
    let claim = NamedClaim { task, epoch }.read()?;
    let (records, messages) = results(wanted.emit)?;
    let queued = queued_of(&messages);
    let stored = app.emit(session, claim, records, messages).await;
    let emitted = places(stored.map_err(|why| of_app(&why))?, queued);
    Ok(answer(StatusCode::OK, &Stored { emitted }))
}
