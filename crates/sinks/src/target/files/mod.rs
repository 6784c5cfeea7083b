//! Files in a folder or a bucket, found by numbered manifests.
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
//! In a bucket, objects have the writer in their names and these at once; so there is no fourth step.
//!
//! Numbers are used once, and so are names of files. A position that is set is a manifest without files: it
//! says from which manifest on earlier ones no longer count, as their records are written again.

mod bucket;
mod contents;
mod decode;
mod encode;
mod folder;
mod manifest;
pub(crate) mod parquet;
mod parquet_rows;
pub(crate) mod storage;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use stafett_model::Lock;
use uuid::Uuid;

use super::{Opened, Part, Place, Promise, Start, Steps, Target, TargetError};
use crate::columns::Column;
use crate::definition::FilesSpec;
pub(crate) use contents::{Counting, Covered};
use encode::Encoder;
use manifest::{Bounds, FileEntry, Manifest};
use storage::{Storage, computed};

/// Time of day, in ms since 1970, for the manifests.
pub type WallClock = fn() -> i64;

/// A folder of files.
#[derive(Debug)]
pub struct Files {
    sink: String,
    storage: Storage,
    encoder: Arc<Encoder>,
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
    since: u64,
}

impl Newest {
    fn of(manifest: &Manifest, hash: String) -> Self {
        Self {
            number: manifest.number,
            next: manifest.next,
            hash,
            topic: manifest.topic_id,
            since: manifest.since.unwrap_or(manifest.number),
        }
    }

    /// Of a place without manifests.
    fn none(start: Start) -> Self {
        Self {
            number: 0,
            next: start.next,
            hash: String::new(),
            topic: None,
            since: 0,
        }
    }
}

/// Position behind a manifest, and the first of those that no longer count.
#[derive(Debug, Clone, Copy)]
struct Step {
    from: u64,
    next: u64,
    replaces: Option<u64>,
    /// True for rows, false for a position that is set.
    is_flush: bool,
}

impl Files {
    pub fn new(sink: &str, spec: &FilesSpec, columns: &[Column], wall: WallClock, steps: Steps) -> Self {
        Self {
            sink: sink.to_owned(),
            storage: Storage::of(spec),
            encoder: Arc::new(Encoder::new(spec, columns)),
            split_records: spec.split_records.unwrap_or(usize::MAX),
            writer: Uuid::new_v4().simple().to_string(),
            wall,
            steps,
            places: Lock::default(),
        }
    }

    /// Reads the newest manifest of a place, if there is one.
    async fn newest(&mut self, place: &Place) -> Result<Option<(Manifest, String)>, TargetError> {
        match self.storage.newest(place).await? {
            Some(number) => self.manifest(place, number).await.map(Some),
            None => Ok(None),
        }
    }

    /// Reads a manifest, and its hash.
    async fn manifest(&mut self, place: &Place, number: u64) -> Result<(Manifest, String), TargetError> {
        let bytes = self.storage.read(&manifest::path(place, number)).await?;
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
    async fn replaced(
        &mut self,
        newest: &Manifest,
        place: &Place,
        start: Start,
    ) -> Result<Step, TargetError> {
        let mut step = Step {
            from: newest.next,
            next: start.next,
            replaces: None,
            is_flush: false,
        };
        let mut number = newest.number;
        while number > 0 {
            let (manifest, _) = self.manifest(place, number).await?;
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
            let first = match manifest.since {
                Some(since) if since < number => self.first_behind(place, since..number, step.next).await?,
                _ => number,
            };
            step.replaces = Some(first);
            number = first - 1;
        }
        Ok(step)
    }

    /// Returns the first manifest of a run whose records begin at a position or behind it, as those of its
    /// last one do. The run is behind the first number.
    async fn first_behind(
        &mut self,
        place: &Place,
        run: std::ops::Range<u64>,
        position: u64,
    ) -> Result<u64, TargetError> {
        let (mut low, mut high) = (run.start + 1, run.end);
        while low < high {
            let middle = u64::midpoint(low, high);
            let (manifest, _) = self.manifest(place, middle).await?;
            if manifest.from >= position {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(high)
    }

    async fn write_files(&mut self, part: &Part<'_>, number: u64) -> Result<Vec<FileEntry>, TargetError> {
        let mut files = Vec::new();
        let extension = self.storage.extension(self.encoder.extension(), &self.writer);
        for start in part.rows.range.clone().step_by(self.split_records) {
            let end = start.saturating_add(self.split_records).min(part.rows.range.end);
            let slice = crate::rows::Slice {
                rows: part.rows.rows,
                range: start..end,
            };
            let bounds = [start, end - 1].map(|row| slice.rows.offset(row).unwrap_or_default());
            let path = manifest::file_path(part.place, number, bounds, &extension);
            let (bytes, sha256) = computed(|| {
                let bytes = self.encoder.encode(&slice)?;
                let hash = manifest::hex_hash(&bytes);
                Ok::<_, TargetError>((bytes, hash))
            })?;
            let file = FileEntry {
                path,
                records: end - start,
                bytes: bytes.len(),
                sha256,
            };
            self.storage.write(&file.path, &self.writer, bytes).await?;
            self.steps.reach("file")?;
            files.push(file);
        }
        if let Some(file) = files.first() {
            self.storage.sync_parent(&file.path).await?;
        }
        self.steps.reach("files")?;
        Ok(files)
    }

    async fn commit(
        &mut self,
        place: &Place,
        step: Step,
        newest: &Newest,
        files: Vec<FileEntry>,
    ) -> Result<Newest, TargetError> {
        let number = self.storage.number_behind(place, newest.number)?;
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
            since: Some(if step.is_flush { newest.since } else { number }),
            files,
        };
        let bytes = manifest.to_bytes();
        let path = manifest::path(place, number);
        let hash = manifest::hash(&bytes);
        if !self.storage.put_if_absent(&path, &self.writer, bytes).await? {
            return Err(TargetError::Fenced(place.clone()));
        }
        self.steps.reach("manifest")?;
        self.storage.name_parts(&manifest).await?;
        self.steps.reach("renamed")?;
        Ok(Newest::of(&manifest, hash))
    }

    /// Puts a manifest without files that sets a position: behind a newest one of a known number, whose rows
    /// count as before, or else behind whatever is there.
    async fn put_position(
        &mut self,
        place: &Place,
        known: Option<u64>,
        start: Start,
    ) -> Result<(), TargetError> {
        self.storage.make(place, &self.writer).await?;
        let (step, newest) = if let Some((manifest, hash)) = self.newest(place).await? {
            self.storage.name_parts(&manifest).await?;
            let step = match known {
                None => self.replaced(&manifest, place, start).await?,
                Some(_) => Step {
                    from: manifest.next,
                    next: start.next,
                    replaces: None,
                    is_flush: false,
                },
            };
            (step, Newest::of(&manifest, hash))
        } else {
            let step = Step {
                from: start.next,
                next: start.next,
                replaces: None,
                is_flush: false,
            };
            (step, Newest::none(start))
        };
        if known.is_some_and(|known| known != newest.number) {
            return Err(TargetError::Fenced(place.clone()));
        }
        let newest = Newest {
            topic: start.topic.or(newest.topic),
            ..newest
        };
        let newest = self.commit(place, step, &newest, Vec::new()).await?;
        self.places.lock().insert(place.clone(), newest);
        Ok(())
    }
}

#[async_trait]
impl Target for Files {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        self.storage.make(place, &self.writer).await?;
        let newest = if let Some((manifest, hash)) = self.newest(place).await? {
            self.storage.name_parts(&manifest).await?;
            Newest::of(&manifest, hash)
        } else {
            Newest::none(start)
        };
        if !start.is_of(newest.topic) {
            return Err(TargetError::MadeAgain(place.clone()));
        }
        self.steps.reach("opened")?;
        let bounds = self.storage.read(&manifest::pending_path(place)).await?;
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
        let topic = start.topic.or(newest.topic);
        let opened = Opened {
            next,
            epoch: newest.number,
            begun: bounds.map(|bounds| bounds.next),
            topic: topic.or_else(|| bounds.and_then(|bounds| bounds.topic_id)),
        };
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
        let number = self.storage.number_behind(part.place, newest.number)?;
        let bounds = Bounds {
            number: Some(number),
            topic_id: newest.topic,
            from: part.from,
            next: part.next,
        };
        let pending = manifest::pending_path(part.place);
        self.storage
            .replace(&pending, &self.writer, bounds.to_bytes())
            .await?;
        self.steps.reach("bounds")?;
        let files = self.write_files(part, number).await?;
        let step = Step {
            from: part.from,
            next: part.next,
            replaces: None,
            is_flush: true,
        };
        let newest = self.commit(part.place, step, &newest, files).await?;
        self.places.lock().insert(part.place.clone(), newest);
        Ok(())
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        let mut positions = Vec::new();
        for place in self.storage.places().await? {
            if let Some((manifest, _)) = self.newest(&place).await? {
                positions.push((place, manifest.next));
            }
        }
        Ok(positions)
    }

    async fn set_position(&mut self, place: &Place, start: Start) -> Result<(), TargetError> {
        self.put_position(place, None, start).await
    }

    async fn set_position_since(
        &mut self,
        place: &Place,
        epoch: u64,
        start: Start,
    ) -> Result<(), TargetError> {
        self.put_position(place, Some(epoch), start).await
    }

    async fn prepare(&mut self, make: bool) -> Result<Vec<String>, TargetError> {
        self.storage.prepare(make).await
    }

    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }
}
