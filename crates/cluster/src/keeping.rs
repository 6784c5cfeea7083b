//! Work of an owner beside the journal's: it moves sealed segments into the object store, so that the
//! database has the journal's end and references alone, and deletes garbage.
//!
//! A segment is sealed once a row of a later one is committed, and those of former owners are. Objects of its
//! rows that are large enough stay as they are; everything between them is put again, in larger ones. A
//! segment with a lost object among these waits until that is back (`lost`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stafett_journal::disk::storage::WritePattern;
use stafett_model::Lock;

use crate::agreement::{Found, compare, reference};
use crate::database::{ChangedFile, Kept, Publication};
use crate::file::SharedFile;
use crate::objects::{Name, OBJECT_BYTES_MAX, Part};
use crate::remote::Remote;
use crate::storage::{Entry, SharedStorage};
use crate::transfer::at_once;

/// Least bytes of a row's object that stays as it is when its segment is sealed.
const KEPT_BYTES_MIN: u32 = 1 << 20;
/// Interval between looks for sealed segments.
const SEAL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between looks for garbage that is old enough.
const GARBAGE_INTERVAL: Duration = Duration::from_mins(1);
/// Interval between looks at the whole store for objects that the database does not know.
const SWEEP_INTERVAL: Duration = Duration::from_hours(6);
/// Unknown objects that are remembered until they are old enough.
const YOUNG_MAX: usize = 100_000;
/// Objects that are deleted at a time.
const DELETED_MAX: usize = 64;

/// A segment or file that can be moved.
struct Movable {
    name: String,
    source: Source,
    bytes: u64,
    /// Objects that have bytes of it.
    objects: Vec<Part>,
}

impl Movable {
    /// Returns true if one of these objects would have to be read.
    fn waits_for(&self, lost: &BTreeSet<String>) -> bool {
        let is_read = |part: &&Part| part.bytes < KEPT_BYTES_MIN;
        let mut read = self.objects.iter().filter(is_read);
        matches!(self.source, Source::Stored(_)) && read.any(|part| lost.contains(&part.object))
    }
}

enum Source {
    Here(Arc<SharedFile>),
    Stored(Arc<Remote>),
}

/// Bytes of a segment between two places: an object that stays, or one to be put.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    from: u64,
    to: u64,
    kept: Option<Part>,
}

/// Cuts a segment into pieces.
fn pieces(bytes: u64, objects: &[Part]) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut at = 0;
    let fill = |from: u64, to: u64, found: &mut Vec<Piece>| {
        let mut from = from;
        while from < to {
            let end = to.min(from + OBJECT_BYTES_MAX as u64);
            found.push(Piece {
                from,
                to: end,
                kept: None,
            });
            from = end;
        }
    };
    for part in objects.iter().filter(|part| part.bytes >= KEPT_BYTES_MIN) {
        fill(at, part.at, &mut found);
        at = part.end();
        found.push(Piece {
            from: part.at,
            to: at,
            kept: Some(part.clone()),
        });
    }
    fill(at, bytes, &mut found);
    found
}

impl SharedStorage {
    /// Starts a thread that keeps the storage until it is dropped.
    pub fn keep(self: &Arc<Self>) -> io::Result<()> {
        if self.uplink.settings.objects.is_none() {
            return Ok(());
        }
        let weak = Arc::downgrade(self);
        let thread = std::thread::Builder::new()
            .name("cluster-keep".into())
            .spawn(move || {
                let mut times = Times::default();
                while let Some(storage) = weak.upgrade() {
                    if storage.is_ending() || !storage.keep_once(&mut times) {
                        return;
                    }
                    storage.wait_for_end(SEAL_INTERVAL);
                }
            })?;
        *self.keeper.lock() = Some(thread);
        Ok(())
    }

    /// Does the work that is due. False after a failure.
    fn keep_once(&self, times: &mut Times) -> bool {
        // One that fails does not keep the others back.
        let mut done = self.seal().map(drop);
        if times.is_due(|times| &mut times.garbage, GARBAGE_INTERVAL) {
            let deleted = self.delete_garbage().map(drop);
            done = done.and(deleted);
        }
        if times.is_due(|times| &mut times.sweep, SWEEP_INTERVAL)
            && let Err(error) = self.sweep()
        {
            times.sweep = Instant::now().checked_sub(SWEEP_INTERVAL.saturating_sub(GARBAGE_INTERVAL));
            done = done.and(Err(error));
        }
        let bytes = i64::try_from(self.uplink.cache.bytes()).unwrap_or(i64::MAX);
        self.uplink.settings.metrics.cache_bytes.set(bytes);
        match done {
            Ok(()) => true,
            Err(_) if self.uplink.check().is_err() => false,
            Err(error) => {
                tracing::warn!(%error, "the storage is kept later");
                true
            }
        }
    }

    /// Moves sealed segments from the database into the object store, and large files that were there before
    /// there was an object store. Returns their number.
    pub fn seal(&self) -> io::Result<usize> {
        if self.uplink.settings.objects.is_none() {
            return Ok(0);
        }
        self.look_for_lost()?;
        let (mut moved, mut failure) = (0, None);
        for movable in self.movables()? {
            if self.is_ending() || self.uplink.lost.is_full() {
                break;
            }
            if movable.waits_for(&self.uplink.lost.names()) {
                continue;
            }
            match self.move_to_objects(&movable) {
                Ok(is_moved) => moved += usize::from(is_moved),
                Err(error) => {
                    self.uplink.check()?;
                    // The next one may be sound.
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(moved), Err)
    }

    fn movables(&self) -> io::Result<Vec<Movable>> {
        let newest = self.uplink.queue.lock().newest().map(str::to_owned);
        let large = self.uplink.settings.inline_bytes_max as u64;
        let mut found = Vec::new();
        let mut stored = Vec::new();
        for (name, entry) in &self.names()?.files {
            let is_segment = WritePattern::of(name) == WritePattern::Append;
            match entry {
                Entry::Here(file) if is_segment && newest.as_ref().is_some_and(|newest| name < newest) => {
                    if let Some((bytes, objects)) = file.committed() {
                        found.push(Movable {
                            name: name.clone(),
                            source: Source::Here(Arc::clone(file)),
                            bytes,
                            objects,
                        });
                    }
                }
                Entry::Here(_) => {}
                Entry::Stored(remote) => {
                    let is_movable = match remote.kept() {
                        Kept::Rows => is_segment,
                        Kept::Blocks => WritePattern::of(name) == WritePattern::Once && remote.bytes > large,
                        Kept::Parts => false,
                    };
                    if is_movable {
                        stored.push(Arc::clone(remote));
                    }
                }
            }
        }
        for remote in stored {
            let (_, objects) = remote.parts(&self.uplink)?;
            found.push(Movable {
                name: remote.name.clone(),
                bytes: remote.bytes,
                source: Source::Stored(remote),
                objects: objects.to_vec(),
            });
        }
        Ok(found)
    }

    /// Returns false if it was removed meanwhile.
    fn move_to_objects(&self, movable: &Movable) -> io::Result<bool> {
        let pieces = pieces(movable.bytes, &movable.objects);
        let put: Lock<Vec<(Option<Name>, Part)>> = Lock::default();
        at_once(self.uplink.settings.requests_max, &pieces, |piece| {
            let done = if let Some(part) = &piece.kept {
                (None, part.clone())
            } else {
                let body = self.read(movable, piece)?;
                let (name, part) = self.uplink.put(piece.from, body)?;
                (Some(name), part)
            };
            put.lock().push(done);
            Ok(())
        })?;
        let (names, mut parts): (Vec<Option<Name>>, Vec<Part>) = put.into_inner().into_iter().unzip();
        parts.sort_by_key(|part| part.at);
        let is_moved = self.uplink.in_turn(|| self.publish_moved(movable, parts))?;
        // The database refers to the objects, or never will.
        drop(names);
        if is_moved {
            self.uplink.settings.metrics.sealed_segments.inc();
            if let Source::Here(file) = &movable.source {
                self.uplink.cache.add_file(file, movable.bytes);
            }
        }
        Ok(is_moved)
    }

    /// Reads a piece.
    fn read(&self, movable: &Movable, piece: &Piece) -> io::Result<Vec<u8>> {
        match &movable.source {
            Source::Here(file) => file.written(piece.from, piece.to),
            Source::Stored(remote) => {
                let mut body = vec![0; usize::try_from(piece.to - piece.from).unwrap_or(OBJECT_BYTES_MAX)];
                let read = remote.read_at(&self.uplink, &mut body, piece.from)?;
                if read < body.len() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(body)
            }
        }
    }

    /// Has the database refer to the parts instead, unless the file was removed. The caller has the turn.
    fn publish_moved(&self, movable: &Movable, parts: Vec<Part>) -> io::Result<bool> {
        let is_there = match (self.names()?.files.get(&movable.name), &movable.source) {
            (Some(Entry::Here(file)), Source::Here(source)) => Arc::ptr_eq(file, source),
            (Some(Entry::Stored(remote)), Source::Stored(source)) => Arc::ptr_eq(remote, source),
            _ => false,
        };
        if !is_there {
            return Ok(false);
        }
        // First, as a reader must not look for rows that are gone.
        if let Source::Stored(remote) = &movable.source {
            remote.set_parts(parts.clone());
        }
        self.uplink.send(&Publication {
            removed: Vec::new(),
            changed: vec![ChangedFile {
                name: movable.name.clone(),
                bytes: movable.bytes,
                is_new: true,
                blocks: Vec::new(),
                parts: Some(parts.clone()),
            }],
        })?;
        if let Source::Here(file) = &movable.source {
            file.on_stored(movable.bytes, parts);
        }
        Ok(true)
    }

    /// Deletes objects that nothing has referred to for long enough. Returns their number.
    pub fn delete_garbage(&self) -> io::Result<usize> {
        let uplink = &self.uplink;
        let mut deleted = 0;
        loop {
            let garbage = uplink.until_answered(|| uplink.database.garbage(uplink.settings.garbage_after))?;
            if garbage.is_empty() || self.is_ending() {
                return Ok(deleted);
            }
            let (gone, failure) = self.delete(&garbage);
            if !gone.is_empty() {
                uplink.until_answered(|| uplink.database.forget_garbage(&gone))?;
                deleted += gone.len();
            } else if let Some(error) = failure {
                return Err(error);
            }
        }
    }

    /// Deletes objects that the database does not know and never will, once earlier looks have found them
    /// unknown for as long as garbage stays. Returns their number.
    pub fn sweep(&self) -> io::Result<usize> {
        let uplink = &self.uplink;
        let Some(objects) = &uplink.settings.objects else {
            return Ok(0);
        };
        let given_up = uplink.names.given_up();
        // After a failure, statements may be under way whose names were given up.
        uplink.check()?;
        let mut deleted = 0;
        let mut unknown = Vec::new();
        let before = std::mem::take(&mut *self.unknown.lock());
        let now = uplink.settings.clock.now();
        let mut young = BTreeMap::new();
        let mut delete = |unknown: &mut Vec<String>| -> io::Result<()> {
            let mut names = std::mem::take(unknown);
            // A list may lack names: each is asked for.
            for name in std::mem::take(&mut names) {
                if uplink
                    .until_answered(|| reference(&*uplink.database, &name))?
                    .is_none()
                {
                    names.push(name);
                }
            }
            let (gone, failure) = self.delete(&names);
            deleted += gone.len();
            failure.map_or(Ok(()), Err)
        };
        let compared = compare(&*uplink.database, &**objects, &mut |found| {
            if let Found::OnlyStored { object, .. } = found
                && uplink.names.is_final(&object, given_up)
            {
                let since = before.get(&object).copied().unwrap_or(now);
                if now.saturating_sub(since) >= uplink.settings.garbage_after {
                    unknown.push(object);
                } else if young.len() < YOUNG_MAX {
                    young.insert(object, since);
                }
            }
            if unknown.len() >= DELETED_MAX {
                let deleted = delete(&mut unknown);
                deleted.map_err(|error| crate::DatabaseError::Unreachable(error.to_string()))?;
            }
            Ok(())
        });
        compared.map_err(|error| io::Error::other(error.to_string()))?;
        delete(&mut unknown)?;
        *self.unknown.lock() = young;
        Ok(deleted)
    }

    /// Deletes objects. Returns the names of those that are gone, and the first failure: an object that
    /// cannot be deleted holds up no other.
    fn delete(&self, names: &[String]) -> (Vec<String>, Option<io::Error>) {
        let uplink = &self.uplink;
        let Some(objects) = &uplink.settings.objects else {
            return (names.to_vec(), None);
        };
        let (gone, failure) = (Lock::new(Vec::new()), Lock::new(None));
        let ended = at_once(uplink.settings.requests_max, names, |name| {
            match objects.delete(name) {
                Ok(()) => {
                    uplink.settings.metrics.deleted_objects.inc();
                    gone.lock().push(name.clone());
                }
                Err(error) => {
                    let mut failure = failure.lock();
                    failure.get_or_insert(io::Error::other(error.to_string()));
                }
            }
            Ok(())
        });
        let (gone, failure) = (std::mem::take(&mut *gone.lock()), failure.lock().take());
        (gone, failure.or_else(|| ended.err()))
    }
}

/// When things were done last.
#[derive(Debug, Default)]
struct Times {
    garbage: Option<Instant>,
    sweep: Option<Instant>,
}

impl Times {
    /// Returns true, and notes the time, if something was not done for an interval.
    fn is_due(&mut self, time: fn(&mut Self) -> &mut Option<Instant>, interval: Duration) -> bool {
        let last = time(self);
        let is_due = last.is_none_or(|last| last.elapsed() >= interval);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(at: u64, bytes: u32) -> Part {
        Part {
            at,
            bytes,
            object: format!("e/{at}"),
            checksum: 0,
        }
    }

    #[test]
    fn large_objects_stay_and_all_else_is_put_together() {
        const MIB: u64 = 1 << 20;
        let objects = [
            part(100, 5),
            part(MIB, 2 << 20),
            part(3 * MIB, 1 << 20),
            part(9 * MIB, 10),
        ];
        let found = pieces(10 * MIB, &objects);
        let places: Vec<(u64, u64, bool)> = found
            .iter()
            .map(|it| (it.from, it.to, it.kept.is_some()))
            .collect();
        assert_eq!(
            places,
            [
                (0, MIB, false),
                (MIB, 3 * MIB, true),
                (3 * MIB, 4 * MIB, true),
                (4 * MIB, 8 * MIB, false),
                (8 * MIB, 10 * MIB, false),
            ]
        );
        assert_eq!(pieces(0, &[]), []);
    }
}
