//! Experiments: those that come with the program, which are never changed, and own ones in a folder.

use std::fs;
use std::path::PathBuf;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use stafett_http::api::{delete, get, put};
use stafett_http::body::{self, Limit};
use stafett_http::list::{List, Page};
use stafett_http::{Api, Code, Parameter, Path, Problem, Query};

use super::{Lab, checked_name, failed, notes};
use crate::experiment::{Experiment, Source, library};

/// Bytes of an experiment.
const TEXT: Limit = Limit {
    bytes_max: 1 << 20,
    setting: "of an experiment",
};
const CLONE: Parameter = Parameter::text("clone", "Name of an experiment whose text is taken.");

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        get("/lab/v1/experiments", "Lists experiments.").lists(&LIST),
        list,
    )
    .route(
        get("/lab/v1/experiments/{name}", "Shows an experiment.")
            .answers::<Shown>(200)
            .refuses(&[Code::NoSuchExperiment]),
        show,
    )
    .route(
        put(
            "/lab/v1/experiments/{name}",
            "Stores an own experiment: TOML as the body, or a clone. It need not be right yet.",
        )
        .query(&[CLONE])
        .answers::<Shown>(200)
        .answers::<Shown>(201)
        .refuses(&[Code::NoSuchExperiment, Code::IsDefault, Code::Changed]),
        store,
    )
    .route(
        delete("/lab/v1/experiments/{name}", "Deletes an own experiment.")
            .refuses(&[Code::NoSuchExperiment, Code::IsDefault]),
        remove,
    )
}

/// An experiment.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) is_own: bool,
    pub(super) source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Origin {
    /// It came with the program.
    BuiltIn,
    Own,
}

/// An experiment in a list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Experiment")]
struct Line {
    name: String,
    origin: Origin,
    /// Empty if the text is no experiment yet.
    question: String,
    note: String,
    systems: Vec<String>,
    /// Reason why the text is no experiment.
    error: Option<String>,
}

/// An experiment with its text.
#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    name: String,
    origin: Origin,
    toml: String,
    /// The experiment as it was read; null if the text is none yet.
    #[schemars(with = "Option<Value>")]
    parsed: Option<Experiment>,
    error: Option<String>,
}

const LIST: List<Line, Line> = List {
    name: |line| ("", &line.name),
    sorts: &[],
    shown: |line| Line {
        name: line.name.clone(),
        origin: line.origin,
        question: line.question.clone(),
        note: line.note.clone(),
        systems: line.systems.clone(),
        error: line.error.clone(),
    },
};

impl Found {
    fn origin(&self) -> Origin {
        if self.is_own { Origin::Own } else { Origin::BuiltIn }
    }

    fn line(&self) -> Line {
        let (experiment, error) = match self.source.experiment() {
            Ok(experiment) => (Some(experiment), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (question, note, systems) = experiment
            .map(|it| (it.question, it.note, it.systems))
            .unwrap_or_default();
        Line {
            name: self.name.clone(),
            origin: self.origin(),
            question,
            note,
            systems,
            error,
        }
    }

    fn shown(self) -> Shown {
        let (parsed, error) = match self.source.experiment() {
            Ok(experiment) => (Some(experiment), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Shown {
            origin: self.origin(),
            name: self.name,
            toml: self.source.text,
            parsed,
            error,
        }
    }

    fn tag(&self) -> String {
        let hash = Sha256::digest(self.source.text.as_bytes());
        format!("\"{}\"", URL_SAFE_NO_PAD.encode(hash))
    }
}

impl Lab {
    /// File of an own experiment.
    pub(super) fn experiment_path(&self, name: &str) -> PathBuf {
        self.settings.experiments.join(format!("{name}.toml"))
    }

    /// Returns the experiment of a name. An own one of the same name as a built-in one cannot be stored.
    pub(super) fn experiment(&self, name: &str) -> Result<Found, Problem> {
        let name = checked_name(name)?.to_owned();
        if let Some(source) = library::find(&name) {
            return Ok(Found {
                name,
                is_own: false,
                source,
            });
        }
        let path = self.experiment_path(&name);
        let Ok(text) = fs::read_to_string(path) else {
            let why = format!("there is no experiment {name:?}");
            return Err(Problem::new(Code::NoSuchExperiment, why));
        };
        let place = format!("{name}.toml");
        Ok(Found {
            name,
            is_own: true,
            source: Source { place, text },
        })
    }

    fn own_names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.settings.experiments).into_iter().flatten();
        let names = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.strip_suffix(".toml").map(str::to_owned)
        });
        names.collect()
    }
}

async fn list(State(lab): State<Lab>, query: Query) -> Result<Json<Page<Value>>, Problem> {
    // Every grid is read whole, which takes some milliseconds.
    let read = tokio::task::spawn_blocking(move || {
        let built_in = library::EXPERIMENTS.iter().map(|(name, _)| (*name).to_owned());
        let all = built_in.chain(lab.own_names());
        let found = all.filter_map(|name| lab.experiment(&name).ok());
        found.map(|found| found.line()).collect::<Vec<_>>()
    });
    let lines = read
        .await
        .map_err(|error| Problem::new(Code::Unreadable, error))?;
    LIST.page(&query, lines).map(Json)
}

async fn show(State(lab): State<Lab>, Path(name): Path<String>) -> Result<Response, Problem> {
    let found = lab.experiment(&name)?;
    let tag = found.tag();
    Ok(([(header::ETAG, tag)], Json(found.shown())).into_response())
}

async fn store(
    State(lab): State<Lab>,
    Path(name): Path<String>,
    headers: HeaderMap,
    query: Query,
    request: Request,
) -> Result<Response, Problem> {
    let name = checked_name(&name)?.to_owned();
    let before = lab.experiment(&name).ok();
    if before.as_ref().is_some_and(|found| !found.is_own) {
        return Err(built_in(&name));
    }
    if let Some(wanted) = headers.get(header::IF_MATCH) {
        let tag = before.as_ref().map(Found::tag);
        if tag.as_deref().map(str::as_bytes) != Some(wanted.as_bytes()) {
            let why = "the experiment was changed meanwhile; read it again";
            return Err(Problem::new(Code::Changed, why));
        }
    }
    let text = match query.get("clone") {
        Some(other) => lab.experiment(other)?.source.text,
        None => body::read(request, TEXT).await?.text()?.to_owned(),
    };
    let path = lab.experiment_path(&name);
    notes::put(&path, text.as_bytes()).map_err(|error| failed("the experiment is not stored", &error))?;
    let status = if before.is_some() {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let found = lab.experiment(&name)?;
    let tag = found.tag();
    Ok((status, [(header::ETAG, tag)], Json(found.shown())).into_response())
}

async fn remove(State(lab): State<Lab>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let found = lab.experiment(&name)?;
    if !found.is_own {
        return Err(built_in(&name));
    }
    fs::remove_file(lab.experiment_path(&name))
        .map_err(|error| failed("the experiment is not deleted", &error))?;
    Ok(StatusCode::NO_CONTENT)
}

fn built_in(name: &str) -> Problem {
    let why = format!("{name} comes with the program and stays as it is; clone it under another name");
    Problem::new(Code::IsDefault, why)
}
