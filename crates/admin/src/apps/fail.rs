//! Records that a worker cannot handle.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_apps::{App, NewFailure, NewTimerFailure};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::{Code, Path, Problem, Slot, body};

use super::shape::Key;
use super::worker::{NamedClaim, Names, command};
use super::{WORKERS, find, of_app, session};
use crate::{Routes, answer, refusals};

/// A record at the position of a task, or a timer, that could not be handled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AppFailure")]
struct Failure {
    task: String,
    epoch: u64,
    /// The number of the last commit and 1: a failure counts as a commit.
    seq: u64,
    /// Topic of the record; may be absent where the app has one.
    topic: Option<String>,
    /// Offset of the record.
    offset: Option<u64>,
    /// Key of the timer, if it is one that failed.
    timer: Option<Key>,
    /// Name of the timer, if it has one.
    timer_name: Option<Key>,
    /// Description of the failure; the first 1,000 bytes are kept.
    error: String,
    /// False if another attempt is of no use; true by default.
    retry: Option<bool>,
}

/// Outcome of a failure.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppFailed")]
struct Failed {
    seq: u64,
    /// True if it was stored before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
    /// Attempts until now; 0 if the record went to the dead letters and this is a repetition.
    attempts: u32,
    /// Time of the next attempt, ms since 1970. Null if there is none: the record is with the dead
    /// letters, or the task stops at it.
    retry: Option<i64>,
    /// Topic of the dead letters, once the record is there.
    dead_letter: Option<String>,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        post(
            command!("fail"),
            "Says that the record at the position, or a timer, failed: it comes again later, or goes to the dead letters.",
        )
        .body::<Failure>()
        .answers::<Failed>(200)
        .refuses(&WORKERS)
        .refuses(&refusals::STORAGE)
        .refuses(&[
            Code::OutOfOrder,
            Code::BadOffset,
            Code::NoSuchTopic,
            Code::Unreadable,
        ]),
        fail,
    )
}

async fn fail(
    State(broker): State<Slot<Broker>>,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Failure = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    let claim = NamedClaim {
        task: wanted.task,
        epoch: wanted.epoch,
    };
    let claim = claim.read()?;
    let retry = wanted.retry.unwrap_or(true);
    let (seq, error) = (wanted.seq, wanted.error.into());
    let failed = if let Some(key) = wanted.timer {
        let name = wanted.timer_name.map(Key::bytes).transpose()?;
        let failure = NewTimerFailure {
            seq,
            key: key.bytes()?,
            name: name.unwrap_or_default(),
            error,
            retry,
        };
        app.fail_timer(session, claim, failure).await
    } else {
        let failure = NewFailure {
            seq,
            input: input(&app, wanted.topic.as_deref())?,
            offset: wanted.offset.ok_or_else(|| {
                Problem::bad_request("a failure names an offset or a timer").with("field", "offset")
            })?,
            error,
            retry,
        };
        app.fail(session, claim, failure).await
    };
    let failed = failed.map_err(|why| of_app(&why))?;
    let shown = Failed {
        seq: failed.seq,
        repeated: failed.repeated,
        attempts: failed.attempts,
        retry: failed.retry_ms,
        dead_letter: failed.dead_letter.map(Into::into),
    };
    Ok(answer(StatusCode::OK, &shown))
}

/// Returns the input of a topic, which may be absent where the app has one.
fn input(app: &App, topic: Option<&str>) -> Result<usize, Problem> {
    let stored = app.stored();
    let topics = &stored.definition.topics;
    let input = match topic {
        None if topics.len() == 1 => Some(0),
        None => None,
        Some(topic) => topics.iter().position(|known| **known == *topic),
    };
    input.ok_or_else(|| Problem::bad_request("topic is one that the app reads").with("field", "topic"))
}
