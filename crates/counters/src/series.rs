//! Series of a kind of objects.

/// Series that an object has at most.
pub const SERIES_MAX: usize = 8;

/// A series of samples of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    pub name: &'static str,
    pub source: Source,
    /// False if only the latest sample is kept.
    pub is_kept: bool,
}

/// Source of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A level: its samples are values at a moment.
    Level(usize),
    /// A sum of counters: its samples are increases within a step.
    Words(&'static [usize]),
}

impl Series {
    pub const fn level(name: &'static str, at: usize) -> Self {
        Self {
            name,
            source: Source::Level(at),
            is_kept: true,
        }
    }

    pub const fn counts(name: &'static str, words: &'static [usize]) -> Self {
        Self {
            name,
            source: Source::Words(words),
            is_kept: true,
        }
    }

    /// Returns the series, of which only the latest sample is kept.
    #[must_use]
    pub const fn latest_alone(self) -> Self {
        Self {
            is_kept: false,
            ..self
        }
    }

    pub const fn is_level(&self) -> bool {
        matches!(self.source, Source::Level(_))
    }
}
