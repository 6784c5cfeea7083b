//! Runs and their points.

use std::fs;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stafett_http::api::{delete, get, patch, post};
use stafett_http::list::{List, Page};
use stafett_http::{Api, Code, Parameter, Path, Problem, Query, body};

use super::known::Brief;
use super::notes::Notes;
use super::{Lab, events, failed};
use crate::results::{Environment, Folder, OutcomeKind, Point, Run, Status};
use crate::run::live;

const STATE: Parameter = Parameter::text("state", "Only runs in this state.");
const EXPERIMENT: Parameter = Parameter::text("experiment", "Only runs of this experiment.");
const LABEL: Parameter = Parameter::text("label", "Only runs with this label.");
const ARCHIVED: Parameter = Parameter::flag("archived", "Archived runs instead of the others.");
const OUTCOME: Parameter = Parameter::text("outcome", "Only points with this outcome.");

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    let of_run = [Code::NoSuchRun];
    api.route(
        get("/lab/v1/runs", "Lists runs.")
            .lists(&LIST)
            .query(&[STATE, EXPERIMENT, LABEL, ARCHIVED]),
        list,
    )
    .route(
        get("/lab/v1/runs/{id}", "Shows a run, and how far it is.")
            .answers::<Shown>(200)
            .refuses(&of_run),
        show,
    )
    .route(
        patch("/lab/v1/runs/{id}", "Changes the notes of a run.")
            .body::<Changes>()
            .answers::<Notes>(200)
            .refuses(&of_run),
        change,
    )
    .route(
        delete(
            "/lab/v1/runs/{id}",
            "Deletes a run with all its results, or drops one that waits.",
        )
        .refuses(&[Code::NoSuchRun, Code::InUse]),
        remove,
    )
    .route(
        post(
            "/lab/v1/runs/{id}/stop",
            "Ends a run: behind the point under way, or at once, which throws that away.",
        )
        .body::<Stop>()
        .refuses(&[Code::NoSuchRun, Code::InUse]),
        stop,
    )
    .route(
        post("/lab/v1/runs/{id}/archive", "Puts a run aside.")
            .answers::<Notes>(200)
            .refuses(&of_run),
        archive,
    )
    .route(
        post("/lab/v1/runs/{id}/unarchive", "Takes a run out of the archive.")
            .answers::<Notes>(200)
            .refuses(&of_run),
        unarchive,
    )
    .route(
        get(
            "/lab/v1/runs/{id}/points",
            "Lists the points of a run, also those that are not measured yet.",
        )
        .lists(&POINTS)
        .query(&[OUTCOME])
        .refuses(&of_run),
        points,
    )
    .route(
        get(
            "/lab/v1/runs/{id}/points/{number}",
            "Shows a point with all samples.",
        )
        .answers::<Value>(200)
        .refuses(&of_run),
        point,
    )
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunState {
    Queued,
    /// Its program is up, and has measured nothing yet.
    Starting,
    Running,
    Finished,
    /// Ended by its user, or its program was killed. It can be resumed.
    Interrupted,
    /// Ended by an error, such as a full disk. It can be resumed.
    Stopped,
    /// Its program took the request for wrong.
    Refused,
}

impl RunState {
    fn name(self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_str().unwrap_or_default().to_owned()
    }
}

/// A run.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub(super) struct Shown {
    id: String,
    state: RunState,
    experiment: String,
    question: String,
    systems: Vec<String>,
    /// Milliseconds since 1970.
    begun: Option<i64>,
    ended: Option<i64>,
    points: usize,
    done: usize,
    failed: usize,
    lost: usize,
    skipped: usize,
    scale: Option<f64>,
    /// Command that repeats the run.
    command: String,
    /// Reason of an early end.
    reason: Option<String>,
    /// Estimated rest, in s.
    left_s: Option<f64>,
    /// The point under way.
    now: Option<Value>,
    notes: Notes,
    #[schemars(with = "Option<Value>")]
    environment: Option<Environment>,
}

const LIST: List<Shown, Value> = List {
    name: |run| ("", &run.id),
    sorts: &[("begun", |run| {
        u64::try_from(run.begun.unwrap_or(i64::MAX)).unwrap_or(0)
    })],
    shown: |run| {
        let mut value = serde_json::to_value(run).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.remove("environment");
        }
        value
    },
};

/// A point as a list shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Point")]
struct PointLine {
    #[serde(skip)]
    key: String,
    number: u32,
    system: String,
    parameters: Value,
    repetition: u32,
    /// `open` if it is not measured yet.
    outcome: String,
    reason: Option<String>,
    durability: Option<String>,
    /// Figures by name.
    metrics: Value,
    remarks: Vec<String>,
}

const POINTS: List<PointLine, Value> = List {
    name: |point| ("", &point.key),
    sorts: &[("number", |point| u64::from(point.number))],
    shown: |point| serde_json::to_value(point).unwrap_or_default(),
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Stop {
    /// Throws the point under way away.
    now: bool,
}

/// New notes; absent fields stay.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Changes {
    title: Option<String>,
    labels: Option<Vec<String>>,
    text: Option<String>,
}

impl Lab {
    /// Ids of all runs in the folder, those included that wait.
    pub(super) fn run_ids(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.settings.runs).into_iter().flatten();
        let names = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let is_run = super::checked_name(&name).is_ok() && entry.path().is_dir();
            is_run.then_some(name)
        });
        names.collect()
    }

    pub(super) fn run_of(&self, id: &str) -> Result<(Run, Folder), Problem> {
        let folder = Folder::new(self.known_run(id)?);
        let run = folder
            .read_run()
            .map_err(|error| Problem::new(Code::NoSuchRun, error))?;
        Ok((run, folder))
    }

    async fn run_shown(&self, id: &str) -> Result<Shown, Problem> {
        let folder = self.known_run(id)?;
        let notes = Notes::read(&folder);
        let waiting = self.queue.waiting().into_iter().find(|it| it.id == id);
        // In this order: a run that begins meanwhile is alive.
        let is_starting = self.queue.is_starting(id, &folder);
        let is_alive = live::is_alive(&folder).await;
        // Read last: a run that has just ended is no interrupted one.
        let run = self.runs.read(id, &folder);
        let state = match &run {
            _ if waiting.is_some() => RunState::Queued,
            _ if is_alive => RunState::Running,
            _ if is_starting => RunState::Starting,
            None => RunState::Refused,
            Some(run) => match run.status {
                Status::Finished => RunState::Finished,
                Status::Running | Status::Interrupted => RunState::Interrupted,
                Status::Stopped => RunState::Stopped,
            },
        };
        let mut shown = of_run(id, state, run.as_deref(), notes);
        if let Some(waiting) = waiting {
            shown.experiment = waiting.experiment;
        }
        if let Some(run) = &run {
            let outcomes = self.runs.outcomes(id, run, &Folder::new(&folder));
            shown.count(&outcomes);
        }
        if state == RunState::Running {
            let now = events::now(&folder);
            shown.left_s = now.as_ref().and_then(|now| now.get("left_s")?.as_f64());
            shown.now = now;
        }
        Ok(shown)
    }
}

impl Shown {
    fn count(&mut self, outcomes: &[OutcomeKind]) {
        self.done = outcomes.len();
        for outcome in outcomes {
            match outcome {
                OutcomeKind::Done => {}
                OutcomeKind::Lost => self.lost += 1,
                OutcomeKind::Failed | OutcomeKind::Refused => self.failed += 1,
                OutcomeKind::Skipped => self.skipped += 1,
            }
        }
    }
}

fn of_run(id: &str, state: RunState, run: Option<&Brief>, notes: Notes) -> Shown {
    let is_over = !matches!(state, RunState::Running | RunState::Starting | RunState::Queued);
    Shown {
        id: id.to_owned(),
        state,
        experiment: run.map(|run| run.name.clone()).unwrap_or_default(),
        question: run.map(|run| run.question.clone()).unwrap_or_default(),
        systems: run.map(|run| run.systems.clone()).unwrap_or_default(),
        begun: run.map(|run| run.started_ms),
        ended: run.and_then(|run| run.ended_ms).filter(|_| is_over),
        points: run.map_or(0, |run| run.numbers.len()),
        done: 0,
        failed: 0,
        lost: 0,
        skipped: 0,
        scale: run.map(|run| run.scale),
        command: run.map(|run| run.command.clone()).unwrap_or_default(),
        reason: run
            .and_then(|run| run.reason.clone())
            .or_else(|| notes.refused.clone())
            .filter(|_| is_over),
        left_s: None,
        now: None,
        notes,
        environment: run.map(|run| run.environment.clone()),
    }
}

async fn list(State(lab): State<Lab>, query: Query) -> Result<Json<Page<Value>>, Problem> {
    let is_archived = query.flag("archived")?;
    let mut runs = Vec::new();
    for id in lab.run_ids() {
        let Ok(run) = lab.run_shown(&id).await else {
            continue;
        };
        let fits = |key: &str, value: &str| query.get(key).is_none_or(|wanted| wanted == value);
        let has_label = query
            .get("label")
            .is_none_or(|label| run.notes.labels.iter().any(|it| it == label));
        if run.notes.archived == is_archived
            && fits("state", &run.state.name())
            && fits("experiment", &run.experiment)
            && has_label
        {
            runs.push(run);
        }
    }
    LIST.page(&query, runs).map(Json)
}

async fn show(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Json<Shown>, Problem> {
    lab.run_shown(&id).await.map(Json)
}

async fn change(
    State(lab): State<Lab>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<Notes>, Problem> {
    let changes: Changes = body::json(request).await?;
    noted(&lab, &id, |notes| {
        if let Some(title) = changes.title {
            notes.title = Some(title).filter(|title| !title.is_empty());
        }
        notes.labels = changes.labels.unwrap_or_else(|| notes.labels.clone());
        notes.text = changes.text.unwrap_or_else(|| notes.text.clone());
    })
}

fn noted(lab: &Lab, id: &str, change: impl FnOnce(&mut Notes)) -> Result<Json<Notes>, Problem> {
    let folder = lab.known_run(id)?;
    let mut notes = Notes::read(&folder);
    change(&mut notes);
    notes
        .write(&folder)
        .map_err(|error| failed("the notes are not stored", &error))?;
    Ok(Json(notes))
}

async fn archive(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Json<Notes>, Problem> {
    noted(&lab, &id, |notes| notes.archived = true)
}

async fn unarchive(State(lab): State<Lab>, Path(id): Path<String>) -> Result<Json<Notes>, Problem> {
    noted(&lab, &id, |notes| notes.archived = false)
}

async fn remove(State(lab): State<Lab>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    let folder = lab.known_run(&id)?;
    lab.queue.drop_waiting(&id)?;
    if live::is_alive(&folder).await || lab.queue.is_started(&id) {
        let why = "the run is under way; stop it first";
        return Err(Problem::new(Code::InUse, why));
    }
    fs::remove_dir_all(&folder).map_err(|error| failed("the run is not deleted", &error))?;
    lab.runs.forget(&id);
    Ok(StatusCode::NO_CONTENT)
}

async fn stop(
    State(lab): State<Lab>,
    Path(id): Path<String>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let Stop { now } = body::json(request).await?;
    let folder = lab.known_run(&id)?;
    if lab.queue.drop_waiting(&id)? {
        return Ok(StatusCode::ACCEPTED);
    }
    let word = if now { "stop now" } else { "stop" };
    if live::command(&folder, word).await {
        return Ok(StatusCode::ACCEPTED);
    }
    let why = "no program runs the run, or it is just starting";
    Err(Problem::new(Code::InUse, why))
}

async fn points(
    State(lab): State<Lab>,
    Path(id): Path<String>,
    query: Query,
) -> Result<Json<Page<Value>>, Problem> {
    let (run, folder) = lab.run_of(&id)?;
    let mut lines = Vec::new();
    for planned in &run.order {
        let measured = folder
            .has_point(planned.number)
            .then(|| folder.read_point(planned.number).ok())
            .flatten();
        let line = PointLine {
            key: format!("{:06}", planned.number),
            number: planned.number,
            system: planned.system.clone(),
            parameters: json!(planned.parameters),
            repetition: planned.repetition,
            outcome: measured
                .as_ref()
                .map_or("open", |point| point.outcome.kind.name())
                .to_owned(),
            reason: measured.as_ref().and_then(|point| point.outcome.reason.clone()),
            durability: measured.as_ref().map(|point| point.durability.given.clone()),
            metrics: measured
                .as_ref()
                .map_or_else(|| json!({}), |point| json!(point.metrics)),
            remarks: measured.map(|point| point.remarks).unwrap_or_default(),
        };
        if query.get("outcome").is_none_or(|wanted| wanted == line.outcome) {
            lines.push(line);
        }
    }
    POINTS.page(&query, lines).map(Json)
}

async fn point(
    State(lab): State<Lab>,
    Path((id, number)): Path<(String, u32)>,
) -> Result<Json<Point>, Problem> {
    let (_, folder) = lab.run_of(&id)?;
    let point = folder.read_point(number).map_err(|_| {
        let why = format!("run {id:?} has no point {number}, or it is not measured yet");
        Problem::new(Code::NoSuchRun, why)
    })?;
    Ok(Json(point))
}
