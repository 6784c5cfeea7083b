//! Salvage of a write group that is damaged below the synced mark.
//!
//! Frames have checksums of their own, so that a bad group costs only the appends with bad frames. An append
//! that lost a frame is lost as a whole: a message that it moved is still at its source. The heads of its
//! frames name the logs with losses. If even a head is lost, its contents are unknown, and the caller has to
//! suspect every log without a later frame. Nothing is searched behind such a head: client data lies there
//! and could look like a frame. Nothing is taken from behind the group either: that may be from a former use
//! of the file.

use std::io;

use bytes::{Bytes, BytesMut};
use stafett_model::{LogId, Offset};

use super::codec::{u32_of, usize_of};
use super::frame::Head;
use super::group::GROUP_HEAD_BYTES;
use super::position::SegmentId;
use super::scan::{Chain, LaterGroup, LaterGroups, ScannedFrame};
use super::storage::StorageFile;

/// Result of salvaging a damaged group.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// Frames of intact appends.
    pub(crate) frames: Vec<ScannedFrame>,
    /// Lost ranges of logs.
    pub(crate) lost: Vec<(LogId, Offset, Offset)>,
    /// True if some bytes could not be identified.
    pub(crate) unknown: bool,
    /// Start of the next good group, and the chain that it has to follow.
    pub(crate) resume: Option<(u32, Chain)>,
}

/// Examines the bad group that starts at `from` and follows `sequence`, up to the next good one of the run.
pub(crate) fn salvage(
    file: &dyn StorageFile,
    segment: SegmentId,
    from: u32,
    sequence: u64,
    run: Option<u64>,
) -> io::Result<Salvage> {
    let mut found = Salvage::default();
    let mut groups = LaterGroups::new(file, segment, from, sequence, run);
    // The head of the bad group itself may be valid.
    let mut own = None;
    while let Some(LaterGroup { byte, head, .. }) = groups.next()? {
        if byte == from {
            own = Some(head.bytes);
            continue;
        }
        let follows = Chain {
            sequence: head.sequence - 1,
            checksum: head.previous,
        };
        found.resume = Some((byte, follows));
        break;
    }
    let there = u32::try_from(file.bytes()?).unwrap_or(u32::MAX);
    let end = match found.resume {
        Some((byte, _)) => Some(byte),
        None => own.map(|bytes| from.saturating_add(bytes).min(there)),
    };
    match end {
        Some(end) => {
            let mut buffer = BytesMut::zeroed(usize_of(end.saturating_sub(from)));
            let got = file.read_at(&mut buffer, from.into())?;
            buffer.truncate(got);
            found.frames(&buffer.freeze(), from);
        }
        None => found.unknown = true,
    }
    Ok(found)
}

impl Salvage {
    /// Salvages the appends of the group `bytes`: an append is whole or lost.
    fn frames(&mut self, bytes: &Bytes, from: u32) {
        let mut at = GROUP_HEAD_BYTES;
        // Start of the current append's frames, and true if all of them are valid so far.
        let (mut first, mut sound) = (0, true);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let Ok((head, _)) = Head::decode(rest) else {
                self.unknown = true;
                // The end of the append is unknown.
                self.lose_from(first);
                return;
            };
            let frame_bytes = head.frame_bytes();
            let body = rest.get(head.bytes()..head.bytes() + head.body_bytes);
            let body = body.filter(|body| head.verify_body(body).is_ok());
            sound &= body.is_some();
            let more = head.more;
            self.frames.push(ScannedFrame {
                byte: from + u32_of(at),
                head,
                body: body.map_or_else(Bytes::new, |body| bytes.slice_ref(body)),
            });
            if !more {
                if !sound {
                    self.lose_from(first);
                }
                (first, sound) = (self.frames.len(), true);
            }
            at += frame_bytes;
        }
        // The append continues in a frame that is missing.
        self.lose_from(first);
    }

    /// Moves the frames from an index on to the losses.
    fn lose_from(&mut self, first: usize) {
        let lost = self.frames.drain(first..);
        self.lost.extend(lost.flat_map(|frame| {
            let ranges: Vec<_> = frame.head.ranges().collect();
            ranges
        }));
    }
}
