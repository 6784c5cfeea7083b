//! Apps, their tasks and workers, as they are shown.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_apps::machine::TaskView;
use stafett_apps::{App, Known, StateTotals};
use stafett_broker::Broker;
use stafett_http::api::get;
use stafett_http::list::List;
use stafett_http::{Code, Path, Problem, Query, Slot};

use super::declare::{BALANCES, GUARANTEES};
use super::find;
use super::settings::{Settings, word};
use super::shape::{ShownOffsets, by_topic};
use crate::content::Text;
use crate::{Routes, answer};

/// An app in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AppEntry {
    name: String,
    topics: Vec<String>,
    tasks: usize,
    workers: usize,
    /// Tasks that no worker has.
    free: usize,
    /// Records between positions and ends.
    lag: u64,
    paused: bool,
    /// Tasks that rest at a gap, at a record or timer that fails, or because a topic is gone or their log
    /// cannot be read.
    stopped: usize,
}

struct Row {
    name: String,
    shown: Shown,
}

const LIST: List<Row, AppEntry> = List {
    name: |row| ("", &row.name),
    sorts: &[
        ("lag", |row| row.shown.lag),
        ("tasks", |row| row.shown.tasks_total as u64),
        ("workers", |row| row.shown.workers.len() as u64),
    ],
    shown: |row| AppEntry {
        name: row.name.clone(),
        topics: row.shown.topics.clone(),
        tasks: row.shown.tasks_total,
        workers: row.shown.workers.len(),
        free: row
            .shown
            .tasks
            .iter()
            .filter(|task| task.worker.is_none())
            .count(),
        lag: row.shown.lag,
        paused: row.shown.paused,
        stopped: row
            .shown
            .tasks
            .iter()
            .filter(|task| !row.shown.lost.is_empty() || task.rests())
            .count(),
    },
};

/// An app with its tasks and workers.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "App")]
struct Shown {
    name: String,
    topics: Vec<String>,
    tables: Vec<String>,
    guarantee: &'static str,
    balance: &'static str,
    durability: String,
    worker_timeout_ms: u64,
    settings: Settings,
    paused: bool,
    /// Records between positions and ends.
    lag: u64,
    /// Topics that are gone. The app rests until each is made again and, if it stops at gaps, accepted.
    lost: Vec<LostShown>,
    tasks_total: usize,
    tasks: Vec<TaskShown>,
    workers: Vec<WorkerShown>,
}

/// A topic that was deleted. Records behind the positions of the tasks, which were not done, are lost.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppLostTopic")]
struct LostShown {
    topic: String,
    /// True if there is another one of its name, with which the app can go on.
    made_again: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppTask")]
struct TaskShown {
    task: String,
    /// `free`, `claiming`, `held` or `revoking`.
    state: &'static str,
    worker: Option<String>,
    epoch: u64,
    pinned: Option<String>,
    /// Claims in this run of the broker.
    moves: u64,
    /// Position and state; null if the log of the task cannot be read.
    position: Option<TaskPosition>,
    /// Offsets that are gone, at which the task rests: topic, from, to.
    gap: Option<(String, u64, u64)>,
    /// Record or timer that fails.
    failure: Option<TaskFailure>,
    /// The reason why no worker can have the task, if its log cannot be read.
    unreadable: Option<String>,
}

/// A record or a timer that keeps failing.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppTaskFailure")]
struct TaskFailure {
    /// Topic and offset of the record.
    topic: Option<String>,
    offset: Option<u64>,
    /// The timer: key, time, and name.
    timer: Option<(Text, i64, Text)>,
    attempts: u32,
    /// Error of the last attempt.
    error: String,
    /// Time of the next attempt, ms since 1970; null if there is none.
    retry: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppTaskPosition")]
struct TaskPosition {
    seq: u64,
    next: ShownOffsets,
    /// Offsets from which another worker would go on.
    safe: ShownOffsets,
    end: ShownOffsets,
    lag: u64,
    #[serde(flatten)]
    state: TaskState,
}

/// State of a task. Its fields are null until a worker has the task, after a start.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "AppTaskState")]
struct TaskState {
    entries: Option<usize>,
    /// Bytes of keys and values of entries, timers and finished keys, about.
    bytes: Option<u64>,
    timers: Option<usize>,
    done: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AppWorker")]
struct WorkerShown {
    name: String,
    weight: u32,
    tasks_max: Option<u32>,
    tasks: u32,
    target: u32,
    /// Reported load, as a share of a core.
    load: f64,
    /// Time since the last sign of life.
    silent_ms: i64,
    draining: bool,
    events_waiting: usize,
}

pub(super) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/apps", "Lists apps.")
                .lists(&LIST)
                .refuses(&[Code::NotServing]),
            list,
        )
        .route(
            get("/v1/apps/{app}", "Shows an app with its tasks and workers.")
                .answers::<Shown>(200)
                .refuses(&[Code::NotServing, Code::NoSuchApp]),
            show,
        )
}

async fn list(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let mut rows = Vec::new();
    for app in broker.apps().all() {
        app.know_positions().await;
        rows.push(Row {
            name: app.name.to_string(),
            shown: Shown::of(&app),
        });
    }
    Ok(answer(StatusCode::OK, &LIST.page(&query, rows)?))
}

async fn show(State(broker): State<Slot<Broker>>, Path(name): Path<String>) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let app = find(&broker, &name)?;
    app.know_positions().await;
    Ok(answer(StatusCode::OK, &Shown::of(&app)))
}

impl Shown {
    fn of(app: &Arc<App>) -> Self {
        let stored = app.stored();
        let it = &stored.definition;
        let (views, workers) =
            app.with_machine(|machine| (machine.tasks().collect::<Vec<_>>(), machine.workers()));
        let tasks: Vec<_> = views.into_iter().map(|view| TaskShown::of(app, view)).collect();
        let now_ms = app.steady_ms();
        Self {
            name: app.name.to_string(),
            topics: it.topics.iter().map(ToString::to_string).collect(),
            tables: it.tables.keys().map(ToString::to_string).collect(),
            guarantee: word(&GUARANTEES, it.guarantee),
            balance: word(&BALANCES, it.balance),
            durability: app.level().to_string(),
            worker_timeout_ms: it.worker_timeout_ms,
            settings: Settings::of(it),
            paused: stored.paused,
            lag: tasks
                .iter()
                .filter_map(|task| Some(task.position.as_ref()?.lag))
                .sum(),
            lost: app
                .lost_topics()
                .into_iter()
                .map(|lost| LostShown {
                    topic: lost.name.into(),
                    made_again: lost.is_made_again,
                })
                .collect(),
            tasks_total: tasks.len(),
            tasks,
            workers: workers
                .into_iter()
                .map(|worker| WorkerShown {
                    name: worker.name.to_string(),
                    weight: worker.weight,
                    tasks_max: worker.tasks_max,
                    tasks: worker.tasks,
                    target: worker.target,
                    load: worker.load as f64 / 1000.0,
                    silent_ms: now_ms.saturating_sub(worker.seen_ms).max(0),
                    draining: worker.draining,
                    events_waiting: worker.events_waiting,
                })
                .collect(),
        }
    }
}

impl TaskShown {
    fn rests(&self) -> bool {
        let has_failed = |failure: &TaskFailure| failure.retry.is_none();
        self.gap.is_some() || self.unreadable.is_some() || self.failure.as_ref().is_some_and(has_failed)
    }

    fn of(app: &App, view: TaskView) -> Self {
        let stored = app.stored();
        let definition = &stored.definition;
        let position = app.known(view.task).map(|Known { position, totals }| {
            let (ends, lag) = app.ends(view.task, &position.next);
            let names = definition.topics.iter().map(ToString::to_string);
            let end = names.zip(ends).filter_map(|(name, end)| Some((name, end?)));
            TaskPosition {
                seq: position.seq,
                next: by_topic(definition, &position.next),
                safe: by_topic(definition, &position.safe),
                end: end.collect(),
                lag,
                state: totals.map(TaskState::of).unwrap_or_default(),
            }
        });
        let gap = app.gap(view.task).map(|gap| {
            let topic = definition.topics.get(gap.input);
            (
                topic.map(ToString::to_string).unwrap_or_default(),
                gap.from,
                gap.to,
            )
        });
        let failure = app.failure(view.task).map(|(input, failure)| TaskFailure {
            topic: Some(definition.topic(input).into()).filter(|_| failure.timer.is_none()),
            offset: Some(failure.offset).filter(|_| failure.timer.is_none()),
            timer: failure
                .timer
                .as_ref()
                .map(|timer| (Text::of(&timer.key), timer.due, Text::of(&timer.name))),
            attempts: failure.attempts,
            error: failure.last_error().to_owned(),
            retry: Some(failure.retry_ms).filter(|at| *at < i64::MAX),
        });
        Self {
            task: view.task.to_string(),
            state: view.state,
            worker: view.worker.map(|worker| worker.to_string()),
            epoch: view.epoch,
            pinned: view.pin.map(|worker| worker.to_string()),
            moves: view.moves,
            position,
            gap,
            failure,
            unreadable: app.unreadable(view.task),
        }
    }
}

impl TaskState {
    fn of(totals: StateTotals) -> Self {
        Self {
            entries: Some(totals.entries),
            bytes: Some(totals.bytes),
            timers: Some(totals.timers),
            done: Some(totals.done),
        }
    }
}
