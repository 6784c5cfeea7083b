//! What the engine asks of an operating system: named files in one directory, written at positions and
//! synced.
//!
//! Everything the engine stores goes through these traits, so that a test can put a simulated disk below it
//! that loses power, fails an operation, tears a write or flips a bit.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// One directory of files.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Creates an empty file; one of that name must not exist.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Renames a file, in place of any that has the name; durable after [`Storage::sync_names`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; durable after [`Storage::sync_names`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals so far durable.
    fn sync_names(&self) -> io::Result<()>;
    /// The names of all files, sorted.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Bytes that files here can still grow by.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// What disks are written past the caches by.
pub const FILL_ALIGN: usize = 4096;

/// A file.
pub trait StorageFile: Send + Sync + fmt::Debug {
    /// Writes all slices, one behind the other, from byte `at` on.
    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()>;
    /// Writes zeros to `at..at + bytes`, multiples of [`FILL_ALIGN`] both, past the caches where the system
    /// can do that.
    fn fill(&self, at: u64, bytes: usize) -> io::Result<()> {
        self.write_at(&mut [IoSlice::new(&vec![0; bytes])], at)
    }
    /// Fills `buffer` from byte `at` on as far as the file goes; returns how many bytes there were.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Makes everything written so far durable, the file's length included.
    fn sync(&self) -> io::Result<()>;
    /// Lets go of what is seen of the file but is not on the disk and never will be: what a sync that failed
    /// has left. What was written and no sync has tried stays.
    fn forget_unsynced(&self) -> io::Result<()> {
        Ok(())
    }
    fn bytes(&self) -> io::Result<u64>;
    /// Whether the file has another name somewhere, so that its content has to stay as it is.
    fn is_shared(&self) -> io::Result<bool> {
        Ok(false)
    }
    fn set_bytes(&self, bytes: u64) -> io::Result<()>;
    /// Takes space for `bytes` in all, so that writing there cannot meet a full disk.
    fn reserve(&self, bytes: u64) -> io::Result<()>;
}

/// Whether an operation failed because there is no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Fills `buffer` from byte `at` on; a file that ends before is an error.
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
