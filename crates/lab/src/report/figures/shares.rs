//! Shares of a time: that of the way there and back, that of the broker, and that which each further level of
//! a parameter adds.
//!
//! Differences of means have no interval: their own bars tell two levels apart.

use super::split::{Line, split};
use super::{Drawn, capital};
use crate::experiment::Figure;
use crate::report::cells::{Cell, grouped};
use crate::report::chart::{Axis, Row, RowChart};
use crate::report::load::Recorded;
use crate::report::{names, numbers};
use crate::results::{Metric, metric};

pub(super) fn draw(figure: &Figure, recorded: &Recorded, cells: &[Cell<'_>]) -> Drawn {
    let mut drawn = Drawn::new(figure);
    let x = figure.x.as_deref().unwrap_or("durability");
    let network = recorded.run.network.as_ref();
    for metric in figure.y.iter().filter_map(|name| metric(name)) {
        // A question and its answer go to the broker and from there, each.
        let trips = if metric.name.starts_with("round_trip") {
            2.0
        } else {
            1.0
        };
        let way = network.map(|network| trips * network.round_trip.p50_us as f64);
        let facets = split(figure, cells);
        let all = facets.iter().flat_map(|facet| {
            let charts = facet.lines.iter();
            charts.map(move |line| (&facet.heading, line, parts(line, x, metric, way)))
        });
        let all: Vec<_> = all.collect();
        let ends: Vec<f64> = all
            .iter()
            .flat_map(|(_, _, parts)| parts.iter().map(|part| part.value.max(0.0)))
            .collect();
        // All charts have one scale, so that they can be compared.
        let axis = Axis::linear(&capital(metric.label), metric.unit, ends);
        for (heading, line, parts) in &all {
            let whole: f64 = parts.iter().map(|part| part.value).sum();
            let rows = parts
                .iter()
                .map(|part| part.row(whole, metric, line.entry.mark.colour));
            let chart = RowChart {
                title: format!("{}: {}", figure.title, metric.label),
                axis: axis.clone(),
                rows: rows.collect(),
                from: 0.0,
            };
            let name = [heading.as_deref().unwrap_or_default(), &line.entry.name];
            let name: Vec<_> = name.into_iter().filter(|part| !part.is_empty()).collect();
            drawn.push_rows(Some(name.join(", ")).filter(|name| !name.is_empty()), &chart);
        }
    }
    drawn.notes.push(format!(
        "Shares of the mean at the last level. What a level adds is its difference to the one before, and may be below zero where \
         they are not told apart. {}",
        if network.is_some() {
            "The network's part is the round trip of one byte without a broker, once for each message that goes through it and back."
        } else {
            "The network was not measured, and stands with the broker."
        }
    ));
    drawn
}

/// A part of the time, in the metric's unit.
struct Part {
    name: String,
    value: f64,
    durability: String,
}

impl Part {
    fn row(&self, whole: f64, metric: &Metric, colour: u8) -> Row {
        let share = if whole > 0.0 { self.value / whole } else { 0.0 };
        Row {
            heading: None,
            name: self.name.clone(),
            colour,
            value: self.value.max(0.0),
            interval: None,
            says: format!(
                "{} · {} · {}",
                numbers::percent(share),
                numbers::alone(self.value, metric.unit),
                self.durability
            ),
        }
    }
}

/// Returns the parts that a line's levels add to each other, in the order of the experiment.
fn parts(line: &Line<'_, '_>, x: &str, metric: &Metric, way: Option<f64>) -> Vec<Part> {
    let mut levels = levels(line, x, metric).into_iter();
    let Some(first) = levels.next() else {
        return Vec::new();
    };
    let way = way.filter(|way| *way < first.mean());
    let network = way.map(|way| Part {
        name: "Network".to_owned(),
        value: way,
        durability: first.durability.clone(),
    });
    let rest = if way.is_some() {
        "Broker and clients"
    } else {
        "Broker, clients and network"
    };
    let mut parts: Vec<Part> = network.into_iter().collect();
    let mut before = first.mean();
    parts.push(Part {
        name: rest.to_owned(),
        value: before - way.unwrap_or(0.0),
        durability: first.durability,
    });
    for level in levels {
        let mean = level.mean();
        parts.push(Part {
            name: format!("{}, beyond that", level.name),
            value: mean - before,
            durability: level.durability,
        });
        before = mean;
    }
    parts
}

/// Value along x, with everything measured there.
struct Level {
    name: String,
    durability: String,
    values: Vec<f64>,
}

impl Level {
    fn mean(&self) -> f64 {
        self.values.iter().sum::<f64>() / (self.values.len().max(1) as f64)
    }
}

/// A system that lacks a level of durability is measured twice at the one that it has: that is one level.
fn levels(line: &Line<'_, '_>, x: &str, metric: &Metric) -> Vec<Level> {
    let is_durability = matches!(x, "durability" | "system.durability");
    let named = |cell: &&Cell<'_>| match cell.dimension(x) {
        Some(value) if !is_durability => names::value(&value),
        _ => cell.durability().to_owned(),
    };
    let measured = line
        .cells
        .iter()
        .filter(|cell| !cell.values(metric.name).is_empty());
    let levels = grouped(measured.map(|cell| (named(cell), cell))).into_iter();
    let level = |(name, cells): (String, Vec<&&Cell<'_>>)| Level {
        name,
        durability: cells.first().map_or("", |cell| cell.durability()).to_owned(),
        values: cells.iter().flat_map(|cell| cell.values(metric.name)).collect(),
    };
    levels.map(level).collect()
}
