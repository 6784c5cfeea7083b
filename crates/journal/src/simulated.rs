//! A simulated disk: it loses power, fails an operation, fills up and flips bits when a test says so.
//!
//! It keeps the data that programs see (the cache of an operating system) apart from the data that survives a
//! loss of power:
//!
//! - Data written to a file is durable after a sync of that file. Before, any part of it may be: a loss of
//!   power keeps a part chosen by a seed, sector by sector, and one of the lengths that the file had.
//! - Creations, renames and removals are durable after a sync of the names. Before, each may have happened or
//!   not.
//! - A sync that fails loses a part of the written data permanently, though programs still see it: the next
//!   sync does not report it.
//!
//! - A fault in a write (kill, full disk or error) ends it after any byte. A write beyond the capacity writes
//!   nothing.
//!
//! After a kill or a loss of power, the handles of the old program no longer work: its remaining threads
//! cannot write to the files of its successor.

mod backup;
mod file;
mod random;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;

use stafett_model::{Lock, LockGuard};

use self::file::FileContent;
use self::random::Random;
use crate::disk::storage::{Storage, StorageFile};

/// A disk with its files. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk(Arc<Lock<DiskState>>);

/// A fault at a change of the disk; changes are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub change: u64,
    pub effect: Effect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The power is lost. The change may or may not have happened.
    PowerLoss,
    /// The program is killed: a write ends after any byte, any other change is done or not. The seed decides.
    Kill { seed: u64 },
    /// The change fails; later ones do not. A write is done up to any byte.
    Error,
    /// The change fails because the disk is full; later ones do not. A write is done up to any byte.
    Full,
    /// This and all later changes fail.
    Broken,
}

/// Kind of a change of the disk.
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
struct DiskState {
    names: BTreeMap<String, FileId>,
    durable_names: BTreeMap<String, FileId>,
    /// Changes of names since the last sync of names.
    pending_names: Vec<NameChange>,
    files: BTreeMap<FileId, FileContent>,
    next_file: u64,
    capacity_bytes: u64,
    /// Number of the current program: handles of earlier ones are dead.
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

/// Result of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangeOutcome {
    Done,
    /// The change fails; a write may be done in part.
    Failed {
        part: Part,
        full: bool,
    },
    /// The program is stopped in it.
    Stopped(Part),
}

/// Completed part of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    Whole,
    /// Start of a write, of a length given by this seed; any other change as a whole or not.
    Beginning(u64),
}

/// The disk as seen by one program.
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
    /// Creates an empty disk with practically unlimited capacity.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the disk as seen by a program that starts now.
    pub fn storage(&self) -> Arc<dyn Storage> {
        let program = self.lock().program;
        Arc::new(Handle {
            disk: self.clone(),
            program,
        })
    }

    /// Copies the disk with its contents and its fault; no program uses the copy.
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

    /// Cuts the power and restores it: the seed decides which unsynced data is left.
    pub fn lose_power(&self, seed: u64) {
        self.kill();
        let mut state = self.lock();
        let mut random = Random::new(seed);
        state.lose_names(&mut random);
        for file in state.files.values_mut() {
            file.lose_power(&mut random);
        }
    }

    /// Sets the next fault; there is at most one.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.lock().fault = fault;
    }

    /// Limits the bytes of all files together. Larger existing files stay.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.lock().capacity_bytes = bytes;
    }

    /// Returns the bytes that files take, in whole blocks.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// Returns the number of changes so far, including failed ones.
    pub fn changes(&self) -> u64 {
        self.lock().changes.len() as u64
    }

    /// Returns the kind and file of change `number`, counted from 1.
    pub fn change(&self, number: u64) -> Option<(Change, String)> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.lock().changes.get(index).cloned()
    }

    /// Returns the names of all files, sorted.
    pub fn names(&self) -> Vec<String> {
        self.lock().own_names()
    }

    /// Returns a file's contents as programs read them.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.lock();
        Some(state.files.get(state.names.get(name)?)?.bytes().to_vec())
    }

    /// Damages a file: flips the bit `bit % 8`, counted from the lowest, of byte `bit / 8`. False if it does
    /// not exist.
    pub fn flip_bit(&self, name: &str, bit: u64) -> bool {
        let mut state = self.lock();
        let Some(id) = state.names.get(name).copied() else {
            return false;
        };
        state.files.get_mut(&id).is_some_and(|file| file.flip_bit(bit))
    }

    /// Deletes a file durably, as an administrator could. False if it does not exist.
    pub fn delete(&self, name: &str) -> bool {
        let mut state = self.lock();
        state.durable_names.remove(name);
        state.pending_names.retain(|change| !change.makes(name));
        state.names.remove(name).is_some()
    }

    fn lock(&self) -> LockGuard<'_, DiskState> {
        self.0.lock()
    }
}

impl Default for DiskState {
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

impl DiskState {
    /// Checks that a program may still use the disk.
    fn admit(&self, program: u64) -> io::Result<()> {
        let goes_on = self.powered && program == self.program;
        goes_on
            .then_some(())
            .ok_or_else(|| failure("the program was stopped"))
    }

    /// Counts a change and returns its fate.
    fn begin(&mut self, program: u64, change: Change, what: &str) -> io::Result<ChangeOutcome> {
        self.admit(program)?;
        self.changes.push((change, what.to_owned()));
        let number = self.changes.len() as u64;
        let fault = self
            .fault
            .filter(|fault| fault.change == number)
            .map(|fault| fault.effect);
        let failed = |full| ChangeOutcome::Failed {
            part: Part::Beginning(number),
            full,
        };
        Ok(match fault {
            _ if self.broken => ChangeOutcome::Failed {
                part: Part::None,
                full: false,
            },
            None => ChangeOutcome::Done,
            Some(Effect::PowerLoss) => {
                self.powered = false;
                ChangeOutcome::Stopped(Part::Whole)
            }
            Some(Effect::Kill { seed }) => {
                self.powered = false;
                ChangeOutcome::Stopped(Part::Beginning(seed))
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
            .iter()
            .filter(|(name, _)| !backup::is_in_one(name))
            .map(|(_, id)| id)
            .filter_map(|id| self.files.get(id))
            .map(FileContent::used_bytes)
            .sum()
    }

    /// Returns the names outside of backups, sorted.
    fn own_names(&self) -> Vec<String> {
        let names = self.names.keys().filter(|name| !backup::is_in_one(name));
        names.cloned().collect()
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

    fn new_file(&mut self, content: FileContent) -> FileId {
        self.next_file += 1;
        let id = FileId(self.next_file);
        self.files.insert(id, content);
        id
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }
}

impl NameChange {
    /// Returns the name that the change is about: the new one of a renamed file.
    fn name(&self) -> &str {
        match self {
            Self::Create(name, _) | Self::Rename(_, name) | Self::Remove(name) => name,
        }
    }

    /// Returns true if the change gives a file this name.
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

impl ChangeOutcome {
    /// Returns the result of the change.
    fn end(self) -> io::Result<()> {
        match self {
            Self::Done => Ok(()),
            Self::Failed { full: true, .. } => Err(io::ErrorKind::StorageFull.into()),
            Self::Failed { full: false, .. } => Err(failure("an input/output error")),
            Self::Stopped(_) => Err(failure("the program was stopped")),
        }
    }

    /// Returns true if an all-or-nothing change is done.
    fn is_done(self) -> bool {
        match self {
            Self::Done | Self::Stopped(Part::Whole) => true,
            Self::Failed { .. } | Self::Stopped(Part::None) => false,
            Self::Stopped(Part::Beginning(seed)) => Random::new(seed).below(2) == 0,
        }
    }

    /// Returns how many of `bytes` bytes at `at` are written.
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
            state.new_file(FileContent::default())
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
        if fate == ChangeOutcome::Done {
            state.pending_names.clear();
            state.durable_names = state.names.clone();
        }
        fate.end()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.disk.lock();
        state.admit(self.program)?;
        Ok(state.own_names())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.disk.lock();
        state.admit(self.program)?;
        Ok(state.free_bytes())
    }
}

impl FileHandle {
    /// Changes the file as far as `fate` allows, unless there is no space for it.
    fn change(
        &self,
        what: Change,
        takes: impl Fn(&FileContent) -> u64,
        change: impl FnOnce(&mut FileContent, ChangeOutcome),
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
            ChangeOutcome::Done => file.sync(),
            ChangeOutcome::Failed { .. } => file.fail_to_sync(&mut Random::new(state.changes.len() as u64)),
            ChangeOutcome::Stopped(_) => {}
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

    fn is_shared(&self) -> io::Result<bool> {
        let state = self.disk.lock();
        state.admit(self.program)?;
        Ok(state.names.values().filter(|id| **id == self.id).count() > 1)
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
