//! Interface to the operating system: named files in one directory, written at positions and synced.
//!
//! Everything the engine stores goes through these traits, so that a test can use a simulated disk that loses
//! power, fails an operation, tears a write or flips a bit.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use super::segment::{FileRole, SegmentKind};

/// One directory of files.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Creates an empty file; one of that name must not exist.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Renames a file, replacing an existing one of the new name; durable after [`Storage::sync_names`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; durable after [`Storage::sync_names`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals so far durable.
    fn sync_names(&self) -> io::Result<()>;
    /// Returns the names of all files, sorted.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Returns the bytes by which files here can still grow.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Returns true if arrival segments are kept as streams: their bytes are written once, one behind the
    /// other, and a sync makes a prefix of all of them durable. Then segments are not made ahead or recycled,
    /// write groups are not padded, and recovery writes nothing again.
    fn is_append_only(&self) -> bool {
        false
    }
    /// Returns true if bytes that cannot be read may be readable later, as in a store behind a network: then
    /// a failed read is no damage.
    fn may_recover(&self) -> bool {
        false
    }
    /// Returns the number of threads that sync.
    fn sync_threads(&self) -> usize {
        1
    }
    /// Returns the number of syncs that may run at a time now, at most [`Storage::sync_threads`]. While that
    /// many run, appends that wait for one gather. Syncs begin and count in the order of writing.
    fn syncs_max(&self) -> usize {
        1
    }
    /// Waits until the next sync may begin, so that it includes more, where several may run.
    fn gather(&self) {}
}

/// How the engine writes a file, which its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WritePattern {
    /// Arrival segments: one group behind the other. No byte is written twice.
    Append,
    /// Sidecars and sorted segments: written, synced and named, then only read.
    Once,
    /// The checkpoint, a small database, and everything else: at any place, at any time.
    InPlace,
    /// Files that count under a later name only.
    Temporary,
}

impl WritePattern {
    pub fn of(name: &str) -> Self {
        match FileRole::of(name) {
            Some(FileRole::Segment(SegmentKind::Arrival, _)) => Self::Append,
            Some(FileRole::Segment(SegmentKind::Sorted, _) | FileRole::Sidecar(..)) => Self::Once,
            None if name.strip_suffix(".tmp").is_some() => Self::Temporary,
            None => Self::InPlace,
        }
    }
}

/// Alignment of writes that bypass the page cache.
pub const FILL_ALIGN: usize = 4096;

/// An open file.
pub trait StorageFile: Send + Sync + fmt::Debug {
    /// Writes all slices, one after the other, from byte `at` on.
    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()>;
    /// Writes zeros to `at..at + bytes`, both multiples of [`FILL_ALIGN`], bypassing the page cache if the
    /// system can.
    fn fill(&self, at: u64, bytes: usize) -> io::Result<()> {
        self.write_at(&mut [IoSlice::new(&vec![0; bytes])], at)
    }
    /// Fills `buffer` from byte `at` on as far as the file goes; returns the number of bytes read.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Makes everything written so far durable, the file's length included.
    fn sync(&self) -> io::Result<()>;
    /// Makes a part durable while more is written, so that the last sync is short. Nothing counts on it: a
    /// storage whose sync costs as much as the whole file does nothing.
    fn sync_ahead(&self) -> io::Result<()> {
        self.sync()
    }
    /// Drops data that is readable but neither on disk nor going to be: the remainder of a failed sync.
    /// Written data that no sync has tried stays.
    fn forget_unsynced(&self) -> io::Result<()> {
        Ok(())
    }
    fn bytes(&self) -> io::Result<u64>;
    /// Returns true if the file has another name, so that its content must not change.
    fn is_shared(&self) -> io::Result<bool> {
        Ok(false)
    }
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;
    /// Allocates space for `bytes` in total, so that writing there cannot meet a full disk.
    fn reserve(&self, bytes: u64) -> io::Result<()>;
}

/// Returns true if an operation failed for lack of space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Fills `buffer` from byte `at` on; an error if the file ends before.
pub(crate) fn read_exact_at(file: &dyn StorageFile, buffer: &mut [u8], at: u64) -> io::Result<()> {
    let wanted = buffer.len();
    let got = file.read_at(buffer, at)?;
    if got == wanted {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("{got} of {wanted} bytes at {at}"),
    ))
}
