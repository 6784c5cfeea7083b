//! Time of groups: always an argument.

/// Time of the broker's own clock: milliseconds since it started. It never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns the moment `ms` milliseconds later.
    #[must_use]
    pub fn after(self, ms: u32) -> Self {
        Self(self.0.saturating_add(u64::from(ms)))
    }

    /// Returns the milliseconds from `earlier` to this moment; 0 if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
