//! The place of a group in a topic: its delivery state, and the locks of messages in flight.
//!
//! Lock order: locks → the dispatcher's state. Waiters are woken under none.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use stafett_journal::Frame;
use stafett_model::{DeathReason, Lock, Offset, StoredMessage};
use stafett_queue::{DeliveryId, ReturnOutcome};
use stafett_topics::{Topic, TopicId, Visibility};
use tokio::sync::Notify;

use super::locks::{Locks, RecordLock};
use super::places::{ShareRules, Shares};
use stafett_delivery::{
    DeliveryState, Dispatcher, DispatcherOwner, DispatcherSpec, LaneLog, LogOwnership, StoringLetters,
};

/// The place of a share group in a topic.
pub struct Place {
    pub(super) id: u64,
    pub group: Arc<str>,
    pub topic: TopicId,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) locks: Lock<Locks>,
    pub(super) shares: Weak<Shares>,
    /// Callers that wait for messages; each is woken once.
    waiting: Lock<SmallVec<[Weak<Notify>; 1]>>,
}

/// Counts of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Offset below which everything is settled.
    pub start: Offset,
    /// Number of messages from there on that are not settled.
    pub unsettled: u64,
}

impl Place {
    pub(super) fn new(id: u64, group: Arc<str>, topic: &Topic, shares: &Arc<Shares>) -> Arc<Self> {
        let spec = DispatcherSpec {
            id,
            declared: Arc::default(),
            settings: Arc::default(),
            is_paused: false,
            logs: LaneLog::of_topic(topic, 0),
            ownership: LogOwnership::Topic,
            is_stored: true,
            is_pulled: true,
        };
        Arc::new_cyclic(|place: &Weak<Self>| Self {
            id,
            group,
            topic: topic.id,
            dispatcher: Dispatcher::new(spec, &shares.context, place.clone()),
            locks: Lock::default(),
            shares: Arc::downgrade(shares),
            waiting: Lock::default(),
        })
    }

    /// Returns true if it is deleted.
    pub fn is_deleted(&self) -> bool {
        self.dispatcher.is_ended()
    }

    /// Returns the counts of a partition; `None` if it does not exist.
    pub fn counts(&self, partition: u32) -> Option<PlaceCounts> {
        let shares = self.shares.upgrade()?;
        let mut inner = self.dispatcher.lock();
        inner.log(partition)?;
        inner.look_at_lane(&self.dispatcher, &shares.context, partition);
        let lane = inner.state.lane(partition)?;
        Some(PlaceCounts {
            start: Offset(lane.head()),
            unsettled: lane.unsettled(),
        })
    }

    /// Returns the offset from which a partition has to be read for its next messages; `None` if there are
    /// none that may be taken now.
    pub fn next_offset(&self, partition: u32, rules: &ShareRules) -> Option<Offset> {
        let shares = self.shares.upgrade()?;
        let mut inner = self.dispatcher.lock();
        if self.is_deleted() {
            return None;
        }
        inner.look_at_lane(&self.dispatcher, &shares.context, partition);
        let bounds = shares.journal.bounds(inner.log(partition)?)?;
        let end = match rules.visibility {
            Visibility::Stored => bounds.end,
            Visibility::Committed => bounds.stable,
        };
        // The log was looked at as far as it is committed.
        let lane = inner.state.lane_mut(partition);
        lane.grow(end.0);
        let (offset, was_returned) = lane.first_ready()?;
        // A group that read further before waits for the transaction.
        if offset >= end.0 {
            return None;
        }
        (was_returned || lane.in_flight() < rules.locks_max).then_some(Offset(offset))
    }

    /// Wakes `waiter` once, when there may be messages.
    pub fn wake_later(&self, waiter: &Arc<Notify>) {
        let mut waiting = self.waiting.lock();
        let waiter = Arc::downgrade(waiter);
        waiting.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&waiter));
        waiting.push(waiter);
    }

    pub(super) fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for waiter in waiting.iter().filter_map(Weak::upgrade) {
            waiter.notify_one();
        }
    }

    /// Settles ready messages that cannot be read. `is_lost` is true if they existed.
    pub fn skip(self: &Arc<Self>, partition: u32, offsets: Range<Offset>, is_lost: bool) {
        let Some(shares) = self.shares.upgrade() else {
            return;
        };
        let mut inner = self.dispatcher.lock();
        let before = inner.state.ready();
        let (state, changes) = inner.parts();
        state.drop_range(partition, offsets.start.0..offsets.end.0, changes);
        if is_lost {
            let lost = before.saturating_sub(inner.state.ready());
            shares.context.metrics.lost.inc_by(lost);
        }
        shares.context.mark_dirty(&self.dispatcher, &mut inner);
    }

    /// Returns the messages that a member holds: they come again.
    pub fn release(&self, member: &str) {
        let Some(shares) = self.shares.upgrade() else {
            return;
        };
        {
            let mut locks = self.locks.lock();
            let mut inner = self.dispatcher.lock();
            for (key, lock) in locks.take_of(member) {
                let count = return_locked(&mut inner, &shares, key, &lock);
                shares.metrics.released.inc_by(count);
            }
            shares.context.mark_dirty(&self.dispatcher, &mut inner);
        }
        self.wake_waiting();
    }

    /// Returns the messages of locks whose time is over.
    fn expire(&self, shares: &Shares) {
        let mut locks = self.locks.lock();
        let mut inner = self.dispatcher.lock();
        let now_ms = shares.context.clock.now_ms();
        while let Some((key, lock)) = locks.pop_due(now_ms) {
            let count = return_locked(&mut inner, shares, key, &lock);
            shares.metrics.expired.inc_by(count);
        }
        if let Some(due) = locks.next_due() {
            inner.wake_at(&shares.context, &self.dispatcher, due);
        }
        shares.context.mark_dirty(&self.dispatcher, &mut inner);
    }
}

/// Returns the messages that still have a lock. Returns their number.
fn return_locked(
    inner: &mut DeliveryState,
    shares: &Shares,
    key: stafett_queue::ConsumerKey,
    lock: &RecordLock,
) -> u64 {
    let mut count = 0;
    for offset in lock.offsets.iter().cloned().flatten() {
        let id = DeliveryId {
            lane: lock.partition,
            offset,
        };
        if inner
            .state
            .taken(id)
            .is_some_and(|taken| taken.consumer == Some(key))
        {
            return_one(inner, shares, id);
            count += 1;
        }
    }
    count
}

/// Returns a message in flight, or settles it if it was returned too often.
pub(super) fn return_one(inner: &mut DeliveryState, shares: &Shares, id: DeliveryId) {
    let (state, changes) = inner.parts();
    if state.requeue(id, changes) == Some(ReturnOutcome::TooOften) {
        state.complete(id, changes);
        shares.context.metrics.returned_too_often.inc();
    }
}

impl DispatcherOwner for Place {
    fn describe(&self) -> String {
        format!("share group {}", self.group)
    }

    fn on_unused(self: Arc<Self>, _: bool) {}

    fn on_pull_due(self: Arc<Self>) {
        if let Some(shares) = self.shares.upgrade() {
            self.expire(&shares);
        }
        self.wake_waiting();
    }

    fn store_dead_letters(
        self: Arc<Self>,
        _: Vec<(StoredMessage, DeathReason)>,
        _: Option<Frame>,
    ) -> StoringLetters {
        // Dead messages have no target: they are settled at once.
        Box::pin(std::future::ready(Ok(())))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place")
            .field("group", &self.group)
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}
