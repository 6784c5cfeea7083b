//! Retention: frees what is older or more than a log wants to keep.
//!
//! It works on sealed segments, by what their sidecars say of a log: the batches that are still being written
//! are never looked at, so that a log keeps up to a segment more than it has to.
//!
//! A record is as old as its timestamp says, also one far in the future, which stays until then, as in Kafka
//! (where it may come at all is decided at the edge). One without a time, or from before 1970, is as old as
//! its append (`dates.rs`).

use smallvec::SmallVec;
use stafett_model::{LogId, Offset};

use super::barrier::append_control;
use super::control::Control;
use super::core::Core;
use super::dates;
use super::log::Log;
use super::read::with_sidecar;
use super::segment::{COVERED, HeadFound, Segment, SegmentHead};
use super::sidecar::Row;

/// Looks at every log that has something to free.
pub(crate) fn enforce(core: &Core) {
    if !core.has_begun() {
        return;
    }
    let now = core.now_ms();
    for log in core.logs.all() {
        let Some(before) = freed_until(core, &log, now) else {
            continue;
        };
        let mut state = log.lock();
        // Under the lock: nothing may be let go of by a frame that is written before this one.
        if state.start < before
            && append_control(core, Control::Truncate { log: log.id, before })
            && state.truncate(before)
        {
            core.mark_dirty(&log, &mut state);
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
        let too_old = oldest.is_some_and(|oldest| is_older(core, log.id, &segment, &row, oldest));
        let too_much = surplus >= row.bytes && surplus > 0;
        if !too_old && !too_much {
            break;
        }
        surplus = surplus.saturating_sub(row.bytes);
        freed = Some(following);
    }
    freed
}

/// Whether everything that a segment holds of a log is older.
fn is_older(core: &Core, log: LogId, segment: &Segment, row: &Row, oldest: i64) -> bool {
    if row.date >= oldest {
        return false;
    }
    // There may be batches without a time among it, whose append the row says nothing of.
    let created_at = created_at(core, segment);
    let mut is_older = true;
    let looked = with_sidecar(core, log, segment.sidecar_role(), |sidecar| {
        sidecar.entries_from(row, row.first, |entry| {
            is_older = dates::kept_from(entry.date, created_at) < oldest;
            is_older
        })
    });
    looked.is_ok() && is_older
}

/// When the first group of a segment was written; 0 if that is not known.
fn created_at(core: &Core, segment: &Segment) -> i64 {
    let mut block = vec![0; COVERED.end];
    let read = core
        .files
        .get(segment.role())
        .and_then(|file| file.read_at(&mut block, 0));
    match read.map(|_| SegmentHead::decode(&block)) {
        Ok(HeadFound::Head(head)) => head.created_at,
        Ok(HeadFound::Nothing | HeadFound::Newer(_)) | Err(_) => 0,
    }
}
