//! Factors, their levels, and the order of the rows of a sign table.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// 64 combinations: more is not a screening any more, and its sign table cannot be read.
pub const FACTORS_MAX: usize = 6;

/// Something with two levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factor {
    pub name: String,
    /// Stands for the factor in the names of interactions: `bd`.
    pub letter: char,
    /// Its -1.
    pub low: String,
    /// Its +1.
    pub high: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DesignError {
    #[error("a design has 1 to {FACTORS_MAX} factors, not {0}")]
    Factors(usize),
    #[error("two factors have the letter {0}")]
    Letter(char),
    #[error("{found} combinations of levels, where the design has {wanted}")]
    Rows { found: usize, wanted: usize },
    #[error("no result for {0}: every combination is needed")]
    Missing(String),
    #[error("a response is not a finite number")]
    Infinite,
}

/// k factors. Row i of the design has factor f at its high level if bit f of i is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Design {
    factors: Vec<Factor>,
}

impl Design {
    pub fn new(factors: Vec<Factor>) -> Result<Self, DesignError> {
        if factors.is_empty() || factors.len() > FACTORS_MAX {
            return Err(DesignError::Factors(factors.len()));
        }
        for (index, factor) in factors.iter().enumerate() {
            if factors
                .iter()
                .take(index)
                .any(|other| other.letter == factor.letter)
            {
                return Err(DesignError::Letter(factor.letter));
            }
        }
        Ok(Self { factors })
    }

    pub fn factors(&self) -> &[Factor] {
        &self.factors
    }

    pub fn rows(&self) -> usize {
        1 << self.factors.len()
    }

    /// The levels of a row, in words: `clients 30, threads 1`.
    pub fn row_name(&self, row: usize) -> String {
        let levels: Vec<_> = self
            .factors
            .iter()
            .enumerate()
            .map(|(index, factor)| {
                let level = if row >> index & 1 == 1 {
                    &factor.high
                } else {
                    &factor.low
                };
                format!("{} {level}", factor.name)
            })
            .collect();
        levels.join(", ")
    }

    /// The name of the effect of a set of factors (bit f: factor f takes part): `I`, `c`, `bd`.
    pub fn effect_name(&self, set: usize) -> String {
        if set == 0 {
            return "I".to_owned();
        }
        let taking_part = self
            .factors
            .iter()
            .enumerate()
            .filter(|(index, _)| set >> index & 1 == 1);
        taking_part.map(|(_, factor)| factor.letter).collect()
    }

    /// -1 or +1: the entry of the sign table for an effect in a row.
    pub fn sign(&self, set: usize, row: usize) -> i8 {
        let low = (set & !row).count_ones();
        if low.is_multiple_of(2) { 1 } else { -1 }
    }

    /// All effects but the mean, in the order of the sign table: main effects first, then interactions of
    /// two, of three.
    pub fn effect_sets(&self) -> Vec<usize> {
        let mut sets: Vec<usize> = (1..self.rows()).collect();
        sets.sort_by_key(|set| (set.count_ones(), set.reverse_bits() ^ usize::MAX));
        sets
    }
}
