//! Task that keeps time for all dispatchers: messages that expire at a head, and unused dispatchers.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use stafett_model::{Lock, LockGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::settling::Settle;

/// Interval between checks of the system's clock.
const FOLLOW: Duration = Duration::from_secs(1);

/// Deadlines of dispatchers.
#[derive(Debug, Default)]
pub(super) struct Timer {
    entries: Lock<BinaryHeap<TimerEntry>>,
    wake: Arc<Notify>,
}

#[derive(Debug)]
struct TimerEntry {
    at_ms: i64,
    dispatcher: Weak<Dispatcher>,
}

impl PartialEq for TimerEntry {
    fn eq(&self, other: &Self) -> bool {
        self.at_ms == other.at_ms
    }
}

impl Eq for TimerEntry {}

impl PartialOrd for TimerEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TimerEntry {
    /// Orders the earliest entry as the greatest: it is on top of the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_ms.cmp(&self.at_ms)
    }
}

impl Timer {
    fn push(&self, at_ms: i64, dispatcher: &Arc<Dispatcher>) {
        let is_first = {
            let mut entries = self.lock();
            let is_first = entries.peek().is_none_or(|first| at_ms < first.at_ms);
            entries.push(TimerEntry {
                at_ms,
                dispatcher: Arc::downgrade(dispatcher),
            });
            is_first
        };
        if is_first {
            self.wake.notify_one();
        }
    }

    pub(super) fn pop_due(&self, now_ms: i64) -> Option<Weak<Dispatcher>> {
        let mut entries = self.lock();
        if entries.peek()?.at_ms > now_ms {
            return None;
        }
        entries.pop().map(|entry| entry.dispatcher)
    }

    fn first(&self) -> Option<i64> {
        self.lock().peek().map(|entry| entry.at_ms)
    }

    fn lock(&self) -> LockGuard<'_, BinaryHeap<TimerEntry>> {
        self.entries.lock()
    }
}

impl DeliveryState {
    /// Schedules a check of the dispatcher, unless an earlier one is scheduled.
    pub fn wake_at(&mut self, context: &DeliveryContext, dispatcher: &Arc<Dispatcher>, at_ms: i64) {
        if at_ms < self.timer_at {
            self.timer_at = at_ms;
            context.timer.push(at_ms, dispatcher);
        }
    }
}

impl DeliveryState {
    /// Schedules the check of the known head, which was left out if an earlier check was scheduled then. A
    /// head that is over is handled by the hand-out.
    fn wake_for_head(&mut self, context: &DeliveryContext, dispatcher: &Arc<Dispatcher>) {
        let now_ms = context.clock.now_ms();
        let expires = self.head_expires.map(|(_, at)| at);
        if let Some(at) = expires.filter(|at| *at > now_ms && *at < i64::MAX) {
            self.wake_at(context, dispatcher, at);
        }
    }
}

impl Dispatcher {
    /// Handles a due deadline: something may have expired, or a lease has ended.
    fn tick(self: &Arc<Self>, context: &Arc<DeliveryContext>) {
        let (unused, ended) = {
            let mut inner = self.lock();
            if self.is_ended() {
                return;
            }
            inner.timer_at = i64::MAX;
            inner.wake_for_head(context, self);
            let ended = inner.ended_leases(context, self);
            (self.is_overdue(context, &mut inner), ended)
        };
        if !ended.is_empty() {
            let returned: Vec<_> = ended.into_iter().map(|id| (id, Settle::Requeue)).collect();
            self.settle(&returned);
        }
        if unused {
            if let Some(owner) = self.owner.upgrade() {
                owner.on_unused(false);
            }
        } else {
            self.dispatch();
        }
    }

    /// Returns true if it has not been used for as long as it may; otherwise it is checked again then.
    pub fn is_overdue(self: &Arc<Self>, context: &DeliveryContext, inner: &mut DeliveryState) -> bool {
        let unused_at = inner.unused_at();
        if unused_at.is_some_and(|at| at <= context.clock.now_ms()) {
            return true;
        }
        if let Some(at) = unused_at {
            inner.wake_at(context, self, at);
        }
        false
    }

    /// Forgets all deadlines, as if the timer had handled them.
    #[cfg(any(test, feature = "testing"))]
    pub fn forget_timer(&self, context: &DeliveryContext) {
        self.lock().timer_at = i64::MAX;
        while context.timer.pop_due(i64::MAX).is_some() {}
    }
}

impl DeliveryState {
    /// Returns the time from which it counts as unused. `None` if it has no limit, or is in use: by
    /// consumers, requests that wait, or leases.
    pub(super) fn unused_at(&self) -> Option<i64> {
        let expires_ms = i64::try_from(self.settings.expires_ms?).unwrap_or(i64::MAX);
        let is_used = self.has_consumers() || self.waiting_requests > 0 || self.has_leases();
        (!is_used).then(|| self.used_ms.saturating_add(expires_ms))
    }
}

impl DeliveryContext {
    /// Checks all heads again: messages of earlier runs expire by the wall clock.
    fn on_clock_set(&self, all: &[Arc<Dispatcher>]) {
        for dispatcher in all {
            let mut inner = dispatcher.lock();
            inner.head_expires = None;
            inner.begin_groups_anew();
            if inner.may_expire && inner.state.ready() > 0 {
                self.wake(dispatcher);
            }
        }
    }
}

/// Runs until the dispatchers are dropped or stopped.
pub(super) async fn run(
    context: Weak<DeliveryContext>,
    all: impl Fn() -> Vec<Arc<Dispatcher>>,
    stop: CancellationToken,
) {
    let Some((wake, clock)) = context
        .upgrade()
        .map(|context| (Arc::clone(&context.timer.wake), Arc::clone(&context.clock)))
    else {
        return;
    };
    loop {
        let first = {
            let Some(context) = context.upgrade() else { return };
            if clock.follow() {
                context.on_clock_set(&all());
            }
            let now_ms = clock.now_ms();
            context.selections.drop_unused(now_ms);
            while let Some(dispatcher) = context.timer.pop_due(now_ms) {
                if let Some(dispatcher) = dispatcher.upgrade() {
                    dispatcher.tick(&context);
                }
            }
            context.timer.first()
        };
        let look = tokio::time::Instant::now() + FOLLOW;
        let due = first.map_or(look, |at| clock.instant(at).min(look));
        tokio::select! {
            () = stop.cancelled() => return,
            () = wake.notified() => {}
            () = tokio::time::sleep_until(due) => {}
        }
    }
}
