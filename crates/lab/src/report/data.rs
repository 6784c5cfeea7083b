//! The same as data: CSV with a row for every point, JSON with every cell's estimates.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::cells::{Cell, cells};
use super::figures::{Analysed, analyses};
use super::load::Recorded;
use crate::factorial::Analysis;
use crate::grid::Parameters;
use crate::results::{
    Ceiling, Driver, Durability, Environment, METRICS, Network, Outcome, Point, Reached, Status,
};
use crate::statistics::Estimate;

/// The version of `report.json`.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    runs: Vec<RunData<'a>>,
}

#[derive(Serialize)]
struct RunData<'a> {
    place: String,
    name: &'a str,
    question: &'a str,
    note: &'a str,
    command: &'a str,
    scale: f64,
    seed: u64,
    status: Status,
    reason: Option<&'a str>,
    started_ms: i64,
    ended_ms: Option<i64>,
    environment: &'a Environment,
    network: Option<&'a Network>,
    reached: &'a [Reached],
    ceilings: &'a [Ceiling],
    cells: Vec<CellData<'a>>,
    effects: Vec<EffectData>,
}

#[derive(Serialize)]
struct CellData<'a> {
    system: &'a str,
    version: Option<&'a str>,
    parameters: &'a Parameters,
    durability: Option<&'a Durability>,
    driver: Option<&'a Driver>,
    outcomes: Vec<&'a Outcome>,
    estimates: BTreeMap<&'static str, EstimateData>,
}

#[derive(Serialize)]
struct EstimateData {
    unit: &'static str,
    #[serde(flatten)]
    estimate: Estimate,
}

#[derive(Serialize)]
struct EffectData {
    system: String,
    durability: String,
    metric: &'static str,
    unit: &'static str,
    analysis: Option<Analysis>,
    reason: Option<String>,
}

pub(crate) fn json(runs: &[Recorded]) -> String {
    let all: Vec<Vec<Cell<'_>>> = runs.iter().map(cells).collect();
    let document = Document {
        format: FORMAT,
        runs: runs
            .iter()
            .zip(&all)
            .map(|(recorded, cells)| run_data(recorded, cells))
            .collect(),
    };
    // Maps have text for keys and numbers are finite, so there is nothing that JSON cannot say.
    let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
    text.push('\n');
    text
}

fn run_data<'a>(recorded: &'a Recorded, cells: &'a [Cell<'a>]) -> RunData<'a> {
    let run = &recorded.run;
    RunData {
        place: recorded.place.display().to_string(),
        name: &run.name,
        question: &run.experiment.question,
        note: &run.experiment.note,
        command: &run.command,
        scale: run.scale,
        seed: run.seed,
        status: run.status,
        reason: run.reason.as_deref(),
        started_ms: run.started_ms,
        ended_ms: run.ended_ms,
        environment: &run.environment,
        network: run.network.as_ref(),
        reached: &run.reached,
        ceilings: &run.ceilings,
        cells: cells.iter().map(cell_data).collect(),
        effects: analyses(recorded, cells).into_iter().map(effect_data).collect(),
    }
}

fn cell_data<'a>(cell: &'a Cell<'a>) -> CellData<'a> {
    let first = cell.measured().next().or_else(|| cell.points.first().copied());
    let estimates = METRICS.iter().filter_map(|metric| {
        let estimate = cell.estimate(metric.name)?;
        Some((
            metric.name,
            EstimateData {
                unit: metric.unit,
                estimate,
            },
        ))
    });
    CellData {
        system: &cell.system,
        version: first
            .map(|point| point.version.as_str())
            .filter(|version| !version.is_empty()),
        parameters: &cell.parameters,
        durability: first.map(|point| &point.durability),
        driver: first.map(|point| &point.driver),
        outcomes: cell.points.iter().map(|point| &point.outcome).collect(),
        estimates: estimates.collect(),
    }
}

fn effect_data(analysed: Analysed) -> EffectData {
    let (analysis, reason) = match analysed.result {
        Ok(analysis) => (Some(analysis), None),
        Err(error) => (None, Some(error.to_string())),
    };
    EffectData {
        system: analysed.system,
        durability: analysed.durability,
        metric: analysed.metric.name,
        unit: analysed.metric.unit,
        analysis,
        reason,
    }
}

macro_rules! columns {
    ($($name:ident: $value:expr;)*) => {
        &[$((stringify!($name), $value)),*]
    };
}

type Column = fn(&Recorded, &Point) -> String;

/// Columns of every run, before those of its parameters and figures.
const COLUMNS: &[(&str, Column)] = columns! {
    place: |recorded, _| recorded.place.display().to_string();
    experiment: |recorded, _| recorded.run.name.clone();
    system: |_, point| point.system.clone();
    version: |_, point| point.version.clone();
    revision: |_, point| point.revision.clone().unwrap_or_default();
    repetition: |_, point| point.repetition.to_string();
    outcome: |_, point| point.outcome.kind.name().to_owned();
    reason: |_, point| point.outcome.reason.clone().unwrap_or_default();
    durability_asked: |_, point| point.durability.asked.clone();
    durability_given: |_, point| point.durability.given.clone();
    durability_note: |_, point| point.durability.note.clone().unwrap_or_default();
    driver: |_, point| point.driver.name.clone();
    driver_version: |_, point| point.driver.version.clone();
    client_cpu_share_of_cores: |_, point| point.driver.cpu_share.to_string();
    started_ms: |_, point| point.started_ms.to_string();
    warmup_s: |_, point| point.warmup_s.to_string();
    measured_s: |_, point| point.measured_s.to_string();
};

pub(crate) fn csv(runs: &[Recorded]) -> String {
    let points = || runs.iter().flat_map(|recorded| &recorded.points);
    let paths: BTreeSet<&str> = points()
        .flat_map(|point| point.parameters.keys())
        .map(String::as_str)
        .collect();
    let metrics: Vec<_> = METRICS
        .iter()
        .filter(|metric| points().any(|point| point.metrics.contains_key(metric.name)))
        .collect();
    let head = COLUMNS
        .iter()
        .map(|(name, _)| *name)
        .chain(paths.iter().copied())
        .chain(metrics.iter().map(|metric| metric.name));
    let mut text = line(head.map(str::to_owned));
    for recorded in runs {
        for point in &recorded.points {
            let values = paths.iter().map(|path| match point.parameters.get(*path) {
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
                None => String::new(),
            });
            let figures = metrics.iter().map(|metric| {
                point
                    .metrics
                    .get(metric.name)
                    .map(f64::to_string)
                    .unwrap_or_default()
            });
            let fixed = COLUMNS.iter().map(|(_, value)| value(recorded, point));
            text.push_str(&line(fixed.chain(values).chain(figures)));
        }
    }
    text
}

/// RFC 4180, with line feeds alone.
fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted = fields.map(|field| {
        // A spreadsheet would take such a field for a formula, and systems write their own reasons.
        let field = if field.starts_with(['=', '+', '@']) {
            format!("'{field}")
        } else {
            field
        };
        if field.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field
        }
    });
    let mut line = quoted.collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn fields_are_quoted_where_they_have_to_be() {
        let fields = ["plain", "a,b", "say \"no\"", "two\nlines", "=1+1", "-5"].map(str::to_owned);
        assert_eq!(
            line(fields.into_iter()),
            "plain,\"a,b\",\"say \"\"no\"\"\",\"two\nlines\",'=1+1,-5\n"
        );
    }
}
