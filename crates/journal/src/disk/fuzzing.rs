//! Decoders of everything stored, for fuzzing: each takes bytes as from a disk and asserts invariants of the
//! result.
//!
//! Random bytes hardly ever have a valid checksum. The `seal_` functions correct the checksums of hostile
//! bytes, and nothing else, so that the code behind the checks is reached as well.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use stafett_model::batch::{HEADER_BYTES, MAGIC, PLACEMENT_BYTES};
use stafett_model::checksum::{Crc32c, crc32c};
use stafett_model::{LogId, Offset};

use super::checkpoint::{Checkpoint, LogRow, Meta};
use super::codec::{Reader, patch, usize_of};
use super::control::Control;
use super::frame::{ENTRY_BYTES, HEAD_BYTES, Head};
use super::group::{GROUP_HEAD_BYTES, GroupHead};
use super::index::index_segment;
use super::log::Log;
use super::position::{Position, SegmentId};
use super::salvage;
use super::scan::{Chain, LaterMark, scan};
use super::segment::{self, HeadBlock, SEGMENT_HEAD_BYTES, SegmentHead};
use super::sidecar::{self, EntryCursor, Sidecar};
use super::storage::{Storage, StorageFile};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = SEGMENT_HEAD_BYTES;
/// Bytes of it with a meaning.
pub const SEGMENT_FIELDS_BYTES: usize = segment::COVERED.end;
/// Bytes of a block of a sidecar.
pub const SIDECAR_BLOCK_BYTES: usize = sidecar::BLOCK_BYTES;
/// Entries of one row that a target examines.
const ENTRIES_LOOKED_AT: usize = 1000;

/// Checks a frame at the front of `bytes`: its head, and the body behind it.
pub fn frame(bytes: &[u8]) {
    let Ok((head, _)) = Head::decode(bytes) else {
        return;
    };
    let mut again = BytesMut::new();
    head.encode(&mut again);
    assert_eq!(Head::decode(&again).map(|(head, _)| head), Ok(head.clone()));
    assert!(head.frame_bytes() >= head.bytes() + head.body_bytes);
    for entry in &head.entries {
        assert!(entry.end() >= entry.base);
    }
    let body = bytes.get(head.bytes()..).unwrap_or_default();
    let body = body.get(..head.body_bytes).unwrap_or(body);
    let sound = head.verify_body(body).is_ok();
    assert!(!sound || body.len() == head.body_bytes);
}

/// Checks the head of a write group at the front of `bytes`.
pub fn group(bytes: &[u8]) {
    if let Some((head, _)) = GroupHead::decode(bytes) {
        assert!(GroupHead::may_start(bytes));
        let mut again = [0; GROUP_HEAD_BYTES];
        let checksum = head.encode(&mut again);
        assert_eq!(GroupHead::decode(&again), Some((head, checksum)));
    }
}

/// Checks the body of a control frame.
pub fn control(body: &Bytes) {
    if let Some(control) = Control::decode(body) {
        let again = Bytes::from(control.encode());
        assert_eq!(Control::decode(&again), Some(control));
    }
}

/// Checks a row of the checkpoint: as a log's and as the journal's.
pub fn checkpoint_row(bytes: &[u8]) {
    if let Some(row) = LogRow::decode(bytes) {
        let again = encode_row(&row);
        let again = LogRow::decode(&again).expect("what was encoded can be decoded");
        assert_eq!(
            (again.spec, again.start, again.next, again.reserved),
            (row.spec, row.start, row.next, row.reserved)
        );
    }
    if let Some(meta) = Meta::decode(bytes) {
        assert_eq!(Meta::decode(&meta.encode()), Some(meta));
    }
}

/// Returns the checkpoint rows of a stopped journal.
pub fn checkpoint_rows(storage: &Arc<dyn Storage>) -> Vec<Vec<u8>> {
    let checkpoint = Checkpoint::open(Arc::clone(storage)).expect("the checkpoint is sound");
    let mut rows = Vec::new();
    checkpoint
        .for_each_log(|_, row| rows.push(encode_row(&row)))
        .expect("the checkpoint is sound");
    rows.push(checkpoint.meta().expect("the checkpoint is sound").encode());
    rows
}

fn encode_row(row: &LogRow) -> Vec<u8> {
    let log = Log::new(LogId(1), Arc::new(row.spec));
    let mut state = log.lock();
    (state.start, state.next, state.reserved) = (row.start, row.next, row.reserved);
    LogRow::encode(&state)
}

/// Checks a whole segment: its header, its groups, and the index built from them.
pub fn segment(file: &dyn StorageFile) {
    let (id, chain) = start_of(file);
    let mut bytes = 0;
    let mut end = 0;
    let scanned = scan(file, id, 0, chain, |group| {
        assert!(group.byte >= end, "groups lie behind each other");
        end = group.byte + group.head.bytes;
        for frame in &group.frames {
            assert_eq!(frame.head.verify_body(&frame.body), Ok(()));
            assert!(frame.byte > group.byte && frame.byte < end);
            bytes += frame.body.len();
        }
    });
    let scanned = scanned.expect("memory can be read");
    assert!(bytes <= length_of(file), "no byte is in two frames");
    assert!(u64::from(scanned.byte) <= file.bytes().unwrap_or(0).max(SEGMENT_HEAD_BYTES as u64));
    let (indexer, again) = index_segment(file, id, chain).expect("memory can be read");
    assert_eq!(again, scanned);
    let (summary, rows, entries) = indexer.finish();
    assert_eq!(summary.valid_bytes, scanned.byte);
    assert!(rows.len() <= entries.len());
}

/// Checks salvage of a segment from byte `from` on.
pub fn salvage(file: &dyn StorageFile, from: u32, sequence: u64) {
    let (id, _) = start_of(file);
    LaterMark::find(file, id, from, sequence, None).expect("memory can be read");
    let found = salvage::salvage(file, id, from, sequence, None).expect("memory can be read");
    let mut bytes = 0;
    for frame in &found.frames {
        assert!(frame.byte >= from);
        assert_eq!(frame.head.verify_body(&frame.body), Ok(()));
        bytes += frame.body.len();
    }
    assert!(bytes <= length_of(file), "no byte is in two frames");
    for (_, start, end) in &found.lost {
        assert!(start <= end);
    }
    if let Some((byte, _)) = found.resume {
        assert!(byte > from, "it gets further");
    }
}

/// Checks a sidecar of segment 7 with every operation.
pub fn sidecar(file: &Arc<dyn StorageFile>) {
    let Ok(sidecar) = Sidecar::open(&**file, SegmentId(7)) else {
        return;
    };
    let most = length_of(&**file);
    let mut rows = Vec::new();
    let whole = sidecar.for_each_row(|row| rows.push(row)).is_ok();
    assert!(rows.len() <= most, "what is read is no more than what is there");
    assert!(!whole || rows.len() == usize_of(sidecar.summary.rows));
    for row in rows.iter().take(64) {
        assert!(row.first <= row.end);
        for log in [row.log, LogId(row.log.0.wrapping_add(1))] {
            let _ = sidecar.row(log);
        }
        for offset in [row.first, Offset(row.end.0.saturating_sub(1)), Offset(u64::MAX)] {
            let mut seen = 0;
            let _ = sidecar.entries_from(row, offset, |entry| {
                assert!(entry.end() >= entry.base);
                assert!(entry.byte.checked_add(entry.bytes).is_some());
                assert!(entry.head_bytes() <= usize_of(entry.bytes));
                seen += 1;
                seen < ENTRIES_LOOKED_AT
            });
            assert!(seen <= most);
        }
    }
    let mut entries = 0;
    let mut cursor = EntryCursor::new(Arc::clone(file), sidecar.summary);
    while let Ok(Some(_)) = cursor.next() {
        entries += 1;
    }
    assert!(entries <= most, "what is read is no more than what is there");
}

/// Parts of a valid segment: the heads of its groups, its frames, and the bodies of its control frames.
#[derive(Debug, Default)]
pub struct Parts {
    pub groups: Vec<Vec<u8>>,
    pub frames: Vec<Vec<u8>>,
    pub controls: Vec<Vec<u8>>,
    /// Bytes of the segment, header included, that hold groups.
    pub bytes: usize,
}

/// Splits a segment into its parts.
pub fn parts(file: &dyn StorageFile) -> io::Result<Parts> {
    let (id, chain) = start_of(file);
    let mut parts = Parts::default();
    let end = scan(file, id, 0, chain, |group| {
        let mut head = vec![0; GROUP_HEAD_BYTES];
        group.head.encode(&mut head);
        parts.groups.push(head);
        for frame in group.frames {
            let mut bytes = BytesMut::new();
            frame.head.encode(&mut bytes);
            bytes.extend_from_slice(&frame.body);
            if frame.head.entries.is_empty() {
                parts.controls.push(frame.body.to_vec());
            }
            parts.frames.push(bytes.to_vec());
        }
    })?;
    parts.bytes = usize_of(end.byte);
    Ok(parts)
}

/// Corrects the checksums of a frame at the front of `bytes`, as far as it lies in them, and the front of its
/// body that its head determines. Returns the head's checksum and the bytes of the frame.
pub fn seal_frame(bytes: &mut [u8]) -> Option<(u32, usize)> {
    let mut reader = Reader(bytes.get(4..)?);
    let (kind, _flags, count, body_bytes) = (reader.u8()?, reader.u8()?, reader.u16()?, reader.u32()?);
    let body_at = HEAD_BYTES + usize::from(count) * ENTRY_BYTES;
    let body = body_at..body_at.checked_add(usize_of(body_bytes))?;
    let sum = match (kind, bytes.get(body)) {
        (1, Some(body)) if body.len() >= HEADER_BYTES => crc32c(body.get(PLACEMENT_BYTES + 5..)?),
        (2..=4, Some(body)) => crc32c(body),
        _ => 0,
    };
    patch(bytes, 12, &sum.to_le_bytes());
    let checksum = crc32c(bytes.get(4..body_at)?);
    patch(bytes, 0, &checksum.to_le_bytes());
    let (head, _) = Head::decode(bytes).ok()?;
    if kind == 1 && body_bytes as usize >= HEADER_BYTES {
        patch(bytes, body_at, &head.placement());
        patch(bytes, body_at + PLACEMENT_BYTES, &[MAGIC]);
        patch(bytes, body_at + PLACEMENT_BYTES + 1, &sum.to_be_bytes());
    }
    Some((checksum, head.frame_bytes()))
}

/// Corrects the checksum of a group's head.
pub fn seal_group(bytes: &mut [u8]) {
    patch(bytes, 0, b"SGRP");
    if let Some(covered) = bytes.get(8..GROUP_HEAD_BYTES) {
        let checksum = crc32c(covered);
        patch(bytes, 4, &checksum.to_le_bytes());
    }
}

/// Corrects the checksums of a segment's header, frames and groups, and the chain of groups, as far as their
/// lengths lead.
pub fn seal_segment(bytes: &mut [u8]) {
    patch(bytes, 0, b"STAFSEG\0");
    let Some(covered) = bytes.get(segment::COVERED) else {
        return;
    };
    let checksum = crc32c(covered);
    patch(bytes, 8, &checksum.to_le_bytes());
    let HeadBlock::Head(head) = SegmentHead::decode(bytes) else {
        return;
    };
    let (mut sequence, mut previous) = (head.first_sequence.max(1), head.previous);
    let mut at = SEGMENT_HEAD_BYTES;
    while let Some(group) = bytes.get_mut(at..).filter(|rest| rest.len() >= GROUP_HEAD_BYTES) {
        let mut reader = Reader(group);
        let Some((_, length)) = reader.take(12).zip(reader.u32()) else {
            return;
        };
        patch(group, 8, &head.segment.0.to_le_bytes());
        patch(group, 24, &sequence.to_le_bytes());
        patch(group, 32, &previous.to_le_bytes());
        let frames = group
            .get(36..)
            .and_then(|rest| Reader(rest).u32())
            .unwrap_or_default();
        let mut checksums = Crc32c::new();
        let mut frame_at = GROUP_HEAD_BYTES;
        for _ in 0..frames {
            let Some((checksum, bytes)) = group.get_mut(frame_at..).and_then(seal_frame) else {
                break;
            };
            checksums.update(&checksum.to_le_bytes());
            frame_at += bytes;
        }
        patch(group, 56, &checksums.finish().to_le_bytes());
        seal_group(group);
        let Some((_, checksum)) = GroupHead::decode(group) else {
            return;
        };
        previous = checksum;
        let Some(next) = sequence.checked_add(1).filter(|_| length > 0) else {
            return;
        };
        sequence = next;
        at = at.saturating_add(usize_of(length));
    }
}

/// Corrects the checksums of a sidecar's blocks.
pub fn seal_sidecar(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(SIDECAR_BLOCK_BYTES) {
        let checksum = crc32c(block.get(4..).unwrap_or_default());
        patch(block, 0, &checksum.to_le_bytes());
    }
}

/// Arranges a sidecar in blocks: `data` is the header's fields (76 bytes), `rows` rows, and entries, without
/// gaps.
pub fn lay_out_sidecar(data: &[u8], rows: usize) -> Vec<u8> {
    let (header, rest) = data.split_at_checked(76).unwrap_or((data, &[]));
    let (rows, entries) = rest
        .split_at_checked(rows * sidecar::ROW_BYTES)
        .unwrap_or((rest, &[]));
    let mut out = Vec::new();
    let mut block = |content: &[u8]| {
        let start = out.len() + 4;
        out.resize(out.len() + SIDECAR_BLOCK_BYTES, 0);
        patch(&mut out, start, content);
    };
    block(header);
    for chunk in rows.chunks(sidecar::ROW_BYTES * usize_of(sidecar::ROWS_PER_BLOCK)) {
        block(chunk);
    }
    for chunk in entries.chunks(sidecar::INDEX_ENTRY_BYTES * usize_of(sidecar::ENTRIES_PER_BLOCK)) {
        block(chunk);
    }
    seal_sidecar(&mut out);
    out
}

/// Returns the inputs of [`lay_out_sidecar`] for a sidecar.
pub fn fields_of_sidecar(bytes: &[u8]) -> (Vec<u8>, usize) {
    let rows = bytes
        .get(24..28)
        .and_then(|count| Reader(count).u32())
        .unwrap_or(0);
    let entries = bytes
        .get(28..32)
        .and_then(|count| Reader(count).u32())
        .unwrap_or(0);
    let mut out = bytes.get(4..80).unwrap_or_default().to_vec();
    let mut blocks = bytes.chunks(SIDECAR_BLOCK_BYTES).skip(1);
    for (count, each, per_block) in [
        (rows, sidecar::ROW_BYTES, sidecar::ROWS_PER_BLOCK),
        (entries, sidecar::INDEX_ENTRY_BYTES, sidecar::ENTRIES_PER_BLOCK),
    ] {
        let mut left = usize_of(count);
        for block in blocks.by_ref().take(usize_of(count.div_ceil(per_block))) {
            let here = left.min(usize_of(per_block));
            out.extend_from_slice(block.get(4..4 + here * each).unwrap_or_default());
            left -= here;
        }
    }
    (out, usize_of(rows))
}

fn start_of(file: &dyn StorageFile) -> (SegmentId, Chain) {
    let mut block = vec![0; SEGMENT_HEAD_BYTES];
    let got = file.read_at(&mut block, 0).unwrap_or(0);
    block.truncate(got);
    match SegmentHead::decode(&block) {
        HeadBlock::Head(head) => (
            head.segment,
            Chain {
                sequence: head.first_sequence.saturating_sub(1),
                checksum: head.previous,
            },
        ),
        HeadBlock::Nothing | HeadBlock::Newer(_) => (
            Position::default().segment,
            Chain {
                sequence: 0,
                checksum: 0,
            },
        ),
    }
}

fn length_of(file: &dyn StorageFile) -> usize {
    file.bytes()
        .ok()
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(0)
}

/// Returns the starts of the groups and frames of a valid segment, and the end of the last group.
pub fn places(file: &dyn StorageFile) -> io::Result<Vec<u32>> {
    let (id, chain) = start_of(file);
    let mut places = Vec::new();
    let end = scan(file, id, 0, chain, |group| {
        places.push(group.byte);
        places.extend(group.frames.iter().map(|frame| frame.byte));
    })?;
    places.push(end.byte);
    Ok(places)
}
