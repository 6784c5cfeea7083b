//! A merge: the live frames of some segments, copied into new ones in the order of their logs and offsets.
//!
//! The indexes of the inputs are merged as streams, so that memory does not grow with them. Frames are copied as they
//! are, after their checksums were verified. A frame of several logs lies once in each new segment that holds one of
//! them, where the first of those wants it: so the offsets of a log never lie in two segments by turns.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::BytesMut;
use stafett_model::checksum::Crc32c;
use stafett_model::{LogId, Offset};

use super::super::chunk::{self, NotWhole};
use super::super::codec::{u32_of, usize_of};
use super::super::core::Core;
use super::super::frame::{Entry, Head};
use super::super::group::{GROUP_HEAD_BYTES, GroupHead};
use super::super::index::{count_runs, sort};
use super::super::position::{Position, SegmentId};
use super::super::segment::{FileRole, SEGMENT_HEAD_BYTES, Segment, SegmentHead, SegmentKind};
use super::super::sidecar::{self, EntryCursor, IndexEntry, Sidecar, SidecarError, Summary, rows_of};
use super::super::storage::{StorageFile, read_exact_at};

/// Bytes of a group of a sorted segment.
const GROUP_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) enum MergeError {
    /// The journal is being closed, or failed.
    Stopped,
    Damaged {
        segment: SegmentId,
        byte: u32,
    },
    Io(io::Error),
}

impl From<io::Error> for MergeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A new segment and the logs in it, with the first offset and the bytes of each.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) segment: Segment,
    pub(crate) logs: Vec<(LogId, Offset, u64)>,
}

struct Input {
    /// Whoever holds it keeps its file from being recycled.
    segment: Arc<Segment>,
    file: Arc<dyn StorageFile>,
    bytes: u64,
    entries: EntryCursor,
}

/// Copies the live frames of `inputs` into new sorted segments, which are whole and synced when this returns, but not
/// in force. What was begun and not finished is removed.
pub(crate) fn merge(core: &Core, inputs: &[SegmentId]) -> Result<Vec<Merged>, MergeError> {
    let mut output = Output::new(core);
    match output.fill(inputs).and_then(|()| output.finish()) {
        Ok(merged) => Ok(merged),
        Err(error) => {
            output.remove();
            Err(error)
        }
    }
}

struct Output<'a> {
    core: &'a Core,
    active: Option<Writing>,
    /// Segments that are full and have their sidecars.
    filled: Vec<SegmentId>,
    /// Where frames of several logs were put in the active segment.
    shared: HashMap<Position, u32>,
    budget: Budget,
}

struct Writing {
    id: SegmentId,
    file: Arc<dyn StorageFile>,
    at: u32,
    group: Vec<u8>,
    frames: u32,
    checksums: Crc32c,
    sequence: u64,
    previous: u32,
    index: Vec<IndexEntry>,
}

impl<'a> Output<'a> {
    fn new(core: &'a Core) -> Self {
        let budget = Budget::new(core);
        Self {
            core,
            active: None,
            filled: Vec::new(),
            shared: HashMap::new(),
            budget,
        }
    }

    /// Walks the merged indexes and copies what is alive.
    fn fill(&mut self, inputs: &[SegmentId]) -> Result<(), MergeError> {
        let mut inputs = self.open(inputs)?;
        let mut heap = BinaryHeap::new();
        for (number, input) in inputs.iter_mut().enumerate() {
            if let Some(entry) = next_entry(input)? {
                heap.push(Reverse((entry.log, entry.base, number, Ranked(entry))));
            }
        }
        let mut current: Option<(LogId, Option<Offset>)> = None;
        while let Some(Reverse((log, _, number, Ranked(entry)))) = heap.pop() {
            if current.is_none_or(|(known, _)| known != log) {
                let start = self.core.logs.get(log).map(|log| log.lock().start);
                current = Some((log, start));
            }
            let Some(input) = inputs.get_mut(number) else {
                continue;
            };
            let live = current
                .and_then(|(_, start)| start)
                .is_some_and(|start| entry.end() > start);
            if live {
                self.copy(input, entry)?;
            }
            if let Some(entry) = next_entry(input)? {
                heap.push(Reverse((entry.log, entry.base, number, Ranked(entry))));
            }
        }
        Ok(())
    }

    fn open(&self, ids: &[SegmentId]) -> Result<Vec<Input>, MergeError> {
        ids.iter()
            .map(|id| {
                let segment = self.core.segments.get(*id).ok_or(MergeError::Stopped)?;
                let file = self.core.files.get(segment.role())?;
                let index = self.core.files.get(segment.sidecar_role())?;
                let damaged = |_: SidecarError| MergeError::Damaged {
                    segment: *id,
                    byte: 0,
                };
                let summary = Sidecar::open(&*index, *id).map_err(damaged)?.summary;
                Ok(Input {
                    segment,
                    bytes: file.bytes()?,
                    file,
                    entries: EntryCursor::new(index, summary),
                })
            })
            .collect()
    }

    fn copy(&mut self, input: &Input, entry: IndexEntry) -> Result<(), MergeError> {
        let from = Position {
            segment: input.segment.id,
            byte: entry.byte,
        };
        if entry.entries > 1
            && let (Some(byte), Some(writing)) = (self.shared.get(&from), &mut self.active)
        {
            writing.index.push(IndexEntry {
                byte: *byte,
                chunks: 0,
                ..entry
            });
            return Ok(());
        }
        if entry.chunks > 0 {
            return self.copy_cut(input, entry);
        }
        let damaged = || MergeError::Damaged {
            segment: input.segment.id,
            byte: entry.byte,
        };
        let bytes = usize_of(entry.bytes);
        // What a damaged length asks for is not taken before the file is known to have it.
        if input.bytes < u64::from(entry.byte) + u64::from(entry.bytes) {
            return Err(damaged());
        }
        self.make_room(bytes)?;
        let writing = self.active.as_mut().ok_or(MergeError::Stopped)?;
        let start = writing.group.len();
        writing.group.resize(start + bytes, 0);
        let frame = writing.group.get_mut(start..).unwrap_or_default();
        read_exact_at(&*input.file, frame, entry.byte.into())?;
        let (head, checksum) = Head::decode(frame).map_err(|_| damaged())?;
        let body = frame
            .get(head.bytes()..head.bytes() + head.body_bytes)
            .ok_or_else(damaged)?;
        head.verify_body(body).map_err(|_| damaged())?;
        let is_listed = |it: &Entry| it.log == entry.log && it.base == entry.base;
        if head.frame_bytes() != bytes || !head.entries.iter().any(is_listed) {
            return Err(damaged());
        }
        let byte = writing.add(start, checksum, entry);
        if entry.entries > 1 {
            self.shared.insert(from, byte);
        }
        Ok(())
    }

    /// Copies a batch that is cut, in one piece.
    fn copy_cut(&mut self, input: &Input, entry: IndexEntry) -> Result<(), MergeError> {
        let from = Position {
            segment: input.segment.id,
            byte: entry.byte,
        };
        let damaged = || MergeError::Damaged {
            segment: from.segment,
            byte: from.byte,
        };
        let mut last = vec![0; entry.stored_bytes()];
        read_exact_at(&*input.file, &mut last, entry.byte.into())?;
        let (head, table) = chunk::last_frame(&last).ok_or_else(damaged)?;
        let (head, body) = table.assemble(&*input.file, &head).map_err(|error| match error {
            NotWhole::Damaged => damaged(),
            NotWhole::Io(error) => MergeError::Io(error),
        })?;
        let is_listed = |it: &Entry| it.log == entry.log && it.base == entry.base;
        if head.frame_bytes() != usize_of(entry.bytes) || !head.entries.iter().any(is_listed) {
            return Err(damaged());
        }
        self.make_room(head.frame_bytes())?;
        let writing = self.active.as_mut().ok_or(MergeError::Stopped)?;
        let start = writing.group.len();
        let mut encoded = BytesMut::with_capacity(head.bytes());
        let checksum = head.encode(&mut encoded);
        writing.group.extend_from_slice(&encoded);
        writing.group.extend_from_slice(&body);
        writing.group.resize(start + head.frame_bytes(), 0);
        let byte = writing.add(start, checksum, IndexEntry { chunks: 0, ..entry });
        if entry.entries > 1 {
            self.shared.insert(from, byte);
        }
        Ok(())
    }

    /// Writes the group, and goes to a new segment, as the next frame wants.
    fn make_room(&mut self, bytes: usize) -> Result<(), MergeError> {
        if let Some(writing) = &mut self.active {
            if writing.group.len() + bytes > GROUP_BYTES && writing.frames > 0 {
                let written = writing.write_group(self.core)?;
                // Not all at the end: who waits for a sync of the journal would wait for all of it.
                writing.file.sync()?;
                self.budget.spend(self.core, written)?;
            }
            let fits = usize_of(writing.at) + writing.group.len() + bytes
                <= usize_of(self.core.settings.segment_bytes);
            if fits {
                return Ok(());
            }
        }
        self.fill_up()?;
        self.active = Some(Writing::start(self.core)?);
        Ok(())
    }

    fn fill_up(&mut self) -> Result<(), MergeError> {
        let Some(mut writing) = self.active.take() else {
            return Ok(());
        };
        writing.write_group(self.core)?;
        writing.write_head(self.core)?;
        let (id, valid_bytes) = (writing.id, writing.at);
        writing.file.sync()?;
        // Space that a sorted segment took and did not fill goes back.
        writing.file.set_bytes(valid_bytes.into())?;
        let summary = Summary {
            segment: id,
            valid_bytes,
            rows: 0,
            entries: 0,
            first_sequence: 1,
            last_sequence: writing.sequence,
            last_checksum: writing.previous,
            max_timestamp: writing
                .index
                .iter()
                .map(|entry| entry.max_timestamp)
                .max()
                .unwrap_or(i64::MIN),
            control_bytes: 0,
            runs: count_runs(&writing.index),
        };
        sort(&mut writing.index);
        let rows = rows_of(&writing.index);
        let name = FileRole::Sidecar(SegmentKind::Sorted, id).name();
        self.filled.push(id);
        self.shared.clear();
        sidecar::write(&*self.core.storage, &name, summary, &rows, &writing.index)?;
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<Merged>, MergeError> {
        self.fill_up()?;
        self.core.storage.sync_names()?;
        let mut merged = Vec::new();
        for id in &self.filled {
            let segment = Segment {
                id: *id,
                kind: SegmentKind::Sorted,
            };
            let file = self.core.files.get(segment.sidecar_role())?;
            let mut logs = Vec::new();
            Sidecar::open(&*file, *id)
                .and_then(|sidecar| sidecar.for_each_row(|row| logs.push((row.log, row.first, row.bytes))))
                .map_err(|_| MergeError::Damaged {
                    segment: *id,
                    byte: 0,
                })?;
            merged.push(Merged { segment, logs });
        }
        Ok(merged)
    }

    /// Removes everything that was written.
    fn remove(&self) {
        let ids = self
            .filled
            .iter()
            .copied()
            .chain(self.active.as_ref().map(|it| it.id));
        for id in ids {
            for role in [
                FileRole::Segment(SegmentKind::Sorted, id),
                FileRole::Sidecar(SegmentKind::Sorted, id),
            ] {
                self.core.files.forget(role);
                // A file that is not there, or stays, is removed at the next start.
                let _ = self.core.storage.remove(&role.name());
            }
        }
    }
}

impl Writing {
    /// Notes a frame that begins at `start` in the group; returns its byte in the segment.
    fn add(&mut self, start: usize, checksum: u32, entry: IndexEntry) -> u32 {
        self.checksums.update(&checksum.to_le_bytes());
        self.frames += 1;
        let byte = self.at + u32_of(start);
        self.index.push(IndexEntry { byte, ..entry });
        byte
    }

    fn start(core: &Core) -> io::Result<Self> {
        let id = core.pool.new_id();
        let file = core
            .storage
            .create(&FileRole::Segment(SegmentKind::Sorted, id).name())?;
        let reserved = file.reserve(core.settings.segment_bytes.into());
        if let Err(error) = reserved {
            let _ = core
                .storage
                .remove(&FileRole::Segment(SegmentKind::Sorted, id).name());
            return Err(error);
        }
        Ok(Self {
            id,
            file,
            at: u32_of(SEGMENT_HEAD_BYTES),
            group: vec![0; GROUP_HEAD_BYTES],
            frames: 0,
            checksums: Crc32c::new(),
            sequence: 0,
            previous: 0,
            index: Vec::new(),
        })
    }

    fn write_head(&self, core: &Core) -> io::Result<()> {
        let place = |entry: Option<&IndexEntry>| entry.map_or_else(<_>::default, |it| (it.log, it.base));
        let head = SegmentHead {
            segment: self.id,
            kind: SegmentKind::Sorted,
            first_sequence: 1,
            previous: 0,
            created_at: core.now_ms(),
            first: place(self.index.first()),
            last: place(self.index.last()),
        };
        self.file.write_at(&mut [IoSlice::new(&head.encode())], 0)
    }

    fn write_group(&mut self, core: &Core) -> io::Result<u64> {
        if self.frames == 0 {
            return Ok(0);
        }
        let head = GroupHead {
            segment: self.id,
            bytes: u32_of(self.group.len()),
            run: 0,
            sequence: self.sequence + 1,
            previous: self.previous,
            frames: self.frames,
            synced: Position::default(),
            written_at: core.now_ms(),
            frames_checksum: self.checksums.finish(),
        };
        let checksum = head.encode(&mut self.group);
        self.file
            .write_at(&mut [IoSlice::new(&self.group)], self.at.into())?;
        self.at += head.bytes;
        (self.sequence, self.previous) = (head.sequence, checksum);
        self.group.truncate(GROUP_HEAD_BYTES);
        self.frames = 0;
        self.checksums = Crc32c::new();
        core.metrics.rewritten_bytes.inc_by(head.bytes.into());
        Ok(head.bytes.into())
    }
}

/// Keeps rewriting at its rate.
struct Budget {
    started: std::time::Instant,
    bytes: u64,
    bytes_per_second: u64,
}

impl Budget {
    fn new(core: &Core) -> Self {
        let bytes_per_second = core.settings.rewrite_bytes_per_second.max(1);
        Self {
            started: std::time::Instant::now(),
            bytes: 0,
            bytes_per_second,
        }
    }

    /// Waits as long as the bytes so far want, or until the journal is closed.
    fn spend(&mut self, core: &Core, bytes: u64) -> Result<(), MergeError> {
        self.bytes += bytes;
        let due = std::time::Duration::from_secs_f64(self.bytes as f64 / self.bytes_per_second as f64);
        let early = due.saturating_sub(self.started.elapsed());
        let open = core.rewriting.wait(early) && !core.has_failed();
        if open { Ok(()) } else { Err(MergeError::Stopped) }
    }
}

fn next_entry(input: &mut Input) -> Result<Option<IndexEntry>, MergeError> {
    let segment = input.segment.id;
    input
        .entries
        .next()
        .map_err(|_| MergeError::Damaged { segment, byte: 0 })
}

/// An entry that takes no part in the order of the heap.
struct Ranked(IndexEntry);

impl PartialEq for Ranked {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}
