//! Bounded queue of messages for one connection.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use stafett_model::{Lock, LockGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::clients::{ClientName, ClientNumber};
use super::in_transit::InTransit;
use super::log_state::{GapNotice, LogPosition};
use super::message::Format;
use super::metrics::LiveMetrics;

/// Overhead of a waiting message, in bytes.
const MESSAGE_OVERHEAD: usize = size_of::<Message>();
/// Capacity that an empty outbox keeps.
const KEPT: usize = 64;

/// Bound on separate entries for missed ranges; further ones of the same log are merged.
const MISSED_MAX: usize = 64;

/// Policy for a message without room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overflow {
    /// The oldest waiting messages are dropped.
    #[default]
    DropOldest,
    /// The message itself is dropped.
    DropNewest,
    /// The connection is closed.
    Disconnect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutboxBound {
    pub bytes: usize,
    pub overflow: Overflow,
}

/// A message, with its position if it is from a log.
type Message = (Bytes, Option<LogPosition>);

/// Decides which topics a connection may hear.
pub trait TopicGuard: std::fmt::Debug + Send + Sync {
    fn admits(&self, topic: &str) -> bool;
}

/// Messages for one connection, shared by all clients that listen on it.
#[derive(Debug)]
pub struct Outbox {
    format: &'static dyn Format,
    /// `None` if it may hear all topics.
    guard: Option<Arc<dyn TopicGuard>>,
    waiting: Lock<WaitingMessages>,
    /// Messages of logs that were taken and not written. Locked before `waiting`.
    in_transit: Lock<InTransit>,
    ready: Notify,
    /// Notified when messages were taken, or when a client has left.
    moved: Notify,
    metrics: Arc<LiveMetrics>,
}

#[derive(Debug)]
struct WaitingMessages {
    bound: OutboxBound,
    messages: VecDeque<Message>,
    bytes: usize,
    /// Number of dropped messages since last reported.
    dropped: u64,
    overflowed: bool,
    taken_over: Vec<ClientName>,
    missed: Vec<GapNotice>,
}

impl WaitingMessages {
    /// Removes the messages for which `is_kept` is false; it is given the position of a message from a log.
    fn retain(&mut self, mut is_kept: impl FnMut(Option<LogPosition>) -> bool) {
        let mut removed = 0;
        self.messages.retain(|(message, log_position)| {
            let is_kept = is_kept(*log_position);
            if !is_kept {
                removed += message.len() + MESSAGE_OVERHEAD;
            }
            is_kept
        });
        self.bytes -= removed;
    }
}

/// Outcome of an offered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfferOutcome {
    Taken,
    /// The message is larger than the whole bound and was dropped.
    Dropped,
    NoRoom,
}

/// Items to be sent.
#[derive(Debug, Default)]
pub struct OutboxDrain {
    /// Messages in order.
    pub messages: Vec<Bytes>,
    /// True if some are from logs: then they must be written with [`Outbox::write`], or
    /// [`Outbox::on_all_sent`] must be called.
    pub from_logs: bool,
    /// Number of messages dropped: before these (policy `DropOldest`) or after them.
    pub dropped: u64,
    /// Clients that now listen elsewhere.
    pub taken_over: Vec<ClientName>,
    /// Ranges of logs that clients do not get.
    pub missed: Vec<GapNotice>,
    /// True if the bound was exceeded and the connection has to be closed.
    pub overflowed: bool,
}

impl Outbox {
    pub fn new(format: &'static dyn Format, bound: OutboxBound, metrics: Arc<LiveMetrics>) -> Arc<Self> {
        Self::guarded(format, bound, metrics, None)
    }

    /// Creates one as [`Outbox::new`] does, that gets the messages of those topics alone that the guard
    /// admits.
    pub fn guarded(
        format: &'static dyn Format,
        bound: OutboxBound,
        metrics: Arc<LiveMetrics>,
        guard: Option<Arc<dyn TopicGuard>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            format,
            guard,
            waiting: Lock::new(WaitingMessages {
                bound,
                messages: VecDeque::new(),
                bytes: 0,
                dropped: 0,
                overflowed: false,
                taken_over: Vec::new(),
                missed: Vec::new(),
            }),
            in_transit: Lock::default(),
            ready: Notify::new(),
            moved: Notify::new(),
            metrics,
        })
    }

    /// Returns false if the connection may not hear a topic.
    pub(crate) fn admits(&self, topic: &str) -> bool {
        let Some(guard) = &self.guard else { return true };
        let is_admitted = guard.admits(topic);
        if !is_admitted {
            self.metrics.withheld.inc();
        }
        is_admitted
    }

    pub(crate) fn format(&self) -> &'static dyn Format {
        self.format
    }

    pub fn set_bound(&self, bound: OutboxBound) {
        self.lock().bound = bound;
    }

    /// Waits until there may be something to take.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Takes messages of about `bytes_max` bytes, and all notifications. More may be left. Must be called
    /// once everything taken before is written.
    pub fn take(&self, bytes_max: usize, drain: &mut OutboxDrain) {
        let mut in_transit = self.in_transit();
        let mut waiting = self.lock();
        let mut bytes = 0;
        while bytes < bytes_max
            && let Some((message, log_position)) = waiting.messages.pop_front()
        {
            let start = bytes;
            bytes += message.len();
            waiting.bytes -= message.len() + MESSAGE_OVERHEAD;
            drain.messages.push(message);
            if let Some(log_position) = log_position {
                in_transit.add(log_position, start, bytes);
            }
        }
        drain.from_logs = !in_transit.is_empty();
        drain.dropped = std::mem::take(&mut waiting.dropped);
        drain.taken_over = std::mem::take(&mut waiting.taken_over);
        drain.missed = std::mem::take(&mut waiting.missed);
        drain.overflowed = waiting.overflowed;
        if !waiting.messages.is_empty() {
            self.ready.notify_one();
        } else if waiting.messages.capacity() > KEPT {
            waiting.messages.shrink_to(0);
        }
        drop(waiting);
        drop(in_transit);
        self.moved.notify_waiters();
    }

    /// Records that the taken messages are written behind `bytes` other bytes.
    pub fn on_put_behind(&self, bytes: usize) {
        self.in_transit().move_back(bytes);
    }

    /// Calls `write` once with an output that begins with the taken messages, without those taken back
    /// meanwhile because their client listens elsewhere.
    pub fn write<E>(
        &self,
        output: &mut BytesMut,
        write: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.in_transit().write(output, write)
    }

    /// Records that all taken messages are written, or out of the caller's hands.
    pub fn on_all_sent(&self) {
        self.in_transit().clear();
    }

    /// Returns the bytes of the waiting messages.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Adds a message; false if it was dropped.
    pub(crate) fn push(&self, message: Bytes, log_position: Option<LogPosition>) -> bool {
        let cost = message.len() + MESSAGE_OVERHEAD;
        let mut waiting = self.lock();
        let mut dropped = 0;
        if waiting.bytes + cost > waiting.bound.bytes {
            match waiting.bound.overflow {
                Overflow::DropOldest => {
                    while waiting.bytes + cost > waiting.bound.bytes
                        && let Some((oldest, _)) = waiting.messages.pop_front()
                    {
                        waiting.bytes -= oldest.len() + MESSAGE_OVERHEAD;
                        dropped += 1;
                    }
                }
                Overflow::DropNewest => dropped = 1,
                Overflow::Disconnect => {
                    dropped = waiting.messages.len() + 1;
                    waiting.messages = VecDeque::new();
                    waiting.bytes = 0;
                    waiting.overflowed = true;
                }
            }
        }
        // A message larger than the whole bound never fits.
        let fits = !waiting.overflowed && waiting.bytes + cost <= waiting.bound.bytes;
        if !fits && dropped == 0 {
            dropped = 1;
        }
        let was_empty = waiting.messages.is_empty();
        if fits {
            waiting.bytes += cost;
            waiting.messages.push_back((message, log_position));
        }
        if dropped > 0 {
            let dropped = u64::try_from(dropped).unwrap_or(u64::MAX);
            waiting.dropped += dropped;
            self.metrics.dropped.inc_by(dropped);
        }
        drop(waiting);
        if was_empty || !fits {
            self.ready.notify_one();
        }
        fits
    }

    pub(crate) fn on_taken_over(&self, client: ClientName) {
        self.lock().taken_over.push(client);
        self.ready.notify_one();
    }

    /// Records that a client has left: notifies the tasks that wait to send it something.
    pub(crate) fn on_left(&self) {
        self.moved.notify_waiters();
    }

    /// Waits until messages are taken, or a client has left.
    pub(crate) fn moved(&self) -> Notified<'_> {
        self.moved.notified()
    }

    /// Returns true if at least three quarters of the bound are free.
    pub(crate) fn has_room(&self) -> bool {
        let waiting = self.lock();
        waiting.bytes * 4 <= waiting.bound.bytes
    }

    /// Adds a message for a client that catches up. Such messages take up to half of the bound; the rest is
    /// for live ones. Nothing is dropped for them.
    pub(crate) fn offer(&self, message: Bytes, log_position: LogPosition) -> OfferOutcome {
        let cost = message.len() + MESSAGE_OVERHEAD;
        let mut waiting = self.lock();
        let was_empty = waiting.messages.is_empty();
        if waiting.overflowed || (!was_empty && (waiting.bytes + cost) * 2 > waiting.bound.bytes) {
            return OfferOutcome::NoRoom;
        }
        let fits = waiting.bytes + cost <= waiting.bound.bytes;
        if fits {
            waiting.bytes += cost;
            waiting.messages.push_back((message, Some(log_position)));
        } else {
            // Larger than the whole bound.
            waiting.dropped += 1;
            self.metrics.dropped.inc();
        }
        drop(waiting);
        if was_empty {
            self.ready.notify_one();
        }
        if fits {
            OfferOutcome::Taken
        } else {
            OfferOutcome::Dropped
        }
    }

    /// Records a range of a log that a client does not get.
    pub(crate) fn on_gap(&self, missed: GapNotice) {
        let mut waiting = self.lock();
        let is_full = waiting.missed.len() >= MISSED_MAX;
        let is_one =
            |known: &&mut GapNotice| known.is_of_same(&missed) && (is_full || known.touches(&missed));
        let known = waiting.missed.iter_mut().find(is_one);
        match known {
            Some(known) => known.widen(&missed),
            None => waiting.missed.push(missed),
        }
        drop(waiting);
        self.ready.notify_one();
    }

    /// Removes the waiting messages from logs for a client that no longer listens here. Returns the positions
    /// of all unsent ones. `is_gone` is true if nothing more is written to this connection.
    pub(crate) fn forget(&self, client: ClientNumber, is_gone: bool) -> Vec<LogPosition> {
        let mut unsent = Vec::new();
        let mut in_transit = self.in_transit();
        in_transit.leave(client, is_gone, &mut unsent);
        self.lock().retain(|message| {
            let leaves = message.filter(|message| message.client == client.0);
            unsent.extend(leaves);
            leaves.is_none()
        });
        unsent
    }

    /// Removes waiting messages of a client that come again, at their places.
    pub(crate) fn take_back(&self, client: ClientNumber, mut comes_again: impl FnMut(LogPosition) -> bool) {
        self.lock().retain(|message| {
            !message.is_some_and(|message| message.client == client.0 && comes_again(message))
        });
        self.moved.notify_waiters();
    }

    fn in_transit(&self) -> LockGuard<'_, InTransit> {
        self.in_transit.lock()
    }

    fn lock(&self) -> LockGuard<'_, WaitingMessages> {
        self.waiting.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message as Published;

    #[derive(Debug)]
    struct NoFormat;

    impl Format for NoFormat {
        fn number(&self) -> usize {
            0
        }

        fn encode(&self, _: &Published<'_>) -> Bytes {
            Bytes::new()
        }
    }

    /// Creates an outbox with room for three of the messages that `fill` pushes.
    fn outbox(overflow: Overflow) -> Arc<Outbox> {
        let bytes = 3 * (1 + MESSAGE_OVERHEAD);
        Outbox::new(&NoFormat, OutboxBound { bytes, overflow }, Arc::default())
    }

    fn fill(outbox: &Outbox, count: u8) -> (Vec<u8>, u64, bool) {
        for number in 0..count {
            outbox.push(vec![number].into(), None);
        }
        let mut drain = OutboxDrain::default();
        outbox.take(usize::MAX, &mut drain);
        (drain.messages.concat(), drain.dropped, drain.overflowed)
    }

    #[test]
    fn what_has_no_room_is_dropped_as_the_policy_says_and_counted() {
        assert_eq!(fill(&outbox(Overflow::DropOldest), 3), (vec![0, 1, 2], 0, false));
        assert_eq!(fill(&outbox(Overflow::DropOldest), 5), (vec![2, 3, 4], 2, false));
        assert_eq!(fill(&outbox(Overflow::DropNewest), 5), (vec![0, 1, 2], 2, false));
        assert_eq!(fill(&outbox(Overflow::Disconnect), 5), (vec![], 5, true));
    }

    #[test]
    fn a_message_larger_than_the_bound_is_dropped_by_every_policy() {
        for overflow in [Overflow::DropOldest, Overflow::DropNewest] {
            let outbox = outbox(overflow);
            assert!(!outbox.push(vec![0; 1000].into(), None));
            assert_eq!(fill(&outbox, 1), (vec![0], 1, false), "{overflow:?}");
        }
    }

    #[test]
    fn what_is_caught_up_with_takes_one_half_and_what_was_not_sent_is_known() {
        let outbox = outbox(Overflow::DropOldest);
        let log_position =
            |offset| LogPosition::new(1, 0, stafett_model::Offset(offset), crate::TopicHash::default());
        assert_eq!(outbox.offer(vec![0].into(), log_position(5)), OfferOutcome::Taken);
        assert_eq!(
            outbox.offer(vec![0].into(), log_position(6)),
            OfferOutcome::NoRoom
        );
        outbox.push(vec![1].into(), None);
        outbox.push(vec![2].into(), Some(log_position(9)));
        assert_eq!(
            outbox.offer(vec![0; 1000].into(), log_position(6)),
            OfferOutcome::NoRoom
        );
        let mut drain = OutboxDrain::default();
        outbox.take(1, &mut drain);
        assert_eq!((drain.messages.len(), drain.from_logs), (1, true));
        assert_eq!(outbox.forget(ClientNumber(2), true), []);
        assert_eq!(
            outbox.forget(ClientNumber(1), true),
            [log_position(5), log_position(9)]
        );
        assert_eq!(outbox.forget(ClientNumber(1), true), []);
        outbox.on_all_sent();
        assert_eq!(fill(&outbox, 0), (vec![1], 0, false));
        assert_eq!(outbox.bytes(), 0);
        assert_eq!(
            outbox.offer(vec![0; 1000].into(), log_position(6)),
            OfferOutcome::Dropped
        );
    }

    #[test]
    fn what_is_taken_makes_room() {
        let outbox = outbox(Overflow::DropNewest);
        for _ in 0..10 {
            assert_eq!(fill(&outbox, 3).1, 0);
        }
        assert_eq!(outbox.bytes(), 0);
    }
}
