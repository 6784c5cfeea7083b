//! Segments to come: files whose space is taken ahead, so that a staged frame never meets a full disk.
//!
//! A spare carries the name of the arrival segment that it will be, durably, but no header yet: taking it into use is
//! one write. A recycled file keeps its blocks and the groups of its former life, whose segment id gives them away.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::codec::u32_of;
use super::position::SegmentId;
use super::segment::{FileRole, SEGMENT_HEAD_BYTES, SegmentKind};
use super::storage::{Storage, StorageFile};

/// Spares beyond those that are kept back: what is written while the next is being prepared.
const AHEAD: usize = 2;
/// A spare in the making. The name is not a segment's: what is left of it after a crash is removed.
const UNFINISHED: &str = "spare.seg.tmp";
/// Bytes of a spare that are written and synced at once.
const FILL_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Pool {
    storage: Arc<dyn Storage>,
    segment_bytes: u32,
    /// Spares that only state, deletions and rewriting may use.
    kept_back: usize,
    /// Growth stops when the disk has less than this left.
    free_bytes_min: u64,
    next_id: AtomicU32,
    spares: Mutex<VecDeque<Spare>>,
    /// Bytes that can still be staged before the spares run out. What is kept back counts.
    space: AtomicI64,
}

#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) id: SegmentId,
    pub(crate) file: Arc<dyn StorageFile>,
}

/// Why no spare could be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoSpare {
    #[error("the disk has {free} bytes left, less than the {wanted} that have to stay free")]
    LowWater { free: u64, wanted: u64 },
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Pool {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        segment_bytes: u32,
        kept_back: usize,
        free_bytes_min: u64,
        next_id: u32,
    ) -> Self {
        Self {
            storage,
            segment_bytes,
            kept_back,
            free_bytes_min,
            next_id: AtomicU32::new(next_id),
            spares: Mutex::default(),
            space: AtomicI64::new(0),
        }
    }

    /// An id that no segment has had.
    pub(crate) fn new_id(&self) -> SegmentId {
        SegmentId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// The lowest id that no segment has had.
    pub(crate) fn next_id(&self) -> u32 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Takes space for a frame. Without `kept_back`, some spares stay untouched.
    pub(crate) fn take_space(&self, bytes: usize, kept_back: bool) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let floor = if kept_back {
            0
        } else {
            self.capacity() * i64::try_from(self.kept_back).unwrap_or(0)
        };
        let taken = |space: &AtomicI64| {
            space.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |left| {
                left.checked_sub(bytes).filter(|rest| *rest >= floor)
            })
        };
        // The spares may only be late: make some here before a frame is refused.
        taken(&self.space).is_ok()
            || (0..=self.kept_back + AHEAD).any(|_| self.add_spare().is_ok() && taken(&self.space).is_ok())
    }

    /// Gives back space that was taken and not used, or notes (negative) that some was lost.
    pub(crate) fn give_space(&self, bytes: i64) {
        self.space.fetch_add(bytes, Ordering::AcqRel);
    }

    /// The next spare, in the order of their ids.
    pub(crate) fn take(&self) -> Result<Spare, NoSpare> {
        loop {
            if let Some(spare) = self.lock().pop_front() {
                return Ok(spare);
            }
            self.add_spare()?;
        }
    }

    /// Brings the spares up to their number at once.
    pub(crate) fn refill(&self) -> Result<(), NoSpare> {
        while self.wants() {
            self.add_spare()?;
        }
        Ok(())
    }

    /// Brings the spares up to their number in peace.
    pub(crate) fn refill_written(&self) -> Result<(), NoSpare> {
        while self.wants() {
            self.add_written_spare()?;
        }
        Ok(())
    }

    pub(crate) fn wants(&self) -> bool {
        self.lock().len() < self.kept_back + AHEAD
    }

    /// Takes over a file that holds nothing that is needed any more. False if there are spares enough, or if a backup
    /// shares the file: then it is removed.
    pub(crate) fn recycle(&self, role: FileRole) -> io::Result<bool> {
        let name = role.name();
        let file = self.storage.open(&name)?;
        let shared = file.is_shared()?;
        let mut spares = self.lock();
        if shared || spares.len() >= self.kept_back + AHEAD {
            drop(spares);
            self.storage.remove(&name)?;
            return Ok(false);
        }
        if file.bytes()? < u64::from(self.segment_bytes) {
            file.reserve(u64::from(self.segment_bytes))?;
        }
        let id = self.new_id();
        self.storage
            .rename(&name, &FileRole::Segment(SegmentKind::Arrival, id).name())?;
        self.storage.sync_names()?;
        spares.push_back(Spare { id, file });
        drop(spares);
        self.give_space(self.capacity());
        Ok(true)
    }

    /// Makes a spare at once, by reserving its space alone.
    fn add_spare(&self) -> Result<(), NoSpare> {
        self.check_free()?;
        // One at a time, so that the ids in the queue rise.
        let mut spares = self.lock();
        let id = self.new_id();
        let name = FileRole::Segment(SegmentKind::Arrival, id).name();
        let file = self.storage.create(&name)?;
        let made = file
            .reserve(u64::from(self.segment_bytes))
            .and_then(|()| file.sync());
        if let Err(error) = made.and_then(|()| self.storage.sync_names()) {
            let _ = self.storage.remove(&name);
            return Err(error.into());
        }
        spares.push_back(Spare { id, file });
        drop(spares);
        self.give_space(self.capacity());
        Ok(())
    }

    /// Makes a spare in peace, by writing it: a file system need not note anything when it is written again, which is
    /// what makes a sync fast, and keeps writes from waiting for one.
    fn add_written_spare(&self) -> Result<(), NoSpare> {
        self.check_free()?;
        let _ = self.storage.remove(UNFINISHED);
        let file = self.storage.create(UNFINISHED)?;
        let written = file
            .reserve(u64::from(self.segment_bytes))
            .and_then(|()| self.fill(&*file));
        if let Err(error) = written {
            let _ = self.storage.remove(UNFINISHED);
            return Err(error.into());
        }
        let mut spares = self.lock();
        let id = self.new_id();
        self.storage
            .rename(UNFINISHED, &FileRole::Segment(SegmentKind::Arrival, id).name())?;
        self.storage.sync_names()?;
        spares.push_back(Spare { id, file });
        drop(spares);
        self.give_space(self.capacity());
        Ok(())
    }

    /// Writes zeros all over a file, a piece at a time, so that nobody's sync waits for much of it.
    fn fill(&self, file: &dyn StorageFile) -> io::Result<()> {
        let zeros = vec![0; FILL_BYTES];
        let mut at = 0;
        while at < u64::from(self.segment_bytes) {
            let left = u64::from(self.segment_bytes) - at;
            let step = usize::try_from(left).map_or(FILL_BYTES, |left| left.min(FILL_BYTES));
            file.write_at(&mut [IoSlice::new(zeros.get(..step).unwrap_or_default())], at)?;
            file.sync()?;
            at += step as u64;
        }
        Ok(())
    }

    fn check_free(&self) -> Result<(), NoSpare> {
        let free = self.storage.free_bytes()?;
        let wanted = self.free_bytes_min + u64::from(self.segment_bytes);
        if free < wanted {
            Err(NoSpare::LowWater { free, wanted })
        } else {
            Ok(())
        }
    }

    /// Bytes of a segment that frames can use.
    fn capacity(&self) -> i64 {
        i64::from(self.segment_bytes) - i64::from(u32_of(SEGMENT_HEAD_BYTES))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Spare>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
