//! The place of a sink's files: a folder, or a bucket.

use super::bucket::Bucket;
use super::folder::Folder;
use super::manifest::{Manifest, ORDERED_MAX};
use crate::definition::FilesSpec;
use crate::target::{Place, TargetError};

/// Letters of a writer's id in the names of its objects.
const WRITER_LETTERS: usize = 8;

#[derive(Debug)]
pub(crate) enum Storage {
    /// Files are parts until their manifest is put.
    Folder(Folder),
    /// Objects have their names at once. These have the writer in them, so that two do not meet.
    Bucket(Box<Bucket>),
}

impl Storage {
    pub(crate) fn of(spec: &FilesSpec) -> Self {
        match &spec.bucket {
            Some(bucket) => Self::Bucket(Box::new(Bucket::new(bucket))),
            None => Self::Folder(Folder::new(spec.path.clone().into())),
        }
    }

    /// Returns the last part of the names of files.
    pub(super) fn extension(&self, extension: &str, writer: &str) -> String {
        match self {
            Self::Folder(_) => extension.to_owned(),
            Self::Bucket(_) => {
                let writer: String = writer.chars().take(WRITER_LETTERS).collect();
                format!("{writer}.{extension}")
            }
        }
    }

    pub(crate) async fn prepare(&mut self, make: bool) -> Result<Vec<String>, TargetError> {
        match self {
            Self::Folder(folder) => folder.prepare(make),
            Self::Bucket(bucket) => bucket.prepare(make).await,
        }
    }

    /// Makes the folder of a file.
    pub(crate) fn make_parent(&self, path: &str) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => folder.make_parent(path),
            Self::Bucket(_) => Ok(()),
        }
    }

    /// Makes a place ready for files.
    pub(super) async fn make(&mut self, place: &Place, writer: &str) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => folder.make(place),
            Self::Bucket(bucket) => bucket.check(writer).await,
        }
    }

    /// Returns the highest number of a manifest.
    pub(super) async fn newest(&mut self, place: &Place) -> Result<Option<u64>, TargetError> {
        match self {
            Self::Folder(folder) => folder.newest(place),
            Self::Bucket(bucket) => bucket.newest(place).await,
        }
    }

    /// Returns the number of the next manifest. A bucket lists by name, so it would not find one behind the
    /// last that has its place in that order.
    pub(super) fn number_behind(&self, place: &Place, newest: u64) -> Result<u64, TargetError> {
        match self {
            Self::Bucket(_) if newest >= ORDERED_MAX => Err(TargetError::Stop(format!(
                "there are {newest} manifests of {place}, and a bucket takes no more of one partition: \
                 have the sink write under another prefix"
            ))),
            Self::Folder(_) | Self::Bucket(_) => Ok(newest + 1),
        }
    }

    /// Returns the places that have manifests.
    pub(super) async fn places(&mut self) -> Result<Vec<Place>, TargetError> {
        match self {
            Self::Folder(folder) => folder.places(),
            Self::Bucket(bucket) => bucket.places().await,
        }
    }

    /// Returns the bytes of a file, if it is there.
    pub(super) async fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, TargetError> {
        match self {
            Self::Folder(folder) => folder.read(path),
            Self::Bucket(bucket) => bucket.read(path).await,
        }
    }

    /// Writes a file that no manifest names yet.
    pub(super) async fn write(&mut self, path: &str, writer: &str, bytes: &[u8]) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => folder.write_part(path, writer, bytes),
            Self::Bucket(bucket) => bucket.put(path, bytes).await,
        }
    }

    /// Has the files beside a path last.
    pub(super) fn sync_parent(&self, path: &str) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => folder.sync_parent(path),
            Self::Bucket(_) => Ok(()),
        }
    }

    /// Writes a file in the place of an earlier one.
    pub(crate) async fn replace(
        &mut self,
        path: &str,
        writer: &str,
        bytes: &[u8],
    ) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => folder.replace(path, writer, bytes),
            Self::Bucket(bucket) => bucket.put(path, bytes).await,
        }
    }

    /// Puts a file, unless there is another one of its name. Returns false if there is.
    pub(super) async fn put_if_absent(
        &mut self,
        path: &str,
        writer: &str,
        bytes: &[u8],
    ) -> Result<bool, TargetError> {
        match self {
            Self::Folder(folder) => folder.put_if_absent(path, writer, bytes),
            Self::Bucket(bucket) => bucket.put_if_absent(path, bytes).await,
        }
    }

    /// Gives the files of a manifest their names, if they do not have them yet.
    pub(super) fn name_parts(&self, manifest: &Manifest) -> Result<(), TargetError> {
        let Self::Folder(folder) = self else {
            return Ok(());
        };
        for file in &manifest.files {
            folder.name_part(&file.path, &manifest.writer)?;
        }
        match manifest.files.first() {
            Some(file) => folder.sync_parent(&file.path),
            None => Ok(()),
        }
    }
}
