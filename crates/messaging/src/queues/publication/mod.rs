//! Messages that are published together, and the outcome of each.
//!
//! Messages with the same targets share a batch, and a batch with several targets is stored once. Every
//! target keeps the order of the messages.
//!
//! Some publications are one append ([`Atomicity`]): then a queue's refusal either affects this queue only,
//! or fails the whole publication.

mod batches;
mod outcome;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use smallvec::SmallVec;
use stafett_journal::{Append, Frame, RequestId};
use stafett_model::{LogId, Message};
use stafett_store::NotStored;

use super::queue::Queue;
use batches::BatchAssembler;

pub(crate) use outcome::AtomicPublishError;
use outcome::BatchMembers;
pub(super) use outcome::ReservedRoom;
pub use outcome::{AppendOutcome, AppendTicket, Refused, StoredAt};

/// Targets of a message.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    pub queues: SmallVec<[Arc<Queue>; 1]>,
    /// Logs of stored topics.
    pub logs: SmallVec<[LogId; 1]>,
    /// True if one of these topics replaces the messages' timestamps by the time of arrival.
    pub append_time: bool,
    /// True if the logs are not those of topics: the messages wait there until they are due.
    pub is_waiting: bool,
}

/// Index of targets within a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RouteIndex(u32);

/// Messages that are published together.
#[derive(Debug, Default)]
pub struct Publication {
    routes: Vec<Targets>,
    messages: Vec<(Message, RouteIndex)>,
    pub(super) atomicity: Atomicity,
    /// True if a deleted queue refuses messages; else it is no target.
    pub(super) needs_queues: bool,
    /// Id under which the journal stores the publication once, as one append.
    request: Option<RequestId>,
}

/// Atomicity of storing a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Atomicity {
    /// Each batch separately.
    #[default]
    Batch,
    /// All messages that queues take, together; a queue's refusal affects this queue only.
    Taken,
    /// All messages together, or none if one is refused.
    Whole,
}

impl Targets {
    /// Returns the log in which a message waits until it is due.
    pub(crate) fn waiting(log: LogId) -> Self {
        Self {
            logs: SmallVec::from_buf([log]),
            is_waiting: true,
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.logs.is_empty()
    }

    /// Returns true if both have the same targets, in the same order.
    fn are(&self, other: &Self) -> bool {
        let pairs = || self.queues.iter().zip(&other.queues);
        self.logs == other.logs
            && self.append_time == other.append_time
            && self.queues.len() == other.queues.len()
            && pairs().all(|(one, other)| Arc::ptr_eq(one, other))
    }
}

impl Publication {
    /// Creates an empty publication with room for `messages` messages.
    pub fn with_capacity(messages: usize) -> Self {
        Self {
            messages: Vec::with_capacity(messages),
            ..Self::default()
        }
    }

    /// Creates a publication that is stored as one append, without messages refused by queues.
    pub(crate) fn together() -> Self {
        Self {
            atomicity: Atomicity::Taken,
            ..Self::default()
        }
    }

    /// Creates a publication that is stored as one append, or not at all if a queue refuses a message.
    pub(crate) fn whole() -> Self {
        Self {
            atomicity: Atomicity::Whole,
            ..Self::default()
        }
    }

    /// Creates a publication that is stored as one append, or not at all if a queue refuses a message or is
    /// gone.
    pub(crate) fn to_all() -> Self {
        Self {
            needs_queues: true,
            ..Self::whole()
        }
    }

    /// Creates a publication each message of which is stored in all of its queues, or in none if one refuses
    /// it or is gone.
    pub(crate) fn each_to_all(messages: usize) -> Self {
        Self {
            needs_queues: true,
            ..Self::with_capacity(messages)
        }
    }

    /// Sets the request id of a publication, which is then one append: it is stored once, however often it is
    /// appended.
    pub(crate) fn with_request(self, request: Option<RequestId>) -> Self {
        Self { request, ..self }
    }

    pub(super) fn request(&self) -> Option<RequestId> {
        self.request
    }

    /// Adds targets for messages. The targets of consecutive messages are shared if they are the same.
    pub fn route(&mut self, targets: Targets) -> RouteIndex {
        if self.routes.last().is_none_or(|last| !last.are(&targets)) {
            self.routes.push(targets);
        }
        RouteIndex(u32::try_from(self.routes.len() - 1).unwrap_or(u32::MAX))
    }

    pub fn push(&mut self, message: Message, route: RouteIndex) {
        self.messages.push((message, route));
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn routes(&self) -> &[Targets] {
        &self.routes
    }

    /// Returns a message with its targets.
    pub(super) fn get(&self, at: usize) -> Option<(&Message, RouteIndex, &Targets)> {
        let (message, route) = self.messages.get(at)?;
        Some((message, *route, self.targets(*route)?))
    }

    pub(super) fn targets(&self, route: RouteIndex) -> Option<&Targets> {
        self.routes.get(usize::try_from(route.0).ok()?)
    }

    /// Builds the appends of the admitted messages, with the messages of their batches. `frames` join the
    /// append of a joint publication.
    pub(super) fn to_appends(
        &self,
        outcomes: &mut [AppendOutcome],
        (arrived_ms, arrivals): (i64, &AtomicU64),
        batch_bytes: usize,
        frames: SmallVec<[Frame; 1]>,
    ) -> Result<(Vec<Append>, Vec<BatchMembers>), AtomicPublishError> {
        let mut batches = BatchAssembler::new(self.messages.len(), batch_bytes);
        for (at, (message, route)) in self.messages.iter().enumerate() {
            let Some(outcome @ AppendOutcome::Stored) = outcomes.get_mut(at) else {
                continue;
            };
            let targets = usize::try_from(route.0).ok().and_then(|at| self.routes.get(at));
            let Some(targets) = targets.filter(|targets| !targets.is_empty()) else {
                continue;
            };
            let index = u32::try_from(at).unwrap_or(u32::MAX);
            if let Err(why) = batches.add(index, message, *route, targets, (arrived_ms, arrivals)) {
                self.atomicity.check(at, why)?;
                *outcome = AppendOutcome::Refused(why);
            }
        }
        let is_joint = self.atomicity != Atomicity::Batch || self.request.is_some();
        let (mut appends, members) = batches.finish(is_joint, arrived_ms, frames);
        if let ([append], Some(_)) = (&mut *appends, self.request) {
            append.request = self.request;
        }
        Ok((appends, members))
    }
}

impl Atomicity {
    /// Returns the failure of the whole publication, if the refusal of a message is one.
    pub(super) fn check(self, at: usize, why: Refused) -> Result<(), AtomicPublishError> {
        match (self, why) {
            (Self::Whole, why) => Err(AtomicPublishError::Misfit { at, why }),
            // The refusal is not by a queue.
            (Self::Taken, Refused::Journal(refusal)) => {
                Err(AtomicPublishError::NotStored(NotStored::Refused(refusal)))
            }
            (Self::Taken | Self::Batch, _) => Ok(()),
        }
    }
}
