//! The place of a sink's files: a folder, or a bucket.

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, spawn_blocking};

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
    Folder(Arc<Folder>),
    /// Objects have their names at once. These have the writer in them, so that two do not meet.
    Bucket(Box<Bucket>),
}

/// Does work that waits for the disk on a thread of its own: a folder that is slow holds up nothing else.
async fn aside<T: Send + 'static>(
    folder: &Arc<Folder>,
    work: impl FnOnce(&Folder) -> Result<T, TargetError> + Send + 'static,
) -> Result<T, TargetError> {
    let folder = Arc::clone(folder);
    match spawn_blocking(move || work(&folder)).await {
        Ok(done) => done,
        Err(why) => match why.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(TargetError::Retry("this process ends".to_owned())),
        },
    }
}

/// Computes for long, while other tasks of the thread go on elsewhere.
pub(crate) fn computed<T>(work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current();
    if runtime.is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread) {
        block_in_place(work)
    } else {
        work()
    }
}

impl Storage {
    pub(crate) fn of(spec: &FilesSpec) -> Self {
        match &spec.bucket {
            Some(bucket) => Self::Bucket(Box::new(Bucket::new(bucket))),
            None => Self::Folder(Arc::new(Folder::new(spec.path.clone().into()))),
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
            Self::Folder(folder) => aside(folder, move |folder| folder.prepare(make)).await,
            Self::Bucket(bucket) => bucket.prepare(make).await,
        }
    }

    /// Makes the folder of a file.
    pub(crate) async fn make_parent(&self, path: &str) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => {
                let path = path.to_owned();
                aside(folder, move |folder| folder.make_parent(&path)).await
            }
            Self::Bucket(_) => Ok(()),
        }
    }

    /// Makes sure that a second file of one name is refused.
    pub(crate) async fn check(&mut self, writer: &str) -> Result<(), TargetError> {
        match self {
            Self::Folder(_) => Ok(()),
            Self::Bucket(bucket) => bucket.check(writer).await,
        }
    }

    /// Makes a place ready for files.
    pub(super) async fn make(&mut self, place: &Place, writer: &str) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => {
                let place = place.clone();
                aside(folder, move |folder| folder.make(&place)).await
            }
            Self::Bucket(bucket) => bucket.check(writer).await,
        }
    }

    /// Returns the highest number of a manifest.
    pub(super) async fn newest(&mut self, place: &Place) -> Result<Option<u64>, TargetError> {
        match self {
            Self::Folder(folder) => {
                let place = place.clone();
                aside(folder, move |folder| folder.newest(&place)).await
            }
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
            Self::Folder(folder) => aside(folder, Folder::places).await,
            Self::Bucket(bucket) => bucket.places().await,
        }
    }

    /// Returns the bytes of a file, if it is there.
    pub(crate) async fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, TargetError> {
        match self {
            Self::Folder(folder) => {
                let path = path.to_owned();
                aside(folder, move |folder| folder.read(&path)).await
            }
            Self::Bucket(bucket) => bucket.read(path).await,
        }
    }

    /// Writes a file that no manifest names yet.
    pub(super) async fn write(
        &mut self,
        path: &str,
        writer: &str,
        bytes: Vec<u8>,
    ) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => {
                let (path, writer) = (path.to_owned(), writer.to_owned());
                aside(folder, move |folder| folder.write_part(&path, &writer, &bytes)).await
            }
            Self::Bucket(bucket) => bucket.put(path, &bytes).await,
        }
    }

    /// Has the files beside a path last.
    pub(super) async fn sync_parent(&self, path: &str) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => {
                let path = path.to_owned();
                aside(folder, move |folder| folder.sync_parent(&path)).await
            }
            Self::Bucket(_) => Ok(()),
        }
    }

    /// Writes a file in the place of an earlier one.
    pub(crate) async fn replace(
        &mut self,
        path: &str,
        writer: &str,
        bytes: Vec<u8>,
    ) -> Result<(), TargetError> {
        match self {
            Self::Folder(folder) => {
                let (path, writer) = (path.to_owned(), writer.to_owned());
                aside(folder, move |folder| folder.replace(&path, &writer, &bytes)).await
            }
            Self::Bucket(bucket) => bucket.put(path, &bytes).await,
        }
    }

    /// Puts a file, unless there is another one of its name. Returns false if there is.
    pub(crate) async fn put_if_absent(
        &mut self,
        path: &str,
        writer: &str,
        bytes: Vec<u8>,
    ) -> Result<bool, TargetError> {
        match self {
            Self::Folder(folder) => {
                let (path, writer) = (path.to_owned(), writer.to_owned());
                aside(folder, move |folder| folder.put_if_absent(&path, &writer, &bytes)).await
            }
            Self::Bucket(bucket) => bucket.put_if_absent(path, &bytes).await,
        }
    }

    /// Gives the files of a manifest their names, if they do not have them yet.
    pub(super) async fn name_parts(&self, manifest: &Manifest) -> Result<(), TargetError> {
        let Self::Folder(folder) = self else {
            return Ok(());
        };
        let manifest = manifest.clone();
        aside(folder, move |folder| {
            for file in &manifest.files {
                folder.name_part(&file.path, &manifest.writer)?;
            }
            match manifest.files.first() {
                Some(file) => folder.sync_parent(&file.path),
                None => Ok(()),
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_folder_that_is_slow_holds_up_no_other_task() {
        let folder = Arc::new(Folder::new("unused".into()));
        let (sender, waiting) = mpsc::sync_channel(1);
        let slow = aside(&folder, move |_| {
            waiting
                .recv_timeout(Duration::from_mins(1))
                .map_err(|why| TargetError::Stop(why.to_string()))
        });
        let other = async { sender.send(()).unwrap() };
        assert_eq!(tokio::join!(slow, other).0, Ok(()));
    }
}
