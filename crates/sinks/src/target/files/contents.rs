//! Rows of the files that count, read back.

use std::sync::Arc;

use uuid::Uuid;

use super::Files;
use super::encode::Encoder;
use super::manifest::{Manifest, hex_hash};
use super::storage::computed;
use crate::rows::Rows;
use crate::target::{Place, TargetError};

/// A file whose rows count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counting {
    path: String,
    sha256: String,
    writer: String,
}

/// Records of a place that are in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Covered {
    pub(crate) place: Place,
    /// Offset at which they begin.
    pub(crate) first: u64,
    /// Offset behind the last one: the position.
    pub(crate) next: u64,
    pub(crate) topic: Option<Uuid>,
    /// True if each flush begins where the one before ended, and all are of this topic.
    pub(crate) is_whole: bool,
}

impl Covered {
    fn of(newest: &Manifest) -> Self {
        Self {
            place: Place {
                topic: newest.topic.clone(),
                partition: newest.partition,
            },
            first: newest.next,
            next: newest.next,
            topic: newest.topic_id,
            is_whole: true,
        }
    }

    /// Adds the manifest before. One that sets a position has no records.
    fn begin(&mut self, manifest: &Manifest) {
        let is_flush = match manifest.since {
            Some(since) => since < manifest.number,
            None => manifest.replaces.is_none(),
        };
        if is_flush {
            let is_of_topic = manifest.topic_id == self.topic || manifest.topic_id.is_none();
            // Earlier versions did not say which manifests set a position: one that did has no files.
            let has_files = !manifest.files.is_empty() || manifest.from == manifest.next;
            let is_known = manifest.since.is_some() || has_files;
            self.is_whole &= manifest.next == self.first && is_of_topic && is_known;
            self.first = manifest.from;
        }
    }
}

/// Files whose rows count, and the records that are in them.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Partition by partition, in the order of their manifests.
    pub(crate) files: Vec<Counting>,
    pub(crate) places: Vec<Covered>,
}

impl Files {
    pub(crate) async fn counting(&mut self) -> Result<Contents, TargetError> {
        let mut all = Contents::default();
        for place in self.storage.places().await? {
            let mut number = self.storage.newest(&place).await?.unwrap_or(0);
            let mut files = Vec::new();
            let mut covered: Option<Covered> = None;
            while number > 0 {
                let (manifest, _) = self.manifest(&place, number).await?;
                covered
                    .get_or_insert_with(|| Covered::of(&manifest))
                    .begin(&manifest);
                // Behind a replay, the manifests that it replaces do not count.
                number = manifest.replaces.unwrap_or(number).min(number).saturating_sub(1);
                let writer = manifest.writer;
                files.extend(manifest.files.into_iter().rev().map(|file| Counting {
                    path: file.path,
                    sha256: file.sha256,
                    writer: writer.clone(),
                }));
            }
            all.files.extend(files.into_iter().rev());
            all.places.extend(covered);
        }
        Ok(all)
    }

    /// Reads the rows of a file, which has to be as its manifest says.
    pub(crate) async fn rows_of(&mut self, file: &Counting) -> Result<Rows, TargetError> {
        let found = self.found(file).await?;
        computed(|| found.read(|_| Ok(())))
    }

    /// Reads the bytes of a file.
    pub(crate) async fn found(&mut self, file: &Counting) -> Result<Found, TargetError> {
        let Counting { path, sha256, writer } = file;
        let mut bytes = self.storage.read(path).await?;
        if bytes.is_none() {
            // A process was killed before it gave the file its name.
            bytes = self.storage.read(&format!("{path}.{writer}.part")).await?;
        }
        let bytes =
            bytes.ok_or_else(|| TargetError::Stop(format!("{path}: a manifest names it, and it is gone")))?;
        Ok(Found {
            path: path.clone(),
            sha256: sha256.clone(),
            bytes,
            encoder: Arc::clone(&self.encoder),
        })
    }
}

/// Bytes under the name of a file.
#[derive(Debug)]
pub(crate) struct Found {
    path: String,
    sha256: String,
    bytes: Vec<u8>,
    encoder: Arc<Encoder>,
}

impl Found {
    /// Reads the rows of the file, in parts. `each` is called after a part, and may clear the rows. The file
    /// has to be as its manifest says.
    pub(crate) fn read(self, each: impl FnMut(&mut Rows) -> Result<(), String>) -> Result<Rows, TargetError> {
        let path = self.path;
        if hex_hash(&self.bytes) != self.sha256 {
            let why = format!("{path} has other bytes than its manifest says");
            return Err(TargetError::Stop(why));
        }
        let read = self.encoder.read(self.bytes, each);
        read.map_err(|why| TargetError::Stop(format!("{path}: {why}")))
    }
}
