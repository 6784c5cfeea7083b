//! Storage on the operating system: a directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{
    Advice, FallocateFlags, OFlags, fadvise, fallocate, fcntl_getfl, fcntl_setfl, fdatasync, statvfs,
};
use rustix::io::{pread, pwritev};
use smallvec::SmallVec;

use super::segment::FileRole;
use super::storage::{FILL_ALIGN, Storage, StorageFile};

/// A directory locked against other processes.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    names: File,
    _lock: File,
}

/// Reason why a directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenDirectoryError {
    #[error("{path} is in use by another process: stop it, or choose another data directory", path = .0.display())]
    InUse(PathBuf),
    #[error("{path} holds no journal", path = .0.display())]
    NotThere(PathBuf),
    #[error("{path} cannot be used: {error}", path = .path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// Zeros for direct writes, at an address that is a multiple of [`FILL_ALIGN`].
#[repr(align(4096))]
struct Zeros([u8; 64 << 10]);
static ZEROS: Zeros = Zeros([0; 64 << 10]);
const _: () = assert!(align_of::<Zeros>() == FILL_ALIGN);

/// File whose lock marks the directory as in use.
const LOCK_FILE: &str = "lock";
/// Time to wait for the lock: after a kill, a process holds it until the system has released its memory.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// Opens a directory, which is created if missing, and locks it against other processes.
pub fn open_directory(path: &Path) -> Result<Arc<dyn Storage>, OpenDirectoryError> {
    Ok(Arc::new(Directory::open(path)?))
}

impl Directory {
    /// Opens an existing directory.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, OpenDirectoryError> {
        let is_of_journal = |name: &str| name == super::checkpoint::FILE || FileRole::of(name).is_some();
        let names = std::fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        match names {
            Ok(entries)
                if entries
                    .iter()
                    .any(|entry| entry.file_name().to_str().is_some_and(is_of_journal)) =>
            {
                Self::open(path)
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OpenDirectoryError::Io {
                path: path.to_owned(),
                error,
            }),
            Ok(_) | Err(_) => Err(OpenDirectoryError::NotThere(path.to_owned())),
        }
    }

    /// Opens the directory, which is created if missing, and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenDirectoryError> {
        let failed = |error| OpenDirectoryError::Io {
            path: path.to_owned(),
            error,
        };
        std::fs::create_dir_all(path).map_err(failed)?;
        let names = File::open(path).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK_FILE))
            .map_err(failed)?;
        let began = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(LOCK_PATIENCE / 100);
                }
                Err(TryLockError::WouldBlock) => return Err(OpenDirectoryError::InUse(path.to_owned())),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        Ok(Self {
            path: path.to_owned(),
            names,
            _lock: lock,
        })
    }
}

/// Hard-links a file into another directory of the same file system; copies it if that is not possible.
pub(crate) fn link_into(from: &Path, name: &str, to: &Path) -> io::Result<()> {
    match std::fs::hard_link(from.join(name), to.join(name)) {
        // The existing file may be this one.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => copy_into(from, name, to),
        linked => linked,
    }
}

/// Copies a file into another directory, durably. An error if its name exists there.
pub(crate) fn copy_into(from: &Path, name: &str, to: &Path) -> io::Result<()> {
    let mut source = File::open(from.join(name))?;
    let mut copy = File::create_new(to.join(name))?;
    io::copy(&mut source, &mut copy)?;
    copy.sync_all()
}

/// Copies the first bytes of a file into another directory, durably.
pub(crate) fn copy_front(from: &Path, name: &str, to: &Path, bytes: u64) -> io::Result<()> {
    let mut copy = File::create_new(to.join(name))?;
    let copied = io::copy(&mut File::open(from.join(name))?.take(bytes), &mut copy)?;
    if copied < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    copy.sync_all()
}

impl Storage for Directory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(self.path.join(name))?;
        Ok(Arc::new(OsFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(self.path.join(name))?;
        Ok(Arc::new(OsFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.names.sync_all()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stats = statvfs(&self.path)?;
        Ok(stats.f_bavail.saturating_mul(stats.f_frsize))
    }
}

#[derive(Debug)]
struct OsFile(File);

impl StorageFile for OsFile {
    fn write_at(&self, mut slices: &mut [IoSlice<'_>], mut at: u64) -> io::Result<()> {
        /// Most slices that Linux accepts in one call (`UIO_MAXIOV`).
        const SLICES_MAX: usize = 1024;
        // Empty slices would look like a disk that accepts nothing.
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            let some = slices.get(..slices.len().min(SLICES_MAX)).unwrap_or_default();
            let written = match pwritev(&self.0, some, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            at += written as u64;
            IoSlice::advance_slices(&mut slices, written);
        }
        Ok(())
    }

    fn read_at(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<usize> {
        let wanted = buffer.len();
        while !buffer.is_empty() {
            let got = match pread(&self.0, &mut *buffer, at) {
                Ok(0) => break,
                Ok(got) => got,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            at += got as u64;
            buffer = buffer.get_mut(got..).unwrap_or_default();
        }
        Ok(wanted - buffer.len())
    }

    fn fill(&self, at: u64, bytes: usize) -> io::Result<()> {
        let mut pieces: SmallVec<[&[u8]; 64]> = SmallVec::new();
        for from in (0..bytes).step_by(ZEROS.0.len()) {
            let piece = ZEROS.0.get(..ZEROS.0.len().min(bytes - from));
            pieces.push(piece.unwrap_or_default());
        }
        let slices =
            || -> SmallVec<[IoSlice<'_>; 64]> { pieces.iter().map(|piece| IoSlice::new(piece)).collect() };
        let flags = fcntl_getfl(&self.0)?;
        // Copying zeros through the page cache would cost as much as the writes that they prepare.
        let direct = fcntl_setfl(&self.0, flags | OFlags::DIRECT)
            .map_err(io::Error::from)
            .and_then(|()| self.write_at(&mut slices(), at));
        fcntl_setfl(&self.0, flags)?;
        // Fallback for file systems without direct writes.
        direct.or_else(|_| self.write_at(&mut slices(), at))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(fdatasync(&self.0)?)
    }

    /// Drops the clean pages: Linux marks the pages of a failed sync as clean (Rebello and others, "Can
    /// Applications Recover from fsync Failures?", 2020).
    fn forget_unsynced(&self) -> io::Result<()> {
        Ok(fadvise(&self.0, 0, None, Advice::DontNeed)?)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn is_shared(&self) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        Ok(self.0.metadata()?.nlink() > 1)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => self.reserve_by_writing(bytes),
            Err(error) => Err(error.into()),
        }
    }
}

impl OsFile {
    /// Reserves space by writing zeros, for file systems that cannot reserve it.
    fn reserve_by_writing(&self, bytes: u64) -> io::Result<()> {
        let zeros = vec![0; 64 * 1024];
        let mut at = self.bytes()?;
        while at < bytes {
            let step = usize::try_from(bytes - at).map_or(zeros.len(), |left| left.min(zeros.len()));
            self.write_at(&mut [IoSlice::new(zeros.get(..step).unwrap_or_default())], at)?;
            at += step as u64;
        }
        Ok(())
    }
}
