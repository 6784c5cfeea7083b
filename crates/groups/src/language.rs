//! What members of the classic protocol tell each other, in bytes that only a front end can read.
//!
//! The core asks for it only where it has to: when a group moves between the two protocols.

use std::fmt;

use bytes::Bytes;

/// Partitions of a topic, by its name.
pub type Named = (Box<str>, Vec<u32>);

/// What a member says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spoken {
    pub names: Vec<Box<str>>,
    /// What it has.
    pub has: Vec<Named>,
}

/// Reads and writes what members say.
pub trait Language: Send + Sync + fmt::Debug {
    /// The purpose of groups whose members speak it.
    fn purpose(&self) -> &str;

    fn read_member(&self, metadata: &Bytes) -> Option<Spoken>;

    fn read_assignment(&self, assignment: &Bytes) -> Option<Vec<Named>>;

    /// For a member that says this of itself.
    fn write_assignment(&self, metadata: &Bytes, partitions: &[Named]) -> Bytes;
}
