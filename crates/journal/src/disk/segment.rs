//! Segments: files of write groups; meaning of their names and of their first block.
//!
//! ```text
//! arrival-0000000012.seg    groups in arrival order; without a valid header, a spare
//! sorted-0000000009.seg     made by a rewrite: frames by log; those of tied logs in arrival order
//! (either).idx              sidecar of a segment that gets no more groups
//! ```
//!
//! The first 4,096 bytes are the segment's header, all numbers little-endian:
//!
//! ```text
//!  0  8 bytes "STAFSEG\0"
//!  8  u32 checksum of bytes 12..80
//! 12  u32 format version
//! 16  u32 segment
//! 20  u32 kind (0 arrival, 1 sorted)
//! 24  u64 sequence of its first group
//! 32  u32 checksum (field 4) of the group before the first; 0 in a sorted segment
//! 36  u32 0
//! 40  i64 time of creation, ms
//! 48  u64 log, u64 offset    sorted segments: first batch that it was made for, by log and offset
//! 64  u64 log, u64 offset    and the last; entries outside, left only by old versions, lie in other
//!                            segments
//! ```

use stafett_model::checksum::crc32c;
use stafett_model::{LogId, Offset};

use super::codec::{Reader, patch};
use super::group::SEQUENCE_MAX;
use super::position::SegmentId;

pub(crate) const SEGMENT_HEAD_BYTES: usize = 4096;
/// Version written by this program. Those before can be opened as well: 1 had no chunks, 2 no compaction.
pub(crate) const FORMAT_VERSION: u32 = 3;
const MAGIC: [u8; 8] = *b"STAFSEG\0";
pub(crate) const COVERED: std::ops::Range<usize> = 12..80;

/// Order of the frames of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum SegmentKind {
    /// Arrival order.
    Arrival,
    /// By log and offset; frames of tied logs in arrival order.
    Sorted,
}

/// Header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) segment: SegmentId,
    pub(crate) kind: SegmentKind,
    pub(crate) first_sequence: u64,
    pub(crate) previous: u32,
    pub(crate) created_at: i64,
    /// First and last batch that a sorted segment was made for.
    pub(crate) first: (LogId, Offset),
    pub(crate) last: (LogId, Offset),
}

/// Content of a file's first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadBlock {
    Head(SegmentHead),
    /// No header: never written, torn or damaged.
    Nothing,
    /// Written in a later format.
    Newer(u32),
}

/// A readable segment. Its file is recycled only when no reader holds a reference.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) kind: SegmentKind,
}

impl Segment {
    pub(crate) fn role(&self) -> FileRole {
        FileRole::Segment(self.kind, self.id)
    }

    pub(crate) fn sidecar_role(&self) -> FileRole {
        FileRole::Sidecar(self.kind, self.id)
    }
}

impl SegmentHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; SEGMENT_HEAD_BYTES];
        patch(&mut out, 0, &MAGIC);
        patch(&mut out, 12, &FORMAT_VERSION.to_le_bytes());
        patch(&mut out, 16, &self.segment.0.to_le_bytes());
        let kind: u32 = match self.kind {
            SegmentKind::Arrival => 0,
            SegmentKind::Sorted => 1,
        };
        patch(&mut out, 20, &kind.to_le_bytes());
        patch(&mut out, 24, &self.first_sequence.to_le_bytes());
        patch(&mut out, 32, &self.previous.to_le_bytes());
        patch(&mut out, 40, &self.created_at.to_le_bytes());
        for (at, (log, offset)) in [(48, self.first), (64, self.last)] {
            patch(&mut out, at, &log.0.to_le_bytes());
            patch(&mut out, at + 8, &offset.0.to_le_bytes());
        }
        let checksum = crc32c(out.get(COVERED).unwrap_or_default());
        patch(&mut out, 8, &checksum.to_le_bytes());
        out
    }

    pub(crate) fn decode(block: &[u8]) -> HeadBlock {
        Self::parse(block).unwrap_or(HeadBlock::Nothing)
    }

    fn parse(block: &[u8]) -> Option<HeadBlock> {
        let mut reader = Reader(block);
        if reader.take(8)? != MAGIC || reader.u32()? != crc32c(block.get(COVERED)?) {
            return None;
        }
        let version = reader.u32()?;
        if version > FORMAT_VERSION {
            return Some(HeadBlock::Newer(version));
        }
        let segment = SegmentId(reader.u32()?);
        let kind = match reader.u32()? {
            0 => SegmentKind::Arrival,
            1 => SegmentKind::Sorted,
            _ => return None,
        };
        let (first_sequence, previous, _zero) = (reader.u64()?, reader.u32()?, reader.u32()?);
        if first_sequence > SEQUENCE_MAX {
            return None;
        }
        let created_at = reader.i64()?;
        let mut place = || Some((LogId(reader.u64()?), Offset(reader.u64()?)));
        Some(HeadBlock::Head(Self {
            segment,
            kind,
            first_sequence,
            previous,
            created_at,
            first: place()?,
            last: place()?,
        }))
    }
}

impl SegmentKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Arrival => "arrival-",
            Self::Sorted => "sorted-",
        }
    }
}

/// Role of a file, encoded in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileRole {
    Segment(SegmentKind, SegmentId),
    Sidecar(SegmentKind, SegmentId),
}

impl FileRole {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Segment(kind, id) => format!("{}{:010}.seg", kind.prefix(), id.0),
            Self::Sidecar(kind, id) => format!("{}{:010}.idx", kind.prefix(), id.0),
        }
    }

    /// Parses a file name. `None` if no journal file has it: including other spellings of a valid name, and
    /// an id without a successor.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let (stem, extension) = name.rsplit_once('.')?;
        let (prefix, number) = stem.split_once('-')?;
        let id = SegmentId(number.parse().ok()?);
        let kind = match prefix {
            "arrival" => SegmentKind::Arrival,
            "sorted" => SegmentKind::Sorted,
            _ => return None,
        };
        let role = match extension {
            "seg" => Self::Segment(kind, id),
            "idx" => Self::Sidecar(kind, id),
            _ => return None,
        };
        (role.name() == name && id.0 < u32::MAX).then_some(role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        let id = SegmentId(12);
        for role in [
            FileRole::Segment(SegmentKind::Arrival, id),
            FileRole::Sidecar(SegmentKind::Sorted, id),
        ] {
            assert_eq!(FileRole::of(&role.name()), Some(role));
        }
        for stranger in [
            "lock",
            "checkpoint.redb",
            "arrival-x.seg",
            "sorted-0000000001.tmp",
        ] {
            assert_eq!(FileRole::of(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn other_ways_to_write_a_name_are_no_files_of_the_journal() {
        for name in [
            "arrival-12.seg",
            "arrival-+000000012.seg",
            "sorted-00000000012.idx",
            "arrival-4294967295.seg",
        ] {
            assert_eq!(FileRole::of(name), None, "{name}");
        }
    }

    #[test]
    fn a_head_reads_back_and_damage_or_a_newer_format_is_told() {
        let head = SegmentHead {
            segment: SegmentId(5),
            kind: SegmentKind::Sorted,
            first_sequence: 77,
            previous: 8,
            created_at: 9,
            first: (LogId(1), Offset(2)),
            last: (LogId(3), Offset(4)),
        };
        let block = head.encode();
        assert_eq!(SegmentHead::decode(&block), HeadBlock::Head(head));
        for bit in 0..80 * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHead::decode(&damaged), HeadBlock::Nothing, "bit {bit}");
        }
        let mut newer = block;
        patch(&mut newer, 12, &(FORMAT_VERSION + 1).to_le_bytes());
        let checksum = crc32c(&newer[COVERED]);
        patch(&mut newer, 8, &checksum.to_le_bytes());
        assert_eq!(SegmentHead::decode(&newer), HeadBlock::Newer(FORMAT_VERSION + 1));
    }

    #[test]
    fn a_first_sequence_that_nothing_can_follow_is_refused_though_the_checksum_holds() {
        let head = SegmentHead {
            segment: SegmentId(5),
            kind: SegmentKind::Arrival,
            first_sequence: u64::MAX,
            previous: 8,
            created_at: 9,
            first: (LogId(1), Offset(0)),
            last: (LogId(2), Offset(0)),
        };
        assert_eq!(SegmentHead::decode(&head.encode()), HeadBlock::Nothing);
    }
}
