//! Sinks: definitions that the broker keeps, and their state as the runner tells it.
//!
//! The meaning of a definition, and the process that runs it, are behind the trait [`SinkDesk`], as this
//! crate knows neither.
//!
//! - `define`: definitions stored, changed and deleted
//! - `lag`: positions and ends, as the broker knows them
//! - `manage`: pauses, positions and replays

mod define;
mod lag;
mod manage;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use stafett_broker::{Broker, SinkError, StoredSink};
use stafett_http::api::get;
use stafett_http::list::List;
use stafett_http::{Code, Path, Problem, Query, Slot};

use crate::node::Commanded;
use crate::{Routes, answer, refusals};
pub use lag::measure;

/// Silence of a runner behind which its states are no longer believed.
const SILENCE: Duration = Duration::from_secs(10);

/// Desk of the sinks of this process.
pub trait SinkDesk: Debug + Send + Sync {
    /// Reads a definition. Refuses one that is not sound, with its words.
    fn read(&self, name: &str, definition: &str) -> Result<SinkTerms, String>;
    /// Returns the latest state of each sink that the runner knows.
    fn states(&self) -> BTreeMap<String, SinkState>;
    /// Returns the time since the runner told them; `None` without a runner.
    fn silence(&self) -> Option<Duration>;
    /// Returns the positions in the target.
    fn positions(&self, name: &str) -> Commanded<Vec<SinkPosition>>;
    /// Stops the sink, sets positions, and has it go on.
    fn replay(&self, name: &str, replay: SinkReplay) -> Commanded<Vec<SinkPosition>>;
    /// Stops the sink, and has it go on behind all that is gone.
    fn accept_gap(&self, name: &str) -> Commanded<Vec<SinkPosition>>;
}

/// Parts of a definition that others than its runner need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkTerms {
    pub from: Vec<String>,
    /// True if the records are those of this broker.
    pub is_own: bool,
    pub to: &'static str,
    /// Topics of this broker with the tables in which it looks records up.
    pub tables: Vec<String>,
    /// Topic of this broker into which it writes.
    pub topic: Option<String>,
    pub promise: String,
    /// App of the claims.
    pub app: String,
    /// Topic of records that are not written.
    pub dead: String,
    /// True if the target has the positions, and not the app.
    pub has_positions: bool,
}

/// State of a sink in the runner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SinkState {
    /// `running`, `retrying`, `paused`, `quiet`, `stopped`, or `waiting` for a runner.
    pub state: String,
    /// Reason of a state that is not `running`; empty otherwise.
    pub why: String,
    /// Rows and bytes written since the runner started.
    pub rows: u64,
    pub bytes: u64,
    /// Records that went to the dead letters; and by class: `not_json`, `type`, `refused` and others.
    pub poison: u64,
    pub poison_classes: BTreeMap<String, u64>,
    /// Records that conditions left out, and those of them on which a condition failed.
    pub dropped: u64,
    pub expression_errors: u64,
    /// Time spent on flushes, and waiting before them; and by reason: `rate`, `turn` or `quiet`.
    pub flush_ms: u64,
    pub limited_ms: u64,
    pub limits_ms: BTreeMap<String, u64>,
    /// Flushes at a time, as the target bears them; 0 before the first one.
    pub parallel: u64,
    /// Flushes by cause: `full`, `bytes`, `time`, `stop` or `begun`.
    pub flushes: BTreeMap<String, u64>,
    /// Failed attempts by class: `retry` or `stop`.
    pub retries: BTreeMap<String, u64>,
    /// Flushes by their time: of at most 5, 25, 100, 500, 2,500, 10,000 and 60,000 ms, and longer ones.
    pub flush_times: Vec<u64>,
    /// Records that were looked up in tables, by result: `found` or `missing`.
    pub lookups: BTreeMap<String, u64>,
    /// Rows and bytes of these tables.
    pub table_rows: u64,
    pub table_bytes: u64,
    /// Times that another writer had taken a partition over.
    pub fenced: u64,
    pub places: Vec<SinkPlace>,
}

/// A partition of a sink in the runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SinkPlace {
    pub topic: String,
    pub partition: u32,
    /// Next offset that the target does not have.
    pub next: u64,
    /// Offset behind the last record, as it was read last.
    pub end: u64,
    /// Time stamp of the first record that the target does not have, in ms since 1970, as far as it was read.
    pub oldest_ms: Option<i64>,
    /// Time stamp of the newest record that the runner has brought into the target, in ms since 1970.
    pub newest_ms: Option<i64>,
}

/// A position in a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SinkPosition {
    pub topic: String,
    pub partition: u32,
    /// Next offset that the target does not have.
    pub next: u64,
}

/// Positions from which a sink goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SinkReplay {
    /// `earliest`, `latest`, or a time: for all partitions.
    pub from: Option<String>,
    /// Single positions instead.
    #[serde(default)]
    pub positions: Vec<SinkPosition>,
}

/// A sink in a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SinkSummary")]
struct Summary {
    name: String,
    from: Vec<String>,
    to: &'static str,
    /// `exactly once` or `at least once`.
    promise: String,
    #[serde(flatten)]
    state: SinkState,
    /// Records that the target does not have.
    lag: u64,
    /// Milliseconds since the runner told the state; null without a runner.
    told_ms_ago: Option<u64>,
}

/// A sink with its definition.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Sink")]
struct Shown {
    #[serde(flatten)]
    summary: Summary,
    #[schemars(with = "serde_json::Value")]
    definition: Box<RawValue>,
}

/// A sink, and its state.
struct Known {
    name: Box<str>,
    terms: SinkTerms,
    state: SinkState,
    told_ms_ago: Option<u64>,
}

const LIST: List<Known, Summary> = List {
    name: |known| ("", &known.name),
    sorts: &[],
    shown: summary,
};

pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get(
                "/v1/sinks",
                "Lists the sinks that the broker keeps, with their state.",
            )
            .lists(&LIST)
            .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            get("/v1/sinks/{sink}", "Shows a sink: its definition and its state.")
                .answers::<Shown>(200)
                .refuses(&[Code::NotServing, Code::NoSuchSink]),
            show,
        )
        .with(define::routes)
        .with(manage::routes)
}

/// Reads a stored definition. One that an earlier version took may be none to this one.
fn terms(desk: &dyn SinkDesk, name: &str, sink: &StoredSink) -> Result<SinkTerms, Problem> {
    desk.read(name, &sink.definition).map_err(bad_definition)
}

fn bad_definition(why: String) -> Problem {
    Problem::new(Code::BadDefinition, why)
}

async fn known(
    broker: &Broker,
    desk: &dyn SinkDesk,
    name: &str,
    sink: &StoredSink,
    state: Option<SinkState>,
) -> Known {
    let silence = desk.silence();
    let mut state = state.unwrap_or_else(|| SinkState {
        state: "waiting".to_owned(),
        why: "no runner has it yet".to_owned(),
        ..SinkState::default()
    });
    let terms = match desk.read(name, &sink.definition) {
        Ok(terms) => terms,
        Err(why) => {
            (state.state, state.why) = ("stopped".to_owned(), why);
            SinkTerms {
                from: Vec::new(),
                is_own: false,
                tables: Vec::new(),
                to: "",
                topic: None,
                promise: String::new(),
                app: String::new(),
                dead: String::new(),
                has_positions: false,
            }
        }
    };
    lag::read_positions(broker, &terms, &state).await;
    measure(broker, &terms, &mut state);
    mark_silence(&mut state, silence);
    if sink.rests {
        "paused".clone_into(&mut state.state);
    }
    Known {
        name: name.into(),
        terms,
        state,
        told_ms_ago: silence.map(|silence| u64::try_from(silence.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// Marks a state as one of a runner that says nothing, if it has said nothing for too long.
pub fn mark_silence(state: &mut SinkState, silence: Option<Duration>) {
    if let Some(silence) = silence.filter(|silence| *silence > SILENCE) {
        "waiting".clone_into(&mut state.state);
        state.why = format!("the runner has said nothing for {} s", silence.as_secs());
    }
}

fn summary(known: &Known) -> Summary {
    let lag = known
        .state
        .places
        .iter()
        .map(|place| place.end.saturating_sub(place.next));
    Summary {
        name: known.name.to_string(),
        from: known.terms.from.clone(),
        to: known.terms.to,
        promise: known.terms.promise.clone(),
        lag: lag.sum(),
        told_ms_ago: known.told_ms_ago,
        state: known.state.clone(),
    }
}

fn find(broker: &Broker, name: &str) -> Result<std::sync::Arc<StoredSink>, Problem> {
    broker
        .sinks()
        .named(name)
        .ok_or_else(|| of_sink(SinkError::NoSuchSink))
}

fn of_sink(error: SinkError) -> Problem {
    match error {
        SinkError::NoSuchSink => Problem::new(Code::NoSuchSink, error),
        SinkError::TooMany => Problem::new(Code::TooManySinks, error),
        SinkError::NotStored(why) => refusals::of_storage(why, why),
    }
}

async fn list(
    State(broker): State<Slot<Broker>>,
    State(desk): State<Desk>,
    query: Query,
) -> Result<Response, Problem> {
    let mut states = desk.states();
    let broker = broker.get()?;
    let mut all = Vec::new();
    for (name, sink) in broker.sinks().all() {
        let state = states.remove(&*name);
        all.push(known(&broker, &*desk, &name, &sink, state).await);
    }
    Ok(answer(StatusCode::OK, &LIST.page(&query, all)?))
}

async fn show(
    State(broker): State<Slot<Broker>>,
    State(desk): State<Desk>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let sink = find(&broker, &name)?;
    let state = desk.states().remove(&name);
    let definition = RawValue::from_string(sink.definition.to_string());
    let shown = Shown {
        summary: summary(&known(&broker, &*desk, &name, &sink, state).await),
        definition: definition.unwrap_or_default(),
    };
    Ok(answer(StatusCode::OK, &shown))
}

/// The desk, as routes have it.
pub type Desk = std::sync::Arc<dyn SinkDesk>;
