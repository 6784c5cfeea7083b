//! Who delivers messages, and who waits to go on delivering: consumers of queues, and readers of topics.

use std::sync::{Arc, Weak};

use stafett_queue::{ConsumerKey, DeliveryId};

use super::queue::{Queue, Settle};
use crate::readers::Reader;

/// Where a delivery comes from, and who is told what becomes of it.
#[derive(Debug, Clone)]
pub enum Source {
    Queue(Arc<Queue>),
    /// Reading changes nothing: settling gives credit back, however a message is settled.
    Reader(Arc<Reader>),
}

/// Who was passed over and is told when it may go on.
#[derive(Debug)]
pub(crate) enum Waiter {
    Consumer(Weak<Queue>, ConsumerKey),
    Reader(Weak<Reader>),
}

impl Source {
    pub(crate) fn of(queue: &Arc<Queue>) -> Self {
        Self::Queue(Arc::clone(queue))
    }

    /// Settles messages, all at once. Those that are not in flight are passed over.
    pub fn settle(&self, settlements: &[(DeliveryId, Settle)]) {
        match self {
            Self::Queue(queue) => {
                queue.settle(settlements);
            }
            Self::Reader(reader) => reader.release(settlements.len()),
        }
    }

    /// Whether both are the same one.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Queue(one), Self::Queue(other)) => Arc::ptr_eq(one, other),
            (Self::Reader(one), Self::Reader(other)) => Arc::ptr_eq(one, other),
            (Self::Queue(_), Self::Reader(_)) | (Self::Reader(_), Self::Queue(_)) => false,
        }
    }
}

impl Waiter {
    pub(crate) fn consumer(queue: &Arc<Queue>, key: ConsumerKey) -> Self {
        Self::Consumer(Arc::downgrade(queue), key)
    }

    pub(crate) fn go_on(&self) {
        match self {
            Self::Consumer(queue, key) => {
                if let Some(queue) = queue.upgrade() {
                    queue.unblock(*key);
                }
            }
            Self::Reader(reader) => {
                if let Some(reader) = reader.upgrade() {
                    reader.go_on();
                }
            }
        }
    }
}
