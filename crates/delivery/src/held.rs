//! Messages in flight, with their holders.

use std::sync::Arc;

use stafett_queue::DeliveryId;
use stafett_queue::consumers::ConsumerKey;

use super::consumers::WeakConsumer;
use super::dispatcher::{DeliveryState, Dispatcher};

/// A message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub id: DeliveryId,
    pub holder: Holder,
}

/// Holder of a message in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Consumer(ConsumerKey),
    /// A lease, which ends in this time.
    Lease {
        ends_in_ms: u64,
    },
    /// A request in progress, or a channel that took it without a consumer.
    Request,
}

impl Dispatcher {
    /// Returns the first messages in flight behind one, by lane and offset. `has_more` of the answer says
    /// whether there are others behind them.
    pub fn held(&self, after: Option<DeliveryId>, count: usize) -> (Vec<Held>, bool) {
        let now_ms = self.context.upgrade().map_or(0, |context| context.clock.now_ms());
        let inner = self.lock();
        let mut held = Vec::new();
        for (number, lane) in inner.state.lanes() {
            let from = match after {
                Some(after) if number < after.lane => continue,
                Some(after) if number == after.lane => after.offset.saturating_add(1),
                Some(_) | None => 0,
            };
            for (offset, taken) in lane.in_flight_from(from, count + 1 - held.len()) {
                let id = DeliveryId { lane: number, offset };
                let holder = holder(&inner, id, taken.consumer, now_ms);
                held.push(Held { id, holder });
            }
            if held.len() > count {
                held.truncate(count);
                return (held, true);
            }
        }
        (held, false)
    }

    /// Returns the holder of a message. `None` if it is not in flight.
    pub fn holder(&self, id: DeliveryId) -> Option<Holder> {
        let now_ms = self.context.upgrade().map_or(0, |context| context.clock.now_ms());
        let inner = self.lock();
        let (_, lane) = inner.state.lanes().find(|(number, _)| *number == id.lane)?;
        let taken = lane.in_flight_from(id.offset, 1).into_iter().next();
        let (_, taken) = taken.filter(|(offset, _)| *offset == id.offset)?;
        Some(holder(&inner, id, taken.consumer, now_ms))
    }
}

fn holder(inner: &DeliveryState, id: DeliveryId, consumer: Option<ConsumerKey>, now_ms: i64) -> Holder {
    let lease = inner.leases.as_ref().and_then(|leases| leases.end_of(id));
    match (consumer, lease) {
        (Some(consumer), _) => Holder::Consumer(consumer),
        (None, Some(ends_ms)) => Holder::Lease {
            ends_in_ms: u64::try_from(ends_ms.saturating_sub(now_ms)).unwrap_or(0),
        },
        (None, None) => Holder::Request,
    }
}

impl WeakConsumer {
    /// Returns true if this is the consumer of a dispatcher with this key.
    pub fn is(&self, dispatcher: &Arc<Dispatcher>, key: ConsumerKey) -> bool {
        self.key == key && self.dispatcher.as_ptr() == Arc::as_ptr(dispatcher)
    }
}
