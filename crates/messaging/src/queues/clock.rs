//! Time as queues and delayed messages see it: a steady time of the run, and its distance to the wall clock.
//!
//! - The *steady* time begins as the wall clock's time at the start and then adds what passes; it is never
//!   set. Everything that lasts is measured in it: timers, times without use, pauses.
//! - The *wall* time is what is stored: when a message arrived or is due, when it died. It follows the
//!   system's clock, forward and back, within a second of a step ([`Clock::follow`]).
//!
//! A stored time of arrival becomes a steady one where it is compared ([`Clock::arrival`]). A message of this
//! run keeps the time that it has left, however the clock is set: of the stretches of the run between two
//! steps, the latest that has its time of arrival is taken. After a step back two stretches can have it; the
//! message then lives longer by the step at most. What an earlier run stored is compared with the wall clock
//! as it is now, so it is right as soon as the clock is. Like the timers of the runtime, the steady time
//! stands still while the machine sleeps.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stafett_model::Lock;
use tokio::sync::Notify;

/// A difference that is a step of the wall clock. What is less is its drift, and how inexactly it is read.
const STEP_MS_MIN: i64 = 1000;
/// A longer time between two looks at the steady clock says nothing of the wall clock between them.
const LOOK_MAX: Duration = Duration::from_millis(100);
/// Steps that are remembered.
const ERAS_MAX: usize = 32;
/// Timers reach some years ahead; a longer wait looks again then.
const TIMER_MS_MAX: u64 = 1 << 36;

/// See the module. All times are milliseconds since 1970.
#[derive(Debug)]
pub(crate) struct Clock {
    /// A test's time stands still while nothing waits for it; the system's does not.
    started: tokio::time::Instant,
    started_really: Instant,
    started_ms: i64,
    /// The wall clock's distance to the steady time now.
    offset_ms: AtomicI64,
    /// How often the wall clock was set.
    steps: AtomicU64,
    eras: Lock<Vec<Era>>,
    stepped: Notify,
}

/// A stretch of the run in which the wall clock was not set. It ends where the next one begins.
#[derive(Debug, Clone, Copy)]
struct Era {
    from_ms: i64,
    offset_ms: i64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let started_ms = system_ms();
        Self {
            started: tokio::time::Instant::now(),
            started_really: Instant::now(),
            started_ms,
            offset_ms: AtomicI64::new(0),
            steps: AtomicU64::new(0),
            eras: Lock::new(vec![Era {
                from_ms: started_ms,
                offset_ms: 0,
            }]),
            stepped: Notify::new(),
        }
    }

    /// The steady time.
    pub(crate) fn now_ms(&self) -> i64 {
        let since = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.started_ms.saturating_add(since)
    }

    /// The wall clock's time.
    pub(crate) fn wall_ms(&self) -> i64 {
        self.now_ms().saturating_add(self.offset_ms())
    }

    /// How often the wall clock was set.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Acquire)
    }

    /// Resolves after the wall clock was set; for one waiter.
    pub(crate) async fn stepped(&self) {
        self.stepped.notified().await;
    }

    /// The steady time at which the wall clock shows `wall_ms`, if it is not set.
    pub(crate) fn steady_ms(&self, wall_ms: i64) -> i64 {
        wall_ms.saturating_sub(self.offset_ms())
    }

    /// The earliest steady time that a message of any run can mean with `wall_ms`.
    pub(crate) fn earliest_ms(&self, wall_ms: i64) -> i64 {
        let offset = self.eras().iter().map(|era| era.offset_ms).max();
        wall_ms.saturating_sub(offset.unwrap_or(0))
    }

    /// The steady time at which a message arrived that has `wall_ms` as its time of arrival.
    pub(crate) fn arrival(&self, wall_ms: i64, is_of_this_run: bool) -> i64 {
        if self.steps() == 0 || !is_of_this_run {
            return self.steady_ms(wall_ms);
        }
        let mut until_ms = self.now_ms();
        for era in self.eras().iter().rev() {
            let steady = wall_ms.saturating_sub(era.offset_ms);
            // A time is taken a moment before it is stored.
            if (era.from_ms.saturating_sub(STEP_MS_MIN)..=until_ms.saturating_add(STEP_MS_MIN))
                .contains(&steady)
            {
                return steady;
            }
            until_ms = era.from_ms;
        }
        self.steady_ms(wall_ms)
    }

    /// Follows the system's clock. True if that was set since the last look.
    pub(crate) fn follow(&self) -> bool {
        let before = self.started_really.elapsed();
        let wall_ms = system_ms();
        if self.started_really.elapsed().saturating_sub(before) > LOOK_MAX {
            return false;
        }
        let since = i64::try_from(before.as_millis()).unwrap_or(i64::MAX);
        let offset_ms = wall_ms.saturating_sub(self.started_ms).saturating_sub(since);
        let step_ms = offset_ms.saturating_sub(self.offset_ms());
        if step_ms.saturating_abs() < STEP_MS_MIN {
            return false;
        }
        let mut eras = self.eras();
        if eras.len() == ERAS_MAX {
            eras.remove(0);
        }
        eras.push(Era {
            from_ms: self.now_ms(),
            offset_ms,
        });
        self.offset_ms.store(offset_ms, Ordering::Release);
        self.steps.fetch_add(1, Ordering::Release);
        drop(eras);
        tracing::warn!("the system's clock was set by {step_ms} ms");
        self.stepped.notify_one();
        true
    }

    /// The instant of a steady time, for a timer, which never fires before it.
    pub(crate) fn instant(&self, at_ms: i64) -> tokio::time::Instant {
        let ms = u64::try_from(at_ms.saturating_sub(self.started_ms)).unwrap_or(0);
        self.started + Duration::from_millis(ms.min(TIMER_MS_MAX))
    }

    fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Acquire)
    }

    fn eras(&self) -> MutexGuard<'_, Vec<Era>> {
        self.eras.lock()
    }
}

#[cfg(test)]
use super::tests::system_ms;
#[cfg(not(test))]
use stafett_store::wall_ms as system_ms;
