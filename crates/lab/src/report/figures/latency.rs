//! Latency by percentile: every repetition's histogram, merged.

use hdrhistogram::Histogram;

use super::loops::Loops;
use super::split::split;
use super::{Drawn, Entry};
use crate::experiment::Figure;
use crate::report::cells::Cell;
use crate::report::chart::{Axis, LineChart, LinePoint, Series};
use crate::report::load::Recorded;
use crate::report::numbers;
use crate::tools;

/// Percentiles that get a mark, so that curves can be told apart without colours.
const MARKED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

pub(super) fn draw(
    figure: &Figure,
    recorded: &Recorded,
    cells: &[Cell<'_>],
) -> Result<Drawn, std::fmt::Error> {
    let mut drawn = Drawn::new(figure);
    let mut without = Vec::new();
    let mut has_curves = false;
    let mut loops = Loops::default();
    for name in &figure.y {
        for facet in split(figure, cells) {
            let mut curves = Vec::new();
            let mut told: Vec<(Entry, Told)> = Vec::new();
            for line in &facet.lines {
                match merged(name, &line.cells) {
                    Some(histogram) => {
                        for cell in &line.cells {
                            loops.look(name, recorded, cell);
                        }
                        curves.push((line.entry.clone(), histogram));
                    }
                    None if line.cells.iter().any(|cell| is_by_a_tool(cell)) => {
                        told.push((line.entry.clone(), quantiles(name, &line.cells)));
                    }
                    None => {}
                }
            }
            has_curves |= !curves.is_empty();
            without.extend(told.iter().map(|(entry, told)| missing(entry, name, told)));
            told.retain(|(_, told)| !told.is_empty());
            let count = curves
                .iter()
                .map(|(_, histogram)| histogram.len())
                .max()
                .unwrap_or(0);
            let rarest = told
                .iter()
                .flat_map(|(_, told)| told.iter().map(|(quantile, _)| *quantile));
            let count = count.max(rarest.map(messages_for).max().unwrap_or(0));
            let mut series = Vec::new();
            for (entry, histogram) in &curves {
                series.push(curve(histogram, entry.mark));
                series.push(marks(histogram, entry.mark, &entry.name, &entry.durability));
            }
            series.extend(told.iter().map(|(entry, told)| told_marks(entry, told)));
            let values = series
                .iter()
                .flat_map(|series| &series.points)
                .map(|point| point.y);
            let chart = LineChart {
                title: format!("{}: {}", figure.title, meaning(name)),
                x: Axis::quantiles(count),
                y: Axis::logarithmic(meaning(name), "µs", values.collect::<Vec<_>>().into_iter()),
                series,
                shaded: None,
                low: false,
            };
            drawn.push_lines(facet.heading, &chart)?;
            let entries = curves.into_iter().map(|(entry, _)| entry);
            drawn.add_entries(entries.chain(told.into_iter().map(|(entry, _)| entry)));
        }
    }
    if has_curves || without.is_empty() {
        drawn.notes.extend(loops.describe());
        drawn
            .notes
            .push("Each curve ends where its number of messages ends; all repetitions together.".to_owned());
    }
    drawn.is_explained = !without.is_empty();
    without.extend(of_questions(figure, has_curves));
    without.dedup();
    drawn.notes.extend(without);
    Ok(drawn)
}

/// What a reader has to know of round trips.
fn of_questions(figure: &Figure, has_curves: bool) -> Option<String> {
    let asks = figure.y.iter().any(|name| name == "round_trip");
    (asks && has_curves).then(|| {
        "A question without an answer in time is in it with its requester's patience: it took at least so long."
            .to_owned()
    })
}

/// The latencies of all cells of a line together.
fn merged(name: &str, cells: &[&Cell<'_>]) -> Option<Histogram<u64>> {
    let mut all = cells.iter().filter_map(|cell| cell.latencies(name));
    let mut merged = all.next()?;
    for histogram in all {
        // All are of the lab's own bounds.
        let _ = merged.add(histogram);
    }
    Some(merged)
}

fn is_by_a_tool(cell: &Cell<'_>) -> bool {
    cell.measured().any(|point| tools::is_name(&point.driver.name))
}

/// How many messages a quantile needs to be told from those below it.
fn messages_for(quantile: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts to integers saturate"
    )]
    let count = (1.0 / (1.0 - quantile)).round() as u64;
    count
}

/// Quantiles without a histogram, and their values in microseconds.
type Told = Vec<(f64, f64)>;

/// The quantiles that were told where there is no histogram: the means of the repetitions.
fn quantiles(name: &str, cells: &[&Cell<'_>]) -> Told {
    let known = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];
    let told = known.into_iter().filter_map(|(word, quantile)| {
        let metric = format!("{name}_{word}_us");
        let mut estimates = cells.iter().filter_map(|cell| cell.estimate(&metric));
        Some((quantile, estimates.next()?.value))
    });
    told.collect()
}

/// Says why there is no curve.
fn missing(entry: &Entry, name: &str, told: &Told) -> String {
    let what = meaning(name).to_lowercase();
    if told.is_empty() {
        return format!(
            "{} has no curve: its driver does not tell {what} by percentile.",
            entry.name
        );
    }
    format!(
        "{} has marks and no curve: its driver tells a few percentiles of {what} and no histogram, counted from the moment \
         of sending.",
        entry.name
    )
}

/// Where several percentiles are all that is known.
fn told_marks(entry: &Entry, told: &Told) -> Series {
    let points = told.iter().map(|(quantile, value)| LinePoint {
        x: *quantile,
        y: value.max(1.0),
        interval: None,
        says: format!(
            "{}: p{} {} ({})",
            entry.name,
            numbers::tick(quantile * 100.0, ""),
            numbers::alone(*value, "µs"),
            entry.durability
        ),
    });
    Series {
        mark: entry.mark,
        points: points.collect(),
        joined: false,
        marked: true,
    }
}

fn meaning(name: &str) -> &'static str {
    match name {
        "acknowledged" => "Time to acknowledgement",
        "delivery" => "Time to delivery",
        "round_trip" => "Time to answer",
        _ => "Lateness of the lab's own sending",
    }
}

/// A quantile at a distance of a twentieth of a decade of rarity.
fn curve(histogram: &Histogram<u64>, mark: crate::report::chart::Mark) -> Series {
    let last = (histogram.len().max(10) as f64).log10().min(5.0);
    let steps = (0..=100_u32)
        .map(|step| f64::from(step) * 0.05)
        .take_while(|nines| *nines <= last + 1e-9);
    let points = steps
        .map(|nines| 1.0 - 10f64.powf(-nines))
        .map(|quantile| at(histogram, quantile, String::new()));
    Series {
        mark,
        points: points.collect(),
        joined: true,
        marked: false,
    }
}

fn marks(
    histogram: &Histogram<u64>,
    mark: crate::report::chart::Mark,
    name: &str,
    durability: &str,
) -> Series {
    let told = |quantile: &&f64| (1.0 - **quantile) * histogram.len() as f64 >= 1.0 - 1e-9;
    let points = MARKED.iter().filter(told).map(|quantile| {
        let value = numbers::alone(histogram.value_at_quantile(*quantile) as f64, "µs");
        at(
            histogram,
            *quantile,
            format!(
                "{name}: p{} {value} ({durability})",
                numbers::tick(quantile * 100.0, "")
            ),
        )
    });
    Series {
        mark,
        points: points.collect(),
        joined: false,
        marked: true,
    }
}

fn at(histogram: &Histogram<u64>, quantile: f64, says: String) -> LinePoint {
    LinePoint {
        x: quantile,
        y: histogram.value_at_quantile(quantile).max(1) as f64,
        interval: None,
        says,
    }
}
