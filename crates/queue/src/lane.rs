//! The delivery state over one log.
//!
//! ```text
//!  head                        next                         end
//!   |  settled, in flight,      |  waiting, or settled       |
//!   |  or come back             |  without being handed out  |
//! ```
//!
//! Below the head everything is settled. An offset below `next` is settled, in flight, or came back. One at
//! or behind it waits, unless the set of settled offsets has it.

use std::collections::BTreeMap;

use crate::consumers::ConsumerKey;
use crate::in_flight::InFlightSet;
use crate::offset_set::OffsetSet;

/// Offsets that a hand-out mark is set ahead, at least and at most.
const MARK_AHEAD_MIN: u64 = 64;
const MARK_AHEAD_MAX: u64 = 16_384;

/// The delivery state over one log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lane {
    pub(crate) head: u64,
    next: u64,
    end: u64,
    /// What is settled at or behind the head.
    pub(crate) settled: OffsetSet,
    /// How many of them are at or behind `next`.
    settled_ahead: u64,
    in_flight: InFlightSet,
    /// What waits again, and how often each came back: 0 if it was put back as if nobody had taken it.
    returned: BTreeMap<u64, u32>,
    /// How often messages came back that wait again since a restart.
    counts: BTreeMap<u64, u32>,
    /// Nothing at or behind it has ever been handed out, as far as is stored or about to be.
    pub(crate) mark: u64,
    /// The same, as far as is stored.
    mark_stored: u64,
    /// From here on the next mark is to be set.
    mark_due: u64,
    /// Below this, messages were perhaps handed out before the last start.
    redelivered_below: u64,
    /// Offsets handed out since the start: marks reach further the more they are.
    handed_out: u64,
}

/// A message that somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// `None` if it was not a consumer that took it.
    pub consumer: Option<ConsumerKey>,
    /// How often it came back before.
    pub returns: u32,
    pub bytes: u32,
}

impl Lane {
    /// A lane as it was stored.
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

    /// What is stored of it: how often messages came back that are not settled.
    pub(crate) fn return_counts(&self) -> BTreeMap<u64, u32> {
        let in_flight = self
            .in_flight
            .iter()
            .filter(|(_, entry)| entry.returns > 0)
            .map(|(at, entry)| (at, entry.returns));
        let returned = self.returned.iter().filter(|(_, count)| **count > 0);
        let mut counts = self.counts.clone();
        counts.extend(in_flight);
        counts.extend(returned.map(|(at, count)| (*at, *count)));
        counts
    }

    /// Everything below is settled.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Behind the last message that it knows of.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The log has messages up to here.
    pub fn grow(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// The log begins here: what was before is gone. How many messages are lost that nobody had, and those
    /// that somebody had.
    pub(crate) fn start_at(&mut self, start: u64) -> (u64, Vec<InFlight>) {
        if start <= self.head {
            return (0, Vec::new());
        }
        self.grow(start);
        let had = self.in_flight.remove_below(start);
        let lost = (start - self.head) - self.settled.count(self.head..start) - had.len() as u64;
        self.returned = self.returned.split_off(&start);
        self.counts = self.counts.split_off(&start);
        self.settle(self.head..start);
        if self.next < start {
            self.next = start;
            self.settled_ahead = self.settled.count(start..u64::MAX);
            self.pass_settled();
        }
        (lost, had)
    }

    /// Messages that wait.
    pub fn ready(&self) -> u64 {
        (self.end.saturating_sub(self.next)).saturating_sub(self.settled_ahead) + self.returned.len() as u64
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn all_in_flight(&self) -> impl Iterator<Item = (u64, InFlight)> {
        self.in_flight.iter()
    }

    /// The message that is next, and whether it came back. The lowest offset is always the next one.
    pub fn first_ready(&self) -> Option<(u64, bool)> {
        match self.returned.first_key_value() {
            Some((at, _)) => Some((*at, true)),
            None => (self.next < self.end).then_some((self.next, false)),
        }
    }

    /// The first message that waits at or behind an offset.
    pub fn ready_from(&self, from: u64) -> Option<u64> {
        if let Some((at, _)) = self.returned.range(from..).next() {
            return Some(*at);
        }
        let at = self.settled.first_missing(from.max(self.next));
        (at < self.end).then_some(at)
    }

    /// There are no messages between the next one and `to`.
    pub fn skip_to(&mut self, to: u64) {
        let from = self.next;
        if from < to {
            self.grow(to);
            self.settle(from..to);
            self.advance(to);
        }
    }

    /// Takes the next message, or one that came back: it is in flight, and its past comes with it.
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

    /// Takes a message that waits and settles it. How often it came back before.
    pub fn take_settled(&mut self, at: u64) -> u32 {
        let returns = self.past(at);
        self.settle(at..at + 1);
        returns
    }

    /// Settles a message that waits, or with it all that nobody had up to `to`. How many offsets that are.
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

    /// Whether a message that waits may have been handed out before.
    pub fn was_handed_out(&self, at: u64) -> bool {
        // What was taken and put back as it was has never come back.
        at < self.redelivered_below || self.returned.get(&at).is_some_and(|times| *times > 0)
    }

    /// Whether a message that waits came back since the start.
    pub fn came_back(&self, at: u64) -> bool {
        self.returned.contains_key(&at)
    }

    /// Removes a message from those that wait, and how often it came back.
    fn past(&mut self, at: u64) -> u32 {
        if let Some(count) = self.returned.remove(&at) {
            return count;
        }
        if at == self.next {
            self.advance(at + 1);
        }
        self.counts.remove(&at).unwrap_or(0)
    }

    /// A message in flight.
    pub fn taken(&self, at: u64) -> Option<InFlight> {
        self.in_flight.get(at)
    }

    /// Settles a message in flight.
    pub fn complete(&mut self, at: u64) -> Option<InFlight> {
        let entry = self.in_flight.remove(at)?;
        self.settle(at..at + 1);
        Some(entry)
    }

    /// Puts a message in flight back to its place, as one that came back once more.
    pub fn put_back(&mut self, at: u64) -> Option<InFlight> {
        let entry = self.in_flight.remove(at)?;
        self.returned.insert(at, entry.returns.saturating_add(1));
        Some(entry)
    }

    /// Puts a message in flight back to its place, as if nobody had taken it.
    pub fn untake(&mut self, at: u64) -> Option<InFlight> {
        let entry = self.in_flight.remove(at)?;
        self.returned.insert(at, entry.returns);
        Some(entry)
    }

    /// A message in flight is no consumer's any more; whose it was.
    pub(crate) fn disown(&mut self, at: u64) -> Option<ConsumerKey> {
        self.in_flight.disown(at)
    }

    /// Settles all that waits. The runs of it.
    pub fn purge(&mut self) -> (u64, Vec<std::ops::Range<u64>>) {
        let purged = self.ready();
        let returned = std::mem::take(&mut self.returned);
        let mut runs: Vec<_> = returned.into_keys().map(|at| at..at + 1).collect();
        if self.next < self.end {
            runs.push(self.next..self.end);
        }
        for run in &runs {
            self.settle(run.clone());
        }
        self.advance(self.end);
        self.counts.clear();
        (purged, runs)
    }

    /// Where the hand-out mark is to be set before the next message goes out, if it is to. That is so while
    /// some of the block before is left: as a rule it is stored by the time at which it is needed
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

    /// A mark is stored.
    pub fn mark_is_stored(&mut self, mark: u64) {
        self.mark_stored = self.mark_stored.max(mark);
    }

    /// Whether nothing is to be done about marks before a message is handed out.
    pub fn is_marked_ahead(&self, at: u64) -> bool {
        at < self.mark_stored && self.next < self.mark_due
    }

    /// Whether a message that is handed out now is known as such after a start.
    pub fn is_marked(&self, at: u64) -> bool {
        at < self.mark_stored
    }

    /// Whether anything was ever handed out, as far as is stored.
    pub fn has_mark(&self) -> bool {
        self.mark > 0
    }

    /// The mark as low as it may be: for a stop in good order.
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
        self.next = to;
        self.pass_settled();
    }

    fn pass_settled(&mut self) {
        if self.settled_ahead > 0 {
            let to = self.settled.first_missing(self.next);
            self.settled_ahead -= to - self.next;
            self.next = to;
        }
    }

    pub(crate) fn settle(&mut self, range: std::ops::Range<u64>) {
        let range = range.start.max(self.head)..range.end;
        if range.start >= range.end {
            return;
        }
        let ahead = range.start.max(self.next)..range.end;
        if range.start == self.head && self.settled.is_empty() {
            // In order, as most are.
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
            self.next = self.head;
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

    /// What a stored change says came back; before anything is handed out.
    pub(crate) fn restore_count(&mut self, at: u64, count: u32) {
        if at >= self.head && !self.settled.contains(at) {
            self.counts.insert(at, count);
        }
    }

    /// What a stored change says of the mark.
    pub(crate) fn restore_mark(&mut self, mark: u64) {
        self.restore_exact_mark(self.mark.max(mark));
    }

    /// A mark that was set as low as it could be, on a stop in good order.
    pub(crate) fn restore_exact_mark(&mut self, mark: u64) {
        (self.mark, self.mark_stored, self.mark_due) = (mark, mark, mark);
        self.redelivered_below = mark;
    }
}
