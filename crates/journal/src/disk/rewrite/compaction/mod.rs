//! Compaction by key, as a policy of rewriting: segments that hold compacted logs are rewritten with a filter
//! of records.
//!
//! ```text
//! log  │ compacted: one record per key │ dirty range │ not yet: young, or its segment still grows │
//!      start                           progress      end of the pass
//! ```
//!
//! `candidate` tells which logs are due. A `pass` reads the dirty ranges into an `offset_map` and rewrites
//! segment by segment with the `filter`; arrival segments become sorted ones on the way. `progress` is stored
//! at the end. `bounds` has the questions about readers and transactions. `sealing` ends the segment being
//! written if records in it wait for too long.
//!
//! A removed record has a durable newer one of its key, and a removed tombstone has nothing left to delete:
//! a pass can end at any point.

mod bounds;
mod candidate;
mod filter;
mod offset_map;
mod pass;
mod progress;
mod sealing;
mod settings;

use std::time::Instant;

use self::candidate::candidates;
use self::pass::{Pass, PassStep};
use self::sealing::Sealing;
use super::super::control::Control;
use super::super::control_append::append_control;
use super::super::engine::Engine;
use super::super::position::SegmentId;
use super::policy::{RewritePolicy, SegmentView};

pub(super) use self::filter::{Filtered, RecordFilter};
pub(crate) use self::progress::CompactionProgress;
pub use self::settings::CompactionSettings;

/// Logs of one pass at most.
const LOGS_MAX: usize = 1 << 12;

/// State of compaction between its steps.
#[derive(Default)]
pub(super) struct Compactor {
    pass: Option<Pass>,
    /// Time of the last look that found nothing, or of the last failure.
    idle_since: Option<Instant>,
    sealing: Sealing,
}

/// Next work of compaction.
pub(super) enum Work {
    /// Neighbouring segments to rewrite with the filter.
    Rewrite(Vec<SegmentId>),
    /// A pass ended.
    Ended,
    Nothing,
}

impl Compactor {
    /// Returns the next work. Begins a pass if a log is due.
    pub(super) fn next(&mut self, core: &Engine, policy: &RewritePolicy, segments: &[SegmentView]) -> Work {
        let is_idle = |since: Instant| since.elapsed() < core.settings.compaction.every;
        if self.pass.is_none() && self.idle_since.is_some_and(is_idle) {
            return Work::Nothing;
        }
        if self.pass.is_none() {
            let now = core.now_ms();
            forget_deleted(core);
            self.sealing.seal_if_due(core, segments, now);
            let mut due = candidates(core, segments, now);
            due.truncate(LOGS_MAX);
            self.pass = Pass::begin(core, due);
        }
        let Some(pass) = &self.pass else {
            self.stop();
            return Work::Nothing;
        };
        match pass.next(core, policy, segments) {
            PassStep::Rewrite(inputs) => Work::Rewrite(inputs),
            PassStep::Blocked => {
                self.stop();
                Work::Nothing
            }
            PassStep::Complete => {
                if pass.store(core) {
                    report(core, pass);
                    self.pass = None;
                } else {
                    self.stop();
                }
                Work::Ended
            }
        }
    }

    /// Returns the filter of the current pass.
    pub(super) fn filter(&mut self) -> Option<&mut RecordFilter> {
        self.pass.as_mut().map(|pass| &mut pass.filter)
    }

    pub(super) fn on_rewritten(&mut self, outputs: impl IntoIterator<Item = SegmentId>) {
        if let Some(pass) = &mut self.pass {
            pass.on_rewritten(outputs);
        }
    }

    /// Gives up the current pass; the next one begins after a while.
    pub(super) fn stop(&mut self) {
        self.pass = None;
        self.idle_since = Some(Instant::now());
    }
}

fn report(core: &Engine, pass: &Pass) {
    let (keys, logs, removed) = (pass.filter.map.len(), pass.filter.logs.len(), pass.filter.removed);
    core.metrics.compactions.inc();
    core.metrics.compacted_records.inc_by(removed.records);
    core.metrics.compacted_bytes.inc_by(removed.bytes);
    tracing::debug!(
        logs,
        keys,
        records = removed.records,
        bytes = removed.bytes,
        "logs were compacted"
    );
}

/// Removes the progress of logs that no longer exist.
fn forget_deleted(core: &Engine) {
    let known: Vec<_> = core.compactions.lock().keys().copied().collect();
    for log in known.into_iter().filter(|log| core.logs.get(*log).is_none()) {
        if append_control(core, Control::State(progress::delete(log))) {
            core.compactions.lock().remove(&log);
        }
    }
}

impl std::fmt::Debug for Compactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_running = self.pass.is_some();
        f.debug_struct("Compactor")
            .field("is_running", &is_running)
            .finish_non_exhaustive()
    }
}
