//! Delivery state over one log.
//!
//! ```text
//!  head                        next                         end
//!   |  settled, in flight,      |  ready, or settled         |
//!   |  or returned              |  without being delivered   |
//! ```
//!
//! Below the head everything is settled. An offset below `next` is settled, in flight, or returned. One at or
//! behind `next` is ready, unless it is settled or was chosen: taken out of its turn.
//!
//! Length: one structure; each change keeps the order drawn above.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::consumers::ConsumerKey;
use crate::in_flight::InFlightSet;
use crate::offset_set::OffsetSet;

/// Offsets by which a hand-out mark is set ahead, at least and at most.
const MARK_AHEAD_MIN: u64 = 64;
const MARK_AHEAD_MAX: u64 = 16_384;

/// Delivery state over one log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lane {
    pub(crate) head: u64,
    next: u64,
    end: u64,
    /// Settled offsets at or behind the head.
    pub(crate) settled: OffsetSet,
    /// Number of settled offsets at or behind `next`.
    settled_ahead: u64,
    in_flight: InFlightSet,
    /// Messages in flight that were taken out of their turn.
    chosen: BTreeSet<u64>,
    /// Number of chosen messages at or behind `next`.
    chosen_ahead: u64,
    /// Messages before `next` that are ready again, with their return counts: 0 after
    /// [`Self::return_unseen`].
    returned: BTreeMap<u64, u32>,
    /// Return counts of other ready messages: from before the restart, or chosen and returned.
    counts: BTreeMap<u64, u32>,
    /// Hand-out mark, stored or about to be: nothing at or behind it has been delivered.
    pub(crate) mark: u64,
    /// Hand-out mark as stored.
    mark_stored: u64,
    /// Value of `next` at which the next mark is set.
    mark_due: u64,
    /// Messages below this offset may have been delivered before the restart.
    redelivered_below: u64,
    /// Offsets delivered since the start; marks are set further ahead the more there are.
    handed_out: u64,
    /// Offsets whose bodies are not counted in the bytes of the queue.
    pub(crate) uncounted: Range<u64>,
}

/// A message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// `None` if it was taken by a caller that is not a consumer.
    pub consumer: Option<ConsumerKey>,
    /// Return count before this delivery.
    pub returns: u32,
    pub bytes: u32,
}

/// Neighbouring messages in flight that were taken together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenRun {
    pub offsets: Range<u64>,
    /// Return count of each before this delivery.
    pub returns: u32,
}

impl Lane {
    /// Builds a lane from its stored state.
    pub(crate) fn restored(head: u64, settled: OffsetSet, mark: u64, counts: BTreeMap<u64, u32>) -> Self {
        let mut lane = Self {
            head,
            next: head,
            end: head,
            settled_ahead: settled.len(),
            settled,
            counts,
            ..Self::default()
        };
        lane.restore_exact_mark(mark);
        lane.pass_settled();
        lane
    }

    /// Returns the return counts of unsettled messages, as stored in a snapshot. The delivery of a chosen
    /// message counts already: no mark tells of it.
    pub(crate) fn return_counts(&self) -> BTreeMap<u64, u32> {
        let in_flight = self.in_flight.iter().filter_map(|(at, entry)| {
            let delivered = u32::from(self.chosen.contains(&at));
            let returns = entry.returns.saturating_add(delivered);
            (returns > 0).then_some((at, returns))
        });
        let returned = self.returned.iter().filter(|(_, count)| **count > 0);
        let mut counts = self.counts.clone();
        counts.extend(in_flight);
        counts.extend(returned.map(|(at, count)| (*at, *count)));
        counts
    }

    /// Returns the offset below which everything is settled.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns the offset behind the last known message.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Records that the log has messages up to `end`.
    pub fn grow(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Records that the log starts at `start` and earlier messages are gone. Returns the number of messages
    /// lost that were not in flight, and those that were.
    pub(crate) fn start_at(&mut self, start: u64) -> (u64, Vec<InFlight>) {
        if start <= self.head {
            return (0, Vec::new());
        }
        self.grow(start);
        let had = self.in_flight.remove_below(start);
        let lost = (start - self.head) - self.settled.count(self.head..start) - had.len() as u64;
        self.returned = self.returned.split_off(&start);
        self.counts = self.counts.split_off(&start);
        self.chosen = self.chosen.split_off(&start);
        self.chosen_ahead = self.chosen.range(self.next..).count() as u64;
        self.settle(self.head..start);
        if self.next < start {
            self.move_next(start);
            self.settled_ahead = self.settled.count(start..u64::MAX);
            self.pass_settled();
        }
        (lost, had)
    }

    /// Returns the number of ready messages.
    pub fn ready(&self) -> u64 {
        let ahead = self.settled_ahead + self.chosen_ahead;
        (self.end.saturating_sub(self.next)).saturating_sub(ahead) + self.returned.len() as u64
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the first messages in flight from an offset on, in order.
    pub fn in_flight_from(&self, at: u64, count: usize) -> Vec<(u64, InFlight)> {
        self.in_flight.first_from(at, count)
    }

    pub(crate) fn all_in_flight(&self) -> impl Iterator<Item = (u64, InFlight)> {
        self.in_flight.iter()
    }

    /// Returns the next message, always the lowest offset, and true if it was returned.
    pub fn first_ready(&self) -> Option<(u64, bool)> {
        match self.returned.first_key_value() {
            Some((at, _)) => Some((*at, true)),
            None => (self.next < self.end).then_some((self.next, false)),
        }
    }

    /// Returns the first ready message at or behind `from`.
    pub fn ready_from(&self, from: u64) -> Option<u64> {
        if let Some((at, _)) = self.returned.range(from..).next() {
            return Some(*at);
        }
        let at = self.first_waiting(from.max(self.next));
        (at < self.end).then_some(at)
    }

    /// Returns the first offset at or behind `from`, which is not before `next`, that is neither settled nor
    /// chosen.
    fn first_waiting(&self, from: u64) -> u64 {
        let mut at = self.settled.first_missing(from);
        while self.chosen_ahead > 0 && self.chosen.contains(&at) {
            at = self.settled.first_missing(at + 1);
        }
        at
    }

    /// Skips the offsets from the next one up to `to`: the log has no messages there.
    pub fn skip_to(&mut self, to: u64) {
        let from = self.next;
        if from < to {
            self.grow(to);
            self.settle(from..to);
            self.advance(to);
        }
    }

    /// Takes the next message, or a returned one: it is in flight then, with its return count.
    pub fn take(&mut self, at: u64, consumer: Option<ConsumerKey>, bytes: u32) -> InFlight {
        debug_assert!(
            at == self.next || self.returned.contains_key(&at),
            "it is its turn"
        );
        let entry = InFlight {
            consumer,
            bytes,
            returns: self.past(at),
        };
        self.in_flight.insert(at, entry);
        entry
    }

    /// Takes a ready message out of its turn: it is in flight then, with its return count. `None` if it is
    /// not ready.
    pub fn choose(&mut self, at: u64, consumer: Option<ConsumerKey>, bytes: u32) -> Option<InFlight> {
        if self.ready_from(at) != Some(at) {
            return None;
        }
        if at >= self.next {
            self.chosen_ahead += 1;
        }
        self.chosen.insert(at);
        let entry = InFlight {
            consumer,
            bytes,
            returns: self.past(at),
        };
        self.in_flight.insert(at, entry);
        Some(entry)
    }

    /// Takes ready messages of a range, in order, as long as `admits` returns true for their offsets and
    /// return counts. Only the next message and returned ones are taken: nothing is passed over. Returns runs
    /// of messages with the same return count.
    pub(crate) fn take_range(
        &mut self,
        range: Range<u64>,
        consumer: ConsumerKey,
        mut admits: impl FnMut(u64, u32) -> bool,
    ) -> Vec<TakenRun> {
        let mut runs: Vec<TakenRun> = Vec::new();
        let mut from = range.start;
        while let Some(at) = self.ready_from(from).filter(|at| *at < range.end)
            && (at == self.next || self.returned.contains_key(&at))
            && admits(at, self.returns(at))
        {
            let InFlight { returns, .. } = self.take(at, Some(consumer), 0);
            match runs.last_mut() {
                Some(run) if run.offsets.end == at && run.returns == returns => run.offsets.end = at + 1,
                _ => runs.push(TakenRun {
                    offsets: at..at + 1,
                    returns,
                }),
            }
            from = at + 1;
        }
        runs
    }

    /// Returns true if a message is settled.
    pub fn is_settled(&self, at: u64) -> bool {
        at < self.head || self.settled.contains(at)
    }

    /// Returns the number of messages from the head on that are not settled.
    pub fn unsettled(&self) -> u64 {
        self.end
            .saturating_sub(self.head)
            .saturating_sub(self.settled.len())
    }

    /// Returns the offset behind the last message that was ever taken or settled.
    pub fn taken_to(&self) -> u64 {
        self.next
    }

    /// Takes a ready message and settles it. Returns its return count.
    pub fn take_settled(&mut self, at: u64) -> u32 {
        let returns = self.past(at);
        self.settle(at..at + 1);
        returns
    }

    /// Settles a ready message; unless it was returned, with all offsets up to `to`. Returns the number of
    /// offsets.
    pub fn drop_run(&mut self, at: u64, to: u64) -> u64 {
        if self.returned.remove(&at).is_some() {
            self.settle(at..at + 1);
            return 1;
        }
        if at == self.next {
            self.advance(to);
        }
        self.settle(at..to);
        to - at
    }

    /// Returns true if a ready message may have been delivered before.
    pub fn was_handed_out(&self, at: u64) -> bool {
        // A message put back by `return_unseen` has a return count of 0.
        let was_returned = |counts: &BTreeMap<u64, u32>| counts.get(&at).is_some_and(|times| *times > 0);
        at < self.redelivered_below || was_returned(&self.returned) || was_returned(&self.counts)
    }

    /// Returns the return count of a message that is not settled.
    pub fn returns(&self, at: u64) -> u32 {
        let ready = self.returned.get(&at).or_else(|| self.counts.get(&at)).copied();
        let in_flight = || self.in_flight.get(at).map(|entry| entry.returns);
        ready.or_else(in_flight).unwrap_or(0)
    }

    /// Returns true if a ready message was returned or put back since the start.
    pub fn was_returned(&self, at: u64) -> bool {
        self.returned.contains_key(&at)
    }

    /// Removes a message from the ready ones and returns its return count.
    fn past(&mut self, at: u64) -> u32 {
        if let Some(count) = self.returned.remove(&at) {
            return count;
        }
        if at == self.next {
            self.advance(at + 1);
        }
        self.counts.remove(&at).unwrap_or(0)
    }

    /// Returns a message in flight.
    pub fn taken(&self, at: u64) -> Option<InFlight> {
        self.in_flight.get(at)
    }

    pub fn complete(&mut self, at: u64) -> Option<InFlight> {
        let entry = self.leave_flight(at)?;
        self.settle(at..at + 1);
        Some(entry)
    }

    /// Returns a message in flight to its place and increments its return count.
    pub fn put_back(&mut self, at: u64) -> Option<InFlight> {
        let entry = self.leave_flight(at)?;
        self.make_ready(at, entry.returns.saturating_add(1));
        Some(entry)
    }

    /// Puts a message in flight back to its place, as if it had never been taken.
    pub fn return_unseen(&mut self, at: u64) -> Option<InFlight> {
        let entry = self.leave_flight(at)?;
        self.make_ready(at, entry.returns);
        Some(entry)
    }

    /// Returns true if a message in flight was taken out of its turn.
    pub(crate) fn is_chosen(&self, at: u64) -> bool {
        self.chosen.contains(&at)
    }

    fn leave_flight(&mut self, at: u64) -> Option<InFlight> {
        let entry = self.in_flight.remove(at)?;
        if !self.chosen.is_empty() && self.chosen.remove(&at) && at >= self.next {
            self.chosen_ahead -= 1;
        }
        Some(entry)
    }

    /// Makes a message ready that is no longer in flight.
    fn make_ready(&mut self, at: u64, returns: u32) {
        if at < self.next {
            self.returned.insert(at, returns);
        } else if returns > 0 {
            self.counts.insert(at, returns);
        }
    }

    /// Gives a message in flight to another consumer. False if it is not in flight.
    pub(crate) fn give_to(&mut self, at: u64, consumer: ConsumerKey) -> bool {
        self.in_flight.give_to(at, consumer)
    }

    /// Detaches a message in flight from its consumer and returns the consumer.
    pub(crate) fn disown(&mut self, at: u64) -> Option<ConsumerKey> {
        self.in_flight.disown(at)
    }

    /// Settles all ready messages. Returns their number and the settled runs.
    pub fn purge(&mut self) -> (u64, Vec<Range<u64>>) {
        let purged = self.ready();
        let returned = std::mem::take(&mut self.returned);
        let mut runs: Vec<_> = returned.into_keys().map(|at| at..at + 1).collect();
        let mut from = self.first_waiting(self.next);
        while from < self.end {
            let chosen = self.chosen.range(from..self.end).next();
            let to = chosen.map_or(self.end, |at| *at);
            runs.push(from..to);
            from = self.first_waiting(to);
        }
        for run in &runs {
            self.settle(run.clone());
        }
        self.advance(self.end);
        self.counts.clear();
        (purged, runs)
    }

    /// Returns the hand-out mark to store before the next delivery, if one is due. It is due while part of
    /// the previous block is left, so that it is normally stored by the time it is needed
    /// ([`Self::is_marked`]).
    pub fn mark_ahead(&mut self) -> Option<u64> {
        if self.next < self.mark_due {
            return None;
        }
        let ahead = self.handed_out.clamp(MARK_AHEAD_MIN, MARK_AHEAD_MAX);
        self.mark = self.mark.max(self.next).saturating_add(ahead);
        self.mark_due = self.mark.saturating_sub(ahead / 4);
        Some(self.mark)
    }

    /// Records that a mark is stored.
    pub fn mark_is_stored(&mut self, mark: u64) {
        self.mark_stored = self.mark_stored.max(mark);
    }

    /// Returns true if a message can be delivered without any work on marks.
    pub fn is_marked_ahead(&self, at: u64) -> bool {
        at < self.mark_stored && self.next < self.mark_due
    }

    /// Returns true if a message delivered now is known as delivered after a restart.
    pub fn is_marked(&self, at: u64) -> bool {
        at < self.mark_stored
    }

    /// Returns true if a mark was ever set, that is, if anything may have been delivered.
    pub fn has_mark(&self) -> bool {
        self.mark > 0
    }

    /// Lowers the mark as far as possible, for a clean stop.
    pub fn mark_exactly(&mut self) -> u64 {
        let mark = self.next.max(self.redelivered_below.min(self.mark));
        (self.mark, self.mark_stored, self.mark_due) = (mark, mark, mark);
        mark
    }

    fn advance(&mut self, to: u64) {
        if to <= self.next {
            return;
        }
        self.handed_out += to - self.next;
        if self.settled_ahead > 0 {
            self.settled_ahead -= self.settled.count(self.next..to);
        }
        self.move_next(to);
        self.pass_settled();
    }

    /// Moves `next` forward. The count of settled offsets is the caller's matter.
    fn move_next(&mut self, to: u64) {
        if self.chosen_ahead > 0 {
            self.chosen_ahead -= self.chosen.range(self.next..to).count() as u64;
        }
        self.next = to;
    }

    /// Moves `next` to the first offset that is neither settled nor chosen.
    fn pass_settled(&mut self) {
        loop {
            if self.settled_ahead > 0 {
                let to = self.settled.first_missing(self.next);
                self.settled_ahead -= to - self.next;
                self.next = to;
            }
            if self.chosen_ahead == 0 || !self.chosen.contains(&self.next) {
                return;
            }
            self.move_next(self.next + 1);
        }
    }

    pub(crate) fn settle(&mut self, range: Range<u64>) {
        let range = range.start.max(self.head)..range.end;
        if range.start >= range.end {
            return;
        }
        let ahead = range.start.max(self.next)..range.end;
        if range.start == self.head && self.settled.is_empty() {
            // Common case: settled in order.
            self.head = range.end;
        } else {
            let before = range.start..range.end.min(ahead.start).max(range.start);
            self.settled.insert(before);
            if ahead.start < ahead.end {
                self.settled_ahead += self.settled.insert(ahead);
            }
            if range.start <= self.head {
                self.head = self.settled.first_missing(self.head);
                if self.next < self.head {
                    self.settled_ahead -= self.settled.count(self.next..self.head);
                }
                self.settled.remove_below(self.head);
            }
        }
        if self.next < self.head {
            self.move_next(self.head);
            self.pass_settled();
        }
        if !self.counts.is_empty()
            && self
                .counts
                .first_key_value()
                .is_some_and(|(at, _)| *at < self.head)
        {
            self.counts = self.counts.split_off(&self.head);
        }
    }

    /// Restores a return count from a stored change; before any delivery.
    pub(crate) fn restore_count(&mut self, at: u64, count: u32) {
        if at >= self.head && !self.settled.contains(at) {
            self.counts.insert(at, count);
        }
    }

    /// Restores a mark from a stored change.
    pub(crate) fn restore_mark(&mut self, mark: u64) {
        self.restore_exact_mark(self.mark.max(mark));
    }

    /// Restores an exact mark from a clean stop.
    pub(crate) fn restore_exact_mark(&mut self, mark: u64) {
        (self.mark, self.mark_stored, self.mark_due) = (mark, mark, mark);
        self.redelivered_below = mark;
    }
}
