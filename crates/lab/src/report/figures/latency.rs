//! Latency by percentile: every repetition's histogram, merged.

use hdrhistogram::Histogram;

use super::Drawn;
use super::loops::Loops;
use super::split::split;
use crate::experiment::Figure;
use crate::report::cells::Cell;
use crate::report::chart::{Axis, LineChart, LinePoint, Mark, Series};
use crate::report::load::Recorded;
use crate::report::numbers;
use crate::results::histogram;

/// Percentiles that get a mark, so that curves can be told apart without colours.
const MARKED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

pub(super) fn draw(figure: &Figure, recorded: &Recorded, cells: &[Cell<'_>]) -> Drawn {
    let mut drawn = Drawn::new(figure);
    let mut has_curves = false;
    let mut loops = Loops::default();
    for name in &figure.y {
        for facet in split(figure, cells) {
            let mut curves = Vec::new();
            for line in &facet.lines {
                let latencies = line.cells.iter().flat_map(|cell| cell.latencies(name));
                if let Some(histogram) = histogram::merged(latencies) {
                    for cell in &line.cells {
                        loops.look(name, recorded, cell);
                    }
                    curves.push((line.entry.clone(), histogram));
                }
            }
            has_curves |= !curves.is_empty();
            let count = curves.iter().map(|(_, histogram)| histogram.len()).max();
            let mut series = Vec::new();
            for (entry, histogram) in &curves {
                series.push(curve(histogram, entry.mark));
                series.push(marks(histogram, entry.mark, &entry.name, &entry.durability));
            }
            let points = series.iter().flat_map(|series| &series.points);
            let values: Vec<f64> = points.map(|point| point.y).collect();
            let chart = LineChart {
                title: format!("{}: {}", figure.title, meaning(name)),
                x: Axis::quantiles(count.unwrap_or(0)),
                y: Axis::logarithmic(meaning(name), "µs", values),
                series,
                shaded: Vec::new(),
                low: false,
            };
            drawn.push_lines(facet.heading, &chart);
            drawn.add_entries(curves.into_iter().map(|(entry, _)| entry));
        }
    }
    drawn.notes.extend(loops.describe());
    drawn
        .notes
        .push("Each curve ends where its number of messages ends; all repetitions together.".to_owned());
    drawn.notes.extend(of_questions(figure, has_curves));
    drawn
}

/// Returns the note about round trips.
fn of_questions(figure: &Figure, has_curves: bool) -> Option<String> {
    let asks = figure.y.iter().any(|name| name == "round_trip");
    (asks && has_curves).then(|| {
        "A question without an answer in time is in it with its requester's patience: it took at least so long."
            .to_owned()
    })
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
fn curve(histogram: &Histogram<u64>, mark: Mark) -> Series {
    let last = (histogram.len().max(10) as f64).log10().min(5.0);
    let steps = (0..=100_u32)
        .map(|step| f64::from(step) * 0.05)
        .take_while(|nines| *nines <= last + 1e-9);
    let points = steps
        .map(|nines| 1.0 - 10f64.powf(-nines))
        .map(|quantile| at(histogram, quantile, String::new()));
    Series::curve(mark, points.collect())
}

fn marks(histogram: &Histogram<u64>, mark: Mark, name: &str, durability: &str) -> Series {
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
    Series::marks(mark, points.collect())
}

fn at(histogram: &Histogram<u64>, quantile: f64, says: String) -> LinePoint {
    LinePoint {
        x: quantile,
        y: histogram.value_at_quantile(quantile).max(1) as f64,
        interval: None,
        says,
    }
}
