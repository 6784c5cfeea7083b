//! The task that keeps time for all groups.
//!
//! A deadline that moves to a later time, as every heartbeat moves it, is not updated in the queue: when its
//! entry comes up, the group is asked for its current deadline. So thousands of heartbeats a second cost no
//! queue operations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use stafett_model::{Lock, LockGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::moment::Moment;
use super::registry::Groups;

/// Delay from the deletion of a topic to the sweep of its commits, in ms, so that many deletions share a
/// sweep.
const DELETED_AFTER_MS: u32 = 1000;

/// Deadlines, earliest first. Stale entries stay until they come up.
type Queue = BinaryHeap<Reverse<(Moment, Arc<str>)>>;

/// Deadlines of groups.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    queue: Lock<Queue>,
    wake: Arc<Notify>,
    topics_deleted: AtomicBool,
}

impl Deadlines {
    pub(super) fn push(&self, at: Moment, group: Arc<str>) {
        let mut queue = self.lock();
        let is_first = queue.peek().is_none_or(|Reverse((first, _))| at < *first);
        queue.push(Reverse((at, group)));
        drop(queue);
        if is_first {
            self.wake.notify_one();
        }
    }

    fn pop_due(&self, now: Moment) -> Option<(Moment, Arc<str>)> {
        let mut queue = self.lock();
        let Reverse((first, _)) = queue.peek()?;
        if *first > now {
            return None;
        }
        queue.pop().map(|Reverse(entry)| entry)
    }

    fn first(&self) -> Option<Moment> {
        self.lock().peek().map(|Reverse((first, _))| *first)
    }

    fn lock(&self) -> LockGuard<'_, Queue> {
        self.queue.lock()
    }
}

impl Groups {
    /// Schedules a sweep of the commits of deleted topics.
    pub fn on_topic_deleted(&self) {
        if !self.deadlines.topics_deleted.swap(true, Ordering::AcqRel) {
            self.deadlines.wake.notify_one();
        }
    }

    fn tick_due(&self) {
        let now = self.now();
        while let Some((due, group)) = self.deadlines.pop_due(now) {
            self.tick(&group, due);
        }
    }
}

/// Runs until the groups are dropped.
pub(super) async fn run(groups: Weak<Groups>, stop: CancellationToken) {
    let Some((wake, clock, every)) = groups.upgrade().map(|groups| {
        let every = u32::try_from(groups.settings.sweep_every.as_millis()).unwrap_or(u32::MAX);
        (
            Arc::clone(&groups.deadlines.wake),
            Arc::clone(&groups.clock),
            every,
        )
    }) else {
        return;
    };
    // Commits that expired while the broker was down are removed soon after the start.
    let mut sweep_at = Moment(clock.elapsed_ms()).after(DELETED_AFTER_MS);
    loop {
        let next = {
            let Some(groups) = groups.upgrade() else { return };
            groups.tick_due();
            let now = groups.now();
            if now >= sweep_at {
                groups.sweep();
                sweep_at = now.after(every);
            }
            if groups.deadlines.topics_deleted.swap(false, Ordering::AcqRel) {
                sweep_at = sweep_at.min(now.after(DELETED_AFTER_MS));
            }
            groups
                .deadlines
                .first()
                .map_or(sweep_at, |first| first.min(sweep_at))
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = wake.notified() => {}
            () = tokio::time::sleep_until(clock.instant_after(next.0)) => {}
        }
    }
}
