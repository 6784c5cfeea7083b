//! Files in a folder, found by numbered manifests.
//!
//! ```text
//! TOPIC/PARTITION/pending.json              bounds of the batch that is being written
//! TOPIC/PARTITION/FIRST-LAST.EXT            a file that a manifest names
//! TOPIC/PARTITION/FIRST-LAST.EXT.WRITER.part
//! manifest/TOPIC/PARTITION/NUMBER.json      put only if absent: this is the commit
//! ```
//!
//! 1. Bounds first, so that a batch that is begun again is the same one, and leaves no orphans.
//! 2. The files, as parts of this writer, synced with their folder.
//! 3. The manifest under the next number. Of two writers one gets it, and the other is fenced.
//! 4. The parts get their names. After a crash `open` does that for whatever the newest manifest names.

mod encode;
mod folder;
mod manifest;

use std::collections::HashMap;
use std::path::PathBuf;

use async_trait::async_trait;
use stafett_model::Lock;

use super::{Opened, Part, Place, Promise, Steps, Target, TargetError};
use crate::columns::Column;
use crate::definition::FilesSpec;
use encode::Encoder;
use folder::Folder;
use manifest::{Bounds, FileEntry, Manifest};

/// Time of day, in ms since 1970, for the manifests.
pub type WallClock = fn() -> i64;

/// A folder of files.
#[derive(Debug)]
pub struct Files {
    sink: String,
    folder: Folder,
    encoder: Encoder,
    split_records: usize,
    writer: String,
    wall: WallClock,
    steps: Steps,
    places: Lock<HashMap<Place, Newest>>,
}

/// The newest manifest of a place, as this writer knows it.
#[derive(Debug, Clone)]
struct Newest {
    number: u64,
    next: u64,
    /// Hash of the manifest; empty before the first one.
    hash: String,
}

impl Files {
    pub fn new(sink: &str, spec: &FilesSpec, columns: &[Column], wall: WallClock, steps: Steps) -> Self {
        Self {
            sink: sink.to_owned(),
            folder: Folder::new(PathBuf::from(&spec.path)),
            encoder: Encoder::new(spec, columns),
            split_records: spec.split_records.unwrap_or(usize::MAX),
            writer: uuid::Uuid::new_v4().simple().to_string(),
            wall,
            steps,
            places: Lock::default(),
        }
    }

    /// Reads the newest manifest of a place, if there is one.
    fn newest(&self, place: &Place) -> Result<Option<(Manifest, String)>, TargetError> {
        let Some(number) = self.folder.newest(place)? else {
            return Ok(None);
        };
        let bytes = self.folder.read(&manifest::path(place, number))?;
        let bytes =
            bytes.ok_or_else(|| TargetError::Stop(format!("manifest {number} of {place} is gone")))?;
        let read = Manifest::parse(&bytes);
        let read = read.map_err(|why| TargetError::Stop(format!("manifest {number} of {place}: {why}")))?;
        if read.sink != self.sink {
            let other = &read.sink;
            return Err(TargetError::Stop(format!(
                "{place} in this folder belongs to the sink {other}"
            )));
        }
        Ok(Some((read, manifest::hash(&bytes))))
    }

    /// Gives the parts of a manifest their names, if they do not have them yet.
    fn name_parts(&self, manifest: &Manifest) -> Result<(), TargetError> {
        for file in &manifest.files {
            self.folder.name_part(&file.path, &manifest.writer)?;
        }
        match manifest.files.first() {
            Some(file) => self.folder.sync_parent(&file.path),
            None => Ok(()),
        }
    }

    fn write_files(&self, part: &Part<'_>) -> Result<Vec<FileEntry>, TargetError> {
        let mut files = Vec::new();
        for start in part.rows.range.clone().step_by(self.split_records) {
            let end = start.saturating_add(self.split_records).min(part.rows.range.end);
            let slice = crate::rows::Slice {
                rows: part.rows.rows,
                range: start..end,
            };
            let bounds = [start, end - 1].map(|row| slice.rows.offset(row).unwrap_or_default());
            let path = manifest::file_path(part.place, bounds, self.encoder.extension());
            let bytes = self.encoder.encode(&slice)?;
            self.folder.write_part(&path, &self.writer, &bytes)?;
            self.steps.reach("file")?;
            files.push(FileEntry {
                path,
                records: end - start,
                bytes: bytes.len(),
                sha256: manifest::hex_hash(&bytes),
            });
        }
        if let Some(file) = files.first() {
            self.folder.sync_parent(&file.path)?;
        }
        self.steps.reach("files")?;
        Ok(files)
    }

    fn commit(&self, part: &Part<'_>, newest: &Newest, files: Vec<FileEntry>) -> Result<Newest, TargetError> {
        let number = newest.number + 1;
        let manifest = Manifest {
            sink: self.sink.clone(),
            number,
            writer: self.writer.clone(),
            previous: newest.hash.clone(),
            written_at: manifest::time((self.wall)()),
            topic: part.place.topic.clone(),
            partition: part.place.partition,
            from: part.from,
            next: part.next,
            files,
        };
        let bytes = manifest.to_bytes();
        let path = manifest::path(part.place, number);
        if !self.folder.put_if_absent(&path, &self.writer, &bytes)? {
            return Err(TargetError::Fenced(part.place.clone()));
        }
        self.steps.reach("manifest")?;
        self.name_parts(&manifest)?;
        self.steps.reach("renamed")?;
        Ok(Newest {
            number,
            next: part.next,
            hash: manifest::hash(&bytes),
        })
    }
}

// A flush compresses and waits for the disk on the thread that asks: writing is all that this process does.
#[async_trait]
impl Target for Files {
    async fn open(&mut self, place: &Place, begin: u64) -> Result<Opened, TargetError> {
        self.folder.make(place)?;
        let newest = match self.newest(place)? {
            Some((manifest, hash)) => {
                self.name_parts(&manifest)?;
                Newest {
                    number: manifest.number,
                    next: manifest.next,
                    hash,
                }
            }
            None => Newest {
                number: 0,
                next: begin,
                hash: String::new(),
            },
        };
        self.steps.reach("opened")?;
        let bounds = self.folder.read(&manifest::pending_path(place))?;
        let bounds = bounds.and_then(|bytes| Bounds::parse(&bytes));
        // A place without a manifest begins where its first batch was to begin.
        let is_first = newest.number == 0;
        let bounds = bounds.filter(|bounds| is_first || bounds.from == newest.next);
        let next = bounds
            .as_ref()
            .filter(|_| is_first)
            .map_or(newest.next, |bounds| bounds.from);
        let opened = Opened {
            next,
            epoch: newest.number,
            begun: bounds.map(|bounds| bounds.next),
        };
        self.places
            .lock()
            .insert(place.clone(), Newest { next, ..newest });
        Ok(opened)
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let newest = self.places.lock().get(part.place).cloned();
        let Some(newest) = newest.filter(|newest| newest.next == part.from) else {
            return Err(TargetError::Fenced(part.place.clone()));
        };
        let bounds = Bounds {
            from: part.from,
            next: part.next,
        };
        self.folder.replace(
            &manifest::pending_path(part.place),
            &self.writer,
            &bounds.to_bytes(),
        )?;
        self.steps.reach("bounds")?;
        let files = self.write_files(part)?;
        let newest = self.commit(part, &newest, files)?;
        self.places.lock().insert(part.place.clone(), newest);
        Ok(())
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        let mut positions = Vec::new();
        for place in self.folder.places()? {
            if let Some((manifest, _)) = self.newest(&place)? {
                positions.push((place, manifest.next));
            }
        }
        Ok(positions)
    }

    async fn set_position(&mut self, place: &Place, next: u64) -> Result<(), TargetError> {
        let opened = self.open(place, next).await?;
        let newest = self.places.lock().get(place).cloned();
        let Some(newest) = newest else {
            return Err(TargetError::Fenced(place.clone()));
        };
        let rows = crate::rows::Rows::new(0);
        let part = Part {
            place,
            epoch: opened.epoch,
            from: opened.next,
            next,
            rows: crate::rows::Slice {
                rows: &rows,
                range: 0..0,
            },
            records: 0,
        };
        let newest = self.commit(&part, &newest, Vec::new())?;
        self.places.lock().insert(place.clone(), newest);
        Ok(())
    }

    async fn prepare(&mut self, make: bool) -> Result<Vec<String>, TargetError> {
        self.folder.prepare(make)
    }

    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }
}
