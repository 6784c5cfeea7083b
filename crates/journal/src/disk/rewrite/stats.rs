//! Live part of each sealed segment, computed from the rows of its sidecar and the starts of its logs.
//!
//! If logs share frames, the rows overstate: a frame's bytes are counted in several, and it is dead only when
//! all of its logs have freed it. Then the frames themselves are examined, but not every time that something
//! is freed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::engine::Engine;
use super::super::position::{Position, SegmentId};
use super::super::segment::{SEGMENT_HEAD_BYTES, Segment, SegmentKind};
use super::super::sidecar::{EntryCursor, Row, Sidecar, SidecarError};
use super::input::LivenessCheck;
use super::policy::SegmentView;
use super::postponed::Postponed;

#[derive(Debug, Default)]
pub(crate) struct Statistics {
    known: BTreeMap<SegmentId, SegmentStats>,
    /// Value of the counter `freed` at the last computation.
    computed_at: Option<u64>,
    postponed: Postponed,
    /// Segments that could not be measured when something was freed.
    stale: BTreeSet<SegmentId>,
}

#[derive(Debug, Clone, Copy)]
struct SegmentStats {
    kind: SegmentKind,
    bytes: u64,
    dead_bytes: u64,
    runs: u32,
    sealed_at: i64,
    /// Dead bytes by the rows when the frames were last examined, if that was necessary.
    looked_at: Option<u64>,
}

/// Frames are examined again after the dead part by rows changes by this fraction (1/16) of the segment.
const LOOKS_MAX: u64 = 16;

impl Statistics {
    /// Measures new segments, and all of them if something was freed since.
    pub(crate) fn refresh(&mut self, core: &Engine) {
        let freed = core.freed.load(Ordering::Acquire);
        let again = self.computed_at != Some(freed);
        for segment in core.segments.all() {
            if !again && self.known.contains_key(&segment.id) && !self.stale.contains(&segment.id) {
                continue;
            }
            let before = self.known.get(&segment.id);
            if core.housekeeping.dead().contains(&segment.id) {
                self.known.insert(segment.id, SegmentStats::dead(core, &segment));
                continue;
            }
            let now = core.now_ms();
            if self.postponed.has(segment.id, now) {
                self.stale.insert(segment.id);
                continue;
            }
            match measure(core, &segment, before) {
                Ok(known) => {
                    self.postponed.forget(segment.id);
                    self.stale.remove(&segment.id);
                    self.known.insert(segment.id, known);
                }
                // The active segment, and segments without a sidecar yet.
                Err(SidecarError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.stale.insert(segment.id);
                    if self.postponed.on_failed(segment.id, now) {
                        tracing::error!(%error, segment = segment.id.0, "a sidecar cannot be read");
                    }
                }
            }
        }
        self.computed_at = Some(freed);
    }

    pub(crate) fn forget(&mut self, ids: &[SegmentId]) {
        for id in ids {
            self.known.remove(id);
            self.postponed.forget(*id);
            self.stale.remove(id);
        }
    }

    pub(crate) fn export_metrics(&self, core: &Engine) {
        let dead: u64 = self.known.values().map(|known| known.dead_bytes).sum();
        let all: u64 = self.known.values().map(|known| known.bytes).sum();
        core.metrics
            .dead_bytes
            .set(i64::try_from(dead).unwrap_or(i64::MAX));
        core.metrics
            .live_bytes
            .set(i64::try_from(all.saturating_sub(dead)).unwrap_or(i64::MAX));
        core.metrics
            .segment_files
            .set(i64::try_from(self.known.len()).unwrap_or(i64::MAX));
    }

    /// Returns the segments for the policy, sorted by id.
    pub(crate) fn segments(&self, core: &Engine, covered: Position, held: &[SegmentId]) -> Vec<SegmentView> {
        self.known
            .iter()
            .filter(|(id, _)| core.segments.get(**id).is_some())
            .map(|(id, known)| SegmentView {
                id: *id,
                kind: known.kind,
                bytes: known.bytes,
                dead_bytes: known.dead_bytes,
                runs: known.runs,
                sealed_at: known.sealed_at,
                // The ids of sorted segments do not show when their batches arrived.
                free: (known.kind == SegmentKind::Sorted || *id < covered.segment) && !held.contains(id),
            })
            .collect()
    }
}

impl SegmentStats {
    /// Describes a segment without a sidecar and without live data.
    fn dead(core: &Engine, segment: &Segment) -> Self {
        let bytes = u64::from(core.settings.segment_bytes);
        Self {
            kind: segment.kind,
            bytes,
            dead_bytes: bytes,
            runs: 0,
            sealed_at: core.now_ms(),
            looked_at: None,
        }
    }
}

fn measure(
    core: &Engine,
    segment: &Segment,
    before: Option<&SegmentStats>,
) -> Result<SegmentStats, SidecarError> {
    let file = core.files.get(segment.sidecar_role())?;
    let sidecar = Sidecar::open(&*file, segment.id)?;
    let (mut all, mut dead): (u64, u64) = (0, 0);
    sidecar.for_each_row(|row| {
        all = row.bytes.saturating_add(all);
        dead = dead_bytes(core, &row).saturating_add(dead);
    })?;
    let control = sidecar.summary.control_bytes;
    let bytes = u64::from(sidecar.summary.valid_bytes).saturating_sub(SEGMENT_HEAD_BYTES as u64);
    // Control frames are dead once covered.
    let batches = bytes.saturating_sub(control);
    let by_rows = if all == dead {
        batches
    } else {
        share(batches, dead, all)
    };
    let looked_at = before.and_then(|before| Some((before.looked_at?, before.dead_bytes)));
    let (dead_bytes, looked_at) = match looked_at {
        // Otherwise a partly dead frame may be the whole segment: a merge does not free its share of a row.
        _ if dead == 0 || dead == all => (control + by_rows, None),
        Some((then, known)) if by_rows.abs_diff(then) < batches / LOOKS_MAX => (known, Some(then)),
        _ => {
            let frames = dead_frames(core, EntryCursor::new(Arc::clone(&file), sidecar.summary))?;
            (control + frames.min(batches), Some(by_rows))
        }
    };
    Ok(SegmentStats {
        kind: segment.kind,
        bytes,
        dead_bytes,
        runs: sidecar.summary.runs,
        sealed_at: before.map_or_else(|| core.now_ms(), |before| before.sealed_at),
        looked_at,
    })
}

/// Returns the bytes of frames that are no longer readable.
fn dead_frames(core: &Engine, mut entries: EntryCursor) -> Result<u64, SidecarError> {
    let mut alive = LivenessCheck::new(core);
    let mut frames: Vec<(u32, u32, bool)> = Vec::new();
    while let Some(entry) = entries.next()? {
        frames.push((entry.byte, entry.bytes, alive.is(entry.log, entry.end())));
    }
    frames.sort_unstable_by_key(|(byte, _, _)| *byte);
    let of_frames = frames.chunk_by(|(one, _, _), (next, _, _)| one == next);
    let dead = of_frames.filter(|entries| entries.iter().all(|(_, _, is_alive)| !is_alive));
    Ok(dead
        .filter_map(|entries| entries.first())
        .map(|(_, bytes, _)| u64::from(*bytes))
        .sum())
}

fn dead_bytes(core: &Engine, row: &Row) -> u64 {
    let Some(log) = core.logs.get(row.log) else {
        return row.bytes;
    };
    let start = log.lock().start;
    let gone = start.0.clamp(row.first.0, row.end.0) - row.first.0;
    share(row.bytes, gone, row.end.0 - row.first.0)
}

/// Computes `of * part / whole` without overflow.
fn share(of: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(of) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(of)
}
