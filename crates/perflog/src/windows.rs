//! Windows of time, with the statistics of the actions that ended in them.

use std::time::Duration;

use serde::Serialize;

use crate::read::Log;
use crate::{Action, Band, Question};

/// Statistics of each action, window by window.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    pub lines: u64,
    pub unreadable_lines: u64,
    /// Part of the requests that the logs have. Throughputs are those of all requests.
    pub share: Option<f64>,
    pub window_s: f64,
    pub series: Vec<ActionSeries>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ActionSeries {
    pub action: &'static str,
    /// Of all windows together.
    pub all: Statistics,
    pub windows: Vec<Window>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Window {
    /// Beginning, in seconds since the first line.
    pub at_s: f64,
    #[serde(flatten)]
    pub statistics: Statistics,
}

/// Statistics of times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Statistics {
    pub count: u64,
    /// Per second, of all requests.
    pub throughput: f64,
    pub mean_us: f64,
    pub deviation_us: f64,
    pub median_us: u64,
    /// Ends of the band.
    pub low_us: u64,
    pub high_us: u64,
}

pub(super) fn of(log: Log, question: &Question) -> Analysis {
    let times = || log.points.values().flatten().map(|(at, _)| *at);
    let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let window = ms(question.window).max(1);
    // A cut that leaves nothing leaves the middle.
    let cut = ms(question.cut).min((last - first) / 2);
    let (from, to) = (first + cut, last - cut);
    let share = log.share.filter(|share| *share > 0.0).unwrap_or(1.0);
    let series = log.points.into_iter().map(|(action, mut points)| {
        points.retain(|(at, _)| (from..=to).contains(at));
        points.sort_unstable();
        let share = if action == Action::Sync { 1.0 } else { share };
        let rate_of = |count: usize, seconds: f64| count as f64 / seconds.max(0.001) / share;
        let windows = points
            .chunk_by(|one, other| (one.0 - from) / window == (other.0 - from) / window)
            .map(|chunk| {
                let at = chunk
                    .first()
                    .map_or(0, |(at, _)| (at - from) / window * window + from);
                // The last window may be shorter.
                let length = window.min(to - at).max(1);
                Window {
                    at_s: (at - first) as f64 / 1000.0,
                    statistics: statistics(chunk, question.band, |count| {
                        rate_of(count, length as f64 / 1000.0)
                    }),
                }
            })
            .collect();
        let whole = (to - from) as f64 / 1000.0;
        ActionSeries {
            action: action.name(),
            all: statistics(&points, question.band, |count| rate_of(count, whole)),
            windows,
        }
    });
    Analysis {
        lines: log.lines,
        unreadable_lines: log.unreadable,
        share: log.share,
        window_s: question.window.as_secs_f64(),
        series: series.collect(),
    }
}

fn statistics(points: &[(i64, u64)], band: Band, rate: impl Fn(usize) -> f64) -> Statistics {
    let mut took: Vec<u64> = points.iter().map(|(_, took)| *took).collect();
    took.sort_unstable();
    let count = took.len();
    let mean = took.iter().sum::<u64>() as f64 / (count.max(1)) as f64;
    let squares: f64 = took.iter().map(|took| (*took as f64 - mean).powi(2)).sum();
    Statistics {
        count: count as u64,
        throughput: rate(count),
        mean_us: mean,
        deviation_us: (squares / (count.saturating_sub(1).max(1)) as f64).sqrt(),
        median_us: percentile(&took, 50.0),
        low_us: percentile(&took, band.low),
        high_us: percentile(&took, band.high),
    }
}

/// Returns the smallest time that this percentage of the times does not exceed. 0 if there is none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a percentage of a count is a count"
)]
fn percentile(sorted: &[u64], percent: f64) -> u64 {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn question(window: u64, cut: u64) -> Question {
        Question {
            folders: Vec::new(),
            actions: vec![Action::Request],
            name: "*".to_owned(),
            window: Duration::from_secs(window),
            cut: Duration::from_secs(cut),
            band: Band {
                low: 10.0,
                high: 90.0,
            },
        }
    }

    /// A line each 100 ms of ten seconds, which took as many µs as its number.
    fn log(share: Option<f64>) -> Log {
        let points = (0..=100)
            .map(|number: i64| (1_000_000 + number * 100, number.cast_unsigned()))
            .collect();
        Log {
            points: BTreeMap::from([(Action::Request, points)]),
            lines: 101,
            share,
            ..Log::default()
        }
    }

    #[test]
    fn windows_have_what_ended_in_them() {
        let analysis = of(log(Some(1.0)), &question(5, 0));
        let [series] = analysis.series.as_slice() else {
            panic!("{analysis:?}")
        };
        let windows: Vec<_> = series
            .windows
            .iter()
            .map(|it| (it.at_s, it.statistics.count))
            .collect();
        assert_eq!(windows, [(0.0, 50), (5.0, 50), (10.0, 1)]);
        let first = series.windows[0].statistics;
        assert_eq!((first.low_us, first.median_us, first.high_us), (4, 24, 44));
        assert!((first.mean_us - 24.5).abs() < 1e-9);
        assert!((first.throughput - 10.0).abs() < 1e-9);
        assert!((first.deviation_us - 14.577_379_737_113).abs() < 1e-9);
    }

    #[test]
    fn what_is_cut_off_does_not_count_and_throughput_is_that_of_all_requests() {
        let analysis = of(log(Some(0.1)), &question(2, 3));
        let series = &analysis.series[0];
        assert_eq!(series.all.count, 41);
        assert_eq!((series.all.low_us, series.all.high_us), (34, 66));
        assert!((series.all.throughput - 102.5).abs() < 1e-9);
        assert!((series.windows[0].at_s - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_cut_longer_than_the_log_and_a_window_of_nothing_are_taken() {
        let analysis = of(log(None), &question(0, 1000));
        assert_eq!(analysis.series[0].all.count, 1);
    }

    #[test]
    fn percentiles_are_times_that_there_were() {
        assert_eq!(percentile(&[], 50.0), 0);
        assert_eq!(percentile(&[7], 0.0), 7);
        assert_eq!(percentile(&[1, 2, 3, 4], 50.0), 2);
        assert_eq!(percentile(&[1, 2, 3, 4], 100.0), 4);
    }
}
