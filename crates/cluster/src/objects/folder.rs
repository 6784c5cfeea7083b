//! Objects in a folder that all nodes share.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use stafett_model::Lock;

use super::{Objects, ObjectsError};

/// Ending of files that are being written.
pub(super) const UNFINISHED: &str = ".tmp";

/// Objects as files of a folder.
#[derive(Debug)]
pub struct FolderObjects {
    folder: PathBuf,
    /// The folder of the writer that was made last, and is durable.
    ready: Lock<Option<PathBuf>>,
}

fn unreachable(path: &Path) -> impl Fn(io::Error) -> ObjectsError {
    move |error| ObjectsError::Unreachable(format!("{}: {error}", path.display()))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl FolderObjects {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            ready: Lock::default(),
        }
    }

    /// Writes a file and has it last.
    fn write(&self, name: &str, body: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        let parent = path.parent().unwrap_or(&self.folder);
        self.make(parent)?;
        let unfinished = self.folder.join(format!("{name}{UNFINISHED}"));
        let written = File::create(&unfinished)
            .and_then(|mut file| file.write_all(body).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&unfinished, &path))
            .and_then(|()| sync_folder(parent));
        if written.is_err() {
            // On a full disk, attempts under other names would leave it full.
            let _ = fs::remove_file(&unfinished);
            // The last deletion of a writer removes its folder.
            *self.ready.lock() = None;
        }
        written
    }

    /// Makes the folder of a writer durable, once: other puts wait for that.
    fn make(&self, parent: &Path) -> io::Result<()> {
        let mut ready = self.ready.lock();
        if ready.as_deref() != Some(parent) {
            fs::create_dir_all(parent)?;
            sync_folder(&self.folder)?;
            *ready = Some(parent.to_owned());
        }
        Ok(())
    }
}

impl Objects for FolderObjects {
    fn prepare(&self) -> Result<(), ObjectsError> {
        fs::create_dir_all(&self.folder)
            .and_then(|()| self.folder.parent().map_or(Ok(()), sync_folder))
            .map_err(unreachable(&self.folder))
    }

    fn put(&self, name: &str, body: &[u8]) -> Result<(), ObjectsError> {
        self.write(name, body).map_err(unreachable(&self.folder))
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectsError> {
        let path = self.folder.join(name);
        match fs::read(&path) {
            Ok(body) => Ok(Some(body)),
            // A folder that is not there may be one that is not mounted.
            Err(error) if error.kind() == ErrorKind::NotFound && self.folder.is_dir() => Ok(None),
            Err(error) => Err(unreachable(&path)(error)),
        }
    }

    fn delete(&self, name: &str) -> Result<(), ObjectsError> {
        let path = self.folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(unreachable(&path)(error)),
            _ => {
                // The last one of a writer.
                let _ = path.parent().map(fs::remove_dir);
                Ok(())
            }
        }
    }

    fn list(&self, behind: &str) -> Result<Vec<(String, u64)>, ObjectsError> {
        list(&self.folder, behind).map_err(unreachable(&self.folder))
    }
}

/// Lists the objects of the first writer that has any behind a name.
fn list(folder: &Path, behind: &str) -> io::Result<Vec<(String, u64)>> {
    for writer in names(folder)? {
        if writer.as_str() < behind.split('/').next().unwrap_or_default() {
            continue;
        }
        let mut found = Vec::new();
        for number in names(&folder.join(&writer))? {
            let name = format!("{writer}/{number}");
            // Unfinished ones of former owners are garbage too.
            if name.as_str() > behind {
                let bytes = fs::metadata(folder.join(&name)).map_or(0, |metadata| metadata.len());
                found.push((name, bytes));
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Returns the names in a folder in their order.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_put_listed_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let objects = FolderObjects::new(folder.path().join("cell"));
        assert!(objects.get("a/1").is_err(), "there is no folder");
        objects.prepare().unwrap();
        for name in ["a/1", "a/2", "b/1"] {
            objects.put(name, name.as_bytes()).unwrap();
        }
        assert_eq!(objects.get("a/2").unwrap().unwrap(), b"a/2");
        assert_eq!(objects.get("a/3").unwrap(), None);
        let listed = |behind: &str| -> Vec<String> {
            let listed = objects.list(behind).unwrap();
            listed.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(listed(""), ["a/1", "a/2"]);
        assert_eq!(listed("a/1"), ["a/2"]);
        assert_eq!(listed("a/2"), ["b/1"]);
        assert!(listed("b/1").is_empty());
        objects.delete("b/1").unwrap();
        objects.delete("b/1").unwrap();
        assert_eq!(listed("a/2"), [""; 0]);
        // A put that fails leaves nothing.
        fs::create_dir(folder.path().join("cell/a/9")).unwrap();
        assert!(objects.put("a/9", b"x").is_err());
        assert_eq!(listed("a/2"), ["a/9"]);
        fs::remove_dir(folder.path().join("cell/a/9")).unwrap();
        assert!(objects.list("a/1").unwrap().iter().all(|(_, bytes)| *bytes == 3));
    }
}
