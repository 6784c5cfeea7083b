//! Choice between delivery, expiry and drop of the next message.

use stafett_model::{DeathReason, Epoch, StoredMessage};
use stafett_queue::expiry::lifetime_ms;
use stafett_queue::{DeliveryId, Overflow, QueueSettings, ReadyMessage};

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::hand_out::{HandOutStep, Turn};
use super::marking::Marked;

/// The next message, after reading.
pub(super) struct NextMessage {
    pub(super) ready: ReadyMessage,
    pub(super) message: StoredMessage,
    /// Epoch that stored the message.
    pub(super) stored_by: Epoch,
}

/// Returns the bytes that a message counts for, as long as it is ready.
pub(super) fn value_bytes(message: &StoredMessage) -> u32 {
    u32::try_from(message.value_len()).unwrap_or(u32::MAX)
}

impl Dispatcher {
    /// Returns the time at which a message expires, in steady time; `None` if it does not.
    fn expires_at(
        settings: &QueueSettings,
        context: &DeliveryContext,
        message: &StoredMessage,
        stored_by: Epoch,
    ) -> Option<i64> {
        let lifetime = lifetime_ms(settings, message.ttl_ms())?;
        let is_of_this_run = stored_by == context.epoch;
        let arrived = context.clock.arrival(message.arrived_ms(), is_of_this_run);
        Some(arrived.saturating_add(lifetime))
    }

    /// Returns true if a ready message is neither expired nor one that ended with an earlier run.
    pub(super) fn is_deliverable(
        &self,
        settings: &QueueSettings,
        context: &DeliveryContext,
        message: &StoredMessage,
        stored_by: Epoch,
    ) -> bool {
        let expires = Self::expires_at(settings, context, message, stored_by);
        let is_expired = expires.is_some_and(|at| at <= context.clock.now_ms());
        !is_expired && !self.is_of_ended_run(message, stored_by, context.epoch)
    }
}

impl DeliveryState {
    /// Hands out a message, drops it, or leaves it in its place.
    pub(super) fn expire_or_deliver(
        &mut self,
        turn: &mut Turn<'_>,
        found: NextMessage,
        wanted: bool,
        too_many: bool,
    ) -> Option<HandOutStep> {
        let (ready, message) = (found.ready, &found.message);
        let bytes = value_bytes(message);
        if turn
            .dispatcher
            .is_of_ended_run(message, found.stored_by, turn.context.epoch)
        {
            // A transient message of an earlier run.
            let (state, changes) = self.parts();
            state.drop_ready(ready.id, bytes, changes);
            return None;
        }
        let lifetime = lifetime_ms(&self.settings, message.ttl_ms());
        let expires = Dispatcher::expires_at(&self.settings, turn.context, message, found.stored_by);
        // A message with a TTL of 0 goes only to a consumer that waited when it arrived; a new request comes
        // too late.
        let has_no_time = lifetime == Some(0) && !ready.was_returned;
        let is_awaited = expires.is_some_and(|arrived| arrived >= self.waited_ms);
        let at_once = has_no_time && is_awaited && wanted && self.state.consumers.any_ready();
        let reason = match expires {
            Some(at) if at <= turn.now_ms && !at_once => Some(DeathReason::Expired),
            _ if self.was_returned_too_often(ready.id) => Some(DeathReason::DeliveryLimit),
            _ => too_many.then_some(DeathReason::Length),
        };
        if let Some(reason) = reason {
            let has_target = self.settings.dead_letter.is_some();
            if has_target && self.dead_letters.is_full() {
                // Continues when some of them are stored.
                self.read_ahead.put_back(ready, found.message, found.stored_by);
                if self.dead_letters.waits_for_journal() {
                    self.getters.clear();
                }
                return Some(HandOutStep::Idle);
            }
            turn.context.metrics.on_death(reason);
            turn.tally.on_death(reason);
            let (state, changes) = self.parts();
            if has_target {
                state.hand_out(ready.id, None, true, bytes, changes);
                self.dead_letters.add(ready.id, reason, Some(found.message));
            } else {
                state.drop_ready(ready.id, bytes, changes);
            }
            return None;
        }
        if !wanted {
            self.head_expires = Some((ready.id, expires.unwrap_or(i64::MAX)));
            if let Some(at) = expires {
                self.wake_at(turn.context, turn.dispatcher, at);
            }
            self.read_ahead.put_back(ready, found.message, found.stored_by);
            return Some(HandOutStep::Idle);
        }
        match self.marked(turn.context, turn.dispatcher, ready.id.lane, ready.id.offset) {
            Marked::Yes => {}
            Marked::After(marking) => {
                self.read_ahead.put_back(ready, found.message, found.stored_by);
                return Some(HandOutStep::Mark(marking));
            }
            Marked::No => {
                self.read_ahead.put_back(ready, found.message, found.stored_by);
                self.stall(turn.context, turn.dispatcher);
                return Some(HandOutStep::Idle);
            }
        }
        match self.deliver_one(turn, ready, found.message, bytes) {
            Ok(()) => turn.delivered += 1,
            Err(message) => self.read_ahead.put_back(ready, *message, found.stored_by),
        }
        None
    }

    /// Returns true if a ready message was returned more often than it may be: deliveries of chosen messages
    /// count as returned when the broker ends before they are settled.
    pub(super) fn was_returned_too_often(&self, id: DeliveryId) -> bool {
        let returns = || self.state.lane(id.lane).map_or(0, |lane| lane.returns(id.offset));
        self.settings
            .delivery_limit
            .is_some_and(|limit| returns() > limit)
    }

    /// Returns true if the dispatcher is over its limits and has to drop the oldest message.
    pub(super) fn over_limit(&self) -> bool {
        let settings = &self.settings;
        if !settings.has_limits() || settings.overflow != Overflow::DropHead || self.counts_too_many {
            return false;
        }
        settings.length_max.is_some_and(|max| self.state.ready() > max)
            || settings
                .bytes_max
                .is_some_and(|max| self.state.bytes_ready() > max)
    }
}
