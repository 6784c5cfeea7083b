//! One log's part of a frame that belongs to several logs.
//!
//! The body is stored once, with a zero placement. Each log reads it with its own placement, or only its
//! records of it.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use stafett_model::LogId;
use stafett_model::batch::{PLACEMENT_BYTES, placement};
use stafett_model::fan_out::{self, Numbering};

use super::frame::{FrameEntry, Head};
use super::sidecar::IndexEntry;
use super::tail_cache::Slices;
use crate::contract::{LogSlice, Selection};

/// Most decompressed bytes of a batch of which a log has only a part.
const REBUILT_BYTES_MAX: usize = 64 << 20;

/// Frames of several logs, read from memory, each with the number of pieces of the run before it.
pub(crate) type SharedFrames = SmallVec<[(usize, IndexEntry, Slices); 4]>;

/// Inserts a log's parts of frames into a run. `None` if a frame does not match the index.
pub(crate) fn add(log: LogId, frames: SharedFrames, run: &mut LogSlice) -> Option<()> {
    if frames.is_empty() {
        return Some(());
    }
    let mut others = std::mem::take(&mut run.pieces).into_iter();
    let mut before = 0;
    for (place, frame, whole) in frames {
        run.pieces.extend(others.by_ref().take(place - before));
        before = place;
        run.bytes += add_part(log, &frame, &whole, &mut run.pieces)?;
    }
    run.pieces.extend(others);
    Some(())
}

/// Adds a log's part of one frame; returns its bytes. A large body that belongs to the log as a whole is not
/// copied.
fn add_part(log: LogId, frame: &IndexEntry, whole: &Slices, pieces: &mut Vec<Bytes>) -> Option<usize> {
    let (head, _) = Head::decode(whole.first()?).ok()?;
    let entry = entry_of(&head, log, frame)?;
    let body = head.bytes()..head.bytes() + head.body_bytes;
    let one = match (whole.as_slice(), entry.records) {
        ([only], _) => only.get(body.clone()).map(|_| only.slice(body))?,
        (_, Selection::Range { .. }) => {
            let all = Bytes::from(whole.concat());
            all.get(body.clone()).map(|_| all.slice(body))?
        }
        (several, Selection::All) => {
            let place = placement(entry.base, entry.epoch, head.body_bytes);
            pieces.push(Bytes::copy_from_slice(&place));
            let mut skip = body.start + PLACEMENT_BYTES;
            let mut left = head.body_bytes.checked_sub(PLACEMENT_BYTES)?;
            for slice in several {
                let from = skip.min(slice.len());
                let to = from + left.min(slice.len() - from);
                skip -= from;
                left -= to - from;
                if to > from {
                    pieces.push(slice.slice(from..to));
                }
            }
            return (left == 0).then_some(head.body_bytes);
        }
    };
    let part = part_of(&one, &head, entry)?;
    let bytes = part.len();
    pieces.push(part);
    Some(bytes)
}

/// Returns the entry of a log in a frame.
pub(crate) fn entry_of<'a>(head: &'a Head, log: LogId, frame: &IndexEntry) -> Option<&'a FrameEntry> {
    head.entries
        .iter()
        .find(|entry| entry.log == log && entry.base == frame.base)
}

/// Returns one log's part of a frame's body: the stored batch if the entry covers it as a whole and alone,
/// otherwise a copy or a rebuilt batch.
pub(crate) fn part_of(body: &Bytes, head: &Head, entry: &FrameEntry) -> Option<Bytes> {
    match entry.records {
        Selection::All if head.is_placed() => Some(body.clone()),
        Selection::All => {
            let mut copy = BytesMut::from(body.as_ref());
            let place = copy.get_mut(..PLACEMENT_BYTES)?;
            place.copy_from_slice(&placement(entry.base, entry.epoch, body.len()));
            Some(copy.freeze())
        }
        Selection::Range { first, count } => {
            let range = fan_out::Selection::Range(first..first.checked_add(count)?);
            let part =
                fan_out::select(body, &range, Numbering::Renumber, entry.base, REBUILT_BYTES_MAX).ok()?;
            let mut copy = BytesMut::from(part.as_ref());
            let place = copy.get_mut(..PLACEMENT_BYTES)?;
            place.copy_from_slice(&placement(entry.base, entry.epoch, part.len()));
            Some(copy.freeze())
        }
    }
}
