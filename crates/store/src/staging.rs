//! Frames of keyed state as appends, and the outcomes of appends.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use stafett_journal::{Append, Frame, Journal, Outcome, Refusal, StateWait, Ticket};

use crate::spaces;

/// Bound on the frames of one append, which lies in one write group. A larger change is stored in several
/// appends, of which the later ones complete the first.
pub const FRAMES_MAX: usize = 4096;

/// Reason why a change was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotStored {
    #[error(transparent)]
    Refused(Refusal),
    #[error("the journal stopped before it could tell whether the change was stored")]
    Unknown,
}

/// Kind of such a reason, as far as callers tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStoredKind {
    Unknown,
    DiskFull,
    /// The journal takes nothing more.
    Closed,
    /// A condition of the change does not hold.
    Refused,
}

impl NotStored {
    pub fn kind(self) -> NotStoredKind {
        match self {
            Self::Unknown => NotStoredKind::Unknown,
            Self::Refused(Refusal::DiskFull) => NotStoredKind::DiskFull,
            Self::Refused(Refusal::Closed) => NotStoredKind::Closed,
            Self::Refused(
                Refusal::NoSuchLog(_)
                | Refusal::Fenced { .. }
                | Refusal::OutOfSequence { .. }
                | Refusal::StaleProducer { .. }
                | Refusal::OutsideTransaction { .. }
                | Refusal::NotAtOffset { .. }
                | Refusal::StaleOwner { .. }
                | Refusal::OffsetsExhausted(_)
                | Refusal::TooLarge { .. },
            ) => NotStoredKind::Refused,
        }
    }
}

/// Splits frames, in order, into appends of at most `frames_max` each.
pub fn appends(frames: Vec<Frame>, frames_max: usize, wait: StateWait) -> Vec<Append> {
    if frames.len() <= frames_max {
        return vec![Append::state(frames, wait)];
    }
    let mut appends = Vec::with_capacity(frames.len().div_ceil(frames_max));
    let mut frames = frames.into_iter().peekable();
    while frames.peek().is_some() {
        appends.push(Append::state(frames.by_ref().take(frames_max), wait));
    }
    appends
}

/// Stores frames in one append; durable when this returns.
pub async fn store_synced(
    journal: &dyn Journal,
    frames: impl IntoIterator<Item = Frame>,
) -> Result<(), NotStored> {
    let append = Append::state(frames, StateWait::Synced);
    only_outcome(journal.append(vec![append]).await.pop().as_ref())
}

/// Waits until all changes staged before are durable, for an answer that something is gone already: its
/// deletion may not be stored yet, or the journal may have failed.
pub async fn await_stored(journal: &dyn Journal) -> Result<(), NotStored> {
    // No queue has this id, so the deletion changes nothing.
    store_synced(journal, [spaces::QUEUES.delete(vec![0; 8])]).await
}

/// Returns the result of an append without batches. `None` stands for an unknown outcome.
pub fn only_outcome(outcome: Option<&Outcome>) -> Result<(), NotStored> {
    match outcome {
        Some(Outcome::Committed(_)) => Ok(()),
        Some(Outcome::Refused(refusal)) => Err(NotStored::Refused(*refusal)),
        Some(Outcome::Unknown) | None => Err(NotStored::Unknown),
    }
}

/// Returns the result of several appends without batches: the first failure.
pub fn all_outcomes(outcomes: &[Outcome]) -> Result<(), NotStored> {
    outcomes.iter().try_for_each(|each| only_outcome(Some(each)))
}

/// Outcome of an append of state, as known right after staging. A refusal is always known by then.
#[derive(Debug)]
pub enum StageOutcome {
    Stored,
    Waits(Ticket),
    Refused(Refusal),
}

impl StageOutcome {
    /// Appends state that need not be synced.
    pub fn of(journal: &dyn Journal, frames: impl IntoIterator<Item = Frame>) -> Self {
        Self::of_append(journal, Append::state(frames, StateWait::Written))
    }

    /// Appends settlements of messages, which may use the reserved space while space is short.
    pub fn of_settlements(journal: &dyn Journal, frames: impl IntoIterator<Item = Frame>) -> Self {
        let append = Append {
            frees_space: true,
            ..Append::state(frames, StateWait::Written)
        };
        Self::of_append(journal, append)
    }

    pub fn of_append(journal: &dyn Journal, append: Append) -> Self {
        let mut ticket = journal.append(vec![append]);
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut ticket).poll(&mut context) {
            Poll::Pending => Self::Waits(ticket),
            Poll::Ready(outcomes) => match outcomes.first() {
                Some(Outcome::Committed(_)) => Self::Stored,
                Some(Outcome::Refused(refusal)) => Self::Refused(*refusal),
                // The journal has stopped.
                Some(Outcome::Unknown) | None => Self::Refused(Refusal::Closed),
            },
        }
    }
}
