//! A folder as a store: whole files under names that are put once, and synced.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::manifest;
use crate::target::{Place, TargetError};

#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
}

/// Sorts errors: those of rights, space and kind stay until they are mended.
fn failed(what: &Path) -> impl Fn(io::Error) -> TargetError + '_ {
    move |why| {
        let text = format!("{}: {why}", what.display());
        let stays = [
            ErrorKind::PermissionDenied,
            ErrorKind::ReadOnlyFilesystem,
            ErrorKind::StorageFull,
            ErrorKind::QuotaExceeded,
            ErrorKind::NotADirectory,
            ErrorKind::IsADirectory,
            ErrorKind::Unsupported,
            ErrorKind::InvalidFilename,
        ];
        if stays.contains(&why.kind()) {
            TargetError::Stop(text)
        } else {
            TargetError::Retry(text)
        }
    }
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn part(&self, path: &str, writer: &str) -> PathBuf {
        self.at(&format!("{path}.{writer}.part"))
    }

    /// Makes the root if it is missing. A root elsewhere that was not mounted is not made by a flush.
    pub(super) fn prepare(&self, make: bool) -> Result<Vec<String>, TargetError> {
        if self.root.is_dir() {
            return Ok(Vec::new());
        }
        if make {
            fs::create_dir_all(&self.root).map_err(failed(&self.root))?;
        }
        Ok(vec![format!("the folder {}", self.root.display())])
    }

    fn check(&self) -> Result<(), TargetError> {
        if self.root.is_dir() {
            return Ok(());
        }
        let root = self.root.display();
        Err(TargetError::Stop(format!("there is no folder {root}")))
    }

    /// Makes the folders of a place.
    pub(super) fn make(&self, place: &Place) -> Result<(), TargetError> {
        self.check()?;
        let place = manifest::folder(place);
        for folder in [self.at(&place), self.at("manifest").join(&place)] {
            self.make_folder(&folder)?;
        }
        Ok(())
    }

    /// Makes the folder of a file, unless it is there.
    pub(super) fn make_parent(&self, path: &str) -> Result<(), TargetError> {
        self.check()?;
        let path = self.at(path);
        match path.parent() {
            Some(folder) if !folder.is_dir() => self.make_folder(folder),
            _ => Ok(()),
        }
    }

    fn make_folder(&self, folder: &Path) -> Result<(), TargetError> {
        fs::create_dir_all(folder).map_err(failed(folder))?;
        for folder in folder
            .ancestors()
            .take_while(|folder| folder.starts_with(&self.root))
        {
            sync_folder(folder)?;
        }
        Ok(())
    }

    /// Returns the highest number of a manifest.
    pub(super) fn newest(&self, place: &Place) -> Result<Option<u64>, TargetError> {
        let folder = self.at("manifest").join(manifest::folder(place));
        let numbers = names(&folder)?;
        let numbers = numbers
            .iter()
            .filter_map(|name| name.strip_suffix(".json")?.parse().ok());
        Ok(numbers.max())
    }

    /// Returns the places that have manifests.
    pub(super) fn places(&self) -> Result<Vec<Place>, TargetError> {
        self.check()?;
        let root = self.at("manifest");
        let mut places = Vec::new();
        for topic in names(&root)? {
            for partition in names(&root.join(&topic))? {
                if let Ok(partition) = partition.parse() {
                    let topic = topic.clone();
                    places.push(Place { topic, partition });
                }
            }
        }
        places.sort();
        Ok(places)
    }

    /// Returns the bytes of a file, if it is there.
    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, TargetError> {
        let path = self.at(path);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
            Err(why) => Err(failed(&path)(why)),
        }
    }

    /// Writes a file that nothing names yet.
    pub(super) fn write_part(&self, path: &str, writer: &str, bytes: &[u8]) -> Result<(), TargetError> {
        let part = self.part(path, writer);
        write_synced(&part, bytes).map_err(failed(&part))
    }

    /// Writes a file in the place of an earlier one.
    pub(super) fn replace(&self, path: &str, writer: &str, bytes: &[u8]) -> Result<(), TargetError> {
        self.write_part(path, writer, bytes)?;
        let whole = self.at(path);
        fs::rename(self.part(path, writer), &whole).map_err(failed(&whole))?;
        self.sync_parent(path)
    }

    /// Puts a file, unless there is one of its name. Returns false if there is.
    pub(super) fn put_if_absent(&self, path: &str, writer: &str, bytes: &[u8]) -> Result<bool, TargetError> {
        self.write_part(path, writer, bytes)?;
        let (part, whole) = (self.part(path, writer), self.at(path));
        let linked = match fs::hard_link(&part, &whole) {
            Ok(()) => true,
            Err(why) if why.kind() == ErrorKind::AlreadyExists => false,
            Err(why) => return Err(failed(&whole)(why)),
        };
        self.sync_parent(path)?;
        fs::remove_file(&part).map_err(failed(&part))?;
        Ok(linked)
    }

    /// Gives a part its name, unless it has it.
    pub(super) fn name_part(&self, path: &str, writer: &str) -> Result<(), TargetError> {
        let (part, whole) = (self.part(path, writer), self.at(path));
        match fs::rename(&part, &whole) {
            Ok(()) => Ok(()),
            Err(why) if why.kind() == ErrorKind::NotFound && whole.exists() => Ok(()),
            Err(why) if why.kind() == ErrorKind::NotFound => {
                let whole = whole.display();
                Err(TargetError::Stop(format!(
                    "{whole}: a manifest names it, and it is gone"
                )))
            }
            Err(why) => Err(failed(&whole)(why)),
        }
    }

    pub(super) fn sync_parent(&self, path: &str) -> Result<(), TargetError> {
        let path = self.at(path);
        sync_folder(path.parent().unwrap_or(&self.root))
    }
}

/// Returns the names in a folder; none if it is missing.
fn names(folder: &Path) -> Result<Vec<String>, TargetError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(failed(folder)(why)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed(folder))?.file_name();
        names.extend(name.into_string().ok());
    }
    Ok(names)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_folder(folder: &Path) -> Result<(), TargetError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(failed(folder))
}
