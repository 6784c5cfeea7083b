//! Recovery: from what lies on the disk to where the program goes on.
//!
//! 1. The checkpoint says what was known, and up to which position.
//! 2. Arrival segments are taken in order. One with a sidecar that the checkpoint covers is believed; every other is
//!    scanned, and what lies behind the checkpoint is replayed.
//! 3. The first bad group at or above the highest synced mark is the end of the journal. What lies behind it is
//!    thrown away, and the segment is never written again: a new one starts under an id that nothing ever had.
//! 4. A bad group below the mark is damage: what it held is named and fenced, and the scan goes on behind it.
//! 5. Every segment gets its sidecar, everything found is synced, and only then is the journal open.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, IoSlice};
use std::sync::Arc;

use stafett_model::{BatchHeader, Durability, LogId, Offset};

use super::checkpoint::{Checkpoint, CheckpointError, Meta, SegmentState, StateAt};
use super::codec::{u32_of, usize_of};
use super::control::Control;
use super::frame::Kind;
use super::index::{Indexer, index_segment};
use super::log::{Log, LogTable, RunRef};
use super::position::{Position, SegmentId};
use super::producers::Numbered;
use super::salvage::salvage;
use super::scan::{Chain, EndReason, ScanEnd, ScannedFrame, first_group, later_mark, scan};
use super::segment::{FileRole, HeadFound, SEGMENT_HEAD_BYTES, Segment, SegmentHead, SegmentKind};
use super::settings::Settings;
use super::sidecar::{self, Row, Sidecar, Summary};
use super::storage::{Storage, StorageFile, read_exact_at};
use crate::contract::LogSpec;

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Directory(#[from] super::real::OpenDirectoryError),
    #[error("the journal could not be read: {0}")]
    Io(#[from] io::Error),
    #[error("{0}; restore the directory from a backup")]
    Checkpoint(String),
    #[error("{file} is of format {version}: a later version of this program wrote it, use that one")]
    Newer { file: String, version: u32 },
    #[error("the journal could not start: {0}")]
    Start(String),
}

impl From<CheckpointError> for OpenError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error.to_string())
    }
}

/// What recovery found out, for the log and for who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The program had stopped with nothing left to write.
    pub clean: bool,
    /// The machine was started again since.
    pub rebooted: bool,
    pub segments: usize,
    pub scanned_segments: usize,
    pub replayed_frames: u64,
    pub logs: usize,
    /// Something lay behind the end of the journal that was not whole and was thrown away: a write that was under way
    /// when the program stopped, or damage to the last write.
    pub torn: bool,
    /// Segments behind the end of the journal, or replaced by a rewrite, that were thrown away.
    pub dropped_segments: usize,
    /// Write groups that had been durable and are damaged. What they held is below, as far as it is known; state may
    /// be lost too.
    pub damaged_groups: usize,
    /// Ranges of logs that were lost to damage.
    pub damaged: Vec<(LogId, Offset, Offset)>,
    /// Logs of which nobody knows whether they lost something: they take no appends.
    pub fenced: Vec<LogId>,
    /// Frames of logs that do not exist.
    pub unknown_frames: u64,
}

impl RecoveryReport {
    /// Whether something that had been durable was lost, now or at an earlier start.
    pub fn is_damaged(&self) -> bool {
        self.damaged_groups > 0 || !self.damaged.is_empty() || !self.fenced.is_empty()
    }
}

/// A recovered journal that is about to open.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) meta: Meta,
    pub(crate) logs: LogTable,
    pub(crate) segments: Vec<Segment>,
    pub(crate) dirty: Vec<Arc<Log>>,
    pub(crate) deleted: Vec<LogId>,
    pub(crate) state: Vec<StateAt>,
    pub(crate) segments_added: Vec<SegmentId>,
    pub(crate) segments_removed: Vec<SegmentId>,
    pub(crate) segments_forgotten: Vec<SegmentId>,
    pub(crate) chain: Chain,
    /// Files that can be used again, under other names.
    pub(crate) spares: Vec<FileRole>,
    pub(crate) report: RecoveryReport,
}

pub(crate) fn recover(storage: &Arc<dyn Storage>, settings: &Settings) -> Result<Recovered, OpenError> {
    let checkpoint = Checkpoint::open(Arc::clone(storage))?;
    let meta = checkpoint.meta()?;
    let mut recovery = Recovery::new(storage, meta, &checkpoint, settings.boot)?;
    recovery.list_files(&checkpoint)?;
    recovery.read_arrivals()?;
    recovery.read_sorted()?;
    recovery.place_runs();
    recovery.settle_run();
    recovery.finish(checkpoint)
}

struct Recovery<'a> {
    storage: &'a Arc<dyn Storage>,
    /// The machine as it was started last.
    boot: [u8; 16],
    meta: Meta,
    /// Where replay starts.
    from: Position,
    logs: HashMap<LogId, Arc<Log>>,
    dirty: BTreeSet<LogId>,
    deleted: Vec<LogId>,
    state: Vec<StateAt>,
    arrivals: Vec<SegmentId>,
    sidecars: BTreeSet<(SegmentKind, SegmentId)>,
    sorted: BTreeMap<SegmentId, bool>,
    sorted_files: BTreeSet<SegmentId>,
    removed: BTreeSet<SegmentId>,
    segments_added: Vec<SegmentId>,
    segments_removed: Vec<SegmentId>,
    rows: Vec<(SegmentId, Row)>,
    segments: Vec<Segment>,
    chain: Option<Chain>,
    highest_mark: Position,
    spares: Vec<FileRole>,
    /// Something unknown was damaged: logs that did not turn up behind it are suspect.
    suspect: bool,
    proven: BTreeSet<LogId>,
    report: RecoveryReport,
}

impl<'a> Recovery<'a> {
    fn new(
        storage: &'a Arc<dyn Storage>,
        meta: Meta,
        checkpoint: &Checkpoint,
        boot: [u8; 16],
    ) -> Result<Self, OpenError> {
        let mut logs = HashMap::new();
        let mut specs: HashMap<LogSpecKey, Arc<LogSpec>> = HashMap::new();
        checkpoint.for_each_log(|id, row| {
            let spec = specs
                .entry(spec_key(&row.spec))
                .or_insert_with(|| Arc::new(row.spec));
            let log = Log::new(id, Arc::clone(spec));
            {
                let mut state = log.lock();
                state.start = row.start;
                state.next = row.next;
                state.reserved = row.reserved;
                state.fenced = row.fenced;
                state.damaged = row.damaged;
                state.producers = row.producers;
            }
            logs.insert(id, Arc::new(log));
        })?;
        Ok(Self {
            storage,
            boot,
            meta,
            from: meta.position,
            logs,
            dirty: BTreeSet::new(),
            deleted: Vec::new(),
            state: Vec::new(),
            arrivals: Vec::new(),
            sidecars: BTreeSet::new(),
            sorted: BTreeMap::new(),
            sorted_files: BTreeSet::new(),
            removed: BTreeSet::new(),
            segments_added: Vec::new(),
            segments_removed: Vec::new(),
            rows: Vec::new(),
            segments: Vec::new(),
            chain: None,
            highest_mark: Position::default(),
            spares: Vec::new(),
            suspect: false,
            proven: BTreeSet::new(),
            report: RecoveryReport::default(),
        })
    }

    fn list_files(&mut self, checkpoint: &Checkpoint) -> Result<(), OpenError> {
        for (id, state) in checkpoint.segments()? {
            match state {
                SegmentState::Sorted => drop(self.sorted.insert(id, true)),
                SegmentState::Removed => drop(self.removed.insert(id)),
            }
        }
        for name in self.storage.list()? {
            match FileRole::of(&name) {
                Some(FileRole::Segment(SegmentKind::Arrival, id)) => self.arrivals.push(id),
                Some(FileRole::Segment(SegmentKind::Sorted, id)) => drop(self.sorted_files.insert(id)),
                Some(FileRole::Sidecar(kind, id)) => drop(self.sidecars.insert((kind, id))),
                None if name.strip_suffix(".tmp").is_some() => self.storage.remove(&name)?,
                None => {}
            }
        }
        self.arrivals.sort_unstable();
        Ok(())
    }

    /// Goes through the arrival segments in order, up to the end of the journal.
    fn read_arrivals(&mut self) -> Result<(), OpenError> {
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
        for id in gone {
            self.drop_segment(FileRole::Segment(SegmentKind::Arrival, id))?;
        }
        Ok(())
    }

    /// What the first group of an arrival segment follows; `None` if the file holds none.
    fn start_of(
        &self,
        file: &dyn StorageFile,
        id: SegmentId,
        role: FileRole,
    ) -> Result<Option<Chain>, OpenError> {
        let mut block = vec![0; SEGMENT_HEAD_BYTES];
        let got = file.read_at(&mut block, 0)?;
        block.truncate(got);
        match SegmentHead::decode(&block) {
            HeadFound::Newer(version) => Err(OpenError::Newer {
                file: role.name(),
                version,
            }),
            HeadFound::Head(head) if head.segment == id => Ok(Some(Chain {
                sequence: head.first_sequence.saturating_sub(1),
                checksum: head.previous,
            })),
            // A spare, unless the groups say otherwise: then only the header is damaged.
            HeadFound::Head(_) | HeadFound::Nothing => {
                let (first, known) = (
                    first_group(file, id)?,
                    self.sidecars.contains(&(SegmentKind::Arrival, id)),
                );
                if first.is_none() && !known {
                    let behind = later_mark(file, id, u32_of(SEGMENT_HEAD_BYTES), 0, None)?;
                    let Some(chain) = self.chain.filter(|_| behind.is_some()) else {
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

    /// Takes one arrival segment. True if the journal ends in it.
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
            return Ok(false);
        }
        self.report.scanned_segments += 1;
        let mut indexer = Indexer::new(id, chain);
        let (end, is_last) = self.scan_arrival(file, id, chain, next, &mut indexer)?;
        indexer.end(&end);
        self.chain = Some(end.chain);
        self.write_unsynced_again(file, id, end.byte)?;
        file.sync()?;
        let (summary, rows, entries) = indexer.finish();
        let name = FileRole::Sidecar(SegmentKind::Arrival, id).name();
        sidecar::write(&**self.storage, &name, summary, &rows, &entries)?;
        self.rows.extend(rows.into_iter().map(|row| (id, row)));
        self.segments.push(Segment {
            id,
            kind: SegmentKind::Arrival,
        });
        Ok(is_last)
    }

    /// Writes again what nobody knows to be synced. A sync that failed leaves pages that are seen but not on the disk, and
    /// that no later sync would write: what has been read here would be gone after a loss of power.
    fn write_unsynced_again(&self, file: &dyn StorageFile, id: SegmentId, end: u32) -> io::Result<()> {
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
                for (number, frame) in (1..).zip(&group.frames) {
                    indexer.frame(frame);
                    self.replay(frame, id, end, number);
                }
            })?;
            let at = Position {
                segment: id,
                byte: end.byte,
            };
            let Some(mark) = self.damaged_below(file, &end, at, next)? else {
                let is_last = self.ends_at(&end, at, next)?;
                return Ok((end, is_last));
            };
            tracing::error!(%at, reason = %end.reason, %mark, "a write group that was durable is damaged");
            self.report.damaged_groups += 1;
            let found = salvage(file, id, end.byte, end.chain.sequence, end.run)?;
            // Numbered behind whatever the group before held.
            for (number, frame) in (1 << 31..).zip(&found.frames) {
                indexer.frame(frame);
                self.replay(frame, id, at, number);
            }
            self.lose(&found.lost);
            self.suspect |= found.unknown;
            match found.resume {
                Some((byte, follows)) => (from, chain) = (byte, follows),
                None => return Ok((end.past_damage(), false)),
            }
        }
    }

    /// If the bad group at `at` had been durable, a position up to which everything had been.
    fn damaged_below(
        &self,
        file: &dyn StorageFile,
        end: &ScanEnd,
        at: Position,
        next: &[SegmentId],
    ) -> Result<Option<Position>, OpenError> {
        let mut behind = later_mark(file, at.segment, at.byte, end.chain.sequence, end.run)?;
        // The checkpoint knows how the journal went on behind it, and some of that may have been rewritten.
        if at.segment < self.from.segment {
            return Ok(behind.map(|_| self.from));
        }
        if let Some(next_id) = next.first()
            && self.follows(*next_id, end.chain)?
        {
            return Ok(None);
        }
        for id in next {
            let file = self.open_arrival(*id)?;
            let run = first_group(&*file, *id)?.map(|head| head.run);
            let from = u32_of(SEGMENT_HEAD_BYTES);
            behind = behind.max(later_mark(&*file, *id, from, end.chain.sequence, run)?);
        }
        let mark = behind.unwrap_or_default().max(self.highest_mark).max(self.from);
        // A program that is killed leaves no bad group before a good one. A machine that loses its power does.
        let was_killed = behind.is_some() && self.meta.run.boot == self.boot;
        Ok((mark > at || was_killed).then_some(mark))
    }

    /// Whether the journal ends at `at`, where no group had been durable.
    fn ends_at(&mut self, end: &ScanEnd, at: Position, next: &[SegmentId]) -> Result<bool, OpenError> {
        if at.segment < self.from.segment {
            return Ok(false);
        }
        if let Some(next_id) = next.first()
            && self.follows(*next_id, end.chain)?
        {
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

    fn open_arrival(&self, id: SegmentId) -> Result<Arc<dyn StorageFile>, OpenError> {
        Ok(self
            .storage
            .open(&FileRole::Segment(SegmentKind::Arrival, id).name())?)
    }

    /// Whether an arrival segment starts with what follows `chain`.
    fn follows(&self, id: SegmentId, chain: Chain) -> Result<bool, OpenError> {
        let file = self.open_arrival(id)?;
        let mut block = vec![0; SEGMENT_HEAD_BYTES];
        let got = file.read_at(&mut block, 0)?;
        block.truncate(got);
        if let HeadFound::Head(head) = SegmentHead::decode(&block)
            && head.segment == id
        {
            return Ok(head.first_sequence == chain.sequence + 1 && head.previous == chain.checksum);
        }
        // Its header may be damaged.
        let first = first_group(&*file, id)?;
        Ok(first.is_some_and(|head| head.sequence == chain.sequence + 1 && head.previous == chain.checksum))
    }

    /// Applies a frame that the checkpoint may not cover. Applying one again changes nothing.
    fn replay(&mut self, frame: &ScannedFrame, segment: SegmentId, group_end: Position, number: u32) {
        if (Position {
            segment,
            byte: frame.byte,
        }) < self.from
        {
            return;
        }
        self.report.replayed_frames += 1;
        match frame.head.kind {
            Kind::Batch => self.replay_batch(frame),
            Kind::Control => {
                if let Some(control) = Control::decode(&frame.body) {
                    self.replay_control(control, group_end, number);
                } else {
                    tracing::warn!(segment = segment.0, byte = frame.byte, "an unknown control frame");
                }
            }
        }
    }

    fn replay_batch(&mut self, frame: &ScannedFrame) {
        let header = BatchHeader::parse(&frame.body).ok();
        for entry in &frame.head.entries {
            let Some(log) = self.logs.get(&entry.log) else {
                if !self.deleted.contains(&entry.log) {
                    self.report.unknown_frames += 1;
                }
                continue;
            };
            let mut state = log.lock();
            if self.suspect {
                self.proven.insert(entry.log);
                let next = state.next;
                if entry.base > next {
                    state.lose(next, entry.base);
                }
            }
            state.next = state.next.max(entry.end());
            if let Some(header) = &header
                && let (1, Some(numbered)) = (frame.head.entries.len(), Numbered::of(header))
            {
                state.producers.get_or_insert_default().note(
                    numbered,
                    entry.base,
                    header.max_timestamp.max(0),
                );
            }
            self.dirty.insert(entry.log);
        }
    }

    fn replay_control(&mut self, control: Control, position: Position, number: u32) {
        match control {
            Control::State(change) => self.state.push(StateAt {
                position,
                number,
                change,
            }),
            Control::CreateLogs { first, count, spec } => {
                let spec = Arc::new(spec);
                for id in ids(first, count) {
                    self.meta.next_log = self.meta.next_log.max(id.0 + 1);
                    self.logs
                        .entry(id)
                        .or_insert_with(|| Arc::new(Log::new(id, Arc::clone(&spec))));
                    self.dirty.insert(id);
                }
            }
            Control::ChangeLogs { first, count, spec } => {
                let spec = Arc::new(spec);
                for id in ids(first, count) {
                    if let Some(log) = self.logs.get(&id) {
                        log.lock().spec = Arc::clone(&spec);
                        self.dirty.insert(id);
                    }
                }
            }
            Control::DeleteLogs { first, count } => {
                for id in ids(first, count) {
                    self.logs.remove(&id);
                    self.dirty.remove(&id);
                    self.deleted.push(id);
                }
            }
            Control::Truncate { log, before } => {
                if let Some(known) = self.logs.get(&log) {
                    known.lock().truncate(before);
                    self.dirty.insert(log);
                }
            }
            Control::Reserve { log, below } => {
                if let Some(known) = self.logs.get(&log) {
                    let mut state = known.lock();
                    state.reserved = state.reserved.max(below);
                    self.dirty.insert(log);
                }
            }
            Control::Run { epoch, boot, .. } => {
                // Where the recovery before that run ended, whose checkpoint was not stored.
                self.pass_lost_offsets(boot);
                self.meta.run.epoch = epoch.0;
                self.meta.run.boot = boot;
                self.meta.run.ended = false;
            }
            Control::RunEnd { .. } => self.meta.run.ended = true,
            Control::Segments { added, removed } => {
                for id in &added {
                    self.sorted.insert(*id, true);
                }
                for id in &removed {
                    self.sorted.remove(id);
                    self.removed.insert(*id);
                }
                self.segments_added.extend(added);
                self.segments_removed.extend(removed);
            }
        }
    }

    fn lose(&mut self, lost: &[(LogId, Offset, Offset)]) {
        for (id, from, to) in lost {
            let Some(log) = self.logs.get(id) else { continue };
            let mut state = log.lock();
            state.lose(*from, *to);
            state.next = state.next.max(*to);
            self.dirty.insert(*id);
        }
    }

    /// Takes the rows of a sidecar; `None` if there is none, if it is damaged, or if its segment has to be replayed.
    fn believe_sidecar(&mut self, kind: SegmentKind, id: SegmentId) -> Result<Option<Summary>, OpenError> {
        if !self.sidecars.contains(&(kind, id)) {
            return Ok(None);
        }
        let role = FileRole::Sidecar(kind, id);
        let file = self.storage.open(&role.name())?;
        let mut rows = Vec::new();
        let read = Sidecar::open(&*file, id).and_then(|sidecar| {
            sidecar.for_each_row(|row| rows.push((id, row)))?;
            Ok(sidecar.summary)
        });
        match read {
            Ok(summary)
                if (Position {
                    segment: id,
                    byte: summary.valid_bytes,
                }) > self.from
                    && kind == SegmentKind::Arrival =>
            {
                Ok(None)
            }
            Ok(summary) => {
                self.rows.append(&mut rows);
                Ok(Some(summary))
            }
            Err(sidecar::SidecarError::Newer(version)) => Err(OpenError::Newer {
                file: role.name(),
                version,
            }),
            Err(error) => {
                tracing::error!(file = role.name(), %error, "a sidecar is damaged and is made anew");
                Ok(None)
            }
        }
    }

    /// Takes the sorted segments that are in force and removes the others.
    fn read_sorted(&mut self) -> Result<(), OpenError> {
        for id in std::mem::take(&mut self.sorted_files) {
            let role = FileRole::Segment(SegmentKind::Sorted, id);
            if !self.sorted.contains_key(&id) {
                self.drop_segment(role)?;
                continue;
            }
            if self.believe_sidecar(SegmentKind::Sorted, id)?.is_none() {
                let file = self.storage.open(&role.name())?;
                let mut block = vec![0; SEGMENT_HEAD_BYTES];
                file.read_at(&mut block, 0)?;
                let HeadFound::Head(head) = SegmentHead::decode(&block) else {
                    return Err(OpenError::Start(format!(
                        "{} and its sidecar are damaged",
                        role.name()
                    )));
                };
                let chain = Chain {
                    sequence: head.first_sequence.saturating_sub(1),
                    checksum: head.previous,
                };
                let (mut indexer, end) = index_segment(&*file, id, chain)?;
                if later_mark(&*file, id, end.byte, end.chain.sequence, end.run)?.is_some() {
                    return Err(OpenError::Start(format!(
                        "{} is damaged at byte {}, and so is its sidecar",
                        role.name(),
                        end.byte
                    )));
                }
                indexer
                    .entries
                    .retain(|entry| (head.first..=head.last).contains(&(entry.log, entry.base)));
                let (summary, rows, entries) = indexer.finish();
                let name = FileRole::Sidecar(SegmentKind::Sorted, id).name();
                sidecar::write(&**self.storage, &name, summary, &rows, &entries)?;
                self.rows.extend(rows.into_iter().map(|row| (id, row)));
            }
            self.segments.push(Segment {
                id,
                kind: SegmentKind::Sorted,
            });
            self.sorted.insert(id, false);
        }
        match self.sorted.iter().find(|(_, missing)| **missing) {
            Some((id, _)) => Err(OpenError::Start(format!("sorted {id} is missing"))),
            None => Ok(()),
        }
    }

    /// Lets every log know which segments hold it.
    fn place_runs(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        for (segment, row) in &rows {
            let Some(log) = self.logs.get(&row.log) else {
                continue;
            };
            let mut state = log.lock();
            state.next = state.next.max(row.end);
            if row.end > state.start {
                state.bytes = state.bytes.saturating_add(row.bytes);
                state.runs.reserve_exact(1);
                state.runs.push(RunRef {
                    first: row.first,
                    segment: *segment,
                    bytes: u32::try_from(row.bytes).unwrap_or(u32::MAX),
                });
            }
        }
        for log in self.logs.values() {
            let mut state = log.lock();
            state.runs.sort_unstable_by_key(|run| (run.first, run.segment));
        }
        let mut segments = std::mem::take(&mut self.segments);
        segments.sort_unstable_by_key(|segment| segment.id);
        self.report.segments = segments.len();
        self.segments = segments;
    }

    /// Goes past the offsets that the last run may have given out and lost, before a run that began on `boot`.
    fn pass_lost_offsets(&mut self, boot: [u8; 16]) {
        let run = self.meta.run;
        self.report.clean = run.ended || run.epoch == 0;
        self.report.rebooted = run.epoch != 0 && run.boot != boot;
        if self.report.clean {
            return;
        }
        for log in self.logs.values() {
            let mut state = log.lock();
            let lost = match state.spec.durability {
                Durability::Memory => true,
                Durability::Os | Durability::Interval { .. } | Durability::Sync => self.report.rebooted,
            };
            if lost && state.reserved > state.next {
                state.next = state.reserved;
                self.dirty.insert(log.id);
            }
        }
    }

    /// Decides where every log goes on.
    fn settle_run(&mut self) {
        self.pass_lost_offsets(self.boot);
        for log in self.logs.values() {
            let mut state = log.lock();
            if self.suspect && !self.proven.contains(&log.id) {
                state.fenced = true;
                self.dirty.insert(log.id);
            }
            if state.fenced {
                self.report.fenced.push(log.id);
            }
            if let Some(damaged) = &state.damaged {
                self.report
                    .damaged
                    .extend(damaged.iter().map(|(from, to)| (log.id, *from, *to)));
            }
            state.start = state.start.min(state.next);
            state.reserved = state.reserved.max(state.next);
            state.reserved_durably = state.next;
            state.reserved = state.next;
            state.visible = state.next;
        }
        self.report.fenced.sort_unstable();
        self.report.damaged.sort_unstable();
        self.report.logs = self.logs.len();
    }

    /// Removes a segment's sidecar and keeps its file for other use.
    fn drop_segment(&mut self, role: FileRole) -> Result<(), OpenError> {
        let FileRole::Segment(kind, id) = role else {
            return Ok(());
        };
        if self.sidecars.remove(&(kind, id)) {
            self.storage.remove(&FileRole::Sidecar(kind, id).name())?;
        }
        self.report.dropped_segments += 1;
        self.spares.push(role);
        Ok(())
    }

    fn finish(mut self, checkpoint: Checkpoint) -> Result<Recovered, OpenError> {
        self.storage.sync_names()?;
        let highest = self.spares.iter().map(|role| match role {
            FileRole::Segment(_, id) | FileRole::Sidecar(_, id) => id.0 + 1,
        });
        let highest = highest
            .chain(self.segments.iter().map(|segment| segment.id.0 + 1))
            .max()
            .unwrap_or(1);
        self.meta.next_segment = self.meta.next_segment.max(highest);
        let logs = self.logs;
        let dirty = self.dirty.iter().filter_map(|id| logs.get(id).cloned()).collect();
        Ok(Recovered {
            checkpoint,
            meta: self.meta,
            logs: LogTable::from_logs(logs),
            segments: self.segments,
            dirty,
            deleted: self.deleted,
            state: self.state,
            segments_added: self.segments_added,
            segments_forgotten: self.removed.iter().copied().collect(),
            segments_removed: self.segments_removed,
            chain: self.chain.unwrap_or(Chain {
                sequence: 0,
                checksum: 0,
            }),
            spares: self.spares,
            report: self.report,
        })
    }
}

fn ids(first: LogId, count: u32) -> impl Iterator<Item = LogId> {
    (first.0..first.0 + u64::from(count)).map(LogId)
}

/// What makes two specs the same.
type LogSpecKey = (Durability, Option<std::time::Duration>, Option<u64>);

fn spec_key(spec: &LogSpec) -> LogSpecKey {
    (spec.durability, spec.retention.age, spec.retention.bytes)
}
