//! Messages that wait for their time before they are routed.
//!
//! They lie in hidden queues, one for each minute, hour or day in which messages are due: by the minute up to two
//! hours ahead, by the hour up to two days, else by the day. Only of a minute that has come are the times in memory
//! (the bodies are not); when an hour or a day comes near, its messages move on to finer queues. A message moves by one
//! append that stores it where it goes and settles it where it was, so it is there once whatever happens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use stafett_model::{Message, StoredMessage};
use stafett_queue::DeliveryId;

use super::definition::{Declare, OwnerId};
use super::outbox::Outbox;
use super::publication::{Publication, Targets};
use super::queue::{ConsumerSpec, Queue};
use super::registry::Queues;
use crate::namespace::Namespace;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;
/// How long before its time a queue is opened.
const AHEAD_MS: i64 = 5_000;
/// How long after its time a queue stays for messages that were on their way to it.
const LINGER_MS: i64 = 10_000;
/// Messages that move together.
const MOVED_MAX: usize = 256;
/// Bytes of deliveries whose times are being noted.
const OUTBOX_BYTES: usize = 1 << 20;

/// Where the hidden queues are: no front end can name it.
pub(super) fn hidden() -> Namespace {
    Namespace::new("\0delayed")
}

/// A span of time whose messages share a hidden queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    letter: char,
    span_ms: i64,
    number: i64,
}

impl Slot {
    fn of(due_ms: i64, now_ms: i64) -> Self {
        let (letter, span_ms) = match due_ms.saturating_sub(now_ms) {
            ahead if ahead < 2 * HOUR_MS => ('m', MINUTE_MS),
            ahead if ahead < 2 * DAY_MS => ('h', HOUR_MS),
            _ => ('d', DAY_MS),
        };
        Self {
            letter,
            span_ms,
            number: due_ms.div_euclid(span_ms),
        }
    }

    /// The slot and the namespace that a hidden queue is named for.
    fn named(name: &str) -> Option<(Self, &str)> {
        let (slot, namespace) = name.split_once('/')?;
        let span_ms = match slot.get(..1)? {
            "m" => MINUTE_MS,
            "h" => HOUR_MS,
            "d" => DAY_MS,
            _ => return None,
        };
        let slot = Self {
            letter: slot.chars().next()?,
            span_ms,
            number: slot.get(1..)?.parse().ok()?,
        };
        Some((slot, namespace))
    }

    fn opens_ms(self) -> i64 {
        let ahead = if self.span_ms == MINUTE_MS {
            AHEAD_MS
        } else {
            2 * MINUTE_MS
        };
        self.number.saturating_mul(self.span_ms).saturating_sub(ahead)
    }

    fn closes_ms(self) -> i64 {
        (self.number + 1)
            .saturating_mul(self.span_ms)
            .saturating_add(LINGER_MS)
    }
}

impl Queues {
    /// The hidden queue for a message that is routed `delay_ms` from now: publish it there, with its
    /// [`Message::delay_ms`] set and addressed as it was.
    pub fn delayed(self: &Arc<Self>, namespace: &Namespace, delay_ms: u64) -> Arc<Queue> {
        let now_ms = self.clock.now_ms();
        let due_ms = now_ms.saturating_add(i64::try_from(delay_ms).unwrap_or(i64::MAX / 2));
        self.slot_queue(Slot::of(due_ms, now_ms), namespace.as_str())
    }

    fn slot_queue(self: &Arc<Self>, slot: Slot, namespace: &str) -> Arc<Queue> {
        let name = format!("{}{}/{namespace}", slot.letter, slot.number);
        loop {
            if let Some(queue) = self.get(&hidden(), &name) {
                return queue;
            }
            let declare = Declare {
                durable: true,
                ..Declare::default()
            };
            // Nobody waits for it to be stored: what is published there is stored behind it.
            if let Some(queue) = self.declare(&hidden(), &name, declare).started() {
                self.open_in_time(&queue);
                return queue;
            }
        }
    }

    /// Opens a hidden queue when its time comes.
    pub(super) fn open_in_time(self: &Arc<Self>, queue: &Arc<Queue>) {
        let name = queue.name.clone();
        let Some((slot, namespace)) = Slot::named(&name) else {
            return;
        };
        let (hub, queue, stop) = (Arc::downgrade(self), Arc::clone(queue), self.stopped());
        let (clock, namespace) = (self.clock, Namespace::new(namespace));
        self.tasks.spawn(async move {
            let work = async {
                while clock.now_ms() < slot.opens_ms() {
                    tokio::time::sleep_until(clock.instant(slot.opens_ms())).await;
                }
                if let Some(hub) = hub.upgrade() {
                    empty(&hub, &queue, slot, &namespace).await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = work => {}
            }
        });
    }
}

/// Moves all messages of a hidden queue on, each when it is due, and deletes the queue.
async fn empty(hub: &Arc<Queues>, queue: &Arc<Queue>, slot: Slot, namespace: &Namespace) {
    let outbox = Outbox::new(OUTBOX_BYTES);
    let spec = ConsumerSpec {
        settles: true,
        exclusive: true,
        priority: 0,
        credit: None,
        shared_credit: None,
        owner: OwnerId(0),
    };
    let Ok(consumer) = queue.consume(spec, Arc::clone(&outbox), 0) else {
        return;
    };
    let mut waiting: BinaryHeap<Reverse<(i64, DeliveryId)>> = BinaryHeap::new();
    let (mut runs, mut events) = (Vec::new(), Vec::new());
    loop {
        outbox.take(&mut runs, &mut events);
        for delivery in runs.drain(..).flat_map(|run| run.deliveries) {
            // Where it only moves on to a finer queue, it may do so at once.
            let due = if slot.span_ms == MINUTE_MS {
                due_ms(&delivery.message)
            } else {
                i64::MIN
            };
            waiting.push(Reverse((due, delivery.id)));
        }
        let now_ms = hub.clock.now_ms();
        let mut due = Vec::new();
        while due.len() < MOVED_MAX
            && let Some(Reverse((at, id))) = waiting.peek()
            && *at <= now_ms
        {
            due.push(*id);
            waiting.pop();
        }
        if !due.is_empty() {
            move_on(hub, queue, namespace, &due).await;
            continue;
        }
        let next = waiting.peek().map_or(slot.closes_ms(), |Reverse((at, _))| *at);
        if waiting.is_empty() && now_ms >= slot.closes_ms() {
            let counts = queue.counts();
            if counts.ready == 0 && counts.in_flight == 0 {
                break;
            }
        }
        let at = next.max(now_ms.saturating_add(1));
        tokio::select! {
            () = outbox.filled() => {}
            () = tokio::time::sleep_until(hub.clock.instant(at)) => {}
        }
    }
    consumer.cancel();
    // A message may just have come: then the queue stays, and is opened anew.
    let empty = hub.delete(&hidden(), &queue.name, true, true, OwnerId(0)).await;
    if empty.is_err() && !queue.is_deleted() {
        hub.open_in_time(queue);
    }
}

/// Routes messages whose time has come; those whose time is later go to a finer queue.
async fn move_on(hub: &Arc<Queues>, queue: &Arc<Queue>, namespace: &Namespace, ids: &[DeliveryId]) {
    let publish = |moved: Vec<(usize, StoredMessage)>| {
        let mut publication = Publication::atomic();
        let now_ms = hub.clock.now_ms();
        for (_, stored) in moved {
            let due = due_ms(&stored);
            let mut message: Message = stored.to_message();
            let targets = if due > now_ms {
                message.delay_ms = u64::try_from(due - now_ms).ok();
                let finer = hub.slot_queue(Slot::of(due, now_ms), namespace.as_str());
                Targets {
                    queues: std::iter::once(finer).collect(),
                    ..Targets::default()
                }
            } else {
                message.delay_ms = None;
                let Some(router) = hub.router.get() else { continue };
                router.targets(namespace, &message.exchange, &message.routing_key, &message)
            };
            if !targets.is_empty() {
                let route = publication.route(targets);
                publication.push(message, route);
            }
        }
        publication
    };
    queue.move_taken(hub, ids, publish).await;
}

fn due_ms(message: &StoredMessage) -> i64 {
    let delay = message.delay_ms().unwrap_or(0);
    message
        .arrived_ms()
        .saturating_add(i64::try_from(delay).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_further_ahead_the_longer_the_slot() {
        let now = 1_700_000_000_000;
        for (ahead, letter) in [(0, 'm'), (HOUR_MS, 'm'), (3 * HOUR_MS, 'h'), (3 * DAY_MS, 'd')] {
            let slot = Slot::of(now + ahead, now);
            assert_eq!(slot.letter, letter);
            let name = format!("{}{}/a/b", slot.letter, slot.number);
            assert_eq!(Slot::named(&name), Some((slot, "a/b")));
            assert!(slot.opens_ms() <= now + ahead && now + ahead < slot.closes_ms());
        }
        assert_eq!(Slot::named("x1/a"), None);
    }
}
