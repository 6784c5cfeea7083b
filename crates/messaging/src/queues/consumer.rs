//! Consumers of a queue: how one comes, what it holds, and how it ends.

use std::sync::Arc;

use stafett_queue::consumers::Occupied;
use stafett_queue::{ConsumerKey, ConsumerRules};

use super::credit::Credit;
use super::definition::OwnerId;
use super::grown::Grown;
use super::outbox::{Delivery, Outbox, Withdrawn};
use super::queue::Queue;
use super::source::Waiter;

/// A consumer's end of the queue.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) outbox: Arc<Outbox>,
    pub(super) token: u64,
    pub(super) credit: Option<Arc<Credit>>,
    pub(super) settles: bool,
    /// About to be put into the outbox.
    pub(super) pending: Vec<Delivery>,
    pub(super) pending_bytes: usize,
}

/// What a consumer wants.
#[derive(Debug, Clone)]
pub struct ConsumerSpec {
    /// It settles what it gets; false: what is delivered is settled.
    pub settles: bool,
    /// Nobody else may consume.
    pub exclusive: bool,
    /// The highest goes first.
    pub priority: i32,
    /// Messages in flight at once; `None`: any number.
    pub credit: Option<u32>,
    /// Credit that it shares with others. What it gets settled with that takes none, but waits until there is
    /// some.
    pub shared_credit: Option<Arc<Credit>>,
    pub owner: OwnerId,
}

/// A consumer; dropping it ends it. What waits in its outbox goes back then; what was taken out of that stays
/// in flight until it is settled.
#[derive(Debug)]
pub struct Consumer {
    queue: Arc<Queue>,
    key: ConsumerKey,
}

/// Why there can be no such consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConsumeError {
    #[error("the queue has an exclusive consumer")]
    Exclusive,
    #[error("the queue has consumers: none can be exclusive")]
    InUse,
    #[error("the queue belongs to somebody else")]
    Locked,
    #[error("the queue is gone")]
    Gone,
}

impl Queue {
    /// Registers a consumer; what it gets comes into the outbox under the token.
    pub fn consume(
        self: &Arc<Self>,
        spec: ConsumerSpec,
        outbox: Arc<Outbox>,
        token: u64,
    ) -> Result<Consumer, ConsumeError> {
        let hub = self.hub.upgrade().ok_or(ConsumeError::Gone)?;
        if self.exclusive.is_some_and(|owner| owner != spec.owner) {
            return Err(ConsumeError::Locked);
        }
        let key = {
            let mut inner = self.lock();
            if self.is_deleted() {
                return Err(ConsumeError::Gone);
            }
            let rules = ConsumerRules {
                priority: spec.priority,
                credit: spec.credit.filter(|_| spec.settles),
                settles: spec.settles,
                exclusive: spec.exclusive,
            };
            let key = inner
                .state
                .consumers
                .add(rules)
                .map_err(|occupied| match occupied {
                    Occupied::ByExclusive => ConsumeError::Exclusive,
                    Occupied::ByOthers => ConsumeError::InUse,
                })?;
            let link = Link {
                outbox,
                token,
                credit: spec.shared_credit,
                settles: spec.settles,
                pending: Vec::new(),
                pending_bytes: 0,
            };
            inner.links.insert(key, link);
            inner.had_consumer = true;
            inner.grown = Grown::All;
            inner.used_ms = hub.clock.now_ms();
            key
        };
        self.pump();
        Ok(Consumer {
            queue: Arc::clone(self),
            key,
        })
    }

    /// Ends a consumer: what still waits in its outbox goes back, as if it had never been handed out.
    fn end_consumer(self: &Arc<Self>, key: ConsumerKey) {
        let Some(hub) = self.hub.upgrade() else { return };
        let (withdrawn, credit, last) = {
            let mut inner = self.lock();
            let Some(link) = inner.links.remove(&key) else {
                return;
            };
            inner.state.consumers.remove(key);
            // Nothing more is put in: that takes the link. What is settled by delivery stays: nobody else
            // gets it.
            let withdrawn = link.settles.then(|| link.outbox.withdraw(link.token));
            let back = withdrawn.iter().flat_map(|withdrawn| &withdrawn.deliveries);
            for delivery in back.rev() {
                inner.state.untake(delivery.id);
            }
            inner.used_ms = hub.clock.now_ms();
            let last = inner.state.consumers.is_empty();
            if last {
                inner.forget_read();
                if let Some(at) = self.unused_at(&inner) {
                    inner.wake_at(&hub, self, at);
                }
            }
            (withdrawn, link.credit, last)
        };
        if let Some(Withdrawn { deliveries, waiting }) = withdrawn {
            if let Some(credit) = credit {
                credit.release(u32::try_from(deliveries.len()).unwrap_or(u32::MAX));
            }
            waiting.iter().for_each(Waiter::go_on);
        }
        if last && self.auto_delete {
            hub.delete_unused(self);
        } else {
            // Also without consumers: more may wait than may stay, or what went back has expired.
            self.pump();
        }
    }

    /// Hands a consumer nothing more, until it ends. What it has it may settle.
    fn hold_consumer(&self, key: ConsumerKey) {
        self.lock().state.consumers.block(key);
    }

    /// Messages that consumers have that are there: in their outboxes, or sent and not settled. What else is
    /// in flight was asked for, moves elsewhere, or was sent to consumers that have ended. It looks at all of
    /// them and counts them twice: a check, not a metric.
    ///
    /// # Panics
    /// If the counters of the queue disagree.
    pub fn held_by_consumers(&self) -> usize {
        let inner = self.lock();
        let holders = inner.state.holders();
        let all: u32 = holders.values().sum();
        assert_eq!(usize::try_from(all), Ok(inner.state.in_flight()), "in flight");
        let mut held = 0;
        for (key, count) in inner.state.consumers.in_flight() {
            assert!(inner.links.contains_key(&key), "each consumer has a link");
            assert_eq!(holders.get(&Some(key)).copied().unwrap_or(0), count, "{key:?}");
            held += count;
        }
        usize::try_from(held).unwrap_or(usize::MAX)
    }

    /// A consumer that was passed over can take more.
    pub(super) fn unblock(self: &Arc<Self>, consumer: ConsumerKey) {
        let goes_on = {
            let mut inner = self.lock();
            inner.state.consumers.unblock(consumer) && inner.state.ready() > 0
        };
        if goes_on && let Some(hub) = self.hub.upgrade() {
            hub.wake(self);
        }
    }

    /// The same of several, who get what there is for them before this returns.
    pub(super) fn unblock_at_once(self: &Arc<Self>, consumers: impl Iterator<Item = ConsumerKey>) {
        let goes_on = {
            let mut inner = self.lock();
            let mut unblocked = false;
            for consumer in consumers {
                unblocked |= inner.state.consumers.unblock(consumer);
            }
            unblocked && inner.state.ready() > 0
        };
        if goes_on {
            self.pump();
        }
    }
}

impl Consumer {
    pub fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// Binds it to credit that it shares with others from now on; what it has in flight counts.
    pub fn share(&self, credit: &Arc<Credit>) {
        let mut inner = self.queue.lock();
        let held = inner.state.consumers.in_flight_of(self.key);
        if let Some(link) = inner.links.get_mut(&self.key) {
            credit.add(held);
            link.credit = Some(Arc::clone(credit));
        }
    }

    /// Hands it nothing more. Where its messages go back before it ends, they go back to others, in their
    /// order.
    pub fn hold(&self) {
        self.queue.hold_consumer(self.key);
    }

    /// Ends it. What it was sent stays in flight until it is settled.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.queue.end_consumer(self.key);
    }
}
