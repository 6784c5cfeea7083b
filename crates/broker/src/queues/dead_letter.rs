//! Dead letters: a message that leaves its queue for another one, in one append that stores the copy and settles the
//! source.

use std::sync::Arc;

use smallvec::SmallVec;
use stafett_journal::{Append, Change, Frame, ReadFrom, ReadRequest, StateWait};
use stafett_model::{DeathReason, Offset, StoredMessage};
use stafett_queue::{Changes, DeadLetter, DeliveryId, deaths};

use super::cursor::{Cursor, Look};
use super::publication::Publication;
use super::pump::{Doomed, state_frame};
use super::queue::Queue;
use super::registry::Queues;

/// Bytes of one read of messages in flight that are to be dead letters.
const READ_BYTES: usize = 64 << 10;

impl Queue {
    /// Moves messages that nobody had.
    pub(super) fn bury_doomed(self: &Arc<Self>, hub: &Arc<Queues>, doomed: Doomed) {
        let Doomed { messages, changes } = doomed;
        let publication = hub.dead_letters(self, messages);
        self.store_buried(hub, publication, &changes);
    }

    /// Moves messages in flight: they are read again, moved and settled.
    pub(super) fn bury(self: &Arc<Self>, dead: Vec<(DeliveryId, DeathReason)>) {
        let Some(hub) = self.hub.upgrade() else { return };
        let queue = Arc::clone(self);
        hub.clone().tasks.spawn(async move {
            let mut dead = dead;
            dead.sort_unstable_by_key(|(id, _)| *id);
            let mut cursor = Cursor::new(Arc::clone(&hub.kept));
            let mut lane = None;
            let mut messages = Vec::new();
            let mut ids = Vec::new();
            for (id, reason) in dead {
                if lane != Some(id.priority) {
                    cursor.clear();
                    lane = Some(id.priority);
                }
                if let Some(message) = queue.find(&hub, &mut cursor, id).await {
                    messages.push((message, reason));
                }
                ids.push(id);
            }
            let mut changes = Changes::default();
            {
                let mut inner = queue.lock();
                // Whoever settled one of them meanwhile was faster: it does not move.
                let mut moved = ids
                    .iter()
                    .map(|id| inner.state.complete(*id, &mut changes))
                    .collect::<Vec<_>>()
                    .into_iter();
                if messages.len() == ids.len() {
                    messages.retain(|_| moved.next().unwrap_or(false));
                }
                inner.dying += 1;
            }
            for (_, reason) in &messages {
                hub.metrics.on_death(*reason);
            }
            let publication = hub.dead_letters(&queue, messages);
            queue.store_buried(&hub, publication, &changes);
            queue.pump();
        });
    }

    /// Reads one message, whatever its state.
    async fn find(&self, hub: &Queues, cursor: &mut Cursor, id: DeliveryId) -> Option<StoredMessage> {
        for _ in 0..2 {
            match cursor.look(id.offset) {
                Look::Message(message, _) => return Some(message),
                Look::Hole(_) => return None,
                Look::Unread => {}
            }
            let log = self.lock().log(id.priority)?;
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

    fn store_buried(self: &Arc<Self>, hub: &Arc<Queues>, publication: Publication, changes: &Changes) {
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

impl Queues {
    /// What is published of messages that left a queue as dead letters.
    pub(super) fn dead_letters(
        self: &Arc<Self>,
        queue: &Queue,
        messages: Vec<(StoredMessage, DeathReason)>,
    ) -> Publication {
        let mut publication = Publication::default();
        publication.atomic = true;
        let (Some(to), Some(router)) = (&queue.settings.dead_letter, self.router.get()) else {
            return publication;
        };
        let now_ms = self.clock.now_ms();
        for (stored, reason) in messages {
            let mut message = stored.to_message();
            deaths::note(&mut message, &queue.name, reason, now_ms);
            address(&mut message, to);
            let mut targets = router.targets(
                &queue.namespace,
                &message.exchange,
                &message.routing_key,
                &message,
            );
            targets
                .queues
                .retain(|queue| !deaths::is_circle(&message, &queue.name));
            if !targets.is_empty() {
                let route = publication.route(targets);
                publication.push(message, route);
                self.metrics.dead_lettered.inc();
            }
        }
        publication
    }
}

/// Addresses a message to where dead letters go.
pub(super) fn address(message: &mut stafett_model::Message, to: &DeadLetter) {
    message.exchange = to.exchange.clone();
    if let Some(key) = &to.routing_key {
        message.routing_key = key.clone();
    }
}
