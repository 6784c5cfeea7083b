//! Looking into a queue without any effect on it, choosing messages, and moving them elsewhere.

use std::sync::Arc;

use stafett_model::StoredMessage;
use stafett_queue::DeliveryId;

use super::cursor::Cursor;
use super::publication::{Publication, Targets};
use super::queue::Queue;

/// Messages that move together.
const MOVED_MAX: usize = 256;

impl Queue {
    /// The first `count` messages that wait and are `wanted`, lane by lane, in the order in which each hands out. At most
    /// `looked_at` are read for that. Nothing happens to any of them.
    pub async fn peek(
        self: &Arc<Self>,
        count: usize,
        looked_at: usize,
        wanted: impl Fn(&StoredMessage) -> bool,
    ) -> Vec<(DeliveryId, StoredMessage)> {
        let mut found = Vec::new();
        let Some(hub) = self.hub.upgrade() else {
            return found;
        };
        let lanes: Vec<u32> = {
            let mut inner = self.lock();
            inner.look_at_logs(&hub);
            inner.state.lanes().map(|(number, _)| number).collect()
        };
        let mut left = looked_at;
        for lane in lanes {
            let mut cursor = Cursor::new(Arc::clone(&hub.kept));
            let mut from = 0;
            while left > 0 && found.len() < count && !self.is_deleted() {
                let next = self
                    .lock()
                    .state
                    .lane(lane)
                    .and_then(|lane| lane.ready_from(from));
                let Some(offset) = next else { break };
                left -= 1;
                from = offset + 1;
                let id = DeliveryId { lane, offset };
                if let Some(message) = self.find(&hub, &mut cursor, id).await
                    && wanted(&message)
                {
                    found.push((id, message));
                }
            }
        }
        found
    }

    /// Moves up to `count` messages from the front to other queues or topics; how many moved. Each moves by one append that
    /// stores it there and settles it here.
    pub async fn move_ready(self: &Arc<Self>, targets: &Targets, count: usize) -> usize {
        let Some(hub) = self.hub.upgrade() else { return 0 };
        let mut moved = 0;
        while moved < count {
            let mut ids = Vec::new();
            while ids.len() < MOVED_MAX.min(count - moved)
                && let Some((delivery, _)) = self.take_one(true).await
            {
                ids.push(delivery.id);
            }
            if ids.is_empty() {
                break;
            }
            moved += ids.len();
            let publish = |messages: Vec<(usize, StoredMessage)>| {
                let mut publication = Publication::atomic();
                let route = publication.route(targets.clone());
                for (_, message) in messages {
                    publication.push(message.to_message(), route);
                }
                publication
            };
            self.move_taken(&hub, &ids, publish).await;
        }
        moved
    }
}
