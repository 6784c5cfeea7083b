//! Effects of a step: the answers to give and the state to store.

use bytes::Bytes;

use super::classic::{Joined, NotJoined, Synced};
use super::error::GroupError;

/// Id of a waiting request, unique within the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait(pub u64);

/// Answer to a waiting request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Join(Result<Joined, NotJoined>),
    Sync(Result<Synced, GroupError>),
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
    /// Answers to waiting requests. If the step stores something, they are given once it is stored.
    pub answers: Vec<(Wait, Answer)>,
    pub store: Store,
    /// Number of rebalances that began.
    pub rebalances: u64,
    /// Number of members whose session expired.
    pub expired: u64,
    /// True if the step was only a sign of life: no deadline is earlier and no member is larger than before.
    pub only_alive: bool,
}

impl Effects {
    pub fn join(&mut self, wait: Wait, answer: Result<Joined, NotJoined>) {
        self.answers.push((wait, Answer::Join(answer)));
    }

    pub fn sync(&mut self, wait: Wait, answer: Result<Synced, GroupError>) {
        self.answers.push((wait, Answer::Sync(answer)));
    }
}
