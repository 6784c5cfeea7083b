//! What the targets have in common: files in memory, stopped journals to damage, and what has to hold of a
//! damaged one.

mod image;
mod reading;

use std::io::{self, IoSlice};
use std::sync::Arc;

use stafett_journal::disk::fuzzing::{SEGMENT_FIELDS_BYTES, SEGMENT_HEADER_BYTES};
use stafett_journal::disk::storage::StorageFile;

pub use self::image::{Image, settings};
pub use self::reading::exercise;

/// A file that is only read.
#[derive(Debug)]
pub struct MemoryFile(pub Vec<u8>);

impl MemoryFile {
    pub fn shared(bytes: Vec<u8>) -> Arc<dyn StorageFile> {
        Arc::new(Self(bytes))
    }
}

impl StorageFile for MemoryFile {
    fn write_at(&self, _: &mut [IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let rest = usize::try_from(at)
            .ok()
            .and_then(|at| self.0.get(at..))
            .unwrap_or_default();
        let got = rest.len().min(buffer.len());
        buffer[..got].copy_from_slice(&rest[..got]);
        Ok(got)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_bytes(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn reserve(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

/// A segment from the fields of its header and the groups behind it.
pub fn segment_of(data: &[u8]) -> Vec<u8> {
    let (head, groups) = data.split_at(data.len().min(SEGMENT_FIELDS_BYTES));
    let mut bytes = vec![0; SEGMENT_HEADER_BYTES];
    bytes[..head.len()].copy_from_slice(head);
    bytes.extend_from_slice(groups);
    bytes
}
