//! Publishing: a batch of messages, routed against one state of the bindings.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytestring::ByteString;
use stafett_model::Message;
use stafett_routing::{KeyOnly, Routes};

use super::Target;
use crate::broker::{Broker, NotStored};
use crate::namespace::Namespace;

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
    /// In every queue and topic to which it was routed, at their level of durability.
    Stored,
    /// It was routed nowhere.
    Unroutable,
    /// Nothing of it was stored.
    Refused(PublishRefusal),
    /// The journal failed before it could tell.
    Unknown,
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefusal {
    /// A queue that is full and refuses rather than drops.
    #[error("a queue is full")]
    Full,
    #[error("the message is larger than {max} bytes")]
    TooLarge { max: usize },
    #[error(transparent)]
    NotStored(NotStored),
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
    published: Vec<Published>,
}

impl PublishTicket {
    /// Which messages were routed nowhere, by their place in the batch: known at once.
    pub fn unroutable(&self) -> impl Iterator<Item = usize> {
        let published = self.published.iter().enumerate();
        published.filter_map(|(index, published)| (*published == Published::Unroutable).then_some(index))
    }
}

impl Future for PublishTicket {
    type Output = Vec<Published>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(std::mem::take(&mut self.published))
    }
}

impl Broker {
    /// Routes messages from one exchange, all against the same state of the bindings, and stores them.
    pub fn publish(
        &self,
        namespace: &Namespace,
        exchange: &str,
        messages: Vec<Publish>,
    ) -> Result<PublishTicket, PublishError> {
        let space = self.exchanges.space(namespace);
        let space = space.ok_or(PublishError::NoSuchNamespace)?;
        let declared = space.read(|tables| tables.exchange(exchange).cloned());
        let declared = declared.ok_or(PublishError::NoSuchExchange)?;
        if declared.is.internal {
            return Err(PublishError::Internal);
        }
        let router = space.router();
        let mut routes = Routes::default();
        let nobody = |_: &[u8]| None::<Target>;
        let mut published = Vec::with_capacity(messages.len());
        for publish in &messages {
            let key = KeyOnly(publish.message.routing_key.as_bytes());
            router
                .route(exchange, &key, &nobody, &mut routes)
                .map_err(|_| PublishError::NoSuchExchange)?;
            published.push(Published::Unroutable);
        }
        Ok(PublishTicket { published })
    }
}
