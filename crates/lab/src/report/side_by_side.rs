//! Runs beside each other as data: the same system with the same parameters, and the ratios of a figure to
//! that of the first run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{Cell, cells};
use super::load::Recorded;
use super::page::main_metric;
use crate::grid::Parameters;
use crate::results::metric::Better;
use crate::results::{METRICS, Metric, metric};
use crate::statistics::{Estimate, Ratio, ratio};

/// Runs beside each other; the first one is the base.
#[derive(Debug, Serialize)]
pub(crate) struct SideBySide {
    metric: Metric,
    /// Figures that points of these runs have.
    metrics: Vec<Metric>,
    lines: Vec<Line>,
    /// Cells of the other runs that the base does not have.
    unmatched: Vec<Unmatched>,
    /// Facts about the runs that are not the same in all.
    differences: Vec<Difference>,
}

/// A cell of the base.
#[derive(Debug, Serialize)]
struct Line {
    system: String,
    parameters: Parameters,
    /// One per run; null for one without the cell.
    sides: Vec<Option<Side>>,
}

#[derive(Debug, Serialize)]
struct Side {
    durability: String,
    estimate: Estimate,
    /// Absent for the base itself.
    ratio: Option<Ratio>,
    /// `better`, `worse`, `more`, `less`, `not_told` or `no_interval`.
    verdict: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Unmatched {
    run: usize,
    system: String,
    parameters: Parameters,
}

#[derive(Debug, Serialize)]
struct Difference {
    what: &'static str,
    values: Vec<String>,
}

/// Compares runs by a figure; by default the first that the experiment draws. `None` without runs, or for an
/// unknown figure.
pub(crate) fn side_by_side(runs: &[Recorded], wanted: Option<&str>) -> Option<SideBySide> {
    let base = runs.first()?;
    let metric = match wanted {
        Some(name) => metric(name)?,
        None => main_metric(&base.run),
    };
    let all: Vec<Vec<Cell<'_>>> = runs.iter().map(cells).collect();
    let points = || runs.iter().flat_map(|run| &run.points);
    let metrics = METRICS.iter();
    let metrics = metrics.filter(|metric| points().any(|point| point.metrics.contains_key(metric.name)));
    let base_cells = all.first()?;
    let unmatched = all.iter().enumerate().skip(1).flat_map(|(run, cells)| {
        let others = cells.iter().filter(|cell| find(base_cells, cell).is_none());
        others.map(move |cell| Unmatched {
            run,
            system: cell.system.clone(),
            parameters: cell.parameters.clone(),
        })
    });
    Some(SideBySide {
        metric: *metric,
        metrics: metrics.copied().collect(),
        lines: base_cells.iter().map(|cell| line(cell, &all, metric)).collect(),
        unmatched: unmatched.collect(),
        differences: differences(runs),
    })
}

fn find<'c, 'a>(cells: &'c [Cell<'a>], wanted: &Cell<'_>) -> Option<&'c Cell<'a>> {
    cells
        .iter()
        .find(|cell| cell.system == wanted.system && cell.parameters == wanted.parameters)
}

fn line(base: &Cell<'_>, all: &[Vec<Cell<'_>>], metric: &Metric) -> Line {
    let of_base = base.estimate(metric.name);
    let side = |(run, cells): (usize, &Vec<Cell<'_>>)| {
        let cell = find(cells, base)?;
        let estimate = cell.estimate(metric.name)?;
        let ratio = of_base
            .as_ref()
            .and_then(|base| ratio(&estimate, base))
            .filter(|_| run > 0);
        Some(Side {
            durability: cell.durability().to_owned(),
            estimate,
            verdict: ratio.map(|ratio| verdict(&ratio, metric.better)),
            ratio,
        })
    };
    Line {
        system: base.system.clone(),
        parameters: base.parameters.clone(),
        sides: all.iter().enumerate().map(side).collect(),
    }
}

fn verdict(ratio: &Ratio, better: Better) -> &'static str {
    match (ratio.differs(), better, ratio.value > 1.0) {
        (None, _, _) => "no_interval",
        (Some(false), _, _) => "not_told",
        (Some(true), Better::Higher, true) | (Some(true), Better::Lower, false) => "better",
        (Some(true), Better::Higher, false) | (Some(true), Better::Lower, true) => "worse",
        (Some(true), Better::Neither, true) => "more",
        (Some(true), Better::Neither, false) => "less",
    }
}

fn differences(runs: &[Recorded]) -> Vec<Difference> {
    let of = |what, value: fn(&Recorded) -> String| Difference {
        what,
        values: runs.iter().map(value).collect(),
    };
    let mut found = vec![
        of("experiment", |run| run.run.name.clone()),
        of("scale", |run| run.run.scale.to_string()),
        of("processor", |run| run.run.environment.cpu.clone()),
        of("cores", |run| run.run.environment.cores.to_string()),
        of("kernel", |run| run.run.environment.kernel.clone()),
        of("disk", |run| run.run.environment.disk.clone()),
        of("version", |run| run.run.environment.stafett.clone()),
        of("revision", |run| {
            run.run.environment.revision.clone().unwrap_or_default()
        }),
        of("versions of systems", |run| {
            versions(&run.run.environment.versions)
        }),
        of("agents", |run| run.run.environment.agents.join(", ")),
    ];
    found.retain(|difference| {
        difference
            .values
            .iter()
            .any(|value| Some(value) != difference.values.first())
    });
    found
}

fn versions(all: &BTreeMap<String, String>) -> String {
    let texts: Vec<String> = all
        .iter()
        .map(|(system, version)| format!("{system} {version}"))
        .collect();
    texts.join(", ")
}
