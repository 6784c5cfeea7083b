//! Total running time of the journal over all starts, for the expiry of unused entries. A clock that is set,
//! a stopped program and a sleeping machine add next to nothing to it.

use std::sync::atomic::{AtomicI64, Ordering};

use stafett_model::Lock;

/// Most time added by one look at the clock. Looks are half a second apart.
const STEP_MS_MAX: i64 = 60_000;

#[derive(Debug)]
pub(crate) struct Running {
    total_ms: AtomicI64,
    /// Clock at the last look.
    looked_at: Lock<i64>,
}

/// Time of an event, ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// By the clock, since 1970.
    pub(crate) clock: i64,
    /// By the running time of the journal.
    pub(crate) running: i64,
}

impl Running {
    /// Continues the total of earlier starts.
    pub(crate) fn new(total_ms: i64, now: i64) -> Self {
        Self {
            total_ms: AtomicI64::new(total_ms.max(0)),
            looked_at: Lock::new(now),
        }
    }

    /// Adds the time since the last look, limited to a plausible step.
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
