//! From cells to charts: each kind of figure that an experiment can ask for.
//!
//! - [`split`]: cells that make a line, and those that make a chart; [`seconds`]: samples laid onto seconds
//! - [`against`]: `lines` and `bars`; [`latency`], and its meaning by [`loops`]; [`time`]; [`effects`];
//!   [`shares`]

mod against;
mod effects;
mod latency;
mod loops;
mod seconds;
mod shares;
mod split;
mod time;

use super::cells::{Cell, distinct};
use super::chart::{LineChart, Mark, RowChart, Width};
use super::load::Recorded;
use crate::experiment::{Figure, FigureKind};
use crate::factorial::{Analysis, DesignError};
use crate::results::{Metric, metric};
pub(crate) use effects::factor_names;

/// A figure of the report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drawn {
    pub(crate) title: String,
    pub(crate) legend: Vec<Entry>,
    pub(crate) panels: Vec<Panel>,
    /// Notes for readers.
    pub(crate) notes: Vec<String>,
    /// True if the notes or the analyses give the reason of an empty figure.
    pub(crate) is_explained: bool,
    /// Of effects: the numbers behind the bars.
    pub(crate) analyses: Vec<Analysed>,
}

/// One line of a legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) mark: Mark,
    pub(crate) name: String,
    pub(crate) durability: String,
}

/// One chart of a figure, drawn for both widths.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) heading: Option<String>,
    pub(crate) wide: String,
    pub(crate) narrow: String,
}

/// A factorial design of one system and one figure.
#[derive(Clone, Debug)]
pub(crate) struct Analysed {
    pub(crate) system: String,
    pub(crate) durability: String,
    pub(crate) metric: &'static Metric,
    pub(crate) result: Result<Analysis, DesignError>,
}

/// More would not be looked at; all of it is in the JSON.
const PANELS_MAX: usize = 12;

/// Draws a figure over the cells of a run.
pub(crate) fn draw(figure: &Figure, recorded: &Recorded, cells: &[Cell<'_>]) -> Drawn {
    let mut drawn = match figure.kind {
        FigureKind::Lines => against::lines(figure, cells),
        FigureKind::Bars => against::bars(figure, cells),
        FigureKind::Latency => latency::draw(figure, recorded, cells),
        FigureKind::Time => time::draw(figure, recorded, cells),
        FigureKind::Effects => effects::draw(figure, recorded, cells),
        FigureKind::Shares => shares::draw(figure, recorded, cells),
    };
    if drawn.panels.is_empty() {
        let reasons: Vec<_> = figure.y.iter().filter_map(|name| why_absent(name)).collect();
        drawn.is_explained |= !reasons.is_empty();
        drawn.notes.extend(reasons.into_iter().map(str::to_owned));
    }
    let all = drawn.panels.len();
    if all > PANELS_MAX {
        drawn.panels.truncate(PANELS_MAX);
        drawn.notes.push(format!(
            "The first {PANELS_MAX} of {all} charts; report.json has all of it."
        ));
    }
    drawn
}

/// Returns the reason why a point that was measured may lack a figure.
fn why_absent(metric: &str) -> Option<&'static str> {
    match metric {
        "sustainable_rate" => Some("No rate that was tried kept within its bound."),
        "drain_s" => Some("Nobody read a backlog to its end in time."),
        _ => None,
    }
}

/// The analyses of all figures of effects.
pub(crate) fn analyses(recorded: &Recorded, cells: &[Cell<'_>]) -> Vec<Analysed> {
    let figures = recorded
        .run
        .experiment
        .figures
        .iter()
        .filter(|figure| figure.kind == FigureKind::Effects);
    figures
        .flat_map(|figure| effects::analyses(figure, recorded, cells))
        .collect()
}

/// The figures by name that an experiment's figures are about. A latency is about its median and its 99th
/// percentile.
pub(crate) fn drawn_metrics(experiment: &crate::experiment::Experiment) -> Vec<&'static Metric> {
    let drawn = experiment.figures.iter().flat_map(|figure| {
        let names = figure.y.iter().flat_map(|name| match figure.kind {
            FigureKind::Lines | FigureKind::Bars | FigureKind::Effects | FigureKind::Shares => {
                vec![name.clone()]
            }
            FigureKind::Latency => vec![format!("{name}_p50_us"), format!("{name}_p99_us")],
            FigureKind::Time => Vec::new(),
        });
        names.filter_map(|name| metric(&name))
    });
    distinct(drawn)
}

/// Returns the figures of an experiment that asks for none.
pub(crate) fn usual(experiment: &crate::experiment::Experiment) -> Vec<Figure> {
    let x = experiment
        .grid
        .keys()
        .next()
        .cloned()
        .unwrap_or_else(|| "system".to_owned());
    let figure = |title: &str, kind, y: &str, x: Option<&String>| Figure {
        title: title.to_owned(),
        kind,
        x: x.cloned(),
        y: vec![y.to_owned()],
        window: None,
        by: Vec::new(),
        log_x: false,
        log_y: false,
    };
    vec![
        figure("Throughput", FigureKind::Bars, "produce_rate", Some(&x)),
        figure("Latency", FigureKind::Latency, "acknowledged", None),
        figure("Rate over time", FigureKind::Time, "rate", None),
    ]
}

impl Drawn {
    fn new(figure: &Figure) -> Self {
        Self {
            title: figure.title.clone(),
            ..Self::default()
        }
    }

    fn push(&mut self, heading: Option<String>, draw: impl Fn(Width) -> String) {
        self.panels.push(Panel {
            heading,
            wide: draw(Width::Desktop),
            narrow: draw(Width::Phone),
        });
    }

    fn push_lines(&mut self, heading: Option<String>, chart: &LineChart) {
        if !chart.is_empty() {
            self.push(heading, |width| chart.draw(width));
        }
    }

    fn push_rows(&mut self, heading: Option<String>, chart: &RowChart) {
        if !chart.is_empty() {
            self.push(heading, |width| chart.draw(width));
        }
    }

    fn add_entries(&mut self, entries: impl Iterator<Item = Entry>) {
        for entry in entries {
            if !self.legend.contains(&entry) {
                self.legend.push(entry);
            }
        }
    }
}

/// `acknowledged messages` as a label begins.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the label of an axis. Ticks carry their own unit, except for rates.
fn axis_label(metric: &Metric) -> String {
    match metric.unit {
        "1/s" => format!("{} per second", capital(metric.label)),
        "" | "µs" | "B/s" | "MiB" => capital(metric.label),
        unit => format!("{}, {unit}", capital(metric.label)),
    }
}
