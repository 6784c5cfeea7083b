//! Sources of deliveries, consumers of queues and readers of topics, and their waiters.

use std::sync::{Arc, Weak};

use stafett_queue::{ConsumerKey, DeliveryId};

use super::queue::Queue;
use super::settling::Settle;
use crate::readers::Reader;

/// Source of a delivery, which settlements go to.
#[derive(Debug, Clone)]
pub enum Source {
    Queue(Arc<Queue>),
    /// A reader. Reading changes nothing: any settlement only returns credit.
    Reader(Arc<Reader>),
}

/// A consumer or reader that was skipped and is resumed later.
#[derive(Debug)]
pub(crate) enum Waiter {
    Consumer(Weak<Queue>, ConsumerKey),
    Reader(Weak<Reader>),
}

impl Source {
    pub(crate) fn of(queue: &Arc<Queue>) -> Self {
        Self::Queue(Arc::clone(queue))
    }

    /// Settles messages, all at once. Ids that are not in flight are ignored. Returns the queue if dead
    /// letters of it are now being buried ([`Queue::buried`]).
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

    /// Returns true if both are the same source.
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

    /// Returns true if both are consumers of the same queue.
    pub(crate) fn is_of_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Consumer(one, _), Self::Consumer(other, _)) => one.ptr_eq(other),
            (Self::Reader(_), _) | (_, Self::Reader(_)) => false,
        }
    }

    /// Resumes `all` waiters, which are of this one's queue; the queue hands out before this returns.
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
