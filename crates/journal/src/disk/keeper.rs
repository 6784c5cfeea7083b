//! The thread that keeps house: sidecars of sealed segments, spares, checkpoints, retention.

use std::time::{Duration, Instant};

use super::checkpoint::{Changes, CheckpointError, LogRow, Meta};
use super::control::Control;
use super::core::{ChoreList, Core};
use super::index::sort;
use super::queue::Wait;
use super::segment::{FileRole, SegmentKind};
use super::sidecar::{self, rows_of};
use super::stage::append_control;
use super::writer::{self, Sealed};
use super::{retention, syncer};

/// How often the keeper looks for what nobody told it.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often retention is looked at.
const RETENTION_EVERY: Duration = Duration::from_secs(30);
/// How long an idle journal waits before what it changed is in a checkpoint.
const IDLE_CHECKPOINT_AFTER: Duration = Duration::from_secs(30);

/// Keeps house until the journal is closed and nothing is left to do.
pub(crate) fn run(core: &Core) {
    let mut retention_at = Instant::now();
    let mut checkpoint_at = Instant::now();
    loop {
        let chores = core.chores.take(PATIENCE);
        let closed = chores.closed;
        let mut checkpoint = chores.checkpoint;
        do_chores(core, chores);
        if core.has_failed() {
            return;
        }
        if retention_at.elapsed() >= RETENTION_EVERY {
            retention::enforce(core);
            retention_at = Instant::now();
        }
        checkpoint |= checkpoint_at.elapsed() >= IDLE_CHECKPOINT_AFTER && core.pending().bytes > 0;
        if checkpoint && !closed {
            checkpoint_at = Instant::now();
            try_checkpoint(core);
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
        if let Err(error) = write_sidecar(core, &mut next) {
            // The batches stay listed in memory, and recovery would make the sidecar from the segment.
            tracing::error!(%error, segment = %next.summary.segment, "a sidecar could not be written yet");
            core.chores.put_back(std::iter::once(next).chain(sealed).collect());
            break;
        }
    }
    if core.pool.wants()
        && let Err(error) = core.pool.refill()
    {
        tracing::warn!(%error, "no spare segment could be made");
    }
    core.metrics.tail_bytes.set(i64::try_from(core.tail.pinned_bytes()).unwrap_or(i64::MAX));
    core.metrics.logs.set(i64::try_from(core.logs.len()).unwrap_or(i64::MAX));
}

/// Writes a sealed segment's sidecar and lets its logs find their batches there.
pub(crate) fn write_sidecar(core: &Core, sealed: &mut Sealed) -> std::io::Result<()> {
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

pub(crate) fn try_checkpoint(core: &Core) {
    if let Err(error) = checkpoint(core) {
        tracing::error!(%error, "no checkpoint could be stored: the next start will replay more");
    }
}

/// Stores a checkpoint of everything up to now.
pub(crate) fn checkpoint(core: &Core) -> Result<(), CheckpointError> {
    let _turn = core.checkpoint.turn();
    let mut pending = core.pending();
    let mut taken = std::mem::take(&mut *pending);
    pending.position = taken.position;
    pending.run = taken.run;
    drop(pending);
    // The rows may be newer than the position, which replaying the frames between makes good; but they must not be
    // newer than what is durable.
    let mut logs = Vec::with_capacity(taken.dirty.len());
    for log in &taken.dirty {
        let mut state = log.lock();
        state.dirty = false;
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
    barrier(core);
    let changes = Changes {
        meta,
        logs,
        deleted_logs: std::mem::take(&mut taken.deleted),
        state: std::mem::take(&mut taken.state),
        segments_added: std::mem::take(&mut taken.segments_added),
        segments_removed: std::mem::take(&mut taken.segments_removed),
        segments_forgotten: std::mem::take(&mut taken.segments_forgotten),
    };
    let stored = match core.failure.get() {
        Some(_) => return Ok(()),
        None => core.checkpoint.store(&changes),
    };
    if stored.is_err() {
        give_back(core, taken, changes);
    }
    core.metrics.checkpoints.inc();
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

/// Returns when everything that is staged now is synced, or the journal failed.
fn barrier(core: &Core) {
    if core.settings.threads {
        let (ticket, settlers) = crate::ticket::Ticket::new(1);
        for settler in settlers {
            let staged = super::queue::Staged {
                frames: smallvec::SmallVec::new(),
                settler: Some(settler),
                placed: smallvec::SmallVec::new(),
                wait: Wait::Synced,
                sync_within_ms: u32::MAX,
                interval: None,
                bytes: 0,
                pinned_bytes: 0,
            };
            core.queue.push(staged);
        }
        core.queue.wake();
        drop(ticket.wait());
    } else {
        while writer::pump(core) {}
        syncer::pump(core);
    }
}

/// Everything is written and synced: says so, so that the next start need not suspect anything.
pub(crate) fn end_run(core: &Core) {
    append_control(core, Control::RunEnd { epoch: core.epoch });
}
