//! Credit that several consumers share: messages that they may have in flight together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};

use smallvec::SmallVec;
use stafett_model::Lock;

use super::source::Waiter;

/// Credit over several consumers. Who settles gives it back ([`Credit::release`]). While there is none,
/// consumers wait in line, so that each has its turn.
#[derive(Debug, Default)]
pub struct Credit {
    /// 0: no limit.
    limit: AtomicU32,
    used: AtomicU32,
    /// Consumers without credit, the one that waits longest first.
    waiting: Lock<VecDeque<Waiter>>,
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

    /// Counts messages that were in flight before their consumer shared this credit.
    pub fn add(&self, count: u32) {
        self.used.fetch_add(count, Ordering::AcqRel);
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Acquire) != 0
    }

    /// Messages in flight.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire)
    }

    /// Takes credit for a message that stays in flight if `settles`; another one only needs credit to be
    /// there. If there is none, `waiter` is told when its turn has come.
    pub(crate) fn take(&self, settles: bool, waiter: impl FnOnce() -> Waiter) -> bool {
        if self.try_take(settles) {
            return true;
        }
        let mut waiting = self.waiting();
        // Some may have come back meanwhile, before anybody could know that we wait.
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

    /// Messages that may still be taken.
    fn left(&self) -> u32 {
        match self.limit.load(Ordering::Acquire) {
            0 => u32::MAX,
            limit => limit.saturating_sub(self.used()),
        }
    }

    /// Lets consumers go on in the order of the line, as long as there is credit. Each queue hands out before
    /// the next is asked, so that the one whose turn it is comes first.
    fn wake(&self) {
        loop {
            let next = self.next_waiters(self.left());
            let Some(first) = next.first() else { return };
            first.go_on_at_once(&next);
        }
    }

    /// Takes the first in line, with those of the same queue that are right behind it: no more than `count`.
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

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiter>> {
        self.waiting.lock()
    }
}
