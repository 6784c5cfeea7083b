//! The storage of a cell's journal: files in the database, with local copies of those that this node wrote.
//!
//! - A sync of an arrival segment commits all segments (`database.rs`).
//! - A sync of another file, or of the names, publishes it. Temporary files are local.
//! - With an object store, large commits and files are objects, and so are segments once they are sealed
//!   (`keeping`).
//! - After a commit or publication under another owner's epoch, everything fails: the journal ends, and
//!   appends that were not committed have no outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stafett_journal::disk::storage::{Storage, StorageFile, WritePattern};
use stafett_model::{Lock, LockGuard, WakeUp};

use crate::commits::COMMITS_MAX;
use crate::database::{Database, Kept};
use crate::file::{Handle, SharedFile};
use crate::ownership::Claim;
use crate::remote::Remote;
use crate::settings::Settings;
use crate::uplink::Uplink;

/// Bytes that are copied from the database at a time.
const COPY_BYTES: usize = 4 << 20;
/// Time in which the keeper has to end its work.
const ENDING_PATIENCE: Duration = Duration::from_secs(3);
/// Time between two checks of that.
const ENDING_PAUSE: Duration = Duration::from_millis(5);
/// File in the local folder that is not the journal's.
const LOCK: &str = "lock";

/// Storage of the owner of a cell.
#[derive(Debug)]
pub struct SharedStorage {
    pub(crate) uplink: Arc<Uplink>,
    scratch: Arc<dyn Storage>,
    names: Lock<Names>,
    /// Objects that the database did not know at the last look, and since when.
    pub(crate) unknown: Lock<BTreeMap<String, Duration>>,
    /// The thread that keeps it.
    pub(crate) keeper: Lock<Option<JoinHandle<()>>>,
    /// True at the end: the rest of the thread's work is left to the next owner.
    ending: Lock<bool>,
    ended: WakeUp,
}

#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) files: BTreeMap<String, Entry>,
    /// Names that the database still has.
    removed: BTreeSet<String>,
}

#[derive(Debug)]
pub(crate) enum Entry {
    /// Of a former owner.
    Stored(Arc<Remote>),
    Here(Arc<SharedFile>),
}

/// A way to end all use of the database from outside.
#[derive(Debug, Clone)]
pub struct Cutoff(Arc<Uplink>);

impl Cutoff {
    /// Makes every later operation of the storage fail.
    pub fn cut_off(&self, reason: &str) {
        drop(self.0.fail(reason.to_owned()));
    }
}

impl SharedStorage {
    /// Opens the storage of a cell that was claimed. `scratch` is for local files: it is emptied.
    pub fn open(
        database: Arc<dyn Database>,
        claim: Claim,
        scratch: Arc<dyn Storage>,
        settings: Settings,
    ) -> io::Result<Self> {
        for name in scratch.list()? {
            if name != LOCK {
                scratch.remove(&name)?;
            }
        }
        let uplink = Arc::new(Uplink::new(database, claim, settings, Arc::clone(&scratch)));
        let listed = uplink.until_answered(|| uplink.database.list())?;
        let mut names = Names::default();
        for (name, bytes, kept) in listed {
            // A late copy of a row may be beside the parts of its segment.
            if kept == Kept::Rows && names.files.contains_key(&name) {
                continue;
            }
            let remote = Arc::new(Remote::new(&name, bytes, kept));
            names.files.insert(name, Entry::Stored(remote));
        }
        Ok(Self {
            uplink,
            scratch,
            names: Lock::new(names),
            unknown: Lock::default(),
            keeper: Lock::default(),
            ending: Lock::default(),
            ended: WakeUp::default(),
        })
    }

    /// Ends the thread that keeps the storage.
    pub fn end_keeping(&self) {
        *self.ending.lock() = true;
        self.ended.notify_all();
        let thread = self.keeper.lock().take();
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            // While the store is away, a put would wait without end.
            let began = Instant::now();
            while !thread.is_finished() && began.elapsed() < ENDING_PATIENCE {
                std::thread::sleep(ENDING_PAUSE);
            }
            if !thread.is_finished() {
                drop(
                    self.uplink
                        .fail("it ends, and the store does not answer".to_owned()),
                );
            }
            let _ = thread.join();
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        *self.ending.lock()
    }

    pub(crate) fn wait_for_end(&self, patience: Duration) {
        let ending = self.ending.lock();
        drop(self.ended.wait_timeout_while(ending, patience, |ending| !*ending));
    }

    pub fn cutoff(&self) -> Cutoff {
        Cutoff(Arc::clone(&self.uplink))
    }

    /// Returns the file of an entry. The checkpoint is copied to the local folder first.
    fn file_of(&self, names: &mut Names, name: &str) -> io::Result<Arc<SharedFile>> {
        let remote = match names.files.get(name) {
            Some(Entry::Here(file)) => return Ok(Arc::clone(file)),
            Some(Entry::Stored(remote)) => Arc::clone(remote),
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let uplink = Arc::clone(&self.uplink);
        if WritePattern::of(name) != WritePattern::InPlace {
            return Ok(Arc::new(SharedFile::remote(uplink, remote)));
        }
        let local = self.copy(&remote)?;
        let file = Arc::new(SharedFile::copied(uplink, name, local));
        names
            .files
            .insert(name.to_owned(), Entry::Here(Arc::clone(&file)));
        Ok(file)
    }

    /// Copies a file to the local folder.
    fn copy(&self, remote: &Remote) -> io::Result<Arc<dyn StorageFile>> {
        let local = self.scratch.create(&remote.name)?;
        local.set_bytes(remote.bytes)?;
        let mut at = 0;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let got = remote.read_at(&self.uplink, &mut buffer, at)?;
            if got == 0 {
                return Ok(local);
            }
            local.write_at(&mut [IoSlice::new(buffer.get(..got).unwrap_or_default())], at)?;
            at += got as u64;
        }
    }

    pub(crate) fn names(&self) -> io::Result<LockGuard<'_, Names>> {
        self.uplink.check()?;
        Ok(self.names.lock())
    }
}

impl Drop for SharedStorage {
    fn drop(&mut self) {
        self.end_keeping();
    }
}

impl Names {
    /// Takes a name out, and notes if the database may still have it.
    fn take(&mut self, name: &str) -> io::Result<Entry> {
        let entry = self.files.remove(name).ok_or(io::ErrorKind::NotFound)?;
        let is_known = match &entry {
            Entry::Here(file) => file.remove(),
            Entry::Stored(_) => true,
        };
        if is_known && WritePattern::of(name) != WritePattern::Temporary {
            self.removed.insert(name.to_owned());
        }
        Ok(entry)
    }

    /// Leaves out names that files were given meanwhile: these replace the removed ones.
    fn still_removed(&self, removed: BTreeSet<String>) -> Vec<String> {
        let is_removed = |name: &String| match self.files.get(name) {
            Some(Entry::Here(file)) => {
                file.replaces_another();
                false
            }
            Some(Entry::Stored(_)) => false,
            None => true,
        };
        removed.into_iter().filter(is_removed).collect()
    }

    /// Returns true if the database may have something of that name, which a new file replaces.
    fn replace(&mut self, name: &str) -> bool {
        let was_removed = self.removed.remove(name);
        self.files.contains_key(name) || was_removed
    }
}

impl Storage for SharedStorage {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut names = self.names()?;
        if names.files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let local = self.scratch.create(name)?;
        let file = Arc::new(SharedFile::new(Arc::clone(&self.uplink), name, local));
        // Ids of arrival segments are never used twice.
        if WritePattern::of(name) != WritePattern::Append && names.replace(name) {
            file.replaces_another();
        }
        names
            .files
            .insert(name.to_owned(), Entry::Here(Arc::clone(&file)));
        Ok(Arc::new(Handle(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let mut names = self.names()?;
        Ok(Arc::new(Handle(self.file_of(&mut names, name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = self.names()?;
        let mut file = self.file_of(&mut names, from)?;
        if file.is_remote() {
            // It becomes a file of another name, with the same content.
            let Some(Entry::Stored(remote)) = names.files.get(from) else {
                return Err(io::ErrorKind::NotFound.into());
            };
            let local = self.copy(remote)?;
            file = Arc::new(SharedFile::new(Arc::clone(&self.uplink), from, local));
            file.mark_all()?;
        }
        self.scratch.rename(from, to)?;
        names.files.remove(from);
        if file.is_in_database() {
            names.removed.insert(from.to_owned());
        }
        file.rename(to, names.replace(to));
        names.files.insert(to.to_owned(), Entry::Here(file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut names = self.names()?;
        if let Entry::Here(_) = names.take(name)? {
            // The cache may have had no space for it any more.
            match self.scratch.remove(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.uplink.in_turn(|| {
            let (files, removed) = {
                let mut names = self.names()?;
                let here = names.files.values().filter_map(|entry| match entry {
                    Entry::Here(file) => Some(Arc::clone(file)),
                    Entry::Stored(_) => None,
                });
                (here.collect::<Vec<_>>(), std::mem::take(&mut names.removed))
            };
            self.uplink.publish(&files)?;
            // Last: until its successor is there, a file is needed.
            let removed = self.names()?.still_removed(removed);
            self.uplink.publish_removed(&removed)
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names()?.files.keys().cloned().collect())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.scratch.free_bytes()
    }

    fn is_append_only(&self) -> bool {
        true
    }

    fn may_recover(&self) -> bool {
        true
    }

    fn sync_threads(&self) -> usize {
        if self.uplink.settings.objects.is_some() {
            COMMITS_MAX
        } else {
            1
        }
    }

    fn syncs_max(&self) -> usize {
        self.uplink.commits_max()
    }

    fn gather(&self) {
        self.uplink.gather();
    }
}
