//! Messages that somebody takes without being a consumer, and what becomes of them if he goes away in the
//! middle.

use std::sync::Arc;

use stafett_queue::DeliveryId;
use tokio::sync::oneshot;

use super::outbox::Delivery;
use super::queue::Queue;

/// Somebody waits for one message.
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
        // What was given to him and he never saw goes back. It may have been settled with that: then it is
        // gone.
        if let Ok(Some((delivery, _))) = self.receiver.try_recv() {
            self.queue.untake(&[delivery.id]);
        }
    }
}

/// Messages that are taken to be moved. What of them is not, goes back to its place when this is dropped.
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

    /// Gives back all but the first so many.
    pub(crate) fn keep(&mut self, count: usize) {
        let rest = self.deliveries.split_off(count.min(self.deliveries.len()));
        give_back(&self.queue, &rest);
    }

    /// They are gone; how many those were.
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
    /// Takes up to `count` messages from the front, and no more than `bytes_max` of them; the last may go
    /// beyond.
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

    /// Puts messages in flight back to their places, as if nobody had taken them.
    pub(super) fn untake(self: &Arc<Self>, ids: &[DeliveryId]) {
        let Some(hub) = self.hub.upgrade() else { return };
        {
            let mut inner = self.lock();
            for id in ids.iter().rev() {
                inner.state.untake(*id);
            }
            hub.mark_dirty(self, &mut inner);
        }
        hub.wake(self);
    }
}
