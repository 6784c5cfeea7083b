//! The one clock of the broker: a steady time of the process, and its offset to the wall clock.
//!
//! - The *steady* time starts at the wall clock's time and advances with elapsed time; it is never set. All
//!   durations use it: timers, idle times, pauses.
//! - The *wall* time is the one that is stored: when a message arrived, is due, or died, when an offset was
//!   committed. It follows the system's clock, forward and back, within a second of a step
//!   ([`Clock::follow`]).
//!
//! A stored time is converted to steady time for comparisons: an arrival by [`Clock::arrival`], a date of
//! which only the age counts by [`Clock::steady_date`]. A message of this
//! run keeps its remaining time even if the clock is set: of the eras between two steps, the latest that
//! contains its arrival time is used. After a step back, two eras can contain it; the message then lives
//! longer, at most by the step. Messages of earlier runs are compared with the current wall clock, so they
//! are right as soon as the clock is. Like the timers of the runtime, the steady time stands still while the
//! machine sleeps.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stafett_model::{Lock, LockGuard};
use tokio::sync::Notify;

/// Smallest difference that is a step of the wall clock. Smaller ones are drift or inexact readings.
const STEP_MS_MIN: i64 = 1000;
/// Bound on the time between two readings of the steady clock: beyond it, the wall clock read in between is
/// unreliable.
const LOOK_MAX: Duration = Duration::from_millis(100);
/// Bound on the remembered eras.
const ERAS_MAX: usize = 32;
/// Bound on the delay of a timer, about two years; a longer wait is checked again then.
const TIMER_MS_MAX: u64 = 1 << 36;

/// Returns the milliseconds since 1970 by the system's clock, which may be set forward or back.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Reads a clock that may be set, in ms since 1970.
pub type ReadWallClock = fn() -> i64;

/// Steady time and wall time: see the module. All times are in ms since 1970.
#[derive(Debug)]
pub struct Clock {
    system_ms: ReadWallClock,
    /// Runtime's start time; in tests the runtime's clock stands still while no task waits for it.
    started: tokio::time::Instant,
    started_really: Instant,
    started_ms: i64,
    /// Current offset of the wall clock to the steady time.
    offset_ms: AtomicI64,
    /// Number of times that the wall clock was set.
    steps: AtomicU64,
    eras: Lock<Vec<Era>>,
    stepped: Notify,
}

/// Period in which the wall clock was not set. It ends where the next one begins.
#[derive(Debug, Clone, Copy)]
struct Era {
    from_ms: i64,
    offset_ms: i64,
}

impl Clock {
    /// Starts on the system's clock.
    pub fn start() -> Self {
        Self::start_on(wall_ms)
    }

    /// Starts on another clock than the system's.
    pub fn start_on(system_ms: ReadWallClock) -> Self {
        let started_ms = system_ms();
        Self {
            system_ms,
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

    /// Returns the steady time.
    pub fn now_ms(&self) -> i64 {
        let since = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX);
        self.started_ms.saturating_add(since)
    }

    /// Returns the milliseconds since the start, by the steady time.
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the wall clock's time.
    pub fn wall_ms(&self) -> i64 {
        self.now_ms().saturating_add(self.offset_ms())
    }

    /// Returns the number of times that the wall clock was set.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Acquire)
    }

    /// Waits until the wall clock is set; for one waiter.
    pub async fn stepped(&self) {
        self.stepped.notified().await;
    }

    /// Returns the steady time at which the wall clock shows `wall_ms`, if it is not set again.
    pub fn steady_ms(&self, wall_ms: i64) -> i64 {
        wall_ms.saturating_sub(self.offset_ms())
    }

    /// Returns the earliest steady time that `wall_ms` can stand for in a message of any run.
    pub fn earliest_ms(&self, wall_ms: i64) -> i64 {
        let offset = self.eras().iter().map(|era| era.offset_ms).max();
        wall_ms.saturating_sub(offset.unwrap_or(0))
    }

    /// Returns the steady arrival time of a message with the stored arrival time `wall_ms`.
    pub fn arrival(&self, wall_ms: i64, is_of_this_run: bool) -> i64 {
        if self.steps() == 0 || !is_of_this_run {
            return self.steady_ms(wall_ms);
        }
        self.in_an_era(wall_ms).unwrap_or_else(|| self.steady_ms(wall_ms))
    }

    /// Returns the steady time of a wall time of this run, by the latest era that contains it.
    fn in_an_era(&self, wall_ms: i64) -> Option<i64> {
        let mut until_ms = self.now_ms();
        for era in self.eras().iter().rev() {
            let steady = wall_ms.saturating_sub(era.offset_ms);
            // A time is read slightly before the message is stored.
            if (era.from_ms.saturating_sub(STEP_MS_MIN)..=until_ms.saturating_add(STEP_MS_MIN))
                .contains(&steady)
            {
                return Some(steady);
            }
            until_ms = era.from_ms;
        }
        None
    }

    /// Returns the steady time of a stored date of any run, for ages: setting the clock while the program
    /// runs makes nothing older. A date of an earlier run counts by the clock as it was at the start.
    pub fn steady_date(&self, wall_ms: i64) -> i64 {
        if self.steps() == 0 {
            return wall_ms;
        }
        self.in_an_era(wall_ms).unwrap_or(wall_ms)
    }

    /// Follows the system's clock. True if it was set since the last call.
    pub fn follow(&self) -> bool {
        let before = self.started_really.elapsed();
        let wall_ms = (self.system_ms)();
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

    /// Returns the instant of a steady time, for a timer that never fires earlier.
    pub fn instant(&self, at_ms: i64) -> tokio::time::Instant {
        self.instant_after(u64::try_from(at_ms.saturating_sub(self.started_ms)).unwrap_or(0))
    }

    /// Returns the instant `elapsed_ms` after the start, for a timer that never fires earlier.
    pub fn instant_after(&self, elapsed_ms: u64) -> tokio::time::Instant {
        self.started + Duration::from_millis(elapsed_ms.min(TIMER_MS_MAX))
    }

    fn offset_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Acquire)
    }

    fn eras(&self) -> LockGuard<'_, Vec<Era>> {
        self.eras.lock()
    }
}
