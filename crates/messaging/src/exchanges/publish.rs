//! Publishing: messages that came together, routed against one state of the bindings and stored together.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytestring::ByteString;
use stafett_journal::Refusal;
use stafett_model::{Message, Namespace};
use stafett_routing::FORESEEN;

use super::plan::Plan;
use super::way::Way;
use crate::delayed::{CannotWait, DELAY_MS_MAX};
use crate::queues::{AppendTicket, Appended, Refused};

/// A message to be published.
#[derive(Debug, Clone, Default)]
pub struct Publish {
    pub message: Message,
    /// Further routing keys: the message goes where any of its keys leads.
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

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// In every queue and topic to which it was routed, as durably as the strictest of them promises.
    Stored,
    /// It was routed nowhere.
    Unroutable,
    /// A queue or topic to which it was routed did not take it.
    Refused(PublishRefusal),
    /// The journal stopped before it could tell.
    Unknown,
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefusal {
    #[error("a queue is as long as it may be")]
    QueueFull,
    #[error("the message is too large")]
    TooLarge,
    #[error("a message waits {max_ms} ms at most")]
    DelayTooLong { max_ms: u64 },
    #[error(transparent)]
    Journal(Refusal),
}

impl From<CannotWait> for PublishRefusal {
    fn from(why: CannotWait) -> Self {
        match why {
            CannotWait::TooLong => Self::DelayTooLong { max_ms: DELAY_MS_MAX },
            CannotWait::Journal(refusal) => Self::Journal(refusal),
        }
    }
}

/// Why a batch of messages was not routed at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error("there is no such namespace")]
    NoSuchNamespace,
    #[error("there is no such exchange")]
    NoSuchExchange,
    #[error("the exchange takes messages from other exchanges only")]
    Internal,
}

/// Resolves to what became of each message, in their order.
#[derive(Debug)]
pub struct PublishTicket {
    /// What is known without waiting.
    published: Vec<Published>,
    unroutable: Vec<(usize, Publish)>,
    appending: Option<Appending>,
}

/// What is being stored, and whose message each append is.
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
        }
    }

    /// The messages that were routed nowhere, with their places in the batch: known at once.
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
            this.appending = None;
        }
        Poll::Ready(std::mem::take(&mut this.published))
    }
}

/// A message may be stored in several appends: the worst that happened to one of them counts.
fn worse(published: Published, appended: Appended) -> Published {
    match (published, appended) {
        (Published::Unknown, _) | (_, Appended::Unknown) => Published::Unknown,
        (Published::Refused(why), _) => Published::Refused(why),
        (_, Appended::Refused(why)) => Published::Refused(match why {
            Refused::QueueFull => PublishRefusal::QueueFull,
            Refused::TooLarge => PublishRefusal::TooLarge,
            Refused::Journal(refusal) => PublishRefusal::Journal(refusal),
            // What leads to a queue that is gone leads nowhere.
            Refused::Gone => return published,
        }),
        (Published::Stored | Published::Unroutable, Appended::Stored) => published,
    }
}

/// Routes messages from one exchange, all against the same state of the bindings, and stores them. Messages
/// that were routed nowhere are known when this returns; whether the others are stored, when the ticket
/// resolves.
pub(crate) fn publish(
    way: &Way,
    namespace: &Namespace,
    exchange: &str,
    messages: Vec<Publish>,
) -> Result<PublishTicket, PublishError> {
    let mut plan = Plan::new(way, namespace, exchange, messages.len())?;
    let mut messages = messages.into_iter();
    while let Some(next) = messages.as_slice().chunks(FORESEEN).next() {
        plan.foresee(next);
        messages
            .by_ref()
            .take(FORESEEN)
            .for_each(|publish| plan.add(publish));
    }
    Ok(plan.store())
}
