//! Publishing: a batch of messages is routed against one state of the bindings and stored together.
//!
//! - `plan`: targets of a batch of messages
//! - `commit`: transactions of messages and settlements
//! - `release_delayed`: publishes delayed messages when they are due
//! - `move_messages`: moves messages out of a queue
//! - `send`: sends to queues by name

mod commit;
mod move_messages;
mod plan;
mod release_delayed;
mod send;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytestring::ByteString;
use stafett_journal::{Refusal, RequestId};
use stafett_model::{Message, Namespace};

use crate::delayed::{DELAY_MS_MAX, DelayError};
use crate::exchanges::resolver::Resolver;
use crate::queues::{AppendOutcome, AppendTicket, Publication, Refused};
use plan::Plan;

pub(crate) use commit::commit;
pub use commit::{CommitError, Committed, Transaction};
pub use move_messages::{MoveTarget, Moved, Stopped};
pub(crate) use move_messages::{move_chosen, move_messages};
pub(crate) use release_delayed::ReleaseTask;
pub use send::{JointSender, QUEUES_MAX, Send, SendError, SentTogether};
pub(crate) use send::{send, send_each};

/// A message to be published.
#[derive(Debug, Clone, Default)]
pub struct Publish {
    pub message: Message,
    /// Further routing keys: the message goes to the targets of any of its keys.
    pub more_keys: Vec<ByteString>,
}

impl From<Message> for Publish {
    fn from(message: Message) -> Self {
        Self {
            message,
            more_keys: Vec::new(),
        }
    }
}

/// Outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Stored in all queues and topics to which it was routed, with the durability of the strictest.
    Stored,
    /// The message had no targets.
    Unroutable,
    /// A queue or topic to which it was routed refused it.
    Refused(PublishRefusal),
    /// The journal stopped before the outcome was known.
    Unknown,
}

/// Reason of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefusal {
    #[error("a queue is as long as it may be")]
    QueueFull,
    #[error("the message is too large")]
    TooLarge,
    #[error("a topic is compacted by key, and the message has none")]
    WithoutKey,
    #[error("a message waits {max_ms} ms at most")]
    DelayTooLong { max_ms: u64 },
    #[error(transparent)]
    Journal(Refusal),
}

impl PublishRefusal {
    /// Returns the reason of a queue's refusal; `None` if the queue is gone, as a deleted queue is no target.
    fn of(why: Refused) -> Option<Self> {
        match why {
            Refused::QueueFull => Some(Self::QueueFull),
            Refused::TooLarge => Some(Self::TooLarge),
            Refused::Journal(refusal) => Some(Self::Journal(refusal)),
            Refused::Gone => None,
        }
    }
}

impl From<DelayError> for PublishRefusal {
    fn from(why: DelayError) -> Self {
        match why {
            DelayError::TooLong => Self::DelayTooLong { max_ms: DELAY_MS_MAX },
            DelayError::Journal(refusal) => Self::Journal(refusal),
        }
    }
}

/// Error for a whole batch, of which nothing is routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error("there is no such exchange")]
    NoSuchExchange,
    #[error("the exchange takes messages from other exchanges only")]
    Internal,
}

/// Targets that a message would have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    pub queues: Vec<Arc<str>>,
    pub topics: Vec<Arc<str>>,
    /// Exchanges at which it would wait before it is routed further.
    pub delayed_at: Vec<Arc<str>>,
}

/// Future of the outcomes of all messages, in order.
#[derive(Debug)]
pub struct PublishTicket {
    /// Outcomes as far as they are known.
    published: Vec<Published>,
    unroutable: Vec<(usize, Publish)>,
    appending: Option<Appending>,
    repeated: bool,
}

/// Append in progress. `owners` are the batch indexes of the appended messages.
#[derive(Debug)]
struct Appending {
    ticket: AppendTicket,
    owners: Vec<u32>,
}

impl PublishTicket {
    pub(super) fn new(
        published: Vec<Published>,
        unroutable: Vec<(usize, Publish)>,
        appending: Option<(AppendTicket, Vec<u32>)>,
    ) -> Self {
        Self {
            published,
            unroutable,
            appending: appending.map(|(ticket, owners)| Appending { ticket, owners }),
            repeated: false,
        }
    }

    /// True if the outcomes are known, and those of an earlier publication with the same request id.
    pub fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// Takes the messages without targets, with their indexes in the batch: known at once.
    pub fn take_unroutable(&mut self) -> Vec<(usize, Publish)> {
        std::mem::take(&mut self.unroutable)
    }
}

impl Future for PublishTicket {
    type Output = Vec<Published>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(appending) = &mut this.appending {
            let Poll::Ready(appended) = Pin::new(&mut appending.ticket).poll(context) else {
                return Poll::Pending;
            };
            for (appended, owner) in appended.iter().zip(&appending.owners) {
                let owner = usize::try_from(*owner).ok();
                if let Some(published) = owner.and_then(|owner| this.published.get_mut(owner)) {
                    *published = worse(*published, *appended);
                }
            }
            this.repeated = appending.ticket.repeated;
            this.appending = None;
        }
        Poll::Ready(std::mem::take(&mut this.published))
    }
}

/// Returns the worse of two outcomes: a message may be stored in several appends.
fn worse(published: Published, appended: AppendOutcome) -> Published {
    match (published, appended) {
        (Published::Unknown, _) | (_, AppendOutcome::Unknown) => Published::Unknown,
        (Published::Refused(why), _) => Published::Refused(why),
        (_, AppendOutcome::Refused(why)) => PublishRefusal::of(why).map_or(published, Published::Refused),
        (Published::Stored | Published::Unroutable, AppendOutcome::Stored) => published,
    }
}

/// Routes messages of one exchange, all against the same state of the bindings, and stores them. Messages
/// without targets are known when this returns; the other outcomes when the ticket resolves. After an error
/// the messages are still in `messages`. With `request`, they are one append, which is stored once.
pub(crate) fn publish(
    resolver: &Resolver,
    namespace: &Namespace,
    exchange: &str,
    messages: &mut Vec<Publish>,
    request: Option<RequestId>,
) -> Result<PublishTicket, PublishError> {
    let publication = Publication::with_capacity(messages.len()).with_request(request);
    let mut plan = Plan::new(resolver, namespace, publication, messages.len())?;
    plan.set_exchange(exchange)?;
    plan.add_all(std::mem::take(messages));
    Ok(plan.store())
}

/// Returns the targets that a message to an exchange would have. Nothing is stored.
pub(crate) fn preview(
    resolver: &Resolver,
    namespace: &Namespace,
    exchange: &str,
    message: &Publish,
) -> Result<Preview, PublishError> {
    let mut plan = Plan::new(resolver, namespace, Publication::default(), 0)?;
    plan.set_exchange(exchange)?;
    Ok(plan.preview(message))
}
