//! Identifiers and counts, as types that do not mix.

use std::fmt;

/// A log. Given out by the journal in rising order, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogId(pub u64);

/// The place of a record in its log, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Offset(pub u64);

/// The start of the program that wrote a batch, counted from 1: each start is a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u32);

/// An idempotent producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub i64);

impl Offset {
    pub const ZERO: Self = Self(0);

    /// The offset `records` further on, or `None` past the largest offset there can be (`i64::MAX`).
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
