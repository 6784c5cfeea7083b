//! Arrival segments in order: the end of the journal, and damage before it.

use std::cmp::Ordering;
use std::io::{self, IoSlice};
use std::sync::Arc;

use super::super::codec::{u32_of, usize_of};
use super::super::index::Indexer;
use super::super::position::{Position, SegmentId};
use super::super::salvage::salvage;
use super::super::scan::{Chain, EndReason, LaterMark, ScanEnd, ScannedFrame, first_group, scan};
use super::super::segment::{FileRole, HeadBlock, SEGMENT_HEAD_BYTES, Segment, SegmentHead, SegmentKind};
use super::super::sidecar::Summary;
use super::super::storage::{StorageFile, read_exact_at};
use super::{OpenError, Recovery};

impl Recovery<'_> {
    /// Reads the arrival segments in order, up to the end of the journal.
    pub(super) fn read_arrivals(&mut self) -> Result<(), OpenError> {
        let arrivals = std::mem::take(&mut self.arrivals);
        let mut ended = false;
        for (index, id) in arrivals.iter().enumerate() {
            let role = FileRole::Segment(SegmentKind::Arrival, *id);
            if self.removed.contains(id) || ended {
                self.drop_segment(role)?;
                continue;
            }
            let file = self.storage.open(&role.name())?;
            let Some(chain) = self.start_of(&*file, *id, role)? else {
                self.spares.push(role);
                continue;
            };
            if self.chain.is_none() {
                self.check_first(*id, chain);
            }
            let next = arrivals.get(index + 1..).unwrap_or_default();
            ended = self.read_arrival(&*file, *id, chain, next)?;
        }
        // A replayed rewrite may have replaced segments that were read before it was known.
        let removed = &self.removed;
        let gone: Vec<SegmentId> = self
            .segments
            .iter()
            .map(|segment| segment.id)
            .filter(|id| removed.contains(id))
            .collect();
        self.segments.retain(|segment| !removed.contains(&segment.id));
        self.rows.retain(|(id, _)| !removed.contains(id));
        self.unlisted.retain(|it| !removed.contains(&it.summary.segment));
        for id in gone {
            self.drop_segment(FileRole::Segment(SegmentKind::Arrival, id))?;
        }
        Ok(())
    }

    /// Returns the chain that the first group of an arrival segment follows; `None` if the file holds no
    /// group.
    fn start_of(
        &mut self,
        file: &dyn StorageFile,
        id: SegmentId,
        role: FileRole,
    ) -> Result<Option<Chain>, OpenError> {
        let mut block = vec![0; SEGMENT_HEAD_BYTES];
        let got = file.read_at(&mut block, 0)?;
        block.truncate(got);
        match SegmentHead::decode(&block) {
            HeadBlock::Newer(version) => Err(OpenError::Newer {
                file: role.name(),
                version,
            }),
            HeadBlock::Head(head) if head.segment == id => Ok(Some(Chain {
                sequence: head.first_sequence.saturating_sub(1),
                checksum: head.previous,
            })),
            // A spare, unless it has groups: then only the header is damaged.
            HeadBlock::Head(_) | HeadBlock::Nothing => {
                let (first, known) = (
                    first_group(file, id)?,
                    self.sidecars.contains(&(SegmentKind::Arrival, id)),
                );
                if first.is_none() && !known && !self.expected.contains(&id) {
                    let from = u32_of(SEGMENT_HEAD_BYTES);
                    let behind = self.later(file, id, from, 0, None)?.has_whole(from, 0);
                    let Some(chain) = self.chain.filter(|_| behind) else {
                        return Ok(None);
                    };
                    return Ok(Some(chain));
                }
                let own = first.map(|head| Chain {
                    sequence: head.sequence - 1,
                    checksum: head.previous,
                });
                Ok(Some(own.or(self.chain).unwrap_or_default()))
            }
        }
    }

    /// Reads one arrival segment. True if the journal ends in it.
    fn read_arrival(
        &mut self,
        file: &dyn StorageFile,
        id: SegmentId,
        chain: Chain,
        next: &[SegmentId],
    ) -> Result<bool, OpenError> {
        if id <= self.from.segment
            && let Some(summary) = self.believe_sidecar(SegmentKind::Arrival, id)?
        {
            self.chain = Some(Chain {
                sequence: summary.last_sequence,
                checksum: summary.last_checksum,
            });
            self.segments.push(Segment {
                id,
                kind: SegmentKind::Arrival,
            });
            self.last_end = Some(Position {
                segment: id,
                byte: summary.valid_bytes,
            });
            return self.is_last_of_believed(id, &summary, next);
        }
        self.report.scanned_segments += 1;
        let mut indexer = Indexer::new(id, chain);
        let (end, is_last) = self.scan_arrival(file, id, chain, next, &mut indexer)?;
        indexer.end(&end);
        self.chain = Some(end.chain);
        self.last_end = Some(Position {
            segment: id,
            byte: end.byte,
        });
        self.write_unsynced_again(file, id, end.byte)?;
        file.sync()?;
        self.list_arrival(indexer)?;
        self.segments.push(Segment {
            id,
            kind: SegmentKind::Arrival,
        });
        Ok(is_last)
    }

    /// Returns true if the journal ends in a segment with a trusted sidecar: no segment continues it.
    fn is_last_of_believed(
        &mut self,
        id: SegmentId,
        summary: &Summary,
        next: &[SegmentId],
    ) -> Result<bool, OpenError> {
        // Up to the checkpoint's position segments may have been rewritten, and the checkpoint lists those in
        // force.
        if id < self.from.segment || next.is_empty() {
            return Ok(false);
        }
        let end = ScanEnd {
            byte: summary.valid_bytes,
            reason: EndReason::NoGroup,
            chain: Chain {
                sequence: summary.last_sequence,
                checksum: summary.last_checksum,
            },
            run: None,
        };
        let at = Position {
            segment: id,
            byte: end.byte,
        };
        if !self.follows_any(end.chain, next)? && self.bridge(end.chain, next)? {
            return Ok(false);
        }
        // A failed write may lie behind the end that the sidecar gives.
        if self.damaged_below(None, &end, at, next)?.is_none() {
            return self.ends_at(&end, at, next);
        }
        self.miss_behind(id);
        Ok(false)
    }

    /// Writes the part of a segment again that is not known to be synced. A failed sync leaves pages that are
    /// readable but not on disk, and that no later sync would write: the data read here would be lost with a
    /// loss of power.
    fn write_unsynced_again(&self, file: &dyn StorageFile, id: SegmentId, end: u32) -> io::Result<()> {
        if self.storage.is_append_only() {
            return Ok(());
        }
        let synced = self.highest_mark.max(self.from);
        let mut at = match synced.segment.cmp(&id) {
            Ordering::Less => 0,
            Ordering::Equal => synced.byte,
            Ordering::Greater => return Ok(()),
        };
        let mut buffer = vec![0; 1 << 20];
        while at < end {
            let step = usize_of(end - at).min(buffer.len());
            let piece = buffer.get_mut(..step).unwrap_or_default();
            read_exact_at(file, piece, at.into())?;
            file.write_at(&mut [IoSlice::new(piece)], at.into())?;
            at += u32_of(step);
        }
        Ok(())
    }

    fn scan_arrival(
        &mut self,
        file: &dyn StorageFile,
        id: SegmentId,
        chain: Chain,
        next: &[SegmentId],
        indexer: &mut Indexer,
    ) -> Result<(ScanEnd, bool), OpenError> {
        let (mut from, mut chain) = (0, chain);
        loop {
            let end = scan(file, id, from, chain, |group| {
                self.highest_mark = self.highest_mark.max(group.head.synced);
                let end = Position {
                    segment: id,
                    byte: group.byte + group.head.bytes,
                };
                self.take_appends(&group.frames, indexer, end, 1);
            })?;
            let at = Position {
                segment: id,
                byte: end.byte,
            };
            if !self.follows_any(end.chain, next)? && self.bridge(end.chain, next)? {
                return Ok((end, false));
            }
            let is_sealed = self.is_sealed_end(id, &end);
            let behind = (!is_sealed).then_some(file);
            let Some(mark) = self.damaged_below(behind, &end, at, next)? else {
                let is_last = self.ends_at(&end, at, next)?;
                return Ok((end, is_last));
            };
            if is_sealed {
                self.miss_behind(id);
                return Ok((end, false));
            }
            tracing::error!(%at, reason = %end.reason, %mark, "a write group that was durable is damaged");
            self.report.damaged_groups += 1;
            let found = salvage(file, id, end.byte, end.chain.sequence, end.run)?;
            // Numbered behind everything in the previous group.
            self.take_appends(&found.frames, indexer, at, 1 << 31);
            self.lose(found.lost);
            // Below its position, the checkpoint knows where the logs end.
            self.suspect |= found.unknown && at >= self.from;
            self.has_holes |= found.unknown;
            match found.resume {
                Some((byte, follows)) => (from, chain) = (byte, follows),
                None => return Ok((end.past_damage(), false)),
            }
        }
    }

    /// Returns true if an arrival segment is known to end at `end`: its sidecar says so.
    fn is_sealed_end(&self, id: SegmentId, end: &ScanEnd) -> bool {
        let sidecar = self.read_sidecar(SegmentKind::Arrival, id);
        sidecar.is_some_and(|(summary, _)| {
            let last = Chain {
                sequence: summary.last_sequence,
                checksum: summary.last_checksum,
            };
            summary.valid_bytes == end.byte && last == end.chain
        })
    }

    /// Indexes and replays the appends of a group with valid frames. An append with a missing chunk is lost
    /// as a whole.
    fn take_appends(&mut self, frames: &[ScannedFrame], indexer: &mut Indexer, end: Position, number: u32) {
        let numbered: Vec<_> = (number..).zip(frames).collect();
        for append in numbered.chunk_by(|(_, frame), _| frame.head.more) {
            // No short cut: each chunk has to be recorded.
            let missing = append
                .iter()
                .filter(|(_, frame)| !indexer.is_whole(frame))
                .count();
            for (number, frame) in append {
                if missing == 0 {
                    indexer.frame(frame);
                    self.replay(frame, end.segment, end, *number);
                } else {
                    self.lose(frame.head.ranges());
                }
            }
        }
    }

    /// Looks for groups of a segment from byte `from` on that were written after `sequence`.
    fn later(
        &mut self,
        file: &dyn StorageFile,
        id: SegmentId,
        from: u32,
        sequence: u64,
        run: Option<u64>,
    ) -> io::Result<LaterMark> {
        let known = self.later.get(&id).copied();
        if let Some(later) = known.filter(|later| later.answers(from, sequence, run)) {
            return Ok(later);
        }
        let later = LaterMark::find(file, id, from, sequence, run)?;
        self.later.insert(id, later);
        Ok(later)
    }

    /// Returns a position up to which everything was durable if the bad group at `at` was durable too;
    /// otherwise `None`. Without a file, nothing of its segment lies behind it.
    fn damaged_below(
        &mut self,
        file: Option<&dyn StorageFile>,
        end: &ScanEnd,
        at: Position,
        next: &[SegmentId],
    ) -> Result<Option<Position>, OpenError> {
        let sequence = end.chain.sequence;
        let (mut behind, mut mark) = (false, None);
        if let Some(file) = file {
            let later = self.later(file, at.segment, at.byte, sequence, end.run)?;
            (behind, mark) = (later.has_whole(at.byte, sequence), later.mark());
        }
        if self.follows_any(end.chain, next)? {
            return Ok(None);
        }
        // The checkpoint knows how the journal continues, and parts of that may have been rewritten.
        if at.segment < self.from.segment {
            // A torn group at the end of an earlier run, or the last group, damaged.
            self.has_holes |= mark.is_some() && !behind;
            return Ok(Some(self.from).filter(|_| behind));
        }
        mark = mark.max(Some(self.highest_mark)).max(Some(self.from));
        for id in next {
            let file = self.open_arrival(*id)?;
            let run = first_group(&*file, *id)?.map(|head| head.run);
            let from = u32_of(SEGMENT_HEAD_BYTES);
            let later = self.later(&*file, *id, from, sequence, run)?;
            behind |= later.has_whole(from, sequence);
            mark = mark.max(later.mark());
        }
        // A killed program may leave one incomplete group and nothing behind it: only a complete later group
        // proves that the bad one was complete too. With a loss of power, any part of the unsynced data may
        // survive.
        let was_killed = behind && self.meta.run.boot == self.boot;
        Ok(mark.filter(|mark| *mark > at || was_killed))
    }

    /// Returns true if the journal ends at `at`, where no group was durable.
    fn ends_at(&mut self, end: &ScanEnd, at: Position, next: &[SegmentId]) -> Result<bool, OpenError> {
        if at.segment < self.from.segment {
            return Ok(false);
        }
        if self.follows_any(end.chain, next)? {
            return Ok(false);
        }
        let mut torn = !matches!(end.reason, EndReason::NoGroup | EndReason::Stranger);
        for id in next {
            torn |= first_group(&*self.open_arrival(*id)?, *id)?.is_some();
        }
        self.report.torn |= torn;
        if torn {
            tracing::info!(%at, reason = %end.reason, "the journal ends at a torn write group");
        }
        Ok(true)
    }

    pub(super) fn open_arrival(&self, id: SegmentId) -> Result<Arc<dyn StorageFile>, OpenError> {
        Ok(self
            .storage
            .open(&FileRole::Segment(SegmentKind::Arrival, id).name())?)
    }

    /// Returns true if the next arrival segment starts behind `chain`. Files with neither a header nor a
    /// first group of their own, such as unused spares, are passed over: they break no chain.
    pub(super) fn follows_any(&self, chain: Chain, next: &[SegmentId]) -> Result<bool, OpenError> {
        for id in next {
            if let Some(start) = self.chain_before(*id)? {
                return Ok(start == chain);
            }
        }
        Ok(false)
    }

    /// Returns the chain that an arrival segment follows; `None` if neither its header nor its first group is
    /// there.
    fn chain_before(&self, id: SegmentId) -> Result<Option<Chain>, OpenError> {
        let file = self.open_arrival(id)?;
        let mut block = vec![0; SEGMENT_HEAD_BYTES];
        let got = file.read_at(&mut block, 0)?;
        block.truncate(got);
        if let HeadBlock::Head(head) = SegmentHead::decode(&block)
            && head.segment == id
        {
            return Ok(Some(Chain {
                sequence: head.first_sequence.saturating_sub(1),
                checksum: head.previous,
            }));
        }
        // Its header may be damaged.
        Ok(first_group(&*file, id)?.map(|head| Chain {
            sequence: head.sequence - 1,
            checksum: head.previous,
        }))
    }
}
