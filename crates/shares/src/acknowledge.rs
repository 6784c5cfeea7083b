//! Settling messages that a member holds. All acknowledgements of a partition take effect, or none.

use std::ops::RangeInclusive;
use std::sync::Arc;

use stafett_journal::Refusal;
use stafett_queue::{ConsumerKey, DeliveryId};
use stafett_store::NotStored;

use super::locks::{Locks, RecordLock};
use super::place::{Place, return_one};
use super::places::{ShareRules, Shares};
use stafett_delivery::DeliveryState;

/// Kind of acknowledgement of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcknowledgeKind {
    /// There is no message at this offset.
    Gap,
    Accept,
    /// It comes again, unless it was delivered as often as it may be.
    Release,
    /// It never comes again.
    Reject,
    /// It stays with the member, whose lock begins anew.
    Renew,
}

/// Acknowledgement of neighbouring messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement {
    pub offsets: RangeInclusive<u64>,
    /// One for all, or one for each.
    pub kinds: Vec<AcknowledgeKind>,
}

/// Refusal of acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcknowledgeError {
    #[error("the group has no place in this partition")]
    NoSuchPlace,
    #[error("offset {0} is behind all messages that members have taken")]
    NotTaken(u64),
    #[error("the member does not hold offset {0}")]
    NotHeld(u64),
}

impl Place {
    /// Settles messages of a partition that a member holds. Those below the start, which are settled already,
    /// are ignored.
    pub fn acknowledge(
        self: &Arc<Self>,
        partition: u32,
        member: &str,
        rules: &ShareRules,
        all: &[Acknowledgement],
    ) -> Result<(), AcknowledgeError> {
        let shares = self.shares.upgrade().ok_or(AcknowledgeError::NoSuchPlace)?;
        let returns = {
            let mut locks = self.locks.lock();
            let mut inner = self.dispatcher.lock();
            if self.is_deleted() || inner.log(partition).is_none() {
                return Err(AcknowledgeError::NoSuchPlace);
            }
            let returns_max = rules.deliveries_max.saturating_sub(1);
            inner.state.set_delivery_limit(Some(returns_max));
            // A lock may be due, and its timer late.
            check(&inner, &locks, partition, member, all)?;
            let mut settling = Settling {
                shares: &shares,
                locks: &mut locks,
                inner: &mut inner,
                partition,
                renewed: Vec::new(),
                renewed_key: None,
                returns: false,
            };
            for each in all {
                settling.apply(each);
            }
            settling.renew(member, rules);
            let returns = settling.returns;
            if let Some(due) = locks.next_due() {
                inner.wake_at(&shares.context, &self.dispatcher, due);
            }
            shares.context.mark_dirty(&self.dispatcher, &mut inner);
            returns
        };
        if returns {
            self.wake_waiting();
        }
        Ok(())
    }
}

/// Checks that the member holds all messages.
fn check(
    inner: &DeliveryState,
    locks: &Locks,
    partition: u32,
    member: &str,
    all: &[Acknowledgement],
) -> Result<(), AcknowledgeError> {
    let lane = inner.state.lane(partition).ok_or(AcknowledgeError::NoSuchPlace)?;
    let mut left = lane.in_flight() as u64;
    for each in all {
        let (first, last) = (*each.offsets.start().max(&lane.head()), *each.offsets.end());
        if last >= lane.taken_to() {
            return Err(AcknowledgeError::NotTaken(last));
        }
        if first > last {
            continue;
        }
        // Bounds the work, however long the range is.
        left = left
            .checked_sub(last - first + 1)
            .ok_or(AcknowledgeError::NotHeld(last))?;
        for offset in first..=last {
            let key = lane.taken(offset).and_then(|taken| taken.consumer);
            if key.and_then(|key| locks.member(key)) != Some(member) {
                return Err(AcknowledgeError::NotHeld(offset));
            }
        }
    }
    Ok(())
}

struct Settling<'a> {
    shares: &'a Shares,
    locks: &'a mut Locks,
    inner: &'a mut DeliveryState,
    partition: u32,
    renewed: Vec<u64>,
    renewed_key: Option<ConsumerKey>,
    /// True if messages have returned.
    returns: bool,
}

impl Settling<'_> {
    fn apply(&mut self, each: &Acknowledgement) {
        let head = self
            .inner
            .state
            .lane(self.partition)
            .map_or(0, stafett_queue::Lane::head);
        let first = *each.offsets.start();
        let skipped = usize::try_from(head.saturating_sub(first)).unwrap_or(usize::MAX);
        let mut kinds = each.kinds.iter().copied();
        let only = (each.kinds.len() == 1).then(|| kinds.next()).flatten();
        let mut kinds = kinds.skip(skipped);
        for offset in first.max(head)..=*each.offsets.end() {
            if let Some(kind) = only.or_else(|| kinds.next()) {
                self.settle(offset, kind);
            }
        }
    }

    fn settle(&mut self, offset: u64, kind: AcknowledgeKind) {
        let id = DeliveryId {
            lane: self.partition,
            offset,
        };
        let Some(key) = self.inner.state.taken(id).and_then(|taken| taken.consumer) else {
            return;
        };
        let metrics = &self.shares.context.metrics;
        match kind {
            AcknowledgeKind::Gap | AcknowledgeKind::Accept => {
                let (state, changes) = self.inner.parts();
                state.complete(id, changes);
                metrics.settled.inc();
            }
            AcknowledgeKind::Reject => {
                let (state, changes) = self.inner.parts();
                state.complete(id, changes);
                metrics.rejected.inc();
            }
            AcknowledgeKind::Release => {
                self.locks.on_returned(key, offset);
                return_one(self.inner, self.shares, id);
                self.shares.metrics.released.inc();
                self.returns = true;
            }
            AcknowledgeKind::Renew => {
                let renewed = *self.renewed_key.get_or_insert_with(|| self.locks.new_key());
                self.inner.state.give_to(id, renewed);
                self.renewed.push(offset);
                self.shares.metrics.renewed.inc();
            }
        }
        self.locks.on_released(key);
    }

    /// Adds the lock of renewed messages.
    fn renew(&mut self, member: &str, rules: &ShareRules) {
        let Some(key) = self.renewed_key else { return };
        let runs = self.renewed.chunk_by(|one, next| one + 1 == *next);
        let offsets = runs.filter_map(|run| Some(*run.first()?..*run.last()? + 1));
        let lock = RecordLock {
            member: member.into(),
            partition: self.partition,
            offsets: offsets.collect(),
            held: self.renewed.len() as u64,
            until_ms: self.shares.context.clock.now_ms() + i64::from(rules.lock_ms),
        };
        self.locks.insert(key, lock);
    }
}

impl Shares {
    /// Waits until all acknowledgements that were made before in these places are stored, as durably as
    /// groups are. An error says that some are not stored yet: they hold until a restart, and are stored
    /// once there is space.
    pub async fn stored(self: &Arc<Self>, places: &[Arc<Place>]) -> Result<(), NotStored> {
        let unstored = self.context.flush();
        if places.iter().any(|place| unstored.contains(&place.id)) {
            // They are retried, but would come again after a restart meanwhile.
            return Err(NotStored::Refused(Refusal::DiskFull));
        }
        let ticket = self.stage_nothing();
        stafett_store::only_outcome(ticket.await.pop().as_ref())
    }
}
