//! The wall clock as queues see it: it never goes back while the program runs, and stands where a test's time stands.

use std::time::Duration;

use crate::groups::moment::wall_ms;

/// Milliseconds since 1970, as they were at the start plus what has passed since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    started: tokio::time::Instant,
    started_ms: i64,
}

impl WallClock {
    pub(crate) fn start() -> Self {
        Self {
            started: tokio::time::Instant::now(),
            started_ms: wall_ms(),
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        let since = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.started_ms.saturating_add(since)
    }

    /// When a time is, for a timer, which never fires before it.
    pub(crate) fn instant(&self, at_ms: i64) -> tokio::time::Instant {
        let ms = u64::try_from(at_ms.saturating_sub(self.started_ms)).unwrap_or(0);
        // Timers reach some years ahead; whoever waits longer looks again then.
        self.started + Duration::from_millis(ms.min(1 << 36))
    }
}
