//! Local copies of stored bytes, within a bound: files that this node wrote, and parts that it read.
//!
//! The copy that was not used for the longest time goes first. Copies of a node's own files count as used
//! when they were stored; once they are gone, parts take their place.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Weak};

use stafett_journal::disk::storage::{Storage, StorageFile};
use stafett_model::Lock;

use crate::file::SharedFile;
use crate::objects::Part;

#[derive(Debug)]
pub(crate) struct Cache {
    scratch: Arc<dyn Storage>,
    bytes_max: u64,
    state: Lock<State>,
}

#[derive(Debug, Default)]
struct State {
    parts: BTreeMap<String, CachedPart>,
    files: BTreeMap<u64, (Weak<SharedFile>, u64)>,
    /// Parts by their last use.
    used: BTreeMap<u64, String>,
    bytes: u64,
    /// Counts uses.
    clock: u64,
    next_name: u64,
}

#[derive(Debug)]
struct CachedPart {
    local: Arc<dyn StorageFile>,
    name: String,
    bytes: u64,
    used: u64,
}

/// A copy that has to go.
enum Victim {
    Part(String),
    File(Weak<SharedFile>),
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Takes out the copy that was not used for the longest time.
    fn oldest(&mut self) -> Option<Victim> {
        let file = self.files.first_key_value().map(|(used, _)| *used);
        let part = self.used.first_key_value().map(|(used, _)| *used);
        let is_file = match (file, part) {
            (Some(file), Some(part)) => file < part,
            (file, _) => file.is_some(),
        };
        if is_file {
            let (_, (file, bytes)) = self.files.pop_first()?;
            self.bytes -= bytes;
            return Some(Victim::File(file));
        }
        let (_, object) = self.used.pop_first()?;
        let part = self.parts.remove(&object)?;
        self.bytes -= part.bytes;
        Some(Victim::Part(part.name))
    }
}

impl Cache {
    pub(crate) fn new(scratch: Arc<dyn Storage>, bytes_max: u64) -> Self {
        Self {
            scratch,
            bytes_max,
            state: Lock::default(),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    pub(crate) fn has(&self, object: &str) -> bool {
        self.state.lock().parts.contains_key(object)
    }

    /// Reads from the copy of a part, if there is one.
    pub(crate) fn read_at(&self, part: &Part, buffer: &mut [u8], at: u64) -> io::Result<bool> {
        let local = {
            let mut state = self.state.lock();
            let now = state.tick();
            let Some(cached) = state.parts.get_mut(&part.object) else {
                return Ok(false);
            };
            let used = std::mem::replace(&mut cached.used, now);
            let local = Arc::clone(&cached.local);
            if let Some(object) = state.used.remove(&used) {
                state.used.insert(now, object);
            }
            local
        };
        Ok(local.read_at(buffer, at)? == buffer.len())
    }

    /// Keeps a copy of a part, unless the disk refuses.
    pub(crate) fn add(&self, part: &Part, body: &[u8]) {
        let name = {
            let mut state = self.state.lock();
            state.next_name += 1;
            format!("part-{:010}.cache", state.next_name)
        };
        let written = self.scratch.create(&name).and_then(|local| {
            local.write_at(&mut [IoSlice::new(body)], 0)?;
            Ok(local)
        });
        let local = match written {
            Ok(local) => local,
            Err(error) => {
                tracing::warn!(%error, "the cache of parts cannot be written");
                let _ = self.scratch.remove(&name);
                return;
            }
        };
        let mut state = self.state.lock();
        let used = state.tick();
        let bytes = u64::from(part.bytes);
        state.bytes += bytes;
        state.used.insert(used, part.object.clone());
        let cached = CachedPart {
            local,
            name,
            bytes,
            used,
        };
        // Another thread may have read it too.
        if let Some(other) = state.parts.insert(part.object.clone(), cached) {
            state.bytes -= other.bytes;
            state.used.remove(&other.used);
            drop(state);
            let _ = self.scratch.remove(&other.name);
        } else {
            drop(state);
        }
        self.shrink();
    }

    /// Counts the local copy of a file, all of which is stored.
    pub(crate) fn add_file(&self, file: &Arc<SharedFile>, bytes: u64) {
        let mut state = self.state.lock();
        let used = state.tick();
        state.bytes += bytes;
        state.files.insert(used, (Arc::downgrade(file), bytes));
        drop(state);
        self.shrink();
    }

    /// Removes copies until the bound is kept.
    fn shrink(&self) {
        loop {
            let victim = {
                let mut state = self.state.lock();
                if state.bytes <= self.bytes_max {
                    return;
                }
                state.oldest()
            };
            match victim {
                None => return,
                Some(Victim::Part(name)) => drop(self.scratch.remove(&name)),
                Some(Victim::File(file)) => {
                    if let Some(name) = file.upgrade().and_then(|file| file.let_go()) {
                        // A removal of the file may have been first.
                        let _ = self.scratch.remove(&name);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stafett_journal::disk::open_directory;

    use super::*;

    fn part(object: &str, body: &[u8]) -> Part {
        Part::of(0, object.to_owned(), body)
    }

    #[test]
    fn the_part_that_was_not_used_for_the_longest_time_goes() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = open_directory(folder.path()).unwrap();
        let cache = Cache::new(Arc::clone(&scratch), 20);
        let mut buffer = [0; 4];
        for object in ["a", "b"] {
            cache.add(&part(object, b"0123456789"), b"0123456789");
        }
        assert!(cache.read_at(&part("a", b"0123456789"), &mut buffer, 3).unwrap());
        assert_eq!(&buffer, b"3456");
        cache.add(&part("c", b"0123456789"), b"0123456789");
        assert_eq!(
            ["a", "b", "c"].map(|object| cache.has(object)),
            [true, false, true]
        );
        assert_eq!(cache.bytes(), 20);
        let files = scratch.list().unwrap();
        assert_eq!(files.iter().filter(|name| name.starts_with("part-")).count(), 2);
    }
}
