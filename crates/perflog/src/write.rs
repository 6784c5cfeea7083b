//! An analysis as CSV, JSON or SVG.

use std::fmt::Write as _;

use crate::windows::{Analysis, Statistics};
use stafett_charts::{Axis, LineChart, LinePoint, Mark, STYLE, Series, Width};

/// Statistic that is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    Median,
    Mean,
}

/// Quantity that is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    ResponseTime,
    Throughput,
}

/// One row for each window of each action.
pub fn csv(analysis: &Analysis) -> String {
    let mut out = "action,at_s,count,throughput,mean_us,deviation_us,median_us,low_us,high_us\n".to_owned();
    for series in &analysis.series {
        for window in &series.windows {
            let Statistics {
                count,
                throughput,
                mean_us,
                deviation_us,
                median_us,
                low_us,
                high_us,
            } = window.statistics;
            // Writing to a text does not fail.
            let _ = writeln!(
                out,
                "{},{:.3},{count},{throughput:.3},{mean_us:.3},{deviation_us:.3},{median_us},{low_us},{high_us}",
                series.action, window.at_s
            );
        }
    }
    out
}

pub fn json(analysis: &Analysis) -> serde_json::Result<String> {
    serde_json::to_string_pretty(analysis).map(|text| text + "\n")
}

/// A chart of one quantity over time; bars are the band.
pub fn svg(analysis: &Analysis, of: Quantity, statistic: Statistic) -> String {
    let series = analysis.series.iter().enumerate().map(|(place, series)| {
        let points = series.windows.iter().map(|window| {
            let it = &window.statistics;
            let (y, interval) = match (of, statistic) {
                (Quantity::Throughput, _) => (it.throughput, None),
                (Quantity::ResponseTime, Statistic::Median) => {
                    (it.median_us as f64, Some((it.low_us as f64, it.high_us as f64)))
                }
                (Quantity::ResponseTime, Statistic::Mean) => (
                    it.mean_us,
                    Some((
                        (it.mean_us - it.deviation_us).max(0.0),
                        it.mean_us + it.deviation_us,
                    )),
                ),
            };
            LinePoint {
                x: window.at_s,
                y,
                interval,
                says: format!(
                    "{}: {y:.1} at {:.1} s, of {}",
                    series.action, window.at_s, it.count
                ),
            }
        });
        Series::marks(Mark::new(place, place), points.collect())
    });
    let series: Vec<Series> = series.collect();
    let points = || series.iter().flat_map(|series| &series.points);
    let (label, unit) = match of {
        Quantity::Throughput => ("throughput", "1/s"),
        Quantity::ResponseTime => ("time", "µs"),
    };
    let tops = points().map(|point| point.interval.map_or(point.y, |(_, high)| high));
    let names: Vec<&str> = analysis.series.iter().map(|series| series.action).collect();
    let chart = LineChart {
        title: format!("{label}: {}", names.join(", ")),
        x: Axis::linear("time since the first line", "s", points().map(|point| point.x)),
        y: Axis::linear(label, unit, tops.collect::<Vec<_>>()),
        series,
        shaded: Vec::new(),
        low: false,
    };
    let drawn = chart.draw(Width::Desktop);
    // It stands alone: with its name space and its colours.
    let styled = format!("<svg xmlns=\"http://www.w3.org/2000/svg\"><style>{STYLE}</style>{drawn}</svg>\n");
    styled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::windows::{ActionSeries, Window};

    fn analysis() -> Analysis {
        let statistics = Statistics {
            count: 2,
            throughput: 20.0,
            mean_us: 1.5,
            deviation_us: 0.5,
            median_us: 1,
            low_us: 1,
            high_us: 2,
        };
        let window = |at_s| Window { at_s, statistics };
        Analysis {
            lines: 4,
            unreadable_lines: 0,
            share: Some(0.1),
            window_s: 1.0,
            series: vec![ActionSeries {
                action: "request",
                all: statistics,
                windows: vec![window(0.0), window(1.0)],
            }],
        }
    }

    #[test]
    fn a_row_is_a_window() {
        let expected = "action,at_s,count,throughput,mean_us,deviation_us,median_us,low_us,high_us\n\
                        request,0.000,2,20.000,1.500,0.500,1,1,2\nrequest,1.000,2,20.000,1.500,0.500,1,1,2\n";
        assert_eq!(csv(&analysis()), expected);
    }

    #[test]
    fn json_and_a_chart_have_all_windows() {
        let json = json(&analysis()).unwrap();
        assert_eq!(json.matches("\"median_us\"").count(), 3, "{json}");
        let svg = svg(&analysis(), Quantity::ResponseTime, Statistic::Median);
        assert!(svg.starts_with("<svg xmlns="));
        assert!(svg.contains("request: 1.0 at 1.0 s, of 2"), "{svg}");
    }
}
