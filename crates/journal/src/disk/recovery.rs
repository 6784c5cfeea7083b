//! Recovery: from what lies on the disk to where the program goes on.
//!
//! 1. The checkpoint says what was known, and up to which position.
//! 2. Arrival segments are taken in order. One with a sidecar that the checkpoint covers is believed; every other is
//!    scanned, and what lies behind the checkpoint is replayed.
//! 3. The first bad group at or above the highest synced mark is the end of the journal. What lies behind it is
//!    thrown away, and the segment is never written again: a new one starts under an id that nothing ever had.
//! 4. A bad group below the mark is damage: what it held is named and fenced, and the scan goes on behind it.
//! 5. Every segment gets its sidecar, everything found is synced, and only then is the journal open.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use stafett_model::{BatchHeader, Durability, LogId, Offset};

use super::checkpoint::{Checkpoint, CheckpointError, Meta, SegmentState, StateAt};
use super::codec::u32_of;
use super::control::Control;
use super::frame::Kind;
use super::index::{Indexer, index_segment};
use super::log::{Log, LogTable, RunRef};
use super::position::{Position, SegmentId};
use super::producers::Numbered;
use super::salvage::salvage;
use super::scan::{Chain, EndReason, ScanEnd, ScannedFrame, later_mark, scan};
use super::segment::{FileRole, HeadFound, SEGMENT_HEAD_BYTES, Segment, SegmentHead, SegmentKind};
use super::settings::Settings;
use super::sidecar::{self, Row, Sidecar, Summary};
use super::storage::{Storage, StorageFile};
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
    /// Bytes behind the end of the journal that were thrown away.
    pub dropped_segments: usize,
    /// Ranges of logs that were lost to damage.
    pub damaged: Vec<(LogId, Offset, Offset)>,
    /// Logs of which nobody knows whether they lost something: they take no appends.
    pub fenced: Vec<LogId>,
    /// Frames of logs that do not exist.
    pub unknown_frames: u64,
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
    let mut recovery = Recovery::new(storage, meta, &checkpoint)?;
    recovery.list_files(&checkpoint)?;
    recovery.read_arrivals()?;
    recovery.read_sorted()?;
    recovery.place_runs();
    recovery.settle_run(settings);
    recovery.finish(checkpoint)
}

struct Recovery<'a> {
    storage: &'a Arc<dyn Storage>,
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
    fn new(storage: &'a Arc<dyn Storage>, meta: Meta, checkpoint: &Checkpoint) -> Result<Self, OpenError> {
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
                state.producers = row.producers;
            }
            logs.insert(id, Arc::new(log));
        })?;
        Ok(Self {
            storage,
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
                if self.sidecars.contains(&(SegmentKind::Arrival, id)) {
                    return Ok(Some(self.chain.unwrap_or(Chain {
                        sequence: 0,
                        checksum: 0,
                    })));
                }
                let Some(chain) = self.chain else { return Ok(None) };
                let mut groups = 0;
                scan(file, id, 0, chain, |_| groups += 1)?;
                Ok((groups > 0).then_some(chain))
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
            if let Some(next_id) = next.first()
                && self.follows(*next_id, end.chain)?
            {
                return Ok((end, false));
            }
            let at = Position {
                segment: id,
                byte: end.byte,
            };
            let mark = self.marks_behind(file, id, &end, next)?.max(self.highest_mark);
            if mark <= at {
                if end.reason != EndReason::NoGroup {
                    tracing::info!(%at, reason = %end.reason, "the journal ends at a torn write group");
                }
                return Ok((end, true));
            }
            tracing::error!(%at, reason = %end.reason, %mark, "a write group that was synced is damaged");
            let found = salvage(file, id, end.byte, end.chain.sequence)?;
            for frame in &found.frames {
                indexer.frame(frame);
                self.replay(frame, id, at, u32::MAX);
            }
            self.lose(&found.lost);
            self.suspect |= found.unknown;
            match found.resume {
                Some((byte, follows)) => (from, chain) = (byte, follows),
                None => return Ok((end, next.is_empty())),
            }
        }
    }

    /// Whether an arrival segment starts with what follows `chain`.
    fn follows(&self, id: SegmentId, chain: Chain) -> Result<bool, OpenError> {
        let role = FileRole::Segment(SegmentKind::Arrival, id);
        let file = self.storage.open(&role.name())?;
        let mut block = vec![0; SEGMENT_HEAD_BYTES];
        let got = file.read_at(&mut block, 0)?;
        block.truncate(got);
        let HeadFound::Head(head) = SegmentHead::decode(&block) else {
            return Ok(false);
        };
        Ok(
            head.segment == id
                && head.first_sequence == chain.sequence + 1
                && head.previous == chain.checksum,
        )
    }

    /// The highest synced mark in whatever lies behind a bad group.
    fn marks_behind(
        &self,
        file: &dyn StorageFile,
        id: SegmentId,
        end: &ScanEnd,
        next: &[SegmentId],
    ) -> Result<Position, OpenError> {
        let mut highest = later_mark(file, id, end.byte, end.chain.sequence)?;
        for id in next {
            let file = self
                .storage
                .open(&FileRole::Segment(SegmentKind::Arrival, *id).name())?;
            let from = u32_of(SEGMENT_HEAD_BYTES);
            highest = highest.max(later_mark(&*file, *id, from, end.chain.sequence)?);
        }
        Ok(highest.unwrap_or_default())
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
                if entry.base > state.next && state.reserved < entry.base {
                    let lost = (entry.log, state.next, entry.base);
                    self.report.damaged.push(lost);
                    state.damaged.get_or_insert_default().push((lost.1, lost.2));
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
            state.damaged.get_or_insert_default().push((*from, *to));
            state.next = state.next.max(*to);
            self.dirty.insert(*id);
            self.report.damaged.push((*id, *from, *to));
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
                let (indexer, _) = index_segment(&*file, id, chain)?;
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

    /// Decides which offsets may have been given out and lost.
    fn settle_run(&mut self, settings: &Settings) {
        let run = self.meta.run;
        self.report.clean = run.ended || run.epoch == 0;
        self.report.rebooted = run.epoch != 0 && run.boot != settings.boot;
        for log in self.logs.values() {
            let mut state = log.lock();
            let lost = !self.report.clean
                && match state.spec.durability {
                    Durability::Memory => true,
                    Durability::Os | Durability::Interval { .. } | Durability::Sync => self.report.rebooted,
                };
            if lost && state.reserved > state.next {
                state.next = state.reserved;
                self.dirty.insert(log.id);
            }
            if self.suspect && !self.proven.contains(&log.id) {
                state.fenced = true;
                self.report.fenced.push(log.id);
            }
            state.start = state.start.min(state.next);
            state.reserved = state.reserved.max(state.next);
            state.reserved_durably = state.next;
            state.reserved = state.next;
            state.visible = state.next;
        }
        self.report.fenced.sort_unstable();
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
