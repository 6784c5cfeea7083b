//! What a tool tells: intervals, one behind the other, and percentiles without the histograms behind them.

use crate::results::{Counts, RateSample};

/// What one side did in a while. Tools tell rates, so that counts are reckoned, and not whole.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Interval {
    /// Its end, in seconds since the tool began.
    pub(super) until_s: f64,
    pub(super) seconds: f64,
    pub(super) sent: f64,
    pub(super) acknowledged: f64,
    pub(super) failed: f64,
    pub(super) received: f64,
    pub(super) quantiles: Option<Quantiles>,
    pub(super) mean_us: Option<f64>,
    pub(super) max_us: Option<f64>,
}

/// Points of a distribution that are known, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quantiles {
    pub(super) min: f64,
    pub(super) p50: f64,
    pub(super) p75: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
}

impl Interval {
    pub(super) fn p99_us(&self) -> Option<u64> {
        self.quantiles.map(|known| rounded(known.p99))
    }
}

impl Quantiles {
    fn points(&self) -> [(f64, f64); 5] {
        [
            (self.min, 0.0),
            (self.p50, 0.5),
            (self.p75, 0.75),
            (self.p95, 0.95),
            (self.p99, 0.99),
        ]
    }

    /// The share of messages that took no longer. Between two known points it grows evenly; of the slowest hundredth no
    /// more is known than where it begins.
    fn share_until(&self, micros: f64) -> f64 {
        let mut before = (self.min, 0.0);
        if micros < self.min {
            return 0.0;
        }
        for (at, share) in self.points() {
            if micros < at {
                let width = (at - before.0).max(f64::MIN_POSITIVE);
                return before.1 + (share - before.1) * (micros - before.0) / width;
            }
            before = (at, share);
        }
        1.0
    }
}

/// The quantile of all messages together, out of the quantiles of each interval and how many messages it had.
pub(super) fn quantile_of_all(parts: &[(f64, Quantiles)], quantile: f64) -> Option<f64> {
    const HALVINGS: u32 = 80;
    let all: f64 = parts.iter().map(|(count, _)| count).sum();
    if all <= 0.0 {
        return None;
    }
    let mut low = parts.iter().map(|(_, known)| known.min).reduce(f64::min)?;
    let mut high = parts.iter().map(|(_, known)| known.p99).reduce(f64::max)?;
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        let until: f64 = parts
            .iter()
            .map(|(count, known)| count * known.share_until(middle))
            .sum();
        if until < quantile * all {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high)
}

/// One side over time.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Series {
    pub(super) intervals: Vec<Interval>,
}

impl Series {
    /// Its end.
    pub(super) fn until_s(&self) -> f64 {
        self.intervals.last().map_or(0.0, |last| last.until_s)
    }

    /// The same, so many seconds later.
    pub(super) fn moved(&self, seconds: f64) -> Self {
        let later = |interval: &Interval| Interval {
            until_s: interval.until_s + seconds,
            ..*interval
        };
        Self {
            intervals: self.intervals.iter().map(later).collect(),
        }
    }

    /// What several programs did on the same side.
    pub(super) fn together(all: &[Self]) -> Self {
        Self {
            intervals: all
                .iter()
                .flat_map(|series| series.intervals.iter().copied())
                .collect(),
        }
    }

    /// What fell between two moments; an interval that lies across one of them counts by its share.
    fn between(&self, from_s: f64, to_s: f64) -> impl Iterator<Item = (f64, &Interval)> {
        self.intervals.iter().filter_map(move |interval| {
            let begin_s = interval.until_s - interval.seconds;
            let inside = interval.until_s.min(to_s) - begin_s.max(from_s);
            let share = (inside / interval.seconds.max(1e-9)).min(1.0);
            (share > 0.0).then_some((share, interval))
        })
    }

    pub(super) fn sum(&self, (from_s, to_s): (f64, f64), of: impl Fn(&Interval) -> f64) -> f64 {
        self.between(from_s, to_s)
            .map(|(share, interval)| share * of(interval))
            .sum()
    }

    pub(super) fn counts(&self, window: (f64, f64), size_bytes: u64) -> Counts {
        let sum = |of: fn(&Interval) -> f64| rounded(self.sum(window, of));
        let (acknowledged, received) = (
            sum(|interval| interval.acknowledged),
            sum(|interval| interval.received),
        );
        Counts {
            sent: sum(|interval| interval.sent),
            acknowledged,
            failed: sum(|interval| interval.failed),
            received,
            bytes_sent: acknowledged * size_bytes,
            bytes_received: received * size_bytes,
            ..Counts::default()
        }
    }

    /// Percentiles of all messages between two moments.
    pub(super) fn quantile(&self, (from_s, to_s): (f64, f64), quantile: f64) -> Option<f64> {
        let parts: Vec<_> = self
            .between(from_s, to_s)
            .filter_map(|(share, interval)| Some((share * messages(interval), interval.quantiles?)))
            .collect();
        quantile_of_all(&parts, quantile)
    }

    pub(super) fn mean_us(&self, (from_s, to_s): (f64, f64)) -> Option<f64> {
        let (mut count, mut sum) = (0.0, 0.0);
        for (share, interval) in self.between(from_s, to_s) {
            if let Some(mean) = interval.mean_us {
                let messages = share * messages(interval);
                count += messages;
                sum += messages * mean;
            }
        }
        (count > 0.0).then(|| sum / count)
    }

    pub(super) fn samples(&self, clients: u32) -> Vec<RateSample> {
        let sample = |interval: &Interval| RateSample {
            at_s: interval.until_s,
            seconds: interval.seconds,
            clients,
            sent: rounded(interval.sent),
            acknowledged: rounded(interval.acknowledged),
            received: rounded(interval.received),
            failed: rounded(interval.failed),
            p50_us: interval.quantiles.map(|known| rounded(known.p50)),
            p99_us: interval.p99_us(),
            max_us: interval.max_us.map(rounded),
            ..RateSample::default()
        };
        let begun = self.intervals.iter().filter(|interval| interval.until_s > 0.0);
        begun.map(sample).collect()
    }
}

/// Messages that a latency was taken of.
fn messages(interval: &Interval) -> f64 {
    if interval.received > 0.0 {
        interval.received
    } else {
        interval.acknowledged
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts to integers saturate"
)]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Quantiles = Quantiles {
        min: 100.0,
        p50: 1_000.0,
        p75: 2_000.0,
        p95: 2_500.0,
        p99: 3_000.0,
    };
    const SLOW: Quantiles = Quantiles {
        min: 50_000.0,
        p50: 100_000.0,
        p75: 200_000.0,
        p95: 400_000.0,
        p99: 500_000.0,
    };

    fn near(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!(
            (found / expected - 1.0).abs() < 1e-6,
            "{found} and not {expected}"
        );
    }

    #[test]
    fn seconds_that_are_alike_have_the_percentiles_of_each() {
        let parts = [(10.0, QUICK), (500.0, QUICK), (3.0, QUICK)];
        for (quantile, value) in [(0.5, 1_000.0), (0.75, 2_000.0), (0.95, 2_500.0), (0.99, 3_000.0)] {
            near(quantile_of_all(&parts, quantile), value);
        }
        assert_eq!(quantile_of_all(&[], 0.5), None);
        assert_eq!(quantile_of_all(&[(0.0, QUICK)], 0.5), None);
    }

    #[test]
    fn a_second_with_a_stall_is_seen_as_much_as_it_had_messages() {
        let parts = [(1_900.0, QUICK), (100.0, SLOW)];
        // A twentieth of all is slow, so the slowest hundredth of all is a fifth of it: its own 80th percentile.
        near(quantile_of_all(&parts, 0.99), 250_000.0);
        assert!(quantile_of_all(&parts, 0.5).unwrap() < 1_200.0);
        let rare = [(1_900.0, QUICK), (1.0, SLOW)];
        near(quantile_of_all(&rare, 0.99), 3_000.0);
    }

    #[test]
    fn a_distribution_of_one_value_has_it_everywhere() {
        let one = Quantiles {
            min: 7.0,
            p50: 7.0,
            p75: 7.0,
            p95: 7.0,
            p99: 7.0,
        };
        near(quantile_of_all(&[(5.0, one)], 0.5), 7.0);
        near(quantile_of_all(&[(5.0, one)], 0.99), 7.0);
    }

    fn series() -> Series {
        let interval = |until_s, seconds, acknowledged| Interval {
            until_s,
            seconds,
            sent: acknowledged,
            acknowledged,
            mean_us: Some(acknowledged),
            ..Interval::default()
        };
        Series {
            intervals: vec![
                interval(1.0, 1.0, 10.0),
                interval(2.0, 1.0, 100.0),
                interval(4.0, 2.0, 400.0),
            ],
        }
    }

    #[test]
    fn intervals_count_by_how_much_of_them_lies_in_what_counts() {
        let series = series();
        let counts = series.counts((1.0, 3.0), 10);
        assert_eq!(
            (counts.acknowledged, counts.bytes_sent, counts.received),
            (300, 3000, 0)
        );
        assert_eq!(series.counts((0.0, 100.0), 1).acknowledged, 510);
        assert_eq!(series.counts((5.0, 6.0), 1).acknowledged, 0);
        near(
            series.mean_us((1.0, 3.0)),
            (100.0 * 100.0 + 200.0 * 400.0) / 300.0,
        );
        assert_eq!(series.quantile((0.0, 9.0), 0.5), None);
        assert_eq!(series.samples(3)[2].acknowledged, 400);
    }
}
