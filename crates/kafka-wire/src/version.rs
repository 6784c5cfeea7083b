//! Ranges of message versions.

use std::fmt;
use std::ops::RangeInclusive;

/// The existing versions of a message, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionRange {
    pub min: i16,
    pub max: i16,
}

impl VersionRange {
    pub const fn new(min: i16, max: i16) -> Self {
        Self { min, max }
    }

    pub const fn contains(self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    pub fn iter(self) -> RangeInclusive<i16> {
        self.min..=self.max
    }
}

impl IntoIterator for VersionRange {
    type Item = i16;
    type IntoIter = RangeInclusive<i16>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}
