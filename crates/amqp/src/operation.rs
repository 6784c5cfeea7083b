//! Operations: what a session has to wait for. The connection performs them, and hands back what came out.

use std::sync::Arc;

use stafett_messaging::exchanges::Published;
use stafett_messaging::queues::{Delivery, Queue};

use crate::session::confirms::PublishedBatch;

/// Work that is awaited before the session executes anything else.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Wait until messages are stored.
    AwaitPublished(PublishedBatch),
    /// Wait until rejected messages are dead-lettered.
    AwaitBurial(Arc<Queue>),
    /// Take a message of a queue. With `settles`, it stays unsettled.
    TakeOne { queue: Arc<Queue>, settles: bool },
}

/// Outcome of an operation.
#[derive(Debug)]
pub(crate) enum Done {
    Published(PublishedBatch, Vec<Published>),
    Buried,
    /// The message, if there was one, and the number of those that remain.
    Taken(Arc<Queue>, Option<(Delivery, u64)>),
}

impl Operation {
    pub(crate) async fn perform(self) -> Done {
        match self {
            Self::AwaitPublished(mut batch) => {
                let outcomes = (&mut batch).await;
                Done::Published(batch, outcomes)
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
