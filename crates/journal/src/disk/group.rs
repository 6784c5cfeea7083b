//! Write groups: the bytes of one system call, and the unit that recovery accepts or rejects. All numbers
//! little-endian.
//!
//! ```text
//!  0  u32 "SGRP"
//!  4  u32 checksum of bytes 8..64
//!  8  u32 segment
//! 12  u32 bytes of the group, this header included
//! 16  u64 run                a number drawn at each start of the program
//! 24  u64 sequence           increases by one per group, across segments and runs
//! 32  u32 checksum (field 4) of the previous group
//! 36  u32 frames
//! 40  u64 synced mark        everything before this position is known to be synced
//! 48  i64 time of writing, ms
//! 56  u32 checksum of the concatenated head checksums of the frames
//! 60  u32 0
//! 64  frames
//! ```

use stafett_model::checksum::crc32c;

use super::codec::{Reader, patch};
use super::position::{Position, SegmentId};

pub(crate) const GROUP_HEAD_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"SGRP";
/// Bound on valid sequences: no journal gets this far, and the next sequence can always be computed.
pub(crate) const SEQUENCE_MAX: u64 = u64::MAX >> 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupHead {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: u32,
    pub(crate) run: u64,
    pub(crate) sequence: u64,
    pub(crate) previous: u32,
    pub(crate) frames: u32,
    pub(crate) synced: Position,
    pub(crate) written_at: i64,
    pub(crate) frames_checksum: u32,
}

impl GroupHead {
    /// Writes the head over the first bytes of `out` and returns its checksum.
    pub(crate) fn encode(&self, out: &mut [u8]) -> u32 {
        patch(out, 0, &MAGIC);
        patch(out, 8, &self.segment.0.to_le_bytes());
        patch(out, 12, &self.bytes.to_le_bytes());
        patch(out, 16, &self.run.to_le_bytes());
        patch(out, 24, &self.sequence.to_le_bytes());
        patch(out, 32, &self.previous.to_le_bytes());
        patch(out, 36, &self.frames.to_le_bytes());
        patch(out, 40, &self.synced.packed().to_le_bytes());
        patch(out, 48, &self.written_at.to_le_bytes());
        patch(out, 56, &self.frames_checksum.to_le_bytes());
        patch(out, 60, &[0; 4]);
        let checksum = crc32c(out.get(8..GROUP_HEAD_BYTES).unwrap_or_default());
        patch(out, 4, &checksum.to_le_bytes());
        checksum
    }

    /// Reads and checks the head at the front of `bytes`, and returns it with its checksum.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, u32)> {
        let head = bytes.get(..GROUP_HEAD_BYTES)?;
        let mut reader = Reader(head);
        if reader.take(4)? != MAGIC {
            return None;
        }
        let checksum = reader.u32()?;
        if crc32c(head.get(8..)?) != checksum {
            return None;
        }
        let group = Self {
            segment: SegmentId(reader.u32()?),
            bytes: reader.u32()?,
            run: reader.u64()?,
            sequence: reader.u64()?,
            previous: reader.u32()?,
            frames: reader.u32()?,
            synced: Position::unpacked(reader.u64()?),
            written_at: reader.i64()?,
            frames_checksum: reader.u32()?,
        };
        (group.sequence <= SEQUENCE_MAX).then_some((group, checksum))
    }

    /// Returns true if a group may start with these bytes: a cheap check before [`GroupHead::decode`].
    pub(crate) fn may_start(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> GroupHead {
        GroupHead {
            segment: SegmentId(3),
            bytes: 4096,
            run: 0x1234_5678_9abc_def0,
            sequence: 42,
            previous: 7,
            frames: 2,
            synced: Position {
                segment: SegmentId(2),
                byte: 99,
            },
            written_at: 1_700_000_000_000,
            frames_checksum: 5,
        }
    }

    #[test]
    fn a_head_reads_back_and_every_flipped_bit_is_found() {
        let head = sample();
        let mut bytes = [0; GROUP_HEAD_BYTES];
        let checksum = head.encode(&mut bytes);
        assert_eq!(GroupHead::decode(&bytes), Some((head, checksum)));
        for bit in 0..GROUP_HEAD_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(GroupHead::decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn a_sequence_that_nothing_can_follow_is_refused_though_the_checksum_holds() {
        let mut bytes = [0; GROUP_HEAD_BYTES];
        for sequence in [u64::MAX, SEQUENCE_MAX + 1] {
            GroupHead { sequence, ..sample() }.encode(&mut bytes);
            assert_eq!(GroupHead::decode(&bytes), None);
        }
    }
}
