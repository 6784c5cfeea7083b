//! Settlement of messages in flight, and purges.

use std::sync::Arc;

use stafett_model::DeathReason;
use stafett_queue::{DeliveryId, ReturnOutcome};

use super::dispatcher::{DeliveryState, Dispatcher};
use super::grown_lanes::GrownLanes;

/// Settlement of a message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// The message is done.
    Complete,
    /// The message returns to its place.
    Requeue,
    /// The message is dead-lettered, if dead letters have a target, and otherwise dropped.
    Discard,
}

impl Settle {
    /// Returns true if messages of the dispatcher are done with it: they neither return nor become dead
    /// letters.
    pub fn is_completion(self, dispatcher: &Dispatcher) -> bool {
        match self {
            Self::Complete => true,
            Self::Discard => !dispatcher.flags.dead_letters(),
            Self::Requeue => false,
        }
    }
}

impl Dispatcher {
    /// Settles messages in flight, all under one lock. Ids that are not in flight are ignored. Returns the
    /// number of those that were.
    pub fn settle(self: &Arc<Self>, settlements: &[(DeliveryId, Settle)]) -> usize {
        let Some(context) = self.context.upgrade() else {
            return 0;
        };
        let mut settled = 0_u64;
        let (mut requeued, mut discarded) = (0, 0);
        let mut known = 0;
        let mut dead: Vec<(DeliveryId, DeathReason)> = Vec::new();
        let goes_on = {
            let mut inner = self.lock();
            let has_target = inner.settings.dead_letter.is_some();
            let (state, changes) = inner.parts();
            for (id, what) in settlements {
                match what {
                    Settle::Complete => {
                        if state.complete(*id, changes) {
                            settled += 1;
                            known += 1;
                        }
                    }
                    Settle::Requeue => {
                        let returned = state.requeue(*id, changes);
                        requeued += u64::from(returned.is_some());
                        known += usize::from(returned.is_some());
                        if matches!(returned, Some(ReturnOutcome::TooOften)) {
                            dead.push((*id, DeathReason::DeliveryLimit));
                        }
                    }
                    Settle::Discard => {
                        if state.taken(*id).is_some() {
                            known += 1;
                            discarded += 1;
                            dead.push((*id, DeathReason::Rejected));
                        }
                    }
                }
            }
            let completed = settled;
            if !has_target {
                for (id, _) in dead.drain(..) {
                    settled += u64::from(state.complete(id, changes));
                }
            }
            for (id, _) in &dead {
                // The message no longer counts for its consumer, which need not wait until it is
                // dead-lettered.
                state.disown(*id);
            }
            context.mark_dirty(self, &mut inner);
            self.count_settled(&context, (completed, requeued, discarded));
            let goes_back = inner.note_settled(settlements);
            let is_limited = inner.settings.has_limits() && goes_back;
            if is_limited {
                // All stored messages count towards the limits.
                inner.grown = GrownLanes::All;
            }
            // A requeued message may be before the examined head, and may exceed the limits.
            inner.state.ready() > 0 && (inner.state.consumers.any_ready() || inner.may_expire || is_limited)
        };
        context.metrics.settled.inc_by(settled);
        if !dead.is_empty() {
            self.queue_dead_letters(&context, dead);
        }
        if goes_on {
            self.dispatch();
        }
        known
    }

    /// Settles all waiting messages. Returns their number.
    pub fn purge(self: &Arc<Self>) -> u64 {
        self.purge_up_to(u64::MAX).unwrap_or(0)
    }

    /// Settles all waiting messages, unless more than `max` wait: then returns the number of these as the
    /// error.
    pub fn purge_up_to(self: &Arc<Self>, max: u64) -> Result<u64, u64> {
        let Some(context) = self.context.upgrade() else {
            return Ok(0);
        };
        let mut inner = self.lock();
        inner.look_at_logs(self, &context);
        if inner.ready() > max {
            return Err(inner.ready());
        }
        let (state, changes) = inner.parts();
        let purged = state.purge(changes);
        inner.read_ahead.clear();
        inner.head_expires = None;
        context.mark_dirty(self, &mut inner);
        if purged > 0 {
            self.touch(&context);
        }
        Ok(purged)
    }
}

impl DeliveryState {
    /// Wakes those that look for messages or wait for credit. Returns true if a message has returned.
    fn note_settled(&mut self, settlements: &[(DeliveryId, Settle)]) -> bool {
        let back = settlements.iter().filter(|(_, what)| *what == Settle::Requeue);
        let back: Vec<_> = back.map(|(id, _)| *id).collect();
        let goes_back = !back.is_empty();
        if goes_back {
            self.on_put_back(&back);
        } else if self.has_groups() {
            self.wake_searches();
        }
        goes_back
    }
}
