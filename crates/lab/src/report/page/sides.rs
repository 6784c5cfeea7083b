//! Systems against each other, within a run.

use maud::{Markup, html};

use super::experiment::main_metric;
use super::sign;
use super::table::shown;
use crate::report::cells::Cell;
use crate::report::load::Recorded;
use crate::report::{names, numbers};
use crate::results::metric::Better;
use crate::results::{Metric, metric};
use crate::statistics::{Ratio, ratio};

/// Compares the first system with each other one, for equal parameters.
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

pub(super) fn between(one: &Cell<'_>, other: &Cell<'_>, metric: &Metric) -> Option<Ratio> {
    ratio(&one.estimate(metric.name)?, &other.estimate(metric.name)?)
}

pub(super) fn times(ratio: Option<&Ratio>, metric: &Metric) -> Markup {
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

pub(super) fn factor(value: f64) -> String {
    let places = match value.abs() {
        value if value >= 9.995 => 1,
        value if value >= 0.0995 => 2,
        value if value >= 0.00995 => 3,
        _ => 4,
    };
    numbers::plain(value, places)
}
