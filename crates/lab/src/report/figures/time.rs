//! Values second by second, of the repetition that is in the middle.

use std::collections::BTreeMap;

use super::Drawn;
use super::seconds::{Laid, Seconds, add_up, length, whole};
use super::split::{Line, split};
use crate::experiment::{Figure, Role};
use crate::report::cells::Cell;
use crate::report::chart::{Axis, LineChart, LinePoint, Series};
use crate::report::load::Recorded;
use crate::results::{Point, ProcessKind, ProcessSample, RateSample, RoleResult};

/// A time series that a figure can ask for by name.
struct Shown {
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    of: fn(&Point, &BTreeMap<String, Role>) -> Seconds,
}

macro_rules! shown {
    ($($name:literal, $label:literal, $unit:literal, $of:expr;)*) => {
        &[$(Shown { name: $name, label: $label, unit: $unit, of: $of }),*]
    };
}

const SHOWN: &[Shown] = shown! {
    "rate", "Acknowledged messages per second", "1/s",
        |point, _| per_second(point, sends, |sample| sample.acknowledged);
    "rate", "Received messages per second", "1/s",
        |point, _| per_second(point, consumes, |sample| sample.received);
    "p99", "99th percentile of latency", "µs", |point, _| latency(point, |sample| sample.p99_us);
    "p2_5", "2.5th percentile of latency", "µs", |point, _| latency(point, |sample| sample.p2_5_us);
    "p50", "Median of latency", "µs", |point, _| latency(point, |sample| sample.p50_us);
    "p97_5", "97.5th percentile of latency", "µs", |point, _| latency(point, |sample| sample.p97_5_us);
    "max", "Longest latency", "µs", |point, _| latency(point, |sample| sample.max_us);
    "clients", "Clients at work", "", |point, _| of_roles(point, |_| true, |sample| f64::from(sample.clients));
    "timed_out", "Not answered in time, per second", "1/s",
        |point, _| per_second(point, |_| true, |sample| sample.timed_out);
    "failed", "Refused or given up, per second", "1/s",
        |point, _| per_second(point, |_| true, |sample| sample.failed);
    "reconnects", "Reconnects per second", "1/s",
        |point, _| per_second(point, |_| true, |sample| sample.reconnects);
    "backlog", "Messages waiting", "messages", backlog;
    "broker_cpu", "Broker's CPU, cores", "", |point, _| of_processes(point, ProcessKind::Broker, cores);
    "client_cpu", "Client's CPU, cores", "", |point, _| of_processes(point, ProcessKind::Client, cores);
    "broker_memory", "Broker's memory", "MiB", |point, _| of_processes(point, ProcessKind::Broker, mebibytes);
};

pub(super) fn draw(figure: &Figure, recorded: &Recorded, cells: &[Cell<'_>]) -> Drawn {
    let mut drawn = Drawn::new(figure);
    let roles = &recorded.run.experiment.roles;
    for facet in split(figure, cells) {
        let points: Vec<_> = facet
            .lines
            .iter()
            .flat_map(|line| line.cells.iter().map(move |cell| (line, cell)))
            .filter_map(|(line, cell)| Some((line, cell.typical(main_metric(cell))?)))
            .collect();
        let ends = points.iter().map(|(_, point)| point.warmup_s + point.measured_s);
        let warmup = points.iter().map(|(_, point)| point.warmup_s).fold(0.0, f64::max);
        let seconds = seconds(ends);
        for shown in figure
            .y
            .iter()
            .flat_map(|name| SHOWN.iter().filter(move |shown| shown.name == name))
        {
            let curve = |(line, point): &(&Line<'_, '_>, &Point)| {
                let values = (shown.of)(point, roles).into_iter();
                let points = values.map(|(at, value)| at_second(at, value)).collect();
                Series::curve(line.entry.mark, points)
            };
            let mut series: Vec<Series> = points
                .iter()
                .map(curve)
                .filter(|series| !series.points.is_empty())
                .collect();
            // Lines that are told apart by more than their colour.
            let ends: Vec<Series> = series.iter().filter_map(last_mark).collect();
            series.extend(ends);
            let values: Vec<f64> = drawn_points(&series).map(|point| point.y).collect();
            let y = Axis::scaled(figure.log_y, shown.label, shown.unit, values);
            let last = drawn_points(&series).map(|point| point.x).fold(0.0, f64::max);
            let x = seconds.clone().tight([0.0, last.max(1.0)]);
            let shaded = (warmup > 0.0).then_some((0.0, warmup));
            let title = format!("{}: {}", figure.title, shown.label);
            drawn.push_lines(
                facet.heading.clone(),
                &LineChart {
                    title,
                    x,
                    y,
                    series,
                    shaded,
                    low: true,
                },
            );
        }
        drawn.add_entries(facet.lines.iter().map(|line| line.entry.clone()));
    }
    drawn
        .notes
        .push("Of several repetitions, the one whose rate is in the middle. Shaded: the warm-up, which does not count.".to_owned());
    drawn
}

fn drawn_points(series: &[Series]) -> impl Iterator<Item = &LinePoint> {
    series.iter().flat_map(|series| &series.points)
}

/// Ticks that say their unit, so that the axis needs no label.
fn seconds(ends: impl Iterator<Item = f64>) -> Axis {
    let axis = Axis::linear("", "s", ends);
    let ticks = axis.ticks.iter();
    let ticks: Vec<_> = ticks
        .map(|tick| (tick.at, format!("{}\u{202f}s", tick.label)))
        .collect();
    axis.with_ticks(ticks)
}

fn main_metric(cell: &Cell<'_>) -> &'static str {
    let known = ["produce_rate", "goodput", "consume_rate"];
    known
        .into_iter()
        .find(|name| !cell.values(name).is_empty())
        .unwrap_or("produce_rate")
}

fn at_second(at: u32, value: f64) -> LinePoint {
    LinePoint {
        x: f64::from(at),
        y: value,
        interval: None,
        says: String::new(),
    }
}

fn last_mark(series: &Series) -> Option<Series> {
    let last = series.points.last()?.clone();
    Some(Series::marks(series.mark, vec![last]))
}

fn sends(role: &RoleResult) -> bool {
    matches!(role.does.as_str(), "produce" | "relay" | "request")
}

fn consumes(role: &RoleResult) -> bool {
    role.does == "consume"
}

fn of_roles(point: &Point, which: fn(&RoleResult) -> bool, value: impl Fn(&RateSample) -> f64) -> Seconds {
    let roles = point.roles.iter().filter(|role| which(role));
    summed(roles.map(|role| {
        let samples = role.samples.iter();
        samples.map(|sample| (sample.at_s, sample.seconds, value(sample)))
    }))
}

/// Adds up several sources, each with samples: their ends, lengths and values.
fn summed(sources: impl Iterator<Item = impl Iterator<Item = (f64, f64, f64)>>) -> Seconds {
    let mut all = Seconds::new();
    for samples in sources {
        let mut laid = Laid::default();
        samples.for_each(|(at_s, seconds, value)| laid.add(at_s, seconds, value));
        add_up(&mut all, laid.means());
    }
    all
}

fn per_second(point: &Point, which: fn(&RoleResult) -> bool, count: fn(&RateSample) -> u64) -> Seconds {
    of_roles(point, which, |sample| {
        count(sample) as f64 / length(sample.seconds)
    })
}

/// The worst of the roles that send; of the others, where none does.
fn latency(point: &Point, of: fn(&RateSample) -> Option<u64>) -> Seconds {
    let any_sends = point.roles.iter().any(sends);
    let mut seconds = Seconds::new();
    for role in point.roles.iter().filter(|role| sends(role) == any_sends) {
        for sample in &role.samples {
            if let Some(value) = of(sample) {
                let at = seconds.entry(whole(sample.at_s.round())).or_default();
                *at = at.max(value as f64);
            }
        }
    }
    seconds
}

/// Messages that were acknowledged and not yet received. Where every client gets everything, by their
/// average.
fn backlog(point: &Point, roles: &BTreeMap<String, Role>) -> Seconds {
    let mut changes = Seconds::new();
    for role in &point.roles {
        let fan_out = roles.get(&role.name).is_some_and(|role| role.fan_out);
        let audience = if fan_out {
            f64::from(role.clients.max(1))
        } else {
            1.0
        };
        let mut laid = Laid::default();
        for sample in &role.samples {
            let sent = if sends(role) {
                sample.acknowledged as f64
            } else {
                0.0
            };
            let change = sent - sample.received as f64 / audience;
            laid.add(sample.at_s, sample.seconds, change / length(sample.seconds));
        }
        add_up(&mut changes, laid.sums());
    }
    let mut waiting = 0.0;
    let running = changes.into_iter().map(|(at, change)| {
        waiting += change;
        // Samples of two roles are not taken at the same instant.
        (at, f64::max(waiting, 0.0))
    });
    running.collect()
}

fn of_processes(point: &Point, kind: ProcessKind, value: fn(&ProcessSample) -> f64) -> Seconds {
    let processes = point.processes.iter().filter(|process| process.kind == kind);
    summed(processes.map(|process| {
        let samples = process.samples.iter();
        samples.map(move |sample| (sample.at_s, sample.seconds, value(sample)))
    }))
}

fn cores(sample: &ProcessSample) -> f64 {
    (sample.cpu_user_s + sample.cpu_system_s) / length(sample.seconds)
}

fn mebibytes(sample: &ProcessSample) -> f64 {
    sample.memory_bytes as f64 / f64::from(1 << 20)
}
