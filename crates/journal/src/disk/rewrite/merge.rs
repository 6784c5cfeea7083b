//! Merge: copies the live frames of some segments into new ones, so that data read together is stored
//! together.
//!
//! The logs that share frames come first (`ties`), then all others in the order of logs and offsets; for
//! these, the indexes of the inputs are merged as streams, so that memory does not grow with them. Each
//! frame's checksums are verified, and it is stored only with those of its parts that are alive and belong
//! here: a frame's entries are the parts that its segment has. The offset ranges of a log in two segments
//! never interleave.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::{BatchHeader, LogId, Offset};

use super::super::chunk::{self, AssembleError};
use super::super::codec::u32_of;
use super::super::dates;
use super::super::engine::Engine;
use super::super::frame::{FrameEntry, FrameKind, Head};
use super::super::partial_batch::{entry_of, part_of};
use super::super::position::SegmentId;
use super::super::segment::Segment;
use super::super::sidecar::IndexEntry;
use super::compaction::{Filtered, RecordFilter};
use super::input::{Entries, Input, LivenessCheck};
use super::output::{Budget, Output};
use super::ties::Ties;
use crate::contract::Selection;

#[derive(Debug)]
pub(crate) enum MergeError {
    /// The journal is being closed, or failed.
    Stopped,
    Damaged {
        segment: SegmentId,
        byte: u32,
    },
    /// An input cannot be read now. It is no damage.
    Unreadable {
        segment: SegmentId,
        error: io::Error,
    },
    /// An output cannot be written.
    Io(io::Error),
}

impl From<io::Error> for MergeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A new segment and the logs in it, with the first offset and the bytes of each.
#[derive(Debug)]
pub(crate) struct MergedSegment {
    pub(crate) segment: Segment,
    pub(crate) logs: Vec<(LogId, Offset, u64)>,
}

/// Copies the live frames of `inputs` into new sorted segments; those of compacted logs as `filter` leaves
/// them. On success the segments are complete and synced, but not in force; on an error they are removed.
pub(super) fn merge(
    core: &Engine,
    inputs: &[SegmentId],
    filter: Option<&mut RecordFilter>,
) -> Result<Vec<MergedSegment>, MergeError> {
    let inputs: Vec<_> = inputs
        .iter()
        .map(|id| Input::open(core, *id))
        .collect::<Result<_, _>>()?;
    let apart = filter.as_ref().map(|filter| filter.logs()).unwrap_or_default();
    let ties = Ties::find(core, &inputs, apart)?;
    let mut merge = Merge {
        core,
        output: Output::new(core),
        buffer: Vec::new(),
        filter,
    };
    let copied = merge
        .copy_tied(&inputs, &ties)
        .and_then(|()| merge.copy_single(&inputs, &ties));
    match copied.and_then(|()| merge.output.finish()) {
        Ok(merged) => Ok(merged),
        Err(error) => {
            merge.output.remove();
            Err(error)
        }
    }
}

/// Returns true if `filter` leaves every batch of a segment as it is, so that it need not be written again.
pub(super) fn is_unchanged(
    core: &Engine,
    segment: SegmentId,
    filter: &mut RecordFilter,
) -> Result<bool, MergeError> {
    let input = Input::open(core, segment)?;
    let (mut entries, mut alive) = (input.entries(), LivenessCheck::new(core));
    let (mut buffer, mut budget) = (Vec::new(), Budget::new(core));
    while let Some(entry) = entries.next()? {
        if !filter.covers(entry.log, entry.base) || !alive.is(entry.log, entry.end()) {
            continue;
        }
        let (_, _, batch) = read_part(&input, &entry, &mut buffer)?;
        if !filter.keeps_all(core, entry.log, &batch) {
            return Ok(false);
        }
        budget.spend_read(core, entry.bytes.into())?;
    }
    Ok(true)
}

/// Reads the live frames of a segment, which could not be read before: nothing is written for one that still
/// cannot.
pub(super) fn check(core: &Engine, segment: SegmentId) -> Result<(), MergeError> {
    let input = Input::open(core, segment)?;
    let (mut entries, mut alive) = (input.entries(), LivenessCheck::new(core));
    let (mut buffer, mut budget) = (Vec::new(), Budget::new(core));
    while let Some(entry) = entries.next()? {
        if alive.is(entry.log, entry.end()) {
            let bytes = entry.stored_bytes();
            read_frame(&input, entry.byte, u32_of(bytes), &mut buffer)?;
            budget.spend_read(core, entry.bytes.into())?;
        }
    }
    Ok(())
}

struct Merge<'a> {
    core: &'a Engine,
    output: Output<'a>,
    /// Frame read last.
    buffer: Vec<u8>,
    filter: Option<&'a mut RecordFilter>,
}

impl Merge<'_> {
    /// Copies the frames of tied logs, each once.
    fn copy_tied(&mut self, inputs: &[Input], ties: &Ties) -> Result<(), MergeError> {
        let core = self.core;
        ties.each(|tie, number, frame| {
            let Some(input) = inputs.get(number) else {
                return Ok(());
            };
            let is_known = Cell::new(false);
            let is_wanted = |entry: &FrameEntry| {
                let is_ours = input.lists(entry) && ties.is_of(entry.log, tie);
                is_known.set(is_known.get() || is_ours);
                is_ours && LivenessCheck::new(core).is(entry.log, entry.end())
            };
            // Nothing is left to copy if its logs were freed meanwhile.
            let is_copied = self.copy(input, frame.byte, frame.bytes, is_wanted)?;
            if is_copied || is_known.get() {
                Ok(())
            } else {
                Err(input.damaged(frame.byte))
            }
        })
    }

    /// Walks the merged indexes and copies the live batches of untied logs.
    fn copy_single(&mut self, inputs: &[Input], ties: &Ties) -> Result<(), MergeError> {
        let mut streams: Vec<Entries> = inputs.iter().map(Input::entries).collect();
        let mut heap = BinaryHeap::new();
        for (number, entries) in streams.iter_mut().enumerate() {
            if let Some(entry) = entries.next()? {
                heap.push(Reverse((entry.log, entry.base, number, HeapPayload(entry))));
            }
        }
        let mut alive = LivenessCheck::new(self.core);
        while let Some(Reverse((log, base, number, HeapPayload(entry)))) = heap.pop() {
            let (Some(input), Some(entries)) = (inputs.get(number), streams.get_mut(number)) else {
                continue;
            };
            let is_filtered = self
                .filter
                .as_ref()
                .is_some_and(|filter| filter.covers(log, base));
            if is_filtered && alive.is(log, entry.end()) {
                self.copy_filtered(input, &entry)?;
            } else if !ties.has(log) && alive.is(log, entry.end()) {
                let is_it = |it: &FrameEntry| (it.log, it.base) == (log, base);
                if !self.copy(input, entry.byte, u32_of(entry.stored_bytes()), is_it)? {
                    return Err(input.damaged(entry.byte));
                }
            }
            if let Some(entry) = entries.next()? {
                heap.push(Reverse((entry.log, entry.base, number, HeapPayload(entry))));
            }
        }
        Ok(())
    }

    /// Copies a frame with the wanted parts; joins a cut batch. False if no part is wanted.
    fn copy(
        &mut self,
        input: &Input,
        byte: u32,
        bytes: u32,
        is_wanted: impl Fn(&FrameEntry) -> bool,
    ) -> Result<bool, MergeError> {
        let (head, body) = read_frame(input, byte, bytes, &mut self.buffer)?;
        let entries = head.entries.iter().copied().filter(is_wanted).collect();
        let head = Head {
            more: false,
            entries,
            ..head
        };
        if head.entries.is_empty() {
            return Ok(false);
        }
        self.output.add(&head, body.as_ref())?;
        Ok(true)
    }

    /// Copies a compacted log's part of a frame, as far as the filter leaves it.
    fn copy_filtered(&mut self, input: &Input, place: &IndexEntry) -> Result<(), MergeError> {
        let (head, entry, part) = read_part(input, place, &mut self.buffer)?;
        self.output.on_read(part.len() as u64)?;
        let Some(filter) = &mut self.filter else {
            return Ok(());
        };
        let batch = match filter.apply(self.core, place.log, &part) {
            Filtered::Gone => return Ok(()),
            Filtered::Whole => part,
            Filtered::Replaced(batch) => batch,
        };
        let header = BatchHeader::parse(&batch).map_err(|_| input.damaged(place.byte))?;
        let date = match header.record_count {
            0 => dates::of_nothing(head.date),
            _ => dates::of_batch_again(header.max_timestamp, head.date),
        };
        let head = Head {
            kind: FrameKind::Batch,
            more: false,
            body_bytes: batch.len(),
            body_checksum: header.crc,
            date,
            span: entry.span,
            entries: SmallVec::from_buf([FrameEntry {
                records: Selection::All,
                ..entry
            }]),
        };
        self.output.add(&head, &batch)
    }
}

/// Reads and verifies a log's part of a frame, placed.
fn read_part(
    input: &Input,
    place: &IndexEntry,
    buffer: &mut Vec<u8>,
) -> Result<(Head, FrameEntry, Bytes), MergeError> {
    let damaged = || input.damaged(place.byte);
    let (head, body) = read_frame(input, place.byte, u32_of(place.stored_bytes()), buffer)?;
    let entry = *entry_of(&head, place.log, place).ok_or_else(damaged)?;
    let body = match body {
        FrameBody::Read(body) => Bytes::copy_from_slice(body),
        FrameBody::Assembled(body) => body,
    };
    let part = part_of(&body, &head, &entry).ok_or_else(damaged)?;
    Ok((head, entry, part))
}

/// Body of a frame: read, or joined from the chunks of a cut batch.
enum FrameBody<'a> {
    Read(&'a [u8]),
    Assembled(Bytes),
}

impl AsRef<[u8]> for FrameBody<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Read(body) => body,
            Self::Assembled(body) => body,
        }
    }
}

/// Reads and verifies a frame; joins a cut batch.
fn read_frame<'b>(
    input: &Input,
    byte: u32,
    bytes: u32,
    buffer: &'b mut Vec<u8>,
) -> Result<(Head, FrameBody<'b>), MergeError> {
    let damaged = || input.damaged(byte);
    let frame = input.read(byte, bytes, buffer)?;
    let (head, _) = Head::decode(frame).map_err(|_| damaged())?;
    if head.frame_bytes() != frame.len() {
        return Err(damaged());
    }
    if head.kind == FrameKind::Cut {
        let (head, table) = chunk::last_frame(frame).ok_or_else(damaged)?;
        let (head, body) = table.assemble(input.file(), &head).map_err(|error| match error {
            AssembleError::Damaged => damaged(),
            AssembleError::Io(error) => input.unreadable(error),
        })?;
        return Ok((head, FrameBody::Assembled(body)));
    }
    let body = frame.get(head.bytes()..head.bytes() + head.body_bytes);
    let body = body.ok_or_else(damaged)?;
    head.verify_body(body).map_err(|_| damaged())?;
    Ok((head, FrameBody::Read(body)))
}

/// An entry that is ignored by the order of the heap.
struct HeapPayload(IndexEntry);

impl PartialEq for HeapPayload {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for HeapPayload {}

impl PartialOrd for HeapPayload {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HeapPayload {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}
