//! Choice of the next rewrite, from a few numbers per segment, without reading any.

use std::time::Duration;

use super::super::position::SegmentId;
use super::super::segment::SegmentKind;

/// Bytes of the heads and of a small sidecar of a sorted segment.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// Conditions for rewriting segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RewritePolicy {
    /// Age below which arrival segments are left alone, unless there are too many.
    pub young: Duration,
    /// Bytes of arrival segments that one merge combines.
    pub merge_bytes: u64,
    /// Bytes of arrival segments beyond which merging is no longer postponed.
    pub arrival_bytes_max: u64,
    /// Mean bytes per run of one log from which a segment is left as it is.
    pub run_bytes_good: u64,
    /// Dead bytes that are tolerated on top of half of the live ones.
    pub dead_bytes_tolerated: u64,
}

/// A sealed segment, as seen by the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentView {
    pub(crate) id: SegmentId,
    pub(crate) kind: SegmentKind,
    pub(crate) bytes: u64,
    pub(crate) dead_bytes: u64,
    /// Number of runs of consecutive frames of one log.
    pub(crate) runs: u32,
    pub(crate) sealed_at: i64,
    /// True if the checkpoint covers its control frames and nothing prevents rewriting it.
    pub(crate) free: bool,
}

/// Space for the output of a rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// True if no dead data is to be tolerated.
    pub(crate) is_short: bool,
    /// Bytes that the output may take.
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Segments without live data, to be reused.
    Recycle(Vec<SegmentId>),
    /// Segments to be merged into sorted ones.
    Merge(Vec<SegmentId>),
}

impl SegmentView {
    fn live_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.dead_bytes)
    }

    /// Returns the bytes that a merge of this segment is expected to write at most: its live bytes, copies of
    /// shared frames, and the blocks of heads and of a sidecar.
    pub(crate) fn output_bytes(&self) -> u64 {
        let live = self.live_bytes();
        live + live / 8 + OVERHEAD_BYTES
    }
}

impl Default for RewritePolicy {
    fn default() -> Self {
        Self {
            young: Duration::from_mins(1),
            merge_bytes: 1 << 30,
            arrival_bytes_max: 8 << 30,
            run_bytes_good: 256 << 10,
            dead_bytes_tolerated: 1 << 30,
        }
    }
}

impl RewritePolicy {
    /// Returns the next work on `segments`, sorted by id, with an output that fits into `room`. While space
    /// is short, no dead data is tolerated, and the segments with the fewest live bytes come first.
    pub(crate) fn plan(&self, segments: &[SegmentView], now: i64, room: Room) -> Option<Plan> {
        let dead: Vec<_> = segments
            .iter()
            .filter(|it| it.free && it.dead_bytes >= it.bytes)
            .map(|it| it.id)
            .collect();
        if !dead.is_empty() {
            return Some(Plan::Recycle(dead));
        }
        let merge = || {
            let mut stretch = self.merge_arrivals(segments, now)?;
            let (count, fit) = (stretch.len(), fitting(segments, &stretch, room.bytes));
            stretch.truncate(fit);
            (fit == count || fit > 1).then_some(stretch)
        };
        let inputs = if room.is_short {
            deadest_of_all(segments, room.bytes).or_else(merge)
        } else {
            merge().or_else(|| self.compact(segments, room.bytes))
        };
        inputs.map(Plan::Merge)
    }

    /// Returns the oldest run of arrival segments that is worth a merge. A merge takes only neighbours, so
    /// that the offsets of a log stay contiguous.
    fn merge_arrivals(&self, segments: &[SegmentView], now: i64) -> Option<Vec<SegmentId>> {
        let arrivals: Vec<_> = segments
            .iter()
            .filter(|it| it.kind == SegmentKind::Arrival)
            .collect();
        let total: u64 = arrivals
            .iter()
            .filter(|it| self.is_mixed(it))
            .map(|it| it.bytes)
            .sum();
        let pressed = total > self.arrival_bytes_max;
        let young = i64::try_from(self.young.as_millis()).unwrap_or(i64::MAX);
        let mut stretch: Vec<SegmentId> = Vec::new();
        let mut bytes = 0;
        for segment in arrivals {
            let old = now.saturating_sub(segment.sealed_at) >= young;
            if segment.free && self.is_mixed(segment) && (old || pressed) {
                stretch.push(segment.id);
                bytes += segment.bytes;
                if bytes >= self.merge_bytes {
                    return Some(stretch);
                }
            } else if pressed && stretch.len() > 1 {
                return Some(stretch);
            } else {
                stretch.clear();
                bytes = 0;
            }
        }
        (pressed && stretch.len() > 1).then_some(stretch)
    }

    /// Returns arrival segments for a merge from `first` to at most `last`, both alive, of at most
    /// `merge_bytes` unless the first is larger. Those without live data are left out.
    pub(super) fn arrivals_between(
        &self,
        segments: &[SegmentView],
        first: SegmentId,
        last: SegmentId,
    ) -> Vec<SegmentId> {
        let mut bytes = 0;
        let within = segments
            .iter()
            .filter(|it| it.kind == SegmentKind::Arrival && (first..=last).contains(&it.id))
            .filter(|it| it.id == first || it.dead_bytes < it.bytes);
        let taken = within.take_while(|it| {
            bytes += it.bytes;
            it.id == first || it.free && bytes <= self.merge_bytes
        });
        taken.map(|it| it.id).collect()
    }

    /// Returns a sorted segment with those of `behind` that fill at most three quarters of a segment of
    /// `segment_bytes` with it, so that they certainly become one: a log that is often compacted would get
    /// many small ones.
    pub(super) fn sorted_together(
        segments: &[SegmentView],
        first: SegmentId,
        behind: impl Iterator<Item = SegmentId>,
        segment_bytes: u64,
    ) -> Vec<SegmentId> {
        let mut bytes = 0;
        let views = std::iter::once(first).chain(behind).map_while(|id| {
            let at = segments.binary_search_by_key(&id, |view| view.id).ok()?;
            segments.get(at)
        });
        let fits = |it: &&SegmentView| {
            bytes += it.live_bytes();
            it.id == first || it.kind == SegmentKind::Sorted && it.free && bytes <= segment_bytes / 4 * 3
        };
        views.take_while(fits).map(|it| it.id).collect()
    }

    /// Returns the segment with the largest dead part, if too much is dead. Of the arrival segments only the
    /// oldest is taken alone: those on both sides of another could no longer be merged with each other.
    fn compact(&self, segments: &[SegmentView], room_bytes: u64) -> Option<Vec<SegmentId>> {
        let dead: u64 = segments.iter().map(|it| it.dead_bytes).sum();
        let live: u64 = segments.iter().map(SegmentView::live_bytes).sum();
        if dead <= live / 2 + self.dead_bytes_tolerated {
            return None;
        }
        let oldest = segments.iter().find(|it| it.kind == SegmentKind::Arrival);
        let worst = segments
            .iter()
            .filter(|it| it.kind == SegmentKind::Sorted || oldest.is_some_and(|oldest| oldest.id == it.id))
            .filter(|it| is_worth(it, room_bytes))
            .max_by_key(|it| it.dead_bytes.saturating_mul(1000) / it.bytes)?;
        Some(vec![worst.id])
    }

    fn is_mixed(&self, segment: &SegmentView) -> bool {
        segment.bytes / u64::from(segment.runs.max(1)) < self.run_bytes_good
    }
}

/// Returns the segment, of any kind, with the fewest live bytes of those that a rewrite makes smaller.
fn deadest_of_all(segments: &[SegmentView], room_bytes: u64) -> Option<Vec<SegmentId>> {
    let worth = segments.iter().filter(|it| is_worth(it, room_bytes));
    let best = worth.min_by_key(|it| it.live_bytes())?;
    Some(vec![best.id])
}

/// Returns true if enough of a segment is dead to rewrite it alone, and the rest fits into `room_bytes`.
fn is_worth(segment: &SegmentView, room_bytes: u64) -> bool {
    segment.free
        && segment.bytes > 0
        && segment.dead_bytes.saturating_mul(4) >= segment.bytes
        && segment.output_bytes() <= room_bytes
}

/// Returns how many of `inputs`, from the first on, have an output that fits into `room_bytes`.
pub(super) fn fitting(segments: &[SegmentView], inputs: &[SegmentId], room_bytes: u64) -> usize {
    let mut needed: u64 = 0;
    let fits = |id: &&SegmentId| {
        let view = segments.iter().find(|it| it.id == **id);
        needed += view.map_or(0, SegmentView::output_bytes);
        needed <= room_bytes
    };
    inputs.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const PLENTY: Room = Room {
        is_short: false,
        bytes: u64::MAX,
    };

    fn policy() -> RewritePolicy {
        RewritePolicy {
            young: Duration::from_mins(1),
            merge_bytes: 4 * 64 * MIB,
            arrival_bytes_max: 8 * 64 * MIB,
            run_bytes_good: MIB,
            dead_bytes_tolerated: 64 * MIB,
        }
    }

    fn mixed(id: u32) -> SegmentView {
        SegmentView {
            id: SegmentId(id),
            kind: SegmentKind::Arrival,
            bytes: 64 * MIB,
            dead_bytes: 0,
            runs: 1000,
            sealed_at: 0,
            free: true,
        }
    }

    fn ids(ids: impl IntoIterator<Item = u32>) -> Vec<SegmentId> {
        ids.into_iter().map(SegmentId).collect()
    }

    #[test]
    fn enough_old_neighbours_are_merged_and_fewer_are_not() {
        let segments: Vec<_> = (1..=4).map(mixed).collect();
        assert_eq!(
            policy().plan(&segments, 100_000, PLENTY),
            Some(Plan::Merge(ids(1..=4)))
        );
        assert_eq!(policy().plan(&segments[..3], 100_000, PLENTY), None);
        assert_eq!(policy().plan(&segments, 10_000, PLENTY), None, "they are young");
    }

    #[test]
    fn long_runs_are_left_alone_and_part_the_stretch() {
        let mut segments: Vec<_> = (1..=7).map(mixed).collect();
        segments[2].runs = 3;
        assert_eq!(
            policy().plan(&segments, 100_000, PLENTY),
            Some(Plan::Merge(ids(4..=7)))
        );
        segments[5].free = false;
        assert_eq!(policy().plan(&segments, 100_000, PLENTY), None);
    }

    #[test]
    fn too_many_arrivals_are_merged_though_they_are_young() {
        let segments: Vec<_> = (1..=9).map(mixed).collect();
        assert_eq!(policy().plan(&segments, 0, PLENTY), Some(Plan::Merge(ids(1..=4))));
    }

    #[test]
    fn dead_segments_are_recycled_first() {
        let mut segments: Vec<_> = (1..=4).map(mixed).collect();
        segments[1].dead_bytes = segments[1].bytes;
        assert_eq!(
            policy().plan(&segments, 100_000, PLENTY),
            Some(Plan::Recycle(ids([2])))
        );
    }

    #[test]
    fn the_deadest_segment_is_rewritten_when_too_much_is_dead() {
        let mut segments: Vec<_> = (1..=4).map(mixed).collect();
        for segment in &mut segments {
            segment.kind = SegmentKind::Sorted;
            segment.dead_bytes = 40 * MIB;
        }
        segments[2].dead_bytes = 60 * MIB;
        assert_eq!(policy().plan(&segments, 0, PLENTY), Some(Plan::Merge(ids([3]))));
        segments.truncate(1);
        assert_eq!(policy().plan(&segments, 0, PLENTY), None, "a little is tolerated");
    }

    #[test]
    fn of_the_arrivals_only_the_oldest_is_rewritten_alone() {
        let mut segments: Vec<_> = (1..=3).map(mixed).collect();
        for (segment, dead) in segments.iter_mut().zip([30, 60, 50]) {
            segment.dead_bytes = dead * MIB;
        }
        assert_eq!(policy().plan(&segments, 0, PLENTY), Some(Plan::Merge(ids([1]))));
    }

    #[test]
    fn compaction_takes_neighbours_up_to_the_bytes_of_a_merge() {
        let mut segments: Vec<_> = (1..=9).map(mixed).collect();
        segments[2].dead_bytes = segments[2].bytes;
        segments[4].kind = SegmentKind::Sorted;
        segments[7].free = false;
        let between = |first, last| policy().arrivals_between(&segments, SegmentId(first), SegmentId(last));
        assert_eq!(between(1, 9), ids([1, 2, 4, 6]));
        assert_eq!(between(7, 9), ids([7]));
        assert_eq!(between(3, 4), ids([3, 4]));
    }

    #[test]
    fn small_sorted_neighbours_are_compacted_together() {
        let mut segments: Vec<_> = (1..=6).map(mixed).collect();
        for segment in &mut segments {
            (segment.kind, segment.bytes) = (SegmentKind::Sorted, MIB);
        }
        segments[3].kind = SegmentKind::Arrival;
        let together = |first, behind: &[u32], bytes| {
            let behind = behind.iter().map(|id| SegmentId(*id));
            RewritePolicy::sorted_together(&segments, SegmentId(first), behind, bytes)
        };
        assert_eq!(together(6, &[2, 3, 4, 5], 64 * MIB), ids([6, 2, 3]));
        assert_eq!(together(6, &[2, 3, 4, 5], 3 * MIB), ids([6, 2]));
        assert_eq!(together(6, &[2], 0), ids([6]), "one is rewritten in any case");
        assert_eq!(together(6, &[9, 2], 64 * MIB), ids([6]), "not known yet");
    }

    #[test]
    fn while_space_is_short_nothing_dead_is_tolerated_and_the_fewest_live_bytes_come_first() {
        let mut segments: Vec<_> = (1..=4).map(mixed).collect();
        for (segment, dead) in segments.iter_mut().zip([1, 20, 60, 1]) {
            segment.dead_bytes = dead * MIB;
        }
        let short = |bytes| Room {
            is_short: true,
            bytes,
        };
        assert_eq!(policy().plan(&segments[..2], 0, PLENTY), None);
        let plan = |segments: &[SegmentView], bytes| policy().plan(segments, 0, short(bytes));
        assert_eq!(plan(&segments, u64::MAX), Some(Plan::Merge(ids([3]))));
        segments[2] = SegmentView {
            kind: SegmentKind::Sorted,
            bytes: 4 * MIB,
            dead_bytes: 0,
            ..segments[2]
        };
        assert_eq!(plan(&segments, u64::MAX), Some(Plan::Merge(ids([2]))));
        assert_eq!(plan(&segments, 44 * MIB), None, "its live bytes do not fit");
        segments[1].dead_bytes = 0;
        assert_eq!(plan(&segments, u64::MAX), None);
    }

    #[test]
    fn a_merge_takes_as_many_neighbours_as_there_is_room_for() {
        let segments: Vec<_> = (1..=4).map(mixed).collect();
        let plan = |bytes| {
            let room = Room { bytes, ..PLENTY };
            policy().plan(&segments, 100_000, room)
        };
        assert_eq!(plan(300 * MIB), Some(Plan::Merge(ids(1..=4))));
        assert_eq!(plan(220 * MIB), Some(Plan::Merge(ids(1..=3))));
        assert_eq!(plan(100 * MIB), None, "one alone gains nothing");
    }
}
