//! Pauses, positions, replays and accepted gaps.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::{Broker, SinkError, StoredSink};
use stafett_http::api::{get, post};
use stafett_http::{Code, Path, Problem, Slot, body};

use super::{Desk, SinkPosition, SinkReplay, find, of_sink, terms};
use crate::apps::of_app;
use crate::{Routes, answer, refusals};

/// A sink that is paused or goes on.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SinkPause")]
struct Paused {
    name: String,
    paused: bool,
}

/// Positions in the target.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SinkPositions")]
struct Positions {
    positions: Vec<SinkPosition>,
}

/// Refusals of requests that the runner answers.
const RUNNER: [Code; 3] = [Code::NoSuchSink, Code::NoRunner, Code::TargetRefused];

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            post("/v1/sinks/{sink}/pause", "Has a sink rest, until it is resumed.")
                .event("sink.paused")
                .answers::<Paused>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchSink, Code::BadDefinition]),
            pause,
        )
        .route(
            post(
                "/v1/sinks/{sink}/resume",
                "Continues a sink, also one that too many poison records have paused.",
            )
            .event("sink.resumed")
            .answers::<Paused>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchSink, Code::BadDefinition]),
            resume,
        )
        .route(
            get("/v1/sinks/{sink}/positions", "Reads the positions out of the target.")
                .answers::<Positions>(200)
                .refuses(&[Code::NotServing, Code::BadDefinition])
                .refuses(&RUNNER),
            positions,
        )
        .route(
            post(
                "/v1/sinks/{sink}/replay",
                "Stops a sink, sets its positions, and has it go on: records are written again, or passed over. A target \
                 that appends has them twice then.",
            )
            .event("sink.replayed")
            .body::<SinkReplay>()
            .answers::<Positions>(200)
            .refuses(&[Code::NotServing, Code::BadDefinition])
            .refuses(&RUNNER),
            replay,
        )
        .route(
            post(
                "/v1/sinks/{sink}/accept-gap",
                "Has a sink go on behind all that is gone: behind ranges of records that retention removed, and at the first \
                 record of topics that were deleted and made again.",
            )
            .event("sink.gap_accepted")
            .answers::<Positions>(200)
            .refuses(&[Code::NotServing, Code::BadDefinition])
            .refuses(&RUNNER),
            accept_gap,
        )
}

async fn set_rests(
    broker: &Slot<Broker>,
    desk: &Desk,
    name: String,
    paused: bool,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let sink = find(&broker, &name)?;
    let terms = terms(&**desk, &name, &sink)?;
    let edited = broker.edit_sink(&name, move |before| {
        let before = before.ok_or(SinkError::NoSuchSink)?;
        Ok(Some(StoredSink {
            definition: before.definition.clone(),
            rests: paused,
        }))
    });
    edited.await.map_err(of_sink)?;
    // The app has the pause of too much poison, and that of commands; it tells other processes too.
    if terms.is_own && broker.apps().named(&terms.app).is_ok() {
        let told = broker.apps().pause(&terms.app, paused).await;
        told.map_err(|why| of_app(&why))?;
    }
    Ok(answer(StatusCode::OK, &Paused { name, paused }))
}

async fn pause(
    State(broker): State<Slot<Broker>>,
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    set_rests(&broker, &desk, name, true).await
}

async fn resume(
    State(broker): State<Slot<Broker>>,
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    set_rests(&broker, &desk, name, false).await
}

async fn positions(
    State(broker): State<Slot<Broker>>,
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let sink = find(&*broker.get()?, &name)?;
    terms(&*desk, &name, &sink)?;
    let positions = desk.positions(&name).await?;
    Ok(answer(StatusCode::OK, &Positions { positions }))
}

async fn replay(
    State(broker): State<Slot<Broker>>,
    State(desk): State<Desk>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: SinkReplay = body::json(request).await?;
    if wanted.from.is_some() != wanted.positions.is_empty() {
        let why = "a replay has from, or positions";
        return Err(Problem::bad_request(why).with("field", "from"));
    }
    let sink = find(&*broker.get()?, &name)?;
    terms(&*desk, &name, &sink)?;
    let positions = desk.replay(&name, wanted).await?;
    Ok(answer(StatusCode::OK, &Positions { positions }))
}

async fn accept_gap(
    State(broker): State<Slot<Broker>>,
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let sink = find(&*broker.get()?, &name)?;
    terms(&*desk, &name, &sink)?;
    let positions = desk.accept_gap(&name).await?;
    Ok(answer(StatusCode::OK, &Positions { positions }))
}
