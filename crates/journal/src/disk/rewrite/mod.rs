//! Rewriting: arrival segments, in which the batches of many logs are mixed, become sorted segments, in which
//! each log has long runs; dead data is left behind; segments without live data are reused.
//!
//! `policy` selects the work from a few numbers per segment. `merge` does it (it reads `input`s, `ties` tells
//! which logs are stored together, `output` writes). `compaction` has it done with a filter of records.
//! `postponed` are segments that cannot be read now.
//! `retire` puts the result into force and releases the replaced segments. It can be interrupted at any
//! point: the result takes effect by one control frame.

mod compaction;
mod input;
mod merge;
mod output;
mod policy;
mod postponed;
mod retire;
mod room;
mod stats;
mod ties;

use std::collections::HashMap;
use std::time::Duration;

use super::engine::Engine;
use super::position::SegmentId;
use super::scrub::Scrubber;
use super::segment::SegmentKind;
use super::storage::is_full;

pub(crate) use self::compaction::CompactionProgress;
pub use self::compaction::CompactionSettings;
use self::compaction::{Compactor, RecordFilter, Work};
pub(crate) use self::input::LivenessCheck;
use self::merge::MergedSegment;
pub use self::policy::RewritePolicy;
use self::policy::{Plan, Room, SegmentView, fitting};
use self::postponed::Postponed;
pub(crate) use self::retire::RetiringSegments;
use self::room::{RoomFinder, needed};
pub(crate) use self::stats::Statistics;

/// Interval of looking for work.
const PATIENCE: Duration = Duration::from_secs(1);

/// Segments that one control frame releases: it has to fit into the smallest segment.
const RECYCLED_AT_ONCE: usize = 1024;

/// Rewrites until the journal is closed.
pub(crate) fn run(core: &Engine) {
    let mut rewriter = Rewriter::default();
    let mut scrubber = Scrubber::default();
    while core.rewriting.wait(PATIENCE) {
        while rewriter.step(core) {}
        scrubber.step(core);
    }
}

/// State of the rewriter between its steps.
#[derive(Debug, Default)]
pub(crate) struct Rewriter {
    statistics: Statistics,
    retiring: RetiringSegments,
    room: RoomFinder,
    /// Segments found damaged: they are left as they are.
    damaged: Vec<SegmentId>,
    postponed: Postponed,
    compactor: Compactor,
    /// True if compaction comes first in the next step: both get their turns.
    compacts_first: bool,
}

impl Rewriter {
    /// Does the most useful work; false if there is none.
    pub(crate) fn step(&mut self, core: &Engine) -> bool {
        self.retiring.release(core);
        self.statistics.refresh(core);
        self.statistics.export_metrics(core);
        let covered = core.checkpointed();
        let held = self.held(core);
        let segments = self.statistics.segments(core, covered, &held);
        if core.has_failed() || core.rewriting.is_closed() {
            return false;
        }
        self.compacts_first = !self.compacts_first;
        [self.compacts_first, !self.compacts_first]
            .into_iter()
            .any(|compacts| {
                if compacts {
                    self.compact(core, &segments)
                } else {
                    self.rewrite(core, &segments)
                }
            })
    }

    /// Returns the segments that are left as they are.
    fn held(&mut self, core: &Engine) -> Vec<SegmentId> {
        self.postponed.retain(|id| core.segments.get(id).is_some());
        let damaged = self.damaged.iter().copied();
        damaged.chain(self.postponed.all(core.now_ms())).collect()
    }

    /// Recycles dead segments, or merges some.
    fn rewrite(&mut self, core: &Engine, segments: &[SegmentView]) -> bool {
        match self.plan(core, segments) {
            None => false,
            Some(Plan::Recycle(mut dead)) => {
                dead.truncate(RECYCLED_AT_ONCE);
                self.swap(core, &dead, Vec::new())
            }
            Some(Plan::Merge(inputs)) => match self.merge(core, segments, inputs, None) {
                Merged::Done { inputs, outputs } => self.swap(core, &inputs, outputs),
                Merged::Without => true,
                Merged::Failed => false,
            },
        }
    }

    /// Returns the work that there is space for. If there is none, a spare makes way for an output: the
    /// replaced segment becomes one.
    fn plan(&mut self, core: &Engine, segments: &[SegmentView]) -> Option<Plan> {
        let room = self.room.find(core);
        let plan = |room| core.settings.rewrite.plan(segments, core.now_ms(), room);
        let in_place_of_spare = || {
            let free = core.storage.free_bytes().ok().filter(|_| room.is_short)?;
            let bytes = free.saturating_add(core.settings.segment_bytes.into());
            plan(Room { bytes, ..room }).filter(|_| core.pool.make_way())
        };
        plan(room).or_else(in_place_of_spare)
    }

    /// Does a step of compaction.
    fn compact(&mut self, core: &Engine, segments: &[SegmentView]) -> bool {
        let mut inputs = match self.compactor.next(core, &core.settings.rewrite, segments) {
            Work::Nothing => return false,
            Work::Ended => return true,
            Work::Rewrite(inputs) => inputs,
        };
        if let [only] = inputs.as_slice()
            && self.is_unchanged(core, segments, *only)
        {
            self.compactor.on_rewritten([*only]);
            return true;
        }
        // One is tried in any case: the filter may leave little of the live data.
        let room = self.room.find(core);
        inputs.truncate(fitting(segments, &inputs, room.bytes).max(1));
        if needed(segments, &inputs) > self.room.tried() {
            self.compactor.stop();
            return false;
        }
        let mut compactor = std::mem::take(&mut self.compactor);
        let merged = self.merge(core, segments, inputs, compactor.filter());
        self.compactor = compactor;
        if let Merged::Done { inputs, outputs } = merged {
            let made: Vec<_> = outputs.iter().map(|output| output.segment.id).collect();
            if self.swap(core, &inputs, outputs) {
                self.compactor.on_rewritten(made);
                return true;
            }
        }
        self.compactor.stop();
        false
    }

    /// Returns true if the pass leaves a sorted segment as it is. Arrival segments become sorted ones anyway.
    fn is_unchanged(&mut self, core: &Engine, segments: &[SegmentView], id: SegmentId) -> bool {
        let is_sorted = |it: &SegmentView| it.id == id && it.kind == SegmentKind::Sorted;
        let Some(filter) = self.compactor.filter().filter(|_| segments.iter().any(is_sorted)) else {
            return false;
        };
        // A failure is one of the merge as well, which reports it.
        merge::is_unchanged(core, id, filter).unwrap_or(false)
    }

    /// Merges neighbours: the first of `inputs`, and those behind it that hold each log in one piece with it.
    fn merge(
        &mut self,
        core: &Engine,
        segments: &[SegmentView],
        mut inputs: Vec<SegmentId>,
        filter: Option<&mut RecordFilter>,
    ) -> Merged {
        inputs.truncate(neighbours(core, &inputs));
        let merged = self
            .check_failed(core, &inputs)
            .and_then(|()| merge::merge(core, &inputs, filter));
        match merged {
            Ok(outputs) => Merged::Done { inputs, outputs },
            Err(merge::MergeError::Stopped) => Merged::Failed,
            Err(merge::MergeError::Damaged { segment, byte }) => {
                tracing::error!(
                    segment = segment.0,
                    byte,
                    "a segment that was to be rewritten is damaged"
                );
                self.damaged.push(segment);
                Merged::Without
            }
            Err(merge::MergeError::Unreadable { segment, error }) => {
                if self.postponed.on_failed(segment, core.now_ms()) {
                    tracing::warn!(%error, segment = segment.0,
                        "a segment cannot be read, and is rewritten later: others are meanwhile");
                }
                Merged::Without
            }
            Err(merge::MergeError::Io(error)) => {
                tracing::warn!(%error, "segments could not be rewritten now");
                if is_full(&error) {
                    self.room.on_failed(core, needed(segments, &inputs));
                }
                Merged::Failed
            }
        }
    }

    /// Reads inputs that could not be read before.
    fn check_failed(&mut self, core: &Engine, inputs: &[SegmentId]) -> Result<(), merge::MergeError> {
        for id in inputs.iter().filter(|id| self.postponed.has_failed(**id)) {
            merge::check(core, *id)?;
        }
        Ok(())
    }

    fn swap(&mut self, core: &Engine, inputs: &[SegmentId], outputs: Vec<MergedSegment>) -> bool {
        let is_swapped = self.retiring.swap(core, inputs, outputs);
        self.statistics.forget(inputs);
        self.retiring.release(core);
        is_swapped
    }
}

/// Result of a merge.
enum Merged {
    /// The outputs are complete, but not in force.
    Done {
        inputs: Vec<SegmentId>,
        outputs: Vec<MergedSegment>,
    },
    /// A segment is damaged or cannot be read, which was noted: the next plan does without it.
    Without,
    Failed,
}

/// Returns how many of `inputs`, in the order of their arrival, can be merged together: each log has them in
/// this order, without batches between two of them in a segment that is not merged. Segments in between can
/// have been rewritten before.
fn neighbours(core: &Engine, inputs: &[SegmentId]) -> usize {
    let mut count = inputs.len();
    if count < 2 {
        return count;
    }
    let places: HashMap<SegmentId, usize> = inputs.iter().copied().zip(0..).collect();
    for log in core.logs.all() {
        let (mut last, mut has_ended) = (None, false);
        for run in &log.lock().runs {
            match places.get(&run.segment) {
                Some(place) if has_ended || last > Some(*place) => count = count.min(*place),
                Some(place) => last = Some(*place),
                None => has_ended = last.is_some(),
            }
        }
    }
    count.max(1)
}

#[cfg(test)]
mod tests {
    use super::super::control::Control;
    use super::*;

    #[test]
    fn what_one_frame_lets_go_of_fits_into_the_smallest_segment() {
        let (added, removed) = (Vec::new(), vec![SegmentId(u32::MAX); RECYCLED_AT_ONCE]);
        let body = Control::Segments { added, removed }.encode();
        assert!(body.len() < 8 << 10, "{} bytes", body.len());
    }
}
