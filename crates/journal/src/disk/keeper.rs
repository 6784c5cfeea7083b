//! The thread that keeps house: sidecars of sealed segments, spares, checkpoints, retention.

use std::time::{Duration, Instant};

use super::barrier::{append_control, seal_synced, wait_synced};
use super::checkpoint::{Changes, CheckpointError, LogRow, Meta};
use super::control::Control;
use super::core::{ChoreList, Core};
use super::index::sort;
use super::retention;
use super::segment::{FileRole, SegmentKind};
use super::sidecar::{self, rows_of};
use super::writer::{self, Sealed};

/// How often the keeper looks for what nobody told it.
const PATIENCE: Duration = Duration::from_millis(500);
/// A producer that was not heard of for so long is forgotten.
const PRODUCER_MS: i64 = 86_400_000;
/// How often retention is looked at.
const RETENTION_EVERY: Duration = Duration::from_secs(30);
/// How long an idle journal waits before what it changed is in a checkpoint.
const IDLE_CHECKPOINT_AFTER: Duration = Duration::from_secs(30);
/// The same while space is short.
const SHORT_CHECKPOINT_AFTER: Duration = Duration::from_secs(2);

/// Keeps house until the journal is closed and nothing is left to do.
pub(crate) fn run(core: &Core) {
    let mut retention_at = Instant::now();
    let mut checkpoint_at = Instant::now();
    let mut checkpoint = false;
    loop {
        let chores = core.chores.take(PATIENCE);
        let closed = chores.closed;
        checkpoint |= chores.checkpoint;
        do_chores(core, chores);
        if core.has_failed() {
            return;
        }
        writer::write_idle_mark(core);
        if retention_at.elapsed() >= RETENTION_EVERY {
            retention::enforce(core);
            retention_at = Instant::now();
        }
        // What the checkpoint covers can be used again.
        let wait = if core.pool.shortage().is_short() {
            SHORT_CHECKPOINT_AFTER
        } else {
            IDLE_CHECKPOINT_AFTER
        };
        checkpoint |= checkpoint_at.elapsed() >= wait && core.pending().bytes > 0;
        // Whoever holds the turn may be waiting for a sidecar: then later.
        if checkpoint
            && !closed
            && let Some(_turn) = core.checkpoint.try_turn()
        {
            checkpoint = false;
            checkpoint_at = Instant::now();
            if let Err(error) = checkpoint_in_turn(core) {
                log_failure(&error);
            }
        }
        if closed {
            return;
        }
    }
}

/// Does what there is to do now.
pub(crate) fn pump(core: &Core) {
    do_chores(core, core.chores.take(Duration::ZERO));
}

fn do_chores(core: &Core, chores: ChoreList) {
    let mut sealed = chores.sealed.into_iter();
    while let Some(mut next) = sealed.next() {
        match write_sidecar(core, &mut next) {
            Ok(()) => core.chores.on_sidecar(),
            Err(error) => {
                // Its batches stay listed in memory, and those of later segments too, so that each log is in order.
                tracing::error!(%error, segment = %next.summary.segment, "a sidecar could not be written yet");
                core.chores
                    .put_back([next].into_iter().chain(sealed.by_ref()).collect());
            }
        }
    }
    let refilled = if core.settings.threads {
        core.pool.refill_written(|| core.sync.is_shared())
    } else {
        core.pool.refill()
    };
    if let Err(error) = refilled {
        tracing::debug!(%error, "no spare segment could be made");
    }
    core.metrics
        .space_short
        .set(i64::from(core.pool.shortage().is_short()));
    core.metrics
        .tail_bytes
        .set(i64::try_from(core.tail.pinned_bytes()).unwrap_or(i64::MAX));
    core.metrics
        .logs
        .set(i64::try_from(core.logs.len()).unwrap_or(i64::MAX));
}

/// Writes a sealed segment's sidecar and lets its logs find their batches there.
fn write_sidecar(core: &Core, sealed: &mut Sealed) -> std::io::Result<()> {
    let segment = sealed.summary.segment;
    sort(&mut sealed.index);
    let rows = rows_of(&sealed.index);
    let name = FileRole::Sidecar(SegmentKind::Arrival, segment).name();
    sidecar::write(&*core.storage, &name, sealed.summary, &rows, &sealed.index)?;
    for row in rows {
        if let Some(log) = core.logs.get(row.log) {
            log.lock().on_sealed(segment);
        }
    }
    Ok(())
}

/// Seals the segment that is being written, waits until every sealed segment has its sidecar, and stores a checkpoint. For
/// who holds the turn.
pub(crate) fn seal_and_checkpoint(core: &Core) -> Result<(), String> {
    if !seal_synced(core) {
        return Err("it takes nothing any more".into());
    }
    if core.settings.threads {
        core.chores.wait_until_sealed();
    } else {
        pump(core);
    }
    checkpoint_in_turn(core).map_err(|error| error.to_string())
}

pub(crate) fn try_checkpoint(core: &Core) {
    if let Err(error) = checkpoint(core) {
        log_failure(&error);
    }
}

fn log_failure(error: &CheckpointError) {
    tracing::error!(%error, "no checkpoint could be stored: the next start will replay more");
}

/// Stores a checkpoint of everything up to now.
pub(crate) fn checkpoint(core: &Core) -> Result<(), CheckpointError> {
    let _turn = core.checkpoint.turn();
    checkpoint_in_turn(core)
}

/// Stores a checkpoint for who holds the turn.
fn checkpoint_in_turn(core: &Core) -> Result<(), CheckpointError> {
    let mut pending = core.pending();
    let mut taken = std::mem::take(&mut *pending);
    pending.position = taken.position;
    pending.run = taken.run;
    drop(pending);
    // The rows may be newer than the position, which replaying the frames between makes good; but they must not be
    // newer than what is durable.
    let long_ago = core.now_ms().saturating_sub(PRODUCER_MS);
    let mut logs = Vec::with_capacity(taken.dirty.len());
    for log in &taken.dirty {
        let mut state = log.lock();
        state.dirty = false;
        if let Some(producers) = &mut state.producers
            && producers.forget_before(long_ago)
        {
            state.producers = None;
        }
        if !state.deleted {
            logs.push((log.id, LogRow::encode(&state)));
        }
    }
    let meta = Meta {
        position: taken.position,
        next_log: core.next_log.load(std::sync::atomic::Ordering::Relaxed),
        next_segment: core.pool.next_id(),
        run: taken.run,
    };
    let is_durable = wait_synced(core) || core.drained.load(std::sync::atomic::Ordering::Acquire);
    let changes = Changes {
        meta,
        logs,
        deleted_logs: std::mem::take(&mut taken.deleted),
        state: std::mem::take(&mut taken.state),
        segments_added: std::mem::take(&mut taken.segments_added),
        segments_removed: std::mem::take(&mut taken.segments_removed),
        segments_forgotten: std::mem::take(&mut taken.segments_forgotten),
    };
    if core.has_failed() {
        return Ok(());
    }
    if !is_durable {
        give_back(core, taken, changes);
        return Ok(());
    }
    let stored = core.checkpoint.store(&changes);
    if stored.is_ok() {
        core.checkpointed
            .store(meta.position.packed(), std::sync::atomic::Ordering::Release);
        core.metrics.checkpoints.inc();
    } else {
        give_back(core, taken, changes);
    }
    stored
}

/// Puts back what could not be stored, before what came since.
fn give_back(core: &Core, taken: super::core::Pending, changes: Changes) {
    for log in &taken.dirty {
        log.lock().dirty = true;
    }
    let mut pending = core.pending();
    pending.bytes += taken.bytes;
    let mut state = changes.state;
    state.append(&mut pending.state);
    pending.state = state;
    pending.dirty.extend(taken.dirty);
    pending.deleted.extend(changes.deleted_logs);
    pending.segments_added.extend(changes.segments_added);
    pending.segments_removed.extend(changes.segments_removed);
    pending.segments_forgotten.extend(changes.segments_forgotten);
}

/// Everything is written and synced: says so, so that the next start need not suspect anything.
pub(crate) fn end_run(core: &Core) {
    append_control(core, Control::RunEnd { epoch: core.epoch });
}
