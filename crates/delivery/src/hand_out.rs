//! Hand-out: reads a dispatcher's logs ahead of its consumers and hands out messages in batches.
//!
//! Any caller with a cause hands out: growth of a log (through its shard), a settlement, a new consumer. Only
//! one does so at a time; others request another round. Messages in memory are handed out at once; for reads
//! from the disk a task waits.

use std::sync::Arc;

use stafett_model::{DeathReason, StoredMessage};
use stafett_queue::{ConsumerKey, DeliveryId, ReadyMessage};
use stafett_topics::CursorItem;

use super::context::DeliveryContext;
use super::counts::Tally;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::expire::NextMessage;
use super::grown_lanes::GrownLanes;
use super::marking::Marking;
use super::outbox::Delivery;
use super::source::{Source, Waiter};

/// Bound on the messages that one turn hands out, so that other dispatchers get their turns.
const TURN_MESSAGES: usize = 4096;
/// Number of messages in flight at which a dispatcher stops handing out.
pub(super) const IN_FLIGHT_MAX: usize = 1_000_000;

/// Hand-out between two checks of the logs.
pub(super) struct Turn<'a> {
    pub(super) dispatcher: &'a Arc<Dispatcher>,
    pub(super) context: &'a Arc<DeliveryContext>,
    pub(super) now_ms: i64,
    /// Messages that may still be handed out in this turn.
    left: usize,
    pub(super) delivered: u64,
    pub(super) tally: Tally,
}

/// Result of a turn.
pub(super) enum HandOutStep {
    /// There is nothing to hand out, or no consumer that can take it.
    Idle,
    /// The turn is used up.
    More,
    /// The log has to be read from `missing` on.
    Read { missing: ReadyMessage, bytes: usize },
    /// A hand-out mark has to be stored first.
    Mark(Marking),
}

impl Dispatcher {
    /// Hands out messages after one of the logs has grown.
    pub(super) fn dispatch_grown(self: &Arc<Self>, lane: u32) {
        self.lock().grown.note(lane);
        self.dispatch();
    }

    /// Hands out messages at once, without waiting for a report of growth.
    pub fn dispatch_now(self: &Arc<Self>) {
        self.lock().grown = GrownLanes::All;
        self.dispatch();
    }

    /// Hands out messages. A hand-out in progress looks at everything again before it ends.
    pub(super) fn dispatch(self: &Arc<Self>) {
        if self.is_pulled {
            if let Some(owner) = self.owner.upgrade() {
                owner.on_pull_due();
            }
            return;
        }
        {
            let mut inner = self.lock();
            if std::mem::replace(&mut inner.hands_out, true) {
                return;
            }
        }
        if let Some(context) = self.context.upgrade() {
            self.dispatch_on(&context);
        }
    }

    /// Continues a hand-out in progress.
    fn dispatch_on(self: &Arc<Self>, context: &Arc<DeliveryContext>) {
        let mut left = TURN_MESSAGES;
        loop {
            let step = self.lock().turn(self, context, &mut left);
            match step {
                HandOutStep::Idle => return,
                HandOutStep::More => {
                    context.wake(self);
                    return;
                }
                HandOutStep::Mark(marking) => {
                    let (dispatcher, context) = (Arc::clone(self), Arc::clone(context));
                    context.clone().tasks.spawn(async move {
                        let decided = marking.decided(&context, &dispatcher);
                        match context.stop.run_until_cancelled(decided).await {
                            Some(()) => dispatcher.dispatch_on(&context),
                            None => dispatcher.lock().hands_out = false,
                        }
                    });
                    return;
                }
                HandOutStep::Read { missing, bytes } => {
                    let Some(ticket) = self.read(context, missing, bytes) else {
                        return;
                    };
                    match ticket.now() {
                        Ok(read) => self.lock().on_read(self, context, missing, read),
                        Err(ticket) => {
                            let (dispatcher, context) = (Arc::clone(self), Arc::clone(context));
                            context.clone().tasks.spawn(async move {
                                let read = ticket.finish().await;
                                dispatcher.lock().on_read(&dispatcher, &context, missing, read);
                                dispatcher.dispatch_on(&context);
                            });
                            return;
                        }
                    }
                }
            }
        }
    }
}

impl DeliveryState {
    /// Hands out until something is missing, and fills the outboxes.
    fn turn(
        &mut self,
        dispatcher: &Arc<Dispatcher>,
        context: &Arc<DeliveryContext>,
        left: &mut usize,
    ) -> HandOutStep {
        if dispatcher.is_ended() {
            self.hands_out = false;
            return HandOutStep::Idle;
        }
        let mut turn = Turn {
            dispatcher,
            context,
            now_ms: context.clock.now_ms(),
            left: *left,
            delivered: 0,
            tally: Tally::default(),
        };
        self.look_at_grown(dispatcher, context);
        self.wake_searches();
        let step = self.hand_out(&mut turn);
        *left = turn.left;
        if matches!(step, HandOutStep::Idle | HandOutStep::More) {
            self.hands_out = false;
            if matches!(step, HandOutStep::Idle) {
                self.release_read_ahead(context);
                if self.state.ready() > 0 && !self.state.consumers.any_ready() {
                    self.waited_ms = turn.now_ms;
                }
            }
        }
        self.fill_outboxes(dispatcher);
        self.start_dead_letter_task(dispatcher, context);
        context.metrics.delivered.inc_by(turn.delivered);
        dispatcher.count_turn(context, &turn.tally, self.state.ready() > 0);
        context.mark_dirty(dispatcher, self);
        step
    }

    fn hand_out(&mut self, turn: &mut Turn<'_>) -> HandOutStep {
        if turn.now_ms < self.stalled_until {
            self.getters.clear();
            return HandOutStep::Idle;
        }
        loop {
            if let Some(step) = self.hand_out_one(turn) {
                return step;
            }
        }
    }

    /// Handles the next message. Returns the reason to stop, if any.
    fn hand_out_one(&mut self, turn: &mut Turn<'_>) -> Option<HandOutStep> {
        if turn.left == 0 {
            for getter in &mut self.getters {
                getter.has_waited = true;
            }
            return Some(HandOutStep::More);
        }
        let Some(ready) = self.state.first_ready() else {
            self.answer_pending_gets();
            return Some(HandOutStep::Idle);
        };
        self.getters.retain(|getter| !getter.sender.is_closed());
        if self.state.consumers.is_paused() {
            self.answer_paused_gets();
        }
        let goes_at_once = self.state.consumers.any_ready() && self.state.in_flight() < IN_FLIGHT_MAX;
        let wanted = goes_at_once || self.next_getter().is_some();
        // A message for a waiting consumer is handed out, even if the dispatcher is over its limits.
        let too_many = !goes_at_once && self.over_limit();
        let is_known = |(id, at): (DeliveryId, i64)| id == ready.id && at > turn.now_ms;
        let may_be_over = self.may_expire && !self.head_expires.is_some_and(is_known);
        if !(wanted || too_many || may_be_over) {
            return Some(HandOutStep::Idle);
        }
        let ready = match self.first_arrived(ready) {
            Ok(first) => first,
            Err(step) => return Some(step),
        };
        let drops_unread = self.settings.dead_letter.is_none() && self.settings.bytes_max.is_none();
        let (state, changes) = self.parts();
        if too_many && drops_unread {
            // Dropped without being read.
            turn.left -= 1;
            turn.context.metrics.on_death(DeathReason::Length);
            turn.tally.on_death(DeathReason::Length);
            state.drop_ready(ready.id, 0, changes);
            return None;
        }
        match self.read_ahead.look(ready) {
            CursorItem::Message(message, stored_by) => {
                turn.left -= 1;
                let found = NextMessage {
                    ready,
                    message,
                    stored_by,
                };
                self.expire_or_deliver(turn, found, wanted, too_many)
            }
            CursorItem::Hole(to) => {
                let (state, changes) = self.parts();
                state.skip(ready, to, changes);
                None
            }
            CursorItem::Unread => Some(self.read_step(ready)),
        }
    }

    /// Chooses between the lowest lane, whose turn it is, and the highest one, by the order of arrival.
    fn first_arrived(&mut self, ready: ReadyMessage) -> Result<ReadyMessage, HandOutStep> {
        let Some(high) = self.state.passed_over() else {
            return Ok(ready);
        };
        let mut came = |of: ReadyMessage| match self.read_ahead.look(of) {
            CursorItem::Message(message, stored_by) => {
                let arrived = message.arrived();
                self.read_ahead.put_back(of, message, stored_by);
                Ok(Some(arrived))
            }
            CursorItem::Hole(_) => Ok(None),
            CursorItem::Unread => Err(self.read_step(of)),
        };
        // A lane with a hole comes first, so that the hole is skipped.
        Ok(match (came(high)?, came(ready)?) {
            (None, _) => high,
            (Some(high_came), Some(came)) if high_came < came => high,
            _ => ready,
        })
    }

    /// Hands a message to the next consumer that can take it, else to a request for one. Returns it if there
    /// is neither.
    pub(super) fn deliver_one(
        &mut self,
        turn: &mut Turn<'_>,
        ready: ReadyMessage,
        message: StoredMessage,
        bytes: u32,
    ) -> Result<(), Box<StoredMessage>> {
        let (id, dispatcher) = (ready.id, turn.dispatcher);
        let consumers = &self.state.consumers;
        let consumer = consumers
            .next()
            .filter(|_| self.state.in_flight() < IN_FLIGHT_MAX);
        // Consumers that take everything must not starve a request.
        let next = self.next_getter();
        let has_waited = |at| self.getters.get(at).is_some_and(|getter| getter.has_waited);
        let is_getters = consumer.is_none() || next.is_some_and(has_waited);
        if is_getters && let Some(getter) = next.and_then(|at| self.getters.remove(at)) {
            let delivery = self.take(id, None, getter.settles, message, bytes);
            if !getter.moves() {
                turn.tally.on_get(getter.settles, delivery.redelivered);
            }
            let ready = self.state.ready();
            if getter.sender.send(Some((delivery, ready))).is_err() && getter.settles {
                // The requester has gone and never had it.
                let (state, changes) = self.parts();
                state.return_unseen(id, changes);
            }
            return Ok(());
        }
        let Some(key) = consumer else {
            return Err(Box::new(message));
        };
        let Some(link) = self.links.get_mut(&key) else {
            self.state.consumers.remove(key);
            return Err(Box::new(message));
        };
        if !link.outbox.has_room(link.pending_bytes) {
            let pending = std::mem::take(&mut link.pending_bytes);
            link.outbox
                .put(link.token, || Source::of(dispatcher), &mut link.pending, pending);
            if link.outbox.wait(Waiter::consumer(dispatcher, key)) {
                self.state.consumers.block(key);
            }
            return Err(Box::new(message));
        }
        if let Some(credit) = &link.credit
            && !credit.take(link.settles, || Waiter::consumer(dispatcher, key))
        {
            self.state.consumers.block(key);
            return Err(Box::new(message));
        }
        let settles = link.settles;
        let delivery = self.take(id, Some(key), settles, message, bytes);
        turn.tally.on_delivery(settles, delivery.redelivered);
        if let Some(link) = self.links.get_mut(&key) {
            link.pending_bytes += delivery.bytes();
            link.pending.push(delivery);
        }
        Ok(())
    }

    fn take(
        &mut self,
        id: DeliveryId,
        consumer: Option<ConsumerKey>,
        settles: bool,
        message: StoredMessage,
        bytes: u32,
    ) -> Delivery {
        let (state, changes) = self.parts();
        let handed = state.hand_out(id, consumer, settles, bytes, changes);
        Delivery {
            id,
            message,
            redelivered: handed.redelivered,
            delivery_count: handed.returns,
        }
    }

    /// Moves the pending deliveries to the outboxes.
    pub(super) fn fill_outboxes(&mut self, dispatcher: &Arc<Dispatcher>) {
        for link in self.links.values_mut() {
            let bytes = std::mem::take(&mut link.pending_bytes);
            link.outbox
                .put(link.token, || Source::of(dispatcher), &mut link.pending, bytes);
        }
    }
}
