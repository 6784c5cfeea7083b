//! Bounds on the queues of a namespace: their number, and the messages that wait in them or are in flight.
//!
//! Room is reserved before messages are appended. Messages are counted from the queues that have some, and those
//! that are reserved since are added. They are counted again when no more fit, at most a part of the time; a
//! count has what is in queues and, before that, what is on its way to them: reserved and not staged, or staged
//! and undecided. So a namespace takes no more than its bound. Messages that leave make room with the next count.

use std::collections::{HashMap, VecDeque};
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stafett_journal::TicketView;
use stafett_model::{Lock, Namespace, SharedLock};

use super::registry::Queues;

/// Least time between two counts, in ms.
const COUNT_EVERY_MS: u64 = 100;
/// Least time between two counts, as a multiple of the time of one.
const COUNT_SHARE: u64 = 20;

/// Bounds of a namespace; `None` for no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamespaceBounds {
    pub queues: Option<u64>,
    pub messages: Option<u64>,
    /// Bytes of bodies.
    pub bytes: Option<u64>,
}

/// Bounds of all namespaces.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    is_used: AtomicBool,
    spaces: SharedLock<HashMap<Namespace, Arc<Bound>>>,
}

/// Bounds of a namespace, and what counts towards them.
#[derive(Debug, Default)]
pub(super) struct Bound(Lock<Held>);

#[derive(Debug, Default)]
struct Held {
    bounds: NamespaceBounds,
    /// As of the last count, with what was reserved since.
    used: Room,
    /// Reserved, and not staged yet.
    reserved: Room,
    /// Appends that are staged and, but for some, undecided.
    staged: VecDeque<(TicketView, Room)>,
    /// Steady time in ms before which they are not counted again; 0 before the first count.
    next_count_ms: u64,
}

/// Messages, once per queue, and their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    messages: u64,
    bytes: u64,
}

/// Room that is reserved in a namespace. What is not staged is given back.
#[derive(Debug)]
pub(super) struct Reservation {
    bound: Arc<Bound>,
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

impl Bounds {
    fn of(&self, namespace: &Namespace) -> Option<Arc<Bound>> {
        if !self.is_used() {
            return None;
        }
        self.spaces.read().get(namespace).cloned()
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    pub(super) fn queues_max(&self, namespace: &Namespace) -> Option<u64> {
        self.of(namespace)?.0.lock().bounds.queues
    }
}

impl Held {
    fn fits(&self, bytes: u64) -> bool {
        let NamespaceBounds {
            messages: messages_max,
            bytes: bytes_max,
            ..
        } = self.bounds;
        messages_max.is_none_or(|max| self.used.messages < max)
            && bytes_max.is_none_or(|max| self.used.bytes.saturating_add(bytes) <= max)
    }

    /// Returns what is on its way into queues, and forgets what is decided.
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

    /// Forgets the oldest appends that are decided. What was not stored is given back.
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
    pub(super) fn new(bound: Arc<Bound>) -> Self {
        let room = Room::default();
        Self { bound, room }
    }

    /// Counts the room as staged until the outcome is known; then queues have the messages.
    pub(super) fn stage(mut self, outcome: TicketView) {
        let room = std::mem::take(&mut self.room);
        if room.messages == 0 {
            return;
        }
        let mut held = self.bound.0.lock();
        held.reserved -= room;
        held.remove_decided();
        held.staged.push_back((outcome, room));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.room.messages > 0 {
            let mut held = self.bound.0.lock();
            held.reserved -= self.room;
            held.used -= self.room;
        }
    }
}

impl Queues {
    /// Sets the bounds of a namespace; without any they are removed. Queues and messages beyond them stay.
    pub fn set_bounds(&self, namespace: &Namespace, bounds: NamespaceBounds) {
        let mut spaces = self.bounds.spaces.write();
        if bounds == NamespaceBounds::default() {
            spaces.remove(namespace);
        } else {
            let bound = spaces.entry(namespace.clone()).or_default();
            let mut held = bound.0.lock();
            (held.bounds, held.next_count_ms) = (bounds, 0);
        }
        self.bounds.is_used.store(!spaces.is_empty(), Ordering::Relaxed);
    }

    /// Returns the bounds of a namespace that bound its messages.
    pub(super) fn message_bound(&self, namespace: &Namespace) -> Option<Arc<Bound>> {
        let bound = self.bounds.of(namespace)?;
        let NamespaceBounds { messages, bytes, .. } = bound.0.lock().bounds;
        (messages.is_some() || bytes.is_some()).then_some(bound)
    }

    /// Reserves room for a message of the namespace. False if there is none.
    pub(super) fn reserve(&self, reservation: &mut Reservation, namespace: &Namespace, bytes: u64) -> bool {
        let mut held = reservation.bound.0.lock();
        if !held.fits(bytes) {
            held.remove_decided();
        }
        let now_ms = self.context.clock.elapsed_ms();
        if (held.next_count_ms == 0 || !held.fits(bytes)) && held.next_count_ms <= now_ms {
            // Before the queues are counted: a message that gets there meanwhile counts twice, not never.
            let in_transit = held.in_transit();
            held.used = self.count_in_queues(namespace);
            held.used += in_transit;
            let taken_ms = self.context.clock.elapsed_ms() - now_ms;
            held.next_count_ms = now_ms + COUNT_EVERY_MS.max(taken_ms * COUNT_SHARE);
        }
        if !held.fits(bytes) {
            return false;
        }
        let room = Room { messages: 1, bytes };
        held.used += room;
        held.reserved += room;
        reservation.room += room;
        true
    }

    fn count_in_queues(&self, namespace: &Namespace) -> Room {
        let listed = self.pending.lock().all(Some(namespace));
        let mut room = Room::default();
        for queue in listed.iter().filter(|queue| queue.over.is_none()) {
            let counts = queue.counts();
            room += Room {
                messages: counts.ready + counts.in_flight as u64,
                bytes: queue.bytes_waiting(&self.context),
            };
        }
        room
    }
}
