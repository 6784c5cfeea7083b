//! Moves of messages in flight: they are read again, and settled here by the append that stores them
//! elsewhere.
//!
//! They stay in flight until the journal has answered. If it refuses, they are unchanged; so no message is
//! settled without being stored.

use std::sync::Arc;

use stafett_model::{Offset, StoredMessage};
use stafett_queue::{Changes, DeliveryId};
use stafett_store::NotStored;
use stafett_topics::{Cursor, LogRead, Look, ReadEnd, read_log};

use super::publication::{Appended, NotTogether, Publication};
use super::queue::Queue;
use super::registry::Queues;

/// Bytes of one read of messages in flight.
const READ_BYTES: usize = 64 << 10;

/// Result of reading a message.
#[derive(Debug)]
pub(super) enum Found {
    Message(StoredMessage),
    /// The message no longer exists.
    Gone,
    /// The message cannot be read now.
    NotNow,
}

impl Queue {
    /// Publishes messages made of those in flight, and settles these, in one append. Ids that are no longer
    /// in flight are ignored.
    pub(crate) async fn store_moved(
        self: &Arc<Self>,
        hub: &Arc<Queues>,
        publication: Publication,
        ids: &[DeliveryId],
    ) -> Result<Vec<Appended>, NotTogether> {
        let mut changes = Changes::default();
        {
            let mut inner = self.lock();
            let in_flight = ids.iter().filter(|id| inner.state.taken(**id).is_some());
            in_flight.for_each(|id| changes.settled(id.lane, id.offset, 1));
            inner.moving += 1;
        }
        let stored = hub.append_from(self, publication, &changes).together().await;
        let mut inner = self.lock();
        if stored == Err(NotTogether::NotStored(NotStored::Unknown)) {
            // The journal has stopped, so the state is unknown: `moving` stays raised, and no snapshot is
            // stored.
            return stored;
        }
        inner.moving = inner.moving.saturating_sub(1);
        if stored.is_ok() {
            if self.outlives() {
                inner.changed_bytes += changes.encode().len();
            }
            // These changes are stored already.
            let mut known = Changes::default();
            for id in ids {
                inner.state.complete(*id, &mut known);
            }
        }
        if !self.is_deleted() {
            inner.store_whole_if_due(hub, self);
            hub.mark_dirty(self, &mut inner);
        }
        stored
    }

    /// Reads one message, in any state.
    pub(super) async fn find(&self, hub: &Queues, cursor: &mut Cursor, id: DeliveryId) -> Found {
        for _ in 0..2 {
            match cursor.look(id.offset) {
                Look::Message(message, _) => return Found::Message(message),
                Look::Hole(_) => return Found::Gone,
                Look::Unread => {}
            }
            let Some(log) = self.lock().log(id.lane) else {
                return Found::Gone;
            };
            let reading = read_log(&*hub.journal, log, Offset(id.offset), READ_BYTES);
            match reading.finish().await {
                LogRead::Batches(run) => cursor.fill(id.offset, run),
                LogRead::Skip(_) | LogRead::End(ReadEnd::AtEnd) => return Found::Gone,
                LogRead::End(ReadEnd::NoSuchLog | ReadEnd::Failed(_) | ReadEnd::Stopped) => {
                    return Found::NotNow;
                }
            }
        }
        Found::Gone
    }
}
