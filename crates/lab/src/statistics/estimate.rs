//! A mean or a median with its confidence interval.
//!
//! The mean's interval is Student's. The median's is made of order statistics: it needs no assumption about
//! the distribution, and below six values there is none at 95 % (all six lie on one side of the median once
//! in 32 times).

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::{CONFIDENCE, quantile};

/// Interval that holds the true value, with at least this confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
    /// Share of the intervals made this way that contain the true value. A median's is that of the next
    /// larger interval that order statistics offer, so it is above the one that was asked for.
    pub confidence: f64,
}

impl Interval {
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    pub fn ends(self) -> (f64, f64) {
        (self.low, self.high)
    }

    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Kind of the value in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Mean,
    Median,
}

/// A quantity, known from repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub kind: Kind,
    pub value: f64,
    /// Absent where there are too few repetitions to have one.
    pub interval: Option<Interval>,
    pub repetitions: usize,
    /// The sample's standard deviation; absent for one repetition.
    pub deviation: Option<f64>,
}

impl Estimate {
    pub fn ends(&self) -> Option<(f64, f64)> {
        self.interval.map(Interval::ends)
    }

    pub fn low(&self) -> f64 {
        self.interval.map_or(self.value, |interval| interval.low)
    }

    pub fn high(&self) -> f64 {
        self.interval.map_or(self.value, |interval| interval.high)
    }
}

/// The mean with its 95 % interval. `None` if there is no value, or one that is not finite.
pub fn mean(values: &[f64]) -> Option<Estimate> {
    mean_at(values, CONFIDENCE)
}

pub(crate) fn mean_at(values: &[f64], confidence: f64) -> Option<Estimate> {
    let value = average(values)?;
    let deviation = deviation(values, value);
    let interval = deviation.and_then(|deviation| {
        let count = values.len() as f64;
        let reach = quantile(confidence, count - 1.0)? * deviation / count.sqrt();
        Some(Interval {
            low: value - reach,
            high: value + reach,
            confidence,
        })
    });
    Some(Estimate {
        kind: Kind::Mean,
        value,
        interval,
        repetitions: values.len(),
        deviation,
    })
}

/// The median with its interval of at least 95 %. `None` if there is no value, or one that is not finite.
pub fn median(values: &[f64]) -> Option<Estimate> {
    let mean = average(values)?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(Estimate {
        kind: Kind::Median,
        value: f64::midpoint(lower, upper),
        interval: order_statistics(&sorted),
        repetitions: values.len(),
        deviation: deviation(values, mean),
    })
}

/// From the k-th smallest to the k-th largest value, with the largest k that still gives the confidence.
fn order_statistics(sorted: &[f64]) -> Option<Interval> {
    let count = sorted.len();
    let distribution = Binomial::new(0.5, count as u64).ok()?;
    // With k values cut off on either side, the interval misses the median if at most k values are below it,
    // or at most k are above it.
    let coverage = |cut: usize| 1.0 - 2.0 * distribution.cdf(cut as u64);
    let cut = (0..count / 2)
        .take_while(|cut| coverage(*cut) >= CONFIDENCE)
        .last()?;
    Some(Interval {
        low: *sorted.get(cut)?,
        high: *sorted.get(count - 1 - cut)?,
        confidence: coverage(cut),
    })
}

fn average(values: &[f64]) -> Option<f64> {
    let value = values.iter().sum::<f64>() / values.len() as f64;
    (!values.is_empty() && value.is_finite()).then_some(value)
}

fn deviation(values: &[f64], mean: f64) -> Option<f64> {
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests;
