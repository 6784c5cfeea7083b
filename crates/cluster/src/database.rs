//! The database of a cell: the order of its commits, their bytes or the objects that hold them, and its
//! owner.
//!
//! ```text
//! cell     epoch, owner
//! beat     beat of the owner
//! range    seq 0, 1, 2, …: (epoch, nonce, name, at, body or object)   arrival segments, in the order of
//!                                                                     commits; a fence has no name
//! file     name, bytes                                                everything else, in blocks or parts;
//!                                                                     arrival segments once they are sealed
//! block    name, number, body
//! part     name, at, bytes, object, checksum
//! garbage  object, since                                              objects that nothing refers to
//! ```
//!
//! **A commit** inserts one row at the next `seq`. It inserts nothing unless the cell has the epoch of the
//! row, the row before has the nonce that the owner gave it, and the key is free.
//!
//! **A claim** raises the epoch, and then commits a fence behind the newest row. From there on no row of the
//! former owner counts: at and below the fence its key is taken, above it the row before is not its own, and
//! a statement that begins now sees the new epoch. A statement with an old snapshot still sees the old epoch
//! and its predecessor, and only the taken key stops it: so a fence is never deleted. Clocks decide nothing.
//!
//! **A publication** changes files and removes segments. It is one transaction that ends with a check of the
//! epoch under a lock of the cell's row. Deleted rows free their keys. A late copy of a committed row could
//! take one again; its segment is sealed, or one that the checkpoint knows as replaced, and its answer goes
//! nowhere. A file in parts is not looked for in rows.

use std::fmt;
use std::time::Duration;

use crate::objects::Part;

/// Random number that makes a row or a node unmistakable.
pub type Nonce = [u8; 16];

/// Bytes of a block of a file.
pub const BLOCK_BYTES: usize = 64 << 10;

/// Most bytes in one row of a segment.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// Reason why a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatabaseError {
    /// The outcome is unknown. Another attempt may succeed.
    #[error("the database does not answer: {0}")]
    Unreachable(String),
    /// Another attempt would be refused as well.
    #[error("the database refuses: {0}")]
    Refused(String),
}

/// The owner of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    pub epoch: u64,
    /// `None`: no node owns the cell.
    pub node: Option<Nonce>,
    /// Rises while the owner lives.
    pub beat: u64,
}

/// A row's place in the order of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    pub seq: u64,
    pub nonce: Nonce,
}

/// A row of the table `range`.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    pub epoch: u64,
    pub link: Link,
    /// Nonce of the row before.
    pub previous: Nonce,
    /// Segment and position of the body; `None` for a fence.
    pub name: Option<&'a str>,
    pub at: u64,
    pub body: Body<'a>,
}

/// Bytes of a row.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    Inline(&'a [u8]),
    Object(&'a Part),
}

impl Body<'_> {
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline(body) => body.len() as u64,
            Self::Object(part) => part.bytes.into(),
        }
    }
}

/// Changes of files that count together.
#[derive(Debug, Default)]
pub struct Publication {
    /// Files and segments that are removed.
    pub removed: Vec<String>,
    pub changed: Vec<ChangedFile>,
}

#[derive(Debug)]
pub struct ChangedFile {
    pub name: String,
    /// Length of the file. Blocks behind it are removed; missing blocks before it are zeros.
    pub bytes: u64,
    /// True if a file of that name, if there is one, is replaced.
    pub is_new: bool,
    /// Changed blocks by number.
    pub blocks: Vec<(u32, Vec<u8>)>,
    /// All of the file as objects, in place of all blocks, rows and parts of its name.
    pub parts: Option<Vec<Part>>,
}

/// The way in which the contents of a name are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Rows,
    Blocks,
    Parts,
}

/// An object that the database knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub object: String,
    pub bytes: u64,
    /// True if nothing refers to it, and it waits for its deletion.
    pub is_garbage: bool,
}

/// The database, as one node sees one cell.
pub trait Database: Send + Sync + fmt::Debug {
    fn owner(&self) -> Result<Owner, DatabaseError>;
    /// Makes `node` the owner with epoch `seen + 1`. False if the epoch is not `seen`.
    fn claim(&self, seen: u64, node: Nonce) -> Result<bool, DatabaseError>;
    /// Raises the beat. False if the epoch is another.
    fn beat(&self, epoch: u64) -> Result<bool, DatabaseError>;
    /// Lets go of the cell, unless the epoch is another.
    fn release(&self, epoch: u64) -> Result<(), DatabaseError>;
    /// Returns the newest row's place.
    fn newest(&self) -> Result<Link, DatabaseError>;
    /// Inserts a row. False if that inserted nothing: then the row at its place says why.
    fn commit(&self, row: &Row<'_>) -> Result<bool, DatabaseError>;
    /// Returns the nonce of the row at a place, once that row is as durable as after an answered commit.
    fn nonce_at(&self, seq: u64) -> Result<Option<Nonce>, DatabaseError>;
    /// Changes files. False if the epoch is another: then nothing is changed. The same publication again
    /// changes nothing more.
    fn publish(&self, epoch: u64, publication: &Publication) -> Result<bool, DatabaseError>;
    /// Returns names and lengths of all segments and files.
    fn list(&self) -> Result<Vec<(String, u64, Kept)>, DatabaseError>;
    /// Reads `bytes` bytes of rows or blocks from byte `from` on. Blocks that a file does not have are zeros.
    /// Fewer bytes: the rest is not there, not any more, or in objects.
    fn read(&self, name: &str, kept: Kept, from: u64, bytes: usize) -> Result<Vec<u8>, DatabaseError>;
    /// Returns the objects that hold a file, or a part of it, in the order of their places.
    fn parts(&self, name: &str, kept: Kept) -> Result<Vec<Part>, DatabaseError>;
    /// Returns objects behind a name, in the order of names. None: there are no more.
    fn references(&self, behind: &str) -> Result<Vec<Reference>, DatabaseError>;
    /// Returns some of the objects that nothing has referred to for a time.
    fn garbage(&self, age: Duration) -> Result<Vec<String>, DatabaseError>;
    /// Returns the number of the cell's object store.
    fn store(&self) -> Result<Option<String>, DatabaseError>;
    /// Sets the number of the cell's object store. False if it is not `seen`.
    fn set_store(&self, seen: Option<&str>, number: &str) -> Result<bool, DatabaseError>;
    /// Forgets garbage, which is deleted.
    fn forget_garbage(&self, objects: &[String]) -> Result<(), DatabaseError>;
}

/// Returns a random number.
pub fn nonce() -> Nonce {
    uuid::Uuid::new_v4().into_bytes()
}

/// Appends the part of a row at `at` that comes next to the bytes read from byte `from` on, up to `bytes`
/// bytes. Nothing if rows before it are missing.
pub(crate) fn append_part(read: &mut Vec<u8>, from: u64, bytes: usize, at: u64, part: &[u8]) {
    let next = from + read.len() as u64;
    let skipped = next
        .checked_sub(at)
        .and_then(|skipped| usize::try_from(skipped).ok());
    if let Some(part) = skipped.and_then(|skipped| part.get(skipped..)) {
        let left = bytes.saturating_sub(read.len());
        read.extend(part.iter().take(left));
    }
}

/// Copies a part that lies at `at` into a buffer that begins at `from`, as far as they overlap.
pub(crate) fn copy_part(buffer: &mut [u8], from: u64, at: u64, part: &[u8]) {
    let skipped = usize::try_from(from.saturating_sub(at)).unwrap_or(usize::MAX);
    let begin = usize::try_from(at.saturating_sub(from)).unwrap_or(usize::MAX);
    let (Some(part), Some(buffer)) = (part.get(skipped..), buffer.get_mut(begin..)) else {
        return;
    };
    let bytes = part.len().min(buffer.len());
    if let (Some(part), Some(buffer)) = (part.get(..bytes), buffer.get_mut(..bytes)) {
        buffer.copy_from_slice(part);
    }
}
