//! Rewriting: arrival segments, in which the batches of many logs are mixed, become sorted segments, in which
//! each log has long runs; dead data is left behind; segments without live data are reused.
//!
//! `policy` selects the work from a few numbers per segment. `merge` does it (it reads `input`s, `ties` tells
//! which logs are stored together, `output` writes). `retire` puts the result into force and releases the
//! replaced segments. It can be interrupted at any point: the result takes effect by one control frame.

mod input;
mod merge;
mod output;
mod policy;
mod retire;
mod stats;
mod ties;

use std::time::Duration;

use super::engine::Engine;
use super::position::SegmentId;
use super::scrub::Scrubber;

pub(crate) use self::input::LivenessCheck;
use self::policy::Plan;
pub use self::policy::RewritePolicy;
pub(crate) use self::retire::RetiringSegments;
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
    /// Segments found damaged: they are left as they are.
    damaged: Vec<SegmentId>,
}

impl Rewriter {
    /// Does the most useful work; false if there is none.
    pub(crate) fn step(&mut self, core: &Engine) -> bool {
        self.retiring.release(core);
        self.statistics.refresh(core);
        self.statistics.export_metrics(core);
        let covered = core.checkpointed();
        let segments = self.statistics.segments(core, covered, &self.damaged);
        let is_short = core.pool.shortage().is_short();
        let Some(plan) = core.settings.rewrite.plan(&segments, core.now_ms(), is_short) else {
            return false;
        };
        if core.has_failed() || core.rewriting.is_closed() {
            return false;
        }
        let (inputs, outputs) = match plan {
            Plan::Recycle(mut dead) => {
                dead.truncate(RECYCLED_AT_ONCE);
                (dead, Vec::new())
            }
            Plan::Merge(inputs) => match merge::merge(core, &inputs) {
                Ok(outputs) => (inputs, outputs),
                Err(merge::MergeError::Stopped) => return false,
                Err(merge::MergeError::Damaged { segment, byte }) => {
                    tracing::error!(
                        segment = segment.0,
                        byte,
                        "a segment that was to be rewritten is damaged"
                    );
                    self.damaged.push(segment);
                    return true;
                }
                Err(merge::MergeError::Io(error)) => {
                    tracing::warn!(%error, "segments could not be rewritten now");
                    return false;
                }
            },
        };
        let swapped = self.retiring.swap(core, &inputs, outputs);
        self.statistics.forget(&inputs);
        self.retiring.release(core);
        swapped
    }
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
