//! Staging: preconditions, offsets and queue order, decided under the locks of the logs concerned.
//!
//! Length: one path from an append to the write queue, under the locks that it takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::{BatchHeader, Durability, LockGuard, LogId, Offset};

use super::chunk::table_bytes;
use super::control::Control;
use super::engine::Engine;
use super::frame::{FrameEntry, FrameKind, Head};
use super::group::GROUP_HEAD_BYTES;
use super::log::{Log, LogState};
use super::prepare::{PreparedAppend, PreparedFrame, control_frame};
use super::producers::{SequenceCheck, SequencedBatch};
use super::write_queue::{StagedAppend, StagedFrame, Wait};
use super::{dates, inline_write};
use crate::contract::{
    Append, LogSpec, Outcome, OwnerEpoch, PlacedBatch, Precondition, Refusal, RequestId, Selection,
    StateWait, Target,
};
use crate::request_ids::Requests;
use crate::ticket::{Ticket, TicketSettler};
use crate::watch::Watchers;

/// Time within which state that does not wait for a sync is synced.
pub(crate) const STATE_SYNC_WITHIN_MS: u32 = 100;
/// Longest time that logs at `os` and `memory` stay unsynced.
const IDLE_SYNC_WITHIN_MS: u32 = 1000;
/// Staged bytes beyond which even appends to logs at `memory` wait until they are written.
const UNWRITTEN_BYTES_MAX: usize = 32 << 20;
/// Bounds on the offsets that a log below `sync` reserves ahead; in between, as many as it has between start
/// and next.
const RESERVE_MIN: u64 = 1 << 12;
const RESERVE_MAX: u64 = 1 << 20;

/// Locked states of the logs of one append, sorted by id.
type LockedLogs<'a> = SmallVec<[(LogId, LockGuard<'a, LogState>); 1]>;

/// Stages appends, wakes the writer once, and returns the ticket for all of them.
pub(crate) fn append(core: &Engine, appends: Vec<Append>) -> Ticket {
    let (ticket, settlers) = Ticket::new(appends.len());
    let mut wake = false;
    for (append, settler) in appends.into_iter().zip(settlers) {
        match stage(core, append, settler) {
            Ok(staged) => wake |= staged,
            Err((settler, refusal)) => {
                core.metrics.refused.inc();
                settler.settle(Outcome::Refused(refusal));
            }
        }
    }
    if wake && !inline_write::write(core) {
        core.queue.wake();
    }
    ticket
}

fn stage(core: &Engine, append: Append, settler: TicketSettler) -> Result<bool, (TicketSettler, Refusal)> {
    let prepared = match PreparedAppend::of(core, append) {
        Ok(prepared) => prepared,
        Err(refusal) => return Err((settler, refusal)),
    };
    prepared.stage(core, settler)
}

impl PreparedAppend {
    /// Checks the append, assigns its offsets, and queues it. True if something was queued.
    fn stage(mut self, core: &Engine, settler: TicketSettler) -> Result<bool, (TicketSettler, Refusal)> {
        let mut named = self.request.map(|id| (id, core.requests.lock()));
        if let Some((placed, wait)) = named.as_ref().and_then(|(id, known)| known.find(*id)) {
            return Ok(finish(core, resent_append(settler, placed, wait)));
        }
        let logs = std::mem::take(&mut self.logs);
        let mut locked: LockedLogs<'_> = logs.iter().map(|log| (log.id, log.lock())).collect();
        let checked = check_owner(self.owner, &self.frames, &locked)
            .and_then(|()| check(&self.frames, &self.require, &locked));
        let bases = match checked {
            Ok(bases) => bases,
            // The batch before it found no space: the producer is to send both again, with the same numbers.
            Err(Refusal::OutOfSequence { .. }) if !core.pool.has_space(self.bytes, self.share) => {
                return Err((settler, Refusal::DiskFull));
            }
            Err(refusal) => return Err((settler, refusal)),
        };
        let Some(charge) = core.pool.take_space(self.bytes, self.share) else {
            core.metrics.disk_full.inc();
            return Err((settler, Refusal::DiskFull));
        };
        let mut out = Staging::new(core, &logs, &self);
        for (part, base) in self.frames.into_iter().zip(bases) {
            match (part, base) {
                (
                    PreparedFrame::Batch {
                        header,
                        body,
                        targets,
                        ahead,
                    },
                    None,
                ) => out.batch(header, body, &targets, ahead, &mut locked),
                (PreparedFrame::Batch { header, targets, .. }, Some(base)) => {
                    out.duplicate(&header, base, &targets, &locked);
                }
                (PreparedFrame::Control(frame), _) => out.control(frame, &mut locked),
            }
        }
        if let Some((id, known)) = &mut named {
            out.remember(*id, known);
        }
        let wait = if out.frames.is_empty() && out.duplicate_shown {
            Wait::Nothing
        } else {
            out.wait
        };
        let staged = StagedAppend {
            frames: out.frames,
            settler: Some(settler),
            placed: out.placed,
            wait,
            sync_within_ms: out.sync_within_ms,
            interval: out.interval,
            bytes: 0,
            ahead_bytes: out.ahead.iter().map(StagedFrame::group_bytes).sum(),
            ahead: out.ahead,
            seals: false,
            charge,
            pinned_bytes: self.pinned_bytes,
        };
        Ok(finish(core, staged))
    }
}

/// Builds the entry for an append that was staged before under the same id: it waits for the same as the
/// first one.
fn resent_append(settler: TicketSettler, placed: SmallVec<[PlacedBatch; 1]>, wait: Wait) -> StagedAppend {
    StagedAppend {
        frames: SmallVec::new(),
        settler: Some(settler),
        placed,
        wait,
        sync_within_ms: u32::MAX,
        interval: None,
        bytes: 0,
        ahead: VecDeque::new(),
        ahead_bytes: 0,
        seals: false,
        charge: 0,
        pinned_bytes: 0,
    }
}

/// Queues the frames, still under the locks. An append that need not wait is acknowledged at once.
fn finish(core: &Engine, mut staged: StagedAppend) -> bool {
    let last = staged.frames.len().saturating_sub(1);
    for (index, frame) in staged.frames.iter_mut().enumerate() {
        frame.head.more = index < last;
        staged.bytes += frame.head.frame_bytes();
    }
    if !staged.frames.is_empty() {
        staged.bytes += GROUP_HEAD_BYTES;
    }
    staged.charge = core
        .pool
        .keep_space(staged.charge, staged.bytes + staged.ahead_bytes);
    if staged.wait > Wait::Nothing || core.queue.bytes() > UNWRITTEN_BYTES_MAX {
        staged.wait = staged.wait.max(Wait::Written);
        return core.queue.push(staged);
    }
    let (settler, placed) = (staged.settler.take(), std::mem::take(&mut staged.placed));
    let accepted = staged.frames.is_empty() || core.queue.push(staged);
    if let Some(settler) = settler {
        settler.settle(if accepted {
            Outcome::Committed(placed)
        } else {
            Outcome::Refused(Refusal::Closed)
        });
    }
    accepted
}

/// Earlier base offset of each frame that is a duplicate.
type DuplicateBases = SmallVec<[Option<Offset>; 1]>;

fn check(
    frames: &[PreparedFrame],
    require: &[Precondition],
    locked: &LockedLogs<'_>,
) -> Result<DuplicateBases, Refusal> {
    for required in require {
        check_required(*required, state_of(locked, required.log()))?;
    }
    for (id, state) in locked {
        if state.deleted {
            return Err(Refusal::NoSuchLog(*id));
        }
    }
    let mut bases = DuplicateBases::new();
    for part in frames {
        bases.push(match part {
            PreparedFrame::Batch { header, targets, .. } => check_batch(header, targets, locked)?,
            PreparedFrame::Control(_) => None,
        });
    }
    Ok(bases)
}

fn check_required(required: Precondition, state: &LogState) -> Result<(), Refusal> {
    match required {
        Precondition::NextOffset { log, offset } if state.next != offset => Err(Refusal::NotAtOffset {
            log,
            next: state.next,
            expected: offset,
        }),
        Precondition::HasBatchesOf { log, producer, first }
            if !state
                .producers
                .as_ref()
                .is_some_and(|known| known.has_batches_of(producer)) =>
        {
            SequenceCheck::unknown(first).verdict(log, producer).map(|_| ())
        }
        Precondition::NextOffset { .. } | Precondition::HasBatchesOf { .. } => Ok(()),
    }
}

/// Refuses the append if a log that it changes has had a later owner than the append's.
fn check_owner(
    given: Option<OwnerEpoch>,
    frames: &[PreparedFrame],
    locked: &LockedLogs<'_>,
) -> Result<(), Refusal> {
    let check = |log: LogId, given: OwnerEpoch| {
        let current = state_of(locked, log).owner;
        if given < current {
            return Err(Refusal::StaleOwner { log, given, current });
        }
        Ok(())
    };
    for part in frames {
        match (part, given) {
            (PreparedFrame::Batch { targets, .. }, Some(given)) => {
                targets.iter().try_for_each(|target| check(target.log, given))?;
            }
            (PreparedFrame::Control(frame), _) => match (frame.control.as_deref(), given) {
                (Some(Control::Own { log, owner }), _) => check(*log, *owner)?,
                (Some(Control::Truncate { log, .. }), Some(given)) => check(*log, given)?,
                _ => {}
            },
            (PreparedFrame::Batch { .. }, None) => {}
        }
    }
    Ok(())
}

fn check_batch(
    header: &BatchHeader,
    targets: &[Target],
    locked: &LockedLogs<'_>,
) -> Result<Option<Offset>, Refusal> {
    for target in targets {
        let state = state_of(locked, target.log);
        if state.fenced {
            return Err(Refusal::Fenced { log: target.log });
        }
        if state
            .next
            .checked_add(span_of(header, target.records).into())
            .is_none()
        {
            return Err(Refusal::OffsetsExhausted(target.log));
        }
    }
    if header.is_control() {
        return check_control(header, targets, locked).map(|()| None);
    }
    let ([target], Some(numbered)) = (targets, SequencedBatch::of(header)) else {
        return Ok(None);
    };
    let (log, producer) = (target.log, numbered.producer);
    state_of(locked, log)
        .producers
        .as_ref()
        .map_or(SequenceCheck::Next, |known| known.judge(numbered))
        .verdict(log, producer)
}

/// Refuses a control batch of a producer that has written to one of its logs with a later epoch.
fn check_control(header: &BatchHeader, targets: &[Target], locked: &LockedLogs<'_>) -> Result<(), Refusal> {
    let (Some(producer), given) = (header.producer(), header.producer_epoch) else {
        return Ok(());
    };
    for Target { log, .. } in targets {
        let known = state_of(locked, *log).producers.as_ref();
        if let Some(current) = known.and_then(|known| known.later_epoch(producer, given)) {
            return Err(Refusal::StaleProducer {
                log: *log,
                producer,
                given,
                current,
            });
        }
    }
    Ok(())
}

/// Frames of an append while they get their offsets.
struct Staging<'a> {
    core: &'a Engine,
    logs: &'a [Arc<Log>],
    /// Durability that the append asked for, if lower than its log's.
    level: Option<Durability>,
    owner: Option<OwnerEpoch>,
    frames: SmallVec<[StagedFrame; 1]>,
    /// Chunks of cut bodies.
    ahead: VecDeque<StagedFrame>,
    placed: SmallVec<[PlacedBatch; 1]>,
    wait: Wait,
    sync_within_ms: u32,
    interval: Option<(u32, u32)>,
    /// True if every duplicate batch is already readable.
    duplicate_shown: bool,
}

impl<'a> Staging<'a> {
    fn new(core: &'a Engine, logs: &'a [Arc<Log>], prepared: &PreparedAppend) -> Self {
        Self {
            core,
            logs,
            level: prepared.level,
            owner: prepared.owner,
            frames: SmallVec::new(),
            ahead: VecDeque::new(),
            placed: SmallVec::new(),
            wait: match prepared.state {
                _ if prepared.waits_for_logs => Wait::Nothing,
                StateWait::Synced => Wait::Synced,
                StateWait::Written => Wait::Written,
            },
            sync_within_ms: if prepared.waits_for_logs {
                IDLE_SYNC_WITHIN_MS
            } else {
                STATE_SYNC_WITHIN_MS
            },
            interval: None,
            duplicate_shown: true,
        }
    }

    /// Remembers the append under its id, now and after a restart.
    fn remember(&mut self, id: RequestId, known: &mut Requests<Wait>) {
        let changes = known.note(id, self.placed.clone(), self.wait).into_iter();
        self.frames
            .extend(changes.map(|change| control_frame(Control::State(change))));
    }

    fn batch(
        &mut self,
        header: BatchHeader,
        body: Bytes,
        targets: &[Target],
        ahead: Vec<StagedFrame>,
        locked: &mut LockedLogs<'_>,
    ) {
        let mut entries = SmallVec::new();
        let mut logs = SmallVec::new();
        for target in targets {
            let span = span_of(&header, target.records);
            let log = self.log(target.log);
            let state = state_of_mut(locked, target.log);
            let base = state.next;
            state.next = Offset(base.0 + u64::from(span));
            self.core.mark_dirty(&log, state);
            if let Some(owner) = self.owner.filter(|owner| *owner > state.owner) {
                state.owner = owner;
                self.frames
                    .push(control_frame(Control::Own { log: log.id, owner }));
            }
            let wait = self.wait_for(&log, state, base, span);
            self.wait = self.wait.max(wait);
            entries.push(FrameEntry {
                log: log.id,
                base,
                span,
                epoch: self.core.epoch,
                records: target.records,
            });
            self.placed.push(PlacedBatch {
                log: log.id,
                base,
                duplicate: false,
            });
            if header.producer().is_some() {
                state.note_producer(&header, &body, targets.len() > 1, base, self.core.moment());
            }
            logs.push((log, wait));
        }
        let (kind, body_bytes) = match ahead.len() {
            0 => (FrameKind::Batch, body.len()),
            chunks => (FrameKind::Cut, table_bytes(chunks)),
        };
        self.ahead.extend(ahead);
        let head = Head {
            kind,
            more: false,
            body_bytes,
            body_checksum: header.crc,
            date: dates::of_batch(header.max_timestamp, || self.core.now_ms()),
            span: span_of(&header, Selection::All),
            entries,
        };
        self.frames.push(StagedFrame {
            head,
            body,
            logs,
            control: None,
            reserves: None,
        });
    }

    fn duplicate(&mut self, header: &BatchHeader, base: Offset, targets: &[Target], locked: &LockedLogs<'_>) {
        for target in targets {
            let state = state_of(locked, target.log);
            let end = base.0 + u64::from(span_of(header, target.records));
            self.duplicate_shown &= state.visible.0 >= end;
            self.wait = self.wait.max(match self.level_in(state) {
                // The first one waits until its offsets are reserved durably.
                _ if end > state.reserved_durably.0 => Wait::Synced,
                Durability::Memory => Wait::Nothing,
                Durability::Os | Durability::Interval { .. } => Wait::Written,
                Durability::Sync => Wait::Synced,
            });
            self.placed.push(PlacedBatch {
                log: target.log,
                base,
                duplicate: true,
            });
        }
    }

    fn control(&mut self, frame: StagedFrame, locked: &mut LockedLogs<'_>) {
        match frame.control.as_deref() {
            Some(Control::CreateLogs { first, count, spec }) => self.create(*first, *count, *spec),
            Some(Control::ChangeLogs { first, count, spec }) => {
                let spec = Arc::new(*spec);
                for id in first.0..first.0 + u64::from(*count) {
                    let log = self.log(LogId(id));
                    let state = state_of_mut(locked, log.id);
                    state.spec = Arc::clone(&spec);
                    self.core.mark_dirty(&log, state);
                }
            }
            Some(Control::DeleteLogs { first, count }) => {
                for id in first.0..first.0 + u64::from(*count) {
                    let state = state_of_mut(locked, LogId(id));
                    state.deleted = true;
                    self.core.logs.remove(LogId(id));
                    // Others may still hold the log; its watchers are notified now.
                    state.watchers = Watchers::default();
                }
                self.core.freed.fetch_add(1, Ordering::AcqRel);
            }
            Some(Control::Truncate { log, before }) => {
                let log = self.log(*log);
                let state = state_of_mut(locked, log.id);
                state.truncate(*before);
                self.core.freed.fetch_add(1, Ordering::AcqRel);
                self.core.mark_dirty(&log, state);
            }
            Some(Control::Own { log, owner }) => {
                let log = self.log(*log);
                let state = state_of_mut(locked, log.id);
                state.owner = state.owner.max(*owner);
                self.core.mark_dirty(&log, state);
            }
            _ => {}
        }
        self.frames.push(frame);
    }

    fn create(&self, first: LogId, count: u32, spec: LogSpec) {
        let spec = Arc::new(spec);
        let ids = first.0..first.0 + u64::from(count);
        self.core
            .logs
            .insert(ids.clone().map(|id| Log::new(LogId(id), Arc::clone(&spec))));
        for id in ids {
            if let Some(log) = self.core.logs.get(LogId(id)) {
                let mut state = log.lock();
                self.core.mark_dirty(&log, &mut state);
            }
        }
    }

    /// Returns the level of this append's batches in a log.
    fn level_in(&self, state: &LogState) -> Durability {
        let own = state.spec.durability;
        match (own, self.level) {
            // The log's offsets survive a kill, so none may be acknowledged before it is written.
            (Durability::Os | Durability::Interval { .. }, Some(Durability::Memory)) => Durability::Os,
            (_, Some(lowered)) => own.or_lower(lowered),
            (_, None) => own,
        }
    }

    /// Returns the condition for a batch that begins at `base` in a log; below `sync`, its offsets have to be
    /// reserved durably.
    fn wait_for(&mut self, log: &Arc<Log>, state: &mut LogState, base: Offset, span: u32) -> Wait {
        let wait = match self.level_in(state) {
            // Once a log has lower batches, the reservation is kept ahead of all batches.
            Durability::Sync if state.reserved > base => Wait::Synced,
            Durability::Sync => return Wait::Synced,
            Durability::Memory => Wait::Nothing,
            Durability::Os => Wait::Written,
            Durability::Interval { records, every } => {
                let (so_far, limit) = self.interval.unwrap_or((0, u32::MAX));
                self.interval = Some((so_far.saturating_add(span), limit.min(records)));
                let every = u32::try_from(every.as_millis()).unwrap_or(u32::MAX);
                self.sync_within_ms = self.sync_within_ms.min(every);
                Wait::Written
            }
        };
        let ahead = (state.next.0 - state.start.0).clamp(RESERVE_MIN, RESERVE_MAX);
        if state.next.0 + ahead / 2 > state.reserved.0 {
            let below = state
                .next
                .checked_add(ahead)
                .unwrap_or(Offset(i64::MAX.unsigned_abs()));
            state.reserved = below;
            let mut frame = control_frame(Control::Reserve { log: log.id, below });
            frame.reserves = Some((Arc::clone(log), below));
            self.frames.push(frame);
            self.sync_within_ms = self.sync_within_ms.min(STATE_SYNC_WITHIN_MS);
        }
        if state.next > state.reserved_durably {
            Wait::Synced
        } else {
            wait
        }
    }

    fn log(&self, id: LogId) -> Arc<Log> {
        let index = self.logs.binary_search_by_key(&id, |log| log.id);
        Arc::clone(
            index
                .ok()
                .and_then(|index| self.logs.get(index))
                .expect("every target's log was found"),
        )
    }
}

fn state_of<'a>(locked: &'a LockedLogs<'_>, id: LogId) -> &'a LogState {
    let index = locked.binary_search_by_key(&id, |(id, _)| *id);
    &index
        .ok()
        .and_then(|index| locked.get(index))
        .expect("every target's log is locked")
        .1
}

fn state_of_mut<'a>(locked: &'a mut LockedLogs<'_>, id: LogId) -> &'a mut LogState {
    let index = locked.binary_search_by_key(&id, |(id, _)| *id);
    &mut index
        .ok()
        .and_then(|index| locked.get_mut(index))
        .expect("every target's log is locked")
        .1
}

/// Returns the number of offsets that a selection of a batch takes.
fn span_of(header: &BatchHeader, records: Selection) -> u32 {
    match records {
        Selection::All => u32::try_from(header.span()).unwrap_or(0),
        Selection::Range { count, .. } => count,
    }
}
