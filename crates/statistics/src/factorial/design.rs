//! Factors, their levels, and the order of the rows of a sign table.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// 64 combinations: more is not a screening any more, and its sign table cannot be read.
pub const FACTORS_MAX: usize = 6;
/// Factors of a fraction: a saturated one of 16 combinations.
const OF_FRACTIONS_MAX: usize = 15;

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
    #[error("a fraction is `d = abc` for each factor that follows others, and `{0}` is none")]
    Generator(String),
    #[error("{0} is no factor of its own in `{1}`: factors are {2}")]
    NoFactor(char, String, String),
}

/// k factors, and the combinations of their levels that are measured: all, or a fraction (2^(k-p)). Where it
/// is all, row i has factor f at its high level if bit f of i is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Design {
    factors: Vec<Factor>,
    /// Levels of each row: bit f is set if factor f is at its high level.
    rows: Vec<usize>,
    /// Sets of factors whose product is +1 in every row; none if all combinations are measured.
    words: Vec<usize>,
}

impl Design {
    pub fn new(factors: Vec<Factor>) -> Result<Self, DesignError> {
        if factors.is_empty() || factors.len() > FACTORS_MAX {
            return Err(DesignError::Factors(factors.len()));
        }
        check_letters(&factors)?;
        Ok(Self {
            rows: (0..1 << factors.len()).collect(),
            words: Vec::new(),
            factors,
        })
    }

    /// A fraction by its generators: `d = abc, e = bcd`. The level of d is the product of those of a, b and c,
    /// so their effects cannot be told apart.
    pub fn fraction(factors: Vec<Factor>, text: &str) -> Result<Self, DesignError> {
        check_letters(&factors)?;
        let generators = generators(&factors, text)?;
        let base: Vec<usize> = (0..factors.len())
            .filter(|factor| !generators.iter().any(|(generated, _)| generated == factor))
            .collect();
        if base.is_empty() || base.len() > FACTORS_MAX || factors.len() > OF_FRACTIONS_MAX {
            return Err(DesignError::Factors(factors.len()));
        }
        let row = |number: usize| {
            let high = base.iter().enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
            let levels = high.fold(0, |levels, (_, factor)| levels | 1 << factor);
            let follow = generators.iter().filter(|(_, set)| is_positive(*set, levels));
            follow.fold(levels, |levels, (factor, _)| levels | 1 << factor)
        };
        let mut words: Vec<usize> = vec![0];
        for (factor, set) in &generators {
            let with: Vec<usize> = words.iter().map(|word| word ^ set ^ 1 << factor).collect();
            words.extend(with);
        }
        words.remove(0);
        Ok(Self {
            rows: (0..1 << base.len()).map(row).collect(),
            words,
            factors,
        })
    }

    pub fn factors(&self) -> &[Factor] {
        &self.factors
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if a combination of levels is measured.
    pub fn has(&self, levels: usize) -> bool {
        self.rows.contains(&levels)
    }

    /// Returns true if a factor is at its high level in a row.
    pub fn is_high(&self, row: usize, factor: usize) -> bool {
        self.levels(row) >> factor & 1 == 1
    }

    fn levels(&self, row: usize) -> usize {
        self.rows.get(row).copied().unwrap_or(0)
    }

    /// The levels of a row, in words: `clients 30, threads 1`.
    pub fn row_name(&self, row: usize) -> String {
        let factors = self.factors.iter().enumerate();
        let levels: Vec<_> = factors
            .map(|(index, factor)| {
                let level = if self.is_high(row, index) {
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
        if is_positive(set, self.levels(row)) { 1 } else { -1 }
    }

    /// Returns the effects that a fraction cannot tell from this one, those of few factors first.
    pub fn aliases(&self, set: usize) -> Vec<usize> {
        let mut aliases: Vec<usize> = self.words.iter().map(|word| word ^ set).collect();
        aliases.sort_by_key(|alias| order(*alias));
        aliases
    }

    /// Returns the fewest factors of a product that is the same in every row. At 3, effects of one factor fall
    /// together with interactions of two; at 5, neither do. `None` if all combinations are measured.
    pub fn resolution(&self) -> Option<u32> {
        self.words.iter().map(|word| word.count_ones()).min()
    }

    /// All effects but the mean, in the order of the sign table: main effects first, then interactions of
    /// two, of three. Of those that fall together, the one of the fewest factors.
    pub fn effect_sets(&self) -> Vec<usize> {
        let mut sets: Vec<usize> = (1..1 << self.factors.len())
            .filter(|set| {
                let first = |word: &usize| order(word ^ set) > order(*set);
                !self.words.contains(set) && self.words.iter().all(first)
            })
            .collect();
        sets.sort_by_key(|set| order(*set));
        sets
    }
}

/// Place of an effect in a sign table.
fn order(set: usize) -> (u32, usize) {
    (set.count_ones(), set.reverse_bits() ^ usize::MAX)
}

/// Returns true if the product of the levels of a set is +1.
fn is_positive(set: usize, levels: usize) -> bool {
    (set & !levels).count_ones().is_multiple_of(2)
}

fn check_letters(factors: &[Factor]) -> Result<(), DesignError> {
    for (index, factor) in factors.iter().enumerate() {
        let mut before = factors.iter().take(index);
        if before.any(|other| other.letter == factor.letter) {
            return Err(DesignError::Letter(factor.letter));
        }
    }
    Ok(())
}

/// Reads `d = abc, e = bcd` as factors and the sets that they follow.
fn generators(factors: &[Factor], text: &str) -> Result<Vec<(usize, usize)>, DesignError> {
    let wrong = || DesignError::Generator(text.to_owned());
    let pairs: Vec<(&str, &str)> = text
        .split(',')
        .map(|part| {
            part.split_once('=')
                .map(|(one, others)| (one.trim(), others.trim()))
        })
        .collect::<Option<_>>()
        .ok_or_else(wrong)?;
    let is_generated = |letter: char| pairs.iter().any(|(one, _)| one.chars().eq([letter]));
    let place = |letter: char, is_free: bool| {
        let place = factors.iter().position(|factor| factor.letter == letter);
        place.filter(|_| is_free).ok_or_else(|| {
            let known = factors.iter().map(|factor| factor.letter.to_string());
            DesignError::NoFactor(letter, text.to_owned(), known.collect::<Vec<_>>().join(", "))
        })
    };
    let mut found: Vec<(usize, usize)> = Vec::new();
    for (one, others) in &pairs {
        let mut letters = one.chars();
        let (Some(letter), None) = (letters.next(), letters.next()) else {
            return Err(wrong());
        };
        let factor = place(
            letter,
            found
                .iter()
                .all(|(known, _)| factors.get(*known).is_none_or(|it| it.letter != letter)),
        )?;
        let mut set: usize = 0;
        for letter in others.chars() {
            set |= 1 << place(letter, !is_generated(letter))?;
        }
        if set.count_ones() < 2 {
            return Err(wrong());
        }
        found.push((factor, set));
    }
    Ok(found)
}

/// A letter for each factor, of its name where it is free.
pub fn letters<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<char> {
    let mut taken: Vec<char> = Vec::new();
    for name in names {
        let mut letters = name.chars().chain('a'..='z');
        let letter = letters.find(|letter| letter.is_ascii_lowercase() && !taken.contains(letter));
        taken.push(letter.unwrap_or('?'));
    }
    taken
}
