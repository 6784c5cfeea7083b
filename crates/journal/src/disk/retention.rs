//! Retention: frees what is older or more than a log wants to keep.
//!
//! It works on sealed segments, by what their sidecars say of a log: the batches that are still being written are never
//! looked at, so that a log keeps up to a segment more than it has to.

use smallvec::SmallVec;
use stafett_model::Offset;

use super::barrier::append_control;
use super::control::Control;
use super::core::Core;
use super::log::Log;
use super::read::with_sidecar;

/// Looks at every log that has something to free.
pub(crate) fn enforce(core: &Core) {
    let now = core.now_ms();
    for log in core.logs.all() {
        let Some(before) = freed_until(core, &log, now) else {
            continue;
        };
        let mut state = log.lock();
        if state.truncate(before) {
            core.mark_dirty(&log, &mut state);
            // Under the lock: nothing may be let go of by a frame that is written before this one.
            append_control(core, Control::Truncate { log: log.id, before });
            drop(state);
            core.freed.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
            core.metrics.truncations.inc();
        }
    }
}

/// The offset before which a log's retention frees everything.
fn freed_until(core: &Core, log: &Log, now: i64) -> Option<Offset> {
    let (retention, runs, bytes, next) = {
        let state = log.lock();
        let retention = state.spec.retention;
        if state.runs.is_empty() || (retention.age.is_none() && retention.bytes.is_none()) {
            return None;
        }
        let runs: SmallVec<[_; 8]> = state.runs.iter().copied().collect();
        let next = state.recent.first().map_or(state.next, |recent| recent.base);
        (retention, runs, state.bytes, next)
    };
    let oldest = retention
        .age
        .map(|age| now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)));
    let mut surplus = retention.bytes.map_or(0, |kept| bytes.saturating_sub(kept));
    let mut freed = None;
    for (run, following) in runs
        .iter()
        .zip(runs.iter().skip(1).map(|run| run.first).chain([next]))
    {
        let Some(segment) = core.segments.get(run.segment) else {
            break;
        };
        let row = with_sidecar(core, log.id, segment.sidecar_role(), |sidecar| {
            sidecar.row(log.id)
        });
        let Ok(Some(row)) = row else { break };
        let too_old = oldest.is_some_and(|oldest| row.max_timestamp < oldest);
        let too_much = surplus >= row.bytes && surplus > 0;
        if !too_old && !too_much {
            break;
        }
        surplus = surplus.saturating_sub(row.bytes);
        freed = Some(following);
    }
    freed
}
