//! The folder that systems store in while a run lasts: made by the lab, marked as its own, and emptied for
//! each start.
//!
//! The lab deletes only its own: a folder of that name with something else in it is refused,
//! and only the systems' own folders in it are removed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::experiment::check::SYSTEMS;

/// In the folder of the run. `data` would be a broker's, whose own folder may be the same.
const NAME: &str = "lab-systems";
/// In it.
const MARKER: &str = "made-by-stafett-lab";

/// That folder, held by one run.
#[derive(Debug)]
pub struct Ground {
    path: PathBuf,
    /// Locked for as long as this lives.
    _held: File,
}

impl Ground {
    /// Takes the folder in that of the run, or makes it.
    /// An error is the reason why it cannot be used: it holds foreign files, another run uses it, or it
    /// cannot be made.
    pub fn take(out: &Path) -> Result<Self, String> {
        let path = out.join(NAME);
        let shown = path.display();
        let unusable =
            |error: io::Error| format!("{shown}, where systems are to store, cannot be used: {error}");
        fs::create_dir_all(&path).map_err(unusable)?;
        let marker = path.join(MARKER);
        let is_new = !marker.exists();
        if is_new && fs::read_dir(&path).map_err(unusable)?.next().is_some() {
            return Err(format!(
                "{shown}, where systems are to store, holds what the lab did not put there: move it, or give another folder \
                 with --out"
            ));
        }
        let held = File::options()
            .create(true)
            .append(true)
            .open(&marker)
            .map_err(unusable)?;
        match held.try_lock() {
            Err(TryLockError::WouldBlock) => Err(format!(
                "another run is at work in {}: give another folder with --out",
                out.display()
            )),
            // A file system without locks has none for other runs either.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Self { path, _held: held }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the data of systems.
    pub fn clear(&self) {
        for system in SYSTEMS {
            // A rest of it makes the next start fail, with its own message.
            let _ = fs::remove_dir_all(self.path.join(system));
        }
    }

    /// Removes all that the lab made.
    pub fn give_back(self) {
        self.clear();
        let _ = fs::remove_file(self.path.join(MARKER));
        // It stays if there are other files in it by now.
        let _ = fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_lab_did_not_make_is_refused_and_stays() {
        let out = tempfile::tempdir().unwrap();
        let precious = out.path().join(NAME).join("stafett");
        fs::create_dir_all(&precious).unwrap();
        let refusal = Ground::take(out.path()).unwrap_err();
        assert!(
            refusal.contains("holds what the lab did not put there"),
            "{refusal}"
        );
        assert!(precious.exists());
    }

    #[test]
    fn what_a_killed_run_left_is_taken_over_and_removed() {
        let out = tempfile::tempdir().unwrap();
        let ground = Ground::take(out.path()).unwrap();
        fs::create_dir_all(ground.path().join("kafka/data")).unwrap();
        drop(ground);
        let ground = Ground::take(out.path()).unwrap();
        ground.give_back();
        assert!(!out.path().join(NAME).exists());
    }

    #[test]
    fn what_somebody_put_there_meanwhile_is_left_alone() {
        let out = tempfile::tempdir().unwrap();
        let ground = Ground::take(out.path()).unwrap();
        let notes = ground.path().join("notes");
        fs::write(&notes, "mine").unwrap();
        ground.give_back();
        assert_eq!(fs::read_to_string(notes).unwrap(), "mine");
    }

    #[test]
    fn two_runs_do_not_share_a_folder() {
        let out = tempfile::tempdir().unwrap();
        let _ground = Ground::take(out.path()).unwrap();
        let refusal = Ground::take(out.path()).unwrap_err();
        assert!(refusal.contains("another run is at work"), "{refusal}");
    }
}
