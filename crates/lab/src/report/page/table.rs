//! The table behind the figures: every cell, with its durability, its driver, and how sure each number is.

use maud::{Markup, html};
use serde_json::Value;

use super::sign;
use crate::grid::Parameters;
use crate::report::cells::{Cell, varied};
use crate::report::chart::{Mark, dot};
use crate::report::figures::drawn_metrics;
use crate::report::load::Recorded;
use crate::report::{names, numbers};
use crate::results::{Ceiling, METRICS, Metric, Run};
use crate::statistics::Estimate;

/// Shown whether or not a figure asks for them.
const ALWAYS: [&str; 12] = [
    "produce_rate",
    "consume_rate",
    "goodput",
    "sustainable_rate",
    "acknowledged_p50_us",
    "acknowledged_p99_us",
    "delivery_p99_us",
    "round_trip_p99_us",
    "broker_cpu_per_million",
    "broker_memory_mib",
    "drain_s",
    "cold_start_s",
];
/// Shown where one of them is not zero.
const TROUBLE: [&str; 5] = ["failed", "lost", "duplicated", "timed_out", "reconnects"];

pub(super) fn section(recorded: &Recorded, cells: &[Cell<'_>]) -> Markup {
    let rows: Vec<Cell<'_>> = cells
        .iter()
        .flat_map(|cell| {
            let is_measured = cell.measured().next().is_some();
            [is_measured.then(|| cell.clone()), cell.failed()]
        })
        .flatten()
        .collect();
    if rows.is_empty() {
        return html! {};
    }
    let paths = shown(cells);
    let several = recorded.run.experiment.systems.len() > 1;
    let columns = columns(&recorded.run, &rows);
    let scales: Vec<numbers::Scale> = columns
        .iter()
        .map(|metric| {
            let values: Vec<f64> = rows
                .iter()
                .filter_map(|cell| cell.estimate(metric.name))
                .map(|estimate| estimate.value)
                .collect();
            numbers::Scale::of(metric.unit, values.into_iter())
        })
        .collect();
    html! {
        section {
            h3 { "The numbers" }
            div.scroll tabindex="0" { table.numbers.wide-table {
                thead { tr {
                    th.key scope="col" { "System" }
                    th scope="col" { "Durability" }
                    @for path in &paths { th scope="col" { (names::short(path, &paths)) } }
                    @for (metric, scale) in columns.iter().zip(&scales) {
                        th.num scope="col" { (metric.label) @if !scale.unit.is_empty() { span.unit { (scale.unit) } } }
                    }
                    th.num scope="col" { "of ceiling" }
                    th scope="col" { "Driver" }
                    th.num scope="col" { "Client" }
                    th.num scope="col" { "Runs" }
                } }
                tbody {
                    @for (index, cell) in rows.iter().enumerate() {
                        @let next = several && index > 0 && rows.get(index - 1).is_some_and(|before| before.parameters != cell.parameters);
                        tr.next[next] { (row(cell, recorded, &paths, &columns, &scales)) }
                    }
                }
            } }
            @if rows.iter().any(|cell| cell.is_failed) {
                p.notes { "Failed: what was seen until then. It stands in no figure, and why it failed stands below." }
            }
        }
    }
}

/// The parameters that have a column of their own. Durability has its sign.
pub(super) fn shown(cells: &[Cell<'_>]) -> Vec<String> {
    varied(cells)
        .into_iter()
        .filter(|path| path != "system.durability")
        .collect()
}

fn columns(run: &Run, cells: &[Cell<'_>]) -> Vec<&'static Metric> {
    let asked = drawn_metrics(&run.experiment);
    let shown = |metric: &&'static Metric| {
        let values = || cells.iter().flat_map(|cell| cell.values(metric.name));
        if TROUBLE.contains(&metric.name) {
            return values().any(|value| value != 0.0);
        }
        (asked.contains(metric) || ALWAYS.contains(&metric.name)) && values().next().is_some()
    };
    METRICS.iter().filter(shown).collect()
}

fn row(
    cell: &Cell<'_>,
    recorded: &Recorded,
    paths: &[String],
    columns: &[&'static Metric],
    scales: &[numbers::Scale],
) -> Markup {
    let systems = &recorded.run.experiment.systems;
    let mark = Mark::new(names::colour(&cell.system, systems), 0);
    let point = cell.measured().next();
    html! {
        th.key scope="row" { (dot(mark)) (names::system(&cell.system)) @if cell.is_failed { " " span.outcome.bad { "failed" } } }
        td { @if let Some(point) = point { (sign::given(&point.durability)) } }
        @for path in paths {
            td { @if let Some(value) = cell.parameters.get(path) { (names::value(value)) } }
        }
        @for (metric, scale) in columns.iter().zip(scales) {
            td.num { @match cell.estimate(metric.name) {
                Some(estimate) => (number(*scale, &estimate)),
                None => "–",
            } }
        }
        @let ceiling = ceiling_of(cell, &recorded.run);
        td.num title=[ceiling.and_then(|ceiling| ceiling.reason.as_deref())] {
            @match ceiling.and_then(|ceiling| of_ceiling(cell, ceiling)) { Some(share) => (numbers::percent(share)), None => "–" }
        }
        td { @if let Some(point) = point {
            (point.driver.name) @if point.driver.limited.is_some() { " " span.flag title=[point.driver.limited.as_deref()] { "limit" } }
        } }
        td.num { @if let Some(share) = client_share(cell) { (numbers::percent(share)) } @else { "–" } }
        td.num { (cell.measured().count()) "/" (cell.points.len()) }
    }
}

/// A number with its interval.
fn number(scale: numbers::Scale, estimate: &Estimate) -> Markup {
    let (value, reach) = scale.estimate(estimate);
    html! { (value) @if let Some(reach) = reach { " " span.reach { (reach) } } }
}

/// A number that stands for itself, with its interval and its unit.
pub(super) fn with_unit(estimate: &Estimate, metric: &'static Metric) -> Markup {
    let scale = numbers::Scale::alone(metric.unit, estimate.value);
    html! { (number(scale, estimate)) " " (scale.unit) }
}

fn client_share(cell: &Cell<'_>) -> Option<f64> {
    let shares: Vec<f64> = cell.measured().map(|point| point.driver.cpu_share).collect();
    crate::statistics::mean(&shares).map(|estimate| estimate.value)
}

/// Returns the ceiling of the same client, measured or not.
fn ceiling_of<'r>(cell: &Cell<'_>, run: &'r Run) -> Option<&'r Ceiling> {
    let driver = &cell.measured().next()?.driver.name;
    let fits = |ceiling: &&Ceiling| {
        let agrees =
            |(path, value): (&String, &Value)| cell.parameters.get(path).is_none_or(|own| own == value);
        ceiling.driver == *driver && ceiling.parameters.iter().all(agrees)
    };
    run.ceilings.iter().find(fits)
}

/// Returns the rate as a share of the same client's ceiling.
fn of_ceiling(cell: &Cell<'_>, ceiling: &Ceiling) -> Option<f64> {
    let share = |rate: &str, ceiling: Option<f64>| {
        let ceiling = ceiling.filter(|ceiling| *ceiling > 0.0)?;
        Some(cell.estimate(rate)?.value / ceiling)
    };
    share("produce_rate", ceiling.produce_rate).or_else(|| share("consume_rate", ceiling.consume_rate))
}

/// `size 100, batch 64KiB`.
pub(super) fn parameters(parameters: &Parameters) -> String {
    let all: Vec<String> = parameters.keys().cloned().collect();
    let parts = parameters
        .iter()
        .map(|(path, value)| format!("{} {}", names::short(path, &all), names::value(value)));
    parts.collect::<Vec<_>>().join(", ")
}
