//! Space that a rewrite may take: its output is written before its inputs are freed.

use super::super::engine::Engine;
use super::super::position::SegmentId;
use super::policy::{Room, SegmentView};

/// Time after which a size that did not fit is tried again, though there is no more space.
const RETRY_MS: i64 = 60_000;

/// Memory of the last merge that failed for lack of space.
#[derive(Debug, Default)]
pub(super) struct RoomFinder(Option<FailedMerge>);

#[derive(Debug)]
struct FailedMerge {
    /// Bytes that its output was expected to take.
    needed: u64,
    /// Bytes that were free once its output was removed.
    free: u64,
    at: i64,
}

impl RoomFinder {
    /// Returns the room of the next rewrite: the free bytes, and less than the last output that did not fit.
    pub(super) fn find(&mut self, core: &Engine) -> Room {
        let free = core.storage.free_bytes().unwrap_or(u64::MAX);
        let is_over = |it: &FailedMerge| free > it.free || core.now_ms().saturating_sub(it.at) >= RETRY_MS;
        if self.0.as_ref().is_some_and(is_over) {
            self.0 = None;
        }
        Room {
            is_short: core.pool.shortage().is_short() || self.0.is_some(),
            bytes: free.min(self.tried()),
        }
    }

    /// Returns the bytes that the next output may be expected to take, whatever is free.
    pub(super) fn tried(&self) -> u64 {
        self.0.as_ref().map_or(u64::MAX, |it| it.needed / 2)
    }

    /// Notes a merge that failed for lack of space, whose output is removed.
    pub(super) fn on_failed(&mut self, core: &Engine, needed: u64) {
        self.0 = Some(FailedMerge {
            needed,
            free: core.storage.free_bytes().unwrap_or(u64::MAX),
            at: core.now_ms(),
        });
    }
}

/// Returns the bytes that the output of merging `inputs` is expected to take at most.
pub(super) fn needed(segments: &[SegmentView], inputs: &[SegmentId]) -> u64 {
    let views = segments.iter().filter(|it| inputs.contains(&it.id));
    views.map(SegmentView::output_bytes).sum()
}
