//! Position of a frame: a segment and a byte in it. Positions of one journal compare in the order of writing
//! unless a frame was rewritten.

use std::fmt;

/// Id of a segment. Ids ascend and are never reused, not even for a recycled file: the id is the generation
/// by which a stale group is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct SegmentId(pub(crate) u32);

/// A byte of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Position {
    pub(crate) segment: SegmentId,
    pub(crate) byte: u32,
}

impl Position {
    /// Returns the position as one number with the same order.
    pub(crate) fn packed(self) -> u64 {
        (u64::from(self.segment.0) << 32) | u64::from(self.byte)
    }

    pub(crate) fn unpacked(packed: u64) -> Self {
        let [a, b, c, d, rest @ ..] = packed.to_be_bytes();
        Self {
            segment: SegmentId(u32::from_be_bytes([a, b, c, d])),
            byte: u32::from_be_bytes(rest),
        }
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}", self.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment.0, self.byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_the_order() {
        let places = [(0, 0), (0, u32::MAX), (1, 0), (u32::MAX, 7)].map(|(segment, byte)| Position {
            segment: SegmentId(segment),
            byte,
        });
        assert!(places.is_sorted_by_key(|place| place.packed()));
        assert_eq!(places.map(|place| Position::unpacked(place.packed())), places);
    }
}
