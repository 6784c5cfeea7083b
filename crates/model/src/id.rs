//! Identifiers and counts, as types that do not mix.

use std::fmt;

/// Id of a log. Assigned by the journal in ascending order, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogId(pub u64);

/// Position of a record in its log, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub u64);

/// Number of the program start that wrote a batch, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u32);

/// Id of an idempotent producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

impl Offset {
    pub const ZERO: Self = Self(0);

    /// Returns the offset `records` further on, or `None` if that is beyond the largest offset (`i64::MAX`).
    pub fn checked_add(self, records: u64) -> Option<Self> {
        self.0
            .checked_add(records)
            .filter(|sum| i64::try_from(*sum).is_ok())
            .map(Self)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log {}", self.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
