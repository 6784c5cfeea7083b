//! Records of a claimed task.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_apps::{App, Delivered, FetchLimits, Fetched};
use stafett_broker::Broker;
use stafett_http::api::post;
use stafett_http::{Code, Draining, Path, Problem, Slot, body};

use super::shape::{Offsets, ShownOffsets, Value, by_topic};
use super::worker::{NamedClaim, Names, command, wait_of};
use super::{WORKERS, find, of_app, session};
use crate::content::Text;
use crate::{Routes, answer};

const RECORDS: usize = 1000;
const RECORDS_MAX: usize = 100_000;
const BYTES: usize = 1 << 20;
const BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fetch {
    task: String,
    epoch: u64,
    /// Place to go on from: `next` of the answer before. Without it, the place behind the last commit.
    next: Option<Offsets>,
    records_max: Option<usize>,
    bytes_max: Option<usize>,
    /// Time to wait for a record or a timer, up to half of the worker's time-out.
    #[serde(default)]
    wait_ms: u64,
}

/// Records of a task.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppRecords")]
pub(crate) struct FetchedTask<'a> {
    pub(crate) task: String,
    pub(crate) epoch: u64,
    /// Topic of the records.
    topic: String,
    /// Timers that were due before the first record: key, time, and name.
    due: Vec<(Text, i64, Text)>,
    records: Vec<RecordShown<'a>>,
    /// Place behind everything here, for `next` of a commit.
    pub(crate) next: ShownOffsets,
    /// Ends of the partitions.
    end: ShownOffsets,
    /// Task time behind the records; null before the first record.
    time: Option<i64>,
    /// Range that is gone and was passed over: from, to.
    gap: Option<(u64, u64)>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppRecord")]
struct RecordShown<'a> {
    offset: u64,
    #[schemars(with = "Option<Text>")]
    key: Option<Text<&'a str>>,
    #[serde(flatten)]
    value: Value<'a>,
    timestamp: i64,
    headers: BTreeMap<String, Option<Text>>,
    /// True for a record behind the end of its key, or before task time.
    late: bool,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes.route(
        post(
            command!("fetch"),
            "Fetches records of a claimed task, behind its last commit or a later place. A lost answer loses nothing.",
        )
        .body::<Fetch>()
        .answers::<FetchedTask<'_>>(200)
        .refuses(&WORKERS)
        .refuses(&[Code::Paused, Code::Gap, Code::RecordFailed, Code::BadOffset, Code::NoSuchTopic, Code::TopicMadeAgain, Code::Unreadable]),
        fetch,
    )
}

async fn fetch(
    State(broker): State<Slot<Broker>>,
    Draining(draining): Draining,
    Path((name, worker)): Names,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let wanted: Fetch = body::json(request).await?;
    let session = session(&worker, &headers)?;
    let app = find(&*broker.get()?, &name)?;
    let claim = NamedClaim {
        task: wanted.task,
        epoch: wanted.epoch,
    };
    let claim = claim.read()?;
    let stored = app.stored();
    let from = wanted
        .next
        .map(|next| next.by_input("next", &stored.definition))
        .transpose()?;
    let limits = FetchLimits {
        records: wanted.records_max.unwrap_or(RECORDS).clamp(1, RECORDS_MAX),
        bytes: wanted.bytes_max.unwrap_or(BYTES).clamp(1, BYTES_MAX),
    };
    let wait = wait_of(&app, wanted.wait_ms);
    let wait = async {
        let _ended = draining.run_until_cancelled(tokio::time::sleep(wait)).await;
    };
    let from = from.unwrap_or_default();
    let fetched = Box::pin(app.fetch(session, claim, &from, limits, wait)).await;
    let fetched = fetched.map_err(|why| of_app(&why))?;
    let mut shown = FetchedTask::of(&app, &fetched);
    shown.task = claim.task.to_string();
    shown.epoch = claim.epoch;
    Ok(answer(StatusCode::OK, &shown))
}

impl<'a> FetchedTask<'a> {
    pub(crate) fn of(app: &App, fetched: &'a Fetched) -> Self {
        let stored = app.stored();
        let definition = &stored.definition;
        let topic = definition.topics.get(fetched.input);
        let due = fetched.due.iter();
        Self {
            task: String::new(),
            epoch: 0,
            topic: topic.map(ToString::to_string).unwrap_or_default(),
            due: due
                .map(|timer| (Text::of(&timer.key), timer.due, Text::of(&timer.name)))
                .collect(),
            records: fetched.records.iter().map(RecordShown::of).collect(),
            next: by_topic(definition, &fetched.next),
            end: by_topic(definition, &fetched.end),
            time: Some(fetched.time).filter(|time| *time > i64::MIN),
            gap: fetched.gap.map(|gap| (gap.from, gap.to)),
        }
    }
}

impl<'a> RecordShown<'a> {
    fn of(delivered: &'a Delivered) -> Self {
        let record = &delivered.record;
        let headers = record.headers.iter();
        Self {
            offset: record.offset.0,
            key: record.key.as_deref().map(Text::borrowed),
            value: Value::of(record.value.as_deref(), true),
            timestamp: record.timestamp,
            headers: headers
                .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.map(Text::of)))
                .collect(),
            late: delivered.late,
        }
    }
}
