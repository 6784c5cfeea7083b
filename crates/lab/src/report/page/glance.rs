//! All experiments in one table: the best that each system reached.

use maud::{Markup, html};

use super::experiment::main_metric;
use super::{sign, table};
use crate::report::cells::{Cell, cells, distinct, varied};
use crate::report::load::Recorded;
use crate::report::{names, numbers};
use crate::results::Metric;
use crate::results::metric::Better;

pub(super) fn table(runs: &[Recorded]) -> Markup {
    let systems: Vec<&String> = distinct(runs.iter().flat_map(|recorded| &recorded.run.experiment.systems));
    html! {
        section {
            h2 { "At a glance" }
            p { "The best that each system reached in each experiment, whatever its settings; what they were stands in small print." }
            div.scroll tabindex="0" { table.numbers.glance {
                thead { tr {
                    th.key scope="col" { "Experiment" }
                    @for system in &systems { th scope="col" { (names::system(system)) } }
                } }
                tbody { @for recorded in runs {
                    @let cells = cells(recorded);
                    @let metric = main_metric(&recorded.run);
                    tr {
                        th.key scope="row" { a href={ "#" (recorded.run.name) } { (recorded.run.name) } span.unit { (metric.label) } }
                        @for system in &systems { td { (best(&cells, system, metric)) } }
                    }
                } }
            } }
        }
    }
}

fn best(cells: &[Cell<'_>], system: &str, metric: &'static Metric) -> Markup {
    let of_system = cells.iter().filter(|cell| cell.system == system);
    let estimates = of_system
        .clone()
        .filter_map(|cell| Some((cell, cell.estimate(metric.name)?)));
    let best = estimates.reduce(|left, right| {
        let is_better = match metric.better {
            Better::Lower => right.1.value < left.1.value,
            Better::Higher | Better::Neither => right.1.value > left.1.value,
        };
        if is_better { right } else { left }
    });
    let Some((cell, estimate)) = best else {
        let word = if of_system.clone().next().is_some() {
            "no figure"
        } else {
            "–"
        };
        return html! { span.quiet { (word) } };
    };
    let scale = numbers::Scale::alone(metric.unit, estimate.value);
    let (value, reach) = scale.estimate(&estimate);
    let mut parameters = cell.parameters.clone();
    let varied = varied(cells);
    parameters.retain(|path, _| varied.contains(path) && path != "system.durability");
    html! {
        strong { (value) } @if let Some(reach) = reach { " " span.reach { (reach) } } " " (scale.unit) " " (sign::durability(cell.durability()))
        @if !parameters.is_empty() { span.small { (table::parameters(&parameters)) } }
    }
}
