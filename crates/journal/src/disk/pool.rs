//! Spare segments: files whose space is allocated ahead, so that a staged frame never meets a full disk.
//!
//! A spare durably has the name of the arrival segment that it will be, but no header yet: putting it into
//! use is one write. A recycled file keeps its blocks and its old groups, which are recognised by their
//! segment id.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use stafett_model::{Lock, LockGuard};

use super::codec::{u32_of, usize_of};
use super::position::SegmentId;
use super::segment::{FileRole, SEGMENT_HEAD_BYTES, SegmentKind};
use super::storage::{FILL_ALIGN, Storage, StorageFile};
use crate::disk_space::DiskSpace;

/// Bytes of a write group in large segments, unless a single append is larger.
const GROUP_BYTES_MAX: usize = 1 << 20;
const CHUNK_BYTES: usize = 256 << 10;
/// Fraction (1/16) of the reserved space that settlements leave to truncations and deletions.
const SETTLING_LEAVES: i64 = 16;
/// Fraction (1/32) of the reserved space that truncations and deletions leave to the engine.
const FREEING_LEAVES: i64 = 32;
/// Spares beyond the reserved ones: written while the next is being prepared.
const AHEAD: usize = 2;
/// Name of an unfinished spare. Not a segment's name: a remainder after a crash is removed.
const UNFINISHED: &str = "spare.seg.tmp";
/// Bytes of a spare written between two syncs, and per write while no append waits for a sync.
const FILL_BYTES: usize = 4 << 20;
/// Bytes per write while appends wait for syncs; their sync includes these bytes.
const FILL_BYTES_SHARED: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Pool {
    storage: Arc<dyn Storage>,
    is_append_only: bool,
    segment_bytes: u32,
    /// Reserved spares, for state, deletions and rewriting only: see [`Share`].
    kept_back: usize,
    /// No spare is made if the disk would have less than this left.
    free_bytes_min: u64,
    next_id: AtomicU32,
    spares: Lock<VecDeque<Spare>>,
    /// Bytes of all spares, reserved ones included, minus the charges of staged appends.
    space: AtomicI64,
    /// Bytes left in the segment being written, less one group.
    active_room: AtomicI64,
    shortage: DiskSpace,
}

/// Share of the reserved space that an append may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    Nothing,
    /// Half, and like the following the rest of the segment being written: state that frees nothing, such as
    /// commits.
    State,
    /// All but 1/16: settlements.
    Settling,
    /// All but 1/32: appends that only truncate and delete.
    Freeing,
    /// All: control frames of the engine, such as the end of a rewrite.
    Engine,
}

#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) id: SegmentId,
    pub(crate) file: Arc<dyn StorageFile>,
}

/// Reason why no spare could be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpareError {
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
            is_append_only: storage.is_append_only(),
            storage,
            segment_bytes,
            kept_back,
            free_bytes_min,
            next_id: AtomicU32::new(next_id),
            spares: Lock::default(),
            space: AtomicI64::new(0),
            active_room: AtomicI64::new(0),
            shortage: DiskSpace::default(),
        }
    }

    /// Returns true if segments are written once, without padding ([`Storage::is_append_only`]).
    pub(crate) fn is_append_only(&self) -> bool {
        self.is_append_only
    }

    /// Returns the signal that is set while missing spares cannot be made.
    pub(crate) fn shortage(&self) -> DiskSpace {
        self.shortage.clone()
    }

    /// Allocates a segment id.
    pub(crate) fn new_id(&self) -> SegmentId {
        SegmentId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the lowest unused segment id.
    pub(crate) fn next_id(&self) -> u32 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Returns the limit of a write group, unless a single append is larger: small segments should not stay
    /// half empty.
    pub(crate) fn group_bytes_max(&self) -> usize {
        GROUP_BYTES_MAX.min(usize_of(self.segment_bytes / 4))
    }

    /// Returns the bytes of a chunk of a cut body: a part of a group, so that other appends get into the
    /// groups between.
    pub(crate) fn chunk_bytes(&self) -> usize {
        CHUNK_BYTES.min(self.group_bytes_max() / 4)
    }

    /// Returns the largest space that an append can take of the spares. A segment is sealed when the next
    /// group does not fit, and wastes less than that group. So each append is charged its share of a wasted
    /// end as large as a group, and an append larger than a group also the end that it may waste itself.
    /// Space left in the segment being written is not counted.
    fn charge(&self, bytes: usize) -> i64 {
        let group = self.group_bytes_max();
        let capacity = usize_of(self.segment_bytes) - SEGMENT_HEAD_BYTES;
        let used = (bytes * capacity).div_ceil(capacity - group);
        let charge = if bytes > group { used + bytes } else { used };
        i64::try_from(charge).unwrap_or(i64::MAX)
    }

    /// Returns the space that must be left after an append has taken its own. Below 0, the staged appends fit
    /// into the segment being written.
    fn floor(&self, share: Share) -> i64 {
        let kept_back = self.capacity() * i64::try_from(self.kept_back).unwrap_or(0);
        let room = || self.active_room.load(Ordering::Acquire);
        match share {
            Share::Nothing => kept_back,
            Share::State => kept_back / 2 - room(),
            Share::Settling => kept_back / SETTLING_LEAVES - room(),
            Share::Freeing => kept_back / FREEING_LEAVES - room(),
            Share::Engine => -room(),
        }
    }

    /// Takes space for an append and returns the charge; `None` if space is short.
    pub(crate) fn take_space(&self, bytes: usize, share: Share) -> Option<i64> {
        let charge = self.charge(bytes);
        let taken = |space: &AtomicI64| {
            space.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |left| {
                left.checked_sub(charge).filter(|rest| *rest >= self.floor(share))
            })
        };
        // The spares may only be late: make some here before refusing a frame.
        let is_taken = taken(&self.space).is_ok()
            || (0..=self.kept_back + AHEAD)
                .any(|_| self.add_spare(self.free_bytes_min).is_ok() && taken(&self.space).is_ok());
        if !is_taken && self.shortage.set_short(true) {
            tracing::warn!("space is short: an append was refused");
        }
        is_taken.then_some(charge)
    }

    /// Returns true if there is space for an append.
    pub(crate) fn has_space(&self, bytes: usize, share: Share) -> bool {
        let taken = self.take_space(bytes, share);
        if let Some(charge) = taken {
            self.give_space(charge);
        }
        taken.is_some()
    }

    /// Takes the space of a segment, of which sealing one early may waste as much. False if only reserved
    /// spares are left.
    pub(crate) fn take_segment(&self) -> bool {
        let rest = |left: i64| left.checked_sub(self.capacity());
        let floor = self.floor(Share::Nothing);
        self.space
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |left| {
                rest(left).filter(|rest| *rest >= floor)
            })
            .is_ok()
    }

    /// Returns the space of a segment.
    pub(crate) fn give_segment(&self) {
        self.give_space(self.capacity());
    }

    /// Returns the unused part of a charge; the result is the charge for `bytes`.
    pub(crate) fn keep_space(&self, taken: i64, bytes: usize) -> i64 {
        let charge = self.charge(bytes);
        self.give_space(taken - charge);
        charge
    }

    /// Returns the charge of appends that are written, or will not be.
    pub(crate) fn give_space(&self, charge: i64) {
        self.space.fetch_add(charge, Ordering::AcqRel);
    }

    /// Sets the bytes left in the segment being written. Called before the charges of the written appends are
    /// returned.
    pub(crate) fn set_active_room(&self, left: u32) {
        let room = usize_of(left).saturating_sub(self.group_bytes_max());
        let room = i64::try_from(room).unwrap_or(0);
        self.active_room.store(room, Ordering::Release);
    }

    /// Makes a spare if there is none, even below the free-space limit.
    pub(crate) fn ensure_spare(&self) -> Result<(), SpareError> {
        if self.lock().is_empty() {
            self.add_spare(0)
        } else {
            Ok(())
        }
    }

    /// Deletes a spare if the disk is so full that an index, the checkpoint or a rewritten segment cannot be
    /// stored: without these, nothing can be freed. False if there is space, if it is the last spare, or if
    /// all are needed for staged appends.
    pub(crate) fn make_way(&self) -> bool {
        let is_full = self.is_disk_full();
        let mut spares = self.lock();
        if !is_full || spares.len() < 2 {
            return false;
        }
        let unpromised = |left: i64| left.checked_sub(self.capacity()).filter(|rest| *rest >= 0);
        let is_taken = self
            .space
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, unpromised)
            .is_ok();
        let Some(spare) = is_taken.then(|| spares.pop_back()).flatten() else {
            return false;
        };
        if let Err(error) = self.storage.remove(&name_of(spare.id)) {
            tracing::warn!(%error, "a spare segment cannot be given back to a full disk");
            spares.push_back(spare);
            drop(spares);
            self.give_space(self.capacity());
            return false;
        }
        tracing::warn!("the disk is full: a spare segment makes way for what frees space");
        true
    }

    /// Returns true if the disk has less space left than a segment.
    fn is_disk_full(&self) -> bool {
        let free = self.storage.free_bytes();
        free.is_ok_and(|free| free < u64::from(self.segment_bytes))
    }

    /// Takes the next spare, in the order of ids. If there is none, makes one even below the free-space
    /// limit.
    pub(crate) fn take(&self) -> Result<Spare, SpareError> {
        loop {
            let spare = self.lock().pop_front();
            if let Some(spare) = spare {
                self.give_space(-self.capacity());
                return Ok(spare);
            }
            self.add_spare(0)?;
        }
    }

    /// Makes missing spares quickly, by reservation only.
    pub(crate) fn refill(&self) -> Result<(), SpareError> {
        self.refill_with(|| self.add_spare(self.free_bytes_min))
    }

    /// Makes missing spares slowly, by writing them, with smaller writes while appends wait for syncs.
    pub(crate) fn refill_written(&self, is_sync_shared: impl Fn() -> bool) -> Result<(), SpareError> {
        if self.is_append_only {
            return self.refill();
        }
        self.refill_with(|| self.add_written_spare(&is_sync_shared))
    }

    fn refill_with(&self, add: impl Fn() -> Result<(), SpareError>) -> Result<(), SpareError> {
        while self.wants() {
            if let Err(error) = add() {
                if self.shortage.set_short(true) {
                    tracing::warn!(%error, "space is short: no segment can be made ahead");
                }
                return Err(error);
            }
        }
        if self.shortage.set_short(false) {
            tracing::info!("there is space again");
        }
        Ok(())
    }

    pub(crate) fn wants(&self) -> bool {
        self.lock().len() < self.kept_back + AHEAD
    }

    /// Takes over a file that is no longer needed as a spare. False if there are enough spares, if a backup
    /// shares the file, or if there is no space for a segment: then it is removed. A file that is long enough
    /// may have holes, if its length was stored and its blocks were not, or if a copy left them out.
    pub(crate) fn recycle(&self, role: FileRole) -> io::Result<bool> {
        let name = role.name();
        let file = self.storage.open(&name)?;
        let shared = file.is_shared()?;
        let spares = self.lock();
        let is_wanted = !shared && !self.is_append_only && spares.len() < self.kept_back + AHEAD;
        if !is_wanted || file.reserve(u64::from(self.segment_bytes)).is_err() {
            drop(spares);
            self.storage.remove(&name)?;
            return Ok(false);
        }
        let id = self.new_id();
        self.storage.rename(&name, &name_of(id))?;
        self.add(spares, Spare { id, file })?;
        Ok(true)
    }

    /// Makes a spare by reserving its space only, unless the disk would have less than `free_bytes_min` bytes
    /// left.
    fn add_spare(&self, free_bytes_min: u64) -> Result<(), SpareError> {
        self.check_free(free_bytes_min)?;
        // One at a time, so that the ids in the queue ascend.
        let spares = self.lock();
        let id = self.new_id();
        let file = self.storage.create(&name_of(id))?;
        let made = file
            .reserve(u64::from(self.segment_bytes))
            .and_then(|()| if self.is_append_only { Ok(()) } else { file.sync() });
        if let Err(error) = made {
            let _ = self.storage.remove(&name_of(id));
            return Err(error.into());
        }
        Ok(self.add(spares, Spare { id, file })?)
    }

    /// Makes a spare by writing it: overwriting allocated and written blocks needs no metadata update, which
    /// makes syncs fast and keeps writes from waiting for one.
    fn add_written_spare(&self, is_sync_shared: impl Fn() -> bool) -> Result<(), SpareError> {
        self.check_free(self.free_bytes_min)?;
        let _ = self.storage.remove(UNFINISHED);
        let file = self.storage.create(UNFINISHED)?;
        let written = file
            .reserve(u64::from(self.segment_bytes))
            .and_then(|()| self.fill(&*file, is_sync_shared));
        if let Err(error) = written {
            let _ = self.storage.remove(UNFINISHED);
            return Err(error.into());
        }
        let spares = self.lock();
        let id = self.new_id();
        self.storage.rename(UNFINISHED, &name_of(id))?;
        Ok(self.add(spares, Spare { id, file })?)
    }

    /// Adds a file with its final name to the spares, once the name is durable. If it cannot be made durable,
    /// the file is removed: it would take space until the next start. An append-only storage keeps written
    /// bytes only: a spare is nothing to it yet.
    fn add(&self, mut spares: LockGuard<'_, VecDeque<Spare>>, spare: Spare) -> io::Result<()> {
        if !self.is_append_only
            && let Err(error) = self.storage.sync_names()
        {
            let _ = self.storage.remove(&name_of(spare.id));
            return Err(error);
        }
        spares.push_back(spare);
        drop(spares);
        self.give_space(self.capacity());
        Ok(())
    }

    /// Fills a file with zeros in pieces, so that no sync of an append waits for much of it. The pieces are
    /// not smaller, since each is a disk request, and each sync several.
    fn fill(&self, file: &dyn StorageFile, is_sync_shared: impl Fn() -> bool) -> io::Result<()> {
        let whole = usize_of(self.segment_bytes).next_multiple_of(FILL_ALIGN);
        for from in (0..whole).step_by(FILL_BYTES) {
            let to = whole.min(from + FILL_BYTES);
            let mut at = from;
            while at < to {
                let piece = if is_sync_shared() {
                    FILL_BYTES_SHARED
                } else {
                    FILL_BYTES
                };
                let bytes = piece.min(to - at);
                file.fill(at as u64, bytes)?;
                at += bytes;
            }
            file.sync()?;
        }
        Ok(())
    }

    /// Returns the number of spares.
    pub(crate) fn spares(&self) -> usize {
        self.lock().len()
    }

    /// Checks that the disk would have `free_bytes_min` bytes left after one more segment.
    fn check_free(&self, free_bytes_min: u64) -> Result<(), SpareError> {
        let free = self.storage.free_bytes()?;
        let wanted = free_bytes_min + u64::from(self.segment_bytes);
        if free < wanted {
            Err(SpareError::LowWater { free, wanted })
        } else {
            Ok(())
        }
    }

    /// Returns the bytes of a segment that frames can use.
    fn capacity(&self) -> i64 {
        i64::from(self.segment_bytes) - i64::from(u32_of(SEGMENT_HEAD_BYTES))
    }

    fn lock(&self) -> LockGuard<'_, VecDeque<Spare>> {
        self.spares.lock()
    }
}

fn name_of(spare: SegmentId) -> String {
    FileRole::Segment(SegmentKind::Arrival, spare).name()
}
