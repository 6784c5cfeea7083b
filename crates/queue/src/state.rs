//! All lanes of a queue, and the order between them: the highest first, or the highest twice as often, or in
//! turn. Within a lane the lowest offset is first.

mod bytes;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::consumers::{ConsumerKey, Consumers};
use crate::lane::{InFlight, Lane, TakenRun};
use crate::offset_set::OffsetSet;
use crate::settings::QueueSettings;
use crate::state_codec::Changes;

/// Id of a message in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId {
    /// Lane: the priority, or the partition for a queue over a topic.
    pub lane: u32,
    pub offset: u64,
}

/// A message ready for delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyMessage {
    pub id: DeliveryId,
    /// True if it was taken before and put back; otherwise it is a new one.
    pub was_returned: bool,
}

/// Properties of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryInfo {
    /// True if the message may have been delivered before.
    pub redelivered: bool,
    /// Return count of the message.
    pub returns: u32,
}

/// Outcome of a return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnOutcome {
    /// The message is ready again, at its place.
    Waits,
    /// It was returned too often: it is still in flight, and has to be completed or dead-lettered.
    TooOften,
}

/// Order between the lanes of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaneOrder {
    /// Highest lane with a message: lanes are priorities.
    #[default]
    HighestFirst,
    /// Of three new messages, two are from the highest lane, if it has any, and one from the lowest, so that
    /// neither starves. Returned messages are first. See [`QueueState::passed_over`].
    HighTwice,
    /// Each lane in turn, for a number of messages: lanes are partitions.
    InTurn,
}

/// Messages delivered from a lane before it is the next lane's turn.
const TURN_MESSAGES: u32 = 256;
/// Turns of the highest lane per turn of the lowest.
const HIGH_TURNS: u32 = 2;

/// Delivery state of a queue.
#[derive(Debug, Clone, Default)]
pub struct QueueState {
    /// By number, the highest first.
    lanes: Vec<(u32, Lane)>,
    order: LaneOrder,
    /// Index of the lane whose turn it is, and messages delivered in this turn.
    turn: (usize, u32),
    /// Returned messages in the order of their return, if these are first. May contain messages that are no
    /// longer ready.
    back: VecDeque<DeliveryId>,
    pub consumers: Consumers,
    in_flight: usize,
    /// Bytes of the ready bodies that are counted.
    bytes_ready: u64,
    /// True if there may be ready messages whose bytes are not counted.
    is_partial: bool,
    delivery_limit: Option<u32>,
}

impl QueueState {
    pub fn new(single_active_consumer: bool, delivery_limit: Option<u32>) -> Self {
        Self {
            consumers: Consumers::new(single_active_consumer),
            delivery_limit,
            ..Self::default()
        }
    }

    /// Creates the state of a queue with these settings.
    pub fn of(settings: &QueueSettings) -> Self {
        let mut state = Self::new(settings.single_active_consumer, settings.delivery_limit);
        state.consumers = state.consumers.yielding(settings.active_yields);
        state.with_order(settings.lane_order())
    }

    /// Sets the order between the lanes.
    #[must_use]
    pub fn with_order(self, order: LaneOrder) -> Self {
        Self { order, ..self }
    }

    /// Restores a lane from its stored state.
    pub fn restore_lane(
        &mut self,
        number: u32,
        head: u64,
        settled: OffsetSet,
        mark: u64,
        counts: BTreeMap<u64, u32>,
    ) {
        *self.lane_mut(number) = Lane::restored(head, settled, mark, counts);
    }

    pub fn lane(&self, number: u32) -> Option<&Lane> {
        let at = self.lanes.partition_point(|(known, _)| *known > number);
        let (_, lane) = self.lanes.get(at).filter(|(known, _)| *known == number)?;
        Some(lane)
    }

    /// Returns the lane of a number, created if missing.
    pub fn lane_mut(&mut self, number: u32) -> &mut Lane {
        let at = self.lanes.partition_point(|(known, _)| *known > number);
        if self.lanes.get(at).is_none_or(|(known, _)| *known != number) {
            self.lanes.reserve_exact(1);
            self.lanes.insert(at, (number, Lane::default()));
        }
        &mut self.lanes.get_mut(at).expect("it is there or was just made").1
    }

    /// Iterates over the lanes, the highest first.
    pub fn lanes(&self) -> impl Iterator<Item = (u32, &Lane)> {
        self.lanes.iter().map(|(number, lane)| (*number, lane))
    }

    /// Returns the number of ready messages.
    pub fn ready(&self) -> u64 {
        self.lanes.iter().map(|(_, lane)| lane.ready()).sum()
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Counts messages in flight by consumer, from the lanes; `None`: without a present consumer. Visits
    /// every message in flight: for tests and consistency checks.
    pub fn holders(&self) -> BTreeMap<Option<ConsumerKey>, u32> {
        let mut holders = BTreeMap::new();
        for (_, entry) in self.lanes.iter().flat_map(|(_, lane)| lane.all_in_flight()) {
            let holder = entry.consumer.filter(|key| self.consumers.rules(*key).is_some());
            *holders.entry(holder).or_default() += 1;
        }
        holders
    }

    /// Returns the next message.
    pub fn first_ready(&self) -> Option<ReadyMessage> {
        if self.order == LaneOrder::HighTwice {
            return self.first_of_two();
        }
        let (later, first) = self.lanes.split_at_checked(self.turn.0).unwrap_or_default();
        first.iter().chain(later).find_map(ready_of)
    }

    /// Returns the highest lane's next message if it is the lowest lane's turn and both messages are new. The
    /// caller delivers it first if it arrived first.
    pub fn passed_over(&self) -> Option<ReadyMessage> {
        if self.order != LaneOrder::HighTwice || self.turn.1 < HIGH_TURNS {
            return None;
        }
        let mut ready = self.lanes.iter().filter_map(ready_of);
        let highest = ready.next()?;
        let lowest = ready.next_back()?;
        (!highest.was_returned && !lowest.was_returned).then_some(highest)
    }

    /// Drops entries at the front of `back` that are no longer ready.
    fn pass_back(&mut self) {
        while let Some(first) = self.back.front()
            && !self.waits_again(*first)
        {
            self.back.pop_front();
        }
    }

    fn first_of_two(&self) -> Option<ReadyMessage> {
        if let Some(id) = self.back.iter().find(|id| self.waits_again(**id)) {
            return Some(ReadyMessage {
                id: *id,
                was_returned: true,
            });
        }
        let mut ready = self.lanes.iter().filter_map(ready_of);
        let highest = ready.next()?;
        let lowest = ready.next_back().unwrap_or(highest);
        Some(if self.turn.1 < HIGH_TURNS { highest } else { lowest })
    }

    fn waits_again(&self, id: DeliveryId) -> bool {
        self.lane(id.lane)
            .is_some_and(|lane| lane.was_returned(id.offset))
    }

    /// Counts a message of a lane; after some of them it is another lane's turn.
    fn pass_turn(&mut self, number: u32, was_returned: bool) {
        match self.order {
            LaneOrder::HighestFirst => return,
            LaneOrder::HighTwice => {
                if was_returned {
                    self.pass_back();
                } else {
                    self.turn.1 = (self.turn.1 + 1) % (HIGH_TURNS + 1);
                }
                return;
            }
            LaneOrder::InTurn => {}
        }
        let at = self.lanes.partition_point(|(known, _)| *known > number);
        if self.turn.0 != at {
            // The lanes before it had nothing.
            self.turn = (at, 0);
        }
        self.turn.1 += 1;
        if self.turn.1 >= TURN_MESSAGES {
            self.turn = ((at + 1) % self.lanes.len().max(1), 0);
        }
    }

    /// Records that the log of a lane starts at `start`: earlier messages are gone, also those in flight.
    /// Returns the number of messages lost that were not in flight.
    pub fn start_at(&mut self, number: u32, start: u64, changes: &mut Changes) -> u64 {
        let lane = self.lane_mut(number);
        let head = lane.head();
        let (lost, released) = lane.start_at(start);
        changes.settled(number, head, start.saturating_sub(head));
        for entry in released {
            self.release(entry);
        }
        lost
    }

    /// Iterates over the first ready message of each lane, the highest first.
    pub fn heads(&self) -> impl Iterator<Item = DeliveryId> {
        self.lanes.iter().filter_map(|(number, lane)| {
            let (offset, _) = lane.first_ready()?;
            Some(DeliveryId {
                lane: *number,
                offset,
            })
        })
    }

    /// Skips a missing message and all others of its lane before `to`: the log has a hole there.
    pub fn skip(&mut self, missing: ReadyMessage, to: u64, changes: &mut Changes) {
        let DeliveryId { lane: number, offset } = missing.id;
        if self.order == LaneOrder::InTurn {
            self.pass_turn(number, missing.was_returned);
        }
        if missing.was_returned {
            self.lane_mut(number).take_settled(offset);
            changes.settled(number, offset, 1);
            self.pass_back();
        } else {
            self.lane_mut(number).skip_to(to);
            changes.settled(number, offset, to.saturating_sub(offset));
        }
    }

    /// Delivers the next message. Without `settles` it is settled at once.
    pub fn hand_out(
        &mut self,
        id: DeliveryId,
        consumer: Option<ConsumerKey>,
        settles: bool,
        bytes: u32,
        changes: &mut Changes,
    ) -> DeliveryInfo {
        let lane = self.lane_mut(id.lane);
        let redelivered = lane.was_handed_out(id.offset);
        let was_returned = lane.was_returned(id.offset);
        let returns = if settles {
            let taken = lane.take(id.offset, consumer, bytes);
            self.in_flight += 1;
            taken.returns
        } else {
            let returns = lane.take_settled(id.offset);
            changes.settled(id.lane, id.offset, 1);
            returns
        };
        self.pass_turn(id.lane, was_returned);
        if let Some(consumer) = consumer {
            self.consumers.gave(consumer);
        }
        self.take_bytes(id, bytes);
        DeliveryInfo { redelivered, returns }
    }

    /// Delivers a ready message out of its turn; it has to be settled. `None` if it is not ready. The
    /// change added to `marks` tells of the delivery, and is to be stored before it.
    pub fn choose(
        &mut self,
        id: DeliveryId,
        consumer: Option<ConsumerKey>,
        bytes: u32,
        marks: &mut Changes,
    ) -> Option<DeliveryInfo> {
        let lane = self.lane_mut(id.lane);
        let redelivered = lane.was_handed_out(id.offset);
        let was_returned = lane.was_returned(id.offset);
        let returns = lane.choose(id.offset, consumer, bytes)?.returns;
        marks.returned(id.lane, id.offset, returns.saturating_add(1));
        self.in_flight += 1;
        if was_returned {
            self.back.retain(|known| *known != id);
        }
        if let Some(consumer) = consumer {
            self.consumers.gave(consumer);
        }
        self.take_bytes(id, bytes);
        Some(DeliveryInfo { redelivered, returns })
    }

    /// Takes ready messages of a range of a lane, in order, for a consumer that settles them, as long as
    /// `admits` returns true for their offsets and return counts. Lanes do not take turns here: the caller
    /// chooses.
    pub fn take_range(
        &mut self,
        number: u32,
        range: Range<u64>,
        consumer: ConsumerKey,
        admits: impl FnMut(u64, u32) -> bool,
    ) -> Vec<TakenRun> {
        let lane = self.lane_mut(number);
        let before = lane.in_flight();
        let runs = lane.take_range(range, consumer, admits);
        self.in_flight += lane.in_flight() - before;
        runs
    }

    /// Settles the ready messages of a range of a lane without delivery: they do not exist, or are not
    /// wanted.
    pub fn drop_range(&mut self, number: u32, range: Range<u64>, changes: &mut Changes) {
        let lane = self.lane_mut(number);
        let (mut at, end) = (range.start, range.end.min(lane.end()));
        while let Some(offset) = lane.ready_from(at).filter(|offset| *offset < end) {
            let run = lane.drop_run(offset, end);
            changes.settled(number, offset, run);
            at = offset + run.max(1);
        }
    }

    /// Gives a message in flight to another consumer. False if it is not in flight.
    pub fn give_to(&mut self, id: DeliveryId, consumer: ConsumerKey) -> bool {
        self.lane_mut(id.lane).give_to(id.offset, consumer)
    }

    /// Begins a lane anew at an offset: messages in flight, returned and settled are forgotten. Changes
    /// cannot express it: the caller stores a snapshot.
    pub fn reset_lane(&mut self, number: u32, start: u64) {
        let lane = self.lane_mut(number);
        let (in_flight, end) = (lane.in_flight(), lane.end());
        *lane = Lane::restored(start, OffsetSet::default(), 0, BTreeMap::new());
        lane.grow(end);
        self.in_flight = self.in_flight.saturating_sub(in_flight);
    }

    /// Sets how often a message may be returned; `None` for any number of times.
    pub fn set_delivery_limit(&mut self, limit: Option<u32>) {
        self.delivery_limit = limit;
    }

    /// Settles a ready message without delivery: it expired or exceeds a limit.
    pub fn drop_ready(&mut self, id: DeliveryId, bytes: u32, changes: &mut Changes) {
        let lane = self.lane_mut(id.lane);
        let was_returned = lane.was_returned(id.offset);
        lane.take_settled(id.offset);
        self.pass_turn(id.lane, was_returned);
        changes.settled(id.lane, id.offset, 1);
        self.take_bytes(id, bytes);
    }

    /// Returns a message in flight.
    pub fn taken(&self, id: DeliveryId) -> Option<InFlight> {
        self.lane(id.lane)?.taken(id.offset)
    }

    /// Settles a message in flight. False if it is not in flight.
    pub fn complete(&mut self, id: DeliveryId, changes: &mut Changes) -> bool {
        let Some(entry) = self.lane_mut(id.lane).complete(id.offset) else {
            return false;
        };
        self.release(entry);
        changes.settled(id.lane, id.offset, 1);
        true
    }

    /// Returns a message in flight to its place. `None` if it is not in flight.
    pub fn requeue(&mut self, id: DeliveryId, changes: &mut Changes) -> Option<ReturnOutcome> {
        let limit = self.delivery_limit;
        let lane = self.lane_mut(id.lane);
        let returns = lane.taken(id.offset)?.returns.saturating_add(1);
        if limit.is_some_and(|limit| returns > limit) {
            return Some(ReturnOutcome::TooOften);
        }
        let entry = lane.put_back(id.offset)?;
        changes.returned(id.lane, id.offset, returns);
        if self.order == LaneOrder::HighTwice && self.waits_again(id) {
            self.back.push_back(id);
        }
        self.release(entry);
        self.put_bytes(id, entry.bytes);
        Some(ReturnOutcome::Waits)
    }

    /// Puts a message in flight back to its place, as if it had never been taken. False if it is not in
    /// flight. Of several, the last one put back is first.
    pub fn return_unseen(&mut self, id: DeliveryId, changes: &mut Changes) -> bool {
        let lane = self.lane_mut(id.lane);
        let was_chosen = lane.is_chosen(id.offset);
        let Some(entry) = lane.return_unseen(id.offset) else {
            return false;
        };
        if was_chosen {
            changes.returned(id.lane, id.offset, entry.returns);
        }
        if self.order == LaneOrder::HighTwice && self.waits_again(id) {
            self.back.push_front(id);
        }
        self.release(entry);
        self.put_bytes(id, entry.bytes);
        true
    }

    /// Detaches a message in flight from its consumer; it stays in flight. False if it is not in flight.
    pub fn disown(&mut self, id: DeliveryId) -> bool {
        if self.taken(id).is_none() {
            return false;
        }
        if let Some(consumer) = self.lane_mut(id.lane).disown(id.offset) {
            self.consumers.released(consumer);
        }
        true
    }

    fn release(&mut self, entry: InFlight) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(consumer) = entry.consumer {
            self.consumers.released(consumer);
        }
    }

    /// Settles all ready messages; returns their number.
    pub fn purge(&mut self, changes: &mut Changes) -> u64 {
        let mut purged = 0;
        for (number, lane) in &mut self.lanes {
            let (count, runs) = lane.purge();
            purged += count;
            for Range { start, end } in runs {
                changes.settled(*number, start, end - start);
            }
        }
        self.count_all();
        self.back.clear();
        purged
    }
}

fn ready_of((number, lane): &(u32, Lane)) -> Option<ReadyMessage> {
    let (offset, was_returned) = lane.first_ready()?;
    let id = DeliveryId {
        lane: *number,
        offset,
    };
    Some(ReadyMessage { id, was_returned })
}
