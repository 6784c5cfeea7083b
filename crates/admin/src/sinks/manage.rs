//! Pauses, positions, replays and accepted gaps.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::{Broker, SinkError, StoredSink};
use stafett_http::api::{get, post};
use stafett_http::{Code, Path, Problem, Slot, body};

use super::{Desk, SinkPosition, SinkReplay, SinkTerms, find, of_sink, terms};
use crate::apps::of_app;
use crate::topics::reach;
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
    let broker = broker.get()?;
    let sink = find(&broker, &name)?;
    let terms = terms(&*desk, &name, &sink)?;
    for topic in terms.from.iter().filter(|_| terms.is_own) {
        if let Some(topic) = broker.topics().named(topic) {
            reach(&broker, &topic).await?;
        }
    }
    check(&broker, &terms, &wanted)?;
    let positions = desk.replay(&name, wanted).await?;
    Ok(answer(StatusCode::OK, &Positions { positions }))
}

/// Refuses positions that the sink cannot have, before it is stopped for them.
fn check(broker: &Broker, terms: &SinkTerms, wanted: &SinkReplay) -> Result<(), Problem> {
    if !terms.has_positions {
        let app = &terms.app;
        let why = format!("the app {app} has the positions: stafett app reset moves them");
        return Err(Problem::bad_request(why));
    }
    if let Some(from) = &wanted.from
        && !["earliest", "latest"].contains(&&**from)
        && from.parse::<jiff::Timestamp>().is_err()
    {
        let why = format!("{from:?} is not earliest, latest or a time such as 2026-11-22T16:00:00Z");
        return Err(Problem::bad_request(why).with("field", "from"));
    }
    for (number, position) in wanted.positions.iter().enumerate() {
        let why = refusal(broker, terms, position).or_else(|| {
            let mut before = wanted.positions.iter().take(number);
            before
                .any(|other| (&other.topic, other.partition) == (&position.topic, position.partition))
                .then(|| format!("{}/{} is there twice", position.topic, position.partition))
        });
        if let Some(why) = why {
            return Err(Problem::bad_request(why).with("field", "positions"));
        }
    }
    Ok(())
}

/// Returns the reason why a place of this broker has no such position.
fn refusal(broker: &Broker, terms: &SinkTerms, position: &SinkPosition) -> Option<String> {
    let SinkPosition {
        topic: name,
        partition,
        next,
    } = position;
    if !terms.from.contains(name) {
        return Some(format!("{name} is no topic of the sink"));
    }
    if !terms.is_own {
        return None;
    }
    let Some(topic) = broker.topics().named(name) else {
        return Some(format!("there is no topic {name}"));
    };
    let log = (*partition < topic.partitions())
        .then(|| topic.log(*partition))
        .flatten();
    let Some(bounds) = log.and_then(|log| broker.catalog().bounds(log)) else {
        return Some(format!("{name} has no partition {partition}"));
    };
    let end = bounds.stable.0;
    (*next > end).then(|| format!("{next} is behind the end of {name}/{partition}, {end}"))
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
