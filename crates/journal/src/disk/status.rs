//! Figures of a running journal, for people who look after it.

use std::io;
use std::sync::atomic::Ordering;

use super::engine::Engine;
use super::position::SegmentId;
use super::segment::{HeadBlock, SEGMENT_HEAD_BYTES, Segment, SegmentHead, SegmentKind};
use super::storage::read_exact_at;
use crate::quantiles::TimeQuantiles;

/// Figures of a journal.
#[derive(Debug, Clone)]
pub struct JournalStatus {
    /// Reason why it takes no more appends.
    pub failure: Option<String>,
    pub epoch: u32,
    pub arrival_segments: usize,
    pub sorted_segments: usize,
    /// Empty segment files.
    pub spare_segments: usize,
    pub logs: usize,
    /// Readable and freed bytes in sealed segments, as of the last look of the background.
    pub live_bytes: u64,
    pub dead_bytes: u64,
    /// Bytes written to arrival segments since the start.
    pub written_bytes: u64,
    /// Bytes written again by the background since the start.
    pub rewritten_bytes: u64,
    /// Bytes that the tail cache keeps.
    pub tail_cache_bytes: u64,
    /// Bytes written since the last checkpoint, which the next start would replay.
    pub replay_bytes: u64,
    /// Time of the last checkpoint, ms since 1970. `None` if this run stored none.
    pub checkpoint_at: Option<i64>,
    /// Free bytes of the disk. `None` if it cannot be asked.
    pub free_bytes: Option<u64>,
    pub free_bytes_min: u64,
    /// True while publishers wait for space.
    pub is_space_short: bool,
    /// Segments found damaged since the start.
    pub damaged_segments: u64,
    /// Times of syncs of the disk.
    pub sync: TimeQuantiles,
    /// Times from staging an append until it was written, and until it was synced.
    pub append_written: TimeQuantiles,
    pub append_synced: TimeQuantiles,
}

/// A segment file.
#[derive(Debug, Clone)]
pub struct SegmentStatus {
    pub number: u32,
    /// True for batches by log, false for batches in the order of their arrival.
    pub is_sorted: bool,
    /// Size of the file.
    pub bytes: u64,
    /// Time of creation, ms since 1970.
    pub created_at: i64,
    /// First and last log of a sorted segment.
    pub logs: Option<(u64, u64)>,
}

pub(crate) fn status(core: &Engine) -> JournalStatus {
    let segments = core.segments.all();
    let of_kind = |kind| segments.iter().filter(|segment| segment.kind == kind).count();
    let bytes = |gauge: i64| u64::try_from(gauge).unwrap_or(0);
    let checkpoint_at = core.checkpointed_at.load(Ordering::Acquire);
    JournalStatus {
        failure: core.failure.get().cloned(),
        epoch: core.epoch.0,
        arrival_segments: of_kind(SegmentKind::Arrival),
        sorted_segments: of_kind(SegmentKind::Sorted),
        spare_segments: core.pool.spares(),
        logs: core.logs.len(),
        live_bytes: bytes(core.metrics.live_bytes.get()),
        dead_bytes: bytes(core.metrics.dead_bytes.get()),
        written_bytes: core.metrics.written_bytes.get(),
        rewritten_bytes: core.metrics.rewritten_bytes.get(),
        tail_cache_bytes: bytes(core.metrics.tail_bytes.get()),
        replay_bytes: core.pending().bytes,
        checkpoint_at: (checkpoint_at != 0).then_some(checkpoint_at),
        free_bytes: core.storage.free_bytes().ok(),
        free_bytes_min: core.settings.disk_free_bytes_min,
        is_space_short: core.pool.shortage().is_short(),
        damaged_segments: core.metrics.damaged_segments.get(),
        sync: TimeQuantiles::of(&core.metrics.sync_seconds),
        append_written: TimeQuantiles::of(&core.metrics.append_written_seconds),
        append_synced: TimeQuantiles::of(&core.metrics.append_synced_seconds),
    }
}

/// Reads the headers of all segments; skips those that are replaced meanwhile.
pub(crate) fn segments(core: &Engine) -> io::Result<Vec<SegmentStatus>> {
    let mut found = Vec::new();
    for segment in core.segments.all() {
        match describe(core, &segment) {
            Ok(status) => found.push(status),
            Err(error) if core.segments.get(segment.id).is_none() => {
                tracing::debug!(%error, segment = segment.id.0, "a segment was replaced meanwhile");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn describe(core: &Engine, segment: &Segment) -> io::Result<SegmentStatus> {
    let file = core.files.get(segment.role())?;
    let mut block = vec![0; SEGMENT_HEAD_BYTES];
    read_exact_at(&*file, &mut block, 0)?;
    let HeadBlock::Head(head) = SegmentHead::decode(&block) else {
        let SegmentId(number) = segment.id;
        return Err(io::Error::other(format!("segment {number} has no header")));
    };
    let is_sorted = segment.kind == SegmentKind::Sorted;
    Ok(SegmentStatus {
        number: segment.id.0,
        is_sorted,
        bytes: file.bytes()?,
        created_at: head.created_at,
        logs: is_sorted.then_some((head.first.0.0, head.last.0.0)),
    })
}
