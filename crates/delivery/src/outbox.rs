//! Deliveries that wait for their connection: bounded in bytes, one wake-up per batch.
//!
//! A dispatcher that finds an outbox full skips its consumers and registers a waiter; taking the deliveries
//! resumes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stafett_model::{Lock, LockGuard, StoredMessage};
use stafett_queue::DeliveryId;
use tokio::sync::Notify;

use super::source::{Source, Waiter};

/// Approximate overhead of a delivery, in bytes.
const DELIVERY_BYTES: usize = 64;

/// A message addressed to a consumer.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub id: DeliveryId,
    pub message: StoredMessage,
    /// True if a consumer may have had it before.
    pub redelivered: bool,
    /// Number of times that it was returned before.
    pub delivery_count: u32,
}

/// Deliveries of one consumer, in order.
#[derive(Debug)]
pub struct DeliveryBatch {
    /// Token of the consumer, unique in this outbox.
    pub token: u64,
    pub source: Source,
    pub deliveries: Vec<Delivery>,
}

/// Deliveries that were withdrawn from an outbox.
#[derive(Debug)]
pub struct Withdrawn {
    /// Withdrawn deliveries.
    pub deliveries: Vec<Delivery>,
    /// Waiters for which there is room now; must be resumed without any lock held.
    pub waiting: Vec<Waiter>,
}

/// Notification to a consumer, besides deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The source of the consumer's deliveries is deleted.
    ConsumerGone { token: u64 },
}

/// Deliveries of one connection or channel that wait to be written.
#[derive(Debug)]
pub struct Outbox {
    content: Lock<Content>,
    bytes: AtomicUsize,
    bytes_max: usize,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Content {
    runs: Vec<DeliveryBatch>,
    events: Vec<Event>,
    /// Skipped consumers and readers.
    waiting: Vec<Waiter>,
}

impl Outbox {
    /// Creates an outbox for about `bytes_max` bytes; the last message may exceed them.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Self::with_wake(bytes_max, Arc::default())
    }

    /// Creates an outbox that shares the wake-up of its task with others.
    pub fn with_wake(bytes_max: usize, wake: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            content: Lock::default(),
            bytes: AtomicUsize::new(0),
            bytes_max: bytes_max.max(1),
            wake,
        })
    }

    /// Waits until something was put in since it last returned.
    pub async fn filled(&self) {
        self.wake.notified().await;
    }

    /// Takes everything, and resumes the dispatchers and readers that found it full.
    pub fn take(&self, runs: &mut Vec<DeliveryBatch>, events: &mut Vec<Event>) {
        let waiting = {
            let mut content = self.lock();
            runs.append(&mut content.runs);
            events.append(&mut content.events);
            self.bytes.store(0, Ordering::Release);
            std::mem::take(&mut content.waiting)
        };
        for waiter in waiting {
            waiter.resume();
        }
    }

    /// Removes the deliveries of one consumer. The caller must resume [`Withdrawn::waiting`].
    pub fn withdraw(&self, token: u64) -> Withdrawn {
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

    /// Returns the approximate bytes of the waiting deliveries.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns true if the outbox has room for one more message on top of `pending` bytes.
    pub fn has_room(&self, pending: usize) -> bool {
        self.bytes() + pending < self.bytes_max
    }

    /// Registers a waiter for room. False if there is room by now.
    pub fn wait(&self, waiter: Waiter) -> bool {
        let mut content = self.lock();
        if content.runs.is_empty() {
            return false;
        }
        content.waiting.push(waiter);
        true
    }

    /// Adds deliveries of a consumer; `deliveries` is left empty for reuse.
    pub fn put(
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
                _ => content.runs.push(DeliveryBatch {
                    token,
                    source: source(),
                    deliveries: std::mem::take(deliveries),
                }),
            }
            self.bytes.fetch_add(bytes, Ordering::AcqRel);
        }
        self.wake.notify_one();
    }

    pub fn tell(&self, event: Event) {
        self.lock().events.push(event);
        self.wake.notify_one();
    }

    fn lock(&self) -> LockGuard<'_, Content> {
        self.content.lock()
    }
}

impl Delivery {
    /// Returns the approximate memory of the delivery, in bytes.
    pub fn bytes(&self) -> usize {
        self.message.bytes() + DELIVERY_BYTES
    }
}
