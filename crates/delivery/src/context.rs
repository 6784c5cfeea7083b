//! Services that the hand-out of messages needs besides its logs: journal, clock, tasks and lists of work.

use std::sync::Arc;

use bytes::Bytes;
use stafett_counters::Sampler;
use stafett_journal::{Change, Frame, Journal};
use stafett_model::{Epoch, LogId, ReadGuard, SharedLock, WriteGuard};
use stafett_store::{Clock, Table};
use stafett_topics::ReadAheadBudget;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dispatcher::Dispatcher;
use super::expiry_timer::{self, Timer};
use super::metrics::DeliveryMetrics;
use super::persistence::{self, Dirty};
use super::selection::{ENTRY_BYTES, Selections};
use super::wakeups::{self, Token, Wakeups};

#[derive(Debug)]
pub struct DeliveryContext {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) epoch: Epoch,
    pub clock: Arc<Clock>,
    pub metrics: DeliveryMetrics,
    pub sampler: Sampler<Dispatcher>,
    pub(super) read_ahead: Arc<ReadAheadBudget>,
    pub(crate) selections: Selections,
    pub dirty: Dirty,
    pub(super) timer: Timer,
    pub(super) wakeups: Wakeups,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
    /// Held for reading while appends and truncations are staged, so that no log is deleted between its check
    /// and its append.
    removal_lock: SharedLock<()>,
    /// Rows of the dispatchers' states.
    table: Table,
}

impl DeliveryContext {
    pub fn new(journal: Arc<dyn Journal>, clock: Arc<Clock>, table: Table) -> Arc<Self> {
        let parallel = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Arc::new(Self {
            epoch: journal.epoch(),
            clock,
            metrics: DeliveryMetrics::default(),
            sampler: Sampler::default(),
            read_ahead: Arc::default(),
            selections: Selections::default(),
            dirty: Dirty::default(),
            timer: Timer::default(),
            wakeups: Wakeups::new(&*journal, parallel),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            removal_lock: SharedLock::default(),
            table,
            journal,
        })
    }

    /// Starts the tasks. Must be called within a Tokio runtime. `all` lists everything that is handed out.
    pub fn start(self: &Arc<Self>, all: impl Fn() -> Vec<Arc<Dispatcher>> + Send + 'static) {
        for shard in self.wakeups.all() {
            self.tasks
                .spawn(wakeups::run(Arc::clone(shard), self.stop.clone()));
        }
        let weak = || Arc::downgrade(self);
        self.tasks.spawn(persistence::run(weak(), self.stop.clone()));
        self.tasks
            .spawn(expiry_timer::run(weak(), all, self.stop.clone()));
    }

    /// Returns the frame of a change of a dispatcher's stored state.
    pub fn state_frame(&self, dispatcher: &Dispatcher, change: Change) -> Frame {
        self.table
            .change(Bytes::copy_from_slice(&dispatcher.id.to_be_bytes()), change)
    }

    /// Returns the number of messages in the indexes of selected headers.
    pub fn selection_entries(&self) -> usize {
        self.selections.entries()
    }

    /// Returns the bytes of messages that were read ahead of their hand-out.
    pub fn kept_bytes(&self) -> usize {
        self.read_ahead.bytes()
    }

    /// Returns the bytes of the indexes of selected headers, approximately.
    pub fn index_bytes(&self) -> usize {
        self.selections.entries() * ENTRY_BYTES
    }

    /// Schedules a hand-out.
    pub fn wake(&self, dispatcher: &Arc<Dispatcher>) {
        self.wakeups.wake(dispatcher);
    }

    /// Hands out when the log of a lane grows.
    pub(super) fn watch(&self, dispatcher: &Arc<Dispatcher>, lane: u32, log: LogId) -> Option<Token> {
        self.wakeups.watch(&*self.journal, dispatcher, lane, log)
    }

    /// Stops the tasks, and waits until they have ended.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Locks out deletions of logs.
    pub fn lock_out_removals(&self) -> ReadGuard<'_, ()> {
        self.removal_lock.read()
    }

    pub fn lock_for_removal(&self) -> WriteGuard<'_, ()> {
        self.removal_lock.write()
    }
}
