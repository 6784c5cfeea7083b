//! Cut batches: a batch larger than a write group is written ahead in chunks, frames of their own, so that
//! other appends do not wait behind a large message. Frames of other logs may stand between them. The batch
//! exists once its last frame does, which has its entries and lists its chunks: all of them lie before it, in
//! the same segment.
//!
//! ```text
//! chunk        a frame without entries whose body is a part of the batch
//! last frame   entries as of any batch; its body is this table, all numbers little-endian:
//!   0  61 bytes  the batch's header, with the placement that it would have uncut
//!  61  3 zeros
//!  64  per chunk, in order: u32 byte of the segment where its frame starts, u32 bytes of the batch in it
//! ```
//!
//! Only in arrival segments: rewriting joins the chunks.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use stafett_model::BatchHeader;
use stafett_model::batch::{HEADER_BYTES, PLACEMENT_BYTES};
use stafett_model::checksum::crc32c;

use super::codec::{Reader, u32_of, usize_of};
use super::frame::{FrameKind, HEAD_BYTES, Head, frame_bytes};
use super::group::GROUP_HEAD_BYTES;
use super::storage::{StorageFile, read_exact_at};
use super::write_queue::StagedFrame;

const PLACES_AT: usize = 64;
const PLACE_BYTES: usize = 8;
/// Limit given by the width in an index entry. A larger table is rejected as invalid.
pub(crate) const CHUNKS_MAX: usize = (1 << 14) - 1;

/// Segment size limit.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// Place of a chunk: start of its frame in the segment, and bytes of the batch in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkLocation {
    pub(crate) byte: u32,
    pub(crate) bytes: u32,
}

/// Body of the last frame of a cut batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) front: [u8; HEADER_BYTES],
    pub(crate) places: SmallVec<[ChunkLocation; 4]>,
}

/// Reason why the chunks of a batch cannot be joined.
#[derive(Debug)]
pub(crate) enum AssembleError {
    Damaged,
    Io(std::io::Error),
}

/// Returns the bytes of a table of `chunks` chunks.
pub(crate) fn table_bytes(chunks: usize) -> usize {
    PLACES_AT + chunks * PLACE_BYTES
}

/// Returns the number of chunks in a table of `bytes` bytes.
pub(crate) fn count_of_table(bytes: usize) -> usize {
    bytes.saturating_sub(PLACES_AT) / PLACE_BYTES
}

/// Returns the number of chunks of a body.
pub(crate) fn count(body_bytes: usize, chunk_bytes: usize) -> usize {
    body_bytes.saturating_sub(HEADER_BYTES).div_ceil(chunk_bytes)
}

/// Returns the segment space that the chunks of a body take, each in a write group of its own.
pub(crate) fn ahead_bytes(body_bytes: usize, chunk_bytes: usize) -> usize {
    let behind = body_bytes.saturating_sub(HEADER_BYTES);
    let (whole, rest) = (behind / chunk_bytes, behind % chunk_bytes);
    let one = |bytes| GROUP_HEAD_BYTES + frame_bytes(0, bytes);
    whole * one(chunk_bytes) + if rest > 0 { one(rest) } else { 0 }
}

/// Cuts a body into the frames that precede its last one.
pub(crate) fn cut(body: &Bytes, chunk_bytes: usize) -> impl Iterator<Item = StagedFrame> {
    (HEADER_BYTES..body.len()).step_by(chunk_bytes).map(move |from| {
        let chunk = body.slice(from..body.len().min(from + chunk_bytes));
        let head = Head {
            kind: FrameKind::Chunk,
            more: false,
            body_bytes: chunk.len(),
            body_checksum: crc32c(&chunk),
            date: 0,
            span: 0,
            entries: SmallVec::new(),
        };
        StagedFrame {
            head,
            body: chunk,
            logs: SmallVec::new(),
            control: None,
            reserves: None,
        }
    })
}

impl Table {
    /// Builds the table of a last frame. `front` is the batch's header as appended.
    pub(crate) fn new(head: &Head, front: &[u8], places: SmallVec<[ChunkLocation; 4]>) -> Self {
        let mut table = Self {
            front: [0; HEADER_BYTES],
            places,
        };
        if let Some(front) = front.first_chunk() {
            table.front = *front;
        }
        let plain = table.plain(head).placement();
        if let Some(place) = table.front.first_chunk_mut::<PLACEMENT_BYTES>() {
            *place = plain;
        }
        table
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(table_bytes(self.places.len()));
        out.extend_from_slice(&self.front);
        out.resize(PLACES_AT, 0);
        for place in &self.places {
            out.extend_from_slice(&place.byte.to_le_bytes());
            out.extend_from_slice(&place.bytes.to_le_bytes());
        }
        out.freeze()
    }

    /// Decodes the body of a last frame whose checksum is valid. `None` if no batch can have such chunks.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let front = *reader.take(HEADER_BYTES)?.first_chunk()?;
        reader.take(PLACES_AT - HEADER_BYTES)?;
        if reader.0.len() / PLACE_BYTES > CHUNKS_MAX {
            return None;
        }
        let mut places = SmallVec::new();
        let mut bytes = HEADER_BYTES;
        while !reader.0.is_empty() {
            let place = ChunkLocation {
                byte: reader.u32()?,
                bytes: reader.u32()?,
            };
            place
                .byte
                .checked_add(u32_of(HEAD_BYTES))?
                .checked_add(place.bytes)?;
            bytes = bytes.checked_add(usize_of(place.bytes))?;
            places.push(place);
        }
        let header = BatchHeader::parse(&front).ok()?;
        (header.bytes == bytes && bytes <= BATCH_BYTES_MAX).then_some(Self { front, places })
    }

    /// Returns the bytes of the whole batch.
    pub(crate) fn batch_bytes(&self) -> usize {
        HEADER_BYTES
            + self
                .places
                .iter()
                .map(|place| usize_of(place.bytes))
                .sum::<usize>()
    }

    /// Returns the head that the frame would have if its body were not cut.
    pub(crate) fn plain(&self, head: &Head) -> Head {
        let checksum = self.front.get(PLACEMENT_BYTES + 1..PLACEMENT_BYTES + 5);
        let checksum = checksum.and_then(|bytes| bytes.first_chunk().copied());
        Head {
            kind: FrameKind::Batch,
            body_bytes: self.batch_bytes(),
            body_checksum: u32::from_be_bytes(checksum.unwrap_or_default()),
            ..head.clone()
        }
    }

    /// Joins the batch from its segment and verifies it; returns it with the head that it would have uncut.
    pub(crate) fn assemble(
        &self,
        file: &dyn StorageFile,
        head: &Head,
    ) -> Result<(Head, Bytes), AssembleError> {
        // Memory is allocated only after the file is known to contain the ranges of a possibly damaged table.
        let there = file.bytes().map_err(AssembleError::Io)?;
        let plain = self.plain(head);
        let is_there = |place: &ChunkLocation| {
            u64::from(place.byte) + HEAD_BYTES as u64 + u64::from(place.bytes) <= there
        };
        if plain.body_bytes as u64 > there || !self.places.iter().all(is_there) {
            return Err(AssembleError::Damaged);
        }
        let mut batch = BytesMut::zeroed(plain.body_bytes);
        let (front, mut rest) = batch.split_at_mut(HEADER_BYTES);
        front.copy_from_slice(&self.front);
        for place in &self.places {
            let Some((chunk, behind)) = rest.split_at_mut_checked(usize_of(place.bytes)) else {
                return Err(AssembleError::Damaged);
            };
            let at = u64::from(place.byte) + HEAD_BYTES as u64;
            read_exact_at(file, chunk, at).map_err(AssembleError::Io)?;
            rest = behind;
        }
        plain.verify_body(&batch).map_err(|_| AssembleError::Damaged)?;
        Ok((plain, batch.freeze()))
    }
}

/// Decodes the last frame of a cut batch at the front of `bytes`; `None` unless head and table are valid.
pub(crate) fn last_frame(bytes: &[u8]) -> Option<(Head, Table)> {
    let (head, _) = Head::decode(bytes).ok()?;
    let body = bytes.get(head.bytes()..head.bytes() + head.body_bytes)?;
    let sound = head.kind == FrameKind::Cut && head.verify_body(body).is_ok();
    Some((head, Table::decode(body).filter(|_| sound)?))
}

/// Valid chunks of a segment being scanned.
#[derive(Debug, Default)]
pub(crate) struct Chunks(HashMap<u32, u32>);

impl Chunks {
    /// Records a valid frame that starts at `byte`. False if it is the last frame of a batch with a missing
    /// chunk.
    pub(crate) fn note(&mut self, byte: u32, head: &Head, body: &[u8]) -> bool {
        match head.kind {
            FrameKind::Chunk => drop(self.0.insert(byte, u32_of(head.body_bytes))),
            FrameKind::Cut => {
                let is_known = |place: &ChunkLocation| self.0.get(&place.byte) == Some(&place.bytes);
                return Table::decode(body).is_some_and(|table| table.places.iter().all(is_known));
            }
            FrameKind::Batch | FrameKind::Control => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use stafett_model::batch::placement;
    use stafett_model::{BatchBuilder, Codec, Epoch, LogId, Offset, Record};

    use super::super::frame::FrameEntry;
    use super::*;
    use crate::contract::Selection;

    fn body(bytes: usize) -> Bytes {
        let mut builder = BatchBuilder::new(Codec::None);
        let value = vec![b'v'; bytes];
        let record = Record {
            key: None,
            value: Some(&value),
            headers: &[],
            timestamp: 5,
        };
        builder.push(&record).unwrap();
        builder.finish().unwrap()
    }

    fn head() -> Head {
        let entry = FrameEntry {
            log: LogId(5),
            base: Offset(77),
            span: 1,
            epoch: Epoch(3),
            records: Selection::All,
        };
        Head {
            kind: FrameKind::Cut,
            more: false,
            body_bytes: 0,
            body_checksum: 0,
            date: 5,
            span: 1,
            entries: SmallVec::from_buf([entry]),
        }
    }

    #[test]
    fn the_chunks_and_the_front_are_the_body() {
        for (bytes, chunk_bytes) in [(1000, 100), (1000, 1), (5000, 4096), (4096, 4096), (0, 10)] {
            let body = body(bytes);
            let chunks: Vec<_> = cut(&body, chunk_bytes).collect();
            let mut whole = body[..HEADER_BYTES].to_vec();
            for chunk in &chunks {
                assert_eq!(chunk.head.verify_body(&chunk.body), Ok(()));
                whole.extend_from_slice(&chunk.body);
            }
            assert_eq!(whole, body);
            assert_eq!(chunks.len(), count(body.len(), chunk_bytes));
            let ahead: usize = chunks
                .iter()
                .map(|chunk| GROUP_HEAD_BYTES + chunk.head.frame_bytes())
                .sum();
            assert_eq!(ahead, ahead_bytes(body.len(), chunk_bytes));
        }
    }

    #[test]
    fn a_table_reads_back_as_written_and_knows_its_batch() {
        let body = body(1000);
        let mut byte = 4096;
        let places = cut(&body, 300)
            .map(|chunk| {
                byte += 512;
                ChunkLocation {
                    byte,
                    bytes: u32_of(chunk.body.len()),
                }
            })
            .collect();
        let table = Table::new(&head(), &body, places);
        let encoded = table.encode();
        assert_eq!(encoded.len(), table_bytes(table.places.len()));
        assert_eq!(Table::decode(&encoded), Some(table.clone()));
        let plain = table.plain(&head());
        assert_eq!(plain.body_bytes, body.len());
        let mut stored = body.to_vec();
        stored[..PLACEMENT_BYTES].copy_from_slice(&placement(Offset(77), Epoch(3), body.len()));
        assert_eq!(plain.verify_body(&stored), Ok(()));
        assert_eq!(table.front, stored[..HEADER_BYTES]);
        for end in 0..encoded.len() {
            assert_eq!(Table::decode(&encoded[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn places_that_there_cannot_be_are_not_understood() {
        let body = body(1000);
        let bytes = u32_of(body.len() - HEADER_BYTES);
        let decode = |places: &[ChunkLocation]| {
            let places = SmallVec::from_slice(places);
            Table::decode(&Table::new(&head(), &body, places).encode())
        };
        assert!(decode(&[ChunkLocation { byte: 4096, bytes }]).is_some());
        assert!(
            decode(&[ChunkLocation {
                byte: u32::MAX - 100,
                bytes
            }])
            .is_none()
        );
        // The header says how long the batch is.
        let mut lying = Table::new(
            &head(),
            &body,
            SmallVec::from_slice(&[ChunkLocation { byte: 4096, bytes }]),
        );
        lying.places[0].bytes -= 1;
        assert_eq!(Table::decode(&lying.encode()), None);
        lying.places.clear();
        assert_eq!(Table::decode(&lying.encode()), None);
    }

    #[test]
    fn a_last_frame_is_whole_only_behind_all_of_its_chunks() {
        let body = body(1000);
        let chunks: Vec<_> = cut(&body, 600).collect();
        let places: SmallVec<[ChunkLocation; 4]> = [4096, 8192]
            .into_iter()
            .zip(&chunks)
            .map(|(byte, chunk)| ChunkLocation {
                byte,
                bytes: u32_of(chunk.body.len()),
            })
            .collect();
        let table = Table::new(&head(), &body, places).encode();
        let mut seen = Chunks::default();
        assert!(!seen.note(9000, &head(), &table));
        assert!(seen.note(4096, &chunks[0].head, &chunks[0].body));
        assert!(!seen.note(9000, &head(), &table));
        assert!(seen.note(8192, &chunks[1].head, &chunks[1].body));
        assert!(seen.note(9000, &head(), &table));
    }
}
