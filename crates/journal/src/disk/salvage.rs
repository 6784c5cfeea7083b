//! What can be saved of a stretch that is damaged below the synced mark.
//!
//! Frames carry checksums of their own, so that a bad group costs only the frames that are bad. A frame whose head
//! holds but whose body does not names the logs that lost something. Where even heads are gone, nobody knows what was
//! there, and the caller has to suspect everything that did not turn up again later.

use std::io;

use bytes::{Bytes, BytesMut};
use stafett_model::{LogId, Offset};

use super::codec::{u32_of, usize_of};
use super::frame::{ALIGN, Head};
use super::group::{GROUP_HEAD_BYTES, GroupHead};
use super::position::SegmentId;
use super::scan::{Chain, ScannedFrame};
use super::storage::StorageFile;

/// What a damaged stretch turned out to hold.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// Frames that are sound.
    pub(crate) frames: Vec<ScannedFrame>,
    /// Ranges of logs that are lost.
    pub(crate) lost: Vec<(LogId, Offset, Offset)>,
    /// Some bytes could not be told to be anything.
    pub(crate) unknown: bool,
    /// Where the next good group starts, and what it has to follow.
    pub(crate) resume: Option<(u32, Chain)>,
}

/// Looks through a segment from a bad group at `from` up to the next good one of a later sequence.
pub(crate) fn salvage(
    file: &dyn StorageFile,
    segment: SegmentId,
    from: u32,
    sequence: u64,
) -> io::Result<Salvage> {
    let length = usize::try_from(file.bytes()?.saturating_sub(from.into())).unwrap_or(0);
    let mut buffer = BytesMut::zeroed(length);
    let got = file.read_at(&mut buffer, from.into())?;
    buffer.truncate(got);
    let bytes = buffer.freeze();
    let mut found = Salvage::default();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= GROUP_HEAD_BYTES) {
        if GroupHead::may_start(rest)
            && let Some((head, _)) = GroupHead::decode(rest)
        {
            if head.segment == segment && head.sequence > sequence && at > 0 {
                let chain = Chain {
                    sequence: head.sequence - 1,
                    checksum: head.previous,
                };
                found.resume = Some((from + u32_of(at), chain));
                return Ok(found);
            }
            at += GROUP_HEAD_BYTES;
            continue;
        }
        at += found.frame(&bytes, at, from, at == 0);
    }
    Ok(found)
}

impl Salvage {
    /// Takes what may be a frame at `at`; returns how far to go on.
    fn frame(&mut self, bytes: &Bytes, at: usize, from: u32, is_group_head: bool) -> usize {
        let rest = bytes.get(at..).unwrap_or_default();
        if is_group_head {
            return GROUP_HEAD_BYTES;
        }
        let Ok((head, _)) = Head::decode(rest) else {
            self.unknown |= rest.iter().take(ALIGN).any(|byte| *byte != 0);
            return ALIGN;
        };
        let whole = head.frame_bytes();
        let body = rest.get(head.bytes()..head.bytes() + head.body_bytes);
        if let Some(body) = body.filter(|body| head.verify_body(body).is_ok()) {
            let body = bytes.slice_ref(body);
            self.frames.push(ScannedFrame {
                byte: from + u32_of(at),
                head,
                body,
            });
        } else {
            self.lost.extend(
                head.entries
                    .iter()
                    .map(|entry| (entry.log, entry.base, entry.end())),
            );
            // A control frame names no log: what it said is lost.
            self.unknown |= head.entries.is_empty();
        }
        whole.min(usize_of(u32::MAX))
    }
}
