//! Reads: from the tail cache if the batches are still in memory, otherwise from segments, on a thread that
//! may block.
//!
//! Length: one path from a request to its batches, hot and cold, with the same bounds.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use stafett_model::batch::HEADER_BYTES;
use stafett_model::{LogId, Offset};

use super::chunk::{self, AssembleError, Table, table_bytes};
use super::codec::{u32_of, usize_of};
use super::engine::Engine;
use super::frame::{HEAD_BYTES, Head};
use super::log::{Log, LogState, RecentBatch};
use super::partial_batch::{self, SharedFrames, entry_of, part_of};
use super::position::SegmentId;
use super::read_buffers::ReadBuffers;
use super::segment::{FileRole, SegmentKind};
use super::sidecar::{IndexEntry, Sidecar, SidecarError};
use super::storage::StorageFile;
use super::tail_cache::TailReader;
use super::transactions::Transactions;
use crate::contract::{Bounds, LogSlice, ReadError, ReadFrom, ReadRequest, Visibility};
use crate::ticket::{ReadResult, ReadTicket};

/// Largest gap between frames that are read together.
const GAP_BYTES: u32 = 16 * 1024;
/// Most bytes of one read from a segment, unless a single frame is larger.
const READ_BYTES: u32 = 1 << 20;
/// Most attempts of a look-up that a rewrite interrupts.
const ATTEMPTS: usize = 16;

/// Bytes left for the results of a read.
#[derive(Debug, Clone, Copy)]
struct Budget {
    bytes: usize,
    /// True if the next batch is returned regardless of its size.
    whole: bool,
}

/// Batches of one log to be returned, with their places.
#[derive(Debug)]
struct Plan {
    bounds: Bounds,
    /// Bound on the ends of batches: the end of the log, or the start of a damaged range.
    limit: Offset,
    frames: Vec<(SegmentId, SegmentKind, IndexEntry)>,
    next: Offset,
}

/// Place where the batches of a log are listed.
enum Listing {
    /// All wanted batches are in segments without a sidecar.
    Recent(Plan),
    /// The batches begin in a sealed segment. The plan is still empty.
    Sealed(Plan),
}

pub(crate) fn read(core: &Arc<Engine>, request: &ReadRequest) -> ReadTicket {
    let mut budget = Budget {
        bytes: request.bytes_max,
        whole: request.first_batch_whole,
    };
    let mut results = Vec::with_capacity(request.logs.len());
    for (index, from) in request.logs.iter().enumerate() {
        match read_hot(core, *from, &mut budget) {
            Some(result) => results.push(result),
            None => return read_on(core, request, index, results, budget),
        }
    }
    ReadTicket::Ready(results)
}

/// Continues a read with log number `index`, which is not in memory.
fn read_on(
    core: &Arc<Engine>,
    request: &ReadRequest,
    index: usize,
    mut results: ReadResult,
    mut budget: Budget,
) -> ReadTicket {
    let left: Vec<ReadFrom> = request.logs.get(index..).unwrap_or_default().to_vec();
    let core = Arc::clone(core);
    on_reading_thread(
        move || {
            for from in left {
                let hot = read_hot(&core, from, &mut budget);
                results.push(hot.unwrap_or_else(|| read_cold(&core, from, &mut budget)));
            }
            results
        },
        ReadTicket::Ready,
        ReadTicket::Pending,
    )
}

/// Runs work that may wait for the disk: on a blocking thread if there is a Tokio runtime, otherwise here.
pub(crate) fn on_reading_thread<R: Send + 'static, T>(
    work: impl FnOnce() -> R + Send + 'static,
    ready: impl FnOnce(R) -> T,
    pending: impl FnOnce(tokio::sync::oneshot::Receiver<R>) -> T,
) -> T {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            drop(runtime.spawn_blocking(move || {
                let _ = sender.send(work());
            }));
            pending(receiver)
        }
        Err(_) => ready(work()),
    }
}

/// Reads a log if that needs only memory.
fn read_hot(core: &Engine, from: ReadFrom, budget: &mut Budget) -> Option<Result<LogSlice, ReadError>> {
    let Some(log) = core.logs.get(from.log) else {
        return Some(Err(ReadError::NoSuchLog(from.log)));
    };
    let before = forgotten(&log, from);
    match read_listed(core, &log, from, budget)? {
        Ok(run) => with_aborted(&log, from, run, before).map(Ok),
        Err(error) => Some(Err(error)),
    }
}

/// Returns the offset before which aborted transactions are forgotten, for a read of committed batches.
fn forgotten(log: &Log, from: ReadFrom) -> Offset {
    match from.visibility {
        Visibility::Committed => log
            .lock()
            .transactions()
            .map_or(Offset::ZERO, Transactions::forgotten),
        Visibility::Stored => Offset::ZERO,
    }
}

/// Adds the aborted transactions to a read of committed batches. They ended before the read, because the
/// batches are stable. `None` if some were forgotten since `before`: the read may have records of theirs.
fn with_aborted(log: &Log, from: ReadFrom, mut run: LogSlice, before: Offset) -> Option<LogSlice> {
    if from.visibility == Visibility::Committed
        && let Some(transactions) = log.lock().transactions()
    {
        if transactions.forgotten() != before {
            return None;
        }
        run.aborted = transactions.aborted_in(from.offset, run.next);
    }
    Some(run)
}

/// Reads a log if all wanted batches are listed in memory and their bytes are there.
fn read_listed(
    core: &Engine,
    log: &Log,
    from: ReadFrom,
    budget: &mut Budget,
) -> Option<Result<LogSlice, ReadError>> {
    let plan = match list(log, from, *budget) {
        Ok(Listing::Recent(plan)) => plan,
        Ok(Listing::Sealed(_)) => return None,
        Err(error) => return Some(Err(error)),
    };
    let mut run = LogSlice {
        bounds: Some(plan.bounds),
        next: plan.next,
        ..LogSlice::default()
    };
    if plan.frames.is_empty() {
        return Some(Ok(run));
    }
    let mut shared = SharedFrames::new();
    core.tail.with(|tail| {
        run.pieces.reserve_exact(plan.frames.len());
        for (segment, _, frame) in &plan.frames {
            if !frame.placed && frame.chunks > 0 {
                return None;
            }
            if !frame.placed {
                let whole = tail.get(*segment, frame.byte, usize_of(frame.bytes))?;
                shared.push((run.pieces.len(), *frame, whole));
                continue;
            }
            if frame.chunks > 0 {
                add_chunks(tail, *segment, frame, &mut run)?;
                continue;
            }
            let body_at = frame.byte + u32_of(frame.head_bytes());
            let body_bytes = body_bytes_of(frame);
            let mut slices = tail.get(*segment, body_at, body_bytes)?;
            trim_padding(&mut slices, &mut run)?;
        }
        Some(())
    })?;
    partial_batch::add(from.log, shared, &mut run)?;
    budget.spend(run.bytes);
    Some(Ok(run))
}

/// Adds a cut batch if all of it is in memory.
fn add_chunks(
    tail: &TailReader<'_>,
    segment: SegmentId,
    frame: &IndexEntry,
    run: &mut LogSlice,
) -> Option<()> {
    let table_at = frame.byte + u32_of(frame.head_bytes());
    let bytes = tail.get(segment, table_at, table_bytes(frame.chunks.into()))?;
    let [bytes] = bytes.as_slice() else { return None };
    let table = Table::decode(bytes)?;
    run.bytes += table.batch_bytes();
    run.pieces.push(bytes.slice(..HEADER_BYTES));
    for place in &table.places {
        let at = place.byte + u32_of(HEAD_BYTES);
        run.pieces.extend(tail.get(segment, at, usize_of(place.bytes))?);
    }
    Some(())
}

/// Adds a body to the run without its frame's padding.
fn trim_padding(slices: &mut SmallVec<[Bytes; 2]>, run: &mut LogSlice) -> Option<()> {
    let front = slices.first()?;
    let mut left = match front.first_chunk::<12>() {
        Some([_, _, _, _, _, _, _, _, a, b, c, d]) => {
            usize_of(u32::from_be_bytes([*a, *b, *c, *d])) + stafett_model::batch::LENGTH_PREFIX_BYTES
        }
        None => return None,
    };
    for slice in slices.drain(..) {
        let part = slice.len().min(left);
        left -= part;
        if part > 0 {
            run.bytes += part;
            run.pieces.push(if part == slice.len() {
                slice
            } else {
                slice.slice(..part)
            });
        }
    }
    (left == 0).then_some(())
}

/// Returns the bytes behind a frame's head: its body and up to seven bytes of padding.
fn body_bytes_of(frame: &IndexEntry) -> usize {
    usize_of(frame.bytes).saturating_sub(frame.head_bytes())
}

/// Reads a log on this thread, which may block; each piece is a whole batch if the offset lies in a sealed
/// segment.
pub(crate) fn read_here(core: &Engine, from: ReadFrom) -> Result<LogSlice, ReadError> {
    let mut budget = Budget {
        bytes: from.bytes_max,
        whole: true,
    };
    read_cold(core, from, &mut budget)
}

fn read_cold(core: &Engine, from: ReadFrom, budget: &mut Budget) -> Result<LogSlice, ReadError> {
    core.metrics.cold_reads.inc();
    let Some(log) = core.logs.get(from.log) else {
        return Err(ReadError::NoSuchLog(from.log));
    };
    for attempt in 1.. {
        let before = forgotten(&log, from);
        let plan = match list(&log, from, *budget)? {
            Listing::Recent(plan) => Ok(plan),
            Listing::Sealed(plan) => list_sealed(core, &log, from, *budget, plan),
        };
        let run = plan.and_then(|plan| fetch_sound(core, from.log, plan));
        match run.and_then(|run| with_aborted(&log, from, run, before).ok_or(ReadFailure::Moved)) {
            Ok(run) => {
                budget.spend(run.bytes);
                return Ok(run);
            }
            Err(ReadFailure::Moved) if attempt < ATTEMPTS => {}
            Err(ReadFailure::Moved) => {
                return Err(ReadError::Io {
                    log: from.log,
                    reason: "its segments keep moving".into(),
                });
            }
            Err(ReadFailure::Error(error)) => {
                core.metrics.damaged_reads.inc();
                tracing::error!(%error, "a read failed");
                return Err(error);
            }
        }
    }
    unreachable!("the loop ends by its attempts")
}

/// Reason why a look-up failed.
pub(crate) enum ReadFailure {
    /// A rewrite moved the batch: retry.
    Moved,
    Error(ReadError),
}

/// Lists the batches to read, as far as they are known in memory.
fn list(log: &Log, from: ReadFrom, budget: Budget) -> Result<Listing, ReadError> {
    let state = log.lock();
    let bounds = state.bounds();
    if state.deleted {
        return Err(ReadError::NoSuchLog(log.id));
    }
    // Offsets that are given out may be known before they can be read: their batch was acknowledged before it
    // was written, as its level asks for no more.
    if from.offset < bounds.start || from.offset > bounds.end.max(state.next) {
        let (start, end) = (bounds.start, bounds.end);
        return Err(ReadError::OutOfRange {
            log: log.id,
            wanted: from.offset,
            start,
            end,
        });
    }
    let mut plan = Plan {
        bounds,
        limit: match from.visibility {
            Visibility::Stored => bounds.end,
            Visibility::Committed => bounds.stable,
        },
        frames: Vec::new(),
        next: from.offset,
    };
    match state.damage_from(from.offset) {
        Some((start, to)) if start <= from.offset => {
            return Err(ReadError::Damaged {
                log: log.id,
                from: start,
                to,
            });
        }
        Some((start, _)) => plan.limit = plan.limit.min(start),
        None => {}
    }
    let first_recent = state.recent.first().map_or(bounds.end, |recent| recent.base);
    if from.offset < first_recent && !state.runs.is_empty() && from.offset < bounds.end {
        return Ok(Listing::Sealed(plan));
    }
    let mut room = Room::new(from, budget);
    let first = state.recent.partition_point(|recent| recent.end() <= from.offset);
    let rest = state.recent.get(first..).unwrap_or_default();
    plan.add_recent(rest, &mut room, log.id);
    plan.check_hole(&state, from, &room)?;
    Ok(Listing::Recent(plan))
}

/// Lists the batches to read from sealed segments on, using their sidecars.
fn list_sealed(
    core: &Engine,
    log: &Log,
    from: ReadFrom,
    budget: Budget,
    mut plan: Plan,
) -> Result<Plan, ReadFailure> {
    let (runs, recent) = {
        let state = log.lock();
        let first = state
            .runs
            .partition_point(|run| run.first <= from.offset)
            .saturating_sub(1);
        let runs: Vec<_> = state
            .runs
            .get(first..)
            .unwrap_or_default()
            .iter()
            .take(64)
            .copied()
            .collect();
        let all = first + runs.len() == state.runs.len();
        (runs, if all { state.recent.clone() } else { Vec::new() })
    };
    let mut room = Room::new(from, budget);
    for run in runs {
        let Some(segment) = core.segments.get(run.segment) else {
            return Err(ReadFailure::Moved);
        };
        let wanted = plan.next;
        with_sidecar(core, log.id, segment.sidecar_role(), |sidecar| {
            let Some(row) = sidecar.row(log.id)? else {
                return Ok(());
            };
            sidecar.entries_from(&row, wanted, |entry| {
                plan.add(segment.id, segment.kind, entry, &mut room)
            })
        })?;
        if room.is_full {
            return Ok(plan);
        }
    }
    plan.add_recent(&recent, &mut room, log.id);
    plan.check_hole(&log.lock(), from, &room)
        .map_err(ReadFailure::Error)?;
    Ok(plan)
}

/// Opens a segment's sidecar for a look-up. A damaged one is an error; it is rebuilt when the journal is next
/// opened.
pub(crate) fn with_sidecar<R>(
    core: &Engine,
    log: LogId,
    role: FileRole,
    look: impl FnOnce(&Sidecar<'_>) -> Result<R, SidecarError>,
) -> Result<R, ReadFailure> {
    let FileRole::Sidecar(_, id) = role else {
        return Err(ReadFailure::Moved);
    };
    let file = match core.files.get(role) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(ReadFailure::Moved),
        Err(error) => return Err(io_error(log, &error)),
    };
    Sidecar::open(&*file, id)
        .and_then(|sidecar| look(&sidecar))
        .map_err(|error| io_error(log, &error))
}

fn io_error(log: LogId, error: &dyn std::fmt::Display) -> ReadFailure {
    ReadFailure::Error(ReadError::Io {
        log,
        reason: error.to_string().into(),
    })
}

/// Bytes that may still be taken from a log.
struct Room {
    bytes: usize,
    whole: bool,
    is_full: bool,
}

impl Room {
    fn new(from: ReadFrom, budget: Budget) -> Self {
        Self {
            bytes: from.bytes_max.min(budget.bytes),
            whole: budget.whole,
            is_full: false,
        }
    }

    /// Returns true if a batch of `bytes` bytes still fits, and takes its bytes.
    fn take(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes && !self.whole {
            self.is_full = true;
            return false;
        }
        self.whole = false;
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}

impl Plan {
    fn add_recent(&mut self, recent: &[RecentBatch], room: &mut Room, log: LogId) {
        for recent in recent {
            if recent.end() > self.limit
                || (recent.end() > self.next
                    && !self.add(recent.segment, SegmentKind::Arrival, recent.entry(log), room))
            {
                return;
            }
        }
    }

    /// Fails with `Damaged` if there is nothing before a damaged range: the log continues behind it, and a
    /// reader must not take the range for a gap up to the end.
    fn check_hole(&self, state: &LogState, from: ReadFrom, room: &Room) -> Result<(), ReadError> {
        if !self.frames.is_empty() || room.is_full || self.limit >= self.bounds.end {
            return Ok(());
        }
        let damaged = state.damage_from(from.offset);
        let in_the_way = damaged.filter(|(start, _)| *start <= self.limit);
        in_the_way.map_or(Ok(()), |(start, to)| {
            Err(ReadError::Damaged {
                log: from.log,
                from: start,
                to,
            })
        })
    }

    /// Adds a frame if it fits; false if nothing more does.
    fn add(&mut self, segment: SegmentId, kind: SegmentKind, entry: IndexEntry, room: &mut Room) -> bool {
        if entry.end() > self.limit || !room.take(body_bytes_of(&entry)) {
            return false;
        }
        self.next = entry.end();
        self.frames.push((segment, kind, entry));
        true
    }
}

impl Budget {
    fn spend(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.whole &= bytes == 0;
    }
}

/// Fetches the planned frames, or those before the first damaged one.
fn fetch_sound(core: &Engine, log: LogId, mut plan: Plan) -> Result<LogSlice, ReadFailure> {
    loop {
        match fetch(core, log, &plan) {
            Err(ReadFailure::Error(ReadError::Damaged { from, .. }))
                if plan.frames.first().is_some_and(|(_, _, first)| first.base < from) =>
            {
                plan.frames.retain(|(_, _, frame)| frame.base < from);
                plan.next = from;
            }
            other => return other,
        }
    }
}

/// Fetches the planned frames from their segments.
fn fetch(core: &Engine, log: LogId, plan: &Plan) -> Result<LogSlice, ReadFailure> {
    let mut run = LogSlice {
        bounds: Some(plan.bounds),
        next: plan.next,
        ..LogSlice::default()
    };
    let mut left = plan.frames.as_slice();
    while let Some((segment, kind, _)) = left.first() {
        let together = contiguous(left);
        let (now, later) = left.split_at(together);
        left = later;
        // The reference to the segment keeps its file from being recycled.
        let Some(pin) = core.segments.get(*segment) else {
            return Err(ReadFailure::Moved);
        };
        if pin.kind != *kind {
            return Err(ReadFailure::Moved);
        }
        let file = core
            .files
            .get(pin.role())
            .map_err(|error| io_error(log, &error))?;
        let frames: SmallVec<[IndexEntry; 8]> = now.iter().map(|(_, _, frame)| *frame).collect();
        for body in read_frames(&core.read_buffers, &*file, log, &frames)? {
            run.bytes += body.len();
            run.pieces.push(body);
        }
        drop(pin);
    }
    Ok(run)
}

/// Returns the number of frames to read at once. A cut batch is read alone.
fn contiguous(frames: &[(SegmentId, SegmentKind, IndexEntry)]) -> usize {
    let Some((segment, _, first)) = frames.first() else {
        return 0;
    };
    if first.chunks > 0 {
        return 1;
    }
    let mut end = first.byte + first.bytes;
    1 + frames
        .iter()
        .skip(1)
        .take_while(|(other, _, frame)| {
            let near = other == segment
                && frame.chunks == 0
                && frame.byte >= end
                && frame.byte - end <= GAP_BYTES
                && frame.byte + frame.bytes - first.byte <= READ_BYTES;
            if near {
                end = frame.byte + frame.bytes;
            }
            near
        })
        .count()
}

/// Reads frames of one range, or one cut batch, and returns the log's part of each.
pub(crate) fn read_frames(
    buffers: &Arc<ReadBuffers>,
    file: &dyn StorageFile,
    log: LogId,
    frames: &[IndexEntry],
) -> Result<SmallVec<[Bytes; 8]>, ReadFailure> {
    let (Some(first), Some(last)) = (frames.first(), frames.last()) else {
        return Ok(SmallVec::new());
    };
    if first.chunks > 0 {
        return Ok(SmallVec::from_iter([read_cut(file, log, first)?]));
    }
    let length = usize_of(last.byte + last.bytes - first.byte);
    // Memory is allocated only after the file is known to contain the range of a possibly damaged length.
    if length > usize_of(READ_BYTES) && file.bytes().unwrap_or(0) < u64::from(last.byte + last.bytes) {
        return Err(ReadFailure::Error(ReadError::Damaged {
            log,
            from: first.base,
            to: last.end(),
        }));
    }
    let mut buffer = buffers.take(length);
    super::storage::read_exact_at(file, buffer.as_mut(), first.byte.into())
        .map_err(|error| io_error(log, &error))?;
    let bytes = buffer.freeze();
    frames
        .iter()
        .map(|frame| {
            let damaged = || {
                ReadFailure::Error(ReadError::Damaged {
                    log,
                    from: frame.base,
                    to: frame.end(),
                })
            };
            let at = usize_of(frame.byte - first.byte);
            let whole = bytes.get(at..at + usize_of(frame.bytes)).ok_or_else(damaged)?;
            let (head, _) = Head::decode(whole).map_err(|_| damaged())?;
            let entry = entry_of(&head, log, frame).ok_or_else(damaged)?;
            let body = whole
                .get(head.bytes()..head.bytes() + head.body_bytes)
                .ok_or_else(damaged)?;
            head.verify_body(body).map_err(|_| damaged())?;
            part_of(&bytes.slice_ref(body), &head, entry).ok_or_else(damaged)
        })
        .collect()
}

/// Reads a cut batch and returns the log's part of it.
fn read_cut(file: &dyn StorageFile, log: LogId, frame: &IndexEntry) -> Result<Bytes, ReadFailure> {
    let damaged = || {
        ReadFailure::Error(ReadError::Damaged {
            log,
            from: frame.base,
            to: frame.end(),
        })
    };
    let mut last = BytesMut::zeroed(frame.stored_bytes());
    super::storage::read_exact_at(file, &mut last, frame.byte.into())
        .map_err(|error| io_error(log, &error))?;
    let (head, table) = chunk::last_frame(&last).ok_or_else(damaged)?;
    let (head, body) = table.assemble(file, &head).map_err(|error| match error {
        AssembleError::Damaged => damaged(),
        AssembleError::Io(error) => io_error(log, &error),
    })?;
    let entry = entry_of(&head, log, frame).ok_or_else(damaged)?;
    part_of(&body, &head, entry).ok_or_else(damaged)
}
