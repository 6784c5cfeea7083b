//! Output of a merge: sorted segments with their sidecars, written group by group at a bounded rate.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use stafett_model::batch::PLACEMENT_BYTES;
use stafett_model::checksum::Crc32c;

use super::super::codec::{u32_of, usize_of};
use super::super::engine::Engine;
use super::super::frame::{FrameKind, Head};
use super::super::group::{GROUP_HEAD_BYTES, GroupHead};
use super::super::index::{count_runs, sort};
use super::super::position::{Position, SegmentId};
use super::super::segment::{FileRole, SEGMENT_HEAD_BYTES, Segment, SegmentHead, SegmentKind};
use super::super::sidecar::{self, IndexEntry, Sidecar, SidecarError, Summary, rows_of};
use super::super::storage::{StorageFile, is_full};
use super::merge::{MergeError, MergedSegment};

/// Bytes of a group of a sorted segment.
const GROUP_BYTES: usize = 1 << 20;

pub(super) struct Output<'a> {
    core: &'a Engine,
    active: Option<OutputSegment>,
    /// Full segments with their sidecars.
    filled: Vec<SegmentId>,
    budget: Budget,
}

struct OutputSegment {
    id: SegmentId,
    file: Arc<dyn StorageFile>,
    at: u32,
    group: BytesMut,
    frames: u32,
    checksums: Crc32c,
    sequence: u64,
    previous: u32,
    index: Vec<IndexEntry>,
}

impl<'a> Output<'a> {
    pub(super) fn new(core: &'a Engine) -> Self {
        Self {
            core,
            active: None,
            filled: Vec::new(),
            budget: Budget::new(core),
        }
    }

    /// Waits until the bytes that were read, for output of which little may be left, are within the rate.
    pub(super) fn on_read(&mut self, bytes: u64) -> Result<(), MergeError> {
        self.budget.spend_read(self.core, bytes)
    }

    /// Adds a verified batch.
    pub(super) fn add(&mut self, head: &Head, body: &[u8]) -> Result<(), MergeError> {
        self.make_room(head.frame_bytes())?;
        let writing = self.active.as_mut().ok_or(MergeError::Stopped)?;
        writing.add(head, body);
        Ok(())
    }

    /// Writes the group or begins a new segment if the next frame requires it.
    fn make_room(&mut self, bytes: usize) -> Result<(), MergeError> {
        if let Some(writing) = &mut self.active {
            if writing.group.len() + bytes > GROUP_BYTES && writing.frames > 0 {
                let written = writing.write_group(self.core)?;
                // Synced group by group: an append waiting for a sync of the journal would otherwise wait for
                // all of it.
                writing.file.sync_ahead()?;
                self.budget.spend(self.core, written)?;
            }
            let fits = usize_of(writing.at) + writing.group.len() + bytes
                <= usize_of(self.core.settings.segment_bytes);
            if fits {
                return Ok(());
            }
        }
        self.fill_up()?;
        self.active = Some(OutputSegment::start(self.core)?);
        Ok(())
    }

    fn fill_up(&mut self) -> Result<(), MergeError> {
        let Some(mut writing) = self.active.take() else {
            return Ok(());
        };
        let id = writing.id;
        self.filled.push(id);
        writing.write_group(self.core)?;
        let runs = count_runs(&writing.index);
        sort(&mut writing.index);
        writing.write_head(self.core)?;
        // Reserved space that is not used is freed, and not synced.
        writing.file.set_bytes(writing.at.into())?;
        writing.file.sync()?;
        let latest = writing.index.iter().map(|entry| entry.date).max();
        let summary = Summary {
            segment: id,
            valid_bytes: writing.at,
            rows: 0,
            entries: 0,
            first_sequence: 1,
            last_sequence: writing.sequence,
            last_checksum: writing.previous,
            date: latest.unwrap_or(i64::MIN),
            control_bytes: 0,
            runs,
        };
        let rows = rows_of(&writing.index);
        let name = FileRole::Sidecar(SegmentKind::Sorted, id).name();
        sidecar::write(&*self.core.storage, &name, summary, &rows, &writing.index)?;
        Ok(())
    }

    /// Writes the rest; returns the new segments and their logs.
    pub(super) fn finish(&mut self) -> Result<Vec<MergedSegment>, MergeError> {
        self.fill_up()?;
        self.core.storage.sync_names()?;
        let mut merged = Vec::new();
        for id in &self.filled {
            let segment = Segment {
                id: *id,
                kind: SegmentKind::Sorted,
            };
            let file = self.core.files.get(segment.sidecar_role())?;
            let mut logs = Vec::new();
            Sidecar::open(&*file, *id)
                .and_then(|sidecar| sidecar.for_each_row(|row| logs.push((row.log, row.first, row.bytes))))
                .map_err(|why| match why {
                    SidecarError::Io(error) => MergeError::Io(error),
                    SidecarError::Damaged(_) | SidecarError::Newer(_) => MergeError::Damaged {
                        segment: *id,
                        byte: 0,
                    },
                })?;
            merged.push(MergedSegment { segment, logs });
        }
        Ok(merged)
    }

    /// Removes everything that was written.
    pub(super) fn remove(&self) {
        let ids = self
            .filled
            .iter()
            .copied()
            .chain(self.active.as_ref().map(|it| it.id));
        for id in ids {
            remove(self.core, id);
        }
    }
}

/// Removes a sorted segment that is not in force.
pub(super) fn remove(core: &Engine, id: SegmentId) {
    for role in [
        FileRole::Segment(SegmentKind::Sorted, id),
        FileRole::Sidecar(SegmentKind::Sorted, id),
    ] {
        core.files.forget(role);
        // Missing files are ignored; a file that cannot be removed is removed at the next start.
        let _ = core.storage.remove(&role.name());
    }
}

impl OutputSegment {
    fn start(core: &Engine) -> io::Result<Self> {
        let id = core.pool.new_id();
        let name = FileRole::Segment(SegmentKind::Sorted, id).name();
        let mut file = core.storage.create(&name)?;
        if let Err(error) = file.reserve(core.settings.segment_bytes.into()) {
            let _ = core.storage.remove(&name);
            if !is_full(&error) {
                return Err(error);
            }
            // Less than a segment may be left to write. A new file: part of the space may be reserved.
            file = core.storage.create(&name)?;
        }
        Ok(Self {
            id,
            file,
            at: u32_of(SEGMENT_HEAD_BYTES),
            group: BytesMut::zeroed(GROUP_HEAD_BYTES),
            frames: 0,
            checksums: Crc32c::new(),
            sequence: 0,
            previous: 0,
            index: Vec::new(),
        })
    }

    /// Appends a batch to the group, with the placement that its head determines.
    fn add(&mut self, head: &Head, body: &[u8]) {
        debug_assert_eq!(
            head.kind,
            FrameKind::Batch,
            "batches lie whole in sorted segments"
        );
        let start = self.group.len();
        let byte = self.at + u32_of(start);
        let checksum = head.encode(&mut self.group);
        self.group.extend_from_slice(&head.placement());
        self.group
            .extend_from_slice(body.get(PLACEMENT_BYTES..).unwrap_or_default());
        self.group.resize(start + head.frame_bytes(), 0);
        self.checksums.update(&checksum.to_le_bytes());
        self.frames += 1;
        let entries = head.entries.iter();
        self.index
            .extend(entries.map(|entry| IndexEntry::of(head, entry, body, byte)));
    }

    /// Writes the segment's header, once its index is sorted.
    fn write_head(&self, core: &Engine) -> io::Result<()> {
        let place = |entry: Option<&IndexEntry>| entry.map_or_else(<_>::default, |it| (it.log, it.base));
        let head = SegmentHead {
            segment: self.id,
            kind: SegmentKind::Sorted,
            first_sequence: 1,
            previous: 0,
            created_at: core.now_ms(),
            first: place(self.index.first()),
            last: place(self.index.last()),
        };
        self.file.write_at(&mut [IoSlice::new(&head.encode())], 0)
    }

    fn write_group(&mut self, core: &Engine) -> io::Result<u64> {
        if self.frames == 0 {
            return Ok(0);
        }
        let head = GroupHead {
            segment: self.id,
            bytes: u32_of(self.group.len()),
            run: 0,
            sequence: self.sequence + 1,
            previous: self.previous,
            frames: self.frames,
            synced: Position::default(),
            written_at: core.now_ms(),
            frames_checksum: self.checksums.finish(),
        };
        let checksum = head.encode(&mut self.group);
        self.file
            .write_at(&mut [IoSlice::new(&self.group)], self.at.into())?;
        self.at += head.bytes;
        (self.sequence, self.previous) = (head.sequence, checksum);
        self.group.truncate(GROUP_HEAD_BYTES);
        self.frames = 0;
        self.checksums = Crc32c::new();
        core.metrics.rewritten_bytes.inc_by(head.bytes.into());
        Ok(head.bytes.into())
    }
}

/// Bytes read count as this part (1/4) of bytes written: they come from fewer places and hold up no sync.
const READ_COST: u64 = 4;
/// Shorter pauses are put together.
const PAUSE_MIN: Duration = Duration::from_millis(2);

/// Rate limit of rewriting.
pub(super) struct Budget {
    started: Instant,
    bytes: u64,
    bytes_per_second: u64,
}

impl Budget {
    pub(super) fn new(core: &Engine) -> Self {
        let bytes_per_second = core.settings.rewrite_bytes_per_second.max(1);
        Self {
            started: Instant::now(),
            bytes: 0,
            bytes_per_second,
        }
    }

    /// Waits until the written bytes are within the rate, or the journal is closed.
    pub(super) fn spend(&mut self, core: &Engine, bytes: u64) -> Result<(), MergeError> {
        self.bytes += bytes;
        let due = Duration::from_secs_f64(self.bytes as f64 / self.bytes_per_second as f64);
        let early = due.saturating_sub(self.started.elapsed());
        let is_open = if early < PAUSE_MIN {
            !core.rewriting.is_closed()
        } else {
            core.rewriting.wait(early)
        };
        if is_open && !core.has_failed() {
            Ok(())
        } else {
            Err(MergeError::Stopped)
        }
    }

    /// Waits like [`Self::spend`] for bytes that were read.
    pub(super) fn spend_read(&mut self, core: &Engine, bytes: u64) -> Result<(), MergeError> {
        self.spend(core, bytes / READ_COST)
    }
}
