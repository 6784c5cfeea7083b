//! Backups on a simulated disk: directories beside the files of the program, which share files with them.
//! Copies take no space: they could as well be on another disk.

use std::collections::BTreeMap;
use std::io;

use super::file::FileContent;
use super::{Change, DiskState, FileId, Handle, NameChange, SimulatedDisk};
use crate::disk::OpenError;
use crate::disk::backup::{BackupTarget, is_restored};
use crate::disk::fsck::{CheckReport, check_on};
use crate::disk::storage::{Storage, read_exact_at};

/// The last complete backup.
const COMPLETE: &str = "backup/";
/// A backup that is being made.
const PARTIAL: &str = "partial/";

/// True for names of files in backups.
pub(super) fn is_in_one(name: &str) -> bool {
    name.contains('/')
}

/// The directory of an unfinished backup.
#[derive(Debug)]
struct PartialBackup(Handle);

impl SimulatedDisk {
    /// Returns an empty directory for a backup.
    pub fn begin_backup(&self) -> impl BackupTarget + use<> {
        let mut state = self.lock();
        state.change_directory(PARTIAL, None);
        PartialBackup(Handle {
            disk: self.clone(),
            program: state.program,
        })
    }

    /// Completes a backup; it takes the place of the one before.
    pub fn end_backup(&self) {
        let mut state = self.lock();
        state.change_directory(COMPLETE, None);
        state.change_directory(PARTIAL, Some(COMPLETE));
    }

    /// Replaces the files of the stopped program by copies of those in the last complete backup, and checks
    /// them.
    pub fn restore(&self) -> Result<CheckReport, OpenError> {
        let mut state = self.lock();
        state.names.retain(|name, _| is_in_one(name));
        let names = state.names.clone();
        for (name, id) in &names {
            let Some(name) = name.strip_prefix(COMPLETE).filter(|name| is_restored(name)) else {
                continue;
            };
            if let Some(mut copy) = state.files.get(id).cloned() {
                copy.sync();
                let id = state.new_file(copy);
                state.names.insert(name.to_owned(), id);
            }
        }
        state.pending_names.clear();
        state.durable_names = state.names.clone();
        drop(state);
        let copy = self.fork();
        copy.kill();
        check_on(&copy.storage())
    }
}

impl DiskState {
    /// Renames all files of a directory durably and at once, or removes them.
    fn change_directory(&mut self, from: &str, to: Option<&str>) {
        self.pending_names
            .retain(|change| !change.name().starts_with(from));
        for names in [&mut self.names, &mut self.durable_names] {
            let (moved, kept): (BTreeMap<_, _>, _) = std::mem::take(names)
                .into_iter()
                .partition(|(name, _)| name.starts_with(from));
            *names = kept;
            for (name, id) in moved {
                if let Some((to, name)) = to.zip(name.strip_prefix(from)) {
                    names.insert(format!("{to}{name}"), id);
                }
            }
        }
    }
}

impl PartialBackup {
    /// Adds a file to the backup, if the change is done.
    fn add(&self, name: &str, file: impl FnOnce(&mut DiskState) -> FileId) -> io::Result<()> {
        let mut state = self.0.disk.lock();
        let fate = state.begin(self.0.program, Change::Create, name)?;
        if fate.is_done() {
            let id = file(&mut state);
            state.change_names(NameChange::Create(format!("{PARTIAL}{name}"), id));
        }
        fate.end()
    }
}

impl BackupTarget for PartialBackup {
    fn link(&self, name: &str) -> io::Result<()> {
        let id = self.0.disk.lock().names.get(name).copied();
        let id = id.ok_or(io::ErrorKind::NotFound)?;
        self.add(name, |_| id)
    }

    fn copy(&self, name: &str) -> io::Result<()> {
        self.copy_front(name, self.0.open(name)?.bytes()?)
    }

    fn copy_front(&self, name: &str, bytes: u64) -> io::Result<()> {
        let mut front = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
        read_exact_at(&*self.0.open(name)?, &mut front, 0)?;
        let mut copy = FileContent::default();
        copy.write(0, &front);
        copy.sync();
        self.add(name, |state| state.new_file(copy))
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_names()
    }
}
