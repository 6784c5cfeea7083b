//! Bounds on the queues of a namespace: their number, and the messages that wait in them or are in flight.
//!
//! Messages are counted from the queues that have some, and what is admitted since is added. They are counted again
//! when no more fit, at most a part of the time. So a namespace takes no more than its bound, but for messages that are
//! on their way into queues while it is counted; and messages that leave make room with the next count.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

#[derive(Debug)]
pub(super) struct Bound {
    bounds: NamespaceBounds,
    held: Lock<Held>,
}

/// Messages of a namespace, as of the last count and with those admitted since.
#[derive(Debug, Default)]
struct Held {
    messages: u64,
    bytes: u64,
    /// Steady time in ms before which they are not counted again; 0 before the first count.
    next_count_ms: u64,
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
        self.of(namespace)?.bounds.queues
    }
}

impl Bound {
    fn fits(&self, held: &Held, bytes: u64) -> bool {
        let NamespaceBounds {
            messages: messages_max,
            bytes: bytes_max,
            ..
        } = self.bounds;
        messages_max.is_none_or(|max| held.messages < max)
            && bytes_max.is_none_or(|max| held.bytes.saturating_add(bytes) <= max)
    }
}

impl Queues {
    /// Sets the bounds of a namespace; without any they are removed. What is there stays.
    pub fn set_bounds(&self, namespace: &Namespace, bounds: NamespaceBounds) {
        let mut spaces = self.bounds.spaces.write();
        if bounds == NamespaceBounds::default() {
            spaces.remove(namespace);
        } else {
            let held = Lock::default();
            spaces.insert(namespace.clone(), Arc::new(Bound { bounds, held }));
        }
        self.bounds.is_used.store(!spaces.is_empty(), Ordering::Relaxed);
    }

    /// Returns the bounds of a namespace that bound its messages.
    pub(super) fn message_bound(&self, namespace: &Namespace) -> Option<Arc<Bound>> {
        let bound = self.bounds.of(namespace)?;
        let is_used = bound.bounds.messages.is_some() || bound.bounds.bytes.is_some();
        is_used.then_some(bound)
    }

    /// Takes room for a message of the namespace. False if there is none.
    pub(super) fn take_room(&self, bound: &Bound, namespace: &Namespace, bytes: u64) -> bool {
        let mut held = bound.held.lock();
        let now_ms = self.context.clock.elapsed_ms();
        if (held.next_count_ms == 0 || !bound.fits(&held, bytes)) && held.next_count_ms <= now_ms {
            *held = self.count_held(namespace);
            let taken_ms = self.context.clock.elapsed_ms() - now_ms;
            held.next_count_ms = now_ms + COUNT_EVERY_MS.max(taken_ms * COUNT_SHARE);
        }
        if !bound.fits(&held, bytes) {
            return false;
        }
        held.messages += 1;
        held.bytes = held.bytes.saturating_add(bytes);
        true
    }

    fn count_held(&self, namespace: &Namespace) -> Held {
        let listed = self.pending.lock().all(Some(namespace));
        let mut held = Held::default();
        for queue in listed.iter().filter(|queue| queue.over.is_none()) {
            let counts = queue.counts();
            held.messages += counts.ready + counts.in_flight as u64;
            held.bytes = held.bytes.saturating_add(queue.bytes_waiting(&self.context));
        }
        held
    }
}
