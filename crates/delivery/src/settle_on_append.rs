//! Messages in flight that are stored elsewhere: the append that stores them settles them here.
//!
//! They stay in flight until the journal has answered. If it refuses, they are unchanged; so no message is
//! settled without being stored.

use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::{Change, Frame};
use stafett_model::Offset;
use stafett_queue::{Changes, DeliveryId};
use stafett_store::NotStored;
use stafett_topics::Tail;

use super::context::DeliveryContext;
use super::dispatcher::Dispatcher;

/// Bytes of one read of messages in flight.
const READ_BYTES: usize = 64 << 10;

/// Messages in flight that an append settles.
#[derive(Debug)]
pub struct OpenMove {
    dispatcher: Arc<Dispatcher>,
    ids: Vec<DeliveryId>,
    delta: Bytes,
}

impl OpenMove {
    /// Begins to move messages. Ids that are no longer in flight are ignored.
    pub fn begin(dispatcher: &Arc<Dispatcher>, ids: Vec<DeliveryId>) -> Self {
        let mut changes = Changes::default();
        let mut inner = dispatcher.lock();
        let in_flight = ids.iter().filter(|id| inner.state.taken(**id).is_some());
        in_flight.for_each(|id| changes.settled(id.lane, id.offset, 1));
        inner.persistence.open_moves += 1;
        let is_empty = !dispatcher.is_stored || changes.is_empty();
        let delta = if is_empty {
            Bytes::new()
        } else {
            changes.encode().into()
        };
        drop(inner);
        Self {
            dispatcher: Arc::clone(dispatcher),
            ids,
            delta,
        }
    }

    /// Returns the frame that settles the messages; `None` if there is nothing to store, or the queue is
    /// deleted.
    pub fn settlement(&self, context: &DeliveryContext) -> Option<Frame> {
        let delta = || Change::Delta(self.delta.clone());
        let is_needed = !self.delta.is_empty() && !self.dispatcher.is_ended();
        is_needed.then(|| context.state_frame(&self.dispatcher, delta()))
    }

    /// Counts its messages as completed.
    pub fn count_completed(&self, context: &DeliveryContext) {
        self.dispatcher.count_completed(context, self.ids.len() as u64);
    }

    /// Ends the move, as the outcome of the append is known.
    pub fn end(self, context: &DeliveryContext, stored: Result<(), NotStored>) {
        let mut inner = self.dispatcher.lock();
        if stored == Err(NotStored::Unknown) {
            // The journal has stopped, so the state is unknown: `open_moves` stays raised, and no snapshot is
            // stored.
            return;
        }
        let persistence = &mut inner.persistence;
        persistence.open_moves = persistence.open_moves.saturating_sub(1);
        if stored.is_ok() {
            persistence.sizes.on_delta(self.delta.len());
            // These changes are stored already.
            let mut known = Changes::default();
            for id in &self.ids {
                inner.state.complete(*id, &mut known);
            }
        }
        if !self.dispatcher.is_ended() {
            inner.store_whole_if_due(context, &self.dispatcher);
            context.mark_dirty(&self.dispatcher, &mut inner);
            self.dispatcher.touch(context);
        }
    }
}

impl Dispatcher {
    /// Returns a reader of single messages of a lane, in any state. `None` if the lane has no log.
    pub(super) fn messages_of(&self, context: &DeliveryContext, lane: u32) -> Option<Tail> {
        let log = self.lock().log(lane)?;
        let budget = Arc::clone(&context.read_ahead);
        Some(Tail::new(log, Offset::ZERO, READ_BYTES, budget))
    }
}
