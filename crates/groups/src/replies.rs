//! Replies to the requests of classic members, of whichever kind their group is.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::GroupError;

/// Id of a member, unique in its group.
pub type MemberId = Arc<str>;

/// Reply to a member of a new generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinReply {
    pub member: MemberId,
    pub generation: i32,
    pub purpose: Option<Box<str>>,
    pub strategy: Option<Box<str>>,
    pub leader: MemberId,
    /// All members, if this one is the leader; otherwise empty.
    pub members: Vec<JoinedMember>,
    /// True if the leader need not assign, as nothing changed.
    pub skip_assignment: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    pub id: MemberId,
    pub instance: Option<Box<str>>,
    pub metadata: Bytes,
}

/// Refused join. `member` is the id with which the client may join again; empty for a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinError {
    pub error: GroupError,
    pub member: MemberId,
}

/// Reply with a member's assignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncReply {
    pub purpose: Option<Box<str>>,
    pub strategy: Option<Box<str>>,
    pub assignment: Bytes,
}
