//! Bounds on the queues of a namespace: their number, and the messages that wait in them or are in flight.
//! Room for messages is reserved before they are appended (`RoomLedger`).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stafett_model::{Namespace, SharedLock};
use stafett_store::{Reservation, Room, RoomBound, RoomLedger};

use super::registry::Queues;

/// Bounds of a namespace; `None` for no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamespaceBounds {
    pub queues: Option<u64>,
    pub room: RoomBound,
}

/// Bounds of all namespaces.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    is_used: AtomicBool,
    spaces: SharedLock<HashMap<Namespace, Bound>>,
}

#[derive(Debug, Default)]
struct Bound {
    queues_max: Option<u64>,
    ledger: Arc<RoomLedger>,
}

impl Bounds {
    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }

    pub(super) fn queues_max(&self, namespace: &Namespace) -> Option<u64> {
        self.spaces.read().get(namespace)?.queues_max
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
            bound.queues_max = bounds.queues;
            bound.ledger.set_bound(bounds.room);
        }
        self.bounds.is_used.store(!spaces.is_empty(), Ordering::Relaxed);
    }

    /// Begins to reserve room for messages of a namespace. `None` if they have no bound.
    pub(super) fn reservation(&self, namespace: &Namespace) -> Option<Reservation> {
        let ledger = Arc::clone(&self.bounds.spaces.read().get(namespace)?.ledger);
        ledger.is_bounded().then(|| Reservation::new(ledger))
    }

    /// Counts the messages in the queues of a namespace, from those queues that have some.
    pub(super) fn count_messages(&self, namespace: &Namespace) -> Room {
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
