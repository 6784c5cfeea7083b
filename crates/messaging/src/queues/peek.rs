//! Reads of waiting messages without any effect on them.

use std::ops::ControlFlow;
use std::sync::Arc;

use stafett_model::StoredMessage;
use stafett_queue::DeliveryId;
use stafett_topics::Cursor;

use super::moving::Found;
use super::queue::Queue;

/// Messages examined before other tasks get their turns.
const TURN_MESSAGES: usize = 256;

impl Queue {
    /// Visits waiting messages, lane by lane, in hand-out order, until `visit` breaks or there are no more.
    /// Their state does not change.
    pub async fn peek(
        self: &Arc<Self>,
        mut visit: impl FnMut(DeliveryId, &StoredMessage) -> ControlFlow<()> + Send,
    ) {
        let Some(hub) = self.hub.upgrade() else { return };
        let lanes: Vec<u32> = {
            let mut inner = self.lock();
            inner.look_at_logs(&hub);
            inner.state.lanes().map(|(number, _)| number).collect()
        };
        let mut looked_at = 0_usize;
        for lane in lanes {
            let mut cursor = Cursor::new(Arc::clone(&hub.kept));
            let mut from = 0;
            while !self.is_deleted() {
                let next = self
                    .lock()
                    .state
                    .lane(lane)
                    .and_then(|lane| lane.ready_from(from));
                let Some(offset) = next else { break };
                from = offset + 1;
                let id = DeliveryId { lane, offset };
                match self.find(&hub, &mut cursor, id).await {
                    Found::Message(message) => {
                        if visit(id, &message).is_break() {
                            return;
                        }
                    }
                    Found::Gone => {}
                    Found::NotNow => break,
                }
                looked_at += 1;
                if looked_at.is_multiple_of(TURN_MESSAGES) {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}
