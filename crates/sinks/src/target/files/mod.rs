//! Files in a folder, found by numbered manifests.
//!
//! ```text
//! TOPIC/PARTITION/pending.json              bounds of the batch that is being written
//! TOPIC/PARTITION/FIRST-LAST.NUMBER.EXT     a file that the manifest of that number names
//! TOPIC/PARTITION/FIRST-LAST.NUMBER.EXT.WRITER.part
//! manifest/TOPIC/PARTITION/NUMBER.json      put only if absent: this is the commit
//! ```
//!
//! 1. Bounds first, so that a batch that is begun again is the same one, and leaves no orphans.
//! 2. The files, as parts of this writer, synced with their folder.
//! 3. The manifest under the next number. Of two writers one gets it, and the other is fenced.
//! 4. The parts get their names. After a crash `open` does that for whatever the newest manifest names.
//!
//! Numbers are used once, and so are names of files. A position that is set is a manifest without files: it
//! says from which manifest on earlier ones no longer count, as their records are written again.

mod encode;
mod folder;
mod manifest;

use std::collections::HashMap;
use std::path::PathBuf;

use async_trait::async_trait;
use stafett_model::Lock;
use uuid::Uuid;

use super::{Opened, Part, Place, Promise, Start, Steps, Target, TargetError};
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
    topic: Option<Uuid>,
}

impl Newest {
    fn of(manifest: &Manifest, hash: String) -> Self {
        Self {
            number: manifest.number,
            next: manifest.next,
            hash,
            topic: manifest.topic_id,
        }
    }
}

/// Position behind a manifest, and the first of those that no longer count.
#[derive(Debug, Clone, Copy)]
struct Step {
    from: u64,
    next: u64,
    replaces: Option<u64>,
}

impl Files {
    pub fn new(sink: &str, spec: &FilesSpec, columns: &[Column], wall: WallClock, steps: Steps) -> Self {
        Self {
            sink: sink.to_owned(),
            folder: Folder::new(PathBuf::from(&spec.path)),
            encoder: Encoder::new(spec, columns),
            split_records: spec.split_records.unwrap_or(usize::MAX),
            writer: Uuid::new_v4().simple().to_string(),
            wall,
            steps,
            places: Lock::default(),
        }
    }

    /// Reads the newest manifest of a place, if there is one.
    fn newest(&self, place: &Place) -> Result<Option<(Manifest, String)>, TargetError> {
        let number = self.folder.newest(place)?;
        number.map(|number| self.manifest(place, number)).transpose()
    }

    /// Reads a manifest, and its hash.
    fn manifest(&self, place: &Place, number: u64) -> Result<(Manifest, String), TargetError> {
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
        Ok((read, manifest::hash(&bytes)))
    }

    /// Returns where a sink goes on that is set to a position, and the first manifest that no longer counts.
    ///
    /// Files are replaced as a whole: a position within the records of a manifest becomes its begin, unless
    /// they are no longer all there.
    fn replaced(&self, newest: &Manifest, place: &Place, start: Start) -> Result<Step, TargetError> {
        let mut step = Step {
            from: newest.next,
            next: start.next,
            replaces: None,
        };
        let mut number = newest.number;
        while number > 0 {
            let (manifest, _) = self.manifest(place, number)?;
            if !start.is_of(manifest.topic_id) {
                break;
            }
            if let Some(first) = manifest.replaces {
                number = first.saturating_sub(1);
                continue;
            }
            let within = manifest.from < step.next && step.next < manifest.next;
            if within && manifest.from >= start.earliest && !manifest.files.is_empty() {
                step.next = manifest.from;
            }
            if manifest.from < step.next {
                break;
            }
            step.replaces = Some(number);
            number -= 1;
        }
        Ok(step)
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

    fn write_files(&self, part: &Part<'_>, number: u64) -> Result<Vec<FileEntry>, TargetError> {
        let mut files = Vec::new();
        for start in part.rows.range.clone().step_by(self.split_records) {
            let end = start.saturating_add(self.split_records).min(part.rows.range.end);
            let slice = crate::rows::Slice {
                rows: part.rows.rows,
                range: start..end,
            };
            let bounds = [start, end - 1].map(|row| slice.rows.offset(row).unwrap_or_default());
            let path = manifest::file_path(part.place, number, bounds, self.encoder.extension());
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

    fn commit(
        &self,
        place: &Place,
        step: Step,
        newest: &Newest,
        files: Vec<FileEntry>,
    ) -> Result<Newest, TargetError> {
        let number = newest.number + 1;
        let manifest = Manifest {
            sink: self.sink.clone(),
            number,
            writer: self.writer.clone(),
            previous: newest.hash.clone(),
            written_at: manifest::time((self.wall)()),
            topic: place.topic.clone(),
            topic_id: newest.topic,
            partition: place.partition,
            from: step.from,
            next: step.next,
            replaces: step.replaces,
            files,
        };
        let bytes = manifest.to_bytes();
        let path = manifest::path(place, number);
        if !self.folder.put_if_absent(&path, &self.writer, &bytes)? {
            return Err(TargetError::Fenced(place.clone()));
        }
        self.steps.reach("manifest")?;
        self.name_parts(&manifest)?;
        self.steps.reach("renamed")?;
        Ok(Newest::of(&manifest, manifest::hash(&bytes)))
    }
}

// A flush compresses and waits for the disk on the thread that asks: writing is all that this process does.
#[async_trait]
impl Target for Files {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        self.folder.make(place)?;
        let newest = match self.newest(place)? {
            Some((manifest, hash)) => {
                self.name_parts(&manifest)?;
                Newest::of(&manifest, hash)
            }
            None => Newest {
                number: 0,
                next: start.next,
                hash: String::new(),
                topic: None,
            },
        };
        if !start.is_of(newest.topic) {
            return Err(TargetError::MadeAgain(place.clone()));
        }
        self.steps.reach("opened")?;
        let bounds = self.folder.read(&manifest::pending_path(place))?;
        let bounds = bounds
            .and_then(|bytes| Bounds::parse(&bytes))
            .filter(|bounds| bounds.are_of(newest.number + 1, start));
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
        let topic = start.topic.or(newest.topic);
        let newest = Newest {
            next,
            topic,
            ..newest
        };
        self.places.lock().insert(place.clone(), newest);
        Ok(opened)
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let newest = self.places.lock().get(part.place).cloned();
        let Some(newest) = newest.filter(|newest| newest.next == part.from) else {
            return Err(TargetError::Fenced(part.place.clone()));
        };
        let number = newest.number + 1;
        let bounds = Bounds {
            number: Some(number),
            topic_id: newest.topic,
            from: part.from,
            next: part.next,
        };
        self.folder.replace(
            &manifest::pending_path(part.place),
            &self.writer,
            &bounds.to_bytes(),
        )?;
        self.steps.reach("bounds")?;
        let files = self.write_files(part, number)?;
        let step = Step {
            from: part.from,
            next: part.next,
            replaces: None,
        };
        let newest = self.commit(part.place, step, &newest, files)?;
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

    async fn set_position(&mut self, place: &Place, start: Start) -> Result<(), TargetError> {
        self.folder.make(place)?;
        let (step, newest) = match self.newest(place)? {
            Some((manifest, hash)) => {
                self.name_parts(&manifest)?;
                let step = self.replaced(&manifest, place, start)?;
                (step, Newest::of(&manifest, hash))
            }
            None => {
                let step = Step {
                    from: start.next,
                    next: start.next,
                    replaces: None,
                };
                let newest = Newest {
                    number: 0,
                    next: start.next,
                    hash: String::new(),
                    topic: None,
                };
                (step, newest)
            }
        };
        let newest = Newest {
            topic: start.topic.or(newest.topic),
            ..newest
        };
        let newest = self.commit(place, step, &newest, Vec::new())?;
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
