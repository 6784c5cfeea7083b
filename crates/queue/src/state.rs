//! All lanes of a queue, and the order between them: the highest first, or twice as often, or each in turn;
//! in each the lowest offset first.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::change::Changes;
use crate::consumers::{ConsumerKey, Consumers};
use crate::lane::{InFlight, Lane};
use crate::offset_set::OffsetSet;
use crate::settings::QueueSettings;

/// Names a message of a queue for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId {
    /// Its lane: the priority, or the partition where the queue lies over a topic.
    pub lane: u32,
    pub offset: u64,
}

/// A message that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    pub id: DeliveryId,
    /// Whether somebody had it before; else it is the next that nobody had.
    pub came_back: bool,
}

/// What goes with a message that is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandedOut {
    /// Somebody may have had it before.
    pub redelivered: bool,
    /// How often it came back.
    pub returns: u32,
}

/// What became of a message that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// It waits again, at its place.
    Waits,
    /// It came back more often than it may: it is still in flight, and has to be completed or dead-lettered.
    TooOften,
}

/// Which lane is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaneOrder {
    /// The highest that has something: lanes are priorities.
    #[default]
    HighestFirst,
    /// Of three messages that nobody had, two are of the highest lane, as far as there are such, and one of
    /// the lowest: so neither waits for ever. What came back goes first. See [`QueueState::passed_over`].
    HighTwice,
    /// Each for some messages, then the next one: lanes are partitions.
    InTurn,
}

/// Messages that a lane hands out before the next one has its turn.
const TURN_MESSAGES: u32 = 256;
/// Turns of the highest lane before the lowest one has its own.
const HIGH_TURNS: u32 = 2;

/// The delivery state of a queue.
#[derive(Debug, Clone, Default)]
pub struct QueueState {
    /// By number, the highest first.
    lanes: Vec<(u32, Lane)>,
    order: LaneOrder,
    /// Where among the lanes the one is whose turn it is, and messages that were handed out in it.
    turn: (usize, u32),
    /// Messages that came back, in the order in which they did, where these go first; others may be among
    /// them.
    back: VecDeque<DeliveryId>,
    pub consumers: Consumers,
    in_flight: usize,
    /// Bytes of bodies that wait, about.
    bytes_ready: u64,
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

    /// The state of a queue with these settings.
    pub fn of(settings: &QueueSettings) -> Self {
        let mut state = Self::new(settings.single_active_consumer, settings.delivery_limit);
        state.consumers = state.consumers.yielding(settings.active_yields);
        state.with_order(settings.lane_order())
    }

    /// The same with another order between its lanes.
    #[must_use]
    pub fn with_order(self, order: LaneOrder) -> Self {
        Self { order, ..self }
    }

    /// Adds what was stored of a lane.
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

    /// The lane of a number, made if need be.
    pub fn lane_mut(&mut self, number: u32) -> &mut Lane {
        let at = self.lanes.partition_point(|(known, _)| *known > number);
        if self.lanes.get(at).is_none_or(|(known, _)| *known != number) {
            self.lanes.reserve_exact(1);
            self.lanes.insert(at, (number, Lane::default()));
        }
        &mut self.lanes.get_mut(at).expect("it is there or was just made").1
    }

    /// The lanes, the highest first.
    pub fn lanes(&self) -> impl Iterator<Item = (u32, &Lane)> {
        self.lanes.iter().map(|(number, lane)| (*number, lane))
    }

    /// Messages that wait.
    pub fn ready(&self) -> u64 {
        self.lanes.iter().map(|(_, lane)| lane.ready()).sum()
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Messages in flight by consumer that has them, as the lanes know it; `None`: with no consumer that is
    /// there. It looks at each of them: for tests, and for whoever checks counters.
    pub fn holders(&self) -> BTreeMap<Option<ConsumerKey>, u32> {
        let mut holders = BTreeMap::new();
        for (_, entry) in self.lanes.iter().flat_map(|(_, lane)| lane.all_in_flight()) {
            let holder = entry.consumer.filter(|key| self.consumers.rules(*key).is_some());
            *holders.entry(holder).or_default() += 1;
        }
        holders
    }

    /// Bytes of bodies that wait; about so after a restart, until the queue is empty once.
    pub fn bytes_ready(&self) -> u64 {
        self.bytes_ready
    }

    /// Bodies of so many bytes were added.
    pub fn add_bytes(&mut self, bytes: u64) {
        self.bytes_ready = self.bytes_ready.saturating_add(bytes);
    }

    /// Bodies of so many bytes that were added did not come.
    pub fn remove_bytes(&mut self, bytes: u64) {
        self.bytes_ready = self.bytes_ready.saturating_sub(bytes);
    }

    /// Takes off what a message that no longer waits took.
    fn take_bytes(&mut self, bytes: u32) {
        self.bytes_ready = self.bytes_ready.saturating_sub(bytes.into());
        if self.bytes_ready > 0 && self.ready() == 0 {
            self.bytes_ready = 0;
        }
    }

    /// The message that is next.
    pub fn first_ready(&self) -> Option<Ready> {
        if self.order == LaneOrder::HighTwice {
            return self.first_of_two();
        }
        let (later, first) = self.lanes.split_at_checked(self.turn.0).unwrap_or_default();
        first.iter().chain(later).find_map(ready_of)
    }

    /// Where the lowest lane has its turn although the highest has something that nobody had: that goes first
    /// all the same if it came first.
    pub fn passed_over(&self) -> Option<Ready> {
        if self.order != LaneOrder::HighTwice || self.turn.1 < HIGH_TURNS {
            return None;
        }
        let mut ready = self.lanes.iter().filter_map(ready_of);
        let highest = ready.next()?;
        let lowest = ready.next_back()?;
        (!highest.came_back && !lowest.came_back).then_some(highest)
    }

    /// A message that came back is no longer the next one.
    fn pass_back(&mut self) {
        while let Some(first) = self.back.front()
            && !self.waits_again(*first)
        {
            self.back.pop_front();
        }
    }

    fn first_of_two(&self) -> Option<Ready> {
        if let Some(id) = self.back.iter().find(|id| self.waits_again(**id)) {
            return Some(Ready {
                id: *id,
                came_back: true,
            });
        }
        let mut ready = self.lanes.iter().filter_map(ready_of);
        let highest = ready.next()?;
        let lowest = ready.next_back().unwrap_or(highest);
        Some(if self.turn.1 < HIGH_TURNS { highest } else { lowest })
    }

    fn waits_again(&self, id: DeliveryId) -> bool {
        self.lane(id.lane).is_some_and(|lane| lane.came_back(id.offset))
    }

    /// A message of a lane is no longer the next one: after some of them, another lane has its turn.
    fn pass_turn(&mut self, number: u32, came_back: bool) {
        match self.order {
            LaneOrder::HighestFirst => return,
            LaneOrder::HighTwice => {
                if came_back {
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
            // Those before it had nothing.
            self.turn = (at, 0);
        }
        self.turn.1 += 1;
        if self.turn.1 >= TURN_MESSAGES {
            self.turn = ((at + 1) % self.lanes.len().max(1), 0);
        }
    }

    /// The log of a lane begins at `start`: what was before is gone, and nobody has it any more. How many
    /// messages are lost that nobody had.
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

    /// The first message that waits of each lane, the highest first.
    pub fn heads(&self) -> impl Iterator<Item = DeliveryId> {
        self.lanes.iter().filter_map(|(number, lane)| {
            let (offset, _) = lane.first_ready()?;
            Some(DeliveryId {
                lane: *number,
                offset,
            })
        })
    }

    /// There is no such message, nor any other in its lane before `to`: the log has a hole there.
    pub fn skip(&mut self, missing: Ready, to: u64, changes: &mut Changes) {
        let DeliveryId { lane: number, offset } = missing.id;
        if self.order == LaneOrder::InTurn {
            self.pass_turn(number, missing.came_back);
        }
        if missing.came_back {
            self.lane_mut(number).take_settled(offset);
            changes.settled(number, offset, 1);
            self.pass_back();
        } else {
            self.lane_mut(number).skip_to(to);
            changes.settled(number, offset, to.saturating_sub(offset));
        }
    }

    /// Hands out the message that is next. Without `settles` it is settled with that.
    pub fn hand_out(
        &mut self,
        id: DeliveryId,
        consumer: Option<ConsumerKey>,
        settles: bool,
        bytes: u32,
        changes: &mut Changes,
    ) -> HandedOut {
        let lane = self.lane_mut(id.lane);
        let redelivered = lane.was_handed_out(id.offset);
        let came_back = lane.came_back(id.offset);
        let returns = if settles {
            let taken = lane.take(id.offset, consumer, bytes);
            self.in_flight += 1;
            taken.returns
        } else {
            let returns = lane.take_settled(id.offset);
            changes.settled(id.lane, id.offset, 1);
            returns
        };
        self.pass_turn(id.lane, came_back);
        if let Some(consumer) = consumer {
            self.consumers.gave(consumer);
        }
        self.take_bytes(bytes);
        HandedOut { redelivered, returns }
    }

    /// Settles a message that waits and nobody gets: it expired, or there are too many.
    pub fn drop_ready(&mut self, id: DeliveryId, bytes: u32, changes: &mut Changes) {
        let lane = self.lane_mut(id.lane);
        let came_back = lane.came_back(id.offset);
        lane.take_settled(id.offset);
        self.pass_turn(id.lane, came_back);
        changes.settled(id.lane, id.offset, 1);
        self.take_bytes(bytes);
    }

    /// A message in flight.
    pub fn taken(&self, id: DeliveryId) -> Option<InFlight> {
        self.lane(id.lane)?.taken(id.offset)
    }

    /// Settles a message in flight. False if it is not.
    pub fn complete(&mut self, id: DeliveryId, changes: &mut Changes) -> bool {
        let Some(entry) = self.lane_mut(id.lane).complete(id.offset) else {
            return false;
        };
        self.release(entry);
        changes.settled(id.lane, id.offset, 1);
        true
    }

    /// Gives back a message in flight. `None` if it is not.
    pub fn requeue(&mut self, id: DeliveryId, changes: &mut Changes) -> Option<Returned> {
        let limit = self.delivery_limit;
        let lane = self.lane_mut(id.lane);
        let returns = lane.taken(id.offset)?.returns.saturating_add(1);
        if limit.is_some_and(|limit| returns > limit) {
            return Some(Returned::TooOften);
        }
        let entry = lane.put_back(id.offset)?;
        changes.returned(id.lane, id.offset, returns);
        if self.order == LaneOrder::HighTwice {
            self.back.push_back(id);
        }
        self.release(entry);
        self.add_bytes(entry.bytes.into());
        Some(Returned::Waits)
    }

    /// Puts a message in flight back to its place, as if nobody had taken it. False if it is not. Of several,
    /// the last goes first.
    pub fn untake(&mut self, id: DeliveryId) -> bool {
        let Some(entry) = self.lane_mut(id.lane).untake(id.offset) else {
            return false;
        };
        if self.order == LaneOrder::HighTwice {
            self.back.push_front(id);
        }
        self.release(entry);
        self.add_bytes(entry.bytes.into());
        true
    }

    /// A message stays in flight, but its consumer has no more to do with it. False if it is not in flight.
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

    /// Settles all that waits; how many messages that were.
    pub fn purge(&mut self, changes: &mut Changes) -> u64 {
        let mut purged = 0;
        for (number, lane) in &mut self.lanes {
            let (count, runs) = lane.purge();
            purged += count;
            for Range { start, end } in runs {
                changes.settled(*number, start, end - start);
            }
        }
        self.bytes_ready = 0;
        self.back.clear();
        purged
    }
}

fn ready_of((number, lane): &(u32, Lane)) -> Option<Ready> {
    let (offset, came_back) = lane.first_ready()?;
    let id = DeliveryId {
        lane: *number,
        offset,
    };
    Some(Ready { id, came_back })
}
