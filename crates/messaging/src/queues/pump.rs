//! Hand-out: reads a queue's logs ahead of its consumers and hands out messages in batches.
//!
//! Any caller with a cause hands out: growth of a log (through its shard), a settlement, a new consumer. Only
//! one does so at a time; others request another round. Messages in memory are handed out at once; for reads
//! from the disk a task waits.

use std::sync::Arc;

use stafett_model::{DeathReason, Epoch, Offset, StoredMessage};
use stafett_queue::expiry::lifetime_ms;
use stafett_queue::{DeliveryId, ReadyMessage};
use stafett_topics::{CursorItem, LogRead, LogTicket, SkipReason, Skipped, read_log};

use super::ahead::ReadAhead;
use super::context::DeliveryContext;
use super::marking::{Marked, Marking};
use super::outbox::Delivery;
use super::queue::{HandOutState, Inner, Queue};
use super::source::{Source, Waiter};

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// Bytes of one read if a consumer takes all that it can get.
const READ_BYTES_EAGER: usize = 512 << 10;
/// Bound on the messages that one turn hands out, so that other queues get their turns.
const TURN_MESSAGES: usize = 4096;
/// Number of messages in flight at which a queue stops handing out.
const IN_FLIGHT_MAX: usize = 1_000_000;
/// Bound on the read-ahead of all queues, in bytes: beyond it, idle queues drop theirs.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Pause of a stalled queue, whose log could not be read, in ms.
const STALLED_MS: i64 = 1000;
/// Hand-out between two checks of the logs.
struct Turn<'a> {
    queue: &'a Arc<Queue>,
    context: &'a Arc<DeliveryContext>,
    now_ms: i64,
    /// Messages that may still be handed out in this turn.
    left: usize,
    delivered: u64,
}

/// The next message, after reading.
struct Found {
    ready: ReadyMessage,
    message: StoredMessage,
    /// Epoch that stored the message.
    stored_by: Epoch,
}

/// Result of a turn.
enum Step {
    /// There is nothing to hand out, or no consumer that can take it.
    Idle,
    /// The turn is used up.
    More,
    /// The log has to be read from `from`.
    Read {
        lane: u32,
        was_returned: bool,
        from: u64,
        bytes: usize,
    },
    /// A hand-out mark has to be stored first.
    Mark(Marking),
}

impl Queue {
    /// Hands out messages after one of the logs has grown.
    pub(super) fn pump_grown(self: &Arc<Self>, lane: u32) {
        self.lock().grown.note(lane);
        self.pump();
    }

    /// Hands out messages, or requests another round if a hand-out is in progress.
    pub(super) fn pump(self: &Arc<Self>) {
        {
            let mut inner = self.lock();
            if inner.hand_out_state != HandOutState::Idle {
                inner.hand_out_state = HandOutState::RunAgain;
                return;
            }
            inner.hand_out_state = HandOutState::Running;
        }
        if let Some(context) = self.context.upgrade() {
            self.pump_on(&context);
        }
    }

    /// Continues a hand-out in progress.
    fn pump_on(self: &Arc<Self>, context: &Arc<DeliveryContext>) {
        let mut left = TURN_MESSAGES;
        loop {
            let step = self.lock().turn(self, context, &mut left);
            match step {
                Step::Idle => return,
                Step::More => {
                    context.wake(self);
                    return;
                }
                Step::Mark(marking) => {
                    let (queue, context) = (Arc::clone(self), Arc::clone(context));
                    context.clone().tasks.spawn(async move {
                        let decided = marking.decided(&context, &queue);
                        match context.stop.run_until_cancelled(decided).await {
                            Some(()) => queue.pump_on(&context),
                            None => queue.lock().hand_out_state = HandOutState::Idle,
                        }
                    });
                    return;
                }
                Step::Read {
                    lane,
                    was_returned,
                    from,
                    bytes,
                } => {
                    let Some(ticket) = self.read(context, lane, from, bytes) else {
                        return;
                    };
                    match ticket.now() {
                        Ok(read) => self.lock().on_read(self, context, lane, was_returned, from, read),
                        Err(ticket) => {
                            let (queue, context) = (Arc::clone(self), Arc::clone(context));
                            context.clone().tasks.spawn(async move {
                                let read = ticket.finish().await;
                                queue
                                    .lock()
                                    .on_read(&queue, &context, lane, was_returned, from, read);
                                queue.pump_on(&context);
                            });
                            return;
                        }
                    }
                }
            }
        }
    }

    fn read(&self, context: &DeliveryContext, lane: u32, from: u64, bytes_max: usize) -> Option<LogTicket> {
        let mut inner = self.lock();
        let Some(log) = inner.log(lane).filter(|_| !self.is_deleted()) else {
            inner.hand_out_state = HandOutState::Idle;
            return None;
        };
        drop(inner);
        Some(read_log(&*context.journal, log, Offset(from), bytes_max))
    }
}

impl Inner {
    /// Hands out until something is missing, and fills the outboxes.
    fn turn(&mut self, queue: &Arc<Queue>, context: &Arc<DeliveryContext>, left: &mut usize) -> Step {
        if queue.is_deleted() {
            self.hand_out_state = HandOutState::Idle;
            return Step::Idle;
        }
        let mut turn = Turn {
            queue,
            context,
            now_ms: context.clock.now_ms(),
            left: *left,
            delivered: 0,
        };
        let step = loop {
            self.hand_out_state = HandOutState::Running;
            self.look_at_grown(context);
            let step = self.hand_out(&mut turn);
            if !matches!(step, Step::Idle) || self.hand_out_state != HandOutState::RunAgain {
                break step;
            }
        };
        *left = turn.left;
        if matches!(step, Step::Idle | Step::More) {
            self.hand_out_state = HandOutState::Idle;
            if matches!(step, Step::Idle) {
                self.rest(context);
            }
        }
        self.fill_outboxes(queue);
        self.begin_burying(queue, context);
        context.metrics.delivered.inc_by(turn.delivered);
        context.mark_dirty(queue, self);
        step
    }

    fn hand_out(&mut self, turn: &mut Turn<'_>) -> Step {
        if turn.now_ms < self.stalled_until {
            self.getters.clear();
            return Step::Idle;
        }
        loop {
            if let Some(step) = self.hand_out_one(turn) {
                return step;
            }
        }
    }

    /// Handles the next message. Returns the reason to stop, if any.
    fn hand_out_one(&mut self, turn: &mut Turn<'_>) -> Option<Step> {
        if turn.left == 0 {
            for getter in &mut self.getters {
                getter.has_waited = true;
            }
            return Some(Step::More);
        }
        let Some(ready) = self.state.first_ready() else {
            self.nothing_waits();
            return Some(Step::Idle);
        };
        let settings = &turn.queue.settings;
        self.getters.retain(|getter| !getter.sender.is_closed());
        let goes_at_once = self.state.consumers.any_ready() && self.state.in_flight() < IN_FLIGHT_MAX;
        let wanted = goes_at_once || !self.getters.is_empty();
        // A message for a waiting consumer is handed out, even if the queue is over its limits.
        let too_many = !goes_at_once && self.over_limit(turn.queue);
        let is_known = |(id, at): (DeliveryId, i64)| id == ready.id && at > turn.now_ms;
        let may_be_over = self.may_expire && !self.head_expires.is_some_and(is_known);
        if !(wanted || too_many || may_be_over) {
            return Some(Step::Idle);
        }
        let ready = match self.came_first(ready) {
            Ok(first) => first,
            Err(step) => return Some(step),
        };
        let (state, changes) = self.parts();
        if too_many && settings.dead_letter.is_none() && settings.bytes_max.is_none() {
            // Dropped without being read.
            turn.left -= 1;
            turn.context.metrics.on_death(DeathReason::Length);
            state.drop_ready(ready.id, 0, changes);
            return None;
        }
        match self.look(ready) {
            CursorItem::Message(message, stored_by) => {
                turn.left -= 1;
                let found = Found {
                    ready,
                    message,
                    stored_by,
                };
                self.dispose(turn, found, wanted, too_many)
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
    fn came_first(&mut self, ready: ReadyMessage) -> Result<ReadyMessage, Step> {
        let Some(high) = self.state.passed_over() else {
            return Ok(ready);
        };
        let mut came = |of: ReadyMessage| match self.look(of) {
            CursorItem::Message(message, stored_by) => {
                let arrived = message.arrived();
                self.put_back(of, message, stored_by);
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

    /// Hands out a message, drops it, or leaves it in its place.
    fn dispose(&mut self, turn: &mut Turn<'_>, found: Found, wanted: bool, too_many: bool) -> Option<Step> {
        let (ready, message) = (found.ready, &found.message);
        let settings = &turn.queue.settings;
        let bytes = u32::try_from(message.value_len()).unwrap_or(u32::MAX);
        if turn.queue.has_ended(message, found.stored_by, turn.context.epoch) {
            // A transient message of an earlier run.
            let (state, changes) = self.parts();
            state.drop_ready(ready.id, bytes, changes);
            return None;
        }
        let lifetime = lifetime_ms(settings, message.ttl_ms());
        let expires = lifetime.map(|ms| {
            let clock = &turn.context.clock;
            let arrived = clock.arrival(message.arrived_ms(), found.stored_by == turn.context.epoch);
            arrived.saturating_add(ms)
        });
        // A message with a TTL of 0 goes only to a consumer that is waiting already; a new request comes too
        // late.
        let has_no_time = lifetime == Some(0) && !ready.was_returned;
        let at_once = has_no_time && wanted && self.state.consumers.any_ready();
        let reason = match expires {
            Some(at) if at <= turn.now_ms && !at_once => Some(DeathReason::Expired),
            _ => too_many.then_some(DeathReason::Length),
        };
        if let Some(reason) = reason {
            if settings.dead_letter.is_some() && self.dying.is_full() {
                // Continues when some of them are buried.
                self.put_back(ready, found.message, found.stored_by);
                if self.dying.is_held_up() {
                    self.getters.clear();
                }
                return Some(Step::Idle);
            }
            turn.context.metrics.on_death(reason);
            let (state, changes) = self.parts();
            if settings.dead_letter.is_none() {
                state.drop_ready(ready.id, bytes, changes);
            } else {
                state.hand_out(ready.id, None, true, bytes, changes);
                self.dying.add(ready.id, reason, Some(found.message));
            }
            return None;
        }
        if !wanted {
            self.head_expires = Some((ready.id, expires.unwrap_or(i64::MAX)));
            if let Some(at) = expires {
                self.wake_at(turn.context, turn.queue, at);
            }
            self.put_back(ready, found.message, found.stored_by);
            return Some(Step::Idle);
        }
        match self.marked(turn.context, turn.queue, ready.id.lane, ready.id.offset) {
            Marked::Yes => {}
            Marked::After(marking) => {
                self.put_back(ready, found.message, found.stored_by);
                return Some(Step::Mark(marking));
            }
            Marked::No => {
                self.put_back(ready, found.message, found.stored_by);
                self.stall(turn.context, turn.queue);
                return Some(Step::Idle);
            }
        }
        match self.give(turn.queue, ready, found.message, bytes) {
            Ok(()) => turn.delivered += 1,
            Err(message) => self.put_back(ready, *message, found.stored_by),
        }
        None
    }

    /// Hands a message to the next consumer that can take it, else to a request for one. Returns it if there
    /// is neither.
    fn give(
        &mut self,
        queue: &Arc<Queue>,
        ready: ReadyMessage,
        message: StoredMessage,
        bytes: u32,
    ) -> Result<(), Box<StoredMessage>> {
        let id = ready.id;
        let consumers = &self.state.consumers;
        let consumer = consumers
            .next()
            .filter(|_| self.state.in_flight() < IN_FLIGHT_MAX);
        // Consumers that take everything must not starve a request.
        let is_getters = consumer.is_none() || self.getters.front().is_some_and(|getter| getter.has_waited);
        if is_getters && let Some(getter) = self.getters.pop_front() {
            let delivery = self.take(id, None, getter.settles, message, bytes);
            let ready = self.state.ready();
            if getter.sender.send(Some((delivery, ready))).is_err() && getter.settles {
                // The requester has gone and never had it.
                self.state.return_unseen(id);
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
                .put(link.token, || Source::of(queue), &mut link.pending, pending);
            if link.outbox.wait(Waiter::consumer(queue, key)) {
                self.state.consumers.block(key);
            }
            return Err(Box::new(message));
        }
        if let Some(credit) = &link.credit
            && !credit.take(link.settles, || Waiter::consumer(queue, key))
        {
            self.state.consumers.block(key);
            return Err(Box::new(message));
        }
        let settles = link.settles;
        let delivery = self.take(id, Some(key), settles, message, bytes);
        if let Some(link) = self.links.get_mut(&key) {
            link.pending_bytes += delivery.bytes();
            link.pending.push(delivery);
        }
        Ok(())
    }

    /// Puts back a message that was examined and stays.
    fn put_back(&mut self, ready: ReadyMessage, message: StoredMessage, stored_by: Epoch) {
        let DeliveryId { lane, offset } = ready.id;
        self.read_of(ready).put_back(lane, offset, message, stored_by);
    }

    /// Returns the read-ahead for messages like this one.
    fn read_of(&mut self, ready: ReadyMessage) -> &mut ReadAhead {
        if ready.was_returned {
            &mut self.back
        } else {
            &mut self.ahead
        }
    }

    fn take(
        &mut self,
        id: DeliveryId,
        consumer: Option<stafett_queue::ConsumerKey>,
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

    /// Returns true if the queue is over its limits and has to drop the oldest message.
    fn over_limit(&self, queue: &Queue) -> bool {
        let settings = &queue.settings;
        if !settings.has_limits() || settings.overflow != stafett_queue::Overflow::DropHead {
            return false;
        }
        settings.length_max.is_some_and(|max| self.state.ready() > max)
            || settings
                .bytes_max
                .is_some_and(|max| self.state.bytes_ready() > max)
    }

    fn nothing_waits(&mut self) {
        for getter in self.getters.drain(..) {
            // The receiver is gone if the requester is.
            let _ = getter.sender.send(None);
        }
    }

    fn look(&mut self, ready: ReadyMessage) -> CursorItem {
        let DeliveryId { lane, offset } = ready.id;
        self.read_of(ready).look(lane, offset)
    }

    fn read_step(&self, ready: ReadyMessage) -> Step {
        let eager = !ready.was_returned && self.links.values().any(|link| !link.settles);
        Step::Read {
            lane: ready.id.lane,
            was_returned: ready.was_returned,
            from: ready.id.offset,
            bytes: if eager { READ_BYTES_EAGER } else { READ_BYTES },
        }
    }

    /// Handles the result of a read.
    fn on_read(
        &mut self,
        queue: &Arc<Queue>,
        context: &Arc<DeliveryContext>,
        lane: u32,
        was_returned: bool,
        from: u64,
        read: LogRead,
    ) {
        let missing = ReadyMessage {
            id: DeliveryId { lane, offset: from },
            was_returned,
        };
        // The message may have been purged meanwhile.
        let wanted = [self.state.first_ready(), self.state.passed_over()];
        let is_wanted = wanted.contains(&Some(missing));
        match read {
            LogRead::Batches(run) => self.read_of(missing).fill(&context.read_ahead, lane, from, run),
            LogRead::Skip(skipped @ Skipped { from, to, why }) => {
                if why == SkipReason::Damaged
                    && let Some(log) = self.log(lane)
                {
                    tracing::error!("queue {}: {log} is damaged from {from} to {to}", queue.name);
                }
                if is_wanted {
                    self.skip(context, missing, skipped);
                }
            }
            LogRead::End(_) => {
                tracing::error!("queue {} cannot be read at {from}: it is tried again", queue.name);
                self.stall(context, queue);
            }
        }
    }

    /// Skips a range that cannot be handed out.
    fn skip(&mut self, context: &DeliveryContext, missing: ReadyMessage, skipped: Skipped) {
        let (state, changes) = self.parts();
        let Skipped { from, to, why } = skipped;
        match why {
            SkipReason::Gap => state.skip(missing, to.0, changes),
            SkipReason::Expired => {
                let lost = state.start_at(missing.id.lane, to.0, changes);
                context.metrics.lost.inc_by(lost);
            }
            SkipReason::Damaged => {
                context.metrics.lost.inc_by(to.0.saturating_sub(from.0));
                state.skip(missing, to.0, changes);
            }
        }
    }

    /// Stalls the queue: nothing is handed out for a while.
    fn stall(&mut self, context: &DeliveryContext, queue: &Arc<Queue>) {
        self.forget_read();
        self.getters.clear();
        self.stalled_until = context.clock.now_ms() + STALLED_MS;
        self.wake_at(context, queue, self.stalled_until);
    }

    /// Moves the pending deliveries to the outboxes.
    fn fill_outboxes(&mut self, queue: &Arc<Queue>) {
        for link in self.links.values_mut() {
            let bytes = std::mem::take(&mut link.pending_bytes);
            link.outbox
                .put(link.token, || Source::of(queue), &mut link.pending, bytes);
        }
    }

    /// Drops the read-ahead of an idle queue, unless there is memory for it.
    fn rest(&mut self, context: &DeliveryContext) {
        if self.links.is_empty() || self.state.ready() == 0 || context.read_ahead.bytes() > KEPT_BYTES_MAX {
            self.forget_read();
        }
    }
}
