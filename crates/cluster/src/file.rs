//! A file of the journal: a local copy whose changes go to the database, or one that is read from there.
//!
//! A node has copies of its own files. Those of former owners are read from the database, a window at a time,
//! and do not change any more, but for the checkpoint, which is copied when it is opened.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::Arc;

use stafett_journal::disk::storage::{StorageFile, WritePattern};
use stafett_model::Lock;

use crate::database::{BLOCK_BYTES, ChangedFile, Kept, ROW_BYTES_MAX};
use crate::uplink::Uplink;

/// Bytes that are read from the database at a time.
const WINDOW_BYTES: usize = 256 << 10;
/// Bytes of blocks that are published at a time.
pub(crate) const PUBLISHED_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct SharedFile {
    uplink: Arc<Uplink>,
    state: Lock<FileState>,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that do not depend on each other"
)]
struct FileState {
    name: String,
    content: Content,
    /// Segments: bytes that are committed, and that are written.
    committed: u64,
    written: u64,
    /// True if the next commit looks at it.
    is_waiting: bool,
    /// Other files: changed blocks that are not published.
    dirty: BTreeSet<u32>,
    is_resized: bool,
    /// True if the database has no file of that name, or another one.
    is_new: bool,
    /// True if the database may have something of that name.
    is_known: bool,
    is_removed: bool,
}

#[derive(Debug, Clone)]
enum Content {
    Local(Arc<dyn StorageFile>),
    Remote(Arc<Remote>),
}

/// Content in the database.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) kept: Kept,
    /// The bytes that were read last, and their place.
    window: Lock<(u64, Vec<u8>)>,
}

/// A segment's name, and bytes with their place.
pub(crate) type Piece = (String, u64, Vec<u8>);

impl SharedFile {
    /// Makes a new file of a local one.
    pub(crate) fn new(uplink: Arc<Uplink>, name: &str, local: Arc<dyn StorageFile>) -> Self {
        Self::of(uplink, name, Content::Local(local), true)
    }

    /// Makes a file of a local copy of one in the database.
    pub(crate) fn copied(uplink: Arc<Uplink>, name: &str, local: Arc<dyn StorageFile>) -> Self {
        Self::of(uplink, name, Content::Local(local), false)
    }

    /// Makes a file that is read from the database.
    pub(crate) fn remote(uplink: Arc<Uplink>, remote: Remote) -> Self {
        let name = remote.name.clone();
        Self::of(uplink, &name, Content::Remote(Arc::new(remote)), false)
    }

    fn of(uplink: Arc<Uplink>, name: &str, content: Content, is_new: bool) -> Self {
        let state = FileState {
            name: name.to_owned(),
            content,
            committed: 0,
            written: 0,
            is_waiting: false,
            dirty: BTreeSet::new(),
            is_resized: false,
            is_new,
            is_known: !is_new,
            is_removed: false,
        };
        Self {
            uplink,
            state: Lock::new(state),
        }
    }

    fn content(&self) -> Content {
        self.state.lock().content.clone()
    }

    /// Returns the local file.
    fn local(&self) -> io::Result<Arc<dyn StorageFile>> {
        self.uplink.check()?;
        match self.content() {
            Content::Local(local) => Ok(local),
            Content::Remote(remote) => Err(io::Error::other(format!(
                "{} is of a former owner and does not change",
                remote.name
            ))),
        }
    }

    /// Returns true if no local file has the content.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.content(), Content::Remote(_))
    }

    /// Gives the file another name, under which the database does not have it, but perhaps another one.
    pub(crate) fn rename(&self, name: &str, is_known: bool) {
        let mut state = self.state.lock();
        name.clone_into(&mut state.name);
        state.is_new = true;
        state.is_known = is_known;
    }

    /// Marks everything as changed.
    pub(crate) fn mark_all(self: &Arc<Self>) -> io::Result<()> {
        let bytes = self.local()?.bytes()?;
        self.note_written(0, usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Returns true if the database may have something of its name.
    pub(crate) fn is_in_database(&self) -> bool {
        self.state.lock().is_known
    }

    /// Notes that another file of the same name may be in the database.
    pub(crate) fn replaces_another(&self) {
        self.state.lock().is_known = true;
    }

    /// Notes the removal: nothing of it is published any more. Returns true if the database may have it.
    pub(crate) fn remove(&self) -> bool {
        let mut state = self.state.lock();
        state.is_removed = true;
        state.is_known
    }

    /// Starts looking for new bytes: those written from now on wait for the next commit.
    pub(crate) fn begin_commit(&self) {
        self.state.lock().is_waiting = false;
    }

    /// Reads the next bytes that are not committed.
    pub(crate) fn uncommitted(&self) -> io::Result<Option<Piece>> {
        let local = self.local()?;
        let (name, from, to) = {
            let state = self.state.lock();
            (state.name.clone(), state.committed, state.written)
        };
        if from == to {
            return Ok(None);
        }
        let bytes = usize::try_from(to - from).map_or(ROW_BYTES_MAX, |bytes| bytes.min(ROW_BYTES_MAX));
        let mut body = vec![0; bytes];
        if local.read_at(&mut body, from)? < bytes {
            return Err(io::Error::other(format!("the local copy of {name} is too short")));
        }
        Ok(Some((name, from, body)))
    }

    pub(crate) fn on_committed(&self, end: u64) {
        self.state.lock().committed = end;
    }

    /// Takes the next changes that are not published: all if the file is new, else some.
    pub(crate) fn take_change(&self) -> io::Result<Option<ChangedFile>> {
        let Content::Local(local) = self.content() else {
            return Ok(None);
        };
        let mut state = self.state.lock();
        let is_kept_in_blocks = matches!(
            WritePattern::of(&state.name),
            WritePattern::Once | WritePattern::InPlace
        );
        let is_changed = state.is_new || state.is_resized || !state.dirty.is_empty();
        if !is_kept_in_blocks || !is_changed || state.is_removed {
            return Ok(None);
        }
        let is_new = std::mem::take(&mut state.is_new);
        state.is_known = true;
        state.is_resized = false;
        let numbers = match state.dirty.iter().nth(PUBLISHED_BYTES_MAX / BLOCK_BYTES).copied() {
            Some(next) if !is_new => {
                let rest = state.dirty.split_off(&next);
                std::mem::replace(&mut state.dirty, rest)
            }
            _ => std::mem::take(&mut state.dirty),
        };
        let name = state.name.clone();
        drop(state);
        let bytes = local.bytes()?;
        let mut blocks = Vec::with_capacity(numbers.len());
        for number in numbers {
            let mut block = vec![0; BLOCK_BYTES];
            let got = local.read_at(&mut block, u64::from(number) * BLOCK_BYTES as u64)?;
            block.truncate(got);
            if got > 0 {
                blocks.push((number, block));
            }
        }
        Ok(Some(ChangedFile {
            name,
            bytes,
            is_new,
            blocks,
        }))
    }

    /// Records that bytes were written.
    fn note_written(self: &Arc<Self>, at: u64, bytes: usize) {
        let Some(last) = (at + bytes as u64).checked_sub(1).filter(|_| bytes > 0) else {
            return;
        };
        let mut state = self.state.lock();
        if WritePattern::of(&state.name) == WritePattern::Append {
            state.written = state.written.max(last + 1);
            state.is_known = true;
            if !std::mem::replace(&mut state.is_waiting, true) {
                drop(state);
                self.uplink.wait_for(Arc::clone(self));
            }
            return;
        }
        let number = |byte: u64| u32::try_from(byte / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        state.dirty.extend(number(at)..=number(last));
    }

    /// Returns an error if a segment is not written from its end on.
    fn check_place(&self, at: u64) -> io::Result<()> {
        let state = self.state.lock();
        let is_right = WritePattern::of(&state.name) != WritePattern::Append || at == state.written;
        if is_right {
            return Ok(());
        }
        let (name, written) = (&state.name, state.written);
        Err(io::Error::other(format!(
            "{name} has {written} bytes and is written at {at}: segments are appended to"
        )))
    }
}

/// A handle of a file.
#[derive(Debug)]
pub(crate) struct Handle(pub(crate) Arc<SharedFile>);

impl StorageFile for Handle {
    fn write_at(&self, slices: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let local = self.0.local()?;
        self.0.check_place(at)?;
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        local.write_at(slices, at)?;
        self.0.note_written(at, bytes);
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        // An owner that gave up does not answer from its copies.
        self.0.uplink.check()?;
        match self.0.content() {
            Content::Local(local) => local.read_at(buffer, at),
            Content::Remote(remote) => remote.read_at(&self.0.uplink, buffer, at),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let uplink = &self.0.uplink;
        let pattern = WritePattern::of(&self.0.state.lock().name);
        match pattern {
            WritePattern::Append => uplink.commit(),
            WritePattern::Once | WritePattern::InPlace => {
                uplink.in_turn(|| uplink.publish(&[Arc::clone(&self.0)]))
            }
            WritePattern::Temporary => uplink.check(),
        }
    }

    fn bytes(&self) -> io::Result<u64> {
        match self.0.content() {
            Content::Local(local) => local.bytes(),
            Content::Remote(remote) => Ok(remote.bytes),
        }
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.0.local()?.set_bytes(bytes)?;
        self.0.state.lock().is_resized = true;
        Ok(())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.0.local()?.reserve(bytes)
    }
}

impl Remote {
    pub(crate) fn new(name: &str, bytes: u64, kept: Kept) -> Self {
        Self {
            name: name.to_owned(),
            bytes,
            kept,
            window: Lock::default(),
        }
    }

    pub(crate) fn read_at(&self, uplink: &Uplink, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let Some(buffer) = buffer.get_mut(..wanted).filter(|buffer| !buffer.is_empty()) else {
            return Ok(0);
        };
        if self.copy_from_window(buffer, at) {
            return Ok(wanted);
        }
        let bytes = wanted.max(WINDOW_BYTES.min(left));
        let read = || uplink.database.read(&self.name, self.kept, at, bytes);
        let read = uplink.until_answered(read)?;
        if read.len() < bytes {
            // It is no damage: a former owner that does not know its successor yet must not pass over it.
            return Err(io::Error::other(format!(
                "{} is not in the database any more",
                self.name
            )));
        }
        buffer.copy_from_slice(read.get(..wanted).unwrap_or_default());
        if bytes <= WINDOW_BYTES {
            *self.window.lock() = (at, read);
        }
        Ok(wanted)
    }

    fn copy_from_window(&self, buffer: &mut [u8], at: u64) -> bool {
        let window = self.window.lock();
        let (from, bytes) = &*window;
        let begin = at
            .checked_sub(*from)
            .and_then(|begin| usize::try_from(begin).ok());
        let part = begin.and_then(|begin| bytes.get(begin..begin.checked_add(buffer.len())?));
        part.map(|part| buffer.copy_from_slice(part)).is_some()
    }
}
