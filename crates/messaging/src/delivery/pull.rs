//! Messages pulled by a caller that is not a consumer. Dropping the batch returns them to their places.

use std::sync::Arc;

use stafett_queue::DeliveryId;
use tokio::sync::oneshot;

use super::dispatcher::Dispatcher;
use super::grown_lanes::GrownLanes;
use super::outbox::Delivery;

/// Request for one message, if there is one now. The answer has the number of further ones.
#[derive(Debug)]
pub(super) struct GetRequest {
    pub(super) settles: bool,
    /// True if consumers had a whole turn before it.
    pub(super) has_waited: bool,
    pub(super) sender: oneshot::Sender<Option<(Delivery, u64)>>,
}

/// Request for one message, in progress.
#[derive(Debug)]
struct PendingGet<'a> {
    dispatcher: &'a Arc<Dispatcher>,
    receiver: oneshot::Receiver<Option<(Delivery, u64)>>,
}

impl Drop for PendingGet<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        // A message that was handed out but not received returns. If it was settled by the hand-out, it is
        // lost.
        if let Ok(Some((delivery, _))) = self.receiver.try_recv() {
            self.dispatcher.return_unseen(&[delivery.id]);
        }
    }
}

/// Messages taken to be moved. Those that did not move return to their places when this is dropped.
#[derive(Debug)]
pub(crate) struct PulledBatch {
    dispatcher: Arc<Dispatcher>,
    deliveries: Vec<Delivery>,
}

impl PulledBatch {
    pub(crate) fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    pub(crate) fn ids(&self) -> Vec<DeliveryId> {
        self.deliveries.iter().map(|delivery| delivery.id).collect()
    }

    /// Returns all but the first `count` messages to their places.
    pub(crate) fn keep(&mut self, count: usize) {
        let rest = self.deliveries.split_off(count.min(self.deliveries.len()));
        give_back(&self.dispatcher, &rest);
    }

    /// Records that all messages have moved. Returns their number.
    pub(crate) fn moved(mut self) -> usize {
        std::mem::take(&mut self.deliveries).len()
    }
}

impl Drop for PulledBatch {
    fn drop(&mut self) {
        give_back(&self.dispatcher, &self.deliveries);
    }
}

fn give_back(dispatcher: &Arc<Dispatcher>, deliveries: &[Delivery]) {
    if !deliveries.is_empty() {
        let ids: Vec<DeliveryId> = deliveries.iter().map(|delivery| delivery.id).collect();
        dispatcher.return_unseen(&ids);
    }
}

impl Dispatcher {
    /// Takes one message, if one is waiting; returns it with the number of further ones. Without `settles`,
    /// this settles it.
    pub async fn take_one(self: &Arc<Self>, settles: bool) -> Option<(Delivery, u64)> {
        let (sender, receiver) = oneshot::channel();
        {
            let context = self.context.upgrade()?;
            let mut inner = self.lock();
            if self.is_ended() {
                return None;
            }
            inner.used_ms = context.clock.now_ms();
            inner.getters.push_back(GetRequest {
                settles,
                has_waited: false,
                sender,
            });
            // Stored messages are available at once, even if their growth was not reported yet.
            inner.grown = GrownLanes::All;
        }
        self.dispatch();
        let mut pending = PendingGet {
            dispatcher: self,
            receiver,
        };
        (&mut pending.receiver).await.ok().flatten()
    }

    /// Takes up to `count` messages from the front, until they have `bytes_max` bytes; the last one may
    /// exceed them.
    pub(crate) async fn pull(self: &Arc<Self>, count: usize, bytes_max: usize) -> PulledBatch {
        let mut pulled = PulledBatch {
            dispatcher: Arc::clone(self),
            deliveries: Vec::new(),
        };
        let mut bytes = 0;
        while pulled.deliveries.len() < count
            && bytes < bytes_max
            && let Some((delivery, _)) = self.take_one(true).await
        {
            bytes += delivery.message.bytes();
            pulled.deliveries.push(delivery);
        }
        pulled
    }

    /// Returns messages in flight to their places, as if they had never been taken.
    fn return_unseen(self: &Arc<Self>, ids: &[DeliveryId]) {
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
