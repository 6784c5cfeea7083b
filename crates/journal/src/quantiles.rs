//! Quantiles of the time histograms.
//!
//! The library shows the counts of a histogram only in the text that Prometheus reads, so they are read from
//! there.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Quantiles of times since the start, in seconds. `None` where nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TimeQuantiles {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
}

impl TimeQuantiles {
    pub(crate) fn of(histogram: &Histogram) -> Self {
        let mut registry = Registry::default();
        registry.register("times", "Times", histogram.clone());
        let mut text = String::new();
        // Writing to memory does not fail.
        let _ = encode(&mut text, &registry);
        let buckets: Vec<(f64, u64)> = text.lines().filter_map(bucket).collect();
        Self {
            p50: quantile(&buckets, 0.5),
            p99: quantile(&buckets, 0.99),
            p999: quantile(&buckets, 0.999),
        }
    }
}

/// Reads `times_bucket{le="0.00032"} 7`: the upper bound, and the number of values up to it.
fn bucket(line: &str) -> Option<(f64, u64)> {
    let (bound, count) = line.strip_prefix("times_bucket{le=\"")?.split_once("\"} ")?;
    let count = count.split_whitespace().next()?.parse().ok()?;
    match bound {
        "+Inf" => Some((f64::INFINITY, count)),
        bound => Some((bound.parse().ok()?, count)),
    }
}

/// Returns a quantile, interpolated within its bucket as Prometheus does it; of the last bucket its lower
/// bound.
fn quantile(buckets: &[(f64, u64)], share: f64) -> Option<f64> {
    let (_, total) = buckets.last().filter(|(_, total)| *total > 0)?;
    let rank = share * *total as f64;
    let (mut below, mut counted) = (0.0, 0);
    for (bound, count) in buckets {
        if *count as f64 >= rank && *count > counted {
            if bound.is_infinite() {
                return Some(below);
            }
            let part = (rank - counted as f64) / (count - counted) as f64;
            return Some(below + (bound - below) * part);
        }
        (below, counted) = (*bound, *count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_the_buckets_of_their_values() {
        let histogram = Histogram::new([0.001, 0.01, 0.1]);
        assert_eq!(TimeQuantiles::of(&histogram), TimeQuantiles::default());
        for _ in 0..98 {
            histogram.observe(0.0005);
        }
        histogram.observe(0.05);
        histogram.observe(5.0);
        let found = TimeQuantiles::of(&histogram);
        let within = |value: Option<f64>, from, to| value.is_some_and(|value| value > from && value <= to);
        assert!(within(found.p50, 0.0005, 0.0006), "{found:?}");
        assert!(within(found.p99, 0.01, 0.1), "{found:?}");
        assert_eq!(found.p999, Some(0.1));
    }
}
