//! Sources of deliveries, and consumers that wait for room or credit.

use std::fmt;
use std::sync::{Arc, Weak};

use stafett_queue::{ConsumerKey, DeliveryId};

use super::dispatcher::Dispatcher;
use super::settling::Settle;

/// Source of deliveries that are only read, such as a reader of a topic: settling them returns credit.
pub trait ReadSource: fmt::Debug + Send + Sync {
    /// Takes back the credit of `count` messages.
    fn release(&self, count: usize);

    /// Goes on after it waited for room in an outbox.
    fn resume(&self);
}

/// Source of a delivery, which settlements go to.
#[derive(Debug, Clone)]
pub enum Source {
    Dispatcher(Arc<Dispatcher>),
    Reader(Arc<dyn ReadSource>),
}

/// A consumer or reader that was skipped and is resumed later.
#[derive(Debug)]
pub enum Waiter {
    Consumer(Weak<Dispatcher>, ConsumerKey),
    Reader(Weak<dyn ReadSource>),
}

impl Source {
    pub fn of(dispatcher: &Arc<Dispatcher>) -> Self {
        Self::Dispatcher(Arc::clone(dispatcher))
    }

    /// Settles messages, all at once. Ids that are not in flight are ignored. Returns the dispatcher if dead
    /// letters of it are now being stored ([`Dispatcher::dead_letters_stored`]).
    pub fn settle(&self, settlements: &[(DeliveryId, Settle)]) -> Option<&Arc<Dispatcher>> {
        match self {
            Self::Dispatcher(dispatcher) => {
                dispatcher.settle(settlements);
                let may_die = || settlements.iter().any(|(_, what)| *what != Settle::Complete);
                let dies = dispatcher.flags.dead_letters() && may_die() && dispatcher.is_dead_lettering();
                dies.then_some(dispatcher)
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
            (Self::Dispatcher(one), Self::Dispatcher(other)) => Arc::ptr_eq(one, other),
            (Self::Reader(one), Self::Reader(other)) => {
                std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
            }
            (Self::Dispatcher(_), Self::Reader(_)) | (Self::Reader(_), Self::Dispatcher(_)) => false,
        }
    }
}

impl Waiter {
    pub fn consumer(dispatcher: &Arc<Dispatcher>, key: ConsumerKey) -> Self {
        Self::Consumer(Arc::downgrade(dispatcher), key)
    }

    pub fn resume(&self) {
        match self {
            Self::Consumer(dispatcher, key) => {
                if let Some(dispatcher) = dispatcher.upgrade() {
                    dispatcher.unblock(*key);
                }
            }
            Self::Reader(reader) => {
                if let Some(reader) = reader.upgrade() {
                    reader.resume();
                }
            }
        }
    }

    /// Returns true if both are consumers of the same dispatcher.
    pub fn is_of_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Consumer(one, _), Self::Consumer(other, _)) => one.ptr_eq(other),
            (Self::Reader(_), _) | (_, Self::Reader(_)) => false,
        }
    }

    /// Resumes `all` waiters, which are of this one's dispatcher, which hands out before this returns.
    pub fn resume_at_once(&self, all: &[Self]) {
        let Self::Consumer(dispatcher, _) = self else {
            return self.resume();
        };
        let keys = all.iter().filter_map(|waiter| match waiter {
            Self::Consumer(_, key) => Some(*key),
            Self::Reader(_) => None,
        });
        if let Some(dispatcher) = dispatcher.upgrade() {
            dispatcher.unblock_at_once(keys);
        }
    }
}
