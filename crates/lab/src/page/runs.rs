//! Runs and their points.

mod shown;

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

use self::shown::Shown;
use super::notes::Notes;
use super::{Lab, failed};
use crate::results::Point;
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

impl Lab {}

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
