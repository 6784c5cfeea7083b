//! Operations: the waits of a session. The connection performs them, and hands back the outcomes.

use std::sync::Arc;

use bytestring::ByteString;
use stafett_access::Caller;
use stafett_delivery::{Delivery, Dispatcher};
use stafett_messaging::queues::{DeclareError, DeclaredQueue, DeleteQueueError, OwnerId, Queue};
use stafett_messaging::{CommitError, Committed, Published};
use stafett_model::Namespace;
use stafett_net::registry::Wait;
use stafett_net::{Arrival, BudgetError, ByteBudget, EVENTS};
use stafett_store::NotStored;
use stafett_topics::{CreateError, DeleteError, NewTopic, Topic, TopicId};

use crate::context::AmqpContext;
use crate::session::confirms::PublishedBatch;
use crate::session::pending_changes::PendingChange;
use crate::session::transactions::PendingCommit;

/// Work that is awaited before the session executes anything else.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Wait until messages are stored.
    AwaitPublished(PublishedBatch),
    /// Wait until a transaction is stored.
    Commit(Box<PendingCommit>),
    /// Wait until a change is stored.
    AwaitStored(PendingChange),
    /// Wait until rejected messages are dead-lettered.
    AwaitDeadLetters(Arc<Dispatcher>),
    /// Wait until the declaration of a queue is stored.
    Declare(ByteString, DeclaredQueue),
    DeleteQueue {
        namespace: Namespace,
        name: ByteString,
        if_unused: bool,
        if_empty: bool,
        owner: OwnerId,
    },
    CreateTopic(NewTopic),
    DeleteTopic(TopicId),
    /// Wait until no topic of that name is being created or deleted.
    AwaitName(String),
    /// Reserve memory for the beginning of a large body.
    Reserve(Arc<ByteBudget>, usize),
    /// Reserve memory for more of it.
    Grow(Arrival),
    /// Take a message of a queue. With `settles`, it stays unsettled.
    TakeOne {
        queue: Arc<Queue>,
        settles: bool,
    },
}

/// Outcome of an operation.
#[derive(Debug)]
pub(crate) enum Done {
    Published(PublishedBatch, Vec<Published>),
    Committed(Box<PendingCommit>, Result<Committed, CommitError>),
    Stored(PendingChange, Result<(), NotStored>),
    /// There is nothing to wait for any more.
    Ready,
    Declared(ByteString, Result<Arc<Queue>, DeclareError>),
    /// The number of deleted messages.
    QueueDeleted(Result<u64, DeleteQueueError>),
    TopicCreated(Result<Arc<Topic>, CreateError>),
    TopicDeleted(Result<(), DeleteError>),
    Reserved(Result<Arrival, BudgetError>),
    /// The message, if there was one, and the number of those that remain.
    Taken(Arc<Queue>, Option<(Delivery, u64)>),
}

impl Operation {
    /// Returns the wait of the operation.
    pub(crate) fn wait(&self) -> Wait {
        match self {
            Self::Reserve(..) | Self::Grow(_) => Wait::Memory,
            Self::AwaitPublished(_)
            | Self::Commit(_)
            | Self::AwaitStored(_)
            | Self::AwaitDeadLetters(_)
            | Self::Declare(..)
            | Self::DeleteQueue { .. }
            | Self::CreateTopic(_)
            | Self::DeleteTopic(_)
            | Self::AwaitName(_)
            | Self::TakeOne { .. } => Wait::Journal,
        }
    }

    /// Performs it for a caller.
    pub(crate) async fn perform(self, context: &AmqpContext, by: &Caller) -> Done {
        match self {
            Self::AwaitPublished(mut batch) => {
                let outcomes = (&mut batch).await;
                Done::Published(batch, outcomes)
            }
            Self::Commit(mut commit) => {
                let outcome = (&mut commit.stored).await;
                Done::Committed(commit, outcome)
            }
            Self::AwaitStored(mut change) => {
                let stored = match change.stored.take() {
                    Some(stored) => stored.await,
                    None => context.broker.messaging().await_stored().await,
                };
                Done::Stored(change, stored)
            }
            Self::AwaitDeadLetters(queue) => {
                queue.dead_letters_stored().await;
                Done::Ready
            }
            Self::Declare(name, declared) => {
                let is_new = declared.is_new();
                let declared = declared.stored().await;
                if let Some(queue) = declared.as_ref().ok().filter(|queue| is_new && queue.is_kept()) {
                    record(by, "queue.made", &queue.name, &queue.namespace);
                }
                Done::Declared(name, declared)
            }
            Self::DeleteQueue {
                namespace,
                name,
                if_unused,
                if_empty,
                owner,
            } => {
                let queues = context.queues();
                let is_kept = queues.get(&namespace, &name).is_some_and(|queue| queue.is_kept());
                let deleted = queues.delete(&namespace, &name, if_unused, if_empty, owner).await;
                if is_kept && deleted.is_ok() {
                    record(by, "queue.deleted", &name, &namespace);
                }
                Done::QueueDeleted(deleted)
            }
            Self::CreateTopic(topic) => {
                let created = context.broker.catalog().create(vec![topic]).await.pop();
                Done::TopicCreated(created.unwrap_or(Err(NotStored::Unknown.into())))
            }
            Self::DeleteTopic(id) => Done::TopicDeleted(context.broker.delete_topic(id).await),
            Self::AwaitName(name) => {
                context.broker.topics().settled(&name).await;
                Done::Ready
            }
            Self::Reserve(budget, bytes) => Done::Reserved(Arrival::begin(&budget, bytes).await),
            Self::Grow(mut memory) => Done::Reserved(memory.grow().await.map(|()| memory)),
            Self::TakeOne { queue, settles } => {
                let taken = queue.take_one(settles).await;
                Done::Taken(queue, taken)
            }
        }
    }
}

/// Records an event: a definition was made or deleted.
pub(crate) fn record(by: &Caller, kind: &'static str, name: &str, namespace: &Namespace) {
    let (by, from) = (by.name(), by.peer());
    let done = kind.rsplit('.').next().unwrap_or_default();
    tracing::info!(target: EVENTS, kind, name, %namespace, by, %from, via = "amqp", "{done}");
}
