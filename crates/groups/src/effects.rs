//! Effects of a step: the replies to send and the state to store.

use bytes::Bytes;

use super::error::GroupError;
use super::replies::{JoinError, JoinReply, SyncReply};

/// Id of a waiting request, unique within the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// Reply to a waiting request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberReply {
    Join(Result<JoinReply, JoinError>),
    Sync(Result<SyncReply, GroupError>),
}

/// State of a group that a step has to store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Store {
    #[default]
    Nothing,
    /// The whole state, encoded by [`super::GroupKind::encode`].
    Whole,
    /// A change that [`super::GroupKind::apply`] applies to the stored state.
    Delta(Bytes),
}

/// Effects of a step: state machines add to them, the registry carries them out.
#[derive(Debug, Default)]
pub struct Effects {
    /// Replies to waiting requests. If the step stores something, they are given once it is stored.
    pub replies: Vec<(WaiterId, MemberReply)>,
    pub store: Store,
    /// Number of rebalances that began.
    pub rebalances: u64,
    /// Number of members whose session expired.
    pub expired: u64,
    /// True if the step was only a sign of life: no deadline is earlier and no member is larger than before.
    pub only_alive: bool,
}

impl Effects {
    pub fn join(&mut self, waiter: WaiterId, reply: Result<JoinReply, JoinError>) {
        self.replies.push((waiter, MemberReply::Join(reply)));
    }

    pub fn sync(&mut self, waiter: WaiterId, reply: Result<SyncReply, GroupError>) {
        self.replies.push((waiter, MemberReply::Sync(reply)));
    }
}
