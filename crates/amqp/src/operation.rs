//! Operations: what a session has to wait for. The connection performs them, and hands back what came out.

use crate::session::confirms::PublishedBatch;
use stafett_messaging::exchanges::Published;

/// Work that is awaited before the session executes anything else.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Wait until messages are stored.
    AwaitPublished(PublishedBatch),
}

/// Outcome of an operation.
#[derive(Debug)]
pub(crate) enum Done {
    Published(PublishedBatch, Vec<Published>),
}

impl Operation {
    pub(crate) async fn perform(self) -> Done {
        match self {
            Self::AwaitPublished(mut batch) => {
                let outcomes = (&mut batch).await;
                Done::Published(batch, outcomes)
            }
        }
    }
}
