//! What of each sealed segment is alive: computed from the rows of its sidecar and the starts of its logs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::super::core::Core;
use super::super::position::{Position, SegmentId};
use super::super::segment::{SEGMENT_HEAD_BYTES, Segment, SegmentKind};
use super::super::sidecar::{Row, Sidecar, SidecarError};
use super::policy::SegmentView;

#[derive(Debug, Default)]
pub(crate) struct Statistics {
    known: BTreeMap<SegmentId, Known>,
    /// The count of truncations and deletions at which the dead parts were computed.
    computed_at: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    kind: SegmentKind,
    bytes: u64,
    dead_bytes: u64,
    runs: u32,
    sealed_at: i64,
}

impl Statistics {
    /// Looks at segments that are new, and at all of them if something was freed since.
    pub(crate) fn refresh(&mut self, core: &Core) {
        let freed = core.freed.load(Ordering::Acquire);
        let again = self.computed_at != Some(freed);
        for segment in core.segments.all() {
            if !again && self.known.contains_key(&segment.id) {
                continue;
            }
            match measure(core, &segment) {
                Ok(mut known) => {
                    if let Some(before) = self.known.get(&segment.id) {
                        known.sealed_at = before.sealed_at;
                    }
                    self.known.insert(segment.id, known);
                }
                // The active segment, and those whose sidecars are still to come, have none.
                Err(SidecarError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => tracing::error!(%error, segment = segment.id.0, "a sidecar cannot be read"),
            }
        }
        self.computed_at = Some(freed);
    }

    pub(crate) fn forget(&mut self, ids: &[SegmentId]) {
        for id in ids {
            self.known.remove(id);
        }
    }

    pub(crate) fn show(&self, core: &Core) {
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

    /// The segments as the policy sees them, sorted by id.
    pub(crate) fn segments(&self, core: &Core, covered: Position, held: &[SegmentId]) -> Vec<SegmentView> {
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
                // The ids of sorted segments say nothing of when their batches arrived.
                free: (known.kind == SegmentKind::Sorted || *id < covered.segment) && !held.contains(id),
            })
            .collect()
    }
}

fn measure(core: &Core, segment: &Segment) -> Result<Known, SidecarError> {
    let file = core.files.get(segment.sidecar_role())?;
    let sidecar = Sidecar::open(&*file, segment.id)?;
    let (mut all, mut dead) = (0, 0);
    sidecar.for_each_row(|row| {
        all = row.bytes.saturating_add(all);
        dead = dead_bytes(core, &row).saturating_add(dead);
    })?;
    let control = sidecar.summary.control_bytes;
    let bytes = u64::from(sidecar.summary.valid_bytes).saturating_sub(SEGMENT_HEAD_BYTES as u64);
    // A fan-out frame stands in several rows: shares, not sums, are right. Control frames are dead once covered.
    let batches = bytes.saturating_sub(control);
    let dead_batches = if all == dead {
        batches
    } else {
        share(batches, dead, all)
    };
    Ok(Known {
        kind: segment.kind,
        bytes,
        dead_bytes: control + dead_batches,
        runs: sidecar.summary.runs,
        sealed_at: core.now_ms(),
    })
}

fn dead_bytes(core: &Core, row: &Row) -> u64 {
    let Some(log) = core.logs.get(row.log) else {
        return row.bytes;
    };
    let start = log.lock().start;
    let gone = start.0.clamp(row.first.0, row.end.0) - row.first.0;
    share(row.bytes, gone, row.end.0 - row.first.0)
}

/// `of * part / whole`, without overflow.
fn share(of: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(of) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(of)
}
