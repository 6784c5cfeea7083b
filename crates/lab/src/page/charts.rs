//! Analyses that were kept: questions, in `charts/NAME.json` of the folder of their first run, or of the
//! folder of all runs. They are drawn anew, with points that came later.

use std::fs;
use std::path::PathBuf;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::api::{delete, get, put};
use stafett_http::{Api, Code, Path, Problem, body};

use super::analysis::Question;
use super::{Lab, checked_name, failed, notes};

const FOLDER: &str = "charts";
/// Of analyses without a run: no name of a run.
const LOOSE: &str = ".charts";

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        get("/lab/v1/charts", "Lists analyses that were kept.").answers::<Charts>(200),
        list,
    )
    .route(
        put(
            "/lab/v1/charts/{name}",
            "Keeps an analysis, in place of another of its name.",
        )
        .body::<Question>()
        .answers::<Chart>(200)
        .refuses(&[Code::NoSuchRun]),
        keep,
    )
    .route(
        delete("/lab/v1/charts/{name}", "Forgets an analysis.").refuses(&[Code::NoSuchRun]),
        forget,
    )
}

/// An analysis that was kept.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Chart {
    name: String,
    /// As it was kept, or is sent to `/lab/v1/analyze`.
    #[schemars(with = "serde_json::Value")]
    question: Question,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Charts {
    items: Vec<Chart>,
}

async fn list(State(lab): State<Lab>) -> Json<Charts> {
    let found = lab.charts().into_iter();
    let mut items: Vec<Chart> = found.map(|(_, chart)| chart).collect();
    items.sort_by(|one, other| one.name.cmp(&other.name));
    Json(Charts { items })
}

async fn keep(
    State(lab): State<Lab>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<Chart>, Problem> {
    checked_name(&name)?;
    let question: Question = body::json(request).await?;
    question.check()?;
    let folder = match question.of.first() {
        Some(source) => lab.known_run(&source.run)?.join(FOLDER),
        None => lab.settings.runs.join(LOOSE),
    };
    let former = lab.charts().into_iter().find(|(_, chart)| chart.name == name);
    let path = folder.join(format!("{name}.json"));
    let chart = Chart { name, question };
    let text = serde_json::to_vec_pretty(&chart).map_err(std::io::Error::from);
    text.and_then(|text| notes::put(&path, &text))
        .map_err(|error| failed("the analysis is not stored", &error))?;
    if let Some((former, _)) = former.filter(|(former, _)| *former != path) {
        // It may be gone already.
        let _ = fs::remove_file(former);
    }
    Ok(Json(chart))
}

async fn forget(State(lab): State<Lab>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let found = lab.charts().into_iter().find(|(_, chart)| chart.name == name);
    let why = || Problem::new(Code::NoSuchRun, format!("there is no analysis {name:?}"));
    let (path, _) = found.ok_or_else(why)?;
    fs::remove_file(path).map_err(|error| failed("the analysis is not deleted", &error))?;
    Ok(StatusCode::NO_CONTENT)
}

impl Lab {
    fn charts(&self) -> Vec<(PathBuf, Chart)> {
        let of_runs = self
            .run_ids()
            .into_iter()
            .map(|id| self.run_folder(&id).join(FOLDER));
        let folders = of_runs.chain([self.settings.runs.join(LOOSE)]);
        let files = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
        let read = |path: PathBuf| {
            let chart = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            Some((path, chart))
        };
        files.filter_map(|file| read(file.path())).collect()
    }
}
