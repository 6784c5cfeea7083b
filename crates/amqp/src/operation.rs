//! Operations: what a session has to wait for. The connection performs them, and hands back what came out.

use std::sync::Arc;

use stafett_messaging::exchanges::Published;
use stafett_messaging::queues::{Delivery, Queue};
use stafett_store::NotStored;

use crate::context::AmqpContext;
use crate::session::confirms::PublishedBatch;
use crate::session::pending_changes::PendingChange;

/// Work that is awaited before the session executes anything else.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Wait until messages are stored.
    AwaitPublished(PublishedBatch),
    /// Wait until a change is stored.
    AwaitStored(PendingChange),
    /// Wait until rejected messages are dead-lettered.
    AwaitBurial(Arc<Queue>),
    /// Take a message of a queue. With `settles`, it stays unsettled.
    TakeOne { queue: Arc<Queue>, settles: bool },
}

/// Outcome of an operation.
#[derive(Debug)]
pub(crate) enum Done {
    Published(PublishedBatch, Vec<Published>),
    Stored(PendingChange, Result<(), NotStored>),
    Buried,
    /// The message, if there was one, and the number of those that remain.
    Taken(Arc<Queue>, Option<(Delivery, u64)>),
}

impl Operation {
    pub(crate) async fn perform(self, context: &AmqpContext) -> Done {
        match self {
            Self::AwaitPublished(mut batch) => {
                let outcomes = (&mut batch).await;
                Done::Published(batch, outcomes)
            }
            Self::AwaitStored(mut change) => {
                let stored = match change.stored.take() {
                    Some(stored) => stored.await,
                    None => context.queues().await_stored().await,
                };
                Done::Stored(change, stored)
            }
            Self::AwaitBurial(queue) => {
                queue.buried().await;
                Done::Buried
            }
            Self::TakeOne { queue, settles } => {
                let taken = queue.take_one(settles).await;
                Done::Taken(queue, taken)
            }
        }
    }
}
