//! Recovery: restores the journal's state from disk.
//!
//! 1. The checkpoint gives the known state, and the position that it covers.
//! 2. Arrival segments are read in order. One covered by the checkpoint, with a sidecar, is trusted; every
//!    other is scanned, and everything behind the checkpoint is replayed.
//! 3. The first bad group at or above the highest synced mark is the end of the journal. Everything behind it
//!    is discarded, and the segment is never written again: a new one starts under an unused id.
//! 4. A bad group below the mark is damage: its contents are reported and fenced, and the scan continues
//!    behind it.
//! 5. A missing segment is reported, and its contents are fenced as far as they are known.
//! 6. Every segment gets its sidecar, everything found is synced, and only then is the journal open.
//! 7. The unused end of the last segment goes back to the file system.
//!
//! Length: one pass over the segments, whose steps share the state that they restore.

mod arrivals;
mod lost;
mod missing;
mod replay;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self};
use std::sync::Arc;

use stafett_model::{Durability, LogId, Offset};

use super::checkpoint::{Checkpoint, CheckpointError, Meta, SegmentState, StateAt};
use super::index::{Indexer, index_segment};
use super::log::{Log, LogTable, RecentBatch, SegmentExtent};
use super::position::{Position, SegmentId};
use super::running::Moment;
use super::scan::{Chain, LaterGroups, LaterMark};
use super::segment::{FileRole, HeadBlock, SEGMENT_HEAD_BYTES, Segment, SegmentHead, SegmentKind};
use super::settings::Settings;
use super::sidecar::{self, Row, Sidecar, Summary};
use super::storage::{Storage, is_full};
use super::writer::SealedSegment;
use crate::contract::{Compaction, LogSpec};

/// Reason why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Directory(#[from] super::os_storage::OpenDirectoryError),
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

/// Findings of recovery, for the log and for callers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not depend on each other"
)]
pub struct RecoveryReport {
    /// True if the program had stopped cleanly, with nothing left to write.
    pub clean: bool,
    /// True if the machine was rebooted since.
    pub rebooted: bool,
    pub segments: usize,
    pub scanned_segments: usize,
    pub replayed_frames: u64,
    pub logs: usize,
    /// True if something incomplete was found behind the end of the journal and discarded: a write that was
    /// in progress when the program stopped, or damage to the last write.
    pub torn: bool,
    /// Discarded segments: behind the end of the journal, or replaced by a rewrite.
    pub dropped_segments: usize,
    /// Damaged write groups that had been durable. Their contents are listed below as far as they are known;
    /// state may be lost too.
    pub damaged_groups: usize,
    /// Ranges of logs that were lost to damage.
    pub damaged: Vec<(LogId, Offset, Offset)>,
    /// Logs that may have lost something unnoticed: they take no appends.
    pub fenced: Vec<LogId>,
    /// Arrival segments that are missing although nothing replaced them: each by its file name, or by its
    /// predecessor if no more is known. State may be lost too.
    pub missing_segments: Vec<String>,
    /// True if there were segments but no checkpoint. Everything not repeated in the remaining segments is
    /// lost: definitions, commits, subscriptions and all other state.
    pub checkpoint_lost: bool,
    /// Segments that only the lost checkpoint could confirm as being in force. Their files now end in
    /// `.lost`.
    pub set_aside: Vec<String>,
    /// Frames of logs that do not exist.
    pub unknown_frames: u64,
    /// Logs with batches in segments but without a definition. Their ids are not reused.
    pub unknown_logs: Vec<LogId>,
}

impl RecoveryReport {
    /// Returns true if something durable was lost, now or at an earlier start.
    pub fn is_damaged(&self) -> bool {
        self.damaged_groups > 0
            || !self.damaged.is_empty()
            || !self.fenced.is_empty()
            || !self.missing_segments.is_empty()
            || !self.set_aside.is_empty()
            || !self.unknown_logs.is_empty()
    }
}

/// A recovered journal that is about to open.
#[derive(Debug)]
pub(crate) struct RecoveredJournal {
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
    /// Segments that need a sidecar.
    pub(crate) unlisted: Vec<SealedSegment>,
    /// End of the replayed part: a checkpoint with it covers everything before.
    pub(crate) end: Position,
    /// Files that can be reused under other names.
    pub(crate) spares: Vec<FileRole>,
    pub(crate) report: RecoveryReport,
}

pub(crate) fn recover(
    storage: &Arc<dyn Storage>,
    settings: &Settings,
) -> Result<RecoveredJournal, OpenError> {
    let checkpoint = Checkpoint::open(Arc::clone(storage))?;
    let meta = checkpoint.meta()?;
    let mut recovery = Recovery::new(storage, meta, &checkpoint, settings)?;
    recovery.list_files(&checkpoint)?;
    recovery.expect_newest();
    recovery.read_arrivals()?;
    recovery.find_missing();
    recovery.read_sorted()?;
    recovery.name_unknown_logs();
    recovery.name_holes();
    recovery.place_runs();
    recovery.settle_run();
    recovery.finish(checkpoint)
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not depend on each other"
)]
struct Recovery<'a> {
    storage: &'a Arc<dyn Storage>,
    /// Id of the machine's current boot.
    boot: [u8; 16],
    /// Date for producers found behind the checkpoint: they sent earlier, but not long before the last stop.
    now: Moment,
    meta: Meta,
    /// Start of replay.
    from: Position,
    logs: HashMap<LogId, Arc<Log>>,
    dirty: BTreeSet<LogId>,
    deleted: Vec<LogId>,
    state: Vec<StateAt>,
    arrivals: Vec<SegmentId>,
    /// The same segments, kept until recovery ends.
    arrivals_all: BTreeSet<SegmentId>,
    /// Arrival segments that were in force when the checkpoint was stored.
    expected: BTreeSet<SegmentId>,
    /// True if there was no checkpoint.
    is_anew: bool,
    /// True if the newest segment listed by the checkpoint is missing. It may have been rewritten: until that
    /// is known, offsets that logs seem to miss behind it are collected in `gaps`.
    newest_gone: bool,
    gaps: Vec<(LogId, Offset, Offset)>,
    /// True if a segment without a sidecar is missing: offsets of logs that no segment has are lost.
    has_holes: bool,
    sidecars: BTreeSet<(SegmentKind, SegmentId)>,
    sorted: BTreeMap<SegmentId, bool>,
    sorted_files: BTreeSet<SegmentId>,
    /// Sorted segments that an earlier start has set aside.
    set_aside: BTreeSet<SegmentId>,
    removed: BTreeSet<SegmentId>,
    segments_added: Vec<SegmentId>,
    segments_removed: Vec<SegmentId>,
    rows: Vec<(SegmentId, Row)>,
    segments: Vec<Segment>,
    /// Scanned arrival segments without space for a sidecar, in order.
    unlisted: Vec<SealedSegment>,
    /// End of the replayed part.
    end: Position,
    /// End of the last arrival segment that was read.
    last_end: Option<Position>,
    chain: Option<Chain>,
    highest_mark: Position,
    spares: Vec<FileRole>,
    /// Groups behind the damaged places, by segment, as far as they were searched.
    later: HashMap<SegmentId, LaterMark>,
    /// True if unknown contents were damaged: logs without a later frame are suspect.
    suspect: bool,
    proven: BTreeSet<LogId>,
    report: RecoveryReport,
}

impl<'a> Recovery<'a> {
    fn new(
        storage: &'a Arc<dyn Storage>,
        meta: Meta,
        checkpoint: &Checkpoint,
        settings: &Settings,
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
                state.owner = row.owner;
            }
            logs.insert(id, Arc::new(log));
        })?;
        checkpoint.for_each_producer(|log, id, row| {
            let log = logs.get(&log);
            log.is_none_or(|log| log.lock().producers.get_or_insert_default().restore(id, row))
        })?;
        Ok(Self {
            storage,
            boot: settings.boot,
            now: Moment {
                clock: settings.clock.now_ms(),
                running: meta.running_ms,
            },
            meta,
            from: meta.position,
            logs,
            dirty: BTreeSet::new(),
            deleted: Vec::new(),
            state: Vec::new(),
            arrivals: Vec::new(),
            arrivals_all: BTreeSet::new(),
            expected: checkpoint.arrivals()?.unwrap_or_default().into_iter().collect(),
            is_anew: checkpoint.is_new(),
            newest_gone: false,
            gaps: Vec::new(),
            has_holes: false,
            sidecars: BTreeSet::new(),
            sorted: BTreeMap::new(),
            sorted_files: BTreeSet::new(),
            set_aside: BTreeSet::new(),
            removed: BTreeSet::new(),
            segments_added: Vec::new(),
            segments_removed: Vec::new(),
            rows: Vec::new(),
            segments: Vec::new(),
            unlisted: Vec::new(),
            end: Position::default(),
            last_end: None,
            chain: None,
            highest_mark: Position::default(),
            spares: Vec::new(),
            later: HashMap::new(),
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
                None if self.note_lost_file(&name) => {}
                None if name.strip_suffix(".tmp").is_some() => self.storage.remove(&name)?,
                None => {}
            }
        }
        self.arrivals.sort_unstable();
        self.arrivals_all = self.arrivals.iter().copied().collect();
        // An arrival segment up to the position that the checkpoint does not list was replaced, and its name
        // reappeared.
        if checkpoint.arrivals()?.is_some() {
            let is_stale = |id: &SegmentId| *id <= self.from.segment && !self.expected.contains(id);
            self.removed
                .extend(self.arrivals.iter().copied().filter(is_stale));
        }
        Ok(())
    }

    /// Writes the sidecar of a scanned arrival segment. If there is no space for it, its batches are listed
    /// in memory, and so are those of all later segments: a log's batches are found in sidecars up to some
    /// segment, and in memory behind it.
    fn list_arrival(&mut self, indexer: Indexer) -> Result<(), OpenError> {
        let (summary, rows, entries) = indexer.finish();
        let id = summary.segment;
        self.end = self.end.max(Position {
            segment: id,
            byte: summary.valid_bytes,
        });
        let name = FileRole::Sidecar(SegmentKind::Arrival, id).name();
        if self.unlisted.is_empty() {
            match sidecar::write(&**self.storage, &name, summary, &rows, &entries) {
                Ok(_) => {
                    self.rows.extend(rows.into_iter().map(|row| (id, row)));
                    return Ok(());
                }
                Err(error) if is_full(&error) => {
                    tracing::warn!(%error, segment = id.0, "there is no space for a sidecar yet");
                }
                Err(error) => return Err(error.into()),
            }
        }
        // A segment listed in memory must not be rewritten meanwhile.
        if self.sidecars.remove(&(SegmentKind::Arrival, id)) {
            self.storage.remove(&name)?;
        }
        let index = entries;
        self.unlisted.push(SealedSegment { summary, index });
        Ok(())
    }

    /// Reads the rows of a sidecar; `None` if it is missing or damaged, or if its segment has to be replayed
    /// or follows one without a sidecar.
    fn believe_sidecar(&mut self, kind: SegmentKind, id: SegmentId) -> Result<Option<Summary>, OpenError> {
        let is_behind = kind == SegmentKind::Arrival && !self.unlisted.is_empty();
        if is_behind || !self.sidecars.contains(&(kind, id)) {
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

    /// Adds the sorted segments that are in force and drops the others.
    fn read_sorted(&mut self) -> Result<(), OpenError> {
        self.report_set_aside()?;
        for id in std::mem::take(&mut self.sorted_files) {
            let role = FileRole::Segment(SegmentKind::Sorted, id);
            if !self.sorted.contains_key(&id) {
                if self.is_anew {
                    self.set_aside(id)?;
                } else {
                    self.drop_segment(role)?;
                }
                continue;
            }
            if self.believe_sidecar(SegmentKind::Sorted, id)?.is_none() {
                let file = self.storage.open(&role.name())?;
                let mut block = vec![0; SEGMENT_HEAD_BYTES];
                file.read_at(&mut block, 0)?;
                let HeadBlock::Head(head) = SegmentHead::decode(&block) else {
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
                let behind = LaterGroups::new(&*file, id, end.byte, end.chain.sequence, end.run).next()?;
                if behind.is_some() {
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
        self.check_sorted()
    }

    /// Adds to every log the segments that hold it.
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
                state.runs.push(SegmentExtent {
                    first: row.first,
                    segment: *segment,
                    bytes: u32::try_from(row.bytes).unwrap_or(u32::MAX),
                });
            }
        }
        for sealed in &self.unlisted {
            for entry in &sealed.index {
                let Some(log) = self.logs.get(&entry.log) else {
                    continue;
                };
                let mut state = log.lock();
                state.next = state.next.max(entry.end());
                if entry.end() > state.start {
                    state.on_written(RecentBatch::of(sealed.summary.segment, entry));
                }
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

    /// Skips the offsets that the last run may have assigned and lost, before a run that began on boot
    /// `boot`.
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
                // In a log at `sync`, offsets are reserved for appends at lower levels, perhaps at `memory`.
                Durability::Memory | Durability::Sync => true,
                Durability::Os | Durability::Interval { .. } => self.report.rebooted,
            };
            if lost && state.reserved > state.next {
                state.next = state.reserved;
                self.dirty.insert(log.id);
            }
        }
    }

    /// Sets the next offset of every log and reports the losses.
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
            state.reserved_durably = state.next;
            state.reserved = state.next;
            state.visible = state.next;
        }
        self.report.fenced.sort_unstable();
        self.report.damaged.sort_unstable();
        self.report.logs = self.logs.len();
        self.report.log_losses();
    }

    /// Removes a segment's sidecar and keeps its file for reuse.
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

    /// Cuts the last arrival segment at its end: it was allocated whole and is never written again, and a
    /// program that is killed again and again would fill the disk with empty ends. Nothing is cut if the
    /// segment has no durable sidecar, if a backup shares the file, or after damage, whose remains stay.
    fn give_back_end(&self) {
        let is_needed = self.storage.is_append_only() || self.report.is_damaged();
        let Some(end) = self.last_end.filter(|_| !is_needed && self.unlisted.is_empty()) else {
            return;
        };
        let cut = || {
            let file = self.open_arrival(end.segment)?;
            if file.bytes()? > end.byte.into() && !file.is_shared()? {
                file.set_bytes(end.byte.into())?;
            }
            Ok::<(), OpenError>(())
        };
        if let Err(error) = cut() {
            tracing::warn!(%error, segment = end.segment.0, "the unused end of a segment is kept");
        }
    }

    fn finish(mut self, checkpoint: Checkpoint) -> Result<RecoveredJournal, OpenError> {
        self.storage.sync_names()?;
        self.give_back_end();
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
        Ok(RecoveredJournal {
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
            unlisted: self.unlisted,
            end: self.end,
            spares: self.spares,
            report: self.report,
        })
    }
}

fn ids(first: LogId, count: u32) -> impl Iterator<Item = LogId> {
    (first.0..first.0 + u64::from(count)).map(LogId)
}

/// Fields that decide whether two specs are equal.
type LogSpecKey = (
    Durability,
    Option<std::time::Duration>,
    Option<u64>,
    Option<Compaction>,
);

fn spec_key(spec: &LogSpec) -> LogSpecKey {
    (
        spec.durability,
        spec.retention.age,
        spec.retention.bytes,
        spec.compaction,
    )
}
