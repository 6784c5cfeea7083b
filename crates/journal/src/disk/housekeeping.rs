//! Housekeeping thread: sidecars of sealed segments, spares, checkpoints, retention.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stafett_model::LogId;

use super::checkpoint::{Changes, CheckpointError, LogRow, Meta};
use super::control::Control;
use super::control_append::{self, append_control, seal_synced, wait_synced};
use super::engine::{Engine, HousekeepingTasks};
use super::index::sort;
use super::log::LogState;
use super::position::{Position, SegmentId};
use super::producers::ProducerRow;
use super::retention;
use super::rewrite::LivenessCheck;
use super::segment::{FileRole, SegmentKind};
use super::sidecar::{self, rows_of};
use super::writer::{self, SealedSegment};

/// Interval for work that no thread announces.
const PATIENCE: Duration = Duration::from_millis(500);
/// Running time of the journal after which an idle producer is removed.
const PRODUCER_MS: i64 = 86_400_000;
/// Interval of retention.
const RETENTION_EVERY: Duration = Duration::from_secs(30);
/// Time after which the changes of an idle journal are stored in a checkpoint.
const IDLE_CHECKPOINT_AFTER: Duration = Duration::from_secs(30);
/// The same while space is short.
const SHORT_CHECKPOINT_AFTER: Duration = Duration::from_secs(2);

/// Runs until the journal is closed and no work is left.
pub(crate) fn run(core: &Engine) {
    let mut retention_at = Instant::now();
    let mut checkpoint_at = Instant::now();
    let mut checkpoint = false;
    loop {
        let tasks = core.housekeeping.take(PATIENCE);
        let closed = tasks.closed;
        checkpoint |= tasks.checkpoint;
        do_tasks(core, tasks);
        if core.has_failed() {
            return;
        }
        writer::write_idle_mark(core);
        if retention_at.elapsed() >= RETENTION_EVERY {
            retention::enforce(core);
            retention_at = Instant::now();
        }
        // Space covered by the checkpoint can be reused.
        let wait = if core.pool.shortage().is_short() {
            SHORT_CHECKPOINT_AFTER
        } else {
            IDLE_CHECKPOINT_AFTER
        };
        checkpoint |= checkpoint_at.elapsed() >= wait && core.pending().bytes > 0;
        // The turn's holder may be waiting for a sidecar: retried later.
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

/// Does the pending work.
pub(crate) fn pump(core: &Engine) {
    do_tasks(core, core.housekeeping.take(Duration::ZERO));
}

fn do_tasks(core: &Engine, tasks: HousekeepingTasks) {
    core.running.advance(core.now_ms());
    let mut sealed = tasks.sealed.into_iter();
    while let Some(mut next) = sealed.next() {
        let written = match write_sidecar(core, &mut next) {
            Err(_) if core.pool.make_way() => write_sidecar(core, &mut next),
            written => written,
        };
        match written {
            Ok(()) => core.housekeeping.on_sidecar(),
            // A dead segment's space can be freed without a sidecar.
            Err(_) if is_dead(core, &next) => {
                core.housekeeping.dead().insert(next.summary.segment);
                core.freed.fetch_add(1, Ordering::AcqRel);
                core.housekeeping.on_sidecar();
            }
            Err(error) => {
                // Its batches stay listed in memory, and those of later segments too, so that each log stays
                // in order.
                tracing::error!(%error, segment = %next.summary.segment, "a sidecar could not be written yet");
                core.housekeeping
                    .put_back([next].into_iter().chain(sealed.by_ref()).collect());
            }
        }
    }
    let refilled = if core.settings.threads {
        core.pool.refill_written(|| core.sync.has_recent_waiter())
    } else {
        core.pool.refill()
    };
    if let Err(error) = refilled {
        tracing::debug!(%error, "no spare segment could be made");
    }
    if !core.has_begun() && control_append::begin_run(core) {
        tracing::info!("there is space: appends are taken from now on");
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

/// Returns true if no batch of a sealed segment is readable any more.
fn is_dead(core: &Engine, sealed: &SealedSegment) -> bool {
    let mut alive = LivenessCheck::new(core);
    !sealed.index.iter().any(|entry| alive.is(entry.log, entry.end()))
}

/// Writes a sealed segment's sidecar and lets its logs find their batches there.
fn write_sidecar(core: &Engine, sealed: &mut SealedSegment) -> std::io::Result<()> {
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

/// Seals the segment being written, waits until every sealed segment has its sidecar, and stores a
/// checkpoint. The caller holds the checkpoint turn.
pub(crate) fn seal_and_checkpoint(core: &Engine) -> Result<(), String> {
    if !seal_synced(core) {
        return Err("it takes nothing any more".into());
    }
    let is_sealed = if core.settings.threads {
        core.housekeeping.wait_until_sealed()
    } else {
        pump(core);
        core.housekeeping.is_all_sealed()
    };
    if !is_sealed {
        return Err("the index of a segment cannot be written".into());
    }
    checkpoint_in_turn(core).map_err(|error| error.to_string())
}

pub(crate) fn try_checkpoint(core: &Engine) {
    if let Err(error) = checkpoint(core) {
        log_failure(&error);
    }
}

fn log_failure(error: &CheckpointError) {
    tracing::error!(%error, "no checkpoint could be stored: the next start will replay more");
}

/// Stores a checkpoint of everything up to now.
pub(crate) fn checkpoint(core: &Engine) -> Result<(), CheckpointError> {
    let _turn = core.checkpoint.turn();
    checkpoint_in_turn(core)
}

/// Stores a checkpoint. The caller holds the checkpoint turn.
fn checkpoint_in_turn(core: &Engine) -> Result<(), CheckpointError> {
    let mut pending = core.pending();
    let mut taken = std::mem::take(&mut *pending);
    pending.position = taken.position;
    pending.run = taken.run;
    drop(pending);
    // The rows may be newer than the position: replaying the frames in between corrects that. But they must
    // not be newer than the synced data.
    core.running.advance(core.now_ms());
    let running_ms = core.running.ms();
    let mut logs = Vec::with_capacity(taken.dirty.len());
    let mut producers = Vec::new();
    for log in &taken.dirty {
        let mut state = log.lock();
        state.dirty = false;
        if !state.deleted {
            producers.extend(changed_producers(log.id, &mut state, running_ms));
            logs.push((log.id, LogRow::encode(&state)));
        }
    }
    let meta = Meta {
        running_ms,
        position: taken.position,
        next_log: core.next_log.load(Ordering::Relaxed),
        next_segment: core.pool.next_id(),
        run: taken.run,
    };
    let is_durable = wait_synced(core) || core.drained.load(Ordering::Acquire);
    let changes = Changes {
        meta,
        logs,
        producers,
        deleted_logs: std::mem::take(&mut taken.deleted),
        state: std::mem::take(&mut taken.state),
        arrivals: arrivals_below(core, taken.position),
        segments_added: std::mem::take(&mut taken.segments_added),
        segments_removed: std::mem::take(&mut taken.segments_removed),
        segments_forgotten: std::mem::take(&mut taken.segments_forgotten),
    };
    if core.has_failed() {
        return Ok(());
    }
    if !is_durable {
        restore_pending(core, taken, changes);
        return Ok(());
    }
    let mut stored = core.checkpoint.store(&changes);
    if stored.is_err() && core.pool.make_way() {
        stored = core.checkpoint.store(&changes);
    }
    if stored.is_ok() {
        core.checkpointed.store(meta.position.packed(), Ordering::Release);
        core.checkpointed_at.store(core.now_ms(), Ordering::Release);
        core.metrics.checkpoints.inc();
    } else {
        restore_pending(core, taken, changes);
    }
    stored
}

/// Returns the arrival segments with contents below a position. None is replaced during the checkpoint turn.
fn arrivals_below(core: &Engine, position: Position) -> Vec<SegmentId> {
    let all = core.segments.all();
    let arrivals = all.iter().filter(|segment| segment.kind == SegmentKind::Arrival);
    arrivals
        .map(|segment| segment.id)
        .filter(|id| *id <= position.segment)
        .collect()
}

/// Returns the changes of a log's producers since the last checkpoint. Removes producers that were idle for
/// long.
fn changed_producers(id: LogId, state: &mut LogState, running_ms: i64) -> Option<(LogId, Vec<ProducerRow>)> {
    let producers = state.producers.as_mut()?;
    producers.forget_before(running_ms.saturating_sub(PRODUCER_MS));
    let changed = producers.take_changed();
    if producers.is_empty() {
        state.producers = None;
    }
    (!changed.is_empty()).then_some((id, changed))
}

/// Puts back changes that could not be stored, before newer ones.
fn restore_pending(core: &Engine, taken: super::engine::PendingCheckpoint, changes: Changes) {
    for log in &taken.dirty {
        let mut state = log.lock();
        state.dirty = true;
        // Removed producers stay in the checkpoint until a later start removes them again.
        if let Some(producers) = &mut state.producers {
            producers.change_all();
        }
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

/// Records a clean stop: everything is written and synced, so the next start need not assume a crash.
pub(crate) fn end_run(core: &Engine) {
    if core.has_begun() && !append_control(core, Control::StoppedCleanly { epoch: core.epoch }) {
        tracing::warn!(
            "there is no space to say that the run has ended: the next start takes it for a crash"
        );
    }
}
