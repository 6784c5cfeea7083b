//! Credit shared by several consumers: a bound on their messages in flight together.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::SmallVec;
use stafett_model::{Lock, LockGuard};

use super::source::Waiter;

/// Credit shared by several consumers. The front end returns it when it settles ([`Credit::release`]). While
/// there is none, consumers wait in line, so that each gets its turn.
#[derive(Debug, Default)]
pub struct Credit {
    /// Bound on the messages in flight; 0 for no bound.
    limit: AtomicU32,
    used: AtomicU32,
    /// Consumers without credit, the longest waiting first.
    waiting: Lock<VecDeque<Waiter>>,
}

impl Credit {
    /// Creates credit for `limit` messages; 0 for no bound.
    pub fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU32::new(limit),
            ..Self::default()
        })
    }

    /// Changes the bound; 0 for no bound. Messages in flight beyond it stay in flight.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Release);
        self.wake();
    }

    /// Returns the credit of `count` messages.
    pub fn release(&self, count: u32) {
        let before = self.used.load(Ordering::Acquire);
        self.used.fetch_sub(count.min(before), Ordering::AcqRel);
        self.wake();
    }

    /// Counts messages that were in flight before their consumer shared this credit.
    pub fn add(&self, count: u32) {
        self.used.fetch_add(count, Ordering::AcqRel);
    }

    /// Returns true if there is a bound.
    /// Returns the bound; 0 for none.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Acquire)
    }

    pub fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Acquire) != 0
    }

    /// Returns the number of messages in flight.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire)
    }

    /// Takes credit for a message. Without `settles` it takes none, but needs some to be available. If there
    /// is none, `waiter` is resumed when its turn has come.
    pub fn take(&self, settles: bool, waiter: impl FnOnce() -> Waiter) -> bool {
        if self.try_take(settles) {
            return true;
        }
        let mut waiting = self.waiting();
        // Credit may have been returned before this waiter was visible.
        if self.try_take(settles) {
            return true;
        }
        waiting.push_back(waiter());
        false
    }

    fn try_take(&self, settles: bool) -> bool {
        if !settles {
            return self.left() > 0;
        }
        let limit = self.limit.load(Ordering::Acquire);
        let take = |used: u32| (limit == 0 || used < limit).then(|| used.saturating_add(1));
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_ok()
    }

    /// Returns the number of messages that may still be taken.
    fn left(&self) -> u32 {
        match self.limit.load(Ordering::Acquire) {
            0 => u32::MAX,
            limit => limit.saturating_sub(self.used()),
        }
    }

    /// Resumes consumers in line while there is credit. Each dispatcher hands out before the next is resumed,
    /// so that the first in line is served first.
    fn wake(&self) {
        loop {
            let next = self.next_waiters(self.left());
            let Some(first) = next.first() else { return };
            first.resume_at_once(&next);
        }
    }

    /// Takes the first in line and those of the same dispatcher right behind it, at most `count`.
    fn next_waiters(&self, count: u32) -> SmallVec<[Waiter; 4]> {
        let mut next = SmallVec::new();
        if count == 0 {
            return next;
        }
        let mut waiting = self.waiting();
        next.extend(waiting.pop_front());
        while next.len() < count as usize
            && let (Some(first), Some(behind)) = (next.first(), waiting.front())
            && first.is_of_same(behind)
        {
            next.extend(waiting.pop_front());
        }
        next
    }

    fn waiting(&self) -> LockGuard<'_, VecDeque<Waiter>> {
        self.waiting.lock()
    }
}
