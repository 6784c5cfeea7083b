//! The space that is left on the disk that systems store on, looked at before each point and every second of
//! it.
//!
//! A system that fills the disk fails for want of space, and so does everything after it: that is no result
//! of theirs.

use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::statvfs;

/// Bytes that a system may store in a second or two: a run stops before the disk is full.
pub(crate) const LEAST_BYTES: u64 = 1 << 30;
const LOOK: Duration = Duration::from_secs(1);
const GIB: f64 = 1_073_741_824.0;

/// The disk that holds a folder.
#[derive(Debug)]
pub(crate) struct Space {
    folder: PathBuf,
    least_bytes: u64,
}

impl Space {
    pub(crate) fn new(folder: impl Into<PathBuf>, least_bytes: u64) -> Self {
        Self {
            folder: folder.into(),
            least_bytes,
        }
    }

    /// Says how little there is, if it is too little. A file system that does not say is taken to have
    /// enough.
    pub(crate) fn shortage(&self) -> Option<String> {
        let found = statvfs(&self.folder).ok()?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        (free < self.least_bytes).then(|| {
            format!(
                "the disk of {} runs short: {:.1} GiB are left, and the systems store there",
                self.folder.display(),
                free as f64 / GIB
            )
        })
    }

    /// Looks every second; ends when there is too little.
    pub(crate) async fn runs_short(&self) -> String {
        loop {
            if let Some(shortage) = self.shortage() {
                return shortage;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_said_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Space::new(folder.path(), 0).shortage(), None);
        let shortage = Space::new(folder.path(), u64::MAX).shortage().unwrap();
        assert!(shortage.contains(folder.path().to_str().unwrap()), "{shortage}");
        assert_eq!(Space::new("/nowhere/at/all", u64::MAX).shortage(), None);
    }
}
