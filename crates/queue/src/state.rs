//! All lanes of a queue, and the order between them: the highest priority first, in each the lowest offset first.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::change::Changes;
use crate::consumers::{ConsumerKey, Consumers};
use crate::lane::{InFlight, Lane};
use crate::offset_set::OffsetSet;

/// Names a message of a queue for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId {
    pub priority: u8,
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

/// The delivery state of a queue.
#[derive(Debug, Clone, Default)]
pub struct QueueState {
    /// By priority, the highest first.
    lanes: Vec<(u8, Lane)>,
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

    /// Adds what was stored of a lane.
    pub fn restore_lane(
        &mut self,
        priority: u8,
        head: u64,
        settled: OffsetSet,
        mark: u64,
        counts: BTreeMap<u64, u32>,
    ) {
        *self.lane_mut(priority) = Lane::restored(head, settled, mark, counts);
    }

    pub fn lane(&self, priority: u8) -> Option<&Lane> {
        let at = self.lanes.iter().find(|(known, _)| *known == priority);
        at.map(|(_, lane)| lane)
    }

    /// The lane of a priority, made if need be.
    pub fn lane_mut(&mut self, priority: u8) -> &mut Lane {
        let at = self.lanes.partition_point(|(known, _)| *known > priority);
        if self.lanes.get(at).is_none_or(|(known, _)| *known != priority) {
            self.lanes.reserve_exact(1);
            self.lanes.insert(at, (priority, Lane::default()));
        }
        &mut self.lanes.get_mut(at).expect("it is there or was just made").1
    }

    /// The lanes, the highest priority first.
    pub fn lanes(&self) -> impl Iterator<Item = (u8, &Lane)> {
        self.lanes.iter().map(|(priority, lane)| (*priority, lane))
    }

    /// Messages that wait.
    pub fn ready(&self) -> u64 {
        self.lanes.iter().map(|(_, lane)| lane.ready()).sum()
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bytes of bodies that wait; about so after a restart, until the queue is empty once.
    pub fn bytes_ready(&self) -> u64 {
        self.bytes_ready
    }

    /// Bodies of so many bytes were added.
    pub fn add_bytes(&mut self, bytes: u64) {
        self.bytes_ready = self.bytes_ready.saturating_add(bytes);
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
        self.lanes.iter().find_map(|(priority, lane)| {
            let (offset, came_back) = lane.first_ready()?;
            let id = DeliveryId {
                priority: *priority,
                offset,
            };
            Some(Ready { id, came_back })
        })
    }

    /// The first message that waits of each lane, the highest priority first.
    pub fn heads(&self) -> impl Iterator<Item = DeliveryId> {
        self.lanes.iter().filter_map(|(priority, lane)| {
            let (offset, _) = lane.first_ready()?;
            Some(DeliveryId {
                priority: *priority,
                offset,
            })
        })
    }

    /// There is no such message, nor any other in its lane before `to`: the log has a hole there.
    pub fn skip(&mut self, missing: Ready, to: u64, changes: &mut Changes) {
        let DeliveryId { priority, offset } = missing.id;
        if missing.came_back {
            self.lane_mut(priority).take_settled(offset);
            changes.settled(priority, offset, 1);
        } else {
            self.lane_mut(priority).skip_to(to);
            changes.settled(priority, offset, to.saturating_sub(offset));
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
        let lane = self.lane_mut(id.priority);
        let redelivered = lane.was_handed_out(id.offset);
        let returns = if settles {
            let taken = lane.take(id.offset, consumer, bytes);
            self.in_flight += 1;
            taken.returns
        } else {
            let returns = lane.take_settled(id.offset);
            changes.settled(id.priority, id.offset, 1);
            returns
        };
        if let Some(consumer) = consumer {
            self.consumers.gave(consumer);
        }
        self.take_bytes(bytes);
        HandedOut { redelivered, returns }
    }

    /// Settles a message that waits and nobody gets: it expired, or there are too many.
    pub fn drop_ready(&mut self, id: DeliveryId, bytes: u32, changes: &mut Changes) {
        self.lane_mut(id.priority).take_settled(id.offset);
        changes.settled(id.priority, id.offset, 1);
        self.take_bytes(bytes);
    }

    /// A message in flight.
    pub fn taken(&self, id: DeliveryId) -> Option<InFlight> {
        self.lane(id.priority)?.taken(id.offset)
    }

    /// Settles a message in flight. False if it is not.
    pub fn complete(&mut self, id: DeliveryId, changes: &mut Changes) -> bool {
        let Some(entry) = self.lane_mut(id.priority).complete(id.offset) else {
            return false;
        };
        self.release(entry);
        changes.settled(id.priority, id.offset, 1);
        true
    }

    /// Gives back a message in flight. `None` if it is not.
    pub fn requeue(&mut self, id: DeliveryId, changes: &mut Changes) -> Option<Returned> {
        let limit = self.delivery_limit;
        let lane = self.lane_mut(id.priority);
        let returns = lane.taken(id.offset)?.returns.saturating_add(1);
        if limit.is_some_and(|limit| returns > limit) {
            return Some(Returned::TooOften);
        }
        let entry = lane.put_back(id.offset)?;
        changes.returned(id.priority, id.offset, returns);
        self.release(entry);
        self.add_bytes(entry.bytes.into());
        Some(Returned::Waits)
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
        for (priority, lane) in &mut self.lanes {
            let (count, runs) = lane.purge();
            purged += count;
            for Range { start, end } in runs {
                changes.settled(*priority, start, end - start);
            }
        }
        self.bytes_ready = 0;
        purged
    }
}
