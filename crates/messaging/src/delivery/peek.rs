//! Reads of waiting messages without any effect on them.

use std::ops::ControlFlow;
use std::sync::Arc;

use stafett_model::{Offset, StoredMessage};
use stafett_queue::DeliveryId;

use super::dispatcher::Dispatcher;

/// Messages examined before other tasks get their turns.
const TURN_MESSAGES: usize = 256;

impl Dispatcher {
    /// Visits waiting messages, lane by lane, in hand-out order, until `visit` breaks or there are no more.
    /// Their state does not change.
    pub async fn peek(
        self: &Arc<Self>,
        mut visit: impl FnMut(DeliveryId, &StoredMessage) -> ControlFlow<()> + Send,
    ) {
        let Some(context) = self.context.upgrade() else {
            return;
        };
        let lanes: Vec<u32> = {
            let mut inner = self.lock();
            inner.look_at_logs(self, &context);
            inner.state.lanes().map(|(number, _)| number).collect()
        };
        let mut looked_at = 0_usize;
        for lane in lanes {
            let Some(mut tail) = self.messages_of(&context, lane) else {
                continue;
            };
            let mut from = 0;
            while !self.is_ended() {
                let next = self
                    .lock()
                    .state
                    .lane(lane)
                    .and_then(|lane| lane.ready_from(from));
                let Some(offset) = next else { break };
                from = offset + 1;
                let id = DeliveryId { lane, offset };
                let Ok(message) = tail.message_at(&*context.journal, Offset(offset)).await else {
                    break;
                };
                if message.is_some_and(|message| visit(id, &message).is_break()) {
                    return;
                }
                looked_at += 1;
                if looked_at.is_multiple_of(TURN_MESSAGES) {
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}
