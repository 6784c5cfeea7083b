//! Folders of runs against each other: the same experiment, the same system, the same parameters.

use maud::{Markup, PreEscaped, html};

use super::experiment::main_metric;
use super::sides::{between, factor, times};
use super::sign;
use super::table::{parameters, shown, with_unit};
use crate::report::cells::{Cell, cells, varied};
use crate::report::chart::{Axis, Mark, Row, RowChart, Width};
use crate::report::load::Recorded;
use crate::report::names;
use crate::results::{Metric, Run};
use crate::statistics::{Estimate, Interval, Ratio};

/// A cell on two sides.
struct Pair<'c, 'a> {
    cell: &'c Cell<'a>,
    /// The system, and the parameters that tell the cell from its neighbours.
    name: String,
    side: &'c str,
    /// Of the other side.
    estimate: Estimate,
    durability: String,
    ratio: Ratio,
}

/// Folders of runs beside each other: each experiment that the first one has, against the same in the others.
pub(crate) fn compared(sides: &[(String, Vec<Recorded>)]) -> Markup {
    let Some(((base_name, base), others)) = sides.split_first() else {
        return html! {};
    };
    let mut articles = Vec::new();
    for recorded in base {
        let found: Vec<(&str, &Recorded)> = others
            .iter()
            .filter_map(|(name, runs)| {
                Some((
                    name.as_str(),
                    runs.iter().find(|run| run.run.name == recorded.run.name)?,
                ))
            })
            .collect();
        if !found.is_empty() {
            articles.push(article(base_name, recorded, &found));
        }
    }
    html! {
        section {
            p.lead { "Every number is a ratio to " strong { (base_name) } ", for the same system with the same parameters." }
            @if articles.is_empty() {
                p.banner { strong { "Nothing to compare" } ": the folders have no experiment in common." }
            }
        }
        @for article in &articles { (article) }
    }
}

/// One experiment: a row of the chart and of the table for every cell that both sides have.
fn article(base_name: &str, base: &Recorded, others: &[(&str, &Recorded)]) -> Markup {
    let metric = main_metric(&base.run);
    let base_cells = cells(base);
    let columns = shown(&base_cells);
    let pairs = pairs(&base_cells, others, metric);
    let several = others.len() > 1;
    let chart = RowChart {
        title: format!("{}: ratios to {base_name}", base.run.name),
        axis: axis(base_name, metric, &pairs),
        rows: rows(&pairs, &base.run, several),
        from: 1.0,
    };
    let only = others.first().filter(|_| !several).map(|(name, _)| *name);
    html! {
        article id=(base.run.name) {
            header { p.eyebrow { code { (base.run.name) } } h2 { (base.run.experiment.question) } }
            figure.result {
                figcaption { h3 { "Ratio of " (metric.label) } }
                @if chart.is_empty() {
                    p.nothing { "There is nothing to draw: no point was measured on both sides." }
                } @else {
                    div.panel { (PreEscaped(chart.draw(Width::Desktop))) (PreEscaped(chart.draw(Width::Phone))) }
                    p.notes { "Ratios of means with 95 % confidence intervals (Fieller); the line is at 1, " (base_name) " itself." }
                }
            }
            @if !pairs.is_empty() {
                div.scroll tabindex="0" { table.numbers {
                    thead { tr {
                        th.key scope="col" { "System" }
                        @for path in &columns { th scope="col" { (names::short(path, &columns)) } }
                        th.num scope="col" { (base_name) } th scope="col" { "Durability" }
                        @if only.is_none() { th scope="col" { "Against" } }
                        th.num scope="col" { (only.unwrap_or(metric.label)) } th scope="col" { "Durability" }
                        th scope="col" { "Ratio" }
                    } }
                    tbody { @for pair in &pairs { (line(pair, &columns, metric, several)) } }
                } }
            }
        }
    }
}

fn pairs<'c, 'a>(
    base: &'c [Cell<'a>],
    others: &[(&'c str, &Recorded)],
    metric: &Metric,
) -> Vec<Pair<'c, 'a>> {
    let paths = varied(base);
    let mut pairs = Vec::new();
    for cell in base {
        let mut with = cell.parameters.clone();
        with.retain(|path, _| paths.contains(path));
        let (system, with) = (names::system(&cell.system), parameters(&with));
        let name = if with.is_empty() {
            system
        } else {
            format!("{system}, {with}")
        };
        for (side, other) in others {
            let other = cells(other);
            let same = other
                .iter()
                .find(|other| other.system == cell.system && other.parameters == cell.parameters);
            let found =
                same.and_then(|same| Some((same, same.estimate(metric.name)?, between(same, cell, metric)?)));
            if let Some((same, estimate, ratio)) = found {
                let durability = same.durability().to_owned();
                pairs.push(Pair {
                    cell,
                    name: name.clone(),
                    side,
                    estimate,
                    durability,
                    ratio,
                });
            }
        }
    }
    pairs
}

fn axis(base_name: &str, metric: &Metric, pairs: &[Pair<'_, '_>]) -> Axis {
    let ends = pairs.iter().flat_map(|pair| {
        let value = pair.ratio.value;
        let (low, high) = pair.ratio.interval.map_or((value, value), Interval::ends);
        [low, high, 1.0]
    });
    Axis::around(&format!("{} against {base_name}", metric.label), "", ends)
}

/// Returns the rows; several sides have their names in the rows, under the cell's.
fn rows(pairs: &[Pair<'_, '_>], run: &Run, several: bool) -> Vec<Row> {
    let mut before = "";
    let mut rows = Vec::new();
    for pair in pairs {
        let begins = several && before != pair.name;
        before = &pair.name;
        rows.push(Row {
            heading: begins.then(|| pair.name.clone()),
            name: if several {
                pair.side.to_owned()
            } else {
                pair.name.clone()
            },
            colour: Mark::new(names::colour(&pair.cell.system, &run.experiment.systems), 0).colour,
            value: pair.ratio.value,
            interval: pair.ratio.interval.map(Interval::ends),
            says: format!("× {} · {}", factor(pair.ratio.value), pair.durability),
        });
    }
    rows
}

fn line(pair: &Pair<'_, '_>, columns: &[String], metric: &'static Metric, several: bool) -> Markup {
    let cell = pair.cell;
    html! { tr {
        th.key scope="row" { (names::system(&cell.system)) }
        @for path in columns { td { @if let Some(value) = cell.parameters.get(path) { (names::value(value)) } } }
        td.num { @if let Some(estimate) = cell.estimate(metric.name) { (with_unit(&estimate, metric)) } }
        td { (sign::durability(cell.durability())) }
        @if several { td { (pair.side) } }
        td.num { (with_unit(&pair.estimate, metric)) }
        td { (sign::durability(&pair.durability)) }
        td { (times(Some(&pair.ratio), metric)) }
    } }
}
