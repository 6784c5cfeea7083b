//! The local folder of an owner, which may vanish under it: with a volume that is taken away, or by mistake.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A folder, as it was when it was opened.
#[derive(Debug)]
pub(crate) struct LocalFolder {
    path: PathBuf,
    /// Device and number of the file system.
    place: Option<(u64, u64)>,
}

impl LocalFolder {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            place: place(path),
        }
    }

    /// Returns why files cannot be made in it any more.
    pub(crate) fn loss(&self) -> Option<String> {
        if place(&self.path) == self.place {
            return None;
        }
        Some(format!(
            "the local folder {} is gone, or is another one",
            self.path.display()
        ))
    }
}

fn place(path: &Path) -> Option<(u64, u64)> {
    let of = fs::metadata(path).ok()?;
    Some((of.dev(), of.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_removed_or_replaced_is_lost() {
        let within = std::env::temp_dir().join(format!("stafett-{}", uuid::Uuid::new_v4()));
        let path = within.join("cluster");
        fs::create_dir_all(&path).unwrap();
        let folder = LocalFolder::new(&path);
        assert_eq!(folder.loss(), None);
        fs::rename(&path, within.join("elsewhere")).unwrap();
        assert!(folder.loss().is_some());
        fs::create_dir(&path).unwrap();
        assert!(folder.loss().is_some(), "another folder of the same name");
        fs::remove_dir_all(&within).unwrap();
    }
}
