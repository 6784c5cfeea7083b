//! State shared by the threads of the engine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use stafett_model::{Epoch, Lock, LockGuard, LogId, SharedLock, WakeUp};

use super::checkpoint::{Checkpoint, StartInfo, StateAt};
use super::log::{Log, LogState, LogTable};
use super::open_files::Files;
use super::pool::Pool;
use super::position::{Position, SegmentId};
use super::read_buffers::ReadBuffers;
use super::rewrite::CompactionProgress;
use super::running::{Moment, Running};
use super::segment::Segment;
use super::settings::Settings;
use super::storage::Storage;
use super::syncer::SyncGate;
use super::tail_cache::TailCache;
use super::write_queue::{Wait, WriteQueue};
use super::writer::{SealedSegment, Writer};
use crate::metrics::Metrics;
use crate::request_ids::Requests;

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) settings: Settings,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) files: Files,
    pub(crate) logs: LogTable,
    pub(crate) next_log: AtomicU64,
    pub(crate) pool: Pool,
    pub(crate) queue: WriteQueue,
    pub(crate) tail: TailCache,
    pub(crate) read_buffers: Arc<ReadBuffers>,
    pub(crate) segments: SegmentTable,
    pub(crate) pending: Lock<PendingCheckpoint>,
    pub(crate) sync: SyncGate,
    pub(crate) writer: Lock<Writer>,
    pub(crate) housekeeping: HousekeepingQueue,
    pub(crate) checkpoint: Checkpoint,
    /// Position that the last stored checkpoint covers.
    pub(crate) checkpointed: AtomicU64,
    /// Time of the last checkpoint of this run, ms since 1970; 0 before the first.
    pub(crate) checkpointed_at: AtomicI64,
    /// Number of truncations and deletions.
    pub(crate) freed: AtomicU64,
    pub(crate) rewriting: StopSignal,
    /// True once the frame that starts this run is staged: nothing is written before.
    pub(crate) begun: AtomicBool,
    /// True if no more appends are accepted, no thread is running, and everything accepted is synced.
    pub(crate) drained: AtomicBool,
    /// Locked before any log, and only by appends that have an id.
    pub(crate) requests: Lock<Requests<Wait>>,
    /// Progress of compaction, per log that was ever compacted. Never locked together with another.
    pub(crate) compactions: Lock<HashMap<LogId, CompactionProgress>>,
    pub(crate) epoch: Epoch,
    pub(crate) running: Running,
    pub(crate) failure: OnceLock<String>,
    pub(crate) metrics: Metrics,
}

/// Changes for the next checkpoint.
#[derive(Debug, Default)]
pub(crate) struct PendingCheckpoint {
    /// Everything before this position is in here or in the checkpoint.
    pub(crate) position: Position,
    pub(crate) state: Vec<StateAt>,
    pub(crate) dirty: Vec<Arc<Log>>,
    pub(crate) deleted: Vec<LogId>,
    pub(crate) segments_added: Vec<SegmentId>,
    pub(crate) segments_removed: Vec<SegmentId>,
    pub(crate) segments_forgotten: Vec<SegmentId>,
    pub(crate) run: StartInfo,
    /// Bytes written since the last checkpoint.
    pub(crate) bytes: u64,
}

/// Readable segments.
#[derive(Debug, Default)]
pub(crate) struct SegmentTable(SharedLock<BTreeMap<SegmentId, Arc<Segment>>>);

/// Work for the housekeeping thread.
#[derive(Debug, Default)]
pub(crate) struct HousekeepingQueue {
    state: Lock<HousekeepingTasks>,
    wake: WakeUp,
    /// Sealed segments that get no sidecar: they had no readable contents when there was no space for one.
    dead: Lock<BTreeSet<SegmentId>>,
}

#[derive(Debug, Default)]
pub(crate) struct HousekeepingTasks {
    /// Segments that need a sidecar, oldest first.
    pub(crate) sealed: Vec<SealedSegment>,
    /// Number of sealed segments without a sidecar.
    unfinished: usize,
    /// Older segments whose sidecars could not be written; retried with the next work.
    late: Vec<SealedSegment>,
    pub(crate) checkpoint: bool,
    pub(crate) refill: bool,
    pub(crate) closed: bool,
}

impl Engine {
    /// Stops accepting appends permanently: data written last may or may not exist after the next start.
    pub(crate) fn fail(&self, reason: String) {
        tracing::error!(
            reason,
            "the journal failed and takes no more appends until it is opened again"
        );
        let _ = self.failure.set(reason);
        self.queue.fail();
        self.sync.fail();
        self.housekeeping.close();
        self.rewriting.close();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Returns true if there was space to start the run.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(crate) fn pending(&self) -> LockGuard<'_, PendingCheckpoint> {
        self.pending.lock()
    }

    /// Marks a log's row for the next checkpoint.
    pub(crate) fn mark_dirty(&self, log: &Arc<Log>, state: &mut LogState) {
        if !state.dirty {
            state.dirty = true;
            self.pending().dirty.push(Arc::clone(log));
        }
    }

    /// Returns the position before which all control frames are in the checkpoint.
    pub(crate) fn checkpointed(&self) -> Position {
        Position::unpacked(self.checkpointed.load(Ordering::Acquire))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.settings.clock.now_ms()
    }

    /// Returns the current time, for expiry of unused entries.
    pub(crate) fn moment(&self) -> Moment {
        Moment {
            clock: self.now_ms(),
            running: self.running.ms(),
        }
    }

    pub(crate) fn allocate(&self, count: u32) -> LogId {
        LogId(self.next_log.fetch_add(count.into(), Ordering::Relaxed))
    }
}

/// Wait that ends early on a stop request.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    closed: Lock<bool>,
    wake: WakeUp,
}

impl StopSignal {
    /// Waits up to `patience`; false if it is closed.
    pub(crate) fn wait(&self, patience: std::time::Duration) -> bool {
        let closed = self.closed.lock();
        !*self.wake.wait_timeout_while(closed, patience, |closed| !*closed)
    }

    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.wake.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.lock()
    }
}

impl SegmentTable {
    pub(crate) fn get(&self, id: SegmentId) -> Option<Arc<Segment>> {
        self.0.read().get(&id).cloned()
    }

    pub(crate) fn insert(&self, segment: Segment) {
        self.0.write().insert(segment.id, Arc::new(segment));
    }

    pub(crate) fn remove(&self, id: SegmentId) -> Option<Arc<Segment>> {
        self.0.write().remove(&id)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Segment>> {
        self.0.read().values().cloned().collect()
    }
}

impl HousekeepingQueue {
    /// Adds a sealed segment. The writer never blocks here: housekeeping may be waiting for the writer.
    pub(crate) fn add_sealed(&self, sealed: SealedSegment) {
        let mut state = self.lock();
        state.sealed.push(sealed);
        state.unfinished += 1;
        state.refill = true;
        drop(state);
        self.wake.notify_all();
    }

    /// Puts back segments that got no sidecar. They stay before all later ones: readers look for a log's
    /// batches in sidecars up to some segment, and in memory behind it.
    pub(crate) fn put_back(&self, sealed: Vec<SealedSegment>) {
        self.lock().late = sealed;
        self.wake.notify_all();
    }

    /// Records that the sidecar of a sealed segment is written.
    pub(crate) fn on_sidecar(&self) {
        self.lock().unfinished -= 1;
        self.wake.notify_all();
    }

    /// Waits until every sealed segment has its sidecar. False if one could not be written, or on close.
    pub(crate) fn wait_until_sealed(&self) -> bool {
        let state = self.lock();
        let busy =
            |state: &mut HousekeepingTasks| state.unfinished > 0 && state.late.is_empty() && !state.closed;
        self.wake.wait_while(state, busy).unfinished == 0
    }

    /// Returns true if every sealed segment has its sidecar.
    pub(crate) fn is_all_sealed(&self) -> bool {
        self.lock().unfinished == 0
    }

    /// Returns the sealed segments that get no sidecar.
    pub(crate) fn dead(&self) -> LockGuard<'_, BTreeSet<SegmentId>> {
        self.dead.lock()
    }

    pub(crate) fn want_checkpoint(&self) {
        self.lock().checkpoint = true;
        self.wake.notify_all();
    }

    /// Takes the pending work; waits up to `patience` for some.
    pub(crate) fn take(&self, patience: std::time::Duration) -> HousekeepingTasks {
        let state = self.lock();
        let idle = |state: &mut HousekeepingTasks| {
            state.sealed.is_empty() && !state.checkpoint && !state.refill && !state.closed
        };
        let mut state = self.wake.wait_timeout_while(state, patience, idle);
        let (closed, unfinished) = (state.closed, state.unfinished);
        let mut list = std::mem::take(&mut *state);
        (state.closed, state.unfinished) = (closed, unfinished);
        let newer = std::mem::replace(&mut list.sealed, std::mem::take(&mut list.late));
        list.sealed.extend(newer);
        drop(state);
        self.wake.notify_all();
        list
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_all();
    }

    fn lock(&self) -> LockGuard<'_, HousekeepingTasks> {
        self.state.lock()
    }
}
