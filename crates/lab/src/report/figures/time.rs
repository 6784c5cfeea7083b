//! Values second by second, of the repetition that is in the middle.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::Drawn;
use super::seconds::{Laid, Seconds, add_up, length, whole};
use super::split::{Line, split};
use crate::experiment::{Figure, Role};
use crate::report::cells::Cell;
use crate::report::chart::{Axis, LineChart, LinePoint, Series};
use crate::report::load::Recorded;
use crate::results::ProcessKind::{Broker, Client};
use crate::results::{Point, ProcessKind, ProcessSample, RateSample, RoleResult, histogram};

/// A time series that a figure can ask for by name.
struct Shown {
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    of: fn(&Point, &Asked<'_>) -> Seconds,
}

/// Wishes of a figure for its points.
struct Asked<'a> {
    roles: &'a BTreeMap<String, Role>,
    /// Seconds of each value; 0: one second.
    window: u32,
}

macro_rules! shown {
    ($($name:literal, $label:literal, $unit:literal, $of:expr;)*) => {
        &[$(Shown { name: $name, label: $label, unit: $unit, of: $of }),*]
    };
}

const P2_5: fn(&Point, &Asked<'_>) -> Seconds = |point, asked| {
    latency(
        point,
        asked,
        |sample| sample.p2_5_us,
        |all| all.value_at_quantile(0.025),
    )
};
const P50: fn(&Point, &Asked<'_>) -> Seconds = |point, asked| {
    latency(
        point,
        asked,
        |sample| sample.p50_us,
        |all| all.value_at_quantile(0.5),
    )
};
const P97_5: fn(&Point, &Asked<'_>) -> Seconds = |point, asked| {
    latency(
        point,
        asked,
        |sample| sample.p97_5_us,
        |all| all.value_at_quantile(0.975),
    )
};

const SHOWN: &[Shown] = shown! {
    "rate", "Acknowledged messages per second", "1/s",
        |point, _| per_second(point, sends, |sample| sample.acknowledged);
    "rate", "Received messages per second", "1/s",
        |point, _| per_second(point, consumes, |sample| sample.received);
    "band", "Median of latency, and the band from 2.5 to 97.5 %", "µs", P50;
    "p99", "99th percentile of latency", "µs",
        |point, asked| latency(point, asked, |sample| sample.p99_us, |all| all.value_at_quantile(0.99));
    "p2_5", "2.5th percentile of latency", "µs", P2_5;
    "p50", "Median of latency", "µs", P50;
    "p97_5", "97.5th percentile of latency", "µs", P97_5;
    "max", "Longest latency", "µs", |point, asked| latency(point, asked, |sample| sample.max_us, Histogram::max);
    "mean", "Mean latency", "µs", |point, asked| latency(point, asked, |sample| sample.mean_us, rounded_mean);
    "clients", "Clients at work", "", |point, _| of_roles(point, |_| true, |sample| f64::from(sample.clients));
    "timed_out", "Not answered in time, per second", "1/s",
        |point, _| per_second(point, |_| true, |sample| sample.timed_out);
    "failed", "Refused or given up, per second", "1/s",
        |point, _| per_second(point, |_| true, |sample| sample.failed);
    "reconnects", "Reconnects per second", "1/s",
        |point, _| per_second(point, |_| true, |sample| sample.reconnects);
    "backlog", "Messages waiting", "messages", backlog;
    "broker_cpu", "Broker's CPU, cores", "", |point, _| each(point, Broker, |sample| sample.cpu_user_s + sample.cpu_system_s);
    "broker_cpu_user", "Broker's CPU in user mode, cores", "", |point, _| each(point, Broker, |sample| sample.cpu_user_s);
    "broker_cpu_system", "Broker's CPU in system mode, cores", "",
        |point, _| each(point, Broker, |sample| sample.cpu_system_s);
    "client_cpu", "Client's CPU, cores", "", |point, _| each(point, Client, |sample| sample.cpu_user_s + sample.cpu_system_s);
    "client_cpu_user", "Client's CPU in user mode, cores", "", |point, _| each(point, Client, |sample| sample.cpu_user_s);
    "client_cpu_system", "Client's CPU in system mode, cores", "",
        |point, _| each(point, Client, |sample| sample.cpu_system_s);
    "broker_memory", "Broker's memory", "MiB",
        |point, _| of_processes(point, Broker, |sample| sample.memory_bytes as f64 / f64::from(1 << 20));
    "network_in", "Network, received", "B/s", |point, _| network(point, |sample| sample.network_received_bytes);
    "network_out", "Network, sent", "B/s", |point, _| network(point, |sample| sample.network_sent_bytes);
    "disk_read", "Broker's reads from disk", "B/s", |point, _| each(point, Broker, |sample| sample.disk_read_bytes as f64);
    "disk_written", "Broker's writes to disk", "B/s",
        |point, _| each(point, Broker, |sample| sample.disk_written_bytes as f64);
    "threads", "Broker's threads", "", |point, _| of_processes(point, Broker, |sample| f64::from(sample.threads));
    "open_files", "Broker's open files", "", |point, _| of_processes(point, Broker, |sample| f64::from(sample.open_files));
    "context_switches", "Broker's context switches", "1/s",
        |point, _| each(point, Broker, |sample| sample.context_switches as f64);
};

pub(super) fn draw(figure: &Figure, recorded: &Recorded, cells: &[Cell<'_>]) -> Drawn {
    let mut drawn = Drawn::new(figure);
    let window = figure.window.map_or(0.0, |window| window.0.as_secs_f64());
    let asked = Asked {
        roles: &recorded.run.experiment.roles,
        window: whole(window),
    };
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
            let curve = |(line, point): &(&Line<'_, '_>, &Point)| curve(line, point, shown, &asked);
            let mut series: Vec<Series> = points
                .iter()
                .map(curve)
                .filter(|series| !series.points.is_empty())
                .collect();
            // Lines that are told apart by more than their colour.
            let ends: Vec<Series> = series.iter().filter_map(last_mark).collect();
            series.extend(ends);
            let reach = |point: &LinePoint| {
                point
                    .interval
                    .map_or([point.y; 3], |(low, high)| [low, point.y, high])
            };
            let values: Vec<f64> = drawn_points(&series).flat_map(reach).collect();
            let y = Axis::scaled(figure.log_y, shown.label, shown.unit, values);
            let last = drawn_points(&series).map(|point| point.x).fold(0.0, f64::max);
            let x = seconds.clone().tight([0.0, last.max(1.0)]);
            let mut shaded: Vec<_> = (warmup > 0.0).then_some((0.0, warmup)).into_iter().collect();
            shaded.extend(points.iter().flat_map(|(_, point)| &point.outages));
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
    let each = figure
        .window
        .map_or(String::new(), |window| format!(" Each value is of {window}."));
    drawn.notes.push(format!(
        "Of several repetitions, the one whose rate is in the middle. Shaded: the warm-up, which does not count, and faults of the system.{each}"
    ));
    drawn
}

fn curve(line: &Line<'_, '_>, point: &Point, shown: &Shown, asked: &Asked<'_>) -> Series {
    let ends = (shown.name == "band").then(|| (P2_5(point, asked), P97_5(point, asked)));
    let interval = |at: u32| {
        let (low, high) = ends.as_ref()?;
        Some((*low.get(&at)?, *high.get(&at)?))
    };
    let values = of_windows((shown.of)(point, asked), asked.window).into_iter();
    let points = values.map(|(at, value)| at_second(at, value, interval(at)));
    Series::curve(line.entry.mark, points.collect())
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

/// Takes the mean of the values of each window, which stands at its end.
fn of_windows(seconds: Seconds, window: u32) -> Seconds {
    let mut sums: BTreeMap<u32, (f64, u32)> = BTreeMap::new();
    for (at, value) in seconds {
        let (sum, count) = sums.entry(at.next_multiple_of(window.max(1))).or_default();
        *sum += value;
        *count += 1;
    }
    let mean = |(at, (sum, count)): (u32, (f64, u32))| (at, sum / f64::from(count));
    sums.into_iter().map(mean).collect()
}

fn rounded_mean(all: &Histogram<u64>) -> u64 {
    u64::from(whole(all.mean().round()))
}

fn at_second(at: u32, value: f64, interval: Option<(f64, f64)>) -> LinePoint {
    LinePoint {
        x: f64::from(at),
        y: value,
        interval,
        says: String::new(),
    }
}

fn last_mark(series: &Series) -> Option<Series> {
    let last = LinePoint {
        interval: None,
        ..series.points.last()?.clone()
    };
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

/// The worst of the roles that send; of the others, where none does. Of each window, if one is asked for,
/// with all latencies in it.
fn latency(
    point: &Point,
    asked: &Asked<'_>,
    of: fn(&RateSample) -> Option<u64>,
    of_all: fn(&Histogram<u64>) -> u64,
) -> Seconds {
    let any_sends = point.roles.iter().any(sends);
    let mut seconds = Seconds::new();
    let mut take = |at: u32, value: u64| {
        let worst = seconds.entry(at).or_default();
        *worst = f64::max(*worst, value as f64);
    };
    for role in point.roles.iter().filter(|role| sends(role) == any_sends) {
        if asked.window > 0 && !role.windows.is_empty() {
            for (at, all) in merged_windows(role, asked.window) {
                take(at, of_all(&all));
            }
            continue;
        }
        for sample in &role.samples {
            if let Some(value) = of(sample) {
                take(whole(sample.at_s.round()), value);
            }
        }
    }
    seconds
}

/// The latencies of a role in windows of that many seconds, by their ends.
fn merged_windows(role: &RoleResult, seconds: u32) -> BTreeMap<u32, Histogram<u64>> {
    let mut merged = BTreeMap::new();
    for window in &role.windows {
        if let Ok(latencies) = histogram::decode(&window.histogram) {
            let end = whole(window.at_s.round()).next_multiple_of(seconds);
            let all = merged.entry(end).or_insert_with(histogram::empty);
            // Both have the lab's own bounds.
            let _ = all.add(latencies);
        }
    }
    merged
}

/// Messages that were acknowledged and not yet received. Where every client gets everything, by their
/// average.
fn backlog(point: &Point, asked: &Asked<'_>) -> Seconds {
    let mut changes = Seconds::new();
    for role in &point.roles {
        let fan_out = asked.roles.get(&role.name).is_some_and(|role| role.fan_out);
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

fn of_processes(point: &Point, kind: ProcessKind, value: impl Fn(&ProcessSample) -> f64) -> Seconds {
    let processes = point.processes.iter().filter(|process| process.kind == kind);
    summed(processes.map(|process| {
        let samples = process.samples.iter();
        samples.map(|sample| (sample.at_s, sample.seconds, value(sample)))
    }))
}

/// As [`of_processes`], of sums over the time of a sample: per second.
fn each(point: &Point, kind: ProcessKind, value: fn(&ProcessSample) -> f64) -> Seconds {
    of_processes(point, kind, move |sample| value(sample) / length(sample.seconds))
}

/// The network of the broker's machine; of the client's, where the broker is on another one.
fn network(point: &Point, bytes: fn(&ProcessSample) -> u64) -> Seconds {
    let of = |kind| point.processes.iter().find(move |process| process.kind == kind);
    let process = of(Broker).or_else(|| of(Client));
    summed(process.into_iter().map(|process| {
        let samples = process.samples.iter();
        samples.map(|sample| {
            let per_second = bytes(sample) as f64 / length(sample.seconds);
            (sample.at_s, sample.seconds, per_second)
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::SERIES;

    #[test]
    fn every_series_that_a_figure_can_name_is_drawn() {
        let mut shown: Vec<&str> = SHOWN.iter().map(|shown| shown.name).collect();
        shown.sort_unstable();
        shown.dedup();
        let mut known = SERIES.to_vec();
        known.sort_unstable();
        assert_eq!(shown, known);
    }

    #[test]
    fn a_window_has_the_mean_of_its_seconds_and_stands_at_its_end() {
        let seconds = Seconds::from([(1, 1.0), (10, 3.0), (11, 7.0)]);
        assert_eq!(
            of_windows(seconds.clone(), 10),
            Seconds::from([(10, 2.0), (20, 7.0)])
        );
        assert_eq!(of_windows(seconds.clone(), 0), seconds);
    }
}
