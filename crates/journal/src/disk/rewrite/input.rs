//! Input of a merge: a segment's file, its index, and the parts of its frames that belong to it.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use stafett_model::{LogId, Offset};

use super::super::codec::usize_of;
use super::super::engine::Engine;
use super::super::frame::FrameEntry;
use super::super::position::SegmentId;
use super::super::segment::{HeadBlock, SEGMENT_HEAD_BYTES, Segment, SegmentHead, SegmentKind};
use super::super::sidecar::{EntryCursor, IndexEntry, Sidecar, SidecarError, Summary};
use super::super::storage::{StorageFile, read_exact_at};
use super::merge::MergeError;

/// Place of a batch in the order of all logs.
type BatchKey = (LogId, Offset);

pub(super) struct Input {
    /// This reference keeps its file from being recycled.
    segment: Arc<Segment>,
    file: Arc<dyn StorageFile>,
    bytes: u64,
    index: Arc<dyn StorageFile>,
    summary: Summary,
    /// For a sorted segment: the range that it was made for. Entries outside may lie in another segment.
    made_for: Option<RangeInclusive<BatchKey>>,
}

/// Entries of an input, in the order of logs and offsets.
pub(super) struct Entries {
    segment: SegmentId,
    cursor: EntryCursor,
}

/// Liveness check for parts of frames; fast for consecutive parts of one log.
pub(crate) struct LivenessCheck<'a> {
    core: &'a Engine,
    current: Option<(LogId, Option<Offset>)>,
}

impl Input {
    pub(super) fn open(core: &Engine, id: SegmentId) -> Result<Self, MergeError> {
        let damaged = || MergeError::Damaged { segment: id, byte: 0 };
        let unreadable = |error| unreadable(id, error);
        let segment = core.segments.get(id).ok_or(MergeError::Stopped)?;
        let file = core.files.get(segment.role()).map_err(unreadable)?;
        let index = core.files.get(segment.sidecar_role()).map_err(unreadable)?;
        let summary = Sidecar::open(&*index, id)
            .map_err(|error| of_sidecar(id, error))?
            .summary;
        let made_for = match segment.kind {
            SegmentKind::Arrival => None,
            SegmentKind::Sorted => {
                let mut block = vec![0; SEGMENT_HEAD_BYTES];
                read_exact_at(&*file, &mut block, 0).map_err(unreadable)?;
                let HeadBlock::Head(head) = SegmentHead::decode(&block) else {
                    return Err(damaged());
                };
                Some(head.first..=head.last)
            }
        };
        Ok(Self {
            segment,
            bytes: file.bytes().map_err(unreadable)?,
            file,
            index,
            summary,
            made_for,
        })
    }

    pub(super) fn id(&self) -> SegmentId {
        self.segment.id
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_sorted(&self) -> bool {
        self.made_for.is_some()
    }

    pub(super) fn file(&self) -> &dyn StorageFile {
        &*self.file
    }

    pub(super) fn damaged(&self, byte: u32) -> MergeError {
        MergeError::Damaged {
            segment: self.id(),
            byte,
        }
    }

    pub(super) fn unreadable(&self, error: io::Error) -> MergeError {
        unreadable(self.id(), error)
    }

    /// Returns true if a part of one of its frames belongs here, not to a copy of the frame.
    pub(super) fn lists(&self, entry: &FrameEntry) -> bool {
        let made_for = self.made_for.as_ref();
        made_for.is_none_or(|places| places.contains(&(entry.log, entry.base)))
    }

    pub(super) fn entries(&self) -> Entries {
        Entries {
            segment: self.id(),
            cursor: EntryCursor::new(Arc::clone(&self.index), self.summary),
        }
    }

    /// Visits every entry.
    pub(super) fn each(&self, mut visit: impl FnMut(&IndexEntry)) -> Result<(), MergeError> {
        let mut entries = self.entries();
        while let Some(entry) = entries.next()? {
            visit(&entry);
        }
        Ok(())
    }

    /// Reads `bytes` bytes into the front of `buffer`, which grows if necessary.
    pub(super) fn read<'b>(
        &self,
        byte: u32,
        bytes: u32,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], MergeError> {
        // Memory is allocated only after the file is known to contain the range of a possibly damaged length.
        if self.bytes < u64::from(byte) + u64::from(bytes) {
            return Err(self.damaged(byte));
        }
        let bytes = usize_of(bytes);
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        let wanted = buffer.get_mut(..bytes).unwrap_or_default();
        read_exact_at(&*self.file, wanted, byte.into()).map_err(|error| self.unreadable(error))?;
        Ok(wanted)
    }
}

impl Entries {
    pub(super) fn next(&mut self) -> Result<Option<IndexEntry>, MergeError> {
        let segment = self.segment;
        self.cursor.next().map_err(|error| of_sidecar(segment, error))
    }
}

fn unreadable(segment: SegmentId, error: io::Error) -> MergeError {
    MergeError::Unreadable { segment, error }
}

fn of_sidecar(segment: SegmentId, error: SidecarError) -> MergeError {
    match error {
        SidecarError::Io(error) => unreadable(segment, error),
        SidecarError::Damaged(_) | SidecarError::Newer(_) => MergeError::Damaged { segment, byte: 0 },
    }
}

impl<'a> LivenessCheck<'a> {
    pub(crate) fn new(core: &'a Engine) -> Self {
        Self { core, current: None }
    }

    /// Returns true if a part of a log that ends at `end` is still readable.
    pub(crate) fn is(&mut self, log: LogId, end: Offset) -> bool {
        let start = match self.current {
            Some((known, start)) if known == log => start,
            _ => {
                let start = self.core.logs.get(log).map(|log| log.lock().start);
                self.current = Some((log, start));
                start
            }
        };
        start.is_some_and(|start| end > start)
    }
}

#[cfg(test)]
mod tests {
    use stafett_model::Epoch;

    use super::*;
    use crate::contract::Selection;
    use crate::simulated::SimulatedDisk;

    fn input(made_for: Option<RangeInclusive<BatchKey>>) -> Input {
        let file = SimulatedDisk::new().storage().create("segment").unwrap();
        let summary = Summary {
            segment: SegmentId(7),
            valid_bytes: 0,
            rows: 0,
            entries: 0,
            first_sequence: 1,
            last_sequence: 1,
            last_checksum: 0,
            date: 0,
            control_bytes: 0,
            runs: 0,
        };
        let kind = SegmentKind::Sorted;
        Input {
            segment: Arc::new(Segment {
                id: SegmentId(7),
                kind,
            }),
            bytes: 0,
            index: Arc::clone(&file),
            file,
            summary,
            made_for,
        }
    }

    fn entry(log: u64, base: u64) -> FrameEntry {
        FrameEntry {
            log: LogId(log),
            base: Offset(base),
            span: 1,
            epoch: Epoch(1),
            records: Selection::All,
        }
    }

    /// Old versions copied a frame with all of its entries into each segment that held one of its logs.
    #[test]
    fn what_an_old_segment_was_not_made_for_lies_in_another() {
        let place = |log, base| (LogId(log), Offset(base));
        let old = input(Some(place(3, 10)..=place(5, 2)));
        let listed = |log, base| old.lists(&entry(log, base));
        assert!(listed(3, 10) && listed(4, 0) && listed(4, u64::MAX) && listed(5, 2));
        assert!(!listed(3, 9) && !listed(5, 3) && !listed(2, 99) && !listed(6, 0));
        assert!(input(None).lists(&entry(6, 0)), "an arrival segment has all");
    }

    #[test]
    fn a_length_that_the_file_does_not_have_is_damage_and_takes_no_memory() {
        let mut buffer = Vec::new();
        let read = input(None).read(4096, u32::MAX, &mut buffer);
        assert!(matches!(read, Err(MergeError::Damaged { byte: 4096, .. })));
        assert_eq!(buffer.capacity(), 0);
    }
}
