//! A pass: the dirty ranges of some logs are read into one offset map, then every segment that holds one of
//! the logs below the end of its range is rewritten with the filter.
//!
//! If the map is full, the range ends there, and the next pass continues. Nothing of a pass has to survive a
//! stop: each rewritten segment is right by itself, as the newer records of the removed ones are durable.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use stafett_model::{BatchHeader, LogId, Offset, for_each_key};

use super::super::super::control::Control;
use super::super::super::control_append::append_control_synced;
use super::super::super::engine::Engine;
use super::super::super::position::SegmentId;
use super::super::super::read::read_here;
use super::super::super::segment::SegmentKind;
use super::super::output::Budget;
use super::super::policy::{RewritePolicy, SegmentView};
use super::bounds::is_hidden;
use super::candidate::Candidate;
use super::filter::{BATCH_BYTES_MAX, LogFilter, RecordFilter, Removed};
use super::offset_map::{OffsetMap, TOGETHER};
use crate::contract::{ReadError, ReadFrom, Visibility};

/// Bytes read at once from a dirty range.
const READ_BYTES: usize = 1 << 20;

pub(super) struct Pass {
    pub(super) filter: RecordFilter,
    /// Segments made by the pass.
    done: HashSet<SegmentId>,
}

/// Next work of a pass.
pub(super) enum PassStep {
    /// Neighbouring segments to rewrite with the filter.
    Rewrite(Vec<SegmentId>),
    Complete,
    /// A segment cannot be rewritten now.
    Blocked,
}

impl Pass {
    /// Reads the dirty ranges of `due`, as far as the map has room. `None` if no log can be compacted, or if
    /// the journal is closed meanwhile.
    pub(super) fn begin(core: &Engine, due: Vec<Candidate>) -> Option<Self> {
        if due.is_empty() {
            return None;
        }
        let mut pass = Self {
            filter: RecordFilter {
                map: OffsetMap::new(core.settings.compaction.map_bytes),
                logs: BTreeMap::new(),
                removed: Removed::default(),
            },
            done: HashSet::new(),
        };
        let mut budget = Budget::new(core);
        for candidate in due {
            let mut own = LogFilter {
                horizon: candidate.horizon,
                producers: producers(core, candidate.log),
                ..LogFilter::default()
            };
            own.end = pass.read(core, candidate, &mut own, &mut budget)?;
            if own.end > candidate.from || candidate.horizon > Offset::ZERO {
                pass.filter.logs.insert(candidate.log, own);
            }
            if pass.filter.map.is_full() {
                break;
            }
        }
        (!pass.filter.logs.is_empty()).then_some(pass)
    }

    /// Puts the keys of a dirty range into the map. Returns the offset up to which they are there; `None` if
    /// the journal is being closed.
    fn read(
        &mut self,
        core: &Engine,
        range: Candidate,
        own: &mut LogFilter,
        budget: &mut Budget,
    ) -> Option<Offset> {
        let mut offset = range.from;
        while offset < range.end {
            let from = ReadFrom {
                log: range.log,
                offset,
                bytes_max: READ_BYTES,
                visibility: Visibility::Stored,
            };
            let slice = match read_here(core, from) {
                Ok(slice) if slice.next > offset => slice,
                // Unreadable records replace nothing: a gap, records freed by retention, or damage.
                Ok(_) => break,
                Err(ReadError::OutOfRange { start: to, .. } | ReadError::Damaged { to, .. })
                    if to > offset =>
                {
                    offset = to;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "a log cannot be compacted further now");
                    return Some(offset);
                }
            };
            budget.spend_read(core, slice.bytes as u64).ok()?;
            for batch in &slice.pieces {
                if let Some(full_at) = self.add(core, batch, range, own) {
                    return Some(full_at);
                }
            }
            offset = slice.next;
        }
        Some(range.end)
    }

    /// Puts the keys of a batch into the map. Returns the offset of the first record for which there is no
    /// room.
    fn add(&mut self, core: &Engine, batch: &Bytes, range: Candidate, own: &mut LogFilter) -> Option<Offset> {
        let log = core.logs.get(range.log)?;
        let header = BatchHeader::parse(batch).ok()?;
        if header.is_control() || is_hidden(&log.lock(), &header) {
            return None;
        }
        let (map, mut keys) = (&mut self.filter.map, Vec::with_capacity(TOGETHER));
        let mut full_at = None;
        let read = for_each_key(batch, BATCH_BYTES_MAX, |record| {
            let is_wanted = (range.from..range.end).contains(&record.offset);
            if let Some(key) = record.key.filter(|_| is_wanted) {
                keys.push((map.hash(range.log, key), record.offset));
            }
            if keys.len() == TOGETHER {
                full_at = map.insert_all(&keys);
                keys.clear();
            }
            full_at.is_none()
        });
        own.is_incomplete |= read.is_err();
        full_at.or_else(|| map.insert_all(&keys))
    }

    /// Returns the next segments to rewrite.
    pub(super) fn next(&self, core: &Engine, policy: &RewritePolicy, segments: &[SegmentView]) -> PassStep {
        for (id, own) in &self.filter.logs {
            let Some(log) = core.logs.get(*id) else { continue };
            let runs = log.lock().runs.clone();
            let mut left = runs
                .iter()
                .filter(|run| run.first < own.end && !self.done.contains(&run.segment));
            let Some(run) = left.next() else { continue };
            let view = segments.iter().find(|view| view.id == run.segment && view.free);
            return match view.map(|view| view.kind) {
                None => PassStep::Blocked,
                Some(SegmentKind::Sorted) => {
                    let behind = left.map(|run| run.segment);
                    let bytes = core.settings.segment_bytes.into();
                    let together = RewritePolicy::sorted_together(segments, run.segment, behind, bytes);
                    PassStep::Rewrite(together)
                }
                Some(SegmentKind::Arrival) => {
                    let last = left.map(|run| run.segment).max().unwrap_or(run.segment);
                    PassStep::Rewrite(policy.arrivals_between(segments, run.segment, last))
                }
            };
        }
        PassStep::Complete
    }

    pub(super) fn on_rewritten(&mut self, outputs: impl IntoIterator<Item = SegmentId>) {
        self.done.extend(outputs);
    }

    /// Stores the progress of the logs; false if that is not certain. Everything that was rewritten is in
    /// force before.
    pub(super) fn store(&self, core: &Engine) -> bool {
        let now = core.now_ms();
        for (id, own) in &self.filter.logs {
            if core.logs.get(*id).is_none() {
                continue;
            }
            let mut progress = core.compactions.lock().get(id).cloned().unwrap_or_default();
            if own.is_incomplete {
                progress.advance_unsure(own.end);
            } else {
                progress.advance(own.end, own.horizon, now, own.has_tombstones);
            }
            if !append_control_synced(core, Control::State(progress.put(*id))) {
                return false;
            }
            core.compactions.lock().insert(*id, progress);
            if !own.is_incomplete {
                forget_aborted(core, *id, own.end);
            }
        }
        true
    }
}

/// Forgets the aborted transactions before the end of a pass, which has removed their records.
fn forget_aborted(core: &Engine, log: LogId, end: Offset) {
    let Some(log) = core.logs.get(log) else { return };
    let mut state = log.lock();
    if let Some(producers) = &mut state.producers {
        producers.forget_aborted(end);
        core.mark_dirty(&log, &mut state);
    }
}

/// Returns the epoch and last sequence number of each producer of a log.
fn producers(core: &Engine, log: LogId) -> HashMap<i64, (i16, i32)> {
    let Some(log) = core.logs.get(log) else {
        return HashMap::new();
    };
    let state = log.lock();
    let seen = state
        .producers
        .as_ref()
        .map_or_else(Vec::new, |producers| producers.seen());
    let known = seen.into_iter().map(|it| (it.id.0, (it.epoch, it.sequence)));
    known.collect()
}
