//! The writer: gathers staged appends into write groups and writes each with one call.
//!
//! Length: one path from the write queue to the disk, over the state of one thread.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::LockGuard;
use stafett_model::checksum::crc32c;

use super::checkpoint::StateAt;
use super::chunk::{self, ChunkLocation, Table};
use super::codec::{u32_of, usize_of};
use super::control::Control;
use super::engine::Engine;
use super::frame::FrameKind;
use super::group::{GROUP_HEAD_BYTES, GroupHead};
use super::index::count_runs;
use super::layout::{COPY_BYTES_MAX, Layout};
use super::log::RecentBatch;
use super::overtake::Room;
use super::pool::Spare;
use super::position::{Position, SegmentId};
use super::scan::Chain;
use super::segment::{SEGMENT_HEAD_BYTES, Segment, SegmentHead, SegmentKind};
use super::settings::random_u64;
use super::sidecar::{IndexEntry, Summary};
use super::storage::StorageFile;
use super::syncer::{PendingSync, SyncEffect, WrittenGroup};
use super::tail_cache::TailGroup;
use super::write_queue::{StagedAppend, StagedFrame, TakeOutcome, Wait};
use crate::contract::Outcome;
use crate::metrics::Observed;

/// Page size of the system's cache.
const PAGE_BYTES: u32 = 4096;
static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

/// State of the writer.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) active: Option<ActiveSegment>,
    pub(crate) chain: Chain,
    pub(crate) run: u64,
    /// End of the last group with frames; `marked` is the highest mark stored in a group.
    pub(crate) frames_end: Position,
    pub(crate) marked: Position,
    /// Empty buffer kept for reuse by threads that write their own appends ([`super::inline_write`]).
    pub(super) taken_here: Vec<StagedAppend>,
}

impl Writer {
    /// Returns the state before the first group of a run; its segments continue `chain`.
    pub(super) fn new(chain: Chain) -> Self {
        Self {
            active: None,
            chain,
            run: random_u64(),
            frames_end: Position::default(),
            marked: Position::default(),
            taken_here: Vec::new(),
        }
    }
}

/// The segment being written.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub(crate) id: SegmentId,
    file: Arc<dyn StorageFile>,
    at: u32,
    first_sequence: u64,
    index: Vec<IndexEntry>,
    /// Chunks of a batch whose last frame is not written yet.
    places: VecDeque<ChunkLocation>,
    control_bytes: u64,
    date: i64,
}

/// A segment that gets no more groups, with the contents of its sidecar.
#[derive(Debug)]
pub(crate) struct SealedSegment {
    pub(crate) summary: Summary,
    pub(crate) index: Vec<IndexEntry>,
}

/// Writes until the journal is closed.
pub(crate) fn run(core: &Engine) {
    let mut staged = Vec::new();
    loop {
        match core.queue.take(room(core), &mut staged) {
            TakeOutcome::Some { promised } => write(core, &mut staged, promised),
            TakeOutcome::Woken => {}
            TakeOutcome::Closed => break,
        }
    }
    // A thread that writes its own appends passes them to the syncer under this lock.
    drop(core.writer.lock());
    core.sync.close();
}

/// Writes staged appends and returns true if there were any.
pub(crate) fn pump(core: &Engine) -> bool {
    let mut staged = Vec::new();
    let promised = core.queue.take_now(room(core), &mut staged);
    let some = !staged.is_empty();
    write(core, &mut staged, promised);
    some
}

/// Returns the space for the next group.
fn room(core: &Engine) -> Room {
    let writer = core.writer.lock();
    let segment_bytes = usize_of(core.settings.segment_bytes);
    let active = writer.active.as_ref();
    Room {
        group: core.pool.group_bytes_max(),
        left: active.map_or(0, |active| segment_bytes - usize_of(active.at)),
        segment: segment_bytes - SEGMENT_HEAD_BYTES,
    }
}

/// Writes the newest mark if everything is synced and no group has that mark yet, so that damage to the last
/// groups can be distinguished from a torn end.
pub(crate) fn write_idle_mark(core: &Engine) {
    let due = {
        let writer = core.writer.lock();
        writer.marked < writer.frames_end && core.sync.synced() >= writer.frames_end
    };
    if due && !core.queue.is_closed() {
        write_all(core, &mut Vec::new(), 0, true);
    }
}

/// Writes an empty group with the newest synced mark, and seals the segment behind it.
pub(crate) fn write_last_mark(core: &Engine) {
    write_all(core, &mut Vec::new(), 0, true);
    core.writer.lock().seal(core);
}

fn write(core: &Engine, staged: &mut Vec<StagedAppend>, promised: usize) {
    if !staged.is_empty() {
        write_all(core, staged, promised, false);
    }
}

/// Writes a group into a segment that has `promised` more bytes behind it.
fn write_all(core: &Engine, staged: &mut Vec<StagedAppend>, promised: usize, mark: bool) {
    let mut writer = core.writer.lock();
    if let Some(written) = write_group(core, &mut writer, staged, promised, mark) {
        drop(writer);
        core.sync.on_written(core, written);
    }
}

/// Writes a group for a caller that holds the lock, and passes it to the syncer under the lock.
pub(super) fn write_locked(core: &Engine, mut writer: LockGuard<'_, Writer>, mut staged: Vec<StagedAppend>) {
    if let Some(written) = write_group(core, &mut writer, &mut staged, 0, false) {
        core.sync.on_written(core, written);
    }
    staged.clear();
    writer.taken_here = staged;
}

/// Writes a group. `None` if the journal has failed, before or by this write, or no mark is needed.
fn write_group(
    core: &Engine,
    writer: &mut Writer,
    staged: &mut Vec<StagedAppend>,
    promised: usize,
    mark: bool,
) -> Option<WrittenGroup> {
    if core.has_failed() {
        staged.clear();
        return None;
    }
    if mark
        && writer
            .active
            .as_ref()
            .is_some_and(|active| !active.places.is_empty())
    {
        // A batch is being written in chunks: its groups have marks, and the space is reserved for them.
        return None;
    }
    let started = std::time::Instant::now();
    let seals = staged.iter().any(|append| append.seals);
    match writer.write_group(core, staged, promised, mark) {
        Ok(written) => {
            if seals {
                writer.seal(core);
            }
            core.metrics
                .write_seconds
                .observe(started.elapsed().as_secs_f64());
            Some(written)
        }
        Err(error) => {
            staged.clear();
            core.fail(format!("a write failed: {error}"));
            None
        }
    }
}

impl Writer {
    fn write_group(
        &mut self,
        core: &Engine,
        staged: &mut Vec<StagedAppend>,
        promised: usize,
        mark: bool,
    ) -> io::Result<WrittenGroup> {
        let frames_bytes: usize = staged.iter().map(|append| append.bytes).sum();
        let mut files = self.make_room(core, frames_bytes.max(GROUP_HEAD_BYTES) + promised)?;
        let active = self
            .active
            .as_mut()
            .ok_or_else(|| io::Error::other("there is no segment to write to"))?;
        let (layout, recents) = active.lay_out(staged);
        let mut group_bytes = 0;
        if layout.frames > 0 || mark {
            group_bytes = layout.bytes();
            let head = GroupHead {
                segment: active.id,
                bytes: u32_of(group_bytes),
                run: self.run,
                sequence: self.chain.sequence + 1,
                previous: self.chain.checksum,
                frames: layout.frames,
                synced: core.sync.synced(),
                written_at: core.now_ms(),
                frames_checksum: layout.checksums.finish(),
            };
            self.chain = Chain {
                sequence: head.sequence,
                checksum: active.write(core, &head, layout, staged)?,
            };
            core.pool
                .set_active_room(core.settings.segment_bytes.saturating_sub(active.at));
            core.pool
                .give_space(staged.iter().map(|append| append.charge).sum());
            self.marked = head.synced;
            if head.frames > 0 {
                self.frames_end = Position {
                    segment: active.id,
                    byte: active.at,
                };
            }
            core.metrics.on_group(group_bytes, head.frames);
        }
        let end = Position {
            segment: active.id,
            byte: active.at,
        };
        files.push(Arc::clone(&active.file));
        note_changes(core, staged, end, group_bytes);
        let (waiting, sync_within_ms, urgent) = publish(core, staged, &mut recents.into_iter());
        Ok(WrittenGroup {
            end,
            bytes: group_bytes,
            files,
            waiting,
            sync_within_ms,
            urgent,
        })
    }

    /// Returns true if `bytes` bytes fit into the segment being written.
    pub(super) fn has_room(&self, core: &Engine, bytes: usize) -> bool {
        let active = self.active.as_ref();
        active.is_some_and(|active| active.at.saturating_add(u32_of(bytes)) <= core.settings.segment_bytes)
    }

    /// Starts the next segment if the active one has no space; returns files that still have to be synced.
    fn make_room(&mut self, core: &Engine, bytes: usize) -> io::Result<SmallVec<[Arc<dyn StorageFile>; 2]>> {
        let mut files = SmallVec::new();
        if let Some(active) = &self.active {
            if active.at + u32_of(bytes) <= core.settings.segment_bytes {
                return Ok(files);
            }
            files.push(Arc::clone(&active.file));
        }
        self.seal(core);
        let Spare { id, file } = core
            .pool
            .take()
            .map_err(|error| io::Error::other(error.to_string()))?;
        let head = SegmentHead {
            segment: id,
            kind: SegmentKind::Arrival,
            first_sequence: self.chain.sequence + 1,
            previous: self.chain.checksum,
            created_at: core.now_ms(),
            first: <_>::default(),
            last: <_>::default(),
        };
        file.write_at(&mut [IoSlice::new(&head.encode())], 0)?;
        core.segments.insert(Segment {
            id,
            kind: SegmentKind::Arrival,
        });
        self.active = Some(ActiveSegment {
            id,
            file,
            at: u32_of(SEGMENT_HEAD_BYTES),
            first_sequence: self.chain.sequence + 1,
            index: Vec::new(),
            places: VecDeque::new(),
            control_bytes: 0,
            date: i64::MIN,
        });
        core.metrics.segments_started.inc();
        Ok(files)
    }

    /// Seals the active segment and passes it on for its sidecar.
    pub(crate) fn seal(&mut self, core: &Engine) {
        let Some(active) = self.active.take() else { return };
        core.pool.set_active_room(0);
        let summary = Summary {
            segment: active.id,
            valid_bytes: active.at,
            rows: 0,
            entries: 0,
            first_sequence: active.first_sequence,
            last_sequence: self.chain.sequence,
            last_checksum: self.chain.checksum,
            date: active.date,
            control_bytes: active.control_bytes,
            runs: count_runs(&active.index),
        };
        let sealed = SealedSegment {
            summary,
            index: active.index,
        };
        core.housekeeping.add_sealed(sealed);
    }
}

impl ActiveSegment {
    /// Lays the staged frames out behind the written ones, and lists the place of each batch of each log.
    fn lay_out(&mut self, staged: &mut [StagedAppend]) -> (Layout, SmallVec<[RecentBatch; 8]>) {
        let mut layout = Layout::new(staged);
        let mut recents = SmallVec::new();
        for frame in staged.iter_mut().flat_map(|append| &mut append.frames) {
            let byte = self.at + u32_of(layout.bytes());
            match frame.head.kind {
                FrameKind::Control => self.control_bytes += frame.head.frame_bytes() as u64,
                FrameKind::Chunk => self.places.push_back(ChunkLocation {
                    byte,
                    bytes: u32_of(frame.head.body_bytes),
                }),
                FrameKind::Cut => self.complete(frame),
                FrameKind::Batch => {}
            }
            let body = std::mem::take(&mut frame.body);
            layout.frame(&frame.head, &body);
            for entry in &frame.head.entries {
                let indexed = IndexEntry::of(&frame.head, entry, &body, byte);
                self.index.push(indexed);
                self.date = self.date.max(indexed.date);
                recents.push(RecentBatch::of(self.id, &indexed));
            }
        }
        (layout, recents)
    }

    /// Builds the table of a last frame, now that the places of its chunks are known.
    fn complete(&mut self, frame: &mut StagedFrame) {
        let chunks = chunk::count_of_table(frame.head.body_bytes);
        let places = self.places.drain(..chunks.min(self.places.len())).collect();
        frame.body = Table::new(&frame.head, &frame.body, places).encode();
        frame.head.body_checksum = crc32c(&frame.body);
    }

    /// Writes a group with one call and adds it to the tail cache, if it has bodies to read; returns its
    /// checksum.
    fn write(
        &mut self,
        core: &Engine,
        head: &GroupHead,
        mut layout: Layout,
        staged: &[StagedAppend],
    ) -> io::Result<u32> {
        let start = Position {
            segment: self.id,
            byte: self.at,
        };
        let checksum = head.encode(&mut layout.small);
        let pieces = layout.into_pieces(start.byte);
        let mut slices: SmallVec<[IoSlice<'_>; 8]> =
            pieces.iter().map(|(_, piece)| IoSlice::new(piece)).collect();
        // Padded to the end of the page: otherwise the system would first have to read the rest of it.
        let end = start.byte + head.bytes;
        let padded_end = if core.pool.is_append_only() {
            end
        } else {
            end.next_multiple_of(PAGE_BYTES).min(core.settings.segment_bytes)
        };
        let padding = usize_of(padded_end.saturating_sub(end));
        slices.push(IoSlice::new(ZEROS.get(..padding).unwrap_or_default()));
        self.file.write_at(&mut slices, u64::from(start.byte))?;
        drop(slices);
        self.at += head.bytes;
        // State is never read: many small groups would take the place of batches, and scatter the memory.
        let mut frames = staged.iter().flat_map(|append| &append.frames);
        if frames.any(|frame| frame.head.kind != FrameKind::Control) {
            let pinned_bytes = pinned(&pieces, staged);
            core.tail.push(TailGroup {
                start,
                pieces,
                pinned_bytes,
            });
        }
        Ok(checksum)
    }
}

/// Returns the bytes of the buffers that a cached group keeps alive: its own, and those that its large bodies
/// are parts of.
fn pinned(pieces: &[(u32, Bytes)], staged: &[StagedAppend]) -> usize {
    let own: usize = pieces.iter().map(|(_, piece)| piece.len()).sum();
    let kinds = || {
        let frames = staged.iter().flat_map(|append| &append.frames);
        frames.map(|frame| (frame.head.kind, frame.head.body_bytes))
    };
    if pieces.len() == 1 && !kinds().any(|(kind, _)| kind == FrameKind::Cut) {
        return own;
    }
    // The buffer of chunks stays alive until the last group of the batch is dropped: it is counted there.
    let chunks = kinds().filter(|(kind, bytes)| *kind == FrameKind::Chunk && *bytes >= COPY_BYTES_MAX);
    let own = own.saturating_sub(chunks.map(|(_, bytes)| bytes).sum());
    let theirs: usize = staged.iter().map(|append| append.pinned_bytes).sum();
    own.max(theirs)
}

/// Records the changes for the next checkpoint.
fn note_changes(core: &Engine, staged: &mut [StagedAppend], end: Position, bytes: usize) {
    let mut pending = core.pending();
    pending.position = end;
    pending.bytes += bytes as u64;
    for (number, frame) in (1..).zip(staged.iter_mut().flat_map(|append| &mut append.frames)) {
        match frame.control.take().map(|control| *control) {
            Some(Control::State(change)) => pending.state.push(StateAt {
                position: end,
                number,
                change,
            }),
            Some(Control::StoppedCleanly { .. }) => pending.run.ended = true,
            Some(Control::DeleteLogs { first, count }) => {
                pending
                    .deleted
                    .extend((first.0..first.0 + u64::from(count)).map(stafett_model::LogId));
            }
            Some(Control::Segments { added, removed }) => {
                pending.segments_added.extend(added);
                pending.segments_removed.extend(removed);
            }
            _ => {}
        }
    }
    let due = pending.bytes >= core.settings.checkpoint_bytes;
    drop(pending);
    if due {
        core.housekeeping.want_checkpoint();
    }
}

/// Records the places of the batches in their logs and makes them readable as far as allowed. Returns the
/// appends with effects after a sync, the ms within which one is due, and true if an append waits for it.
fn publish(
    core: &Engine,
    staged: &mut Vec<StagedAppend>,
    recents: &mut impl Iterator<Item = RecentBatch>,
) -> (Vec<PendingSync>, u32, bool) {
    let mut waiting = Vec::new();
    let mut sync_within_ms = u32::MAX;
    let mut urgent = false;
    let now = std::time::Instant::now();
    for append in staged.drain(..) {
        let synced = append.wait == Wait::Synced;
        urgent |= synced;
        sync_within_ms = sync_within_ms.min(append.sync_within_ms);
        let mut shows: SmallVec<[SyncEffect; 1]> = SmallVec::new();
        for frame in append.frames {
            for ((log, wait), recent) in frame.logs.into_iter().zip(&mut *recents) {
                let (base, end, bytes) = (recent.base, recent.end(), u64::from(recent.bytes));
                let mut state = log.lock();
                if !state.deleted {
                    state.on_written(recent);
                }
                if wait == Wait::Synced {
                    drop(state);
                    shows.push(SyncEffect::Batch { log, end, bytes });
                } else {
                    state.make_visible_in_order(base, end, bytes);
                }
            }
            if let Some((log, below)) = frame.reserves {
                shows.push(SyncEffect::Reserve { log, below });
            }
        }
        let committed = append
            .settler
            .map(|settler| (settler, Outcome::Committed(append.placed)));
        if synced {
            waiting.push(PendingSync {
                shows,
                settler: committed,
                interval: append.interval,
            });
            continue;
        }
        if !shows.is_empty() || append.interval.is_some() {
            waiting.push(PendingSync {
                shows,
                settler: None,
                interval: append.interval,
            });
        }
        if let Some((settler, outcome)) = committed {
            let waited = settler.waited(now);
            core.metrics.append_written_seconds.observe(waited.as_secs_f64());
            core.metrics.tell(Observed::AppendWritten, waited);
            settler.settle(outcome);
        }
    }
    core.metrics.appends.inc();
    (waiting, sync_within_ms, urgent)
}
