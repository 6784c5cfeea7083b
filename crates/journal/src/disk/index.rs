//! Builds the index of a segment by scanning it: for the segment that was being written at the last stop, and
//! for damaged or missing sidecars.

use std::io;

use super::chunk::Chunks;
use super::codec::u32_of;
use super::frame::FrameKind;
use super::position::SegmentId;
use super::scan::{Chain, ScanEnd, ScannedFrame, ScannedGroup, scan};
use super::segment::SEGMENT_HEAD_BYTES;
use super::sidecar::{IndexEntry, Row, Summary, rows_of};
use super::storage::StorageFile;

/// An index under construction.
#[derive(Debug)]
pub(crate) struct Indexer {
    pub(crate) summary: Summary,
    pub(crate) entries: Vec<IndexEntry>,
    chunks: Chunks,
}

impl Indexer {
    /// Starts the index of a segment whose first group follows `chain`.
    pub(crate) fn new(segment: SegmentId, chain: Chain) -> Self {
        let summary = Summary {
            segment,
            valid_bytes: u32_of(SEGMENT_HEAD_BYTES),
            rows: 0,
            entries: 0,
            first_sequence: chain.sequence + 1,
            last_sequence: chain.sequence,
            last_checksum: chain.checksum,
            date: i64::MIN,
            control_bytes: 0,
            runs: 0,
        };
        Self {
            summary,
            entries: Vec::new(),
            chunks: Chunks::default(),
        }
    }

    /// Indexes the frames of a group. False if a chunk of one of them is missing.
    pub(crate) fn group(&mut self, group: &ScannedGroup) -> bool {
        let mut whole = true;
        for frame in &group.frames {
            let is_whole = self.is_whole(frame);
            if is_whole {
                self.frame(frame);
            }
            whole &= is_whole;
        }
        whole
    }

    /// Returns true if all chunks of a frame's batch precede it; records the frame if it is a chunk itself.
    pub(crate) fn is_whole(&mut self, frame: &ScannedFrame) -> bool {
        self.chunks.note(frame.byte, &frame.head, &frame.body)
    }

    /// Indexes a whole frame.
    pub(crate) fn frame(&mut self, frame: &ScannedFrame) {
        if frame.head.kind == FrameKind::Control {
            self.summary.control_bytes += frame.head.frame_bytes() as u64;
        }
        for entry in &frame.head.entries {
            self.summary.date = self.summary.date.max(frame.head.date);
            self.entries
                .push(IndexEntry::of(&frame.head, entry, &frame.body, frame.byte));
        }
    }

    /// Sets the end of the last valid group.
    pub(crate) fn end(&mut self, end: &ScanEnd) {
        self.summary.valid_bytes = end.byte;
        self.summary.last_sequence = end.chain.sequence;
        self.summary.last_checksum = end.chain.checksum;
    }

    /// Returns the sorted entries and their rows.
    pub(crate) fn finish(mut self) -> (Summary, Vec<Row>, Vec<IndexEntry>) {
        self.summary.runs = count_runs(&self.entries);
        sort(&mut self.entries);
        let rows = rows_of(&self.entries);
        (self.summary, rows, self.entries)
    }
}

/// Counts the runs of consecutive entries of one log, in stored order.
pub(crate) fn count_runs(entries: &[IndexEntry]) -> u32 {
    let switches = entries
        .iter()
        .zip(entries.iter().skip(1))
        .filter(|(one, next)| one.log != next.log)
        .count();
    u32_of(switches) + u32::from(!entries.is_empty())
}

/// Sorts entries into sidecar order.
pub(crate) fn sort(entries: &mut [IndexEntry]) {
    // Arrival order is offset order within a log: a stable sort by log would be enough for arrival segments.
    entries.sort_by_key(|entry| (entry.log, entry.base));
}

/// Scans a whole segment for its index.
pub(crate) fn index_segment(
    file: &dyn StorageFile,
    segment: SegmentId,
    chain: Chain,
) -> io::Result<(Indexer, ScanEnd)> {
    let mut indexer = Indexer::new(segment, chain);
    let end = scan(file, segment, 0, chain, |group| {
        indexer.group(&group);
    })?;
    indexer.end(&end);
    Ok((indexer, end))
}
