//! Sealing of the segment being written, so that the records in it are compacted within their longest lag.
//!
//! Only sealed segments are compacted, and that of a quiet journal would stay open for long. A segment that
//! is sealed early takes the space of a full one until it is rewritten. So at most one is sealed per
//! [`SEAL_EVERY_MS`], for all logs together, and none for a log that could not be compacted afterwards.

use super::super::super::control_append::{seal_synced, wait_synced};
use super::super::super::dates;
use super::super::super::engine::Engine;
use super::super::super::log::{Log, RecentBatch};
use super::super::super::position::SegmentId;
use super::super::policy::SegmentView;
use super::bounds::end_bound;
use super::candidate::{before, is_free};

/// Time between two seals at least, in ms.
const SEAL_EVERY_MS: u64 = 60_000;

#[derive(Debug, Default)]
pub(super) struct Sealing {
    /// Time of the last attempt, in ms since 1970.
    last: Option<i64>,
}

impl Sealing {
    /// Seals the segment being written if a log has a record in it that should be compacted by now.
    pub(super) fn seal_if_due(&mut self, core: &Engine, segments: &[SegmentView], now: i64) {
        let is_soon = |last: i64| now.abs_diff(last) < SEAL_EVERY_MS;
        if self.last.is_some_and(is_soon) || core.pool.shortage().is_short() {
            return;
        }
        let active = core.writer.lock().active.as_ref().map(|active| active.id);
        let Some(active) = active else { return };
        if !core
            .logs
            .all()
            .iter()
            .any(|log| is_late(core, log, active, segments, now))
        {
            return;
        }
        self.last = Some(now);
        // A checkpoint covers the segment once the next one has begun.
        if seal_synced(core) && wait_synced(core) {
            core.metrics.compaction_seals.inc();
            core.housekeeping.want_checkpoint();
        }
    }
}

/// Returns true if the first record of a log that is not compacted and lies in `active` has reached the
/// longest lag.
fn is_late(core: &Engine, log: &Log, active: SegmentId, segments: &[SegmentView], now: i64) -> bool {
    let spec = log.lock().spec.compaction;
    let Some((spec, lag)) = spec.and_then(|spec| Some((spec, spec.lag_max?))) else {
        return false;
    };
    let progress = core.compactions.lock().get(&log.id).map(|known| known.end);
    let state = log.lock();
    let from = progress.unwrap_or_default().max(state.start);
    let compacted = |batch: &RecentBatch| batch.segment < active || batch.end() <= from;
    let first = state.recent.partition_point(compacted);
    let late = before(now, lag.max(spec.lag_min));
    state.recent.get(first).is_some_and(|batch| {
        batch.base < end_bound(&state)
            && (0..late).contains(&dates::timestamp(batch.date))
            && state.runs.iter().all(|run| is_free(segments, run.segment))
    })
}
