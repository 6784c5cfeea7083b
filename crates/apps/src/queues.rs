//! Results that go into queues. They are stored in the append of their commit, by the owner of the queues.

use std::fmt::Debug;
use std::pin::Pin;

use stafett_journal::Append;
use stafett_model::Message;
use stafett_store::NotStored;

use crate::error::AppError;

/// Messages with the names of their queues.
pub type QueueMessages = Vec<(Box<str>, Message)>;

/// Bases of the append's own batches, in their order.
pub type Appended = Pin<Box<dyn Future<Output = Result<Vec<u64>, QueueRefusal>> + Send>>;

/// The owner of the queues.
pub trait QueueResults: Debug + Send + Sync {
    /// Stores messages together with an append, all or nothing. It is staged when this returns.
    fn append(&self, append: Append, messages: QueueMessages) -> Appended;
}

/// Refusal of a commit with messages for queues. Unless the outcome is unknown, nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueRefusal {
    NoSuchQueue(Box<str>),
    Full(Box<str>),
    TooLarge(Box<str>),
    NotStored(NotStored),
}

impl From<QueueRefusal> for AppError {
    fn from(why: QueueRefusal) -> Self {
        match why {
            QueueRefusal::NoSuchQueue(queue) => Self::NoSuchQueue(queue),
            QueueRefusal::Full(queue) => Self::QueueFull(queue),
            QueueRefusal::TooLarge(queue) => Self::MessageTooLarge(queue),
            QueueRefusal::NotStored(why) => Self::NotStored(why),
        }
    }
}
