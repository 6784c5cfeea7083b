//! Bounded queue of messages for one connection.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};

use bytes::{Bytes, BytesMut};
use stafett_model::Lock;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::clients::{ClientName, ClientNumber};
use super::logs::{Mark, Missed};
use super::message::Format;
use super::metrics::LiveMetrics;
use super::sending::Sending;

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

/// A message, with its mark if it is from a log.
type Message = (Bytes, Option<Mark>);

/// Messages for one connection, shared by all clients that listen on it.
#[derive(Debug)]
pub struct Outbox {
    format: &'static dyn Format,
    waiting: Lock<Waiting>,
    /// Messages of logs that were taken and not written. Locked before `waiting`.
    sending: Lock<Sending>,
    ready: Notify,
    /// Notified when messages were taken, or when a client has left.
    moved: Notify,
    metrics: Arc<LiveMetrics>,
}

#[derive(Debug)]
struct Waiting {
    bound: OutboxBound,
    messages: VecDeque<Message>,
    bytes: usize,
    /// Number of dropped messages since last reported.
    dropped: u64,
    overflowed: bool,
    taken_over: Vec<ClientName>,
    missed: Vec<Missed>,
}

/// Outcome of an offered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    Taken,
    /// The message is larger than the whole bound and was dropped.
    Dropped,
    NoRoom,
}

/// Items to be sent.
#[derive(Debug, Default)]
pub struct Sent {
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
    pub missed: Vec<Missed>,
    /// True if the bound was exceeded and the connection has to be closed.
    pub overflowed: bool,
}

impl Outbox {
    pub fn new(format: &'static dyn Format, bound: OutboxBound, metrics: Arc<LiveMetrics>) -> Arc<Self> {
        Arc::new(Self {
            format,
            waiting: Lock::new(Waiting {
                bound,
                messages: VecDeque::new(),
                bytes: 0,
                dropped: 0,
                overflowed: false,
                taken_over: Vec::new(),
                missed: Vec::new(),
            }),
            sending: Lock::default(),
            ready: Notify::new(),
            moved: Notify::new(),
            metrics,
        })
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
    pub fn take(&self, bytes_max: usize, sent: &mut Sent) {
        let mut sending = self.sending();
        let mut waiting = self.lock();
        let mut bytes = 0;
        while bytes < bytes_max
            && let Some((message, mark)) = waiting.messages.pop_front()
        {
            let start = bytes;
            bytes += message.len();
            waiting.bytes -= message.len() + MESSAGE_OVERHEAD;
            sent.messages.push(message);
            if let Some(mark) = mark {
                sending.add(mark, start, bytes);
            }
        }
        sent.from_logs = !sending.is_empty();
        sent.dropped = std::mem::take(&mut waiting.dropped);
        sent.taken_over = std::mem::take(&mut waiting.taken_over);
        sent.missed = std::mem::take(&mut waiting.missed);
        sent.overflowed = waiting.overflowed;
        if !waiting.messages.is_empty() {
            self.ready.notify_one();
        } else if waiting.messages.capacity() > KEPT {
            waiting.messages.shrink_to(0);
        }
        drop(waiting);
        drop(sending);
        self.moved.notify_waiters();
    }

    /// Records that the taken messages are written behind `bytes` other bytes.
    pub fn on_put_behind(&self, bytes: usize) {
        self.sending().move_back(bytes);
    }

    /// Calls `write` once with an output that begins with the taken messages, without those taken back
    /// meanwhile because their client listens elsewhere.
    pub fn write<E>(
        &self,
        output: &mut BytesMut,
        write: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.sending().write(output, write)
    }

    /// Records that all taken messages are written, or out of the caller's hands.
    pub fn on_all_sent(&self) {
        self.sending().clear();
    }

    /// Returns the bytes of the waiting messages.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Adds a message; false if it was dropped.
    pub(crate) fn push(&self, message: Bytes, mark: Option<Mark>) -> bool {
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
            waiting.messages.push_back((message, mark));
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
    pub(crate) fn offer(&self, message: Bytes, mark: Mark) -> Offered {
        let cost = message.len() + MESSAGE_OVERHEAD;
        let mut waiting = self.lock();
        let was_empty = waiting.messages.is_empty();
        if waiting.overflowed || (!was_empty && (waiting.bytes + cost) * 2 > waiting.bound.bytes) {
            return Offered::NoRoom;
        }
        let fits = waiting.bytes + cost <= waiting.bound.bytes;
        if fits {
            waiting.bytes += cost;
            waiting.messages.push_back((message, Some(mark)));
        } else {
            // Larger than the whole bound.
            waiting.dropped += 1;
            self.metrics.dropped.inc();
        }
        drop(waiting);
        if was_empty {
            self.ready.notify_one();
        }
        if fits { Offered::Taken } else { Offered::Dropped }
    }

    /// Records a range of a log that a client does not get.
    pub(crate) fn on_missed(&self, missed: Missed) {
        let mut waiting = self.lock();
        let is_full = waiting.missed.len() >= MISSED_MAX;
        let is_one = |known: &&mut Missed| known.is_of_same(&missed) && (is_full || known.touches(&missed));
        let known = waiting.missed.iter_mut().find(is_one);
        match known {
            Some(known) => known.widen(&missed),
            None => waiting.missed.push(missed),
        }
        drop(waiting);
        self.ready.notify_one();
    }

    /// Removes the waiting messages from logs for a client that no longer listens here. Returns the marks of
    /// all unsent ones. `is_gone` is true if nothing more is written to this connection.
    pub(crate) fn forget(&self, client: ClientNumber, is_gone: bool) -> Vec<Mark> {
        let mut unsent = Vec::new();
        let mut sending = self.sending();
        sending.leave(client, is_gone, &mut unsent);
        let mut waiting = self.lock();
        let waiting = &mut *waiting;
        let mut bytes = waiting.bytes;
        waiting.messages.retain(|(message, mark)| {
            let Some(mark) = mark.filter(|mark| mark.client == client.0) else {
                return true;
            };
            bytes -= message.len() + MESSAGE_OVERHEAD;
            unsent.push(mark);
            false
        });
        waiting.bytes = bytes;
        unsent
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
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
        let mut sent = Sent::default();
        outbox.take(usize::MAX, &mut sent);
        (sent.messages.concat(), sent.dropped, sent.overflowed)
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
        let mark = |offset| Mark {
            client: 1,
            place: 0,
            offset: stafett_model::Offset(offset),
        };
        assert_eq!(outbox.offer(vec![0].into(), mark(5)), Offered::Taken);
        assert_eq!(outbox.offer(vec![0].into(), mark(6)), Offered::NoRoom);
        outbox.push(vec![1].into(), None);
        outbox.push(vec![2].into(), Some(mark(9)));
        assert_eq!(outbox.offer(vec![0; 1000].into(), mark(6)), Offered::NoRoom);
        let mut sent = Sent::default();
        outbox.take(1, &mut sent);
        assert_eq!((sent.messages.len(), sent.from_logs), (1, true));
        assert_eq!(outbox.forget(ClientNumber(2), true), []);
        assert_eq!(outbox.forget(ClientNumber(1), true), [mark(5), mark(9)]);
        assert_eq!(outbox.forget(ClientNumber(1), true), []);
        outbox.on_all_sent();
        assert_eq!(fill(&outbox, 0), (vec![1], 0, false));
        assert_eq!(outbox.bytes(), 0);
        assert_eq!(outbox.offer(vec![0; 1000].into(), mark(6)), Offered::Dropped);
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
