//! Backup of a running journal, and restore.
//!
//! The segment being written is sealed, a checkpoint is stored, and then every segment is hard-linked into
//! the target and the checkpoint is copied. No data is read or written, except the front of the segment now
//! being written, up to the position that the checkpoint covers. A file shared with a backup is never
//! recycled. Backups exclude checkpoints, and also the release of replaced segments.

use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint::FILE as CHECKPOINT_FILE;
use super::engine::Engine;
use super::housekeeping;
use super::os_storage::{OpenDirectoryError, copy_front, copy_into, link_into};
use super::recovery::OpenError;
use super::segment::{FileRole, SegmentKind};

/// Contents of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackupReport {
    pub segments: usize,
    pub bytes: u64,
}

/// Reason why a backup failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{0} exists: a backup is made into a new directory")]
    Exists(String),
    #[error(
        "{0} exists: a backup that was cut short has left it there; remove it, its files are links or copies"
    )]
    Unfinished(String),
    #[error("the backup could not be written: {0}")]
    Io(#[from] io::Error),
    #[error("the journal could not be brought into order for a backup: {0}")]
    Journal(String),
}

/// Directory that a backup is made into, empty at first.
pub trait BackupTarget: std::fmt::Debug {
    /// Adds a file of the data directory, which never changes again: by a link if that is possible.
    fn link(&self, name: &str) -> io::Result<()>;
    /// Copies a file of the data directory.
    fn copy(&self, name: &str) -> io::Result<()>;
    /// Copies the first bytes of a file of the data directory.
    fn copy_front(&self, name: &str, bytes: u64) -> io::Result<()>;
    /// Makes the directory's names durable. Copies are durable before.
    fn sync(&self) -> io::Result<()>;
}

/// A directory, and the data directory whose files are linked into it.
#[derive(Debug)]
struct LinkedDirectory<'a> {
    source: &'a Path,
    target: &'a Path,
}

impl BackupTarget for LinkedDirectory<'_> {
    fn link(&self, name: &str) -> io::Result<()> {
        link_into(self.source, name, self.target)
    }

    fn copy(&self, name: &str) -> io::Result<()> {
        copy_into(self.source, name, self.target)
    }

    fn copy_front(&self, name: &str, bytes: u64) -> io::Result<()> {
        copy_front(self.source, name, self.target, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        std::fs::File::open(self.target)?.sync_all()
    }
}

pub(crate) fn backup(core: &Engine, source: &Path, target: &Path) -> Result<BackupReport, BackupError> {
    if target.exists() {
        return Err(BackupError::Exists(target.display().to_string()));
    }
    let partial = partial_of(target)?;
    let files = LinkedDirectory {
        source,
        target: &partial,
    };
    let report = backup_into(core, &files).and_then(|report| {
        std::fs::rename(&partial, target)?;
        sync_parent(target)?;
        Ok(report)
    });
    if report.is_err() && partial.exists() {
        // Its files are links: removing them does not affect the journal.
        std::fs::remove_dir_all(&partial)?;
    }
    report
}

/// Makes a backup into an empty directory, which is incomplete if this fails.
pub(crate) fn backup_into(core: &Engine, target: &dyn BackupTarget) -> Result<BackupReport, BackupError> {
    // During the checkpoint turn, no later checkpoint is stored, and no segment is replaced or released.
    let _turn = core.checkpoint.turn();
    housekeeping::seal_and_checkpoint(core).map_err(BackupError::Journal)?;
    let report = fill(core, target)?;
    // After a failure meanwhile, acknowledged data may be missing.
    core.failure
        .get()
        .map_or(Ok(report), |reason| Err(BackupError::Journal(reason.clone())))
}

/// Creates the directory for an unfinished backup. An existing one is never reused: its files may be links to
/// those of the journal, which must not be overwritten.
fn partial_of(target: &Path) -> Result<PathBuf, BackupError> {
    let partial = target.with_extension("partial");
    if let Some(parent) = partial.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::create_dir(&partial) {
        Ok(()) => Ok(partial),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(BackupError::Unfinished(partial.display().to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Syncs the parent directory, so that the name of a directory survives a loss of power.
fn sync_parent(directory: &Path) -> io::Result<()> {
    match directory.parent() {
        Some(parent) if parent != Path::new("") => std::fs::File::open(parent)?.sync_all(),
        _ => std::fs::File::open(".")?.sync_all(),
    }
}

/// Links the segments and copies the checkpoint. The caller holds the checkpoint turn.
fn fill(core: &Engine, target: &dyn BackupTarget) -> Result<BackupReport, BackupError> {
    let mut report = BackupReport::default();
    // Appends continue meanwhile: the checkpoint may cover a part of the segment being written.
    let position = core.checkpointed();
    for segment in core.segments.all() {
        let (name, sidecar) = (segment.role().name(), segment.sidecar_role().name());
        let is_arrival = segment.kind == SegmentKind::Arrival;
        if is_arrival && segment.id > position.segment {
            continue;
        }
        let is_sealed = match core.storage.open(&sidecar) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error.into()),
        };
        if is_sealed {
            target.link(&sidecar)?;
        }
        report.bytes += if is_arrival && segment.id == position.segment && !is_sealed {
            target.copy_front(&name, position.byte.into())?;
            u64::from(position.byte)
        } else {
            target.link(&name)?;
            core.storage.open(&name)?.bytes()?
        };
        report.segments += 1;
    }
    target.copy(CHECKPOINT_FILE)?;
    target.sync()?;
    Ok(report)
}

/// Copies a backup into a new data directory and checks it.
pub fn restore(backup: &Path, target: &Path) -> Result<super::fsck::CheckReport, BackupError> {
    if target.exists() && std::fs::read_dir(target)?.next().is_some() {
        return Err(BackupError::Exists(target.display().to_string()));
    }
    std::fs::create_dir_all(target)?;
    for entry in std::fs::read_dir(backup)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if is_restored(&name) {
            copy_into(backup, &name, target)?;
        }
    }
    std::fs::File::open(target)?.sync_all()?;
    sync_parent(target)?;
    super::fsck::check(target).map_err(|error| match error {
        OpenError::Directory(OpenDirectoryError::Io { error, .. }) | OpenError::Io(error) => {
            BackupError::Io(error)
        }
        other @ (OpenError::Directory(_)
        | OpenError::Checkpoint(_)
        | OpenError::Newer { .. }
        | OpenError::Start(_)) => BackupError::Journal(other.to_string()),
    })
}

/// True for files of a backup that a data directory needs.
pub(crate) fn is_restored(name: &str) -> bool {
    name == CHECKPOINT_FILE
        || matches!(
            FileRole::of(name),
            Some(FileRole::Segment(SegmentKind::Arrival | SegmentKind::Sorted, _) | FileRole::Sidecar(..))
        )
}
