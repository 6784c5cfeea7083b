//! Preparation of an append, without locks: its frames are encoded, its logs looked up, and its large bodies
//! cut.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use stafett_model::batch::{HEADER_BYTES, MAGIC};
use stafett_model::checksum::crc32c;
use stafett_model::{BatchHeader, Durability, LogId};

use super::chunk::{self, table_bytes};
use super::codec::usize_of;
use super::control::{Control, LOGS_MAX};
use super::engine::Engine;
use super::frame::{ENTRIES_MAX, FrameKind, Head, frame_bytes};
use super::group::GROUP_HEAD_BYTES;
use super::layout::COPY_BYTES_MAX;
use super::log::Log;
use super::pool::Share;
use super::segment::SEGMENT_HEAD_BYTES;
use super::write_queue::StagedFrame;
use crate::contract::{
    Append, BatchFrame, Change, Frame, OwnerEpoch, Precondition, Refusal, RequestId, StateWait, Target,
};
use crate::request_ids;

/// Bytes of a control frame that changes a log's owner.
const OWN_BYTES: usize = 64;

/// An append whose frames are complete except for their offsets.
pub(super) struct PreparedAppend {
    pub(super) frames: SmallVec<[PreparedFrame; 1]>,
    /// All logs to be locked, sorted by id, without duplicates.
    pub(super) logs: SmallVec<[Arc<Log>; 1]>,
    pub(super) require: SmallVec<[Precondition; 1]>,
    pub(super) owner: Option<OwnerEpoch>,
    pub(super) request: Option<RequestId>,
    pub(super) level: Option<Durability>,
    pub(super) state: StateWait,
    pub(super) bytes: usize,
    pub(super) pinned_bytes: usize,
    /// True if it waits for its logs alone, not for its state.
    pub(super) waits_for_logs: bool,
    /// Share of the reserved space that it may use.
    pub(super) share: Share,
}

pub(super) enum PreparedFrame {
    Batch {
        header: BatchHeader,
        body: Bytes,
        targets: SmallVec<[Target; 1]>,
        /// Chunk frames of a cut body: then `body` is only its header.
        ahead: Vec<StagedFrame>,
    },
    Control(StagedFrame),
}

impl PreparedAppend {
    pub(super) fn of(core: &Engine, append: Append) -> Result<Self, Refusal> {
        if core.queue.is_closed() {
            return Err(Refusal::Closed);
        }
        if !core.has_begun() {
            return Err(Refusal::DiskFull);
        }
        let share = share_of(&append);
        let mut logs: SmallVec<[Arc<Log>; 1]> = SmallVec::new();
        let mut find = |id: LogId| -> Result<(), Refusal> {
            logs.push(core.logs.get(id).ok_or(Refusal::NoSuchLog(id))?);
            Ok(())
        };
        for required in &append.require {
            find(required.log())?;
        }
        let mut bytes = GROUP_HEAD_BYTES;
        let mut has_batches = false;
        let mut targets = 0;
        let mut frames: SmallVec<[PreparedFrame; 1]> = SmallVec::new();
        for frame in append.frames {
            let part = match frame {
                Frame::Batch(batch) => {
                    has_batches = true;
                    targets += batch.targets.len();
                    for target in &batch.targets {
                        find(target.log)?;
                    }
                    // Every batch may need a reservation of offsets.
                    bytes += frame_bytes(batch.targets.len(), batch.body.len())
                        + batch.targets.len() * frame_bytes(0, 24);
                    batch_part(batch)
                }
                other @ (Frame::State(_)
                | Frame::CreateLogs { .. }
                | Frame::ChangeLogs { .. }
                | Frame::DeleteLogs { .. }
                | Frame::Truncate { .. }
                | Frame::Claim { .. }) => {
                    ids_of(&other).try_for_each(|id| find(LogId(id)))?;
                    let frame = control_frame(control_of(other));
                    bytes += frame.head.frame_bytes();
                    PreparedFrame::Control(frame)
                }
            };
            frames.push(part);
        }
        if append.owner.is_some() {
            bytes += logs.len() * OWN_BYTES;
        }
        if append.request.is_some() {
            bytes += request_ids::state_bytes(targets);
        }
        let bytes = cut_large(core, &mut frames, bytes)?;
        logs.sort_unstable_by_key(|log| log.id);
        logs.dedup_by_key(|log| log.id);
        Ok(Self {
            frames,
            logs,
            require: append.require,
            owner: append.owner,
            request: append.request,
            level: append.level,
            state: append.state,
            bytes,
            pinned_bytes: append.pinned_bytes,
            waits_for_logs: has_batches && !append.waits_for_state,
            share,
        })
    }
}

/// Returns the share of the reserved space for an append: freeing space has priority over other state.
fn share_of(append: &Append) -> Share {
    let (mut frees, mut says_more) = (append.frees_space, false);
    for frame in &append.frames {
        match frame {
            Frame::Batch(_) | Frame::CreateLogs { .. } => return Share::Nothing,
            Frame::Truncate { .. } | Frame::DeleteLogs { .. } => frees = true,
            Frame::State(change) => says_more |= change.change != Change::Delete,
            Frame::ChangeLogs { .. } | Frame::Claim { .. } => says_more = true,
        }
    }
    match (frees, says_more) {
        (_, false) => Share::Freeing,
        (true, true) => Share::Settling,
        (false, true) => Share::State,
    }
}

fn batch_part(batch: BatchFrame) -> PreparedFrame {
    assert!(
        batch.targets.len() <= ENTRIES_MAX,
        "the caller splits wider fan-outs"
    );
    let header = BatchHeader::parse(&batch.body).expect("the caller has verified the batch");
    assert!(
        header.magic == MAGIC && header.bytes == batch.body.len() && batch.body.len() >= HEADER_BYTES,
        "the caller has verified the batch"
    );
    PreparedFrame::Batch {
        header,
        body: batch.body,
        targets: batch.targets,
        ahead: Vec::new(),
    }
}

/// Returns true if a body is cut when its append is larger than a write group.
fn is_cut(body: &Bytes, chunk_bytes: usize) -> bool {
    body.len() > HEADER_BYTES + chunk_bytes.min(COPY_BYTES_MAX)
}

/// Returns the additional segment space that an append takes if its large bodies are cut.
fn extra_bytes_of_cutting(frames: &[PreparedFrame], chunk_bytes: usize) -> usize {
    let bodies = frames.iter().filter_map(|part| match part {
        PreparedFrame::Batch { body, targets, .. } if is_cut(body, chunk_bytes) => {
            Some((body.len(), targets.len()))
        }
        PreparedFrame::Batch { .. } | PreparedFrame::Control(_) => None,
    });
    bodies
        .map(|(bytes, targets)| {
            let last = frame_bytes(targets, table_bytes(chunk::count(bytes, chunk_bytes)));
            (chunk::ahead_bytes(bytes, chunk_bytes) + last).saturating_sub(frame_bytes(targets, bytes))
        })
        .sum()
}

/// Cuts the large bodies of an append that exceeds a write group. Done before any lock is taken, since it
/// computes the checksums of the chunks. Returns the segment space of the append.
fn cut_large(core: &Engine, frames: &mut [PreparedFrame], bytes: usize) -> Result<usize, Refusal> {
    let (group_bytes_max, chunk_bytes) = (core.pool.group_bytes_max(), core.pool.chunk_bytes());
    let extra = if bytes > group_bytes_max {
        extra_bytes_of_cutting(frames, chunk_bytes)
    } else {
        0
    };
    let bytes = bytes + extra;
    let limit = usize_of(core.settings.segment_bytes) - SEGMENT_HEAD_BYTES;
    if bytes > limit {
        return Err(Refusal::TooLarge { bytes, limit });
    }
    if bytes > group_bytes_max {
        for part in frames {
            if let PreparedFrame::Batch { body, ahead, .. } = part
                && is_cut(body, chunk_bytes)
            {
                *ahead = chunk::cut(body, chunk_bytes).collect();
                body.truncate(HEADER_BYTES);
            }
        }
    }
    Ok(bytes)
}

/// Returns the logs that must exist for a frame's changes.
fn ids_of(frame: &Frame) -> std::ops::Range<u64> {
    match frame {
        Frame::Truncate { log, .. } | Frame::Claim { log, .. } => log.0..log.0 + 1,
        Frame::ChangeLogs { first, count, .. } | Frame::DeleteLogs { first, count } => {
            first.0..first.0 + u64::from(*count)
        }
        Frame::CreateLogs { .. } | Frame::Batch(_) | Frame::State(_) => 0..0,
    }
}

fn control_of(frame: Frame) -> Control {
    if let Frame::CreateLogs { count, .. }
    | Frame::ChangeLogs { count, .. }
    | Frame::DeleteLogs { count, .. } = &frame
    {
        assert!(*count <= LOGS_MAX, "the caller splits longer runs of logs");
    }
    if let Frame::State(change) = &frame {
        assert!(
            change.space != request_ids::SPACE,
            "the space is the journal's own"
        );
    }
    match frame {
        Frame::State(change) => Control::State(change),
        Frame::CreateLogs { first, count, spec } => Control::CreateLogs { first, count, spec },
        Frame::ChangeLogs { first, count, spec } => Control::ChangeLogs { first, count, spec },
        Frame::DeleteLogs { first, count } => Control::DeleteLogs { first, count },
        Frame::Truncate { log, before } => Control::Truncate { log, before },
        Frame::Claim { log, owner } => Control::Own { log, owner },
        Frame::Batch(_) => unreachable!("batches are staged as such"),
    }
}

pub(crate) fn control_frame(control: Control) -> StagedFrame {
    let body = Bytes::from(control.encode());
    let head = Head {
        kind: FrameKind::Control,
        more: false,
        body_bytes: body.len(),
        body_checksum: crc32c(&body),
        date: 0,
        span: 0,
        entries: SmallVec::new(),
    };
    StagedFrame {
        head,
        body,
        logs: SmallVec::new(),
        control: Some(Box::new(control)),
        reserves: None,
    }
}
