//! Sidecars: the sorted index of a segment that gets no more groups. All numbers little-endian.
//!
//! The file consists of blocks of 4,096 bytes, each beginning with the checksum of the rest of it. The first
//! is the header; then follow the rows, one per log, sorted; then the entries, sorted by log and base offset.
//! A search reads single blocks: no index of a sealed segment is kept in memory.
//!
//! ```text
//! header  4 8 bytes "STAFIDX\0", 12 u32 version, 16 u32 segment, 20 u32 valid bytes of the segment,
//!         24 u32 rows, 28 u32 entries, 32 u64 first sequence, 40 u64 last sequence, 48 u32 checksum of the
//!         last group, 52 u32 0, 56 i64 latest date, 64 u64 bytes in control frames,
//!         72 u32 runs of consecutive frames of one log
//! row     0 u64 log, 8 u64 first offset, 16 u64 end offset, 24 u64 bytes, 32 i64 latest date (`dates.rs`),
//!         40 u32 first entry, 44 u32 entries
//! entry   0 u64 log, 8 u64 base offset, 16 u32 span, 20 u32 byte in the segment, 24 u32 bytes of the frame
//!         (cut batch: the byte of its last frame, and the bytes that its frame would have uncut),
//!         28 u16 entries of the frame, 30 u16 chunks of the body, 0 if not cut; top bit: stored as the log's
//!         readers get it, 32 i64 date
//! ```
//!
//! It is written under a temporary name, synced, and renamed: an existing sidecar is complete, or damaged.
//!
//! Length: one structure on disk, its writer beside its readers.

use std::io::{self, IoSlice};
use std::sync::Arc;

use stafett_model::checksum::crc32c;
use stafett_model::{LogId, Offset};

use super::chunk::{CHUNKS_MAX, Table, table_bytes};
use super::codec::{Reader, patch, u32_of, usize_of};
use super::frame::{ENTRY_BYTES, FrameEntry, FrameKind, HEAD_BYTES, Head, frame_bytes};
use super::group::SEQUENCE_MAX;
use super::position::SegmentId;
use super::segment::FORMAT_VERSION;
use super::storage::{Storage, StorageFile, read_exact_at};

const MAGIC: [u8; 8] = *b"STAFIDX\0";
pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const ROW_BYTES: usize = 48;
pub(crate) const INDEX_ENTRY_BYTES: usize = 40;
pub(crate) const ROWS_PER_BLOCK: u32 = 85;
pub(crate) const ENTRIES_PER_BLOCK: u32 = 102;
const PLACED_BIT: u16 = 1 << 15;

/// Index entry for one log's part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) log: LogId,
    pub(crate) base: Offset,
    pub(crate) span: u32,
    pub(crate) byte: u32,
    pub(crate) bytes: u32,
    /// Entries of the frame; at least one.
    pub(crate) entries: u16,
    /// Chunks of the body; 0 if it is not cut. Otherwise `byte` is the start of its last frame, and `bytes`
    /// the size that the frame would have uncut.
    pub(crate) chunks: u16,
    /// True if the body is stored as the log's readers get it.
    pub(crate) placed: bool,
    pub(crate) date: i64,
}

/// Summary of one log in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) log: LogId,
    pub(crate) first: Offset,
    pub(crate) end: Offset,
    pub(crate) bytes: u64,
    pub(crate) date: i64,
    pub(crate) entry_first: u32,
    pub(crate) entry_count: u32,
}

/// Summary of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) segment: SegmentId,
    /// Bytes of the segment, header included, that hold groups.
    pub(crate) valid_bytes: u32,
    pub(crate) rows: u32,
    pub(crate) entries: u32,
    pub(crate) first_sequence: u64,
    pub(crate) last_sequence: u64,
    pub(crate) last_checksum: u32,
    pub(crate) date: i64,
    pub(crate) control_bytes: u64,
    /// Number of runs of consecutive frames of one log.
    pub(crate) runs: u32,
}

/// Reason why a sidecar cannot be used. It can be rebuilt from its segment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SidecarError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("block {0} is damaged")]
    Damaged(u32),
    #[error("it is of format {0}, which a later version of this program wrote")]
    Newer(u32),
}

impl IndexEntry {
    /// Builds the entry for one log's part of a frame that starts at `byte`.
    pub(crate) fn of(head: &Head, entry: &FrameEntry, body: &[u8], byte: u32) -> Self {
        let table = match head.kind {
            FrameKind::Cut => Table::decode(body),
            FrameKind::Batch | FrameKind::Control | FrameKind::Chunk => None,
        };
        let bytes = match &table {
            Some(table) => frame_bytes(head.entries.len(), table.batch_bytes()),
            None => head.frame_bytes(),
        };
        Self {
            log: entry.log,
            base: entry.base,
            span: entry.span,
            byte,
            bytes: u32_of(bytes),
            entries: u16::try_from(head.entries.len()).unwrap_or(u16::MAX),
            chunks: table.map_or(0, |table| u16::try_from(table.places.len()).unwrap_or(0)),
            placed: head.is_placed(),
            date: head.date,
        }
    }

    pub(crate) fn end(&self) -> Offset {
        Offset(self.base.0 + u64::from(self.span))
    }

    /// Returns the bytes of the frame before its body.
    pub(crate) fn head_bytes(&self) -> usize {
        HEAD_BYTES + usize::from(self.entries) * ENTRY_BYTES
    }

    /// Returns the bytes of the frame at `byte`: the whole one, or the last one of a cut batch.
    pub(crate) fn stored_bytes(&self) -> usize {
        match self.chunks {
            0 => usize_of(self.bytes),
            chunks => frame_bytes(self.entries.into(), table_bytes(chunks.into())),
        }
    }

    fn encode(&self, out: &mut [u8], at: usize) {
        patch(out, at, &self.log.0.to_le_bytes());
        patch(out, at + 8, &self.base.0.to_le_bytes());
        patch(out, at + 16, &self.span.to_le_bytes());
        patch(out, at + 20, &self.byte.to_le_bytes());
        patch(out, at + 24, &self.bytes.to_le_bytes());
        patch(out, at + 28, &self.entries.to_le_bytes());
        let chunks = self.chunks | if self.placed { PLACED_BIT } else { 0 };
        patch(out, at + 30, &chunks.to_le_bytes());
        patch(out, at + 32, &self.date.to_le_bytes());
    }

    /// Decodes an entry; `None` also if no frame can have it: calculations with an entry never overflow.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let (log, base) = (LogId(reader.u64()?), Offset(reader.u64()?));
        let (span, byte, bytes) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (entries, chunks) = (reader.u16()?, reader.u16()?);
        let entry = Self {
            log,
            base,
            span,
            byte,
            bytes,
            entries,
            chunks: chunks & !PLACED_BIT,
            placed: chunks & PLACED_BIT != 0,
            date: reader.i64()?,
        };
        let possible = base.checked_add(span.into()).is_some()
            && byte.checked_add(bytes).is_some()
            && entries > 0
            && entry.head_bytes() <= usize_of(bytes)
            && usize::from(entry.chunks) <= CHUNKS_MAX
            && entry.byte.checked_add(u32_of(entry.stored_bytes())).is_some();
        possible.then_some(entry)
    }
}

impl Row {
    fn encode(&self, out: &mut [u8], at: usize) {
        patch(out, at, &self.log.0.to_le_bytes());
        patch(out, at + 8, &self.first.0.to_le_bytes());
        patch(out, at + 16, &self.end.0.to_le_bytes());
        patch(out, at + 24, &self.bytes.to_le_bytes());
        patch(out, at + 32, &self.date.to_le_bytes());
        patch(out, at + 40, &self.entry_first.to_le_bytes());
        patch(out, at + 44, &self.entry_count.to_le_bytes());
    }

    /// Decodes a row; `None` also if no entries can have it: calculations with a row never overflow.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let row = Self {
            log: LogId(reader.u64()?),
            first: Offset(reader.u64()?),
            end: Offset(reader.u64()?),
            bytes: reader.u64()?,
            date: reader.i64()?,
            entry_first: reader.u32()?,
            entry_count: reader.u32()?,
        };
        let possible = row.first <= row.end
            && Offset::ZERO.checked_add(row.end.0).is_some()
            && row.entry_first.checked_add(row.entry_count).is_some()
            && row.bytes <= u64::from(row.entry_count) * u64::from(u32::MAX);
        possible.then_some(row)
    }
}

/// Builds the rows of sorted entries: one per log.
pub(crate) fn rows_of(entries: &[IndexEntry]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        match rows.last_mut().filter(|row| row.log == entry.log) {
            Some(row) => {
                row.end = row.end.max(entry.end());
                row.bytes += u64::from(entry.bytes);
                row.date = row.date.max(entry.date);
                row.entry_count += 1;
            }
            None => rows.push(Row {
                log: entry.log,
                first: entry.base,
                end: entry.end(),
                bytes: u64::from(entry.bytes),
                date: entry.date,
                entry_first: u32_of(index),
                entry_count: 1,
            }),
        }
    }
    rows
}

/// Writes a sidecar of `entries`, which must be sorted by log and base offset, and returns its summary.
pub(crate) fn write(
    storage: &dyn Storage,
    name: &str,
    mut summary: Summary,
    rows: &[Row],
    entries: &[IndexEntry],
) -> io::Result<Summary> {
    summary.rows = u32_of(rows.len());
    summary.entries = u32_of(entries.len());
    let temporary = format!("{name}.tmp");
    let _ = storage.remove(&temporary);
    let written = write_file(storage, &temporary, summary, rows, entries);
    if let Err(error) = written.and_then(|()| storage.rename(&temporary, name)) {
        // The remainder would take space that may be needed.
        let _ = storage.remove(&temporary);
        return Err(error);
    }
    Ok(summary)
}

fn write_file(
    storage: &dyn Storage,
    name: &str,
    summary: Summary,
    rows: &[Row],
    entries: &[IndexEntry],
) -> io::Result<()> {
    let file = storage.create(name)?;
    let mut out = BlockWriter {
        file: &*file,
        pending: Vec::with_capacity(64 * BLOCK_BYTES),
        at: 0,
    };
    out.block(|block| summary.encode(block))?;
    for chunk in rows.chunks(usize_of(ROWS_PER_BLOCK)) {
        out.block(|block| {
            for (index, row) in chunk.iter().enumerate() {
                row.encode(block, 4 + index * ROW_BYTES);
            }
        })?;
    }
    for chunk in entries.chunks(usize_of(ENTRIES_PER_BLOCK)) {
        out.block(|block| {
            for (index, entry) in chunk.iter().enumerate() {
                entry.encode(block, 4 + index * INDEX_ENTRY_BYTES);
            }
        })?;
    }
    out.flush()?;
    file.sync()
}

struct BlockWriter<'a> {
    file: &'a dyn StorageFile,
    pending: Vec<u8>,
    at: u64,
}

impl BlockWriter<'_> {
    fn block(&mut self, fill: impl FnOnce(&mut [u8])) -> io::Result<()> {
        let start = self.pending.len();
        self.pending.resize(start + BLOCK_BYTES, 0);
        let block = self.pending.get_mut(start..).unwrap_or_default();
        fill(block);
        let checksum = crc32c(block.get(4..).unwrap_or_default());
        patch(block, 0, &checksum.to_le_bytes());
        if self.pending.len() >= 64 * BLOCK_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file.write_at(&mut [IoSlice::new(&self.pending)], self.at)?;
        self.at += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

impl Summary {
    fn encode(&self, out: &mut [u8]) {
        patch(out, 4, &MAGIC);
        patch(out, 12, &FORMAT_VERSION.to_le_bytes());
        patch(out, 16, &self.segment.0.to_le_bytes());
        patch(out, 20, &self.valid_bytes.to_le_bytes());
        patch(out, 24, &self.rows.to_le_bytes());
        patch(out, 28, &self.entries.to_le_bytes());
        patch(out, 32, &self.first_sequence.to_le_bytes());
        patch(out, 40, &self.last_sequence.to_le_bytes());
        patch(out, 48, &self.last_checksum.to_le_bytes());
        patch(out, 56, &self.date.to_le_bytes());
        patch(out, 64, &self.control_bytes.to_le_bytes());
        patch(out, 72, &self.runs.to_le_bytes());
    }

    fn decode(block: &[u8]) -> Option<Result<Self, SidecarError>> {
        let mut reader = Reader(block.get(4..)?);
        if reader.take(8)? != MAGIC {
            return None;
        }
        let version = reader.u32()?;
        if version > FORMAT_VERSION {
            return Some(Err(SidecarError::Newer(version)));
        }
        let segment = SegmentId(reader.u32()?);
        let (valid_bytes, rows, entries) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (first_sequence, last_sequence) = (reader.u64()?, reader.u64()?);
        let (last_checksum, _zero) = (reader.u32()?, reader.u32()?);
        let (date, control_bytes, runs) = (reader.i64()?, reader.u64()?, reader.u32()?);
        if last_sequence > SEQUENCE_MAX || control_bytes > valid_bytes.into() {
            return None;
        }
        Some(Ok(Self {
            segment,
            valid_bytes,
            rows,
            entries,
            first_sequence,
            last_sequence,
            last_checksum,
            date,
            control_bytes,
            runs,
        }))
    }
}

/// A sidecar opened for reading.
#[derive(Debug)]
pub(crate) struct Sidecar<'a> {
    file: &'a dyn StorageFile,
    pub(crate) summary: Summary,
}

type Block = [u8; BLOCK_BYTES];

impl<'a> Sidecar<'a> {
    pub(crate) fn open(file: &'a dyn StorageFile, segment: SegmentId) -> Result<Self, SidecarError> {
        let block = read_block(file, 0)?;
        let summary = Summary::decode(&block).ok_or(SidecarError::Damaged(0))??;
        if summary.segment != segment {
            return Err(SidecarError::Damaged(0));
        }
        Ok(Self { file, summary })
    }

    /// Visits every row.
    pub(crate) fn for_each_row(&self, mut visit: impl FnMut(Row)) -> Result<(), SidecarError> {
        let mut left = self.summary.rows;
        let mut number = 1;
        while left > 0 {
            let block = read_block(self.file, number)?;
            for index in 0..left.min(ROWS_PER_BLOCK) {
                visit(row_at(&block, index).ok_or(SidecarError::Damaged(number))?);
            }
            left = left.saturating_sub(ROWS_PER_BLOCK);
            number += 1;
        }
        Ok(())
    }

    /// Returns the row of a log.
    pub(crate) fn row(&self, log: LogId) -> Result<Option<Row>, SidecarError> {
        let mut cached = None;
        let (mut low, mut high) = (0, self.summary.rows);
        while low < high {
            let middle = low.midpoint(high);
            let row = self.row_number(middle, &mut cached)?;
            match row.log.cmp(&log) {
                std::cmp::Ordering::Equal => return Ok(Some(row)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// Visits the entries of a row in order, from the first that ends behind `offset`, until `visit` returns
    /// false.
    pub(crate) fn entries_from(
        &self,
        row: &Row,
        offset: Offset,
        mut visit: impl FnMut(IndexEntry) -> bool,
    ) -> Result<(), SidecarError> {
        let mut cached = None;
        let end = row.entry_first + row.entry_count;
        let (mut low, mut high) = (row.entry_first, end);
        while low < high {
            let middle = low.midpoint(high);
            if self.entry_number(middle, &mut cached)?.end() > offset {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        for number in low..end {
            if !visit(self.entry_number(number, &mut cached)?) {
                break;
            }
        }
        Ok(())
    }

    fn row_number(&self, number: u32, cached: &mut Option<(u32, Box<Block>)>) -> Result<Row, SidecarError> {
        let block = 1 + number / ROWS_PER_BLOCK;
        row_at(self.cached(block, cached)?, number % ROWS_PER_BLOCK).ok_or(SidecarError::Damaged(block))
    }

    fn entry_number(
        &self,
        number: u32,
        cached: &mut Option<(u32, Box<Block>)>,
    ) -> Result<IndexEntry, SidecarError> {
        let block = 1 + self.summary.rows.div_ceil(ROWS_PER_BLOCK) + number / ENTRIES_PER_BLOCK;
        let at = 4 + usize_of(number % ENTRIES_PER_BLOCK) * INDEX_ENTRY_BYTES;
        self.cached(block, cached)?
            .get(at..)
            .and_then(IndexEntry::decode)
            .ok_or(SidecarError::Damaged(block))
    }

    fn cached<'b>(
        &self,
        number: u32,
        cached: &'b mut Option<(u32, Box<Block>)>,
    ) -> Result<&'b Block, SidecarError> {
        let (known, block) = cached.get_or_insert_with(|| (u32::MAX, Box::new([0; BLOCK_BYTES])));
        if *known != number {
            *known = u32::MAX;
            read_block_into(self.file, number, block)?;
            *known = number;
        }
        Ok(block)
    }
}

/// Cursor over all entries of a sidecar in order, one block at a time.
#[derive(Debug)]
pub(crate) struct EntryCursor {
    file: Arc<dyn StorageFile>,
    summary: Summary,
    next: u32,
    cached: Option<(u32, Box<Block>)>,
}

impl EntryCursor {
    pub(crate) fn new(file: Arc<dyn StorageFile>, summary: Summary) -> Self {
        Self {
            file,
            summary,
            next: 0,
            cached: None,
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<IndexEntry>, SidecarError> {
        if self.next == self.summary.entries {
            return Ok(None);
        }
        let sidecar = Sidecar {
            file: &*self.file,
            summary: self.summary,
        };
        let entry = sidecar.entry_number(self.next, &mut self.cached)?;
        self.next += 1;
        Ok(Some(entry))
    }
}

fn row_at(block: &Block, index: u32) -> Option<Row> {
    block.get(4 + usize_of(index) * ROW_BYTES..).and_then(Row::decode)
}

fn read_block(file: &dyn StorageFile, number: u32) -> Result<Block, SidecarError> {
    let mut block = [0; BLOCK_BYTES];
    read_block_into(file, number, &mut block)?;
    Ok(block)
}

fn read_block_into(file: &dyn StorageFile, number: u32, block: &mut Block) -> Result<(), SidecarError> {
    match read_exact_at(file, block, u64::from(number) * BLOCK_BYTES as u64) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(SidecarError::Damaged(number));
        }
        Err(error) => return Err(error.into()),
    }
    let (checksum, covered) = block.split_at(4);
    if checksum == crc32c(covered).to_le_bytes() {
        Ok(())
    } else {
        Err(SidecarError::Damaged(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::os_storage::Directory;

    fn entries(logs: u64, per_log: u64) -> Vec<IndexEntry> {
        let entry = |log, n| IndexEntry {
            log: LogId(log),
            base: Offset(n * 10),
            span: 5,
            byte: 4096,
            bytes: 100,
            entries: 1,
            chunks: u16::try_from(n % 3).unwrap(),
            placed: true,
            date: i64::try_from(n).unwrap(),
        };
        (0..logs)
            .flat_map(|log| (0..per_log).map(move |n| entry(log * 3, n)))
            .collect()
    }

    fn summary() -> Summary {
        Summary {
            segment: SegmentId(7),
            valid_bytes: 9,
            rows: 0,
            entries: 0,
            first_sequence: 1,
            last_sequence: 2,
            last_checksum: 3,
            date: 4,
            control_bytes: 5,
            runs: 6,
        }
    }

    #[test]
    fn sidecars_of_every_size_read_back_also_those_that_fill_their_buffer() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Directory::open(directory.path()).unwrap();
        // 63 blocks behind the header fill the write buffer to the byte: 21 of rows, 42 of entries.
        for (logs, per_log) in [
            (0, 0),
            (1, 1),
            (85, 2),
            (21 * 85, 42 * 102 / (21 * 85)),
            (1785, 2),
            (300, 30),
        ] {
            let entries = entries(logs, per_log);
            let rows = rows_of(&entries);
            let written = write(&storage, "x.idx", summary(), &rows, &entries).unwrap();
            let file = storage.open("x.idx").unwrap();
            let sidecar = Sidecar::open(&*file, SegmentId(7)).unwrap();
            assert_eq!(sidecar.summary, written);
            let mut read = Vec::new();
            sidecar.for_each_row(|row| read.push(row)).unwrap();
            assert_eq!(read, rows);
            let mut cursor = EntryCursor::new(file.clone(), written);
            let mut read = Vec::new();
            while let Some(entry) = cursor.next().unwrap() {
                read.push(entry);
            }
            assert_eq!(read, entries);
        }
    }

    #[test]
    fn what_no_frames_can_have_is_damage_though_the_checksums_hold() {
        type Change = fn(&mut Summary, &mut Row, &mut IndexEntry);
        let changes: [Change; 10] = [
            |summary, _, _| summary.last_sequence = u64::MAX,
            |summary, _, _| summary.control_bytes = u64::MAX,
            |_, row, _| row.first = Offset(row.end.0 + 1),
            |_, row, _| row.end = Offset(1 << 63),
            |_, row, _| row.entry_first = u32::MAX,
            |_, row, _| row.bytes = u64::MAX,
            |_, _, entry| entry.base = Offset(u64::MAX),
            |_, _, entry| entry.byte = u32::MAX,
            |_, _, entry| entry.entries = 0,
            |_, _, entry| entry.entries = 9,
        ];
        let directory = tempfile::tempdir().unwrap();
        let storage = Directory::open(directory.path()).unwrap();
        for (number, change) in changes.iter().enumerate() {
            let mut entries = entries(1, 1);
            let (mut summary, mut rows) = (summary(), rows_of(&entries));
            change(&mut summary, &mut rows[0], &mut entries[0]);
            write(&storage, "x.idx", summary, &rows, &entries).unwrap();
            let file = storage.open("x.idx").unwrap();
            let read = Sidecar::open(&*file, SegmentId(7)).and_then(|sidecar| {
                sidecar.for_each_row(|_| ())?;
                EntryCursor::new(file.clone(), sidecar.summary).next()
            });
            assert!(matches!(read, Err(SidecarError::Damaged(_))), "change {number}");
        }
    }

    #[test]
    fn a_search_finds_the_batch_that_holds_an_offset_or_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Directory::open(directory.path()).unwrap();
        let entries = entries(200, 7);
        write(&storage, "x.idx", summary(), &rows_of(&entries), &entries).unwrap();
        let file = storage.open("x.idx").unwrap();
        let sidecar = Sidecar::open(&*file, SegmentId(7)).unwrap();
        assert_eq!(sidecar.row(LogId(1)).unwrap(), None);
        let row = sidecar.row(LogId(99)).unwrap().unwrap();
        for (offset, expected) in [
            (0, Some(0)),
            (4, Some(0)),
            (5, Some(10)),
            (63, Some(60)),
            (65, None),
        ] {
            let mut found = None;
            let visit = |entry: IndexEntry| {
                found = Some(entry.base.0);
                false
            };
            sidecar.entries_from(&row, Offset(offset), visit).unwrap();
            assert_eq!(found, expected, "offset {offset}");
        }
    }

    #[test]
    fn every_flipped_bit_is_damage() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Directory::open(directory.path()).unwrap();
        let entries = entries(3, 3);
        write(&storage, "x.idx", summary(), &rows_of(&entries), &entries).unwrap();
        let path = directory.path().join("x.idx");
        let whole = std::fs::read(&path).unwrap();
        for bit in (0..whole.len() * 8).step_by(97) {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, &damaged).unwrap();
            let file = storage.open("x.idx").unwrap();
            let read = Sidecar::open(&*file, SegmentId(7)).and_then(|sidecar| {
                sidecar.for_each_row(|_| ())?;
                let mut cursor = EntryCursor::new(file.clone(), sidecar.summary);
                while cursor.next()?.is_some() {}
                Ok(())
            });
            assert!(read.is_err(), "bit {bit}");
        }
    }
}
