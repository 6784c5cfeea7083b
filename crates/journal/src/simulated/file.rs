//! A simulated file: the data that programs see, the durable data, and the unsynced changes.

use super::random::Random;

/// Unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;
/// Unit of allocation.
const BLOCK_BYTES: u64 = 4096;

#[derive(Debug, Clone, Default)]
pub(super) struct FileContent {
    seen: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<UnsyncedChange>,
    /// True for blocks with allocated space.
    blocks: Vec<bool>,
}

/// An unsynced change.
#[derive(Debug, Clone)]
struct UnsyncedChange {
    /// First changed sector; `sectors` are the sectors after the change.
    first: usize,
    sectors: Vec<u8>,
    /// Length of the file after the change.
    length: usize,
}

impl FileContent {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.seen
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.blocks.iter().filter(|taken| **taken).count() as u64 * BLOCK_BYTES
    }

    /// Returns the bytes of space that writing `from..to` takes.
    pub(super) fn needs(&self, from: u64, to: u64) -> u64 {
        let missing = blocks(from, to).filter(|block| !self.blocks.get(*block).copied().unwrap_or(false));
        missing.count() as u64 * BLOCK_BYTES
    }

    pub(super) fn write(&mut self, at: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (at, end) = (length_of(at), length_of(at) + bytes.len());
        self.take(at as u64, end as u64);
        if self.seen.len() < end {
            self.seen.resize(end, 0);
        }
        if let Some(place) = self.seen.get_mut(at..end) {
            place.copy_from_slice(bytes);
        }
        let first = at / SECTOR_BYTES;
        let last = end.div_ceil(SECTOR_BYTES) * SECTOR_BYTES;
        let sectors = self
            .seen
            .get(first * SECTOR_BYTES..last.min(self.seen.len()))
            .unwrap_or_default()
            .to_vec();
        self.unsynced.push(UnsyncedChange {
            first,
            sectors,
            length: self.seen.len(),
        });
    }

    pub(super) fn set_bytes(&mut self, bytes: u64) {
        self.seen.resize(length_of(bytes), 0);
        self.blocks.truncate(length_of(bytes.div_ceil(BLOCK_BYTES)));
        self.unsynced.push(UnsyncedChange {
            first: 0,
            sectors: Vec::new(),
            length: self.seen.len(),
        });
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.take(0, bytes);
        if self.seen.len() < length_of(bytes) {
            self.set_bytes(bytes);
        }
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.unsynced) {
            change.apply(&mut self.durable, |_| true);
            self.durable.resize(change.length, 0);
        }
    }

    /// Makes a part of the unsynced data durable; the rest is never tried again.
    pub(super) fn fail_to_sync(&mut self, random: &mut Random) {
        let length = self.seen.len();
        self.settle(random);
        // The length is metadata, which the file system journals.
        self.durable.resize(length, 0);
    }

    /// Resets the visible data to the durable data and the changes since the last sync.
    pub(super) fn forget_unsynced(&mut self) {
        self.seen.clone_from(&self.durable);
        for change in &self.unsynced {
            change.apply(&mut self.seen, |_| true);
            self.seen.resize(change.length, 0);
        }
    }

    /// Keeps a part of the unsynced data, as a loss of power does.
    pub(super) fn lose_power(&mut self, random: &mut Random) {
        self.settle(random);
        self.seen.clone_from(&self.durable);
        self.blocks
            .truncate(self.seen.len().div_ceil(length_of(BLOCK_BYTES)));
    }

    pub(super) fn flip_bit(&mut self, bit: u64) -> bool {
        let at = length_of(bit / 8);
        let mask = 1_u8 << (bit % 8);
        if let Some(byte) = self.durable.get_mut(at) {
            *byte ^= mask;
        }
        self.seen.get_mut(at).map(|byte| *byte ^= mask).is_some()
    }

    /// Makes a part of the unsynced data durable and drops the rest.
    fn settle(&mut self, random: &mut Random) {
        let unsynced = std::mem::take(&mut self.unsynced);
        let torn = random.below(2) == 0;
        let kept = random.survivors(unsynced.len());
        let mut length = self.durable.len();
        for (change, kept) in unsynced.iter().zip(kept) {
            // A change that is not kept as a whole may be kept in part.
            if kept || torn {
                change.apply(&mut self.durable, |_| kept || random.below(2) == 0);
            }
            if kept || (torn && random.below(2) == 0) {
                length = change.length;
            }
        }
        self.durable.resize(length, 0);
    }

    fn take(&mut self, from: u64, to: u64) {
        for block in blocks(from, to) {
            if self.blocks.len() <= block {
                self.blocks.resize(block + 1, false);
            }
            if let Some(taken) = self.blocks.get_mut(block) {
                *taken = true;
            }
        }
    }
}

impl UnsyncedChange {
    /// Copies the sectors that `keep` accepts into `durable`.
    fn apply(&self, durable: &mut Vec<u8>, mut keep: impl FnMut(usize) -> bool) {
        for (number, sector) in (self.first..).zip(self.sectors.chunks(SECTOR_BYTES)) {
            if !keep(number) {
                continue;
            }
            let at = number * SECTOR_BYTES;
            if durable.len() < at + sector.len() {
                durable.resize(at + sector.len(), 0);
            }
            if let Some(place) = durable.get_mut(at..at + sector.len()) {
                place.copy_from_slice(sector);
            }
        }
    }
}

fn blocks(from: u64, to: u64) -> std::ops::Range<usize> {
    length_of(from / BLOCK_BYTES)..length_of(to.div_ceil(BLOCK_BYTES))
}

fn length_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
