//! Offline check of a stopped journal; changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use stafett_model::LogId;

use super::checkpoint::{self, Checkpoint, CheckpointError, SegmentState};
use super::chunk::Table;
use super::codec::usize_of;
use super::control::Control;
use super::dates;
use super::frame::FrameKind;
use super::index::{Indexer, sort};
use super::os_storage::Directory;
use super::position::{Position, SegmentId};
use super::recovery::OpenError;
use super::scan::{Chain, EndReason, LaterMark, ScanEnd, ScannedFrame, ScannedGroup, scan};
use super::segment::{FileRole, HeadBlock, SEGMENT_HEAD_BYTES, SegmentHead, SegmentKind};
use super::sidecar::{EntryCursor, Sidecar, SidecarError};
use super::storage::{Storage, StorageFile};

use crate::contract::{Change, Selection};

/// Result of checking a journal.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct CheckReport {
    pub segments: Vec<SegmentReport>,
    /// Files of spare segments, which hold nothing yet.
    pub spares: usize,
    pub groups: u64,
    pub frames: u64,
    pub bytes: u64,
    /// Logs in the checkpoint.
    pub logs: u64,
    pub checkpoint: Option<String>,
    /// Files of arrival segments that are missing although nothing replaced them.
    pub missing: Vec<String>,
    /// Frames of logs that are not defined.
    pub unknown_frames: u64,
}

/// Contents required by the checkpoint, and those added by later segments.
#[derive(Debug, Default)]
struct ExpectedContents {
    arrivals: BTreeSet<SegmentId>,
    replaced: BTreeSet<SegmentId>,
    next_log: u64,
    position: Position,
    /// Frames by log, of logs newer than the checkpoint.
    beyond: BTreeMap<LogId, u64>,
    created: BTreeSet<LogId>,
}

/// Result of checking one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    pub file: String,
    pub groups: u64,
    pub frames: u64,
    pub bytes: u64,
    /// Reason why the scan ended early; `None` if it reached the end of the durable data.
    pub damage: Option<String>,
    /// True if the segment ends at a write that was cut short: nothing in it was durable.
    pub torn: bool,
    pub sidecar: SidecarReport,
}

/// Result of checking a segment's sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SidecarReport {
    Sound,
    /// The segment was being written: its sidecar is made at the next start.
    Missing,
    Damaged(String),
}

/// One frame in readable form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpedFrame {
    pub file: String,
    pub byte: u32,
    pub group: u64,
    pub written_at: i64,
    pub synced: String,
    pub bytes: usize,
    /// Contents, as names and values.
    pub fields: Vec<(&'static str, String)>,
}

impl CheckReport {
    /// Returns true if nothing is damaged or missing.
    pub fn is_sound(&self) -> bool {
        self.checkpoint.is_none()
            && self.missing.is_empty()
            && self.unknown_frames == 0
            && self.segments.iter().all(|segment| {
                segment.damage.is_none() && !matches!(segment.sidecar, SidecarReport::Damaged(_))
            })
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            let SegmentReport {
                file,
                groups,
                frames,
                bytes,
                ..
            } = segment;
            write!(f, "{file}  {groups} groups, {frames} frames, {bytes} bytes")?;
            match &segment.sidecar {
                SidecarReport::Sound => {}
                SidecarReport::Missing => f.write_str("; no sidecar yet")?,
                SidecarReport::Damaged(why) => write!(f, "; SIDECAR DAMAGED: {why}")?,
            }
            match &segment.damage {
                Some(damage) => writeln!(f, "; DAMAGED: {damage}")?,
                None if segment.torn => writeln!(f, "; the last write was cut short")?,
                None => writeln!(f)?,
            }
        }
        if let Some(damage) = &self.checkpoint {
            writeln!(f, "CHECKPOINT DAMAGED: {damage}")?;
        }
        for file in &self.missing {
            writeln!(f, "{file}  MISSING")?;
        }
        if self.unknown_frames > 0 {
            writeln!(f, "{} frames of logs that nothing defines", self.unknown_frames)?;
        }
        let (segments, spares) = (self.segments.len(), self.spares);
        writeln!(
            f,
            "{segments} segments, {spares} spares, {} groups, {} frames, {} bytes, {} logs: {}",
            self.groups,
            self.frames,
            self.bytes,
            self.logs,
            if self.is_sound() { "sound" } else { "DAMAGED" }
        )
    }
}

/// Checks the stopped journal in a directory.
pub fn check(path: &Path) -> Result<CheckReport, OpenError> {
    check_on(&(Arc::new(Directory::open_existing(path)?) as Arc<dyn Storage>))
}

/// Checks the files of a stopped journal.
pub(crate) fn check_on(storage: &Arc<dyn Storage>) -> Result<CheckReport, OpenError> {
    let mut report = CheckReport::default();
    let mut known = ExpectedContents::default();
    let mut behind: Option<(SegmentId, Chain)> = None;
    match look_at_checkpoint(storage, &mut known) {
        Ok(logs) => report.logs = logs,
        Err(error) => report.checkpoint = Some(error),
    }
    for (name, id, kind) in segments_of(&**storage)? {
        let file = storage.open(&name)?;
        let is_expected = known.arrivals.remove(&id);
        let chain = match start_of(&*file, id, &name)? {
            Some(chain) => chain,
            // Like recovery, which keeps it: a loss of power can take the header alone, of an empty segment
            // too.
            None if is_expected => behind.map_or_else(Chain::default, |(_, end)| end),
            None => {
                report.spares += 1;
                continue;
            }
        };
        // Up to its position, the checkpoint lists the segments required; behind it, each segment follows the
        // previous one.
        let follows = match behind {
            Some((before, end)) => before < known.position.segment || end == chain,
            None => known.position != Position::default() || chain == Chain::default(),
        };
        if kind == SegmentKind::Arrival && id > known.position.segment && !follows {
            report.missing.push(format!("a segment before {name}"));
        }
        let (segment, end) = check_segment(&**storage, &*file, &name, (id, kind), chain, &mut known)?;
        if kind == SegmentKind::Arrival {
            behind = Some((id, end));
        }
        report.groups += segment.groups;
        report.frames += segment.frames;
        report.bytes += segment.bytes;
        report.segments.push(segment);
    }
    let missing = known.arrivals.difference(&known.replaced);
    let missing = missing.map(|id| FileRole::Segment(SegmentKind::Arrival, *id).name());
    report.missing.extend(missing);
    let unknown = known
        .beyond
        .iter()
        .filter(|(log, _)| !known.created.contains(log));
    report.unknown_frames = unknown.map(|(_, frames)| frames).sum();
    Ok(report)
}

impl ExpectedContents {
    /// Records the logs of a frame, the logs that it creates and the segments that it replaces.
    fn note(&mut self, frame: &ScannedFrame) {
        for entry in &frame.head.entries {
            if entry.log.0 >= self.next_log {
                *self.beyond.entry(entry.log).or_default() += 1;
            }
        }
        if frame.head.kind != FrameKind::Control {
            return;
        }
        match Control::decode(&frame.body) {
            Some(Control::CreateLogs { first, count, .. }) => {
                self.created
                    .extend((first.0..first.0 + u64::from(count)).map(LogId));
            }
            Some(Control::Segments { removed, .. }) => self.replaced.extend(removed),
            _ => {}
        }
    }
}

/// Visits the frames of the stopped journal in a directory, segment by segment, from a position on.
pub fn dump(
    path: &Path,
    from: (u32, u32),
    mut visit: impl FnMut(DumpedFrame) -> bool,
) -> Result<(), OpenError> {
    let storage = Directory::open_existing(path)?;
    let mut going = true;
    for (name, id, _) in segments_of(&storage)? {
        if id.0 < from.0 || !going {
            continue;
        }
        let file = storage.open(&name)?;
        let Some(chain) = start_of(&*file, id, &name)? else {
            continue;
        };
        scan(&*file, id, 0, chain, |group| {
            for frame in dumped(&name, &group) {
                let wanted = id.0 > from.0 || frame.byte >= from.1;
                going = going && (!wanted || visit(frame));
            }
        })?;
    }
    Ok(())
}

fn segments_of(storage: &dyn Storage) -> io::Result<Vec<(String, SegmentId, SegmentKind)>> {
    let mut segments: Vec<_> = storage
        .list()?
        .into_iter()
        .filter_map(|name| match FileRole::of(&name) {
            Some(FileRole::Segment(kind, id)) => Some((name, id, kind)),
            _ => None,
        })
        .collect();
    segments.sort_by_key(|(_, id, _)| *id);
    Ok(segments)
}

fn look_at_checkpoint(storage: &Arc<dyn Storage>, known: &mut ExpectedContents) -> Result<u64, String> {
    let names = storage.list().map_err(|error| error.to_string())?;
    if !names.iter().any(|name| name == checkpoint::FILE) {
        return Err("it is not there: the next start can only know what the segments say".into());
    }
    let checkpoint = Checkpoint::open(Arc::clone(storage)).map_err(|error| error.to_string())?;
    let mut logs = 0;
    checkpoint
        .for_each_log(|_, _| logs += 1)
        .map_err(|error| error.to_string())?;
    let rows = (|| Ok((checkpoint.meta()?, checkpoint.arrivals()?, checkpoint.segments()?)))();
    let (meta, arrivals, segments) = rows.map_err(|error: CheckpointError| error.to_string())?;
    known.next_log = meta.next_log;
    known.position = meta.position;
    known.arrivals.extend(arrivals.unwrap_or_default());
    let removed = segments
        .iter()
        .filter(|(_, state)| *state == SegmentState::Removed);
    known.replaced.extend(removed.map(|(id, _)| *id));
    Ok(logs)
}

fn start_of(file: &dyn StorageFile, id: SegmentId, name: &str) -> Result<Option<Chain>, OpenError> {
    let mut block = vec![0; SEGMENT_HEAD_BYTES];
    let got = file.read_at(&mut block, 0)?;
    block.truncate(got);
    match SegmentHead::decode(&block) {
        HeadBlock::Newer(version) => Err(OpenError::Newer {
            file: name.to_owned(),
            version,
        }),
        HeadBlock::Head(head) if head.segment == id => Ok(Some(Chain {
            sequence: head.first_sequence.saturating_sub(1),
            checksum: head.previous,
        })),
        HeadBlock::Head(_) | HeadBlock::Nothing => Ok(None),
    }
}

fn check_segment(
    storage: &dyn Storage,
    file: &dyn StorageFile,
    name: &str,
    (id, kind): (SegmentId, SegmentKind),
    chain: Chain,
    known: &mut ExpectedContents,
) -> Result<(SegmentReport, Chain), OpenError> {
    let mut indexer = Indexer::new(id, chain);
    let (mut groups, mut frames) = (0, 0);
    let mut mark = Position::default();
    let mut not_whole = None;
    let end = scan(file, id, 0, chain, |group| {
        groups += 1;
        frames += group.frames.len() as u64;
        mark = mark.max(group.head.synced);
        group.frames.iter().for_each(|frame| known.note(frame));
        if !indexer.group(&group) {
            not_whole.get_or_insert(group.byte);
        }
    })?;
    indexer.end(&end);
    let (_, _, mut entries) = indexer.finish();
    sort(&mut entries);
    let role = FileRole::Sidecar(kind, id);
    let (sidecar, valid_bytes) = match storage.open(&role.name()) {
        Err(_) => (SidecarReport::Missing, None),
        Ok(index) => match compare(index, id, &entries) {
            Ok(valid_bytes) => (SidecarReport::Sound, Some(valid_bytes)),
            Err(why) => (SidecarReport::Damaged(why), None),
        },
    };
    if id == known.position.segment {
        mark = mark.max(known.position);
    }
    let is_damaged = match valid_bytes {
        Some(valid) => end.byte < valid,
        None => is_damaged_at(file, id, &end, mark)?,
    };
    let damage = is_damaged.then(|| format!("at byte {}: {}", end.byte, end.reason));
    let damage = damage.or_else(|| {
        not_whole.map(|byte| format!("a chunk of a batch in the group at byte {byte} is missing"))
    });
    let torn = damage.is_none() && !matches!(end.reason, EndReason::NoGroup | EndReason::Stranger);
    let bytes = u64::from(end.byte).saturating_sub(SEGMENT_HEAD_BYTES as u64);
    let report = SegmentReport {
        file: name.to_owned(),
        groups,
        frames,
        bytes,
        damage,
        torn,
        sidecar,
    };
    Ok((report, end.chain))
}

/// Returns true if the bad group at the end of a scan was durable: a whole group lies behind it, or a mark
/// says so, as for recovery. A write that was cut short leaves a bad group too, with nothing behind it.
fn is_damaged_at(file: &dyn StorageFile, id: SegmentId, end: &ScanEnd, mark: Position) -> io::Result<bool> {
    let sequence = end.chain.sequence;
    let later = LaterMark::find(file, id, end.byte, sequence, end.run)?;
    let at = Position {
        segment: id,
        byte: end.byte,
    };
    Ok(later.has_whole(end.byte, sequence) || later.mark().max(Some(mark)) > Some(at))
}

/// Compares a sidecar with its segment's contents; returns the valid bytes according to the sidecar.
fn compare(
    file: Arc<dyn StorageFile>,
    id: SegmentId,
    entries: &[super::sidecar::IndexEntry],
) -> Result<u32, String> {
    let text = |error: SidecarError| error.to_string();
    let summary = Sidecar::open(&*file, id).map_err(text)?.summary;
    let mut cursor = EntryCursor::new(file, summary);
    // A sorted segment's sidecar omits entries that were dead: every entry in it must be in the segment.
    while let Some(entry) = cursor.next().map_err(text)? {
        if entries
            .binary_search_by_key(&(entry.log, entry.base), |it| (it.log, it.base))
            .is_err()
        {
            return Err(format!(
                "{} at offset {} is not in the segment",
                entry.log, entry.base
            ));
        }
    }
    Ok(summary.valid_bytes)
}

fn dumped(name: &str, group: &ScannedGroup) -> Vec<DumpedFrame> {
    let frames = group.frames.iter().map(|frame| {
        let mut fields = Vec::new();
        match frame.head.kind {
            FrameKind::Chunk => fields.push(("chunk_bytes", frame.head.body_bytes.to_string())),
            FrameKind::Batch | FrameKind::Cut => {
                for entry in &frame.head.entries {
                    let which = match entry.records {
                        Selection::All => String::new(),
                        Selection::Range { first, count } => format!(" records {first}+{count}"),
                    };
                    let (log, base, span, epoch) = (entry.log.0, entry.base, entry.span, entry.epoch.0);
                    fields.push(("log", format!("{log} offsets {base}+{span} epoch {epoch}{which}")));
                }
                if let Some(table) = Table::decode(&frame.body).filter(|_| frame.head.kind == FrameKind::Cut)
                {
                    let places = table.places.iter().map(|it| format!("{}+{}", it.byte, it.bytes));
                    fields.push(("body_bytes", table.batch_bytes().to_string()));
                    fields.push(("chunks", places.collect::<Vec<_>>().join(" ")));
                } else {
                    fields.push(("body_bytes", frame.head.body_bytes.to_string()));
                }
                let date = frame.head.date;
                fields.push(("latest", dates::timestamp(date).to_string()));
                fields.extend(dates::appended(date).map(|at| ("appended", at.to_string())));
            }
            FrameKind::Control => match Control::decode(&frame.body) {
                Some(Control::State(change)) => {
                    fields.push(("state", change.space.0.to_string()));
                    fields.push(("key", change.key.escape_ascii().to_string()));
                    fields.push(match &change.change {
                        Change::Put(value) => ("put", value.escape_ascii().to_string()),
                        Change::Delta(value) => ("delta", value.escape_ascii().to_string()),
                        Change::Delete => ("delete", String::new()),
                    });
                }
                // The names that these two have had in dumps from the beginning.
                Some(Control::Started { epoch, boot, at }) => {
                    let text = format!("Run {{ epoch: {epoch:?}, boot: {boot:?}, at: {at} }}");
                    fields.push(("control", text));
                }
                Some(Control::StoppedCleanly { epoch }) => {
                    fields.push(("control", format!("RunEnd {{ epoch: {epoch:?} }}")));
                }
                Some(control) => fields.push(("control", format!("{control:?}"))),
                None => fields.push(("unknown", frame.body.escape_ascii().to_string())),
            },
        }
        DumpedFrame {
            file: name.to_owned(),
            byte: frame.byte,
            group: group.head.sequence,
            written_at: group.head.written_at,
            synced: group.head.synced.to_string(),
            bytes: frame.head.frame_bytes().min(usize_of(u32::MAX)),
            fields,
        }
    });
    frames.collect()
}
