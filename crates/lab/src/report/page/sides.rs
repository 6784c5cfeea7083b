//! Two sides against each other: systems within a run, or the same system in several runs.

use maud::{Markup, PreEscaped, html};

use super::experiment::main_metric;
use super::sign;
use super::table::{parameters, shown};
use crate::report::ReportError;
use crate::report::cells::{Cell, cells, varied};
use crate::report::chart::{Axis, Mark, Row, RowChart, Width};
use crate::report::load::Recorded;
use crate::report::{names, numbers};
use crate::results::metric::Better;
use crate::results::{Metric, metric};
use crate::statistics::{Ratio, ratio};

/// How the first system compares with each other one, where all else is equal.
pub(super) fn section(recorded: &Recorded, cells: &[Cell<'_>]) -> Markup {
    let systems = &recorded.run.experiment.systems;
    let Some(first) = systems.first().filter(|_| systems.len() > 1) else {
        return html! {};
    };
    let paths = shown(cells);
    let main = main_metric(&recorded.run);
    let metrics: Vec<_> = std::iter::once(main)
        .chain(metric("broker_cpu_per_million").filter(|cpu| *cpu != main))
        .collect();
    let mut rows = Vec::new();
    for one in cells.iter().filter(|cell| cell.system == *first) {
        for other in cells
            .iter()
            .filter(|cell| cell.system != *first && cell.parameters == one.parameters)
        {
            let ratios: Vec<Option<Ratio>> =
                metrics.iter().map(|metric| between(one, other, metric)).collect();
            if ratios.iter().any(Option::is_some) {
                rows.push((one, other, ratios));
            }
        }
    }
    if rows.is_empty() {
        return html! {};
    }
    html! {
        section {
            h3 { (names::system(first)) " against the others" }
            div.scroll tabindex="0" { table.numbers {
                thead { tr {
                    th.key scope="col" { "Against" }
                    th scope="col" { "Durability" }
                    @for path in &paths { th scope="col" { (names::short(path, &paths)) } }
                    @for metric in &metrics { th scope="col" { (metric.label) } }
                } }
                tbody { @for (one, other, ratios) in &rows { tr {
                    th.key scope="row" { (names::system(&other.system)) }
                    td {
                        (sign::durability(one.durability()))
                        @if one.durability() != other.durability() { " against " (sign::durability(other.durability())) }
                    }
                    @for path in &paths { td { @if let Some(value) = one.parameters.get(path) { (names::value(value)) } } }
                    @for (ratio, metric) in ratios.iter().zip(&metrics) { td { (times(ratio.as_ref(), metric)) } }
                } } }
            } }
            p.notes { "Ratios of means with 95 % confidence intervals (Fieller). An interval that holds 1 tells no difference." }
        }
    }
}

fn between(one: &Cell<'_>, other: &Cell<'_>, metric: &Metric) -> Option<Ratio> {
    ratio(&one.estimate(metric.name)?, &other.estimate(metric.name)?)
}

fn times(ratio: Option<&Ratio>, metric: &Metric) -> Markup {
    let Some(ratio) = ratio else {
        return html! { span.quiet { "–" } };
    };
    let verdict = match (ratio.differs(), metric.better, ratio.value > 1.0) {
        (Some(false), _, _) => "not told apart",
        (None, _, _) => "without an interval",
        (Some(true), Better::Higher, true) | (Some(true), Better::Lower, false) => "better",
        (Some(true), Better::Higher, false) | (Some(true), Better::Lower, true) => "worse",
        (Some(true), Better::Neither, true) => "more",
        (Some(true), Better::Neither, false) => "less",
    };
    html! {
        strong { "×\u{202f}" (factor(ratio.value)) }
        @if let Some(interval) = ratio.interval { " " span.reach { (factor(interval.low)) "\u{202f}…\u{202f}" (factor(interval.high)) } }
        " " span.quiet { (verdict) }
    }
}

fn factor(value: f64) -> String {
    let places = match value.abs() {
        value if value >= 9.995 => 1,
        value if value >= 0.0995 => 2,
        value if value >= 0.00995 => 3,
        _ => 4,
    };
    numbers::plain(value, places)
}

/// Folders of runs beside each other: each experiment that the first one has, against the same in the others.
pub(crate) fn compared(sides: &[(String, Vec<Recorded>)]) -> Result<Markup, ReportError> {
    let Some(((base_name, base), others)) = sides.split_first() else {
        return Ok(html! {});
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
            articles.push(article(base_name, recorded, &found)?);
        }
    }
    Ok(html! {
        section {
            p.lead { "Every number is a ratio to " strong { (base_name) } ", for the same system with the same parameters." }
            @if articles.is_empty() {
                p.banner { strong { "Nothing to compare" } ": the folders have no experiment in common." }
            }
        }
        @for article in &articles { (article) }
    })
}

fn article(base_name: &str, base: &Recorded, others: &[(&str, &Recorded)]) -> Result<Markup, ReportError> {
    let metric = main_metric(&base.run);
    let base_cells = cells(base);
    let paths = varied(&base_cells);
    let columns = shown(&base_cells);
    let systems = &base.run.experiment.systems;
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for cell in &base_cells {
        let mut with = cell.parameters.clone();
        with.retain(|path, _| paths.contains(path));
        let with = parameters(&with);
        let system = names::system(&cell.system);
        let name = if with.is_empty() {
            system
        } else {
            format!("{system}, {with}")
        };
        let first = rows.len();
        for (side, other) in others {
            let other_cells = cells(other);
            let same = other_cells
                .iter()
                .find(|other| other.system == cell.system && other.parameters == cell.parameters);
            let Some(same) = same else { continue };
            let Some(ratio) = between(same, cell, metric) else {
                continue;
            };
            rows.push(Row {
                heading: None,
                name: if others.len() > 1 {
                    (*side).to_owned()
                } else {
                    name.clone()
                },
                colour: Mark::new(names::colour(&cell.system, systems), 0).colour,
                value: ratio.value,
                interval: ratio.interval.map(|interval| (interval.low, interval.high)),
                says: format!("× {} · {}", factor(ratio.value), same.durability()),
            });
            lines.push(html! { tr {
                th.key scope="row" { (names::system(&cell.system)) }
                @for path in &columns { td { @if let Some(value) = cell.parameters.get(path) { (names::value(value)) } } }
                td.num { (value(cell, metric)) } td { (sign::durability(cell.durability())) }
                @if others.len() > 1 { td { (side) } }
                td.num { (value(same, metric)) } td { (sign::durability(same.durability())) }
                td { (times(Some(&ratio), metric)) }
            } });
        }
        if let Some(row) = rows.get_mut(first).filter(|_| others.len() > 1) {
            row.heading = Some(name);
        }
    }
    let ends: Vec<f64> = rows
        .iter()
        .flat_map(|row| {
            let (low, high) = row.interval.unwrap_or((row.value, row.value));
            [low, high, 1.0]
        })
        .collect();
    let chart = RowChart {
        title: format!("{}: ratios to {base_name}", base.run.name),
        axis: Axis::around(
            format!("{} against {base_name}", metric.label),
            "",
            ends.into_iter(),
        ),
        rows,
        from: 1.0,
    };
    let only = match others {
        [(name, _)] => Some(*name),
        _ => None,
    };
    Ok(html! {
        article id=(base.run.name) {
            header { p.eyebrow { code { (base.run.name) } } h2 { (base.run.experiment.question) } }
            figure.result {
                figcaption { h3 { "Ratio of " (metric.label) } }
                @if chart.is_empty() {
                    p.nothing { "There is nothing to draw: no point was measured on both sides." }
                } @else {
                    div.panel { (PreEscaped(chart.draw(Width::Desktop)?)) (PreEscaped(chart.draw(Width::Phone)?)) }
                    p.notes { "Ratios of means with 95 % confidence intervals (Fieller); the line is at 1, " (base_name) " itself." }
                }
            }
            @if !lines.is_empty() {
                div.scroll tabindex="0" { table.numbers {
                    thead { tr {
                        th.key scope="col" { "System" }
                        @for path in &columns { th scope="col" { (names::short(path, &columns)) } }
                        th.num scope="col" { (base_name) } th scope="col" { "Durability" }
                        @if only.is_none() { th scope="col" { "Against" } }
                        th.num scope="col" { (only.unwrap_or(metric.label)) } th scope="col" { "Durability" }
                        th scope="col" { "Ratio" }
                    } }
                    tbody { @for line in &lines { (line) } }
                } }
            }
        }
    })
}

fn value(cell: &Cell<'_>, metric: &'static Metric) -> Markup {
    let Some(estimate) = cell.estimate(metric.name) else {
        return html! { "–" };
    };
    let scale = numbers::Scale::of(metric.unit, std::iter::once(estimate.value));
    let (value, reach) = scale.estimate(&estimate);
    html! { (value) @if let Some(reach) = reach { " " span.reach { (reach) } } " " (scale.unit) }
}
