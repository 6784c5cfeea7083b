//! Messages that somebody has and that go elsewhere: read again, published and settled in one append.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::{Append, Change, Frame, ReadFrom, ReadRequest, StateWait};
use stafett_model::{Offset, StoredMessage};
use stafett_queue::{Changes, DeliveryId};

use super::cursor::{Cursor, Look};
use super::publication::Publication;
use super::pump::state_frame;
use super::queue::Queue;
use super::registry::Queues;

/// Bytes of one read of messages in flight.
const READ_BYTES: usize = 64 << 10;

impl Queue {
    /// Moves messages in flight to where `publish` publishes them; it is given the index of each among `ids`. What can no
    /// longer be read, or was settled meanwhile, does not move.
    pub(super) async fn move_taken(
        self: &Arc<Self>,
        hub: &Arc<Queues>,
        ids: &[DeliveryId],
        publish: impl FnOnce(Vec<(usize, StoredMessage)>) -> Publication,
    ) {
        let mut found = Vec::with_capacity(ids.len());
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_unstable_by_key(|index| ids.get(*index));
        let mut cursor = Cursor::new(Arc::clone(&hub.kept));
        let mut lane = None;
        for index in order {
            let Some(id) = ids.get(index).copied() else {
                continue;
            };
            if lane.replace(id.lane) != Some(id.lane) {
                cursor.clear();
            }
            found.push((index, id, self.find(hub, &mut cursor, id).await));
        }
        let mut changes = Changes::default();
        let mut moved = Vec::with_capacity(found.len());
        {
            let mut inner = self.lock();
            for (index, id, message) in found {
                if inner.state.complete(id, &mut changes)
                    && let Some(message) = message
                {
                    moved.push((index, message));
                }
            }
            inner.dying += 1;
        }
        moved.sort_unstable_by_key(|(index, _)| *index);
        let publication = publish(moved);
        self.store_moved(hub, publication, &changes);
    }

    /// Reads one message, whatever its state.
    pub(super) async fn find(
        &self,
        hub: &Queues,
        cursor: &mut Cursor,
        id: DeliveryId,
    ) -> Option<StoredMessage> {
        for _ in 0..2 {
            match cursor.look(id.offset) {
                Look::Message(message, _) => return Some(message),
                Look::Hole(_) => return None,
                Look::Unread => {}
            }
            let log = self.lock().log(id.lane)?;
            let request = ReadRequest {
                logs: vec![ReadFrom {
                    log,
                    offset: Offset(id.offset),
                    bytes_max: READ_BYTES,
                }],
                bytes_max: READ_BYTES,
                first_batch_whole: true,
            };
            let mut result = hub.journal.read(request).finish().await.ok()?;
            cursor.fill(id.offset, result.pop()?.ok()?);
        }
        None
    }

    /// Publishes messages and settles their source, in one append.
    pub(super) fn store_moved(
        self: &Arc<Self>,
        hub: &Arc<Queues>,
        publication: Publication,
        changes: &Changes,
    ) {
        let mut frames: SmallVec<[Frame; 1]> = SmallVec::new();
        let mut stored_bytes = 0;
        if self.outlives() && !changes.is_empty() {
            let delta = changes.encode();
            stored_bytes = delta.len();
            frames.push(state_frame(self, Change::Delta(delta.into())));
        }
        if publication.is_empty() {
            if !frames.is_empty() {
                drop(
                    hub.journal
                        .append(vec![Append::state(frames, StateWait::Written)]),
                );
            }
        } else {
            drop(hub.append_with(publication, frames));
        }
        let mut inner = self.lock();
        inner.dying = inner.dying.saturating_sub(1);
        inner.changed_bytes += stored_bytes;
        hub.mark_dirty(self, &mut inner);
    }
}
