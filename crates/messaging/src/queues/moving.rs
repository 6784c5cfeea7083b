//! Moves of messages in flight: they are read again, and settled here by the append that stores them
//! elsewhere.
//!
//! They stay in flight until the journal has answered. If it refuses, they are unchanged; so no message is
//! settled without being stored.

use std::sync::Arc;

use stafett_model::Offset;
use stafett_queue::{Changes, DeliveryId};
use stafett_store::NotStored;
use stafett_topics::Tail;

use super::context::DeliveryContext;
use super::publication::{Appended, NotTogether, Publication};
use super::queue::Queue;
use super::registry::Queues;

/// Bytes of one read of messages in flight.
const READ_BYTES: usize = 64 << 10;

impl Queue {
    /// Publishes messages made of those in flight, and settles these, in one append. Ids that are no longer
    /// in flight are ignored.
    pub(crate) async fn store_moved(
        self: &Arc<Self>,
        queues: &Arc<Queues>,
        publication: Publication,
        ids: &[DeliveryId],
    ) -> Result<Vec<Appended>, NotTogether> {
        let mut changes = Changes::default();
        {
            let mut inner = self.lock();
            let in_flight = ids.iter().filter(|id| inner.state.taken(**id).is_some());
            in_flight.for_each(|id| changes.settled(id.lane, id.offset, 1));
            inner.persistence.open_moves += 1;
        }
        let stored = queues.append_from(self, publication, &changes).together().await;
        let mut inner = self.lock();
        if stored == Err(NotTogether::NotStored(NotStored::Unknown)) {
            // The journal has stopped, so the state is unknown: `open_moves` stays raised, and no snapshot is
            // stored.
            return stored;
        }
        let persistence = &mut inner.persistence;
        persistence.open_moves = persistence.open_moves.saturating_sub(1);
        if stored.is_ok() {
            if self.outlives() {
                persistence.sizes.on_delta(changes.encode().len());
            }
            // These changes are stored already.
            let mut known = Changes::default();
            for id in ids {
                inner.state.complete(*id, &mut known);
            }
        }
        if !self.is_deleted() {
            inner.store_whole_if_due(&queues.context, self);
            queues.context.mark_dirty(self, &mut inner);
        }
        stored
    }

    /// Returns a reader of single messages of a lane, in any state. `None` if the lane has no log.
    pub(super) fn messages_of(&self, context: &DeliveryContext, lane: u32) -> Option<Tail> {
        let log = self.lock().log(lane)?;
        Some(Tail::new(
            log,
            Offset::ZERO,
            READ_BYTES,
            Arc::clone(&context.read_ahead),
        ))
    }
}
