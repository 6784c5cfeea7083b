//! A metric against a parameter, as lines or as bars.

use serde_json::Value;

use super::split::{Facet, split};
use super::{Drawn, axis_label, capital};
use crate::experiment::Figure;
use crate::report::cells::{Cell, distinct, varied};
use crate::report::chart::{Axis, LineChart, LinePoint, Mark, Row, RowChart, Series};
use crate::report::{names, numbers};
use crate::results::{Metric, metric};
use crate::statistics::Estimate;

pub(super) fn lines(figure: &Figure, cells: &[Cell<'_>]) -> Drawn {
    let mut drawn = Drawn::new(figure);
    let x = figure.x.as_deref().unwrap_or("system");
    let facets = split(figure, cells);
    let along = Along::new(x, figure, cells);
    for metric in figure.y.iter().filter_map(|name| metric(name)) {
        let ends = estimates(&facets, metric).flat_map(|estimate| [estimate.low(), estimate.high()]);
        // All charts of a figure have one scale, so that they can be compared.
        let ends = ends.filter(|value| *value >= 0.0);
        let y = Axis::scaled(figure.log_y, &axis_label(metric), metric.unit, ends);
        for facet in &facets {
            let chart = LineChart {
                title: format!("{}: {}", figure.title, metric.label),
                x: along.axis.clone(),
                y: y.clone(),
                series: series(facet, &along, metric),
                shaded: Vec::new(),
                low: false,
            };
            drawn.push_lines(facet.heading.clone(), &chart);
            drawn.add_entries(facet.lines.iter().map(|line| line.entry.clone()));
        }
    }
    note_repetitions(&mut drawn, cells);
    drawn
}

/// Returns the estimates of a metric of everything that a figure draws.
fn estimates<'f>(
    facets: &'f [Facet<'_, '_>],
    metric: &'static Metric,
) -> impl Iterator<Item = Estimate> + 'f {
    let lines = facets.iter().flat_map(|facet| &facet.lines);
    let cells = lines.flat_map(|line| &line.cells);
    cells.filter_map(|cell| cell.estimate(metric.name))
}

fn series(facet: &Facet<'_, '_>, along: &Along, metric: &'static Metric) -> Vec<Series> {
    let count = facet.lines.len() as f64;
    let of_line = |(index, line): (usize, &super::split::Line<'_, '_>)| {
        let aside = if along.ordered {
            0.0
        } else {
            (index as f64 - (count - 1.0) / 2.0) * 0.5 / count
        };
        let mut points: Vec<LinePoint> = line
            .cells
            .iter()
            .filter_map(|cell| {
                let estimate = cell.estimate(metric.name)?;
                let value = cell.dimension(&along.name)?;
                Some(LinePoint {
                    x: along.place(&value)? + aside,
                    y: estimate.value,
                    interval: estimate.ends(),
                    says: format!(
                        "{}, {} {}: {}",
                        line.entry.name,
                        along.label,
                        names::value(&value),
                        says(&estimate, metric, cell.durability())
                    ),
                })
            })
            .collect();
        points.sort_by(|left, right| left.x.total_cmp(&right.x));
        Series {
            mark: line.entry.mark,
            points,
            joined: along.ordered,
            marked: true,
        }
    };
    facet.lines.iter().enumerate().map(of_line).collect()
}

/// `1.02 M/s ± 0.01, sync, 3 repetitions`.
fn says(estimate: &Estimate, metric: &'static Metric, durability: &str) -> String {
    let scale = numbers::Scale::alone(metric.unit, estimate.value);
    let (value, reach) = scale.estimate(estimate);
    let reach = reach.map(|reach| format!(" {reach}")).unwrap_or_default();
    let plural = if estimate.repetitions == 1 { "" } else { "s" };
    format!(
        "{value}{reach} {} ({durability}), {} repetition{plural}",
        scale.unit, estimate.repetitions
    )
}

/// Dimension along the bottom.
struct Along {
    name: String,
    label: String,
    axis: Axis,
    ordered: bool,
    /// Of use where there is no order.
    categories: Vec<Value>,
}

impl Along {
    fn new(name: &str, figure: &Figure, cells: &[Cell<'_>]) -> Self {
        let values = distinct(cells.iter().filter_map(|cell| cell.dimension(name)));
        let paths = varied(cells);
        let label = match name {
            "system" | "durability" => capital(name),
            path => capital(&names::short(path, &paths)),
        };
        let numbers: Option<Vec<f64>> = values.iter().map(names::number).collect();
        let ordered = numbers.filter(|numbers| numbers.len() > 1 && name != "system");
        let axis = if let Some(numbers) = &ordered {
            numeric(&label, figure, numbers, &values)
        } else {
            let text = |value: &Value| match (name, value) {
                ("system", Value::String(system)) => names::system(system),
                (_, value) => names::value(value),
            };
            Axis::categories(&label, &values.iter().map(text).collect::<Vec<_>>())
        };
        Self {
            name: name.to_owned(),
            label,
            axis,
            ordered: ordered.is_some(),
            categories: values,
        }
    }

    fn place(&self, value: &Value) -> Option<f64> {
        if self.ordered {
            return names::number(value);
        }
        self.categories
            .iter()
            .position(|category| category == value)
            .map(|index| index as f64)
    }
}

/// With a tick at every value, as it is written in the experiment.
fn numeric(label: &str, figure: &Figure, numbers: &[f64], values: &[Value]) -> Axis {
    let mut ticks: Vec<_> = numbers
        .iter()
        .copied()
        .zip(values.iter().map(names::value))
        .collect();
    ticks.sort_by(|left, right| left.0.total_cmp(&right.0));
    let is_log = figure.log_x && numbers.iter().all(|number| *number > 0.0);
    let axis = Axis::scaled(is_log, label, "", numbers.iter().copied());
    axis.tight(numbers.iter().copied()).with_ticks(ticks)
}

pub(super) fn bars(figure: &Figure, cells: &[Cell<'_>]) -> Drawn {
    let mut drawn = Drawn::new(figure);
    for metric in figure.y.iter().filter_map(|name| metric(name)) {
        let facets = split(figure, cells);
        let ends = estimates(&facets, metric).map(|estimate| estimate.high());
        // All charts of a figure have one scale, so that they can be compared.
        let axis = Axis::linear(&axis_label(metric), metric.unit, ends);
        for facet in &facets {
            let chart = RowChart {
                title: format!("{}: {}", figure.title, metric.label),
                axis: axis.clone(),
                rows: rows(facet, figure, metric, cells),
                from: 0.0,
            };
            drawn.push_rows(heading(facet.heading.clone(), figure, metric), &chart);
        }
    }
    note_repetitions(&mut drawn, cells);
    drawn
}

fn rows(facet: &Facet<'_, '_>, figure: &Figure, metric: &'static Metric, cells: &[Cell<'_>]) -> Vec<Row> {
    let x = figure.x.as_deref().unwrap_or("system");
    let paths = varied(cells);
    let of_facet = facet.lines.iter().flat_map(|line| &line.cells);
    let values = distinct(of_facet.filter_map(|cell| cell.dimension(x)));
    let mut rows = Vec::new();
    for value in &values {
        let first = rows.len();
        rows.extend(facet.lines.iter().filter_map(|line| {
            let cell = line
                .cells
                .iter()
                .find(|cell| cell.dimension(x).as_ref() == Some(value))?;
            let estimate = cell.estimate(metric.name)?;
            Some(Row {
                heading: None,
                name: row_name(&line.entry.name, x, value),
                colour: if x == "system" {
                    of_system(&cell.system, cells)
                } else {
                    line.entry.mark.colour
                },
                value: estimate.value,
                interval: estimate.ends(),
                says: format!(
                    "{} · {}",
                    numbers::alone(estimate.value, metric.unit),
                    cell.durability()
                ),
            })
        }));
        if let Some(row) = rows.get_mut(first) {
            row.heading = match x {
                "system" => None,
                "durability" => Some(format!("durability {}", names::value(value))),
                path => Some(format!("{} {}", names::short(path, &paths), names::value(value))),
            };
        }
    }
    rows
}

fn of_system(system: &str, cells: &[Cell<'_>]) -> u8 {
    let mut systems: Vec<String> = cells.iter().map(|cell| cell.system.clone()).collect();
    systems.dedup();
    Mark::new(names::colour(system, &systems), 0).colour
}

fn row_name(line: &str, x: &str, value: &Value) -> String {
    match (line, x, value) {
        ("", "system", Value::String(system)) => names::system(system),
        ("", _, value) => names::value(value),
        (line, "system", Value::String(system)) => format!("{}, {line}", names::system(system)),
        (line, _, _) => line.to_owned(),
    }
}

/// Returns the heading of a chart: with several metrics it names its own.
fn heading(facet: Option<String>, figure: &Figure, metric: &Metric) -> Option<String> {
    let several = figure.y.len() > 1;
    match (facet, several) {
        (Some(facet), true) => Some(format!("{}: {facet}", capital(metric.label))),
        (None, true) => Some(capital(metric.label)),
        (facet, false) => facet,
    }
}

fn note_repetitions(drawn: &mut Drawn, cells: &[Cell<'_>]) {
    let counts = cells
        .iter()
        .map(|cell| cell.measured().count())
        .filter(|count| *count > 0);
    let Some(least) = counts.min() else { return };
    drawn.notes.push(if least < 2 {
        "Without error bars: a single repetition says nothing about how far another would be off.".to_owned()
    } else {
        format!("Means with their 95 % confidence intervals; at least {least} repetitions each.")
    });
}
