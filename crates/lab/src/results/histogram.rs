//! Latencies, kept whole: histograms that can be merged and drawn again.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::{Deserialize, Serialize};

/// The largest latency that is told apart from larger ones: an hour.
const MAX_US: u64 = 3_600_000_000;
/// Decimal places that are kept.
const FIGURES: u8 = 3;

/// Latencies in microseconds. The summary is there for readers without a decoder; `histogram` has everything,
/// in the V2 encoding of `HdrHistogram`, in Base64.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Latencies {
    pub count: u64,
    pub min_us: u64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p90_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
    pub histogram: String,
}

/// Reason why an encoded histogram cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("a histogram cannot be read: {reason}")]
pub struct HistogramError {
    reason: String,
}

/// An empty histogram of the lab's range.
pub fn empty() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants")]
    Histogram::new_with_bounds(1, MAX_US, FIGURES).expect("the bounds are legal")
}

/// Adds `count` times `latency`.
pub fn record(histogram: &mut Histogram<u64>, latency: Duration, count: u64) {
    let micros = u64::try_from(latency.as_micros()).unwrap_or(MAX_US);
    histogram.saturating_record_n(micros.clamp(1, MAX_US), count);
}

/// The whole of a histogram as a text.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    let _ = V2Serializer::new().serialize(histogram, &mut bytes);
    STANDARD.encode(bytes)
}

/// A histogram that [`encode`] wrote.
pub fn decode(text: &str) -> Result<Histogram<u64>, HistogramError> {
    let because = |reason: String| HistogramError { reason };
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| because(error.to_string()))?;
    // V2: cookie, length and offset, then the figures, as u32; the bounds as u64. Others would take any
    // amount of memory.
    let is_ours = bytes.get(12..16) == Some(&u32::from(FIGURES).to_be_bytes()[..])
        && bytes.get(24..32) == Some(&MAX_US.to_be_bytes()[..]);
    if !is_ours {
        return Err(because("its bounds are not those of the lab".to_owned()));
    }
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| because(error.to_string()))
}

/// All of them together, without those that cannot be read; `None` if there is nothing in them.
pub fn merged<'a>(all: impl Iterator<Item = &'a Latencies>) -> Option<Histogram<u64>> {
    let mut sum = empty();
    for histogram in all.filter_map(|latencies| latencies.decode().ok()) {
        // All have the lab's own bounds.
        let _ = sum.add(histogram);
    }
    (!sum.is_empty()).then_some(sum)
}

impl Latencies {
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            count: histogram.len(),
            min_us: histogram.min(),
            mean_us: histogram.mean(),
            p50_us: histogram.value_at_quantile(0.5),
            p90_us: histogram.value_at_quantile(0.9),
            p99_us: histogram.value_at_quantile(0.99),
            p999_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
            histogram: encode(histogram),
        }
    }

    /// The whole histogram, to merge with others (`Histogram::add`) or to ask for any quantile.
    pub fn decode(&self) -> Result<Histogram<u64>, HistogramError> {
        decode(&self.histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_survive_the_disk_and_can_be_merged() {
        let mut first = empty();
        record(&mut first, Duration::from_micros(250), 99);
        record(&mut first, Duration::from_secs(2), 1);
        let stored = Latencies::of(&first);
        assert_eq!(
            (stored.count, stored.p50_us, stored.max_us / 1000),
            (100, 250, 2000)
        );
        let mut merged = stored.decode().unwrap();
        merged.add(&first).unwrap();
        assert_eq!(merged.len(), 200);
        assert_eq!(merged.value_at_quantile(0.5), 250);
    }

    #[test]
    fn what_is_too_long_counts_as_the_longest() {
        let mut histogram = empty();
        record(&mut histogram, Duration::from_secs(100_000), 1);
        record(&mut histogram, Duration::ZERO, 1);
        assert_eq!(histogram.len(), 2);
        assert_eq!(histogram.min(), 1);
    }

    #[test]
    fn a_histogram_of_other_bounds_is_refused_before_it_takes_memory() {
        let other = Histogram::<u64>::new_with_bounds(1, u64::MAX / 2, 5).unwrap();
        assert!(
            decode(&encode(&other))
                .unwrap_err()
                .to_string()
                .contains("bounds")
        );
        let finer = Histogram::<u64>::new_with_bounds(1, MAX_US, 4).unwrap();
        assert!(decode(&encode(&finer)).is_err());
        assert!(decode(&encode(&empty())).is_ok());
    }

    #[test]
    fn bytes_that_are_no_histogram_are_an_error() {
        for text in ["", "AAAA", "?"] {
            let broken = Latencies {
                histogram: text.to_owned(),
                ..Latencies::default()
            };
            assert!(broken.decode().is_err());
        }
    }
}
