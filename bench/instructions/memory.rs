//! Files in memory, so that only the journal's own work is counted: syncing does nothing, and segments may be
//! told to forget bytes that are written to them, as an operating system would copy them elsewhere.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use stafett_journal::disk::storage::{Storage, StorageFile};

type Files = BTreeMap<String, Arc<dyn StorageFile>>;

#[derive(Debug)]
pub struct MemoryStorage {
    files: Mutex<Files>,
    segments: Segments,
}

/// Fate of the bytes that are written to a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segments {
    Kept,
    Forgotten,
}

#[derive(Debug, Default)]
struct MemoryFile(Mutex<Vec<u8>>);

/// A file that has a length and no content.
#[derive(Debug, Default)]
struct ForgetfulFile(AtomicU64);

impl MemoryStorage {
    pub fn shared(segments: Segments) -> Arc<dyn Storage> {
        Arc::new(Self {
            files: Mutex::default(),
            segments,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().expect("nobody panics here")
    }
}

impl Storage for MemoryStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file: Arc<dyn StorageFile> = match self.segments {
            Segments::Forgotten if name.ends_with(".seg") => Arc::new(ForgetfulFile::default()),
            _ => Arc::new(MemoryFile::default()),
        };
        self.lock().insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = self.lock().get(name).cloned();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.lock();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = self.lock().remove(name);
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().keys().cloned().collect())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }
}

impl MemoryFile {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nobody panics here")
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("the files are small")
}

impl StorageFile for MemoryFile {
    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let mut bytes = self.lock();
        let mut at = index(at);
        for slice in slices {
            let end = at + slice.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at..end].copy_from_slice(slice);
            at = end;
        }
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = self.lock();
        let rest = bytes.get(index(at)..).unwrap_or_default();
        let got = rest.len().min(buffer.len());
        buffer[..got].copy_from_slice(&rest[..got]);
        Ok(got)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.lock().resize(index(bytes), 0);
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut content = self.lock();
        if content.len() < index(bytes) {
            content.resize(index(bytes), 0);
        }
        Ok(())
    }
}

impl StorageFile for ForgetfulFile {
    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        self.0.fetch_max(at + bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.load(Ordering::Relaxed))
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.0.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.0.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }
}
