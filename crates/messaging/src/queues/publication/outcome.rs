//! Outcomes of the messages of a publication.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use smallvec::SmallVec;
use stafett_journal::{Outcome, PlacedBatch, Refusal, Ticket};
use stafett_model::LogId;
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
    /// Messages of all batches, in the order of their appends.
    pub(in crate::queues) members: Vec<BatchMembers>,
    pub(in crate::queues) outcomes: Vec<AppendOutcome>,
    pub(in crate::queues) reserved: Vec<ReservedRoom>,
    /// Reason why some of it was not stored.
    pub(in crate::queues) failed: Option<AtomicPublishError>,
    /// True if an earlier publication with the same request id was stored instead.
    pub(crate) repeated: bool,
    /// Kept if they are wanted.
    pub(in crate::queues) places: Option<Places>,
}

/// Messages of a batch.
#[derive(Debug)]
pub(in crate::queues) struct BatchMembers {
    /// Index of its append.
    pub(in crate::queues) append: usize,
    /// Number of logs in which it is stored.
    pub(in crate::queues) logs: usize,
    /// Indexes of the messages.
    pub(in crate::queues) messages: Vec<u32>,
}

/// Logs and offsets at which a message is stored, in the order of the logs. Empty for a message that waits,
/// and for one of several that an earlier append with the same request id holds.
pub type StoredAt = SmallVec<[(LogId, u64); 1]>;

/// Places of a publication.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Bases of the batches that are none of its messages.
    pub(crate) others: Vec<u64>,
    /// Places of each message.
    pub(crate) messages: Vec<StoredAt>,
}

impl Places {
    /// Notes where the batches of an append are stored: those of `members` behind all others.
    fn note(&mut self, stored: &[PlacedBatch], members: &[BatchMembers]) {
        let own = members.iter().map(|batch| batch.logs).sum();
        let Some((others, mut own)) = stored.len().checked_sub(own).map(|at| stored.split_at(at)) else {
            return;
        };
        self.others.extend(others.iter().map(|batch| batch.base.0));
        // The batches of an earlier append may have had other messages.
        if stored.iter().any(|batch| batch.duplicate) && self.messages.len() > 1 {
            return;
        }
        for BatchMembers { logs, messages, .. } in members {
            let (batch, behind) = own.split_at(*logs);
            own = behind;
            for (message, at) in messages.iter().zip(0..) {
                let slot = usize::try_from(*message)
                    .ok()
                    .and_then(|slot| self.messages.get_mut(slot));
                if let Some(places) = slot {
                    places.extend(batch.iter().map(|log| (log.log, log.base.0 + at)));
                }
            }
        }
    }
}

/// A message counted by a queue as staged.
#[derive(Debug)]
pub(in crate::queues) struct ReservedRoom {
    pub(in crate::queues) queue: Arc<Queue>,
    pub(in crate::queues) message: u32,
    pub(in crate::queues) bytes: u64,
}

impl AppendTicket {
    /// Waits for a publication that is stored together.
    pub(crate) async fn together(mut self) -> Result<(), AtomicPublishError> {
        std::future::poll_fn(|context| self.poll_outcomes(context)).await;
        self.failed.map_or(Ok(()), Err)
    }

    /// Waits for a publication that is stored together. Returns its places, and true if an earlier one with
    /// the same request id was stored instead.
    pub(crate) async fn placed(self) -> Result<(Places, bool), AtomicPublishError> {
        let mut this = self.with_places();
        std::future::poll_fn(|context| this.poll_outcomes(context)).await;
        let places = this.take_places();
        this.failed.map_or(Ok((places, this.repeated)), Err)
    }

    /// Keeps the places of the messages.
    pub(crate) fn with_places(mut self) -> Self {
        self.places = Some(Places {
            messages: vec![StoredAt::new(); self.outcomes.len()],
            ..Places::default()
        });
        self
    }

    /// Takes the places, which are known with the outcomes.
    pub(crate) fn take_places(&mut self) -> Places {
        self.places.take().unwrap_or_default()
    }

    fn poll_outcomes(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Self {
            ticket,
            members,
            outcomes,
            reserved,
            failed,
            repeated,
            places,
        } = self;
        if let Some(waited_for) = ticket {
            let stored = ready!(Pin::new(waited_for).poll(context));
            *ticket = None;
            // An append without batches of messages is the only one.
            let of_appends = members.chunk_by(|one, next| one.append == next.append);
            let of_appends = of_appends.chain(std::iter::repeat([].as_slice()));
            for (outcome, members) in stored.iter().zip(of_appends) {
                let (result, why) = match outcome {
                    Outcome::Committed(placed) => {
                        *repeated |= placed.iter().any(|batch| batch.duplicate);
                        if let Some(places) = places {
                            places.note(placed, members);
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
                for member in members.iter().flat_map(|batch| &batch.messages) {
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
