//! A run: its question, its setting, its figures, and the tables behind them.

use maud::{Markup, PreEscaped, html};

use super::{effects, instrument, problems, setting, sides, sign, table};
use crate::report::cells::{Cell, cells, distinct};
use crate::report::chart::swatch;
use crate::report::figures::{Drawn, draw, drawn_metrics, usual};
use crate::report::load::Recorded;
use crate::results::metric::Better;
use crate::results::{METRICS, Metric, Run, Status};

pub(super) fn article(recorded: &Recorded, is_alone: bool) -> Markup {
    let run = &recorded.run;
    let cells = cells(recorded);
    let asked = if run.experiment.figures.is_empty() {
        usual(&run.experiment)
    } else {
        run.experiment.figures.clone()
    };
    let figures: Vec<Drawn> = asked
        .iter()
        .map(|figure| draw(figure, recorded, &cells))
        .collect();
    let is_measured = cells.iter().any(|cell| cell.measured().next().is_some());
    html! {
        article id=(run.name) {
            header {
                p.eyebrow { code { (run.name) } }
                // Alone it is the title of the page.
                @if !is_alone { h2 { (run.experiment.question) } }
                @for paragraph in run.experiment.note.trim().split("\n\n").filter(|text| !text.is_empty()) {
                    p.lead { (paragraph) }
                }
                (status(recorded, &cells))
            }
            (setting::section(run))
            @for drawn in &figures { (figure(drawn, is_measured)) }
            (sides::section(recorded, &cells))
            (table::section(recorded, &cells))
            (instrument::section(run))
            (problems::section(&cells))
            section {
                h3 { "To repeat it" }
                pre.command { code { (run.command) } }
            }
        }
    }
}

/// The number that an experiment is about: the first that its figures draw.
pub(crate) fn main_metric(run: &Run) -> &'static Metric {
    let usual = METRICS.iter().find(|metric| metric.name == "produce_rate");
    drawn_metrics(&run.experiment)
        .first()
        .copied()
        .or(usual)
        .unwrap_or(&NOTHING)
}

static NOTHING: Metric = Metric {
    name: "",
    label: "",
    unit: "",
    better: Better::Neither,
};

fn status(recorded: &Recorded, cells: &[Cell<'_>]) -> Markup {
    let run = &recorded.run;
    let (there, all) = (recorded.points.len(), run.order.len());
    let measured: usize = cells.iter().map(|cell| cell.measured().count()).sum();
    let revisions = recorded
        .points
        .iter()
        .filter_map(|point| point.revision.as_deref());
    let revisions = distinct(revisions);
    let word = match run.status {
        Status::Finished if there == all => None,
        Status::Finished => Some("Not everything was measured"),
        Status::Running => Some("Still running, or killed"),
        Status::Interrupted => Some("Interrupted"),
        Status::Stopped => Some("Stopped"),
    };
    html! {
        @if let Some(word) = word {
            p.banner {
                strong { (word) } ": " (there) " of " (all) " points are there"
                @if let Some(reason) = &run.reason { " (" (reason) ")" }
                ". It can be resumed."
            }
        }
        @if revisions.len() > 1 {
            p.banner { strong { "Not all of one program" } ": its points were measured by the revisions " (revisions.join(", ")) "." }
        }
        @if measured == 0 {
            p.banner { strong { "Nothing was measured" } ": why stands below." }
        }
    }
}

/// If points were measured, an empty figure without a reason is a mistake of the experiment or of the lab:
/// tests look for its class.
fn figure(drawn: &Drawn, is_measured: bool) -> Markup {
    html! {
        figure.result {
            figcaption {
                h3 { (drawn.title) }
                @if !drawn.legend.is_empty() {
                    ul.legend {
                        @for entry in &drawn.legend {
                            li {
                                (swatch(entry.mark))
                                @if !entry.name.is_empty() { span { (entry.name) } }
                                (sign::durability(&entry.durability))
                            }
                        }
                    }
                }
            }
            @if drawn.panels.is_empty() {
                @if !is_measured {
                    p.nothing { "There is nothing to draw: nothing was measured." }
                } @else if drawn.is_explained {
                    p.nothing { "There is nothing to draw. " @for note in &drawn.notes { (note) " " } }
                } @else {
                    p.nothing.empty { "There is nothing to draw: no point that was measured has this figure." }
                }
            }
            @for panel in &drawn.panels {
                div.panel {
                    @if let Some(heading) = &panel.heading { h4 { (heading) } }
                    (PreEscaped(&panel.wide))
                    (PreEscaped(&panel.narrow))
                }
            }
            @if !drawn.panels.is_empty() {
                p.notes { @for note in &drawn.notes { (note) " " } }
            }
        }
        (effects::tables(drawn))
    }
}
