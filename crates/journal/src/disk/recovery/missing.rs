//! Missing segments, and a missing checkpoint.
//!
//! Three things reveal a missing segment: the checkpoint lists the arrival segments in force; behind its
//! position, each segment has the chain of the previous one; and the segment's sidecar may remain. The
//! sidecar also lists the segment's contents. Without it, assigned offsets that no segment has are reported,
//! and behind the checkpoint's position, logs without a later frame are fenced.
//!
//! The last segments of a killed journal can disappear unnoticed if they lie behind the checkpoint.

use std::collections::{BTreeMap, BTreeSet};

use stafett_model::{LogId, Offset};

use super::super::position::{Position, SegmentId};
use super::super::scan::Chain;
use super::super::segment::{FileRole, SegmentKind};
use super::super::sidecar::{Row, Sidecar, Summary};
use super::{OpenError, Recovery, RecoveryReport};

impl Recovery<'_> {
    /// Records whether the segment of the checkpoint's position is missing: its contents behind that are
    /// unknown, unless a rewrite that is still to be replayed replaced it.
    pub(super) fn expect_newest(&mut self) {
        self.newest_gone = self.expected.contains(&self.from.segment)
            && !self.removed.contains(&self.from.segment)
            && !self.arrivals_all.contains(&self.from.segment);
    }

    /// Checks that the first arrival segment begins the journal, if the checkpoint covers nothing before it.
    pub(super) fn check_first(&mut self, id: SegmentId, chain: Chain) {
        if self.from == Position::default() && chain.sequence > 0 {
            self.report
                .missing_segments
                .push(format!("the segments before {id}"));
            self.suspect = true;
        }
    }

    /// Reports that the journal continues behind a segment with one that does not follow it.
    pub(super) fn miss_behind(&mut self, id: SegmentId) {
        self.report
            .missing_segments
            .push(format!("a segment behind {id}"));
        self.suspect = true;
        self.has_holes = true;
    }

    /// Reports missing segments between `chain` and the next one if their sidecars list all of their
    /// contents. True if so. Not used up to the checkpoint's position, where segments may have been replaced:
    /// the checkpoint lists those in force.
    pub(super) fn bridge(&mut self, mut chain: Chain, next: &[SegmentId]) -> Result<bool, OpenError> {
        let Some(last) = next.last().copied() else {
            return Ok(false);
        };
        let orphans = self
            .sidecars
            .range((SegmentKind::Arrival, SegmentId(0))..(SegmentKind::Arrival, last));
        let orphans = orphans
            .map(|(_, id)| *id)
            .filter(|id| *id > self.from.segment && !self.arrivals_all.contains(id));
        let mut found = Vec::new();
        for id in orphans.collect::<Vec<_>>() {
            if let Some((summary, rows)) = self.read_sidecar(SegmentKind::Arrival, id)
                && summary.first_sequence == chain.sequence + 1
            {
                chain = Chain {
                    sequence: summary.last_sequence,
                    checksum: summary.last_checksum,
                };
                found.push((id, rows));
            }
        }
        if found.is_empty() || !self.follows_any(chain, next)? {
            return Ok(false);
        }
        for (id, rows) in found {
            let name = FileRole::Segment(SegmentKind::Arrival, id).name();
            self.report.missing_segments.push(name);
            self.lose(rows.into_iter().map(|row| (row.log, row.first, row.end)));
        }
        Ok(true)
    }

    /// Reports the arrival segments that the checkpoint lists and that are missing, and their contents.
    pub(super) fn find_missing(&mut self) {
        if self.newest_gone && !self.removed.contains(&self.from.segment) {
            self.suspect = true;
            let gaps = std::mem::take(&mut self.gaps);
            self.lose(gaps);
        }
        let present: BTreeSet<_> = self.segments.iter().map(|segment| segment.id).collect();
        let is_missing = |id: &SegmentId| !present.contains(id) && !self.removed.contains(id);
        let missing: Vec<_> = self.expected.iter().copied().filter(is_missing).collect();
        for id in missing {
            let name = FileRole::Segment(SegmentKind::Arrival, id).name();
            if self.report.missing_segments.contains(&name) {
                continue;
            }
            self.report.missing_segments.push(name);
            match self.read_sidecar(SegmentKind::Arrival, id) {
                Some((_, rows)) => self.lose(rows.into_iter().map(|row| (row.log, row.first, row.end))),
                None => self.has_holes = true,
            }
        }
    }

    /// Checks that no sorted segment in force is missing. Without a checkpoint, the record that replaced one
    /// may be gone, with the arrival segment that held it: then it is reported.
    pub(super) fn check_sorted(&mut self) -> Result<(), OpenError> {
        let missing = self.sorted.iter().filter(|(_, is_missing)| **is_missing);
        let missing: Vec<SegmentId> = missing.map(|(id, _)| *id).collect();
        for id in missing {
            if !self.is_anew {
                return Err(OpenError::Start(format!("sorted {id} is missing")));
            }
            self.sorted.remove(&id);
            self.segments_added.retain(|added| *added != id);
            let name = FileRole::Segment(SegmentKind::Sorted, id).name();
            self.report.missing_segments.push(name);
            self.has_holes = true;
        }
        Ok(())
    }

    /// Reads the sidecar of a segment; `None` if there is no readable one.
    pub(super) fn read_sidecar(&self, kind: SegmentKind, id: SegmentId) -> Option<(Summary, Vec<Row>)> {
        if !self.sidecars.contains(&(kind, id)) {
            return None;
        }
        let file = self.storage.open(&FileRole::Sidecar(kind, id).name()).ok()?;
        let mut rows = Vec::new();
        let sidecar = Sidecar::open(&*file, id).ok()?;
        sidecar.for_each_row(|row| rows.push(row)).ok()?;
        Some((sidecar.summary, rows))
    }

    /// Reports those of the given logs that have batches but are neither defined nor deleted.
    pub(super) fn note_unknown(&mut self, logs: impl IntoIterator<Item = LogId>) {
        for log in logs {
            let is_known = self.logs.contains_key(&log) || self.deleted.contains(&log);
            if !is_known && (self.is_anew || log.0 >= self.meta.next_log) {
                self.report.unknown_logs.push(log);
            }
        }
    }

    /// Reports the logs that have batches in segments but no definition. The ids of all that have batches are
    /// reserved, those of deleted ones too: a new log with such an id would have them.
    pub(super) fn name_unknown_logs(&mut self) {
        let logs: BTreeSet<_> = self.held().map(|(log, _)| log).collect();
        let highest = logs.last().copied();
        self.note_unknown(logs);
        let unknown = &mut self.report.unknown_logs;
        unknown.sort_unstable();
        unknown.dedup();
        for id in highest.into_iter().chain(unknown.last().copied()) {
            self.reserve_id(id);
        }
        // A journal without segments lost nothing.
        self.report.checkpoint_lost =
            self.is_anew && !(self.segments.is_empty() && self.report.set_aside.is_empty());
    }

    /// Iterates over the ranges of logs in segments, by their sidecars or as listed in memory.
    fn held(&self) -> impl Iterator<Item = (LogId, (Offset, Offset))> {
        let rows = self.rows.iter().map(|(_, row)| (row.log, (row.first, row.end)));
        let unlisted = self.unlisted.iter().flat_map(|sealed| &sealed.index);
        rows.chain(unlisted.map(|entry| (entry.log, (entry.base, entry.end()))))
    }

    /// Reports assigned offsets that no segment has, if a segment with unknown contents is missing.
    pub(super) fn name_holes(&mut self) {
        if !self.has_holes {
            return;
        }
        let mut held: BTreeMap<LogId, Vec<(Offset, Offset)>> = BTreeMap::new();
        for (log, range) in self.held() {
            held.entry(log).or_default().push(range);
        }
        let mut holes = Vec::new();
        for (id, log) in &self.logs {
            let state = log.lock();
            let mut ranges = held.remove(id).unwrap_or_default();
            ranges.sort_unstable();
            let mut at = state.start;
            for (first, end) in ranges.into_iter().chain([(state.next, state.next)]) {
                if first > at {
                    holes.push((*id, at, first));
                }
                at = at.max(end);
            }
        }
        self.lose(holes);
    }
}

impl RecoveryReport {
    /// Writes the losses to the program's log.
    pub(super) fn log_losses(&self) {
        if self.checkpoint_lost {
            tracing::error!(
                set_aside = ?self.set_aside,
                missing = ?self.missing_segments,
                "checkpoint.redb was not there: what the segments left do not say again is lost (definitions, commits, \
                 subscriptions and other state); a backup has it"
            );
        } else {
            for segment in &self.missing_segments {
                tracing::error!(%segment, "a segment of the journal is gone: what it held is lost, state perhaps too");
            }
        }
        if !self.unknown_logs.is_empty() {
            let (logs, first) = (self.unknown_logs.len(), self.unknown_logs.first());
            tracing::error!(
                logs,
                ?first,
                "segments hold batches of logs that nothing defines: they are not served"
            );
        }
    }
}
