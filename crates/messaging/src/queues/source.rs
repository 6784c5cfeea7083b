//! Who delivers messages, and who waits to go on delivering: consumers of queues, and readers of topics.

use std::sync::{Arc, Weak};

use stafett_queue::{ConsumerKey, DeliveryId};

use super::queue::Queue;
use super::settling::Settle;
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

    /// Settles messages, all at once. Those that are not in flight are passed over. Returns the queue if dead
    /// letters of it are on their way now ([`Queue::buried`]).
    pub fn settle(&self, settlements: &[(DeliveryId, Settle)]) -> Option<&Arc<Queue>> {
        match self {
            Self::Queue(queue) => {
                queue.settle(settlements);
                let may_die = || settlements.iter().any(|(_, what)| *what != Settle::Complete);
                let dies = queue.settings.dead_letter.is_some() && may_die() && queue.is_burying();
                dies.then_some(queue)
            }
            Self::Reader(reader) => {
                reader.release(settlements.len());
                None
            }
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

    /// Whether both wait for messages of the same queue.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Consumer(one, _), Self::Consumer(other, _)) => one.ptr_eq(other),
            (Self::Reader(_), _) | (_, Self::Reader(_)) => false,
        }
    }

    /// Lets this one go on and `all` others of its queue, which hands out before this returns.
    pub(crate) fn go_on_at_once(&self, all: &[Self]) {
        let Self::Consumer(queue, _) = self else {
            return self.go_on();
        };
        let keys = all.iter().filter_map(|waiter| match waiter {
            Self::Consumer(_, key) => Some(*key),
            Self::Reader(_) => None,
        });
        if let Some(queue) = queue.upgrade() {
            queue.unblock_at_once(keys);
        }
    }
}
