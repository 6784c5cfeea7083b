//! The engine at the beginning of a run.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock};

use stafett_model::{Epoch, Lock};

use super::checkpoint::StartInfo;
use super::engine::{Engine, HousekeepingQueue, PendingCheckpoint, SegmentTable, StopSignal};
use super::open_files::Files;
use super::pool::Pool;
use super::recovery::RecoveredJournal;
use super::running::Running;
use super::storage::{Storage, is_full};
use super::syncer::SyncGate;
use super::tail_cache::TailCache;
use super::write_queue::WriteQueue;
use super::writer::{SealedSegment, Writer};
use super::{OpenError, Settings, control_append, syncer, writer};
use crate::metrics::Metrics;

/// Builds the engine from a recovered journal, starts its first segment and stores the results of recovery.
pub(super) fn start(
    storage: Arc<dyn Storage>,
    settings: Settings,
    metrics: Metrics,
    recovered: RecoveredJournal,
) -> Result<Engine, OpenError> {
    let meta = recovered.meta;
    let epoch = next_epoch(meta.run.epoch)?;
    let run = StartInfo {
        epoch: epoch.0,
        boot: settings.boot,
        ended: false,
    };
    let pool = prepare_pool(&storage, &settings, &recovered)?;
    let segments = SegmentTable::default();
    for segment in recovered.segments {
        segments.insert(segment);
    }
    for log in &recovered.dirty {
        log.lock().dirty = true;
    }
    let pending = PendingCheckpoint {
        position: meta.position.max(recovered.end),
        state: recovered.state,
        dirty: recovered.dirty,
        deleted: recovered.deleted,
        segments_added: recovered.segments_added,
        segments_removed: recovered.segments_removed,
        segments_forgotten: recovered.segments_forgotten,
        run,
        bytes: 0,
    };
    let running = Running::new(meta.running_ms, settings.clock.now_ms());
    let core = Engine {
        files: Files::new(Arc::clone(&storage)),
        tail: TailCache::new(settings.tail_cache_bytes),
        read_buffers: Arc::default(),
        settings,
        storage,
        logs: recovered.logs,
        next_log: AtomicU64::new(meta.next_log.max(1)),
        pool,
        queue: WriteQueue::default(),
        segments,
        pending: Lock::new(pending),
        sync: SyncGate::default(),
        writer: Lock::new(Writer::new(recovered.chain)),
        housekeeping: HousekeepingQueue::default(),
        checkpoint: recovered.checkpoint,
        checkpointed: AtomicU64::new(meta.position.packed()),
        checkpointed_at: AtomicI64::new(0),
        freed: AtomicU64::new(0),
        rewriting: StopSignal::default(),
        begun: AtomicBool::new(false),
        drained: AtomicBool::new(false),
        requests: Lock::default(),
        compactions: Lock::default(),
        epoch,
        running,
        failure: OnceLock::new(),
        metrics,
    };
    begin(&core, recovered.unlisted);
    match core.failure.get() {
        Some(reason) => Err(OpenError::Start(reason.clone())),
        None => Ok(core),
    }
}

/// Writes the frame that starts the run, if there is space; the checkpoint stored afterwards contains
/// everything replayed.
fn begin(core: &Engine, unlisted: Vec<SealedSegment>) {
    for sealed in unlisted {
        core.housekeeping.add_sealed(sealed);
    }
    if control_append::begin_run(core) {
        while writer::pump(core) {}
        syncer::pump(core);
    } else {
        tracing::error!(
            "the disk is full: what there is can be read, and appends are refused until there is space"
        );
    }
}

/// Returns the next epoch. Clients know epochs as signed numbers.
pub(super) fn next_epoch(last: u32) -> Result<Epoch, OpenError> {
    let next = last.checked_add(1).filter(|next| i32::try_from(*next).is_ok());
    next.map(Epoch)
        .ok_or_else(|| OpenError::Start(format!("it has been started {last} times")))
}

/// Takes over the files that recovery found unneeded, and makes spares.
fn prepare_pool(
    storage: &Arc<dyn Storage>,
    settings: &Settings,
    recovered: &RecoveredJournal,
) -> Result<Pool, OpenError> {
    let pool = Pool::new(
        Arc::clone(storage),
        settings.segment_bytes,
        settings.kept_back_segments,
        settings.disk_free_bytes_min,
        recovered.meta.next_segment,
    );
    for spare in &recovered.spares {
        match pool.recycle(*spare) {
            Err(error) if is_full(&error) => storage.remove(&spare.name())?,
            recycled => drop(recycled?),
        }
    }
    storage.sync_names()?;
    // Missing spares are made when there is space; until then space is reported as short.
    let _ = pool.refill();
    Ok(pool)
}

/// Name and function of a thread.
pub(super) type Job = (&'static str, fn(&Engine));
