//! Retention: frees batches beyond a log's limits of age and bytes.
//!
//! It works on sealed segments, by the rows of their sidecars: batches still being written are not examined,
//! so that a log keeps up to a segment more than its limits.
//!
//! A record's age follows from its timestamp, even one far in the future, which is kept until then, as in
//! Kafka (the front end decides whether to accept it). Without a timestamp, or with one before 1970, it
//! follows from its append (`dates.rs`).

use smallvec::SmallVec;
use stafett_model::{LogId, Offset};

use super::control::Control;
use super::control_append::append_control;
use super::dates;
use super::engine::Engine;
use super::log::Log;
use super::read::with_sidecar;
use super::segment::{COVERED, HeadBlock, Segment, SegmentHead};
use super::sidecar::Row;

/// Enforces retention on every log.
pub(crate) fn enforce(core: &Engine) {
    if !core.has_begun() {
        return;
    }
    let now = core.now_ms();
    for log in core.logs.all() {
        let Some(before) = freed_until(core, &log, now) else {
            continue;
        };
        let mut state = log.lock();
        // Under the lock: no frame that is written before this one may free anything.
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

/// Returns the offset before which a log's retention frees everything.
fn freed_until(core: &Engine, log: &Log, now: i64) -> Option<Offset> {
    let (retention, runs, bytes, next) = {
        let state = log.lock();
        let retention = state.spec.retention;
        if state.runs.is_empty() || (retention.age.is_none() && retention.bytes.is_none()) {
            return None;
        }
        let runs: SmallVec<[_; 8]> = state.runs.iter().copied().collect();
        let next = state.recent.first().map(|recent| recent.base);
        (retention, runs, state.bytes, next)
    };
    let oldest = retention
        .age
        .map(|age| now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX)));
    let mut surplus = retention.bytes.map_or(0, |kept| bytes.saturating_sub(kept));
    let mut freed = None;
    for (run, following) in runs
        .iter()
        .zip(runs.iter().skip(1).map(|run| Some(run.first)).chain([next]))
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
        // Behind the last segment, batches may be staged and not written yet.
        freed = Some(following.unwrap_or(row.end));
    }
    freed
}

/// Returns true if all batches of a log in a segment are older.
fn is_older(core: &Engine, log: LogId, segment: &Segment, row: &Row, oldest: i64) -> bool {
    if row.date >= oldest {
        return false;
    }
    // Some batches may have no timestamp; the row does not give the time of their append.
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

/// Returns the time of a segment's first group; 0 if unknown.
fn created_at(core: &Engine, segment: &Segment) -> i64 {
    let mut block = vec![0; COVERED.end];
    let read = core
        .files
        .get(segment.role())
        .and_then(|file| file.read_at(&mut block, 0));
    match read.map(|_| SegmentHead::decode(&block)) {
        Ok(HeadBlock::Head(head)) => head.created_at,
        Ok(HeadBlock::Nothing | HeadBlock::Newer(_)) | Err(_) => 0,
    }
}
