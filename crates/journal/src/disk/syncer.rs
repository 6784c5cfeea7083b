//! The syncer: makes written groups durable and completes the appends that wait for that.
//!
//! It syncs when an append waits, when a limit of time or records of a log's level is reached, and whenever a
//! few MiB are unsynced: an append that waits for a sync should not pay for all other dirty pages.
//!
//! A storage may have several syncs at a time, each in a thread of its own. They begin in the order of
//! writing, and have their effects in that order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use stafett_model::{Lock, LockGuard, Offset, WakeUp};

use super::engine::Engine;
use super::log::Log;
use super::position::Position;
use super::storage::StorageFile;
use crate::contract::Outcome;
use crate::metrics::Observed;
use crate::ticket::TicketSettler;

/// Unsynced bytes at which a sync starts without a waiting append.
const UNSYNCED_BYTES: usize = 4 << 20;
/// The same if an append has waited for a sync recently, and so probably will again: an append that arrives
/// during a sync waits for it and for the next one, and both take time in proportion to their bytes.
const UNSYNCED_BYTES_SHARED: usize = 1 << 20;
const A_MOMENT: Duration = Duration::from_secs(1);
/// Unsynced bytes at which the writer waits.
const UNSYNCED_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct SyncGate {
    state: Lock<SyncState>,
    wake: WakeUp,
    /// Held by the thread that waits for the next sync to be due.
    taking: Lock<()>,
}

#[derive(Debug, Default)]
struct SyncState {
    files: SmallVec<[Arc<dyn StorageFile>; 2]>,
    waiting: Vec<Vec<PendingSync>>,
    written: Position,
    synced: Position,
    unsynced_bytes: usize,
    interval_records: u32,
    urgent: bool,
    due: Option<Instant>,
    /// Time of the last append that waited for a sync.
    waited: Option<Instant>,
    /// Number of the next round.
    next_round: u64,
    /// Number of the round whose effects are next.
    next_effects: u64,
    closed: bool,
    failed: bool,
}

/// Data from the writer about a written group.
#[derive(Debug)]
pub(crate) struct WrittenGroup {
    pub(crate) end: Position,
    pub(crate) bytes: usize,
    pub(crate) files: SmallVec<[Arc<dyn StorageFile>; 2]>,
    pub(crate) waiting: Vec<PendingSync>,
    pub(crate) sync_within_ms: u32,
    pub(crate) urgent: bool,
}

/// An append with effects after the next sync.
#[derive(Debug)]
pub(crate) struct PendingSync {
    pub(crate) shows: SmallVec<[SyncEffect; 1]>,
    pub(crate) settler: Option<(TicketSettler, Outcome)>,
    pub(crate) interval: Option<(u32, u32)>,
}

/// Effect of a sync: readable batches or reserved offsets.
#[derive(Debug)]
pub(crate) enum SyncEffect {
    Batch { log: Arc<Log>, end: Offset, bytes: u64 },
    Reserve { log: Arc<Log>, below: Offset },
}

/// Contents of one sync.
#[derive(Debug)]
struct Round {
    number: u64,
    files: SmallVec<[Arc<dyn StorageFile>; 2]>,
    waiting: Vec<Vec<PendingSync>>,
    upto: Position,
}

impl SyncGate {
    /// Returns the position before which everything is synced.
    pub(crate) fn synced(&self) -> Position {
        self.lock().synced
    }

    /// Returns the bytes that are written and not synced.
    pub(super) fn unsynced_bytes(&self) -> usize {
        self.lock().unsynced_bytes
    }

    /// Returns true if an append waited for a sync within the last second.
    pub(super) fn has_recent_waiter(&self) -> bool {
        self.lock().has_recent_waiter()
    }

    pub(crate) fn on_written(&self, core: &Engine, written: WrittenGroup) {
        let mut state = self.lock();
        if state.failed {
            // The group was taken from the queue before the journal failed: no sync will answer its appends.
            drop(state);
            drop(written);
            return;
        }
        let due_before = state.due;
        // Groups may be reported out of order.
        state.written = state.written.max(written.end);
        state.unsynced_bytes += written.bytes;
        for file in written.files {
            if !state.files.iter().any(|known| Arc::ptr_eq(known, &file)) {
                state.files.push(file);
            }
        }
        for (records, limit) in written.waiting.iter().filter_map(|waiting| waiting.interval) {
            state.interval_records = state.interval_records.saturating_add(records);
            state.urgent |= state.interval_records >= limit;
        }
        if !written.waiting.is_empty() {
            state.waiting.push(written.waiting);
        }
        if written.urgent {
            state.waited = Some(Instant::now());
        }
        let bound = if state.has_recent_waiter() {
            UNSYNCED_BYTES_SHARED
        } else {
            UNSYNCED_BYTES
        };
        state.urgent |= written.urgent || state.unsynced_bytes >= bound;
        if written.bytes > 0 && written.sync_within_ms < u32::MAX {
            let due = Instant::now() + Duration::from_millis(written.sync_within_ms.into());
            state.due = Some(state.due.map_or(due, |known| known.min(due)));
        }
        // The syncer is woken only if the time of the next sync changes, not for each group that it will
        // sync.
        if state.urgent || state.due != due_before {
            self.wake.notify_all();
        }
        while core.settings.threads
            && state.unsynced_bytes >= UNSYNCED_BYTES_MAX
            && !state.failed
            && !state.closed
        {
            state.urgent = true;
            state = self.wake.wait(state);
        }
    }

    /// Ends the syncer after a last sync: no more groups are written.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_all();
    }

    /// Drops the waiting appends, whose outcome stays unknown.
    pub(crate) fn fail(&self) {
        let dropped = {
            let mut state = self.lock();
            state.failed = true;
            std::mem::take(&mut state.waiting)
        };
        self.wake.notify_all();
        drop(dropped);
    }

    /// Waits until a sync is due; `None` if there will be no more.
    fn next_round(&self, core: &Engine) -> Option<Round> {
        let _taking = self.taking.lock();
        let mut state = self.lock();
        loop {
            if state.failed {
                return None;
            }
            let now = Instant::now();
            if state.urgent || state.closed || state.due.is_some_and(|due| due <= now) {
                if state.files.is_empty() && state.waiting.is_empty() {
                    if state.closed {
                        return None;
                    }
                    state.urgent = false;
                    state.due = None;
                    continue;
                }
                if state.running() > 0 && state.running() >= core.storage.syncs_max() {
                    state = self.wake.wait(state);
                    continue;
                }
                if core.storage.sync_threads() > 1 {
                    drop(state);
                    core.storage.gather();
                    state = self.lock();
                    if state.failed {
                        return None;
                    }
                }
                let round = state.take();
                state.note_running(core);
                return Some(round);
            }
            state = match state.due {
                Some(due) => {
                    let patience = due.saturating_duration_since(now);
                    self.wake.wait_timeout(state, patience)
                }
                None => self.wake.wait(state),
            };
        }
    }

    /// Waits for the turn of a round's effects. False after a failure.
    fn wait_for_turn(&self, round: &Round) -> bool {
        let mut state = self.lock();
        while state.next_effects != round.number && !state.failed {
            state = self.wake.wait(state);
        }
        if state.failed {
            return false;
        }
        state.synced = round.upto;
        drop(state);
        self.wake.notify_all();
        true
    }

    /// Ends a round, whose effects are there.
    fn end_round(&self, core: &Engine) {
        let mut state = self.lock();
        state.next_effects += 1;
        state.note_running(core);
        drop(state);
        if core.storage.sync_threads() > 1 {
            self.wake.notify_all();
        }
    }

    fn lock(&self) -> LockGuard<'_, SyncState> {
        self.state.lock()
    }
}

impl SyncState {
    /// Returns true if an append waited for a sync within the last second.
    fn has_recent_waiter(&self) -> bool {
        self.waited.is_some_and(|waited| waited.elapsed() < A_MOMENT)
    }

    /// Returns the number of rounds under way.
    fn running(&self) -> usize {
        usize::try_from(self.next_round - self.next_effects).unwrap_or(usize::MAX)
    }

    /// Tells the queue whether appends that wait for a sync gather. Under the lock, so that the last word is
    /// the newest.
    fn note_running(&self, core: &Engine) {
        let running = self.running();
        let gathers = running > 0 && running >= core.storage.syncs_max();
        core.queue
            .set_sync_running(gathers, gathers && self.has_recent_waiter());
    }

    fn take(&mut self) -> Round {
        self.unsynced_bytes = 0;
        self.interval_records = 0;
        self.urgent = false;
        self.due = None;
        self.next_round += 1;
        Round {
            number: self.next_round - 1,
            files: std::mem::take(&mut self.files),
            waiting: std::mem::take(&mut self.waiting),
            upto: self.written,
        }
    }
}

/// Syncs until the journal is closed.
pub(crate) fn run(core: &Engine) {
    while let Some(round) = core.sync.next_round(core) {
        if !sync(core, round) {
            return;
        }
        core.sync.end_round(core);
    }
}

/// Syncs everything written now.
pub(crate) fn pump(core: &Engine) {
    let round = {
        let mut state = core.sync.lock();
        if state.files.is_empty() && state.waiting.is_empty() {
            (state.urgent, state.due) = (false, None);
            return;
        }
        state.take()
    };
    if sync(core, round) {
        core.sync.end_round(core);
    }
}

/// Syncs a round, and has its effects in its turn. False after a failure.
fn sync(core: &Engine, round: Round) -> bool {
    let started = Instant::now();
    for file in &round.files {
        if let Err(error) = file.sync() {
            core.fail(format!("a sync failed: {error}"));
            return false;
        }
    }
    let ended = Instant::now();
    let took = ended.saturating_duration_since(started);
    core.metrics.sync_seconds.observe(took.as_secs_f64());
    core.metrics.tell(Observed::Sync, took);
    if !core.sync.wait_for_turn(&round) {
        return false;
    }
    for waiting in round.waiting.into_iter().flatten() {
        for shown in waiting.shows {
            match shown {
                SyncEffect::Batch { log, end, bytes } => log.lock().make_visible(end, bytes),
                SyncEffect::Reserve { log, below } => {
                    let mut state = log.lock();
                    state.reserved_durably = state.reserved_durably.max(below);
                }
            }
        }
        if let Some((settler, outcome)) = waiting.settler {
            let waited = settler.waited(ended);
            core.metrics.append_synced_seconds.observe(waited.as_secs_f64());
            core.metrics.tell(Observed::AppendSynced, waited);
            settler.settle(outcome);
        }
    }
    true
}
