//! Messages pulled by a caller that is not a consumer. Dropping the batch returns them to their places.

use std::sync::Arc;

use stafett_queue::DeliveryId;
use tokio::sync::oneshot;

use super::outbox::Delivery;
use super::queue::Queue;

/// Request for one message, in progress.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    pub(super) queue: &'a Arc<Queue>,
    pub(super) receiver: oneshot::Receiver<Option<(Delivery, u64)>>,
}

impl Asking<'_> {
    pub(super) async fn answer(mut self) -> Option<(Delivery, u64)> {
        (&mut self.receiver).await.ok().flatten()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        // A message that was handed out but not received returns. If it was settled by the hand-out, it is
        // lost.
        if let Ok(Some((delivery, _))) = self.receiver.try_recv() {
            self.queue.untake(&[delivery.id]);
        }
    }
}

/// Messages taken to be moved. Those that did not move return to their places when this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    queue: Arc<Queue>,
    deliveries: Vec<Delivery>,
}

impl Taken {
    pub(crate) fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    pub(crate) fn ids(&self) -> Vec<DeliveryId> {
        self.deliveries.iter().map(|delivery| delivery.id).collect()
    }

    /// Returns all but the first `count` messages.
    pub(crate) fn keep(&mut self, count: usize) {
        let rest = self.deliveries.split_off(count.min(self.deliveries.len()));
        give_back(&self.queue, &rest);
    }

    /// Records that all messages have moved. Returns their number.
    pub(crate) fn moved(mut self) -> usize {
        std::mem::take(&mut self.deliveries).len()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back(&self.queue, &self.deliveries);
    }
}

fn give_back(queue: &Arc<Queue>, deliveries: &[Delivery]) {
    if !deliveries.is_empty() {
        let ids: Vec<DeliveryId> = deliveries.iter().map(|delivery| delivery.id).collect();
        queue.untake(&ids);
    }
}

impl Queue {
    /// Takes up to `count` messages from the front, until they have `bytes_max` bytes; the last one may
    /// exceed them.
    pub(crate) async fn take_some(self: &Arc<Self>, count: usize, bytes_max: usize) -> Taken {
        let mut taken = Taken {
            queue: Arc::clone(self),
            deliveries: Vec::new(),
        };
        let mut bytes = 0;
        while taken.deliveries.len() < count
            && bytes < bytes_max
            && let Some((delivery, _)) = self.take_one(true).await
        {
            bytes += delivery.message.bytes();
            taken.deliveries.push(delivery);
        }
        taken
    }

    /// Returns messages in flight to their places, as if they had never been taken.
    pub(super) fn untake(self: &Arc<Self>, ids: &[DeliveryId]) {
        let Some(context) = self.context.upgrade() else {
            return;
        };
        {
            let mut inner = self.lock();
            for id in ids.iter().rev() {
                inner.state.return_unseen(*id);
            }
            context.mark_dirty(self, &mut inner);
        }
        context.wake(self);
    }
}
