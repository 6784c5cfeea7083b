//! Frames: the unit that is stored, checked and indexed. All numbers little-endian.
//!
//! ```text
//!  0  u32 checksum of bytes 4 .. end of the entries
//!  4  u8  kind                1 batch, 2 control, 3 chunk, 4 the last frame of a cut batch (`chunk.rs`)
//!  5  u8  flags               bit 0: the append continues in the next frame
//!  6  u16 entries
//!  8  u32 body bytes
//! 12  u32 body checksum      of a batch (kind 1): the batch's own, which covers its bytes from 21 on
//! 16  i64 date               of a batch: its latest timestamp, ms, or when it was appended (`dates.rs`)
//! 24  u32 offsets            that the whole batch spans
//! 28  u32 0
//! 32  entries of 32 bytes:
//!      0  u64 log
//!      8  u64 base offset
//!     16  u32 offsets taken in that log
//!     20  u32 epoch
//!     24  u32 first record
//!     28  u32 records        0xffff_ffff: the whole batch
//!     body, then zeros up to a multiple of 8
//! ```
//!
//! The offsets are in the entries. The body of a batch with one whole entry also contains its placement and
//! is served as stored; in any other body the placement is zero and the batch is rebuilt for the reader.

use bytes::BytesMut;
use smallvec::SmallVec;
use stafett_model::batch::{MAGIC, PLACEMENT_BYTES};
use stafett_model::checksum::crc32c;
use stafett_model::{Epoch, LogId, Offset};

use super::codec::{Reader, patch, u32_of, usize_of};
use crate::contract::Selection;

pub(crate) const HEAD_BYTES: usize = 32;
pub(crate) const ENTRY_BYTES: usize = 32;
/// Alignment of frames.
pub(crate) const ALIGN: usize = 8;
/// Most targets of one frame.
pub(crate) const ENTRIES_MAX: usize = 4096;

const ALL_RECORDS: u32 = u32::MAX;
const MORE_BIT: u8 = 1;

/// Type of a frame's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Batch,
    Control,
    /// A part of a batch whose last frame comes later in the segment.
    Chunk,
    /// The last frame of a cut batch: its body is a table of its chunks.
    Cut,
}

/// One log's entry in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameEntry {
    pub(crate) log: LogId,
    pub(crate) base: Offset,
    pub(crate) span: u32,
    pub(crate) epoch: Epoch,
    pub(crate) records: Selection,
}

/// Everything of a frame except its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: FrameKind,
    /// True if the append continues in the next frame.
    pub(crate) more: bool,
    pub(crate) body_bytes: usize,
    pub(crate) body_checksum: u32,
    /// Latest timestamp, or time of the append ([`super::dates`]).
    pub(crate) date: i64,
    pub(crate) span: u32,
    pub(crate) entries: SmallVec<[FrameEntry; 1]>,
}

/// Reason why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("it is cut short")]
    Truncated,
    #[error("its header's checksum does not match")]
    HeadChecksum,
    #[error("its kind or flags are unknown")]
    Unknown,
    #[error("it takes offsets beyond the largest there can be")]
    Offsets,
    #[error("its body's checksum does not match")]
    BodyChecksum,
}

impl Head {
    pub(crate) fn bytes(&self) -> usize {
        HEAD_BYTES + self.entries.len() * ENTRY_BYTES
    }

    /// Returns the bytes of the whole frame, padding included.
    pub(crate) fn frame_bytes(&self) -> usize {
        frame_bytes(self.entries.len(), self.body_bytes)
    }

    /// Iterates over the offsets that the frame takes in each of its logs.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (LogId, Offset, Offset)> {
        self.entries
            .iter()
            .map(|entry| (entry.log, entry.base, entry.end()))
    }

    /// Returns true if the body is stored as its only log's readers get it.
    pub(crate) fn is_placed(&self) -> bool {
        matches!(self.entries.as_slice(), [only] if only.records == Selection::All)
    }

    /// Appends the head to `out` and returns its checksum.
    pub(crate) fn encode(&self, out: &mut BytesMut) -> u32 {
        let start = out.len();
        let kind = match self.kind {
            FrameKind::Batch => 1,
            FrameKind::Control => 2,
            FrameKind::Chunk => 3,
            FrameKind::Cut => 4,
        };
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[kind, if self.more { MORE_BIT } else { 0 }]);
        let entries = u16::try_from(self.entries.len()).expect("entries are bounded when they are staged");
        out.extend_from_slice(&entries.to_le_bytes());
        out.extend_from_slice(&u32_of(self.body_bytes).to_le_bytes());
        out.extend_from_slice(&self.body_checksum.to_le_bytes());
        out.extend_from_slice(&self.date.to_le_bytes());
        out.extend_from_slice(&self.span.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for entry in &self.entries {
            entry.encode(out);
        }
        let checksum = crc32c(out.get(start + 4..).unwrap_or_default());
        patch(out, start, &checksum.to_le_bytes());
        checksum
    }

    /// Reads and checks the head at the front of `bytes`, and returns it with its checksum.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, u32), FrameError> {
        let mut reader = Reader(bytes);
        let fixed = (|| {
            Some((
                reader.u32()?,
                reader.u8()?,
                reader.u8()?,
                reader.u16()?,
                reader.u32()?,
                reader.u32()?,
            ))
        })();
        let Some((checksum, kind, flags, count, body_bytes, body_checksum)) = fixed else {
            return Err(FrameError::Truncated);
        };
        let head_bytes = HEAD_BYTES + usize::from(count) * ENTRY_BYTES;
        let covered = bytes.get(4..head_bytes).ok_or(FrameError::Truncated)?;
        if crc32c(covered) != checksum {
            return Err(FrameError::HeadChecksum);
        }
        let kind = match kind {
            1 => FrameKind::Batch,
            2 => FrameKind::Control,
            3 => FrameKind::Chunk,
            4 => FrameKind::Cut,
            _ => return Err(FrameError::Unknown),
        };
        let rest = (|| {
            let (date, span, _zero) = (reader.i64()?, reader.u32()?, reader.u32()?);
            let entries = (0..count)
                .map(|_| FrameEntry::decode(&mut reader))
                .collect::<Option<_>>()?;
            Some((date, span, entries))
        })();
        let (date, span, entries): (_, _, SmallVec<[FrameEntry; 1]>) = rest.ok_or(FrameError::Truncated)?;
        if !entries.iter().all(FrameEntry::is_possible) {
            return Err(FrameError::Offsets);
        }
        let head = Self {
            kind,
            more: flags & MORE_BIT != 0,
            body_bytes: usize_of(body_bytes),
            body_checksum,
            date,
            span,
            entries,
        };
        Ok((head, checksum))
    }

    /// Verifies a body against its head.
    pub(crate) fn verify_body(&self, body: &[u8]) -> Result<(), FrameError> {
        if body.len() != self.body_bytes {
            return Err(FrameError::Truncated);
        }
        let sound = match self.kind {
            FrameKind::Batch => self.verify_batch(body),
            FrameKind::Control | FrameKind::Chunk | FrameKind::Cut => crc32c(body) == self.body_checksum,
        };
        if sound {
            Ok(())
        } else {
            Err(FrameError::BodyChecksum)
        }
    }

    /// Verifies a batch. Its own checksum omits its first 21 bytes; those follow from the head.
    fn verify_batch(&self, body: &[u8]) -> bool {
        let Some((front, covered)) = body.split_first_chunk::<{ PLACEMENT_BYTES + 5 }>() else {
            return false;
        };
        let (placement, rest) = front.split_at(PLACEMENT_BYTES);
        let expected = self.placement();
        placement == expected
            && rest.first() == Some(&MAGIC)
            && rest.get(1..) == Some(&self.body_checksum.to_be_bytes()[..])
            && crc32c(covered) == self.body_checksum
    }

    /// Returns the placement of the batch as this frame stores it.
    pub(crate) fn placement(&self) -> [u8; PLACEMENT_BYTES] {
        let (base, epoch) = match self.entries.as_slice() {
            [only] if self.is_placed() => (only.base, only.epoch),
            _ => (Offset::ZERO, Epoch(0)),
        };
        stafett_model::batch::placement(base, epoch, self.body_bytes)
    }
}

impl FrameEntry {
    /// Returns the offset behind the last one taken.
    pub(crate) fn end(&self) -> Offset {
        Offset(self.base.0 + u64::from(self.span))
    }

    /// Returns true if the offsets are valid: calculations with them do not overflow.
    fn is_possible(&self) -> bool {
        self.base.checked_add(self.span.into()).is_some()
    }

    fn encode(&self, out: &mut BytesMut) {
        let (first, count) = match self.records {
            Selection::All => (0, ALL_RECORDS),
            Selection::Range { first, count } => (first, count),
        };
        out.extend_from_slice(&self.log.0.to_le_bytes());
        out.extend_from_slice(&self.base.0.to_le_bytes());
        for number in [self.span, self.epoch.0, first, count] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let (log, base) = (LogId(reader.u64()?), Offset(reader.u64()?));
        let (span, epoch) = (reader.u32()?, Epoch(reader.u32()?));
        let records = match (reader.u32()?, reader.u32()?) {
            (_, ALL_RECORDS) => Selection::All,
            (first, count) => Selection::Range { first, count },
        };
        Some(Self {
            log,
            base,
            span,
            epoch,
            records,
        })
    }
}

/// Returns the bytes of a frame with `entries` entries and this body, padding included.
pub(crate) fn frame_bytes(entries: usize, body_bytes: usize) -> usize {
    (HEAD_BYTES + entries * ENTRY_BYTES + body_bytes).next_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Head {
        let entry = |log, records| FrameEntry {
            log: LogId(log),
            base: Offset(1 << 40),
            span: 7,
            epoch: Epoch(3),
            records,
        };
        Head {
            kind: FrameKind::Batch,
            more: true,
            body_bytes: 1234,
            body_checksum: 0xdead_beef,
            date: -1,
            span: 9,
            entries: [
                entry(5, Selection::All),
                entry(6, Selection::Range { first: 2, count: 7 }),
            ]
            .into_iter()
            .collect(),
        }
    }

    #[test]
    fn a_head_reads_back_as_written() {
        let mut bytes = BytesMut::new();
        let checksum = sample().encode(&mut bytes);
        assert_eq!(bytes.len(), sample().bytes());
        assert_eq!(Head::decode(&bytes), Ok((sample(), checksum)));
    }

    #[test]
    fn offsets_beyond_the_largest_are_refused_though_the_checksum_holds() {
        let mut head = sample();
        for (base, span) in [(u64::MAX, 1), (i64::MAX as u64, 1), (u64::MAX - 7, u32::MAX)] {
            head.entries[1].base = Offset(base);
            head.entries[1].span = span;
            let mut bytes = BytesMut::new();
            head.encode(&mut bytes);
            assert_eq!(Head::decode(&bytes), Err(FrameError::Offsets));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let mut bytes = BytesMut::new();
        sample().encode(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&damaged).is_err(), "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert!(Head::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
