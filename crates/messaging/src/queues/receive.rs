//! Receiving without a consumer: the next messages of a queue, or the next ones that a caller wants, settled
//! with the answer or under a lease.

use std::sync::Arc;
use std::time::Duration;

use stafett_journal::Refusal;
use stafett_model::StoredMessage;
use stafett_queue::DeliveryId;
use stafett_store::NotStored;
use tokio::time::Instant;

use super::queue::Queue;
use super::registry::Queues;
use stafett_delivery::{
    Chosen, Delivery, GetWait, LeaseId, PulledBatch, Search, SearchBounds, SearchHint, SearchOrder,
    SearchPlace, Settle, complete_stored,
};

/// Choice of messages by their content.
pub type Wanted<'a> = &'a (dyn Fn(&StoredMessage) -> bool + Send + Sync);

/// Properties that all wanted messages have: others are passed over without being read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Narrow<'a> {
    /// Lowest and highest priority.
    pub priorities: Option<(u8, u8)>,
    /// Name and value of a header.
    pub header: Option<(&'a str, &'a [u8])>,
}

/// Parameters of a receive request.
#[derive(Clone)]
pub struct Receive<'a> {
    /// Number of messages, at most.
    pub count: usize,
    /// Bytes at which the answer ends; the last message may exceed them.
    pub bytes_max: usize,
    pub order: SearchOrder,
    /// `None` for all messages.
    pub wanted: Option<Wanted<'a>>,
    /// Properties that all wanted messages have.
    pub narrow: Narrow<'a>,
    /// Bounds of the search for wanted messages.
    pub bounds: SearchBounds,
    /// Place of the search, from an earlier answer.
    pub after: SearchPlace,
    /// Longest wait for a message.
    pub wait: Duration,
    pub ack: Acknowledge,
}

/// Settlement of received messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledge {
    /// Done with the answer, and stored soon: after a crash, a message may come again, as redelivered.
    Soon,
    /// Done with the answer, and as durable as the queue by then.
    Stored,
    /// In flight for a time, in ms; then it returns.
    Lease { ms: u64 },
}

/// Answer to a receive request.
#[derive(Debug, Default)]
pub struct Received {
    pub messages: Vec<(Delivery, Option<LeaseId>)>,
    /// Number of messages that were examined, if messages were searched.
    pub looked_at: u64,
    /// Place at which a bound ended the search; nothing is known of the messages behind it.
    pub next: Option<SearchPlace>,
}

/// Refusal of a receive request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    #[error("the queue belongs to a connection")]
    Locked,
    #[error("the queue has a consumer that gets all of its messages")]
    InUse,
    #[error("as many messages of the queue are in flight as may be")]
    TooManyInFlight,
    #[error("a message of the queue cannot be read now")]
    Unreadable,
    #[error("the queue is gone")]
    Gone,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// Settlements of leased messages.
#[derive(Debug, Clone, Default)]
pub struct SettleLeases {
    pub leases: Vec<(LeaseId, Settle)>,
    /// True if all settlements are stored by the time of the answer, as durable as the queue: also the counts
    /// of messages that return, and dead letters.
    pub stored: bool,
}

impl Queue {
    /// Receives messages. If the caller stops waiting, they return to their places, unless they are being
    /// settled.
    pub async fn receive(self: &Arc<Self>, request: Receive<'_>) -> Result<Received, ReceiveError> {
        let queues = self.check_receivable()?;
        let deadline = Instant::now() + request.wait;
        let _waiting = (!request.wait.is_zero()).then(|| self.wait());
        let mut received = Received::default();
        let batch = if request.wanted.is_none() && request.order == SearchOrder::Priority {
            let batch = self.pull(request.count, request.bytes_max, GetWait::No).await;
            if batch.deliveries().is_empty() && !request.wait.is_zero() {
                let waiting = self.pull(request.count, request.bytes_max, GetWait::ForOne);
                let pulled = tokio::time::timeout_at(deadline, waiting).await;
                match pulled {
                    Ok(pulled) if pulled.deliveries().is_empty() && self.is_deleted() => {
                        return Err(ReceiveError::Gone);
                    }
                    Ok(pulled) => pulled,
                    Err(_) => PulledBatch::new(self),
                }
            } else {
                batch
            }
        } else {
            // The state of a search is large, and a request that waits for any message has none.
            Box::pin(self.choose_until(&request, deadline, &mut received)).await?
        };
        if !batch.deliveries().is_empty() {
            // Apart, as requests that wait keep the memory of this future.
            let acknowledged = self.acknowledge(&queues, batch, request.ack, &mut received);
            Box::pin(acknowledged).await?;
        }
        Ok(received)
    }

    /// Begins a search, behind `after`. `None` if the queue is gone.
    pub async fn begin_search(
        self: &Arc<Self>,
        order: SearchOrder,
        bounds: SearchBounds,
        after: &SearchPlace,
        narrow: Narrow<'_>,
    ) -> Option<Search> {
        let mut search = self.search(order, bounds, after)?;
        let lane = |priority| u32::from(self.declared.lane(priority));
        // Lanes of a queue over a topic are partitions.
        let priorities = narrow.priorities.filter(|_| self.over.is_none());
        let hint = SearchHint {
            lanes: priorities.map(|(lowest, highest)| (lane(lowest), lane(highest))),
            header: narrow.header,
        };
        search.narrow(hint).await;
        Some(search)
    }

    /// Searches until there are wanted messages, or until the deadline.
    async fn choose_until(
        self: &Arc<Self>,
        request: &Receive<'_>,
        deadline: Instant,
        received: &mut Received,
    ) -> Result<PulledBatch, ReceiveError> {
        let all = |_: &StoredMessage| true;
        let wanted: Wanted<'_> = request.wanted.unwrap_or(&all);
        let signal = self.searches();
        let mut after = request.after.clone();
        let mut batch = PulledBatch::new(self);
        loop {
            let changed = signal.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_paused() {
                if tokio::time::timeout_at(deadline, changed).await.is_err() {
                    return Ok(batch);
                }
                continue;
            }
            let put_back = self.put_back_count();
            let search = self.begin_search(request.order, request.bounds, &after, request.narrow);
            let mut search = search.await.ok_or(ReceiveError::Gone)?;
            let bounds = (request.count, request.bytes_max);
            let has_room = self.choose(&mut search, bounds, wanted, &mut batch).await;
            received.looked_at += search.looked_at();
            if search.is_unreadable() && batch.deliveries().is_empty() {
                return Err(ReceiveError::Unreadable);
            }
            if !has_room && batch.deliveries().is_empty() {
                return Err(ReceiveError::TooManyInFlight);
            }
            if search.is_at_bound() {
                received.next = Some(search.place());
            }
            if !batch.deliveries().is_empty() || search.is_at_bound() {
                return Ok(batch);
            }
            // Messages behind this place are new, unless some return to their places.
            after = search.place();
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return Ok(batch);
            }
            if self.put_back_count() != put_back {
                after.clone_from(&request.after);
            }
        }
    }

    async fn acknowledge(
        self: &Arc<Self>,
        queues: &Arc<Queues>,
        mut batch: PulledBatch,
        ack: Acknowledge,
        received: &mut Received,
    ) -> Result<(), ReceiveError> {
        let context = Arc::clone(&queues.context);
        let deliveries = match ack {
            Acknowledge::Lease { ms } => {
                batch.mark_delivered(&context).await?;
                let leased = batch.lease(&context, ms).into_iter();
                received.messages = leased.map(|(delivery, id)| (delivery, Some(id))).collect();
                return Ok(());
            }
            // No hand-out mark tells that a chosen message was delivered.
            Acknowledge::Soon if !batch.has_chosen() => {
                let (dispatcher, deliveries) = batch.into_parts();
                let done = deliveries.iter().map(|delivery| (delivery.id, Settle::Complete));
                let done: Vec<_> = done.collect();
                dispatcher.settle(&done);
                deliveries
            }
            Acknowledge::Soon | Acknowledge::Stored => {
                let wait = queues.log_level(self).into();
                let storing = async move { batch.complete_stored(&context, wait).await };
                let stored = queues.spawn(storing).await;
                stored.unwrap_or(Err(NotStored::Unknown))?
            }
        };
        received.messages = deliveries.into_iter().map(|delivery| (delivery, None)).collect();
        Ok(())
    }

    /// Settles leased messages. Returns false for each lease that has ended already.
    pub async fn settle_leases(self: &Arc<Self>, request: SettleLeases) -> Result<Vec<bool>, NotStored> {
        let stopped = NotStored::Refused(Refusal::Closed);
        let queues = self.queues.upgrade().ok_or(stopped)?;
        let ids: Vec<LeaseId> = request.leases.iter().map(|(id, _)| *id).collect();
        let known = self.take_leases(&ids);
        let held = request.leases.into_iter().zip(&known);
        let held = held.filter(|(_, known)| **known);
        let held: Vec<_> = held.map(|((id, what), _)| (id.message, what)).collect();
        if request.stored && !held.is_empty() {
            // The leases have ended: if the caller leaves, the messages are settled all the same.
            let (queue, of_queue) = (Arc::clone(self), Arc::clone(&queues));
            let settling = async move { queue.settle_stored(&of_queue, held).await };
            let settled = queues.spawn(settling).await;
            settled.unwrap_or(Err(NotStored::Unknown))?;
        } else {
            self.settle(&held);
        }
        Ok(known)
    }

    /// Settles messages in flight, and waits until that is stored. If it cannot be, they all return
    /// to their places.
    async fn settle_stored(
        self: &Arc<Self>,
        queues: &Queues,
        held: Vec<(DeliveryId, Settle)>,
    ) -> Result<(), NotStored> {
        let (done, mut others): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|(_, what)| what.is_completion(self));
        if !done.is_empty() {
            let ids = done.iter().map(|(id, _)| *id).collect();
            let wait = queues.log_level(self).into();
            if let Err(why) = complete_stored(&queues.context, self, ids, wait).await {
                if matches!(why, NotStored::Refused(_)) {
                    others.extend(done);
                }
                for (_, what) in &mut others {
                    *what = Settle::Requeue;
                }
                self.settle(&others);
                return Err(why);
            }
        }
        if others.is_empty() {
            return Ok(());
        }
        self.settle(&others);
        self.store_settled(queues).await
    }

    /// Waits until all settlements are stored, and dead letters at their targets.
    async fn store_settled(&self, queues: &Queues) -> Result<(), NotStored> {
        self.dead_letters_stored().await;
        let waits_for_space = !self.is_dead_lettering() && self.counts().dying > 0;
        if waits_for_space || queues.context.flush().contains(&self.id.0) {
            return Err(NotStored::Refused(Refusal::DiskFull));
        }
        stafett_store::await_stored(&*queues.journal).await
    }

    /// Settles waiting messages. Returns their number, without those that do not wait.
    pub async fn discard(self: &Arc<Self>, ids: &[DeliveryId], what: Settle) -> Result<u64, ReceiveError> {
        let queues = self.check_receivable()?;
        let mut batch = PulledBatch::despite_pause(self);
        for id in ids {
            if let Some((message, _)) = self.find(*id).await
                && self.take_chosen(*id, message, &mut batch) == Chosen::TooMany
            {
                return Err(ReceiveError::TooManyInFlight);
            }
        }
        let count = batch.deliveries().len() as u64;
        if count == 0 {
            return Ok(0);
        }
        if what.is_completion(self) {
            let (context, wait) = (Arc::clone(&queues.context), queues.log_level(self).into());
            let storing = async move { batch.complete_stored(&context, wait).await };
            let stored = queues.spawn(storing).await;
            stored.unwrap_or(Err(NotStored::Unknown))?;
        } else {
            let (dispatcher, deliveries) = batch.into_parts();
            let all: Vec<_> = deliveries.iter().map(|one| (one.id, what)).collect();
            dispatcher.settle(&all);
        }
        Ok(count)
    }

    fn check_receivable(&self) -> Result<Arc<Queues>, ReceiveError> {
        if self.exclusive.is_some() {
            return Err(ReceiveError::Locked);
        }
        if self.has_sole_consumer() {
            return Err(ReceiveError::InUse);
        }
        if self.is_full_of_taken() {
            return Err(ReceiveError::TooManyInFlight);
        }
        self.queues
            .upgrade()
            .filter(|_| !self.is_deleted())
            .ok_or(ReceiveError::Gone)
    }
}

impl std::fmt::Debug for Receive<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receive")
            .field("count", &self.count)
            .field("order", &self.order)
            .field("ack", &self.ack)
            .finish_non_exhaustive()
    }
}
