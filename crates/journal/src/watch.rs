//! Notification of growth: which logs grew, and by how much.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stafett_model::Lock;
use tokio::sync::Notify;

/// A standing interest in the growth of logs. Dropping it ends the interest.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<WatchState>,
    closed: Arc<AtomicBool>,
}

#[derive(Debug)]
struct WatchState {
    /// Tokens of the logs that grew since the last [`Watch::take`].
    grown: Lock<HashSet<u32>>,
    /// Bytes that became readable since the last [`Watch::take`].
    bytes: AtomicU64,
    notify: Notify,
}

/// A log's end of a watch.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<WatchState>,
    closed: Arc<AtomicBool>,
    token: u32,
}

/// Watchers of one log; an idle log has none and pays one pointer.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "an idle log pays a pointer, not a vector")]
pub struct Watchers(Option<Box<Vec<Watcher>>>);

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            shared: Arc::new(WatchState {
                grown: Lock::default(),
                bytes: AtomicU64::new(0),
                notify: Notify::new(),
            }),
            closed: Arc::default(),
        }
    }

    /// Returns a part of this watch: growth of its logs is reported here, and dropping it ends the interest
    /// in its logs alone.
    #[must_use]
    pub fn part(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            closed: Arc::default(),
        }
    }

    /// Returns the bytes that became readable in all watched logs since [`Watch::take`].
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Acquire)
    }

    /// Waits until a log has grown since the last return of this function.
    pub async fn grown(&self) {
        self.shared.notify.notified().await;
    }

    /// Returns the tokens of the logs that grew since the last call, each once.
    pub fn take(&self) -> HashSet<u32> {
        self.shared.bytes.store(0, Ordering::Release);
        std::mem::take(&mut *self.shared.grown.lock())
    }

    /// Returns the end of the watch that a log has, which reports under `token`.
    pub fn watcher(&self, token: u32) -> Watcher {
        Watcher {
            shared: Arc::clone(&self.shared),
            closed: Arc::clone(&self.closed),
            token,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
    }
}

impl Watchers {
    /// Adds a watcher and removes those whose watch is dropped.
    pub fn add(&mut self, watcher: Watcher) {
        let watchers = self.0.get_or_insert_default();
        watchers.retain(|known| !known.closed.load(Ordering::Acquire));
        watchers.push(watcher);
    }

    /// Notifies every watcher that `bytes` more bytes are readable.
    pub fn on_growth(&mut self, bytes: u64) {
        let Some(watchers) = &mut self.0 else { return };
        watchers.retain(|watcher| watcher.on_growth(bytes));
        if watchers.is_empty() {
            self.0 = None;
        }
    }
}

/// A log that goes notifies its watchers, as a log that grows by nothing.
impl Drop for Watchers {
    fn drop(&mut self) {
        self.on_growth(0);
    }
}

impl Watcher {
    fn on_growth(&self, bytes: u64) -> bool {
        if self.closed.load(Ordering::Acquire) {
            return false;
        }
        self.shared.grown.lock().insert(self.token);
        self.shared.bytes.fetch_add(bytes, Ordering::AcqRel);
        self.shared.notify.notify_one();
        true
    }
}
