//! The task that keeps time for all apps. A deadline that moves to a later time stays in the queue: when
//! it comes up, the app is asked for its current one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use stafett_model::Lock;
use stafett_store::Clock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// Time after which the queue is looked at, whatever is in it.
const LOOK_MS: i64 = 60_000;

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    queue: Lock<BinaryHeap<Reverse<Deadline>>>,
    wake: Notify,
}

#[derive(Debug)]
struct Deadline {
    at_ms: i64,
    app: Weak<App>,
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.at_ms == other.at_ms
    }
}

impl Eq for Deadline {}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at_ms.cmp(&other.at_ms)
    }
}

impl Deadlines {
    pub(crate) fn push(&self, at_ms: i64, app: Weak<App>) {
        self.queue.lock().push(Reverse(Deadline { at_ms, app }));
        self.wake.notify_one();
    }

    fn pop_due(&self, now_ms: i64) -> Option<Deadline> {
        let mut queue = self.queue.lock();
        queue.peek().filter(|Reverse(first)| first.at_ms <= now_ms)?;
        queue.pop().map(|Reverse(due)| due)
    }

    fn first(&self) -> Option<i64> {
        self.queue.lock().peek().map(|Reverse(first)| first.at_ms)
    }
}

/// Runs until it is stopped.
pub(crate) async fn run(deadlines: Arc<Deadlines>, clock: Arc<Clock>, stop: CancellationToken) {
    loop {
        while let Some(due) = deadlines.pop_due(clock.now_ms()) {
            if let Some(app) = due.app.upgrade() {
                app.on_time(due.at_ms);
            }
        }
        let next = deadlines
            .first()
            .unwrap_or(i64::MAX)
            .min(clock.now_ms() + LOOK_MS);
        tokio::select! {
            () = tokio::time::sleep_until(clock.instant(next)) => {}
            () = deadlines.wake.notified() => {}
            () = stop.cancelled() => return,
        }
    }
}
