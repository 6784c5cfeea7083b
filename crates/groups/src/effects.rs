//! What follows from a step: who is answered, and what is stored.

use bytes::Bytes;

use super::classic::{Joined, NotJoined, Synced};
use super::error::GroupError;

/// Names someone who waits for a group. Unique within the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wait(pub u64);

/// What someone who waited gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Join(Result<Joined, NotJoined>),
    Sync(Result<Synced, GroupError>),
}

/// What is to be stored of a group after a step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Store {
    #[default]
    Nothing,
    /// All of its state, by [`super::GroupKind::encode`].
    Whole,
    /// Something that [`super::GroupKind::apply`] applies to it.
    Delta(Bytes),
}

/// What follows from a step. State machines add to it; the registry does it.
#[derive(Debug, Default)]
pub struct Effects {
    /// If something is stored, these are given when it is.
    pub answers: Vec<(Wait, Answer)>,
    pub store: Store,
    /// Rebalances that began.
    pub rebalances: u64,
    /// Members that were silent for too long.
    pub expired: u64,
    /// The step was nothing but a sign of life: no deadline is earlier and no member larger than before.
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
