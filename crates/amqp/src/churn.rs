//! Rates of things that come and go, measured from one request for them to the next.

use stafett_model::Lock;

/// Shortest time between two readings, in ms.
const AFTER_MS: i64 = 5_000;

/// Counts of an earlier reading, and the rates until then.
#[derive(Debug, Default)]
pub(crate) struct Churn(Lock<Reading>);

#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    /// `None` before the first one.
    at_ms: Option<i64>,
    counts: [u64; 7],
    rates: [f64; 7],
}

impl Churn {
    /// Returns the rates per second of counts as they are at a moment.
    pub(crate) fn rates(&self, now_ms: i64, counts: [u64; 7]) -> [f64; 7] {
        let mut guard = self.0.lock();
        let reading = &mut *guard;
        let Some(at_ms) = reading.at_ms else {
            reading.at_ms = Some(now_ms);
            reading.counts = counts;
            return reading.rates;
        };
        let passed = now_ms.saturating_sub(at_ms);
        if passed < 0 {
            // The clock was set back.
            reading.at_ms = Some(now_ms);
        } else if passed >= AFTER_MS {
            let before = reading.counts;
            for ((rate, now), before) in reading.rates.iter_mut().zip(counts).zip(before) {
                *rate = now.saturating_sub(before) as f64 * 1000.0 / passed as f64;
            }
            reading.at_ms = Some(now_ms);
            reading.counts = counts;
        }
        reading.rates
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "rates of whole numbers are exact")]

    use super::*;

    #[test]
    fn rates_are_those_between_two_readings_also_if_the_clock_is_set() {
        let churn = Churn::default();
        let counts = |count| [count; 7];
        assert_eq!(churn.rates(10_000, counts(5)), [0.0; 7]);
        assert_eq!(churn.rates(12_000, counts(9)), [0.0; 7]);
        assert_eq!(churn.rates(20_000, counts(25)), [2.0; 7]);
        assert_eq!(churn.rates(1_000, counts(30)), [2.0; 7]);
        assert_eq!(churn.rates(6_000, counts(30)), [1.0; 7]);
    }
}
