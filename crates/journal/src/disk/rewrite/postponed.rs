//! Segments that could not be read: each is left alone for a while, and longer after each failure. Others are
//! rewritten meanwhile.
//!
//! It is no damage: a store that lost an object may have it again. Damage would be durable.

use std::collections::BTreeMap;

use super::super::position::SegmentId;

/// Time for which a segment is left alone after its first failure, and the most later on.
const PAUSE_MS_MIN: i64 = 1_000;
const PAUSE_MS_MAX: i64 = 60_000;

/// Segments with failed reads, by the time of the last one.
#[derive(Debug, Default)]
pub(super) struct Postponed(BTreeMap<SegmentId, Failure>);

#[derive(Debug, Clone, Copy)]
struct Failure {
    /// Ms since 1970.
    at: i64,
    pause_ms: i64,
}

impl Failure {
    fn is_over(&self, now: i64) -> bool {
        // A clock that was set back does not prolong it.
        !(0..self.pause_ms).contains(&now.saturating_sub(self.at))
    }
}

impl Postponed {
    /// Notes a failed read. True if it is the first one of the segment.
    pub(super) fn on_failed(&mut self, id: SegmentId, now: i64) -> bool {
        let before = self.0.get(&id).map(|failure| failure.pause_ms);
        let pause_ms = before.map_or(PAUSE_MS_MIN, |pause_ms| PAUSE_MS_MAX.min(pause_ms * 2));
        self.0.insert(id, Failure { at: now, pause_ms });
        before.is_none()
    }

    /// Forgets failures of a segment, which was read or is gone. True if there were some.
    pub(super) fn forget(&mut self, id: SegmentId) -> bool {
        self.0.remove(&id).is_some()
    }

    /// Returns true if a read of a segment has failed, whether it is to be left alone or not.
    pub(super) fn has_failed(&self, id: SegmentId) -> bool {
        self.0.contains_key(&id)
    }

    /// Keeps failures of some segments alone.
    pub(super) fn retain(&mut self, is_there: impl Fn(SegmentId) -> bool) {
        self.0.retain(|id, _| is_there(*id));
    }

    /// Returns true if a segment is to be left alone now.
    pub(super) fn has(&self, id: SegmentId, now: i64) -> bool {
        self.0.get(&id).is_some_and(|failure| !failure.is_over(now))
    }

    /// Returns the segments that are to be left alone now.
    pub(super) fn all(&self, now: i64) -> impl Iterator<Item = SegmentId> {
        let waiting = self.0.iter().filter(move |(_, failure)| !failure.is_over(now));
        waiting.map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_left_alone_for_longer_after_each_failure() {
        let (mut postponed, id) = (Postponed::default(), SegmentId(7));
        let mut now = 5_000;
        for pause_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            assert_eq!(postponed.on_failed(id, now), pause_ms == 1_000);
            assert!(postponed.has(id, now) && postponed.has(id, now + pause_ms - 1));
            assert_eq!(postponed.all(now).collect::<Vec<_>>(), [id]);
            assert!(!postponed.has(SegmentId(8), now));
            now += pause_ms;
            assert!(!postponed.has(id, now) && postponed.all(now).next().is_none());
        }
        postponed.on_failed(id, now);
        assert!(!postponed.has(id, now - 1), "the clock was set back");
        assert!(postponed.forget(id) && !postponed.forget(id));
        assert!(postponed.on_failed(id, now), "it is the first one again");
    }
}
