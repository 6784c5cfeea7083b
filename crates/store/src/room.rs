//! Room for messages within a bound that their queues share.
//!
//! Room is reserved before messages are appended. They are counted where they are, and those that are
//! reserved since are added. They are counted again when no more fit, at most a part of the time; then those
//! on their way there count too: reserved and not staged, or staged and undecided. So the bound is not
//! passed, and messages that leave make room with the next count.

use std::collections::VecDeque;
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;

use stafett_journal::TicketView;
use stafett_model::Lock;

use crate::clock::Clock;

/// Least time between two counts, in ms.
const COUNT_EVERY_MS: u64 = 100;
/// Least time between two counts, as a multiple of the time of one.
const COUNT_SHARE: u64 = 20;

/// A number of messages, and the bytes of their bodies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    pub messages: u64,
    pub bytes: u64,
}

/// Most messages and bytes; `None` for no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoomBound {
    pub messages: Option<u64>,
    pub bytes: Option<u64>,
}

/// A bound, and the messages that count towards it.
#[derive(Debug, Default)]
pub struct RoomLedger(Lock<Held>);

#[derive(Debug, Default)]
struct Held {
    bound: RoomBound,
    /// As of the last count, with the reservations since.
    used: Room,
    /// Reserved, and not staged yet.
    reserved: Room,
    /// Appends that are staged and, but for some, undecided.
    staged: VecDeque<(TicketView, Room)>,
    /// Steady time in ms before which they are not counted again; 0 before the first count.
    next_count_ms: u64,
}

/// Reserved room, given back unless it is staged.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<RoomLedger>,
    room: Room,
}

impl AddAssign for Room {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl SubAssign for Room {
    fn sub_assign(&mut self, other: Self) {
        self.messages = self.messages.saturating_sub(other.messages);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

impl RoomLedger {
    /// Sets the bound. Messages beyond it stay.
    pub fn set_bound(&self, bound: RoomBound) {
        let mut held = self.0.lock();
        (held.bound, held.next_count_ms) = (bound, 0);
    }

    pub fn is_bounded(&self) -> bool {
        self.0.lock().bound != RoomBound::default()
    }
}

impl Held {
    fn fits(&self, bytes: u64) -> bool {
        let RoomBound {
            messages: messages_max,
            bytes: bytes_max,
        } = self.bound;
        messages_max.is_none_or(|max| self.used.messages < max)
            && bytes_max.is_none_or(|max| self.used.bytes.saturating_add(bytes) <= max)
    }

    /// Returns the room of messages on their way, and forgets decided appends.
    fn in_transit(&mut self) -> Room {
        let mut room = self.reserved;
        self.staged.retain(|(outcome, staged)| {
            let is_undecided = outcome.committed().is_none();
            if is_undecided {
                room += *staged;
            }
            is_undecided
        });
        room
    }

    /// Forgets the oldest appends that are decided. The room of those that were not stored is given back.
    fn remove_decided(&mut self) {
        while let Some((outcome, room)) = self.staged.front()
            && let Some(is_stored) = outcome.committed()
        {
            if !is_stored {
                self.used -= *room;
            }
            self.staged.pop_front();
        }
    }
}

impl Reservation {
    pub fn new(ledger: Arc<RoomLedger>) -> Self {
        let room = Room::default();
        Self { ledger, room }
    }

    /// Reserves room for one more message. False if there is none. `count` counts the messages that are
    /// there.
    pub fn reserve(&mut self, bytes: u64, clock: &Clock, count: impl FnOnce() -> Room) -> bool {
        let mut held = self.ledger.0.lock();
        if !held.fits(bytes) {
            held.remove_decided();
        }
        let now_ms = clock.elapsed_ms();
        if (held.next_count_ms == 0 || !held.fits(bytes)) && held.next_count_ms <= now_ms {
            // In this order a message that arrives meanwhile counts twice, not never.
            let in_transit = held.in_transit();
            held.used = count();
            held.used += in_transit;
            let taken_ms = clock.elapsed_ms() - now_ms;
            held.next_count_ms = now_ms + COUNT_EVERY_MS.max(taken_ms * COUNT_SHARE);
        }
        if !held.fits(bytes) {
            return false;
        }
        let room = Room { messages: 1, bytes };
        held.used += room;
        held.reserved += room;
        self.room += room;
        true
    }

    /// Counts the room as staged until the outcome is known; then the messages are there, or are not stored.
    pub fn stage(mut self, outcome: TicketView) {
        let room = std::mem::take(&mut self.room);
        if room.messages == 0 {
            return;
        }
        let mut held = self.ledger.0.lock();
        held.reserved -= room;
        held.remove_decided();
        held.staged.push_back((outcome, room));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.room.messages > 0 {
            let mut held = self.ledger.0.lock();
            held.reserved -= self.room;
            held.used -= self.room;
        }
    }
}
