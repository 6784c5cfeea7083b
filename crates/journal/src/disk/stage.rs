//! Staging: preconditions, offsets and the place in the queue, decided under the locks of the logs concerned.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::batch::{HEADER_BYTES, MAGIC};
use stafett_model::checksum::crc32c;
use stafett_model::{BatchHeader, Durability, LogId, Offset};

use super::chunk::{self, table_bytes};
use super::codec::usize_of;
use super::control::{Control, LOGS_MAX};
use super::core::Core;
use super::frame::{ENTRIES_MAX, Entry, Head, Kind, frame_bytes};
use super::group::GROUP_HEAD_BYTES;
use super::here;
use super::layout::COPY_BYTES_MAX;
use super::log::{Log, LogState};
use super::producers::{Numbered, Verdict};
use super::queue::{Staged, StagedFrame, Wait};
use super::segment::SEGMENT_HEAD_BYTES;
use crate::contract::{
    Append, BatchFrame, Frame, LogSpec, Outcome, Placed, Precondition, Refusal, Selection, StateWait, Target,
};
use crate::ticket::{Settler, Ticket};

/// State that does not wait for a sync is on disk within this.
pub(crate) const STATE_SYNC_WITHIN_MS: u32 = 100;
/// What logs at `os` and `memory` leave unsynced at most.
const IDLE_SYNC_WITHIN_MS: u32 = 1000;
/// Staged bytes beyond which even appends to logs at `memory` wait until they are written.
const UNWRITTEN_BYTES_MAX: usize = 32 << 20;
/// Offsets that a log below `sync` reserves ahead: as many as it has given out, within these bounds.
const RESERVE_MIN: u64 = 1 << 12;
const RESERVE_MAX: u64 = 1 << 20;

/// The locked states of the logs of one append, sorted by id.
type Locked<'a> = SmallVec<[(LogId, MutexGuard<'a, LogState>); 1]>;

/// Stages appends, wakes the writer once, and returns the ticket for all of them.
pub(crate) fn append(core: &Core, appends: Vec<Append>) -> Ticket {
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
    if wake && !here::write(core) {
        core.queue.wake();
    }
    ticket
}

fn stage(core: &Core, append: Append, settler: Settler) -> Result<bool, (Settler, Refusal)> {
    let prepared = match Prepared::of(core, append) {
        Ok(prepared) => prepared,
        Err(refusal) => return Err((settler, refusal)),
    };
    prepared.stage(core, settler)
}

/// An append whose frames are known but for their offsets.
struct Prepared {
    frames: SmallVec<[Part; 1]>,
    /// All logs whose locks are needed, sorted by id, each once.
    logs: SmallVec<[Arc<Log>; 1]>,
    require: SmallVec<[Precondition; 1]>,
    level: Option<Durability>,
    state: StateWait,
    bytes: usize,
    pinned_bytes: usize,
    has_batches: bool,
    /// It may use the space that is kept back.
    frees_space: bool,
}

enum Part {
    Batch {
        header: BatchHeader,
        body: Bytes,
        targets: SmallVec<[Target; 1]>,
        /// The frames that go ahead, if the body is cut: then `body` is its front alone.
        ahead: Vec<StagedFrame>,
    },
    Control(StagedFrame),
}

impl Prepared {
    fn of(core: &Core, append: Append) -> Result<Self, Refusal> {
        if core.queue.is_closed() {
            return Err(Refusal::Closed);
        }
        let mut logs: SmallVec<[Arc<Log>; 1]> = SmallVec::new();
        let mut find = |id: LogId| -> Result<(), Refusal> {
            logs.push(core.logs.get(id).ok_or(Refusal::NoSuchLog(id))?);
            Ok(())
        };
        for precondition in &append.require {
            let Precondition::NextOffset { log, .. } = precondition;
            find(*log)?;
        }
        let mut bytes = GROUP_HEAD_BYTES;
        let mut has_batches = false;
        let mut frees_space = true;
        let mut frames: SmallVec<[Part; 1]> = SmallVec::new();
        for frame in append.frames {
            let part = match frame {
                Frame::Batch(batch) => {
                    (has_batches, frees_space) = (true, false);
                    for target in &batch.targets {
                        find(target.log)?;
                    }
                    // A reservation of offsets may come with every batch.
                    bytes += frame_bytes(batch.targets.len(), batch.body.len())
                        + batch.targets.len() * frame_bytes(0, 24);
                    batch_part(batch)
                }
                other @ (Frame::State(_)
                | Frame::CreateLogs { .. }
                | Frame::ChangeLogs { .. }
                | Frame::DeleteLogs { .. }
                | Frame::Truncate { .. }) => {
                    match &other {
                        Frame::Truncate { log, .. } => find(*log)?,
                        Frame::ChangeLogs { first, count, .. } | Frame::DeleteLogs { first, count } => {
                            for id in first.0..first.0 + u64::from(*count) {
                                find(LogId(id))?;
                            }
                        }
                        Frame::CreateLogs { .. } => frees_space = false,
                        Frame::Batch(_) | Frame::State(_) => {}
                    }
                    let frame = control_frame(control_of(other));
                    bytes += frame.head.frame_bytes();
                    Part::Control(frame)
                }
            };
            frames.push(part);
        }
        let bytes = cut_large(core, &mut frames, bytes)?;
        logs.sort_unstable_by_key(|log| log.id);
        logs.dedup_by_key(|log| log.id);
        Ok(Self {
            frames,
            logs,
            require: append.require,
            level: append.level,
            state: append.state,
            bytes,
            pinned_bytes: append.pinned_bytes,
            has_batches,
            frees_space,
        })
    }

    /// Decides, gives offsets, and queues. True if something was queued.
    fn stage(self, core: &Core, settler: Settler) -> Result<bool, (Settler, Refusal)> {
        let logs = self.logs;
        let mut locked: Locked<'_> = logs.iter().map(|log| (log.id, log.lock())).collect();
        let verdicts = match check(&self.frames, &self.require, &locked) {
            Ok(verdicts) => verdicts,
            Err(refusal) => return Err((settler, refusal)),
        };
        let Some(charge) = core.pool.take_space(self.bytes, self.frees_space) else {
            core.metrics.disk_full.inc();
            return Err((settler, Refusal::DiskFull));
        };
        let mut out = Staging {
            core,
            logs: &logs,
            level: self.level,
            frames: SmallVec::new(),
            ahead: VecDeque::new(),
            placed: SmallVec::new(),
            wait: match self.state {
                _ if self.has_batches => Wait::Nothing,
                StateWait::Synced => Wait::Synced,
                StateWait::Written => Wait::Written,
            },
            sync_within_ms: if self.has_batches {
                IDLE_SYNC_WITHIN_MS
            } else {
                STATE_SYNC_WITHIN_MS
            },
            interval: None,
            duplicate_shown: true,
        };
        for (part, verdict) in self.frames.into_iter().zip(verdicts) {
            match (part, verdict) {
                (
                    Part::Batch {
                        header,
                        body,
                        targets,
                        ahead,
                    },
                    None,
                ) => out.batch(header, body, &targets, ahead, &mut locked),
                (Part::Batch { header, targets, .. }, Some(base)) => {
                    out.duplicate(&header, base, &targets, &locked);
                }
                (Part::Control(frame), _) => out.control(frame, &mut locked),
            }
        }
        let wait = if out.frames.is_empty() && out.duplicate_shown {
            Wait::Nothing
        } else {
            out.wait
        };
        let staged = Staged {
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

/// Puts the frames into the queue, still under the locks. What waits for nothing is acknowledged at once.
fn finish(core: &Core, mut staged: Staged) -> bool {
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

/// The earlier base offset of each frame that is a duplicate.
type Verdicts = SmallVec<[Option<Offset>; 1]>;

fn check(frames: &[Part], require: &[Precondition], locked: &Locked<'_>) -> Result<Verdicts, Refusal> {
    for Precondition::NextOffset { log, offset } in require {
        let state = state_of(locked, *log);
        if state.next != *offset {
            return Err(Refusal::NotAtOffset {
                log: *log,
                next: state.next,
                expected: *offset,
            });
        }
    }
    for (id, state) in locked {
        if state.deleted {
            return Err(Refusal::NoSuchLog(*id));
        }
    }
    let mut verdicts = Verdicts::new();
    for part in frames {
        verdicts.push(match part {
            Part::Batch { header, targets, .. } => check_batch(header, targets, locked)?,
            Part::Control(_) => None,
        });
    }
    Ok(verdicts)
}

fn check_batch(
    header: &BatchHeader,
    targets: &[Target],
    locked: &Locked<'_>,
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
    let ([target], Some(numbered)) = (targets, Numbered::of(header)) else {
        return Ok(None);
    };
    let (log, producer) = (target.log, numbered.producer);
    match state_of(locked, log)
        .producers
        .as_ref()
        .map_or(Verdict::Next, |known| known.judge(numbered))
    {
        Verdict::Next => Ok(None),
        Verdict::Duplicate { base } => Ok(Some(base)),
        Verdict::OutOfSequence { given, expected } => Err(Refusal::OutOfSequence {
            log,
            producer,
            given,
            expected,
        }),
        Verdict::Stale { given, current } => Err(Refusal::StaleProducer {
            log,
            producer,
            given,
            current,
        }),
    }
}

/// The frames of an append as they get their offsets.
struct Staging<'a> {
    core: &'a Core,
    logs: &'a [Arc<Log>],
    /// What the append lowers the levels of its logs to.
    level: Option<Durability>,
    frames: SmallVec<[StagedFrame; 1]>,
    /// The chunks of bodies that are cut.
    ahead: VecDeque<StagedFrame>,
    placed: SmallVec<[Placed; 1]>,
    wait: Wait,
    sync_within_ms: u32,
    interval: Option<(u32, u32)>,
    /// Every batch that was a duplicate can be read already.
    duplicate_shown: bool,
}

impl Staging<'_> {
    fn batch(
        &mut self,
        header: BatchHeader,
        body: Bytes,
        targets: &[Target],
        ahead: Vec<StagedFrame>,
        locked: &mut Locked<'_>,
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
            let wait = self.wait_for(&log, state, base, span);
            self.wait = self.wait.max(wait);
            entries.push(Entry {
                log: log.id,
                base,
                span,
                epoch: self.core.epoch,
                records: target.records,
            });
            self.placed.push(Placed {
                log: log.id,
                base,
                duplicate: false,
            });
            if let (1, Some(numbered)) = (targets.len(), Numbered::of(&header)) {
                let now = self.core.now_ms();
                state.producers.get_or_insert_default().note(numbered, base, now);
            }
            logs.push((log, wait));
        }
        let (kind, body_bytes) = match ahead.len() {
            0 => (Kind::Batch, body.len()),
            chunks => (Kind::Cut, table_bytes(chunks)),
        };
        self.ahead.extend(ahead);
        let head = Head {
            kind,
            more: false,
            body_bytes,
            body_checksum: header.crc,
            max_timestamp: header.max_timestamp,
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

    fn duplicate(&mut self, header: &BatchHeader, base: Offset, targets: &[Target], locked: &Locked<'_>) {
        for target in targets {
            let state = state_of(locked, target.log);
            let end = base.0 + u64::from(span_of(header, target.records));
            self.duplicate_shown &= state.visible.0 >= end;
            self.wait = self.wait.max(match self.level_in(state) {
                Durability::Memory => Wait::Nothing,
                Durability::Os | Durability::Interval { .. } => Wait::Written,
                Durability::Sync => Wait::Synced,
            });
            self.placed.push(Placed {
                log: target.log,
                base,
                duplicate: true,
            });
        }
    }

    fn control(&mut self, frame: StagedFrame, locked: &mut Locked<'_>) {
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
                    state_of_mut(locked, LogId(id)).deleted = true;
                    self.core.logs.remove(LogId(id));
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

    /// The level of this append's batches in a log.
    fn level_in(&self, state: &LogState) -> Durability {
        let own = state.spec.durability;
        match (own, self.level) {
            // Its offsets outlive a kill, and so must those that are given out before anything is written.
            (Durability::Os | Durability::Interval { .. }, Some(Durability::Memory)) => Durability::Os,
            (_, Some(lowered)) => own.or_lower(lowered),
            (_, None) => own,
        }
    }

    /// What a batch that begins at `base` waits for in a log; below `sync`, its offsets have to be reserved durably.
    fn wait_for(&mut self, log: &Arc<Log>, state: &mut LogState, base: Offset, span: u32) -> Wait {
        let wait = match self.level_in(state) {
            // Where lower batches come between, the reservation goes on before them.
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

fn state_of<'a>(locked: &'a Locked<'_>, id: LogId) -> &'a LogState {
    let index = locked.binary_search_by_key(&id, |(id, _)| *id);
    &index
        .ok()
        .and_then(|index| locked.get(index))
        .expect("every target's log is locked")
        .1
}

fn state_of_mut<'a>(locked: &'a mut Locked<'_>, id: LogId) -> &'a mut LogState {
    let index = locked.binary_search_by_key(&id, |(id, _)| *id);
    &mut index
        .ok()
        .and_then(|index| locked.get_mut(index))
        .expect("every target's log is locked")
        .1
}

/// Offsets that a selection of a batch takes.
fn span_of(header: &BatchHeader, records: Selection) -> u32 {
    match records {
        Selection::All => u32::try_from(header.span()).unwrap_or(0),
        Selection::Range { count, .. } => count,
    }
}

fn batch_part(batch: BatchFrame) -> Part {
    assert!(
        batch.targets.len() <= ENTRIES_MAX,
        "the caller splits wider fan-outs"
    );
    let header = BatchHeader::parse(&batch.body).expect("the caller has verified the batch");
    assert!(
        header.magic == MAGIC && header.bytes == batch.body.len() && batch.body.len() >= HEADER_BYTES,
        "the caller has verified the batch"
    );
    Part::Batch {
        header,
        body: batch.body,
        targets: batch.targets,
        ahead: Vec::new(),
    }
}

/// Bodies of this size and more are cut, if their append is larger than a write group.
fn is_cut(body: &Bytes, chunk_bytes: usize) -> bool {
    body.len() > HEADER_BYTES + chunk_bytes.min(COPY_BYTES_MAX)
}

/// What an append takes more of a segment if its large bodies are cut.
fn extra_bytes_of_cutting(frames: &[Part], chunk_bytes: usize) -> usize {
    let bodies = frames.iter().filter_map(|part| match part {
        Part::Batch { body, targets, .. } if is_cut(body, chunk_bytes) => Some((body.len(), targets.len())),
        Part::Batch { .. } | Part::Control(_) => None,
    });
    bodies
        .map(|(bytes, targets)| {
            let last = frame_bytes(targets, table_bytes(chunk::count(bytes, chunk_bytes)));
            (chunk::ahead_bytes(bytes, chunk_bytes) + last).saturating_sub(frame_bytes(targets, bytes))
        })
        .sum()
}

/// Cuts the bodies of an append that is too large for a write group, before any lock is taken: the checksums of their
/// chunks are computed here. Returns what the append takes of a segment.
fn cut_large(core: &Core, frames: &mut [Part], bytes: usize) -> Result<usize, Refusal> {
    let (group_bytes_max, chunk_bytes) = (core.pool.group_bytes_max(), core.pool.chunk_bytes());
    let extra = if bytes > group_bytes_max {
        extra_bytes_of_cutting(frames, chunk_bytes)
    } else {
        0
    };
    let bytes = bytes + extra;
    let limit = usize_of(core.settings.segment_bytes) - SEGMENT_HEAD_BYTES;
    if bytes > limit {
        return Err(Refusal::TooLarge { bytes, limit });
    }
    if bytes > group_bytes_max {
        for part in frames {
            if let Part::Batch { body, ahead, .. } = part
                && is_cut(body, chunk_bytes)
            {
                *ahead = chunk::cut(body, chunk_bytes).collect();
                body.truncate(HEADER_BYTES);
            }
        }
    }
    Ok(bytes)
}

fn control_of(frame: Frame) -> Control {
    if let Frame::CreateLogs { count, .. }
    | Frame::ChangeLogs { count, .. }
    | Frame::DeleteLogs { count, .. } = &frame
    {
        assert!(*count <= LOGS_MAX, "the caller splits longer runs of logs");
    }
    match frame {
        Frame::State(change) => Control::State(change),
        Frame::CreateLogs { first, count, spec } => Control::CreateLogs { first, count, spec },
        Frame::ChangeLogs { first, count, spec } => Control::ChangeLogs { first, count, spec },
        Frame::DeleteLogs { first, count } => Control::DeleteLogs { first, count },
        Frame::Truncate { log, before } => Control::Truncate { log, before },
        Frame::Batch(_) => unreachable!("batches are staged as such"),
    }
}

pub(crate) fn control_frame(control: Control) -> StagedFrame {
    let body = Bytes::from(control.encode());
    let head = Head {
        kind: Kind::Control,
        more: false,
        body_bytes: body.len(),
        body_checksum: crc32c(&body),
        max_timestamp: 0,
        span: 0,
        entries: SmallVec::new(),
    };
    StagedFrame {
        head,
        body,
        logs: SmallVec::new(),
        control: Some(Box::new(control)),
        reserves: None,
    }
}
