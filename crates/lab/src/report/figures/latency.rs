//! Latency by percentile: every repetition's histogram, merged.

use hdrhistogram::Histogram;

use super::Drawn;
use super::split::split;
use crate::experiment::Figure;
use crate::report::cells::Cell;
use crate::report::chart::{Axis, LineChart, LinePoint, Series};
use crate::report::numbers;

/// Percentiles that get a mark, so that curves can be told apart without colours.
const MARKED: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 0.9999];

pub(super) fn draw(figure: &Figure, cells: &[Cell<'_>]) -> Result<Drawn, std::fmt::Error> {
    let mut drawn = Drawn::new(figure);
    for name in &figure.y {
        for facet in split(figure, cells) {
            let mut curves = Vec::new();
            for line in &facet.lines {
                let mut merged: Option<Histogram<u64>> = None;
                for histogram in line.cells.iter().filter_map(|cell| cell.latencies(name)) {
                    match &mut merged {
                        None => merged = Some(histogram),
                        Some(merged) => {
                            let _ = merged.add(histogram);
                        }
                    }
                }
                if let Some(histogram) = merged {
                    curves.push((line.entry.clone(), histogram));
                }
            }
            let count = curves
                .iter()
                .map(|(_, histogram)| histogram.len())
                .max()
                .unwrap_or(0);
            let mut series = Vec::new();
            for (entry, histogram) in &curves {
                series.push(curve(histogram, entry.mark));
                series.push(marks(histogram, entry.mark, &entry.name, &entry.durability));
            }
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
            drawn.add_entries(curves.into_iter().map(|(entry, _)| entry));
        }
    }
    drawn.notes.push(
        "Taken from the intended moment of sending, so that a stall counts for everything it held up. Each curve ends \
         where its number of messages ends; all repetitions together."
            .to_owned(),
    );
    Ok(drawn)
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
