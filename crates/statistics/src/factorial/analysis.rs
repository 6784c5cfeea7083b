//! Effects, the allocation of variation, and how sure one can be of either.

use serde::{Deserialize, Serialize};

use super::design::{Design, DesignError};
use crate::{CONFIDENCE, Interval, quantile};

/// Effect of a factor, or of several together, on the response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Factors that take part, as a bit set in the design's order; 0 is the mean.
    pub set: usize,
    pub name: String,
    /// Effects that the fraction cannot tell from this one.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// In the response's unit, for one step of half the distance between the levels.
    pub value: f64,
    /// The share of the total variation, 0 to 1. The mean has none.
    pub share: Option<f64>,
    /// Absent without repetitions.
    pub interval: Option<Interval>,
}

impl Effect {
    /// Returns true if chance does not explain it. `None` without repetitions.
    pub fn significant(&self) -> Option<bool> {
        self.interval.map(|interval| !interval.contains(0.0))
    }
}

/// Differences between repetitions of the same combination.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentalError {
    pub sum_of_squares: f64,
    pub degrees: usize,
    pub deviation: f64,
    /// The share of the total variation that no effect explains.
    pub share: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    pub design: Design,
    /// One mean response per row of the design.
    pub responses: Vec<f64>,
    /// Number of values of each combination.
    pub repetitions: usize,
    /// Values that were left out, so that every combination has the same number of them.
    pub left_out: usize,
    pub mean: Effect,
    /// In the order of the sign table.
    pub effects: Vec<Effect>,
    /// The sum of squares about the mean.
    pub total: f64,
    /// Absent without repetitions.
    pub error: Option<ExperimentalError>,
}

impl Analysis {
    /// Effects by how much they explain, the largest first.
    pub fn by_share(&self) -> Vec<&Effect> {
        let mut effects: Vec<_> = self.effects.iter().collect();
        effects.sort_by(|left, right| right.value.abs().total_cmp(&left.value.abs()));
        effects
    }
}

/// Analyses the responses, one list per row of the design (see [`Design`] for their order).
///
/// Effects are only independent of each other where every row has the same number of repetitions, so that of
/// the shortest row is taken of each.
pub fn analyse(design: Design, rows: &[Vec<f64>]) -> Result<Analysis, DesignError> {
    check(&design, rows)?;
    let wanted = design.rows();
    let repetitions = rows.iter().map(Vec::len).min().unwrap_or(0);
    let kept = || rows.iter().map(|row| row.iter().take(repetitions));
    let responses: Vec<f64> = kept().map(|row| row.sum::<f64>() / repetitions as f64).collect();
    let values = (wanted * repetitions) as f64;

    let value = |set: usize| {
        let signed = responses
            .iter()
            .enumerate()
            .map(|(row, response)| f64::from(design.sign(set, row)) * response);
        signed.sum::<f64>() / wanted as f64
    };
    let mean = value(0);
    let total: f64 = kept().flatten().map(|response| (response - mean).powi(2)).sum();
    let error_sum: f64 = kept()
        .zip(&responses)
        .flat_map(|(row, response)| row.map(move |value| (value - response).powi(2)))
        .sum();
    let share = |sum: f64| (total > 0.0).then(|| sum / total);
    let degrees = wanted * (repetitions - 1);
    let error = (degrees > 0).then(|| ExperimentalError {
        sum_of_squares: error_sum,
        degrees,
        deviation: (error_sum / degrees as f64).sqrt(),
        share: share(error_sum),
    });
    let reach = error.and_then(|error| {
        Some(quantile(CONFIDENCE, error.degrees as f64)? * error.deviation / values.sqrt())
    });
    let names = |sets: Vec<usize>| sets.into_iter().map(|set| design.effect_name(set)).collect();
    let effect = |set: usize| {
        let value = value(set);
        Effect {
            set,
            name: design.effect_name(set),
            aliases: names(design.aliases(set)),
            value,
            share: if set == 0 {
                None
            } else {
                share(values * value.powi(2))
            },
            interval: reach.map(|reach| Interval {
                low: value - reach,
                high: value + reach,
                confidence: CONFIDENCE,
            }),
        }
    };
    let effects = design.effect_sets().into_iter().map(&effect).collect();
    let mean = effect(0);
    let left_out = rows.iter().map(|row| row.len() - repetitions).sum();
    Ok(Analysis {
        design,
        responses,
        repetitions,
        left_out,
        mean,
        effects,
        total,
        error,
    })
}

fn check(design: &Design, rows: &[Vec<f64>]) -> Result<(), DesignError> {
    let wanted = design.rows();
    if rows.len() != wanted {
        return Err(DesignError::Rows {
            found: rows.len(),
            wanted,
        });
    }
    if let Some(row) = rows.iter().position(Vec::is_empty) {
        return Err(DesignError::Missing(design.row_name(row)));
    }
    if rows.iter().flatten().any(|response| !response.is_finite()) {
        return Err(DesignError::Infinite);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
