//! Logs that are due for compaction, from their indexes alone.

use std::time::Duration;

use stafett_model::{LogId, Offset};

use super::super::super::dates;
use super::super::super::engine::Engine;
use super::super::super::log::{Log, SegmentExtent};
use super::super::super::position::SegmentId;
use super::super::super::read::with_sidecar;
use super::super::policy::SegmentView;
use super::bounds::end_bound;
use crate::contract::Compaction;

/// A log that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) log: LogId,
    /// Dirty range: not compacted yet. It may be empty while tombstones are due.
    pub(super) from: Offset,
    pub(super) end: Offset,
    /// Offset below which tombstones go.
    pub(super) horizon: Offset,
    /// Bytes of the dirty range, in millionths of the log's.
    pub(super) dirty_share: u32,
}

/// Returns the logs that are due, those with the largest dirty share first.
pub(super) fn candidates(core: &Engine, segments: &[SegmentView], now: i64) -> Vec<Candidate> {
    let (mut due, mut dirtiest) = (Vec::new(), 0);
    for log in core.logs.all() {
        let spec = log.lock().spec.compaction;
        let looked = spec.and_then(|spec| candidate(core, &log, &spec, segments, now));
        if let Some((candidate, is_due)) = looked {
            dirtiest = dirtiest.max(candidate.dirty_share);
            due.extend(is_due.then_some(candidate));
        }
    }
    core.metrics.dirty_percent.set(i64::from(dirtiest / 10_000));
    due.sort_unstable_by_key(|it: &Candidate| (std::cmp::Reverse(it.dirty_share), it.log));
    due
}

/// Looks at a log; the flag is true if it is due. `None` if no segment of it can be compacted.
fn candidate(
    core: &Engine,
    log: &Log,
    spec: &Compaction,
    segments: &[SegmentView],
    now: i64,
) -> Option<(Candidate, bool)> {
    let progress = core.compactions.lock().get(&log.id).cloned().unwrap_or_default();
    let (mut runs, start, bound) = {
        let state = log.lock();
        (state.runs.clone(), state.start, end_bound(&state))
    };
    // Offsets behind a segment that cannot be rewritten would be compacted, and those in it not.
    let free = runs.iter().take_while(|run| is_free(segments, run.segment));
    runs.truncate(free.count());
    let from = progress.end.max(start);
    let end = range_end(core, log.id, &runs, spec, from, now)?.min(bound);
    let share = dirty_share(&runs, from, end);
    let horizon = progress.horizon(before(now, spec.tombstones_kept));
    let is_late = || {
        let oldest = spec
            .lag_max
            .and_then(|lag| Some((before(now, lag), first_date(core, log.id, &runs, from)?)));
        oldest.is_some_and(|(late, date)| (0..late).contains(&date))
    };
    let is_dirty = end > from && (share > spec.dirty_share_min || is_late());
    let is_due = is_dirty || progress.has_tombstones && horizon > start && end >= horizon;
    let candidate = Candidate {
        log: log.id,
        from,
        end: end.max(from),
        horizon,
        dirty_share: share,
    };
    Some((candidate, is_due))
}

/// Returns true if a segment can be rewritten; `segments` are sorted by id.
pub(super) fn is_free(segments: &[SegmentView], id: SegmentId) -> bool {
    let view = segments.binary_search_by_key(&id, |view| view.id);
    view.ok()
        .and_then(|at| segments.get(at))
        .is_some_and(|view| view.free)
}

/// Returns the time that lies `time` before `now`, in ms since 1970.
pub(super) fn before(now: i64, time: Duration) -> i64 {
    now.saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

/// Returns the end of the batches in `runs` that are old enough; `None` if there are none.
fn range_end(
    core: &Engine,
    log: LogId,
    runs: &[SegmentExtent],
    spec: &Compaction,
    from: Offset,
    now: i64,
) -> Option<Offset> {
    let last = runs.last()?;
    let young = before(now, spec.lag_min);
    let dirty = runs.partition_point(|run| run.first <= from).saturating_sub(1);
    let looked = if spec.lag_min.is_zero() {
        std::slice::from_ref(last)
    } else {
        runs.get(dirty..).unwrap_or_default()
    };
    let mut end = None;
    for run in looked {
        let segment = core.segments.get(run.segment)?;
        let mut first_young = None;
        let row_end = with_sidecar(core, log, segment.sidecar_role(), |sidecar| {
            let Some(row) = sidecar.row(log)? else {
                return Ok(None);
            };
            if !spec.lag_min.is_zero() && dates::timestamp(row.date) > young {
                sidecar.entries_from(&row, from, |entry| {
                    let is_young = dates::timestamp(entry.date) > young;
                    first_young = is_young.then_some(entry.base);
                    !is_young
                })?;
            }
            Ok(Some(row.end))
        });
        end = first_young.or(row_end.ok()?).or(end);
        if first_young.is_some() {
            break;
        }
    }
    end
}

/// Returns the share of bytes in `from..end`, in millionths of those below `end`.
fn dirty_share(runs: &[SegmentExtent], from: Offset, end: Offset) -> u32 {
    let ends = runs.iter().skip(1).map(|run| run.first).chain([end]);
    let (mut dirty, mut all) = (0_u128, 0_u128);
    for (run, behind) in runs.iter().zip(ends) {
        let (first, behind) = (run.first.0, behind.min(end).0);
        let (span, bytes) = (behind.saturating_sub(first), u128::from(run.bytes));
        if span == 0 {
            continue;
        }
        let clean = from.0.clamp(first, behind) - first;
        all += bytes;
        dirty += bytes * u128::from(span - clean) / u128::from(span);
    }
    u32::try_from(dirty * 1_000_000 / all.max(1)).unwrap_or(u32::MAX)
}

/// Returns the latest timestamp of the first batch that ends behind `from`; negative if it has none.
fn first_date(core: &Engine, log: LogId, runs: &[SegmentExtent], from: Offset) -> Option<i64> {
    let dirty = runs.partition_point(|run| run.first <= from).saturating_sub(1);
    for run in runs.get(dirty..)? {
        let segment = core.segments.get(run.segment)?;
        let mut found = None;
        let looked = with_sidecar(core, log, segment.sidecar_role(), |sidecar| {
            let Some(row) = sidecar.row(log)? else {
                return Ok(());
            };
            sidecar.entries_from(&row, from, |entry| {
                found = Some(dates::timestamp(entry.date));
                false
            })
        });
        looked.ok()?;
        if found.is_some() {
            return found;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dirty_share_counts_bytes_behind_the_last_pass() {
        let run = |first, bytes| SegmentExtent {
            first: Offset(first),
            segment: SegmentId(1),
            bytes,
        };
        let runs = [run(0, 600), run(100, 200), run(200, 200)];
        let share = |from, end| dirty_share(&runs, Offset(from), Offset(end));
        assert_eq!(share(0, 300), 1_000_000);
        assert_eq!(share(100, 300), 400_000);
        assert_eq!(share(150, 300), 300_000);
        assert_eq!(share(300, 300), 0);
        assert_eq!(share(100, 200), 250_000);
    }
}
