//! Credit that several consumers share: messages that they may have in flight together.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::source::Waiter;

/// Credit over several consumers. Who settles gives it back ([`Credit::release`]).
#[derive(Debug, Default)]
pub struct Credit {
    /// 0: no limit.
    limit: AtomicU32,
    used: AtomicU32,
    waiting: Mutex<Vec<Waiter>>,
}

impl Credit {
    /// Credit for so many messages; 0 is any number.
    pub fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU32::new(limit),
            ..Self::default()
        })
    }

    /// Changes the limit; 0 is any number. What is in flight beyond stays there.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
        self.wake();
    }

    /// So many messages are no longer in flight.
    pub fn release(&self, count: u32) {
        let before = self.used.load(Ordering::Acquire);
        self.used.fetch_sub(count.min(before), Ordering::AcqRel);
        self.wake();
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Acquire) != 0
    }

    /// Messages in flight.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire)
    }

    /// Takes credit for a message. If there is none, `waiter` is told once there is.
    pub(crate) fn take(&self, waiter: impl FnOnce() -> Waiter) -> bool {
        if self.try_take() {
            return true;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Some may have come back meanwhile, before anybody could know that we wait.
        if self.try_take() {
            return true;
        }
        waiting.push(waiter());
        false
    }

    fn try_take(&self) -> bool {
        let limit = self.limit.load(Ordering::Acquire);
        let take = |used: u32| (limit == 0 || used < limit).then(|| used.saturating_add(1));
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_ok()
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        for waiter in waiting {
            waiter.go_on();
        }
    }
}
