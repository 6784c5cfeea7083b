//! Consumers of a dispatcher: registration, messages in flight, and end.

use std::sync::{Arc, Weak};

use stafett_queue::consumers::ConsumerConflict;
use stafett_queue::{ConsumerKey, ConsumerRules};

use super::dispatcher::Dispatcher;
use super::filtered::MessageFilter;
use super::finder;
use super::grown_lanes::GrownLanes;
use super::outbox::{Delivery, Event, Outbox, Withdrawn};
use super::shared_credit::Credit;
use super::source::Waiter;

/// Dispatcher's record of a consumer.
#[derive(Debug)]
pub(super) struct ConsumerLink {
    pub(super) outbox: Arc<Outbox>,
    pub(super) token: u64,
    pub(super) credit: Option<Arc<Credit>>,
    pub(super) settles: bool,
    /// Deliveries about to be put into the outbox.
    pub(super) pending: Vec<Delivery>,
    pub(super) pending_bytes: usize,
    /// Bytes of the messages chosen for it that are not in `pending` yet.
    pub(super) chosen_bytes: usize,
    /// Number of these messages that have taken shared credit.
    pub(super) chosen: u32,
    /// True while a consumer with a filter is in line for shared credit.
    pub(super) waits_for_credit: bool,
    /// True if shared credit is taken for its next message.
    pub(super) has_reserved: bool,
}

impl ConsumerLink {
    /// Returns the shared credit that it has taken for messages which are not in its outbox.
    pub(super) fn unused_credit(&self) -> u32 {
        self.chosen + u32::from(self.has_reserved)
    }
}

/// Parameters of a consumer.
#[derive(Debug, Clone)]
pub struct ConsumerSpec {
    /// True if the consumer settles its messages; false if delivery settles them.
    pub settles: bool,
    /// True if no other consumer is allowed.
    pub exclusive: bool,
    /// Priority; the highest is served first.
    pub priority: i32,
    /// Bound on the messages in flight; `None` for no bound.
    pub credit: Option<u32>,
    /// Credit shared with other consumers. A message settled by delivery takes none, but waits until there is
    /// some.
    pub shared_credit: Option<Arc<Credit>>,
    /// Condition on the messages that it gets; others stay for other consumers.
    pub filter: Option<Arc<dyn MessageFilter>>,
}

/// A consumer; dropping it ends it. Deliveries waiting in its outbox are then returned; those already taken
/// from the outbox stay in flight until they are settled.
#[derive(Debug)]
pub struct Consumer {
    dispatcher: Arc<Dispatcher>,
    key: ConsumerKey,
}

/// Reference to a consumer that may have ended.
#[derive(Debug, Clone)]
pub struct WeakConsumer {
    pub(super) dispatcher: Weak<Dispatcher>,
    pub(super) key: ConsumerKey,
}

/// Present state of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsumerState {
    pub in_flight: u32,
    /// False if another consumer gets all messages.
    pub is_active: bool,
}

impl Dispatcher {
    /// Adds a consumer; its deliveries are put into `outbox` under `token`. `None` if the dispatcher has
    /// ended.
    pub fn add_consumer(
        self: &Arc<Self>,
        spec: ConsumerSpec,
        outbox: Arc<Outbox>,
        token: u64,
    ) -> Result<Option<Consumer>, ConsumerConflict> {
        let Some(context) = self.context.upgrade() else {
            return Ok(None);
        };
        let (key, new_group) = {
            let mut inner = self.lock();
            if self.is_ended() {
                return Ok(None);
            }
            let filter = spec.filter.as_deref();
            if filter.is_some_and(|filter| !inner.has_room_for(filter)) {
                return Err(ConsumerConflict::ByFilters);
            }
            let now_ms = context.clock.now_ms();
            if !inner.state.consumers.any_ready() {
                inner.waited_ms = now_ms;
            }
            let key = inner.state.consumers.add(ConsumerRules {
                priority: spec.priority,
                credit: spec.credit.filter(|_| spec.settles),
                settles: spec.settles,
                exclusive: spec.exclusive,
                has_choice: spec.filter.is_some(),
            })?;
            let link = ConsumerLink {
                outbox,
                token,
                credit: spec.shared_credit,
                settles: spec.settles,
                pending: Vec::new(),
                pending_bytes: 0,
                chosen_bytes: 0,
                chosen: 0,
                waits_for_credit: false,
                has_reserved: false,
            };
            inner.links.insert(key, link);
            inner.grown = GrownLanes::All;
            inner.used_ms = now_ms;
            let new_group = spec
                .filter
                .filter(|filter| inner.join_group(key, spec.priority, filter));
            (key, new_group)
        };
        if let Some(filter) = new_group {
            finder::spawn(self, &context, key, filter);
        }
        self.dispatch();
        Ok(Some(Consumer {
            dispatcher: Arc::clone(self),
            key,
        }))
    }

    /// Ends a consumer: deliveries that wait in its outbox return as if they had never been handed out.
    fn end_consumer(self: &Arc<Self>, key: ConsumerKey) {
        let Some(context) = self.context.upgrade() else {
            return;
        };
        let (withdrawn, credit, unused, last) = {
            let mut inner = self.lock();
            let Some(link) = inner.links.remove(&key) else {
                return;
            };
            inner.state.consumers.remove(key);
            inner.leave_group(key);
            // Without the link nothing more is put in. Deliveries that are settled by delivery stay in the
            // outbox, as no other consumer would get them.
            let withdrawn = link.settles.then(|| link.outbox.withdraw(link.token));
            let back = withdrawn.iter().flat_map(|withdrawn| &withdrawn.deliveries);
            for delivery in back.clone().rev() {
                let (state, changes) = inner.parts();
                state.return_unseen(delivery.id, changes);
            }
            let back: Vec<_> = back.map(|delivery| delivery.id).collect();
            inner.on_put_back(&back);
            inner.used_ms = context.clock.now_ms();
            let last = inner.state.consumers.is_empty();
            if last {
                inner.read_ahead.clear();
                if let Some(at) = inner.unused_at() {
                    inner.wake_at(&context, self, at);
                }
            }
            let unused = link.unused_credit();
            (withdrawn, link.credit, unused, last)
        };
        if unused > 0
            && let Some(credit) = &credit
        {
            credit.release(unused);
        }
        if let Some(Withdrawn { deliveries, waiting }) = withdrawn {
            if let Some(credit) = credit {
                credit.release(u32::try_from(deliveries.len()).unwrap_or(u32::MAX));
            }
            waiting.iter().for_each(Waiter::resume);
        }
        if last && let Some(owner) = self.owner.upgrade() {
            owner.on_unused(true);
        }
        // Needed without consumers too: the dispatcher may be over its limits, or returned messages may have
        // expired.
        self.dispatch();
    }

    /// Stops handing out to a consumer. It may still settle its messages.
    fn hold_consumer(&self, key: ConsumerKey) {
        self.lock().state.consumers.block(key);
    }

    /// Counts the messages held by live consumers: in their outboxes, or sent and not settled. Other messages
    /// in flight were requested singly, are being moved, or were sent to consumers that have ended. Counts
    /// all of them twice, so this is a check, not a metric.
    ///
    /// # Panics
    /// If the counters of the dispatcher disagree.
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

    /// Resumes a consumer that was skipped.
    pub(super) fn unblock(self: &Arc<Self>, consumer: ConsumerKey) {
        let goes_on = {
            let mut inner = self.lock();
            inner.state.consumers.unblock(consumer) && inner.state.ready() > 0
        };
        if goes_on && let Some(context) = self.context.upgrade() {
            context.wake(self);
        }
    }

    /// Resumes several consumers, and hands out to them before this returns.
    pub(super) fn unblock_at_once(self: &Arc<Self>, consumers: impl Iterator<Item = ConsumerKey>) {
        let goes_on = {
            let mut inner = self.lock();
            let (mut unblocked, mut has_reserved) = (false, false);
            for consumer in consumers {
                unblocked |= inner.state.consumers.unblock(consumer);
                has_reserved |= inner.reserve_credit(self, consumer);
            }
            if has_reserved {
                // Its task gives the credit back if there is no message.
                inner.wake_searches();
            }
            unblocked && inner.state.ready() > 0
        };
        if goes_on {
            self.dispatch();
        }
    }
}

impl WeakConsumer {
    /// Returns a reference to no consumer.
    pub fn ended() -> Self {
        Self {
            dispatcher: Weak::new(),
            key: ConsumerKey(0),
        }
    }

    /// Returns the state. `None` if the consumer has ended.
    pub fn state(&self) -> Option<ConsumerState> {
        let dispatcher = self.dispatcher.upgrade()?;
        let inner = dispatcher.lock();
        if dispatcher.is_ended() || !inner.links.contains_key(&self.key) {
            return None;
        }
        let consumers = &inner.state.consumers;
        Some(ConsumerState {
            in_flight: consumers.in_flight_of(self.key),
            is_active: consumers.active().is_none_or(|active| active == self.key),
        })
    }

    /// Ends the consumer and tells its client. Returns false if it has ended.
    pub fn cancel(&self) -> bool {
        let Some(dispatcher) = self.dispatcher.upgrade() else {
            return false;
        };
        let links = |link: &ConsumerLink| (Arc::clone(&link.outbox), link.token);
        let link = dispatcher.lock().links.get(&self.key).map(links);
        let Some((outbox, token)) = link else {
            return false;
        };
        // Nothing more is put into the outbox, so the client gets its content before it hears of the end.
        dispatcher.end_consumer(self.key);
        outbox.tell(Event::ConsumerGone { token });
        true
    }
}

impl Consumer {
    pub fn downgrade(&self) -> WeakConsumer {
        WeakConsumer {
            dispatcher: Arc::downgrade(&self.dispatcher),
            key: self.key,
        }
    }

    /// Lets the consumer share `credit` from now on; its messages in flight count.
    pub fn share(&self, credit: &Arc<Credit>) {
        let mut inner = self.dispatcher.lock();
        let held = inner.state.consumers.in_flight_of(self.key);
        if let Some(link) = inner.links.get_mut(&self.key) {
            credit.add(held);
            link.credit = Some(Arc::clone(credit));
        }
    }

    /// Stops handing out to the consumer. Its messages that are returned before it ends go to others, in
    /// order.
    pub fn hold(&self) {
        self.dispatcher.hold_consumer(self.key);
    }

    /// Ends the consumer. Messages that were sent to it stay in flight until they are settled.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.dispatcher.end_consumer(self.key);
    }
}
