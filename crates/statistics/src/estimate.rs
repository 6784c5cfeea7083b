//! A mean with its confidence interval by Student's distribution.

use serde::{Deserialize, Serialize};

use super::{CONFIDENCE, quantile};

/// Interval that holds the true value, with at least this confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
    /// Share of the intervals made this way that contain the true value.
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

/// A quantity, known from repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
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
        value,
        interval,
        repetitions: values.len(),
        deviation,
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
