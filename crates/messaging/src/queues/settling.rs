//! What becomes of messages in flight, as consumers say, and of all that wait, when a queue is emptied.

use std::sync::Arc;

use stafett_model::DeathReason;
use stafett_queue::{DeliveryId, Returned};

use super::grown::Grown;
use super::queue::{Inner, Queue};

/// What is to happen to a message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// It is done.
    Complete,
    /// It goes back to its place.
    Requeue,
    /// Nobody wants it: it goes where dead letters go.
    Discard,
}

impl Queue {
    /// Settles messages in flight, all under one lock. Those that are not in flight are passed over; how many
    /// were.
    pub fn settle(self: &Arc<Self>, settlements: &[(DeliveryId, Settle)]) -> usize {
        let Some(hub) = self.hub.upgrade() else { return 0 };
        let mut settled = 0_u64;
        let mut known = 0;
        let mut dead: Vec<(DeliveryId, DeathReason)> = Vec::new();
        let goes_on = {
            let mut inner = self.lock();
            let Inner { state, changes, .. } = &mut *inner;
            for (id, what) in settlements {
                match what {
                    Settle::Complete => {
                        if state.complete(*id, changes) {
                            settled += 1;
                            known += 1;
                        }
                    }
                    Settle::Requeue => match state.requeue(*id, changes) {
                        Some(Returned::Waits) => known += 1,
                        Some(Returned::TooOften) => {
                            known += 1;
                            dead.push((*id, DeathReason::DeliveryLimit));
                        }
                        None => {}
                    },
                    Settle::Discard => {
                        if state.taken(*id).is_some() {
                            known += 1;
                            dead.push((*id, DeathReason::Rejected));
                        }
                    }
                }
            }
            if self.settings.dead_letter.is_none() {
                for (id, _) in dead.drain(..) {
                    settled += u64::from(state.complete(id, changes));
                }
            }
            for (id, _) in &dead {
                // Whoever had it does not wait until it is buried.
                state.disown(*id);
            }
            hub.mark_dirty(self, &mut inner);
            let goes_back = || settlements.iter().any(|(_, what)| *what == Settle::Requeue);
            let is_limited = self.settings.has_limits() && goes_back();
            if is_limited {
                // What counts is all that is stored.
                inner.grown = Grown::All;
            }
            // A requeue may put something before a head that was looked at, and make it more than may wait.
            inner.state.ready() > 0 && (inner.state.consumers.any_ready() || inner.may_expire || is_limited)
        };
        hub.metrics.settled.inc_by(settled);
        if !dead.is_empty() {
            self.bury_all(&hub, dead);
        }
        if goes_on {
            self.pump();
        }
        known
    }

    /// Settles all that waits; how many messages that were.
    pub fn purge(self: &Arc<Self>) -> u64 {
        let Some(hub) = self.hub.upgrade() else { return 0 };
        let mut inner = self.lock();
        inner.look_at_logs(&hub);
        let Inner { state, changes, .. } = &mut *inner;
        let purged = state.purge(changes);
        inner.forget_read();
        inner.head_expires = None;
        hub.mark_dirty(self, &mut inner);
        purged
    }
}
