//! Storing what queues have settled: gathered over all queues for some milliseconds, and never waited for.
//!
//! Each queue's changes are a delta of its state; once the deltas outgrow the whole, the whole is stored in their
//! place. What lies before a queue's head is freed in its logs.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use stafett_journal::{Append, Change, Frame, StateWait};
use stafett_model::Offset;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::pump::state_frame;
use super::queue::{Inner, Queue};
use super::registry::Queues;

/// How long settlements are gathered.
const GATHER: Duration = Duration::from_millis(5);
/// Bytes of deltas below which the whole is not stored.
const CHANGED_BYTES_MIN: usize = 4096;
/// Messages that are freed at once, where others wait behind them.
const FREED_AT_ONCE: u64 = 4096;
/// Frames of one append.
const FRAMES_MAX: usize = 500;

/// Queues that have something to store.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    queues: Mutex<Vec<Arc<Queue>>>,
    wake: Arc<Notify>,
}

impl Dirty {
    fn push(&self, queue: Arc<Queue>) {
        let first = {
            let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.push(queue);
            queues.len() == 1
        };
        if first {
            self.wake.notify_one();
        }
    }

    fn take(&self) -> Vec<Arc<Queue>> {
        std::mem::take(&mut *self.queues.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Queues {
    /// Notes that a queue has something to store, if it has.
    pub(super) fn mark_dirty(&self, queue: &Arc<Queue>, inner: &mut Inner) {
        if !inner.dirty && !queue.is_deleted() && (!inner.changes.is_empty() || inner.can_free(queue)) {
            inner.dirty = true;
            self.dirty.push(Arc::clone(queue));
        }
    }

    /// Stores what all queues have to store.
    pub(super) fn flush(&self) {
        // No log may go between being looked at and being freed.
        let _there = self.there();
        let mut frames = Vec::new();
        for queue in self.dirty.take() {
            let mut inner = queue.lock();
            inner.dirty = false;
            if !queue.is_deleted() {
                inner.store(self, &queue, &mut frames);
            }
        }
        self.store(frames);
    }

    /// Stores what is known of every queue as exactly as it can be: before a stop.
    pub(super) fn flush_all(&self) {
        self.flush();
        let mut frames = Vec::new();
        for queue in self.all() {
            let mut inner = queue.lock();
            if queue.is_deleted() || !queue.outlives() {
                continue;
            }
            let lanes: Vec<u32> = inner.logs.iter().map(|lane| lane.lane).collect();
            let Inner { state, changes, .. } = &mut *inner;
            for number in lanes {
                let lane = state.lane_mut(number);
                if lane.has_mark() {
                    changes.exact_mark(number, lane.mark_exactly());
                }
            }
            inner.store(self, &queue, &mut frames);
        }
        self.store(frames);
    }

    fn store(&self, frames: Vec<Frame>) {
        if frames.is_empty() {
            return;
        }
        let mut frames = frames.into_iter().peekable();
        let mut appends = Vec::new();
        while frames.peek().is_some() {
            appends.push(Append::state(
                frames.by_ref().take(FRAMES_MAX),
                StateWait::Written,
            ));
        }
        drop(self.journal.append(appends));
    }
}

impl Inner {
    fn store(&mut self, hub: &Queues, queue: &Queue, frames: &mut Vec<Frame>) {
        if !queue.outlives() {
            self.changes.clear();
        } else if !self.changes.is_empty() {
            self.store_whole_if_due(hub, queue);
            if !self.changes.is_empty() {
                let delta = self.changes.encode();
                self.changed_bytes += delta.len();
                frames.push(state_frame(queue, Change::Delta(delta.into())));
            }
            self.changes.clear();
        }
        if self.lies_over {
            return;
        }
        for lane in &mut self.logs {
            let Some(state) = self.state.lane(lane.lane) else {
                continue;
            };
            let before = state.head().saturating_sub(queue.settings.retain);
            if before > lane.freed && (state.head() == state.end() || before - lane.freed >= FREED_AT_ONCE) {
                lane.freed = before;
                frames.push(Frame::Truncate {
                    log: lane.log,
                    before: Offset(before),
                });
            }
        }
    }

    /// Stores the whole once what was stored of changes is more than that.
    pub(super) fn store_whole_if_due(&mut self, hub: &Queues, queue: &Queue) {
        let is_due = self.changed_bytes > CHANGED_BYTES_MIN.max(2 * self.whole_bytes);
        // What is under way would be settled in the journal, and not in the whole.
        if !is_due || self.moving > 0 || !queue.outlives() {
            return;
        }
        let whole = self.state.encode(self.holds_transient);
        (self.whole_bytes, self.changed_bytes) = (whole.len(), 0);
        // It replaces all deltas staged before: under the lock, none can come between that it does not have.
        let put = state_frame(queue, Change::Put(whole.into()));
        drop(hub.journal.append(vec![Append::state([put], StateWait::Written)]));
        self.changes.clear();
    }

    /// Whether a log can be freed up to its head.
    fn can_free(&self, queue: &Queue) -> bool {
        !self.lies_over
            && self.logs.iter().any(|lane| {
                self.state.lane(lane.lane).is_some_and(|state| {
                    let before = state.head().saturating_sub(queue.settings.retain);
                    before > lane.freed
                        && (state.head() == state.end() || before - lane.freed >= FREED_AT_ONCE)
                })
            })
    }
}

/// Runs until the queues are dropped or stopped.
pub(super) async fn run(queues: Weak<Queues>, stop: CancellationToken) {
    let Some(wake) = queues.upgrade().map(|queues| Arc::clone(&queues.dirty.wake)) else {
        return;
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = wake.notified() => {}
        }
        tokio::time::sleep(GATHER).await;
        let Some(queues) = queues.upgrade() else { return };
        queues.flush();
    }
}
