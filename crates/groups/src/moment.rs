//! Time of groups: always an argument.

use std::time::Duration;

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

/// The clock that moments are read from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    started: tokio::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            started: tokio::time::Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Converts a moment for a timer. A timer never fires before its moment.
    pub(crate) fn instant(&self, moment: Moment) -> tokio::time::Instant {
        self.started + Duration::from_millis(moment.0)
    }
}
