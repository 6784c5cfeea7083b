//! A backup of a journal while it runs, and the way back.
//!
//! The segment that is being written is sealed, a checkpoint is stored, and then every segment is linked into the
//! target and the checkpoint is copied there: no data is read or written. A file that a backup shares is never
//! recycled. Backups and checkpoints take turns, and so do backups and the release of replaced segments.

use std::io;
use std::path::Path;

use super::checkpoint::FILE as CHECKPOINT_FILE;
use super::core::Core;
use super::keeper;
use super::real::{OpenDirectoryError, copy_into, link_into};
use super::recovery::OpenError;
use super::segment::{FileRole, SegmentKind};

/// What a backup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackupReport {
    pub segments: usize,
    pub bytes: u64,
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{0} exists: a backup is made into a new directory")]
    Exists(String),
    #[error("the backup could not be written: {0}")]
    Io(#[from] io::Error),
    #[error("the journal could not be brought into order for a backup: {0}")]
    Journal(String),
}

pub(crate) fn backup(core: &Core, source: &Path, target: &Path) -> Result<BackupReport, BackupError> {
    if target.exists() {
        return Err(BackupError::Exists(target.display().to_string()));
    }
    // Until the files are linked, no later checkpoint is stored, and no segment is replaced or let go.
    let _turn = core.checkpoint.turn();
    keeper::seal_and_checkpoint(core).map_err(BackupError::Journal)?;
    let partial = target.with_extension("partial");
    std::fs::create_dir_all(&partial)?;
    let mut report = BackupReport::default();
    for segment in core.segments.all() {
        let sidecar = segment.sidecar_role().name();
        // Without a sidecar it is the segment that is being written now, which the checkpoint does not need.
        if !source.join(&sidecar).exists() {
            continue;
        }
        link_into(source, &segment.role().name(), &partial)?;
        link_into(source, &sidecar, &partial)?;
        report.segments += 1;
        report.bytes += std::fs::metadata(source.join(segment.role().name()))?.len();
    }
    copy_into(source, CHECKPOINT_FILE, &partial)?;
    std::fs::File::open(&partial)?.sync_all()?;
    std::fs::rename(&partial, target)?;
    Ok(report)
}

/// Makes a data directory of a backup, by copying, and checks it.
pub fn restore(backup: &Path, target: &Path) -> Result<super::check::CheckReport, BackupError> {
    if target.exists() && std::fs::read_dir(target)?.next().is_some() {
        return Err(BackupError::Exists(target.display().to_string()));
    }
    std::fs::create_dir_all(target)?;
    for entry in std::fs::read_dir(backup)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let wanted = name == CHECKPOINT_FILE
            || matches!(
                FileRole::of(&name),
                Some(
                    FileRole::Segment(SegmentKind::Arrival | SegmentKind::Sorted, _) | FileRole::Sidecar(..)
                )
            );
        if wanted {
            copy_into(backup, &name, target)?;
        }
    }
    super::check::check(target).map_err(|error| match error {
        OpenError::Directory(OpenDirectoryError::Io { error, .. }) | OpenError::Io(error) => {
            BackupError::Io(error)
        }
        other @ (OpenError::Directory(_)
        | OpenError::Checkpoint(_)
        | OpenError::Newer { .. }
        | OpenError::Start(_)) => BackupError::Journal(other.to_string()),
    })
}
