//! Outcomes of the messages of a publication.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use stafett_journal::{Outcome, Refusal, Ticket};
use stafett_store::NotStored;

use crate::queues::Queue;

/// Outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOutcome {
    /// Stored in all targets, with the durability of the strictest.
    Stored,
    Refused(Refused),
    /// The journal stopped before the outcome was known.
    Unknown,
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the queue is as long as it may be")]
    QueueFull,
    #[error(transparent)]
    Journal(Refusal),
    #[error("the message does not fit into a batch")]
    TooLarge,
    #[error("the queue is gone")]
    Gone,
}

/// Failure of a publication that is stored together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicPublishError {
    /// The message at index `at` was refused, and so all of them were.
    Misfit {
        at: usize,
        why: Refused,
    },
    /// The queue in which the messages were to be settled is deleted, with its messages.
    SourceGone,
    NotStored(NotStored),
}

impl AtomicPublishError {
    /// Returns the reason why each message is refused.
    pub(in crate::queues) fn refused(self) -> Refused {
        match self {
            Self::Misfit { why, .. } => why,
            Self::NotStored(NotStored::Refused(refusal)) => Refused::Journal(refusal),
            Self::SourceGone | Self::NotStored(NotStored::Unknown) => Refused::Gone,
        }
    }

    /// Returns the failure as one of the journal, which is closed for messages that have no place any more.
    pub(crate) fn not_stored(self) -> NotStored {
        match self {
            Self::NotStored(why) => why,
            Self::Misfit { .. } | Self::SourceGone => NotStored::Refused(Refusal::Closed),
        }
    }
}

/// Future of the outcomes of a publication's messages, in order.
#[derive(Debug)]
pub struct AppendTicket {
    pub(in crate::queues) ticket: Option<Ticket>,
    /// Indexes of the messages of each append.
    pub(in crate::queues) members: Vec<Vec<u32>>,
    pub(in crate::queues) outcomes: Vec<AppendOutcome>,
    pub(in crate::queues) reserved: Vec<ReservedRoom>,
    /// Reason why some of it was not stored.
    pub(in crate::queues) failed: Option<AtomicPublishError>,
    /// True if an earlier publication with the same request id was stored instead.
    pub(crate) repeated: bool,
    /// Bases of the batches, kept if they are wanted.
    pub(in crate::queues) bases: Option<Vec<u64>>,
}

/// A message counted by a queue as staged.
#[derive(Debug)]
pub(in crate::queues) struct ReservedRoom {
    pub(in crate::queues) queue: Arc<Queue>,
    pub(in crate::queues) message: u32,
    pub(in crate::queues) bytes: u64,
}

impl AppendTicket {
    /// Waits for a publication that is stored together. True if an earlier one with the same request id was
    /// stored instead.
    pub(crate) async fn together(mut self) -> Result<bool, AtomicPublishError> {
        std::future::poll_fn(|context| self.poll_outcomes(context)).await;
        match self.failed {
            None => Ok(self.repeated),
            Some(failed) => Err(failed),
        }
    }

    /// Waits for a publication that is stored together. Returns the bases of all batches.
    pub(crate) async fn placed(mut self) -> Result<Vec<u64>, AtomicPublishError> {
        self.bases = Some(Vec::new());
        std::future::poll_fn(|context| self.poll_outcomes(context)).await;
        match self.failed {
            None => Ok(self.bases.take().unwrap_or_default()),
            Some(failed) => Err(failed),
        }
    }

    fn poll_outcomes(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Self {
            ticket,
            members,
            outcomes,
            reserved,
            failed,
            repeated,
            bases,
        } = self;
        if let Some(waited_for) = ticket {
            let stored = ready!(Pin::new(waited_for).poll(context));
            *ticket = None;
            for (number, outcome) in stored.iter().enumerate() {
                let (result, why) = match outcome {
                    Outcome::Committed(placed) => {
                        *repeated |= placed.iter().any(|batch| batch.duplicate);
                        if let Some(bases) = bases {
                            bases.extend(placed.iter().map(|batch| batch.base.0));
                        }
                        continue;
                    }
                    Outcome::Refused(refusal) => (
                        AppendOutcome::Refused(Refused::Journal(*refusal)),
                        NotStored::Refused(*refusal),
                    ),
                    Outcome::Unknown => (AppendOutcome::Unknown, NotStored::Unknown),
                };
                *failed = Some(AtomicPublishError::NotStored(why));
                for member in members.get(number).into_iter().flatten() {
                    let slot = usize::try_from(*member).ok();
                    if let Some(slot) = slot.and_then(|at| outcomes.get_mut(at)) {
                        *slot = result;
                    }
                }
            }
        }
        for room in reserved.drain(..) {
            let at = usize::try_from(room.message).unwrap_or(usize::MAX);
            if *repeated || outcomes.get(at) != Some(&AppendOutcome::Stored) {
                room.queue.release_room(room.bytes);
            }
        }
        Poll::Ready(())
    }
}

impl Future for AppendTicket {
    type Output = Vec<AppendOutcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        ready!(self.poll_outcomes(context));
        Poll::Ready(std::mem::take(&mut self.outcomes))
    }
}

impl Drop for AppendTicket {
    /// Corrects the counts of a dropped ticket: refusals are known as soon as the append is staged.
    fn drop(&mut self) {
        if !self.reserved.is_empty() {
            let _ = self.poll_outcomes(&mut Context::from_waker(Waker::noop()));
        }
    }
}
