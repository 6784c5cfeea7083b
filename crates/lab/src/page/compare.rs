//! `/lab/v1/compare`: two or more runs beside each other.

use axum::Json;
use axum::extract::State;
use serde_json::Value;
use stafett_http::api::get;
use stafett_http::{Api, Code, Parameter, Problem, Query};

use super::Lab;
use crate::report;

const RUNS_MAX: usize = 20;

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        get(
            "/lab/v1/compare",
            "Compares runs: ratios of a figure to that of the first run, for the same system with the same parameters, \
             with 95 % intervals.",
        )
        .query(&[
            Parameter::text("runs", "Ids of 2 to 20 runs, with commas; the first is the base."),
            Parameter::text("metric", "Name of the figure; the first that the experiment draws if it is absent."),
        ])
        .answers::<Value>(200)
        .refuses(&[Code::NoSuchRun]),
        compare,
    )
}

async fn compare(State(lab): State<Lab>, query: Query) -> Result<Json<Value>, Problem> {
    let ids: Vec<&str> = query.get("runs").unwrap_or_default().split(',').collect();
    if !(2..=RUNS_MAX).contains(&ids.len()) {
        return Err(Problem::bad_request(format!(
            "runs are ids of 2 to {RUNS_MAX} runs, with commas"
        )));
    }
    let mut folders = Vec::new();
    for id in ids {
        folders.push(lab.known_run(id)?);
    }
    let metric = query.get("metric").map(str::to_owned);
    let compared = tokio::task::spawn_blocking(move || report::compared(&folders, metric.as_deref())).await;
    let compared = compared
        .map_err(|error| Problem::new(Code::Unreadable, error))?
        .map_err(|error| Problem::new(Code::NoSuchRun, error))?;
    let compared = compared
        .ok_or_else(|| Problem::bad_request("metric is the name of a figure, such as produce_rate"))?;
    Ok(Json(compared))
}
