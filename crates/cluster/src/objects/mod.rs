//! Objects of a cell: immutable bytes under names that are never used twice.
//!
//! ```text
//! EPOCH-NONCE/NUMBER     written by the owner of that epoch and fence; 16 and 32 hexadecimal digits, and 10
//! ```
//!
//! **An object is put before the database refers to it.** After a put without an answer the same bytes are
//! put under another name, so nothing is compared and no condition is needed.
//!
//! **An object without a reference is garbage** if its writer was fenced, or has given its number up: it gets
//! none any more. An object that loses its reference is noted in the same transaction, and deleted later.

mod bucket;
mod folder;
mod location;

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::Arc;

use stafett_model::Lock;
use stafett_model::checksum::crc32c;

pub use bucket::BucketObjects;
pub use folder::FolderObjects;
pub use location::{Location, LocationError};

use crate::database::DatabaseError;
use crate::ownership::Claim;

/// Most bytes of an object.
pub const OBJECT_BYTES_MAX: usize = 4 << 20;

/// Reason why a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ObjectsError {
    /// The outcome is unknown. Another attempt may succeed.
    #[error("the object store does not answer: {0}")]
    Unreachable(String),
    /// Another attempt would be refused as well.
    #[error("the object store refuses: {0}")]
    Refused(String),
}

/// The objects of a cell. Calls block.
pub trait Objects: Send + Sync + fmt::Debug {
    /// Returns an error if the store cannot be used.
    fn prepare(&self) -> Result<(), ObjectsError>;
    /// Puts an object. After an error it may be there, or come later.
    fn put(&self, name: &str, body: &[u8]) -> Result<(), ObjectsError>;
    /// Returns the bytes of an object. `None`: there is none of that name.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectsError>;
    /// Deletes an object, if it is there.
    fn delete(&self, name: &str) -> Result<(), ObjectsError>;
    /// Returns names and sizes of objects behind a name, in the order of names. None: there are no more.
    fn list(&self, behind: &str) -> Result<Vec<(String, u64)>, ObjectsError>;
}

/// Bytes of a file that are an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Place in the file.
    pub at: u64,
    pub bytes: u32,
    pub object: String,
    /// CRC-32C of the bytes.
    pub checksum: u32,
}

impl Part {
    /// Describes a body that was put.
    pub(crate) fn of(at: u64, object: String, body: &[u8]) -> Self {
        Self {
            at,
            bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
            object,
            checksum: crc32c(body),
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.at + u64::from(self.bytes)
    }

    /// Returns true if a body is the one that was put.
    pub(crate) fn is_of(&self, body: &[u8]) -> bool {
        body.len() as u64 == u64::from(self.bytes) && crc32c(body) == self.checksum
    }
}

/// Opens the objects of a cell.
pub fn open_objects(location: Location, cell: i32) -> std::io::Result<Arc<dyn Objects>> {
    Ok(match location.of_cell(cell) {
        Location::Bucket(spec) => Arc::new(BucketObjects::new(spec)?),
        Location::Folder(folder) => Arc::new(FolderObjects::new(folder)),
    })
}

/// Names of an owner's objects.
#[derive(Debug)]
pub(crate) struct Names {
    epoch: u64,
    prefix: String,
    state: Lock<Numbers>,
}

#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    /// Numbers of objects that the database may yet refer to.
    open: BTreeSet<u64>,
}

/// A name in use: until this is dropped, the database may yet refer to the object.
#[derive(Debug)]
pub(crate) struct Name {
    names: Arc<Names>,
    number: u64,
}

impl Names {
    pub(crate) fn new(claim: Claim) -> Self {
        let mut prefix = format!("{:016x}-", claim.epoch);
        for byte in claim.fence.nonce {
            let _ = write!(prefix, "{byte:02x}");
        }
        Self {
            epoch: claim.epoch,
            prefix,
            state: Lock::default(),
        }
    }

    /// Returns a name that was never used.
    pub(crate) fn take(self: &Arc<Self>) -> Name {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.open.insert(number);
        drop(state);
        Name {
            names: Arc::clone(self),
            number,
        }
    }

    /// Returns the bound of numbers that are not in use any more.
    pub(crate) fn given_up(&self) -> u64 {
        let state = self.state.lock();
        state.open.first().copied().unwrap_or(state.next)
    }

    /// Returns true if an object without a reference in the database gets none any more. `given_up` is from
    /// before the look at the store.
    pub(crate) fn is_final(&self, name: &str, given_up: u64) -> bool {
        let Some((writer, number)) = name.split_once('/') else {
            return false;
        };
        if writer == self.prefix {
            let number = number.strip_suffix(folder::UNFINISHED).unwrap_or(number);
            return number.parse::<u64>().is_ok_and(|number| number < given_up);
        }
        let epoch = writer.split_once('-').map(|(epoch, _)| epoch);
        epoch
            .and_then(|epoch| u64::from_str_radix(epoch, 16).ok())
            .is_some_and(|epoch| epoch < self.epoch)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:010}", self.names.prefix, self.number)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.names.state.lock().open.remove(&self.number);
    }
}

impl From<ObjectsError> for DatabaseError {
    fn from(error: ObjectsError) -> Self {
        match error {
            ObjectsError::Unreachable(_) => Self::Unreachable(error.to_string()),
            ObjectsError::Refused(_) => Self::Refused(error.to_string()),
        }
    }
}
