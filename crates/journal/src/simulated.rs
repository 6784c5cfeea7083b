//! A disk that is not there: it loses power, fails an operation, fills up and flips bits when a test says so.
//!
//! It keeps what programs see (the cache of an operating system) apart from what would outlive a loss of
//! power:
//!
//! - What was written to a file is durable after a sync of that file. Before, any part of it may be: a loss
//!   of power keeps what a seed decides, sector by sector, and of the file's lengths one that it had.
//! - What was created, renamed or removed is durable after a sync of the names. Before, it may have happened
//!   or not.
//! - A sync that fails leaves a part of what was written undone for good, though programs still see it: the
//!   next sync says nothing of it.
//!
//! - A write ends after any byte, where the program is killed in it, the disk is full or an error ends it.
//!
//! A program that was killed or lost its power has handles that do nothing any more: no thread of it that is
//! still running writes to what its successor uses.

mod file;
mod random;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, MutexGuard};

use stafett_model::Lock;

use self::file::FileContent;
use self::random::Random;
use crate::disk::storage::{Storage, StorageFile};

/// A disk and everything on it. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(Arc<Lock<State>>);

/// What goes wrong, at which change of the disk, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub change: u64,
    pub effect: Effect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The power is gone. What the change would have done may or may not be there.
    PowerLoss,
    /// The program is killed: a write ends after any byte, any other change is done or not. The seed decides.
    Kill { seed: u64 },
    /// The change fails; those behind it do not. Any part of a write is done, from its beginning on.
    Error,
    /// The change fails because the disk is full; those behind it do not. Any part of a write is done, from
    /// its beginning on.
    Full,
    /// From then on, all changes fail.
    Broken,
}

/// What can change a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    Create,
    Rename,
    Remove,
    SyncNames,
    Write,
    SetBytes,
    Reserve,
    Sync,
}

#[derive(Debug, Clone)]
struct State {
    names: BTreeMap<String, FileId>,
    durable_names: BTreeMap<String, FileId>,
    /// What happened to names since they were last synced.
    pending_names: Vec<NameChange>,
    files: BTreeMap<FileId, FileContent>,
    next_file: u64,
    capacity_bytes: u64,
    /// Rises with each program that is stopped: handles of earlier ones are dead.
    program: u64,
    changes: Vec<(Change, String)>,
    fault: Option<Fault>,
    powered: bool,
    broken: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FileId(u64);

#[derive(Debug, Clone)]
enum NameChange {
    Create(String, FileId),
    Rename(String, String),
    Remove(String),
}

/// How a change ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    /// It fails; a write may have begun.
    Failed {
        part: Part,
        full: bool,
    },
    /// The program ends in it.
    Stopped(Part),
}

/// How much of a change is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    Whole,
    /// The beginning of a write, by this seed; of any other change all or nothing.
    Beginning(u64),
}

/// The disk as one program sees it.
#[derive(Debug)]
struct Handle {
    disk: SimulatedDisk,
    program: u64,
}

#[derive(Debug)]
struct FileHandle {
    disk: SimulatedDisk,
    program: u64,
    id: FileId,
}

impl SimulatedDisk {
    /// An empty disk without an end.
    pub fn new() -> Self {
        Self::default()
    }

    /// The disk as a program sees it that starts now.
    pub fn storage(&self) -> Arc<dyn Storage> {
        let program = self.lock().program;
        Arc::new(Handle {
            disk: self.clone(),
            program,
        })
    }

    /// Another disk with everything that this one has, and with the same fault ahead; nobody uses it.
    #[must_use]
    pub fn fork(&self) -> Self {
        let mut state = self.lock().clone();
        state.program += 1;
        Self(Arc::new(Lock::new(state)))
    }

    /// Stops the program that uses the disk; everything that it wrote stays.
    pub fn kill(&self) {
        let mut state = self.lock();
        state.program += 1;
        state.fault = None;
        state.broken = false;
        state.powered = true;
    }

    /// Takes the power away and gives it back: of what was not synced, the seed says what is left.
    pub fn lose_power(&self, seed: u64) {
        self.kill();
        let mut state = self.lock();
        let mut random = Random::new(seed);
        state.lose_names(&mut random);
        for file in state.files.values_mut() {
            file.lose_power(&mut random);
        }
    }

    /// What goes wrong next; only one thing at a time does.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.lock().fault = fault;
    }

    /// How many bytes all files together may take. Files that take more already stay as they are.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.lock().capacity_bytes = bytes;
    }

    /// Bytes that files take, in whole blocks.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// How often the disk was changed so far; what failed counts.
    pub fn changes(&self) -> u64 {
        self.lock().changes.len() as u64
    }

    /// What the change of that number did, counted from 1, and to which file.
    pub fn change(&self, number: u64) -> Option<(Change, String)> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.lock().changes.get(index).cloned()
    }

    /// The names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    /// What programs read in a file.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        Some(state.files.get(state.names.get(name)?)?.bytes().to_vec())
    }

    /// Damages a file: turns over the bit `bit % 8`, counted from the lowest, of byte `bit / 8`. False if
    /// there is none.
    pub fn flip_bit(&self, name: &str, bit: u64) -> bool {
        let mut state = self.lock();
        let Some(id) = state.names.get(name).copied() else {
            return false;
        };
        state.files.get_mut(&id).is_some_and(|file| file.flip_bit(bit))
    }

    /// Deletes a file for good, as a hand from outside does. False if there is none.
    pub fn delete(&self, name: &str) -> bool {
        let mut state = self.lock();
        state.durable_names.remove(name);
        state.pending_names.retain(|change| !change.makes(name));
        state.names.remove(name).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            files: BTreeMap::new(),
            next_file: 0,
            capacity_bytes: 1 << 50,
            program: 0,
            changes: Vec::new(),
            fault: None,
            powered: true,
            broken: false,
        }
    }
}

impl State {
    /// Whether a program may go on.
    fn admit(&self, program: u64) -> io::Result<()> {
        let goes_on = self.powered && program == self.program;
        goes_on
            .then_some(())
            .ok_or_else(|| failure("the program was stopped"))
    }

    /// Counts a change and says how it ends.
    fn begin(&mut self, program: u64, change: Change, what: &str) -> io::Result<Fate> {
        self.admit(program)?;
        self.changes.push((change, what.to_owned()));
        let number = self.changes.len() as u64;
        let fault = self
            .fault
            .filter(|fault| fault.change == number)
            .map(|fault| fault.effect);
        let failed = |full| Fate::Failed {
            part: Part::Beginning(number),
            full,
        };
        Ok(match fault {
            _ if self.broken => Fate::Failed {
                part: Part::None,
                full: false,
            },
            None => Fate::Done,
            Some(Effect::PowerLoss) => {
                self.powered = false;
                Fate::Stopped(Part::Whole)
            }
            Some(Effect::Kill { seed }) => {
                self.powered = false;
                Fate::Stopped(Part::Beginning(seed))
            }
            Some(Effect::Error) => failed(false),
            Some(Effect::Full) => failed(true),
            Some(Effect::Broken) => {
                self.broken = true;
                failed(false)
            }
        })
    }

    fn name_of(&self, id: FileId) -> String {
        let name = self
            .names
            .iter()
            .find(|(_, known)| **known == id)
            .map(|(name, _)| name.clone());
        name.unwrap_or_default()
    }

    fn used_bytes(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.files.get(id))
            .map(FileContent::used_bytes)
            .sum()
    }

    fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.used_bytes())
    }

    fn file(&self, id: FileId) -> io::Result<&FileContent> {
        self.files.get(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn lose_names(&mut self, random: &mut Random) {
        let kept = random.survivors(self.pending_names.len());
        for (change, kept) in std::mem::take(&mut self.pending_names).into_iter().zip(kept) {
            if kept {
                change.apply(&mut self.durable_names);
            }
        }
        self.names = self.durable_names.clone();
        let names = &self.names;
        self.files.retain(|id, _| names.values().any(|named| named == id));
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }
}

impl NameChange {
    /// Whether a file has the name after it.
    fn makes(&self, name: &str) -> bool {
        match self {
            Self::Create(made, _) | Self::Rename(_, made) => made == name,
            Self::Remove(_) => false,
        }
    }

    fn apply(&self, names: &mut BTreeMap<String, FileId>) {
        match self {
            Self::Create(name, id) => drop(names.insert(name.clone(), *id)),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
        }
    }
}

fn failure(what: &str) -> io::Error {
    io::Error::other(format!("simulated: {what}"))
}

impl Fate {
    /// Returns what the change returns.
    fn end(self) -> io::Result<()> {
        match self {
            Self::Done => Ok(()),
            Self::Failed { full: true, .. } => Err(io::ErrorKind::StorageFull.into()),
            Self::Failed { full: false, .. } => Err(failure("an input/output error")),
            Self::Stopped(_) => Err(failure("the program was stopped")),
        }
    }

    /// Returns whether a change that is done as a whole or not at all is done.
    fn is_done(self) -> bool {
        match self {
            Self::Done | Self::Stopped(Part::Whole) => true,
            Self::Failed { .. } | Self::Stopped(Part::None) => false,
            Self::Stopped(Part::Beginning(seed)) => Random::new(seed).below(2) == 0,
        }
    }

    /// Returns how many of `bytes` that were to be written at `at` are written.
    fn written(self, at: u64, bytes: usize) -> usize {
        match self {
            Self::Done => bytes,
            Self::Failed { part, .. } | Self::Stopped(part) => part.written(at, bytes),
        }
    }
}

impl Part {
    fn written(self, at: u64, bytes: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Whole => bytes,
            Self::Beginning(seed) => Random::new(seed).cut(at, bytes),
        }
    }
}

impl Handle {
    fn file(&self, id: FileId) -> Arc<dyn StorageFile> {
        Arc::new(FileHandle {
            disk: self.disk.clone(),
            program: self.program,
            id,
        })
    }

    /// Changes names, unless that fails.
    fn change_names(&self, what: Change, name: &str, change: NameChange) -> io::Result<()> {
        let mut state = self.disk.lock();
        let fate = state.begin(self.program, what, name)?;
        if fate.is_done() {
            state.change_names(change);
        }
        fate.end()
    }
}

impl Storage for Handle {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let id = {
            let mut state = self.disk.lock();
            if state.names.contains_key(name) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.next_file += 1;
            let id = FileId(state.next_file);
            state.files.insert(id, FileContent::default());
            id
        };
        self.change_names(Change::Create, name, NameChange::Create(name.to_owned(), id))?;
        Ok(self.file(id))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let state = self.disk.lock();
        state.admit(self.program)?;
        let id = state.names.get(name).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(id))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if !self.disk.lock().names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change_names(
            Change::Rename,
            from,
            NameChange::Rename(from.to_owned(), to.to_owned()),
        )
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if !self.disk.lock().names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change_names(Change::Remove, name, NameChange::Remove(name.to_owned()))
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        let fate = state.begin(self.program, Change::SyncNames, "")?;
        if fate == Fate::Done {
            state.pending_names.clear();
            state.durable_names = state.names.clone();
        }
        fate.end()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.disk.lock();
        state.admit(self.program)?;
        Ok(state.names.keys().cloned().collect())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.disk.lock();
        state.admit(self.program)?;
        Ok(state.free_bytes())
    }
}

impl FileHandle {
    /// Changes the file as far as `fate` lets it, unless there is no space for it.
    fn change(
        &self,
        what: Change,
        takes: impl Fn(&FileContent) -> u64,
        change: impl FnOnce(&mut FileContent, Fate),
    ) -> io::Result<()> {
        let mut guard = self.disk.lock();
        let state = &mut *guard;
        let name = state.name_of(self.id);
        let fate = state.begin(self.program, what, &name)?;
        let free = state.free_bytes();
        let file = state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        if takes(file) > free {
            return Err(io::ErrorKind::StorageFull.into());
        }
        change(file, fate);
        fate.end()
    }
}

impl StorageFile for FileHandle {
    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let end = at + bytes.len() as u64;
        self.change(
            Change::Write,
            |file| file.needs(at, end),
            |file, fate| {
                let written = fate.written(at, bytes.len());
                file.write(at, bytes.get(..written).unwrap_or_default());
            },
        )
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let state = self.disk.lock();
        state.admit(self.program)?;
        let bytes = state.file(self.id)?.bytes();
        let from = usize::try_from(at)
            .ok()
            .and_then(|at| bytes.get(at..))
            .unwrap_or_default();
        let got = from.len().min(buffer.len());
        let (buffer, from) = (
            buffer.get_mut(..got).unwrap_or_default(),
            from.get(..got).unwrap_or_default(),
        );
        buffer.copy_from_slice(from);
        Ok(from.len())
    }

    fn sync(&self) -> io::Result<()> {
        let mut guard = self.disk.lock();
        let state = &mut *guard;
        let name = state.name_of(self.id);
        let fate = state.begin(self.program, Change::Sync, &name)?;
        let file = state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        match fate {
            Fate::Done => file.sync(),
            Fate::Failed { .. } => file.fail_to_sync(&mut Random::new(state.changes.len() as u64)),
            Fate::Stopped(_) => {}
        }
        fate.end()
    }

    fn forget_unsynced(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.admit(self.program)?;
        let file = state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
        file.forget_unsynced();
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        let state = self.disk.lock();
        state.admit(self.program)?;
        Ok(state.file(self.id)?.bytes().len() as u64)
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.change(
            Change::SetBytes,
            |_| 0,
            |file, fate| {
                if fate.is_done() {
                    file.set_bytes(bytes);
                }
            },
        )
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.change(
            Change::Reserve,
            |file| file.needs(0, bytes),
            |file, fate| {
                if fate.is_done() {
                    file.reserve(bytes);
                }
            },
        )
    }
}

#[cfg(test)]
mod tests;
