//! The time for which the journal has been running, over all of its starts: what is forgotten when it was not
//! used for long is dated by it. A clock that is set, a program that is stopped and a machine that sleeps add
//! next to nothing to it.

use std::sync::atomic::{AtomicI64, Ordering};

use stafett_model::Lock;

/// What one look at the clock adds at most. Looks are half a second apart.
const STEP_MS_MAX: i64 = 60_000;

#[derive(Debug)]
pub(crate) struct Running {
    total_ms: AtomicI64,
    /// What the clock said last.
    looked_at: Lock<i64>,
}

/// When something happened, ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// By the clock, since 1970.
    pub(crate) clock: i64,
    /// By the time for which the journal has been running.
    pub(crate) running: i64,
}

impl Running {
    /// Goes on behind what earlier starts had.
    pub(crate) fn new(total_ms: i64, now: i64) -> Self {
        Self {
            total_ms: AtomicI64::new(total_ms.max(0)),
            looked_at: Lock::new(now),
        }
    }

    /// Adds what has passed since the last look, if the clock may be believed that.
    pub(crate) fn advance(&self, now: i64) {
        let mut looked_at = self.looked_at.lock();
        let step = now.saturating_sub(*looked_at).clamp(0, STEP_MS_MAX);
        *looked_at = now;
        self.total_ms.fetch_add(step, Ordering::Relaxed);
    }

    pub(crate) fn ms(&self) -> i64 {
        self.total_ms.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_count_and_jumps_do_not() {
        let running = Running::new(1000, 50_000);
        running.advance(50_500);
        assert_eq!(running.ms(), 1500);
        for jump in [i64::MIN, 0, 86_400_000, i64::MAX] {
            let before = running.ms();
            running.advance(jump);
            assert!((0..=STEP_MS_MAX).contains(&(running.ms() - before)));
        }
        running.advance(0);
        let before = running.ms();
        running.advance(10);
        assert_eq!(running.ms(), before + 10);
    }
}
