//! `/lab/v1/analyze`: a question about points of runs or about performance logs becomes series, window by
//! window, with the front and the end cut off, a middle and a band.
//!
//! - [`points`]: series of points; bands of several seconds come from merged histograms, never from
//!   percentiles of percentiles
//! - [`written`]: a chart, CSV, or data and commands of gnuplot

mod points;
mod written;

use std::path::PathBuf;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::api::post;
use stafett_http::{Api, Code, Parameter, Problem, Query, body};

use super::Lab;
use crate::analysis;

const SOURCES_MAX: usize = 32;
const SERIES_MAX: usize = 64;
const AS: Parameter = Parameter::text(
    "as",
    "Form of the answer: `json`, the default, `svg`, `csv` or `gnuplot`.",
);

pub(super) fn routes(api: Api<Lab>) -> Api<Lab> {
    api.route(
        post(
            "/lab/v1/analyze",
            "Answers a question about points of runs, or about performance logs, with series.",
        )
        .query(&[AS])
        .body::<Question>()
        .answers::<Answer>(200)
        .refuses(&[Code::NoSuchRun, Code::Unreadable]),
        analyze,
    )
}

/// A question about measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AnalysisQuestion")]
pub(super) struct Question {
    /// Points of runs.
    #[serde(default)]
    pub(super) of: Vec<Source>,
    /// Folders with performance logs of brokers and clients, instead of runs.
    #[serde(default)]
    pub(super) logs: Vec<PathBuf>,
    /// Of logs: `request`, its parts `receive`, `process`, `store` and `send`, and `append`, `sync`.
    #[serde(default)]
    actions: Vec<String>,
    /// Of logs: names of requests, with `*` for any letters.
    name: Option<String>,
    #[serde(default)]
    pub(super) what: What,
    /// Length of a window, in s: 1, or a multiple of 10.
    #[serde(default = "ten")]
    window_s: u32,
    #[serde(default)]
    cut: Cut,
    #[serde(default)]
    stat: Stat,
    /// Percentiles around the middle; null for none.
    #[serde(default = "usual")]
    band: Option<(f64, f64)>,
    /// Parts of a series' name: `run`, `system`, `role`, `point`, `repetition`, `durability`, or a path of
    /// the grid. Sources that are alike in them are one series.
    #[serde(default = "by_default")]
    by: Vec<String>,
    pub(super) title: Option<String>,
    #[serde(default)]
    log_y: bool,
}

/// Points of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AnalysisSource")]
pub(super) struct Source {
    pub(super) run: String,
    /// All if it is empty.
    #[serde(default)]
    points: Vec<u32>,
    /// All if it is empty.
    #[serde(default)]
    roles: Vec<String>,
}

/// Seconds that do not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "AnalysisCut")]
struct Cut {
    /// The warm-up if it is absent.
    front_s: Option<f64>,
    back_s: f64,
}

/// The middle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "AnalysisStat")]
enum Stat {
    #[default]
    Median,
    Mean,
}

/// Quantity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "AnalysisWhat")]
pub(super) enum What {
    /// The main latency of roles.
    #[default]
    ResponseTime,
    /// Acknowledged messages of roles that send, received ones of others.
    Throughput,
    Clients,
    TimedOut,
    Failed,
    Reconnects,
    BrokerCpu,
    ClientCpu,
    BrokerMemory,
    NetworkIn,
    NetworkOut,
    DiskRead,
    DiskWritten,
}

impl What {
    /// Label and unit.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::ResponseTime => ("response time", "µs"),
            Self::Throughput => ("throughput", "1/s"),
            Self::Clients => ("clients at work", ""),
            Self::TimedOut => ("not answered in time", "1/s"),
            Self::Failed => ("refused or given up", "1/s"),
            Self::Reconnects => ("reconnects", "1/s"),
            Self::BrokerCpu => ("broker's CPU, cores", ""),
            Self::ClientCpu => ("client's CPU, cores", ""),
            Self::BrokerMemory => ("broker's memory", "MiB"),
            Self::NetworkIn => ("network, received", "B/s"),
            Self::NetworkOut => ("network, sent", "B/s"),
            Self::DiskRead => ("broker's reads from disk", "B/s"),
            Self::DiskWritten => ("broker's writes to disk", "B/s"),
        }
    }
}

/// Series of a question. All have the same places on the horizontal axis.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Analysis")]
struct Answer {
    title: String,
    label: &'static str,
    unit: &'static str,
    /// Ends of the windows, in s since the load, or the log, began.
    x: Vec<f64>,
    series: Vec<Series>,
    remarks: Vec<String>,
}

/// A series; null where nothing is known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AnalysisSeries")]
struct Series {
    name: String,
    durability: Option<String>,
    values: Vec<Option<f64>>,
    low: Vec<Option<f64>>,
    high: Vec<Option<f64>>,
    /// Values that each window has.
    count: Vec<u64>,
}

const fn ten() -> u32 {
    10
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field")]
const fn usual() -> Option<(f64, f64)> {
    Some((2.5, 97.5))
}

fn by_default() -> Vec<String> {
    ["system", "role"].map(str::to_owned).into()
}

async fn analyze(State(lab): State<Lab>, query: Query, request: Request) -> Result<Response, Problem> {
    let form = query.get("as").unwrap_or("json").to_owned();
    let question: Question = body::json(request).await?;
    question.check()?;
    let answered = tokio::task::spawn_blocking(move || {
        let answer = if question.logs.is_empty() {
            points::answer(&lab, &question)?
        } else {
            of_logs(&question)?
        };
        Ok::<_, Problem>((question, answer))
    });
    let (question, answer) = answered
        .await
        .map_err(|error| Problem::new(Code::Unreadable, error))??;
    let is_log = question.log_y;
    Ok(match form.as_str() {
        "json" => Json(answer).into_response(),
        "svg" => (
            [(header::CONTENT_TYPE, "image/svg+xml")],
            written::svg(&answer, is_log),
        )
            .into_response(),
        "csv" => (
            [(header::CONTENT_TYPE, "text/csv; charset=utf-8")],
            written::csv(&answer),
        )
            .into_response(),
        "gnuplot" => {
            let text = written::gnuplot(&answer, is_log);
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
        }
        other => {
            let why = format!("as is json, svg, csv or gnuplot, not {other:?}");
            return Err(Problem::bad_request(why));
        }
    })
}

impl Question {
    pub(super) fn check(&self) -> Result<(), Problem> {
        let rows = [
            (
                self.of.is_empty() != self.logs.is_empty(),
                "either `of` has points of runs, or `logs` has folders",
            ),
            (
                self.of.len() <= SOURCES_MAX && self.logs.len() <= SOURCES_MAX,
                "at most 32 sources",
            ),
            (
                self.window_s == 1 || self.window_s > 0 && self.window_s.is_multiple_of(10),
                "window_s is 1, or a multiple of 10: latencies are kept whole for each ten seconds",
            ),
            (
                self.band
                    .is_none_or(|(low, high)| 0.0 <= low && low <= high && high <= 100.0),
                "band is two percentiles, the lower one first",
            ),
            (
                self.window_s != 1
                    || self.what != What::ResponseTime
                    || !self.logs.is_empty()
                    || self.band.is_none()
                    || self.band == usual(),
                "windows of a second have the median, the mean, and the band from 2.5 to 97.5 %",
            ),
        ];
        match rows.iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(Problem::bad_request(why)),
            None => Ok(()),
        }
    }
}

/// Series of performance logs.
fn of_logs(question: &Question) -> Result<Answer, Problem> {
    let actions: Result<Vec<analysis::Action>, String> =
        question.actions.iter().map(|action| action.parse()).collect();
    let mut actions = actions.map_err(Problem::bad_request)?;
    if actions.is_empty() {
        actions.push(analysis::Action::Request);
    }
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let (low, high) = question.band.unwrap_or((2.5, 97.5));
    let found = analysis::analyze(&analysis::Question {
        folders: question.logs.clone(),
        actions,
        name: question.name.clone().unwrap_or_else(|| "*".to_owned()),
        window: Duration::from_secs(question.window_s.into()),
        cut: seconds(question.cut.front_s.unwrap_or(0.0).max(question.cut.back_s)),
        band: analysis::Band { low, high },
    });
    let found = found.map_err(|error| Problem::new(Code::Unreadable, error))?;
    let is_time = question.what != What::Throughput;
    let quantity = if is_time {
        What::ResponseTime
    } else {
        What::Throughput
    };
    let (label, unit) = quantity.words();
    let mut x: Vec<f64> = Vec::new();
    for series in &found.series {
        x.extend(series.windows.iter().map(|window| window.at_s));
    }
    x.sort_by(f64::total_cmp);
    x.dedup();
    let series = found.series.iter().map(|of| {
        let mut series = Series {
            name: of.action.to_owned(),
            ..Series::default()
        };
        for at in &x {
            let window = of.windows.iter().find(|window| window.at_s.total_cmp(at).is_eq());
            let it = window.map(|window| window.statistics);
            let middle = it.map(|it| match (is_time, question.stat) {
                (false, _) => it.throughput,
                (true, Stat::Median) => it.median_us as f64,
                (true, Stat::Mean) => it.mean_us,
            });
            let banded = it.filter(|_| is_time && question.band.is_some());
            series.values.push(middle);
            series.low.push(banded.map(|it| it.low_us as f64));
            series.high.push(banded.map(|it| it.high_us as f64));
            series.count.push(it.map_or(0, |it| it.count));
        }
        series
    });
    let series: Vec<Series> = series.collect();
    let mut remarks = Vec::new();
    if let Some(share) = found.share.filter(|share| *share < 1.0) {
        remarks.push(format!("the logs have {:.1} % of the requests", share * 100.0));
    }
    if found.unreadable_lines > 0 {
        remarks.push(format!("{} lines were not readable", found.unreadable_lines));
    }
    Ok(Answer {
        title: question.title.clone().unwrap_or_else(|| label.to_owned()),
        label,
        unit,
        x,
        series,
        remarks,
    })
}
