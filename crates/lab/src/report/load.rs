//! Finds runs in folders and reads them.

use std::fs;
use std::path::{Path, PathBuf};

use super::ReportError;
use crate::results::{Folder, Point, Run, StoreError};

/// A run, and all its points that are there.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Its folder, as the user named it.
    pub(crate) place: PathBuf,
    pub(crate) run: Run,
    pub(crate) points: Vec<Point>,
}

/// The runs of a folder: the folder itself, if it is one, else those right below it, by their names.
pub(crate) fn runs(folder: &Path) -> Result<Vec<Recorded>, ReportError> {
    if Folder::new(folder).exists() {
        return Ok(vec![read(folder)?]);
    }
    let unreadable = |source| StoreError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut below: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if Folder::new(&path).exists() {
            below.push(path);
        }
    }
    below.sort();
    if below.is_empty() {
        return Err(ReportError::NoRun {
            path: folder.to_owned(),
        });
    }
    below.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Recorded, ReportError> {
    let folder = Folder::new(path);
    let run = folder.read_run()?;
    let points = folder.read_points(&run)?;
    Ok(Recorded {
        place: path.to_owned(),
        run,
        points,
    })
}
