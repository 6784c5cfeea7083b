//! Layout of a write group: small parts in one buffer, and references to large bodies between them.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use stafett_model::batch::PLACEMENT_BYTES;
use stafett_model::checksum::Crc32c;

use super::codec::u32_of;
use super::frame::{ALIGN, FrameKind, Head};
use super::group::GROUP_HEAD_BYTES;
use super::write_queue::StagedAppend;

/// Bodies of this size and more are written in place; smaller ones are copied, so that a small message does
/// not keep a large buffer alive.
pub(crate) const COPY_BYTES_MAX: usize = 16 * 1024;

/// The bytes of a group in order, each piece with its byte in the segment.
pub(crate) type Pieces = SmallVec<[(u32, Bytes); 1]>;

/// A group being laid out: small parts in one buffer, large bodies between them.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) small: BytesMut,
    /// Large bodies, each with its place in `small`.
    large: SmallVec<[(usize, Bytes); 4]>,
    large_bytes: usize,
    pub(crate) checksums: Crc32c,
    pub(crate) frames: u32,
}

impl Layout {
    pub(crate) fn new(staged: &[StagedAppend]) -> Self {
        let small = staged
            .iter()
            .flat_map(|append| &append.frames)
            .map(|frame| match frame.head.body_bytes {
                large if large >= COPY_BYTES_MAX => frame.head.bytes() + PLACEMENT_BYTES + ALIGN,
                small => frame.head.bytes() + small + ALIGN,
            })
            .sum::<usize>();
        let mut buffer = BytesMut::with_capacity(GROUP_HEAD_BYTES + small);
        buffer.resize(GROUP_HEAD_BYTES, 0);
        Self {
            small: buffer,
            large: SmallVec::new(),
            large_bytes: 0,
            checksums: Crc32c::new(),
            frames: 0,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.small.len() + self.large_bytes
    }

    pub(crate) fn frame(&mut self, head: &Head, body: &Bytes) {
        let checksum = head.encode(&mut self.small);
        self.checksums.update(&checksum.to_le_bytes());
        self.frames += 1;
        match head.kind {
            FrameKind::Chunk if body.len() >= COPY_BYTES_MAX => {
                self.large_bytes += body.len();
                self.large.push((self.small.len(), body.clone()));
            }
            FrameKind::Control | FrameKind::Chunk | FrameKind::Cut => self.small.extend_from_slice(body),
            FrameKind::Batch => {
                self.small.extend_from_slice(&head.placement());
                if body.len() < COPY_BYTES_MAX {
                    self.small
                        .extend_from_slice(body.get(PLACEMENT_BYTES..).unwrap_or_default());
                } else {
                    let rest = body.slice(PLACEMENT_BYTES..);
                    self.large_bytes += rest.len();
                    self.large.push((self.small.len(), rest));
                }
            }
        }
        let padding = self.bytes().next_multiple_of(ALIGN) - self.bytes();
        self.small.resize(self.small.len() + padding, 0);
    }

    /// Returns the group's bytes in order, each piece with its byte in the segment.
    pub(crate) fn into_pieces(self, start: u32) -> Pieces {
        let small = self.small.freeze();
        let mut pieces = SmallVec::new();
        let mut at = start;
        let mut cut = 0;
        let mut push = |piece: Bytes| {
            if !piece.is_empty() {
                let bytes = u32_of(piece.len());
                pieces.push((at, piece));
                at += bytes;
            }
        };
        for (place, body) in self.large {
            push(small.slice(cut..place));
            push(body);
            cut = place;
        }
        push(small.slice(cut..));
        pieces
    }
}
