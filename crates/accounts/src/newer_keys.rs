//! Wishes for newer keys of an authorization server: a token names an unknown key, as the server may have
//! another one by now.
//!
//! Wishes come at most every [`WISH_EVERY`], and few logins wait for their outcome, so strangers with tokens
//! of unknown keys cause little work.

use std::time::Duration;

use stafett_model::Lock;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

/// Least time between two wishes.
const WISH_EVERY: Duration = Duration::from_secs(10);
/// Longest time that a login waits for newer keys.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// Logins that wait at once.
const WAITING_MAX: usize = 32;

#[derive(Debug)]
pub(super) struct NewerKeys {
    wishes: watch::Sender<u64>,
    /// Time of the last wish, and the number of times that keys were set before it.
    last: Lock<Option<(Instant, u64)>>,
    waiting: Semaphore,
    /// Number of times that keys were set.
    set: watch::Sender<u64>,
}

impl Default for NewerKeys {
    fn default() -> Self {
        Self {
            wishes: watch::Sender::new(0),
            last: Lock::default(),
            waiting: Semaphore::new(WAITING_MAX),
            set: watch::Sender::new(0),
        }
    }
}

impl NewerKeys {
    /// Returns a receiver that is told of each wish. Without one, nothing is wished.
    pub(super) fn wishes(&self) -> watch::Receiver<u64> {
        self.wishes.subscribe()
    }

    /// Notes that keys were set.
    pub(super) fn on_set(&self) {
        self.set.send_modify(|count| *count += 1);
    }

    /// Wishes for newer keys, and waits until `is_known` of those that are set: the first to come may have
    /// been asked for before. False if that takes too long.
    pub(super) async fn wait(&self, is_known: impl Fn() -> bool) -> bool {
        let Ok(_waiting) = self.waiting.try_acquire() else {
            return false;
        };
        if self.wishes.receiver_count() == 0 {
            return false;
        }
        let mut set = self.set.subscribe();
        let Some((since, before)) = self.wish() else {
            return false;
        };
        let left = WAIT_MAX.saturating_sub(since.elapsed());
        let newer = set.wait_for(|count| *count > before && is_known());
        timeout(left, newer).await.is_ok()
    }

    /// Makes a wish, or joins the one that others wait for: returns its time, and the number of times that
    /// keys were set before it. `None` if it is too soon for another.
    fn wish(&self) -> Option<(Instant, u64)> {
        let now = Instant::now();
        let mut last = self.last.lock();
        match *last {
            Some((at, before)) if now < at + WAIT_MAX => Some((at, before)),
            Some((at, _)) if now < at + WISH_EVERY => None,
            _ => {
                *last = Some((now, *self.set.borrow()));
                self.wishes.send_modify(|count| *count += 1);
                *last
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wishes_are_made_for_a_reader_alone_and_seldom() {
        let keys = NewerKeys::default();
        assert!(!keys.wait(|| true).await, "without a reader");
        let mut wishes = keys.wishes();
        let is_known = Cell::new(false);
        let reading = async {
            wishes.changed().await.unwrap();
            keys.on_set();
            tokio::task::yield_now().await;
            is_known.set(true);
            keys.on_set();
        };
        let waiting = async { keys.wait(|| is_known.get()).await && is_known.get() };
        let (found, ()) = tokio::join!(waiting, reading);
        assert!(found, "with the second ones");
        tokio::time::advance(WAIT_MAX).await;
        let begun = Instant::now();
        assert!(!keys.wait(|| true).await, "too soon");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        tokio::time::advance(WISH_EVERY).await;
        assert!(!keys.wait(|| true).await, "no newer keys come");
        assert_eq!(*wishes.borrow(), 2);
    }
}
