//! Leases: messages in flight that belong to no consumer, and return to their places after a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stafett_queue::DeliveryId;
use uuid::Uuid;

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::outbox::Delivery;
use super::pull::PulledBatch;

/// Id of a lease. A message that is leased again has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId {
    pub message: DeliveryId,
    /// Random number.
    pub nonce: u64,
}

/// Leases of a dispatcher.
#[derive(Debug, Default)]
pub(super) struct Leases {
    by_message: BTreeMap<DeliveryId, Lease>,
    by_end: BTreeSet<(i64, DeliveryId)>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    nonce: u64,
    /// In steady time.
    ends_ms: i64,
}

impl Leases {
    fn add(&mut self, message: DeliveryId, ends_ms: i64) -> LeaseId {
        let (nonce, _) = Uuid::new_v4().as_u64_pair();
        self.by_message.insert(message, Lease { nonce, ends_ms });
        self.by_end.insert((ends_ms, message));
        LeaseId { message, nonce }
    }

    /// Returns the end of the lease of a message, in steady time.
    pub(super) fn end_of(&self, message: DeliveryId) -> Option<i64> {
        Some(self.by_message.get(&message)?.ends_ms)
    }

    /// Ends a lease. False if it has ended.
    fn remove(&mut self, id: LeaseId) -> bool {
        let known = self.by_message.get(&id.message).copied();
        let Some(lease) = known.filter(|lease| lease.nonce == id.nonce) else {
            return false;
        };
        self.by_message.remove(&id.message);
        self.by_end.remove(&(lease.ends_ms, id.message));
        true
    }

    fn extend(&mut self, id: LeaseId, ends_ms: i64) -> bool {
        let Some(lease) = self.by_message.get_mut(&id.message) else {
            return false;
        };
        if lease.nonce != id.nonce {
            return false;
        }
        self.by_end.remove(&(lease.ends_ms, id.message));
        lease.ends_ms = ends_ms;
        self.by_end.insert((ends_ms, id.message));
        true
    }

    /// Removes and returns the messages whose leases have ended by `now_ms`.
    fn take_ended(&mut self, now_ms: i64) -> Vec<DeliveryId> {
        let mut ended = Vec::new();
        while let Some((ends_ms, message)) = self.by_end.first().copied()
            && ends_ms <= now_ms
        {
            self.by_end.pop_first();
            self.by_message.remove(&message);
            ended.push(message);
        }
        ended
    }
}

impl PulledBatch {
    /// Leaves the messages in flight under leases of `ms`.
    pub fn lease(self, context: &DeliveryContext, ms: u64) -> Vec<(Delivery, LeaseId)> {
        let (dispatcher, deliveries) = self.into_parts();
        let mut inner = dispatcher.lock();
        let ends_ms = end_of(context, ms);
        let leases = inner.leases.get_or_insert_default();
        let held = deliveries.into_iter().map(|delivery| {
            let id = leases.add(delivery.id, ends_ms);
            (delivery, id)
        });
        let held = held.collect();
        inner.wake_at(context, &dispatcher, ends_ms);
        held
    }
}

impl Dispatcher {
    /// Extends leases: each ends `ms` from now. Returns false for each that has ended already.
    pub fn extend_leases(self: &Arc<Self>, extensions: &[(LeaseId, u64)]) -> Vec<bool> {
        let Some(context) = self.context.upgrade() else {
            return vec![false; extensions.len()];
        };
        let mut inner = self.lock();
        let mut extend = |(id, ms): &(LeaseId, u64)| {
            let ends_ms = end_of(&context, *ms);
            let leases = inner.leases.as_mut();
            let is_extended = leases.is_some_and(|leases| leases.extend(*id, ends_ms));
            if is_extended {
                inner.wake_at(&context, self, ends_ms);
            }
            is_extended
        };
        extensions.iter().map(&mut extend).collect()
    }

    /// Ends leases, whose messages stay in flight. Returns false for each that has ended already.
    pub fn take_leases(self: &Arc<Self>, ids: &[LeaseId]) -> Vec<bool> {
        let mut inner = self.lock();
        let mut remove = |id: &LeaseId| {
            let leases = inner.leases.as_mut();
            leases.is_some_and(|leases| leases.remove(*id))
        };
        let known = ids.iter().map(&mut remove).collect();
        if let Some(context) = self.context.upgrade() {
            inner.note_use(&context, self);
        }
        known
    }
}

impl DeliveryState {
    pub(super) fn has_leases(&self) -> bool {
        let leases = self.leases.as_ref();
        leases.is_some_and(|leases| !leases.by_message.is_empty())
    }

    /// Takes the messages whose leases have ended, and schedules the next end.
    pub(super) fn ended_leases(
        &mut self,
        context: &DeliveryContext,
        dispatcher: &Arc<Dispatcher>,
    ) -> Vec<DeliveryId> {
        let Some(leases) = &mut self.leases else {
            return Vec::new();
        };
        let ended = leases.take_ended(context.clock.now_ms());
        match leases.by_end.first().copied() {
            Some((ends_ms, _)) => self.wake_at(context, dispatcher, ends_ms),
            None => self.leases = None,
        }
        if !ended.is_empty() {
            self.note_use(context, dispatcher);
        }
        ended
    }
}

fn end_of(context: &DeliveryContext, ms: u64) -> i64 {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    context.clock.now_ms().saturating_add(ms)
}
