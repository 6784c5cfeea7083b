//! Waits that end on time. Tokio's own timer counts in milliseconds, which is longer than many a latency; a
//! timer of the kernel's ends within some ten microseconds.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// Waits for moments, one at a time.
#[derive(Debug)]
pub enum Timer {
    /// The kernel's.
    Precise(AsyncFd<OwnedFd>),
    /// Tokio's, which follows simulated time.
    Plain,
}

impl Timer {
    /// A precise timer, if it is asked for and can be had.
    pub fn new(is_precise: bool) -> Self {
        if !is_precise {
            return Self::Plain;
        }
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let Ok(fd) = timerfd_create(TimerfdClockId::Monotonic, flags) else {
            return Self::Plain;
        };
        #[expect(
            deprecated,
            reason = "unsound for what may close its descriptor; ours is open as long as this lives"
        )]
        let fd = AsyncFd::new(fd);
        fd.map_or(Self::Plain, Self::Precise)
    }

    /// Returns at `at`, at once if that is over. Safe to drop and to ask again.
    pub async fn until(&mut self, at: Instant) {
        let Self::Precise(fd) = self else {
            return sleep_until(at).await;
        };
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() || !arm(fd.get_ref(), left) {
            return;
        }
        loop {
            let Ok(mut ready) = fd.readable().await else {
                return sleep_until(at).await;
            };
            let mut ticks = [0; 8];
            if rustix::io::read(fd.get_ref(), &mut ticks).is_ok() {
                return;
            }
            // It was ready for a wait before this one.
            ready.clear_ready();
        }
    }
}

fn arm(fd: &OwnedFd, left: Duration) -> bool {
    let Ok(value) = Timespec::try_from(left) else {
        return false;
    };
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: value,
    };
    timerfd_settime(fd, TimerfdTimerFlags::empty(), &once).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_never_ends_early_and_can_be_asked_again() {
        let mut timer = Timer::new(true);
        assert!(matches!(timer, Timer::Precise(_)));
        for micros in [0, 50, 300, 2000] {
            let at = Instant::now() + Duration::from_micros(micros);
            timer.until(at).await;
            assert!(Instant::now() >= at);
        }
        let far = Instant::now() + Duration::from_hours(1);
        assert!(
            tokio::time::timeout(Duration::from_millis(1), timer.until(far))
                .await
                .is_err()
        );
        let at = Instant::now() + Duration::from_micros(100);
        timer.until(at).await;
        assert!(Instant::now() >= at);
    }
}
