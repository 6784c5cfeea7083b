//! Runs that wait, in `queue.json`, and the program of the one that is under way.
//!
//! One run at a time: the next begins when no program runs one in the folder, be it of the page or of the
//! command line.

mod working;

use std::fs;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::api::{get, post, put};
use stafett_http::{Api, Code, Path, Problem, body};
use stafett_model::Lock;
use tokio::sync::Notify;

pub(super) use self::working::run;
use super::notes::Notes;
use super::{Lab, failed, notes};
use crate::experiment::check::SYSTEMS;
use crate::results::{Folder, Run};
use crate::run::{live, now_ms};

/// File of the queue, in the folder of the runs.
pub(super) const FILE: &str = "queue.json";
/// Standard error of the program of a run.
pub(super) const OUTPUT: &str = "output.log";
/// Text of the experiment of a run that goes on, in its folder.
const EXPERIMENT: &str = "experiment.toml";
const WAITING_MAX: usize = 100;
/// Time between two looks at the folder.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        post(
            "/lab/v1/runs",
            "Puts a run into the queue; it begins at once if none is under way.",
        )
        .body::<Asked>()
        .answers::<Waiting>(202)
        .refuses(&[Code::NoSuchExperiment, Code::Overloaded, Code::BadSettings]),
        add,
    )
    .route(
        post(
            "/lab/v1/runs/{id}/resume",
            "Puts a run that has ended before its last point into the queue again.",
        )
        .answers::<Waiting>(202)
        .refuses(&[Code::NoSuchRun, Code::InUse, Code::Overloaded, Code::BadSettings]),
        resume,
    )
    .route(
        get("/lab/v1/queue", "Lists runs that wait, in their order.").answers::<Order>(200),
        list,
    )
    .route(
        put(
            "/lab/v1/queue",
            "Changes the order of runs that wait; those that are not named are dropped.",
        )
        .body::<NewOrder>()
        .answers::<Order>(200)
        .refuses(&[Code::NoSuchRun]),
        reorder,
    )
}

/// A run to begin.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Asked {
    experiment: String,
    /// Factor of durations and totals; 1 if absent.
    scale: Option<f64>,
    /// The whole grid, with the experiment's `[full]`.
    #[serde(default)]
    full: bool,
    /// Only these systems.
    systems: Option<Vec<String>>,
    repetitions: Option<u32>,
    /// Agents that carry the load, each `[NAME=]HOST:PORT`.
    #[serde(default)]
    agents: Vec<String>,
    /// Systems that run already: addresses by name.
    #[serde(default)]
    addresses: std::collections::BTreeMap<String, String>,
    /// Address of this machine at which agents find systems that are started here.
    host: Option<String>,
    /// Time before which it does not begin, in ms since 1970.
    not_before: Option<i64>,
    /// Id of a run that has to end first.
    after: Option<String>,
    title: Option<String>,
    #[serde(default)]
    labels: Vec<String>,
    /// Revision that was built before, whose broker is the system `stafett`.
    build: Option<String>,
}

/// A run that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Waiting {
    pub(super) id: String,
    pub(super) experiment: String,
    /// Arguments of the program behind `run`.
    arguments: Vec<String>,
    not_before: Option<i64>,
    after: Option<String>,
    /// Milliseconds since 1970.
    pub(super) asked_at: i64,
}

/// Runs that wait.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
struct Order {
    items: Vec<Waiting>,
}

/// Ids in their new order.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewOrder {
    ids: Vec<String>,
}

/// A run whose program was started by this process and has not been waited for.
#[derive(Debug, Clone)]
pub(super) struct Started {
    id: String,
    /// Length of its `live.ndjson` before, in bytes. The program adds a line when its socket is up.
    live_bytes: u64,
}

/// The queue of one folder.
#[derive(Debug)]
pub(super) struct Queue {
    path: PathBuf,
    waiting: Lock<Vec<Waiting>>,
    started: Lock<Option<Started>>,
    changed: Notify,
}

impl Queue {
    pub(super) fn open(runs: &FilePath) -> io::Result<Self> {
        let path = runs.join(FILE);
        let order: Order = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Order::default(),
            Err(error) => return Err(error),
        };
        Ok(Self {
            path,
            waiting: Lock::new(order.items),
            started: Lock::new(None),
            changed: Notify::new(),
        })
    }

    pub(super) fn waiting(&self) -> Vec<Waiting> {
        self.waiting.lock().clone()
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.started.lock().is_none() && self.waiting.lock().is_empty()
    }

    /// Returns true while this process waits for the program of a run.
    pub(super) fn has_started(&self) -> bool {
        self.started.lock().is_some()
    }

    /// Returns true from the start of a run's program until it was waited for.
    pub(super) fn is_started(&self, id: &str) -> bool {
        self.started.lock().as_ref().is_some_and(|it| it.id == id)
    }

    /// Returns true while the program of a run is up, and has not begun yet.
    pub(super) fn is_starting(&self, id: &str, folder: &FilePath) -> bool {
        let started = self.started.lock().clone();
        started.is_some_and(|it| it.id == id && it.live_bytes == live::bytes(folder))
    }

    /// Changes the queue, and stores it; a queue that cannot be stored stays as it is.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Waiting>) -> Result<T, Problem>) -> Result<T, Problem> {
        let mut waiting = self.waiting.lock();
        let mut items = waiting.clone();
        let done = change(&mut items)?;
        let order = Order { items };
        let text = serde_json::to_vec_pretty(&order).map_err(io::Error::from);
        text.and_then(|text| notes::put(&self.path, &text))
            .map_err(|error| failed("the queue is not stored", &error))?;
        *waiting = order.items;
        drop(waiting);
        self.changed.notify_one();
        Ok(done)
    }

    /// Drops a run that waits. Returns false if it does not wait.
    pub(super) fn drop_waiting(&self, id: &str) -> Result<bool, Problem> {
        if !self.waiting.lock().iter().any(|it| it.id == id) {
            return Ok(false);
        }
        self.change(|waiting| {
            waiting.retain(|it| it.id != id);
            Ok(true)
        })
    }
}

async fn add(State(lab): State<Lab>, request: Request) -> Result<(StatusCode, Json<Waiting>), Problem> {
    let asked: Asked = body::json(request).await?;
    let found = lab.experiment(&asked.experiment)?;
    if let Err(error) = found.source.experiment() {
        return Err(Problem::new(Code::BadSettings, error));
    }
    let place = if found.is_own {
        lab.experiment_path(&found.name).display().to_string()
    } else {
        found.name.clone()
    };
    let mut arguments = vec![place];
    arguments.extend(options(&asked)?);
    arguments.extend(lab.broker_of(asked.build.as_deref())?);
    let now = now_ms();
    let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let id = lab.free_id(&format!("{}-{time}", found.name));
    let waiting = Waiting {
        id: id.clone(),
        experiment: found.name,
        arguments,
        not_before: asked.not_before,
        after: asked.after,
        asked_at: now,
    };
    let notes = Notes {
        title: asked.title,
        labels: asked.labels,
        build: asked.build,
        ..Notes::default()
    };
    notes
        .write(&lab.run_folder(&id))
        .map_err(|error| failed("the notes are not stored", &error))?;
    let waiting = lab.put_last(waiting)?;
    Ok((StatusCode::ACCEPTED, Json(waiting)))
}

/// Returns a request as options of the command line. Refuses values that the command would refuse.
fn options(asked: &Asked) -> Result<Vec<String>, Problem> {
    let mut options = Vec::new();
    if let Some(scale) = asked.scale {
        if !(0.001..=1000.0).contains(&scale) {
            return Err(Problem::bad_request("scale is 0.001 to 1000"));
        }
        options.push(format!("--scale={scale}"));
    }
    if asked.full {
        if asked.scale.is_some_and(|scale| scale < 1.0) {
            return Err(Problem::bad_request("full is for a scale of 1 or more"));
        }
        options.push("--full".to_owned());
    }
    if asked.repetitions.is_some_and(|it| !(1..=1000).contains(&it)) {
        return Err(Problem::bad_request("repetitions are 1 to 1000"));
    }
    options.extend(asked.repetitions.map(|it| format!("--repetitions={it}")));
    for system in asked.systems.iter().flatten() {
        if !SYSTEMS.contains(&system.as_str()) {
            let why = format!("{system:?} is no system; expected {}", SYSTEMS.join(", "));
            return Err(Problem::bad_request(why));
        }
        options.push(format!("--system={system}"));
    }
    options.extend(asked.agents.iter().map(|agent| format!("--agent={agent}")));
    let addresses = asked.addresses.iter();
    options.extend(addresses.map(|(system, address)| format!("--address={system}={address}")));
    options.extend(asked.host.iter().map(|host| format!("--host={host}")));
    Ok(options)
}

async fn resume(
    State(lab): State<Lab>,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Waiting>), Problem> {
    let folder = lab.known_run(&id)?;
    let run = Folder::new(&folder)
        .read_run()
        .map_err(|error| Problem::new(Code::NoSuchRun, error))?;
    if live::is_alive(&folder).await || lab.queue.is_started(&id) {
        return Err(Problem::new(Code::InUse, "the run is under way"));
    }
    if run
        .order
        .iter()
        .all(|planned| Folder::new(&folder).has_point(planned.number))
    {
        return Err(Problem::new(Code::InUse, "the run has all its points"));
    }
    lab.go_on(id, &folder, &run)
}

impl Lab {
    /// Puts a run into the queue again, for the points that it lacks.
    pub(super) fn go_on(
        &self,
        id: String,
        folder: &FilePath,
        run: &Run,
    ) -> Result<(StatusCode, Json<Waiting>), Problem> {
        // The text of then: the experiment may have been changed since.
        let text = folder.join(EXPERIMENT);
        notes::put(&text, run.source.as_bytes())
            .map_err(|error| failed("the experiment is not stored", &error))?;
        let mut arguments = again(run, &text);
        arguments.extend(self.broker_of(Notes::read(folder).build.as_deref())?);
        let waiting = Waiting {
            arguments,
            experiment: run.name.clone(),
            id,
            not_before: None,
            after: None,
            asked_at: now_ms(),
        };
        let waiting = self.put_last(waiting)?;
        Ok((StatusCode::ACCEPTED, Json(waiting)))
    }
}

/// Returns the arguments with which a run goes on: those that were asked for when it began.
fn again(run: &Run, text: &FilePath) -> Vec<String> {
    let asked = run.asked.clone().unwrap_or_default();
    let mut arguments = vec![text.display().to_string(), format!("--scale={}", run.scale)];
    if asked.repetitions > 0 {
        arguments.push(format!("--repetitions={}", asked.repetitions));
    }
    arguments.extend(asked.systems.iter().map(|system| format!("--system={system}")));
    arguments.extend(asked.agents.iter().map(|agent| format!("--agent={agent}")));
    let addresses = asked.addresses.iter();
    arguments.extend(addresses.map(|(system, address)| format!("--address={system}={address}")));
    arguments.extend(asked.clients.iter().map(|program| format!("--clients={program}")));
    arguments
}

async fn list(State(lab): State<Lab>) -> Json<Order> {
    Json(Order {
        items: lab.queue.waiting(),
    })
}

async fn reorder(State(lab): State<Lab>, request: Request) -> Result<Json<Order>, Problem> {
    let NewOrder { ids } = body::json(request).await?;
    let items = lab.queue.change(|waiting| {
        let mut ordered = Vec::new();
        for id in &ids {
            let place = waiting.iter().position(|it| it.id == *id);
            let place = place.ok_or_else(|| {
                Problem::new(
                    Code::NoSuchRun,
                    format!("no run {id:?} waits, or it is named twice"),
                )
            })?;
            ordered.push(waiting.remove(place));
        }
        waiting.clone_from(&ordered);
        Ok(ordered)
    })?;
    Ok(Json(Order { items }))
}
