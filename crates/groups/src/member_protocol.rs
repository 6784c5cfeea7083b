//! Codec for the metadata and assignments of classic members, bytes that only a protocol front end can read.
//!
//! The core needs it only to move a group between the two protocols.

use std::fmt;

use bytes::Bytes;

use super::registry::Groups;

/// Partitions of one topic, with the topic's name.
pub type TopicPartitions = (Box<str>, Vec<u32>);

/// Decoded metadata of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberMetadata {
    /// Topics that the member subscribes to.
    pub names: Vec<Box<str>>,
    /// Partitions that the member owns.
    pub owned: Vec<TopicPartitions>,
}

/// Decodes and encodes the metadata and assignments of classic members.
pub trait MemberProtocol: Send + Sync + fmt::Debug {
    /// Returns the purpose (protocol type) of groups whose members use this encoding.
    fn purpose(&self) -> &str;

    /// Decodes a member's metadata. `None` if it is malformed.
    fn read_member(&self, metadata: &Bytes) -> Option<MemberMetadata>;

    /// Decodes an assignment. `None` if it is malformed.
    fn read_assignment(&self, assignment: &Bytes) -> Option<Vec<TopicPartitions>>;

    /// Encodes an assignment for a member with this metadata.
    fn write_assignment(&self, metadata: &Bytes, partitions: &[TopicPartitions]) -> Bytes;
}

impl Groups {
    /// Returns the partitions of a classic member's assignment, by topic. `None` if they cannot be read.
    pub fn read_assignment(&self, assignment: &Bytes) -> Option<Vec<TopicPartitions>> {
        self.member_protocol.as_ref()?.read_assignment(assignment)
    }
}
