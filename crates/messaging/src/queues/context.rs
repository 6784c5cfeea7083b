//! Services that the hand-out of messages needs besides its logs: journal, clock, tasks and lists of work.

use std::sync::{Arc, RwLockReadGuard, RwLockWriteGuard};

use stafett_journal::Journal;
use stafett_model::{Epoch, LogId, SharedLock};
use stafett_store::Clock;
use stafett_topics::ReadAheadBudget;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::flush::{self, Dirty};
use super::metrics::QueueMetrics;
use super::queue::Queue;
use super::shard::{self, Shards};
use super::timer::{self, Timer};

#[derive(Debug)]
pub(crate) struct DeliveryContext {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) epoch: Epoch,
    pub(super) clock: Arc<Clock>,
    pub(super) metrics: QueueMetrics,
    pub(super) read_ahead: Arc<ReadAheadBudget>,
    pub(super) dirty: Dirty,
    pub(super) timer: Timer,
    pub(super) shards: Shards,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    /// Held for reading while appends and truncations are staged, so that no log is deleted between its check
    /// and its append.
    removal_lock: SharedLock<()>,
}

impl DeliveryContext {
    pub(crate) fn new(journal: Arc<dyn Journal>, clock: Arc<Clock>) -> Arc<Self> {
        let parallel = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Arc::new(Self {
            epoch: journal.epoch(),
            clock,
            metrics: QueueMetrics::default(),
            read_ahead: Arc::default(),
            dirty: Dirty::default(),
            timer: Timer::default(),
            shards: Shards::new(&*journal, parallel),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            removal_lock: SharedLock::default(),
            journal,
        })
    }

    /// Starts the tasks. Must be called within a Tokio runtime. `all` lists everything that is handed out.
    pub(crate) fn start(self: &Arc<Self>, all: impl Fn() -> Vec<Arc<Queue>> + Send + 'static) {
        for shard in self.shards.all() {
            self.tasks.spawn(shard::run(Arc::clone(shard), self.stop.clone()));
        }
        let weak = || Arc::downgrade(self);
        self.tasks.spawn(flush::run(weak(), self.stop.clone()));
        self.tasks.spawn(timer::run(weak(), all, self.stop.clone()));
    }

    /// Schedules a hand-out.
    pub(super) fn wake(&self, queue: &Arc<Queue>) {
        self.shards.wake(queue);
    }

    /// Hands out when the log of a lane grows.
    pub(super) fn watch(&self, queue: &Arc<Queue>, lane: u32, log: LogId) {
        self.shards.watch(&*self.journal, queue, lane, log);
    }

    /// Stops the tasks, and waits until they have ended.
    pub(crate) async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Locks out deletions of logs.
    pub(crate) fn lock_out_removals(&self) -> RwLockReadGuard<'_, ()> {
        self.removal_lock.read()
    }

    pub(crate) fn lock_for_removal(&self) -> RwLockWriteGuard<'_, ()> {
        self.removal_lock.write()
    }
}
