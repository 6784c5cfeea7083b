//! Where deliveries wait for their connection to take them: bounded in bytes, one wake-up per batch.
//!
//! A queue that finds an outbox full passes its consumers over and leaves word; taking what is there wakes
//! it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

use stafett_model::{Lock, StoredMessage};
use stafett_queue::DeliveryId;
use tokio::sync::Notify;

use super::source::{Source, Waiter};

/// Bytes that a delivery takes beside its message, about.
const DELIVERY_BYTES: usize = 64;

/// A message on its way to a consumer.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub id: DeliveryId,
    pub message: StoredMessage,
    /// Somebody may have had it before.
    pub redelivered: bool,
    /// How often it came back before.
    pub delivery_count: u32,
}

/// Deliveries of one consumer, in order.
#[derive(Debug)]
pub struct Run {
    /// What the consumer was registered with, and nobody else of this outbox.
    pub token: u64,
    pub source: Source,
    pub deliveries: Vec<Delivery>,
}

/// Deliveries that were taken back from an outbox.
#[derive(Debug)]
pub(crate) struct Withdrawn {
    pub(crate) deliveries: Vec<Delivery>,
    /// Consumers for which there is room now; to be told without any lock held.
    pub(crate) waiting: Vec<Waiter>,
}

/// What a consumer is told beside deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Its queue or topic is gone.
    ConsumerGone { token: u64 },
}

/// The deliveries of one connection or channel that wait to be written.
#[derive(Debug)]
pub struct Outbox {
    content: Lock<Content>,
    bytes: AtomicUsize,
    bytes_max: usize,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Content {
    runs: Vec<Run>,
    events: Vec<Event>,
    /// Who was passed over.
    waiting: Vec<Waiter>,
}

impl Outbox {
    /// An outbox for about so many bytes; the last message put in may go beyond.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Self::with_wake(bytes_max, Arc::default())
    }

    /// One of several outboxes that wake the same task.
    pub fn with_wake(bytes_max: usize, wake: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            content: Lock::default(),
            bytes: AtomicUsize::new(0),
            bytes_max: bytes_max.max(1),
            wake,
        })
    }

    /// Returns when something was put in since it last returned.
    pub async fn filled(&self) {
        self.wake.notified().await;
    }

    /// Takes what is there, and lets queues go on that found it full.
    pub fn take(&self, runs: &mut Vec<Run>, events: &mut Vec<Event>) {
        let waiting = {
            let mut content = self.lock();
            runs.append(&mut content.runs);
            events.append(&mut content.events);
            self.bytes.store(0, Ordering::Release);
            std::mem::take(&mut content.waiting)
        };
        for waiter in waiting {
            waiter.go_on();
        }
    }

    /// Takes out what waits for one consumer. Those that found the outbox full are to be told
    /// ([`Withdrawn::waiting`]).
    pub(crate) fn withdraw(&self, token: u64) -> Withdrawn {
        let mut content = self.lock();
        let mut deliveries = Vec::new();
        content.runs.retain_mut(|run| {
            let is_its = run.token == token;
            if is_its {
                deliveries.append(&mut run.deliveries);
            }
            !is_its
        });
        let bytes = deliveries.iter().map(Delivery::bytes).sum();
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        let waiting = if deliveries.is_empty() {
            Vec::new()
        } else {
            std::mem::take(&mut content.waiting)
        };
        Withdrawn { deliveries, waiting }
    }

    /// Bytes that wait, about.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Whether a message more may be put in beside `pending` bytes that are about to be.
    pub(crate) fn has_room(&self, pending: usize) -> bool {
        self.bytes() + pending < self.bytes_max
    }

    /// Lets `waiter` know when there is room. False if there is by now.
    pub(crate) fn wait(&self, waiter: Waiter) -> bool {
        let mut content = self.lock();
        if content.runs.is_empty() {
            return false;
        }
        content.waiting.push(waiter);
        true
    }

    /// Puts deliveries of a consumer in; what is left is an empty vector to be used again.
    pub(crate) fn put(
        &self,
        token: u64,
        source: impl FnOnce() -> Source,
        deliveries: &mut Vec<Delivery>,
        bytes: usize,
    ) {
        if deliveries.is_empty() {
            return;
        }
        {
            let mut content = self.lock();
            match content.runs.last_mut() {
                Some(run) if run.token == token => {
                    run.deliveries.append(deliveries);
                }
                _ => content.runs.push(Run {
                    token,
                    source: source(),
                    deliveries: std::mem::take(deliveries),
                }),
            }
            self.bytes.fetch_add(bytes, Ordering::AcqRel);
        }
        self.wake.notify_one();
    }

    pub(crate) fn tell(&self, event: Event) {
        self.lock().events.push(event);
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock()
    }
}

impl Delivery {
    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.message.bytes() + DELIVERY_BYTES
    }
}
