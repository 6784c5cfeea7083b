//! A file of the journal: a local copy whose changes go to the database or into objects, or one that is read
//! from there.
//!
//! A node has copies of its own files, as long as the cache has space for those that do not change any more.
//! Files of former owners are read from where they are stored, and do not change any more either, but for the
//! checkpoint, which is copied when it is opened.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::sync::Arc;

use stafett_journal::disk::storage::{StorageFile, WritePattern};
use stafett_model::Lock;

use crate::database::{BLOCK_BYTES, ChangedFile};
use crate::objects::Part;
use crate::remote::Remote;
use crate::uplink::Uplink;

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
    /// Segments: bytes that are committed, that a commit was begun for, and that are written.
    committed: u64,
    taken: u64,
    written: u64,
    /// Segments: committed bytes that are in objects.
    objects: Vec<Part>,
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
    /// True if the database has it in parts.
    is_in_parts: bool,
    /// The same content, where it is stored, if that is all of it in objects.
    stored: Option<Arc<Remote>>,
}

#[derive(Debug, Clone)]
enum Content {
    Local(Arc<dyn StorageFile>),
    Remote(Arc<Remote>),
}

/// A segment's name, and a range of its bytes.
type Range = (String, u64, u64);

/// A change to publish.
pub(crate) enum Change {
    Blocks(ChangedFile),
    Whole(Whole),
}

/// A file that is published as objects.
pub(crate) struct Whole {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) local: Arc<dyn StorageFile>,
}

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
    pub(crate) fn remote(uplink: Arc<Uplink>, remote: Arc<Remote>) -> Self {
        let name = remote.name.clone();
        Self::of(uplink, &name, Content::Remote(remote), false)
    }

    fn of(uplink: Arc<Uplink>, name: &str, content: Content, is_new: bool) -> Self {
        let state = FileState {
            name: name.to_owned(),
            content,
            committed: 0,
            taken: 0,
            written: 0,
            objects: Vec::new(),
            is_waiting: false,
            dirty: BTreeSet::new(),
            is_resized: false,
            is_new,
            is_known: !is_new,
            is_removed: false,
            is_in_parts: false,
            stored: None,
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
                "{} is stored and does not change any more",
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

    /// Takes the bytes that no commit was begun for; those written from now on wait for the next one.
    pub(crate) fn take_written(&self) -> Option<Range> {
        let mut state = self.state.lock();
        state.is_waiting = false;
        let (from, to) = (state.taken, state.written);
        state.taken = to;
        (from < to).then(|| (state.name.clone(), from, to))
    }

    /// Reads bytes that were written.
    pub(crate) fn written(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let local = self.local()?;
        let mut body = vec![0; usize::try_from(to - from).unwrap_or(usize::MAX)];
        if local.read_at(&mut body, from)? < body.len() {
            let name = self.state.lock().name.clone();
            return Err(io::Error::other(format!("the local copy of {name} is too short")));
        }
        Ok(body)
    }

    pub(crate) fn on_committed(&self, end: u64, object: Option<Part>) {
        let mut state = self.state.lock();
        state.committed = end;
        state.objects.extend(object);
    }

    /// Returns length and objects of a segment, all of which is committed. `None` if it is sealed already.
    pub(crate) fn committed(&self) -> Option<(u64, Vec<Part>)> {
        let state = self.state.lock();
        let is_open = state.stored.is_none() && !state.is_removed && state.committed > 0;
        (is_open && state.committed == state.written).then(|| (state.committed, state.objects.clone()))
    }

    /// Notes that all of the content is in objects.
    pub(crate) fn on_stored(&self, bytes: u64, parts: Vec<Part>) {
        let mut state = self.state.lock();
        state.is_in_parts = true;
        state.objects = Vec::new();
        if state.dirty.is_empty() {
            state.stored = Some(Arc::new(Remote::of_parts(&state.name, bytes, parts)));
        }
    }

    /// Has a stored file read from where it is stored, and returns the name of the local copy, which is not
    /// needed any more.
    pub(crate) fn let_go(&self) -> Option<String> {
        let mut state = self.state.lock();
        if state.is_removed || matches!(state.content, Content::Remote(_)) {
            return None;
        }
        let stored = state.stored.clone()?;
        state.content = Content::Remote(stored);
        Some(state.name.clone())
    }

    /// Takes the next changes that are not published: all if the file is new, else some.
    pub(crate) fn take_change(&self) -> io::Result<Option<Change>> {
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
        let bytes = local.bytes()?;
        let settings = &self.uplink.settings;
        let is_large = settings.objects.is_some() && bytes > settings.inline_bytes_max as u64;
        if WritePattern::of(&state.name) == WritePattern::Once && (is_large || state.is_in_parts) {
            state.dirty.clear();
            let name = state.name.clone();
            return Ok(Some(Change::Whole(Whole { name, bytes, local })));
        }
        let numbers = match state.dirty.iter().nth(PUBLISHED_BYTES_MAX / BLOCK_BYTES).copied() {
            Some(next) if !is_new => {
                let rest = state.dirty.split_off(&next);
                std::mem::replace(&mut state.dirty, rest)
            }
            _ => std::mem::take(&mut state.dirty),
        };
        let name = state.name.clone();
        drop(state);
        let mut blocks = Vec::with_capacity(numbers.len());
        for number in numbers {
            let mut block = vec![0; BLOCK_BYTES];
            let got = local.read_at(&mut block, u64::from(number) * BLOCK_BYTES as u64)?;
            block.truncate(got);
            if got > 0 {
                blocks.push((number, block));
            }
        }
        Ok(Some(Change::Blocks(ChangedFile {
            name,
            bytes,
            is_new,
            blocks,
            parts: None,
        })))
    }

    /// Records that bytes were written.
    fn note_written(self: &Arc<Self>, at: u64, bytes: usize) {
        let Some(last) = (at + bytes as u64).checked_sub(1).filter(|_| bytes > 0) else {
            return;
        };
        let mut state = self.state.lock();
        if WritePattern::of(&state.name) == WritePattern::Append {
            // Before a commit can take them.
            self.uplink.on_written(bytes as u64);
            state.written = state.written.max(last + 1);
            state.is_known = true;
            if !std::mem::replace(&mut state.is_waiting, true) {
                drop(state);
                self.uplink.wait_for(Arc::clone(self));
            }
            return;
        }
        state.stored = None;
        let number = |byte: u64| u32::try_from(byte / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        state.dirty.extend(number(at)..=number(last));
    }

    /// Returns an error if a segment is not written from its end on.
    fn check_place(&self, at: u64) -> io::Result<()> {
        let state = self.state.lock();
        if WritePattern::of(&state.name) != WritePattern::Append {
            return Ok(());
        }
        if at == state.written && state.stored.is_none() {
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

    fn sync_ahead(&self) -> io::Result<()> {
        let uplink = &self.0.uplink;
        let pattern = WritePattern::of(&self.0.state.lock().name);
        // Each of them would put all of the file.
        if pattern == WritePattern::Once && uplink.settings.objects.is_some() {
            return uplink.check();
        }
        self.sync()
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
