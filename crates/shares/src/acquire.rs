//! Taking messages: whole batches as stored, and the messages in them that a member has locked.
//!
//! A caller asks where to read ([`Place::next_offset`]), reads the log, and takes messages of the read.
//! Others may have taken some of them meanwhile; then it gets fewer.

use std::sync::Arc;

use bytes::Bytes;
use stafett_model::Offset;
use stafett_queue::TakenRun;
use stafett_topics::{Batches, LogSlice};

use super::locks::RecordLock;
use super::place::Place;
use super::places::ShareRules;
use super::throttle::Throttle;

/// Bounds of the messages that a member takes of one partition.
#[derive(Debug, Clone)]
pub struct Acquire {
    pub member: Arc<str>,
    /// Most messages; unless `is_exact`, the last batch may exceed it.
    pub records_max: u64,
    pub is_exact: bool,
    /// Number of messages at which a range ends with its batch.
    pub range_records: u64,
}

/// Messages that a member has taken of one partition.
#[derive(Debug, Default)]
pub struct Acquired {
    pub ranges: Vec<AcquiredRange>,
    /// Batches with these messages, as stored, and maybe with others.
    pub batches: Vec<Bytes>,
}

/// Neighbouring messages that were taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcquiredRange {
    pub first: Offset,
    pub last: Offset,
    /// Number of deliveries, with this one.
    pub deliveries: u32,
}

impl Acquired {
    /// Returns the number of messages.
    pub fn records(&self) -> u64 {
        let counts = self.ranges.iter().map(|range| range.last.0 - range.first.0 + 1);
        counts.sum()
    }

    /// Returns the bytes of the batches.
    pub fn bytes(&self) -> usize {
        self.batches.iter().map(Bytes::len).sum()
    }

    fn add(&mut self, runs: &[TakenRun], batch: Bytes, range_records: u64) {
        let mut may_join = true;
        for TakenRun { offsets, returns } in runs {
            let (first, last) = (Offset(offsets.start), Offset(offsets.end - 1));
            let deliveries = returns.saturating_add(1);
            match self.ranges.last_mut() {
                Some(range)
                    if range.last.0 + 1 == first.0
                        && range.deliveries == deliveries
                        && !(may_join && range.last.0 - range.first.0 + 1 >= range_records) =>
                {
                    range.last = last;
                }
                _ => self.ranges.push(AcquiredRange {
                    first,
                    last,
                    deliveries,
                }),
            }
            may_join = false;
        }
        self.batches.push(batch);
    }

    /// Returns the lock that `member` has on the messages.
    fn lock(&self, partition: u32, member: &Arc<str>, until_ms: i64) -> RecordLock {
        let ranges = self.ranges.iter();
        RecordLock {
            member: Arc::clone(member),
            partition,
            offsets: ranges.map(|range| range.first.0..range.last.0 + 1).collect(),
            held: self.records(),
            until_ms,
        }
    }
}

impl Place {
    /// Takes messages of a read of a partition from `from` on. Holes in the log count as settled.
    pub fn acquire(
        self: &Arc<Self>,
        partition: u32,
        from: Offset,
        read: LogSlice,
        rules: &ShareRules,
        wanted: &Acquire,
    ) -> Acquired {
        let mut acquired = Acquired::default();
        let Some(shares) = self.shares.upgrade() else {
            return acquired;
        };
        let mut locks = self.locks.lock();
        let mut inner = self.dispatcher.lock();
        if self.is_deleted() {
            return acquired;
        }
        let returns_max = rules.deliveries_max.saturating_sub(1);
        inner.state.set_delivery_limit(Some(returns_max));
        let key = locks.new_key();
        let first_open = inner.state.lane(partition).map_or(0, stafett_queue::Lane::head);
        locks.first_taken.forget_below(partition, first_open);
        let (mut left, mut at) = (wanted.records_max, from.0);
        let mut throttle = Throttle::new(rules.deliveries_max);
        let mut batches = Batches::of(read);
        while left > 0
            && !throttle.is_closed()
            && let Some((header, batch)) = batches.next_batch()
        {
            let Ok(base) = u64::try_from(header.base_offset) else {
                break;
            };
            let end = base + header.span();
            let (state, changes) = inner.parts();
            // Nothing is stored before the batch.
            let missing = at..if batches.is_hidden(&header) { end } else { base };
            state.drop_range(partition, missing, changes);
            let is_full = state
                .lane(partition)
                .is_none_or(|lane| lane.in_flight() >= rules.locks_max);
            let new = state.lane(partition).map_or(0, stafett_queue::Lane::taken_to);
            let taken_end = if is_full { end.min(new) } else { end };
            let mut room = if wanted.is_exact { left } else { u64::MAX };
            let runs = state.take_range(partition, at.max(base)..taken_end, key, |offset, deliveries| {
                let neighbours = || locks.first_taken.neighbours(partition, offset);
                let neighbours = || neighbours().unwrap_or_else(|| header.span());
                let is_admitted = room > 0 && throttle.admits(deliveries, neighbours);
                room -= u64::from(is_admitted);
                is_admitted
            });
            let taken: u64 = runs.iter().map(|run| run.offsets.end - run.offsets.start).sum();
            if taken > 0 {
                left = left.saturating_sub(taken);
                acquired.add(&runs, batch, wanted.range_records);
            }
            at = at.max(end);
        }
        let held = acquired.records();
        if held > 0 {
            let until_ms = shares.context.clock.now_ms() + i64::from(rules.lock_ms);
            locks.insert(key, acquired.lock(partition, &wanted.member, until_ms));
            inner.wake_at(&shares.context, &self.dispatcher, until_ms);
            shares.context.metrics.delivered.inc_by(held);
        }
        shares.context.mark_dirty(&self.dispatcher, &mut inner);
        acquired
    }
}
