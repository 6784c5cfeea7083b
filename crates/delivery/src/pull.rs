//! Messages pulled by a caller that is not a consumer. Dropping the batch returns them to their places.

use std::sync::Arc;

use stafett_journal::{Append, Refusal, StateWait};
use stafett_model::StoredMessage;
use stafett_queue::{Changes, DeliveryId, DeliveryInfo};
use stafett_store::{NotStored, StageOutcome, only_outcome};
use tokio::sync::{Notify, oneshot};

use super::context::DeliveryContext;
use super::dispatcher::{DeliveryState, Dispatcher};
use super::expire::value_bytes;
use super::grown_lanes::GrownLanes;
use super::hand_out::IN_FLIGHT_MAX;
use super::outbox::Delivery;
use super::search::Search;
use super::settle_on_append::OpenMove;

/// Request for one message. The answer has the number of further ones.
#[derive(Debug)]
pub(super) struct GetRequest {
    pub(super) settles: bool,
    pub(super) wait: GetWait,
    /// True if consumers had a whole turn before it.
    pub(super) has_waited: bool,
    pub(super) sender: oneshot::Sender<Option<(Delivery, u64)>>,
}

impl GetRequest {
    /// Returns true if it waits until there is a message.
    fn waits(&self) -> bool {
        self.wait == GetWait::ForOne
    }

    /// Returns true if the message moves to another dispatcher: a paused one gives it too.
    pub(super) fn moves(&self) -> bool {
        self.wait == GetWait::ToMove
    }
}

/// Wait of a request for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetWait {
    No,
    /// It waits until there is a message.
    ForOne,
    /// It does not wait: the message moves elsewhere, also from a paused dispatcher.
    ToMove,
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

/// Messages in flight that a caller has taken. Dropping the batch returns them to their places.
#[derive(Debug)]
pub struct PulledBatch {
    dispatcher: Arc<Dispatcher>,
    deliveries: Vec<Delivery>,
    /// Changes that tell of the deliveries of chosen messages.
    marks: Changes,
    /// True if it takes messages of a paused dispatcher too.
    despite_pause: bool,
}

impl PulledBatch {
    pub fn new(dispatcher: &Arc<Dispatcher>) -> Self {
        Self {
            dispatcher: Arc::clone(dispatcher),
            deliveries: Vec::new(),
            marks: Changes::default(),
            despite_pause: false,
        }
    }

    /// Creates a batch that takes messages of a paused dispatcher too.
    pub fn despite_pause(dispatcher: &Arc<Dispatcher>) -> Self {
        let mut batch = Self::new(dispatcher);
        batch.despite_pause = true;
        batch
    }

    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// Returns true if a message was taken out of its turn: no hand-out mark tells of its delivery.
    pub fn has_chosen(&self) -> bool {
        !self.marks.is_empty()
    }

    pub fn ids(&self) -> Vec<DeliveryId> {
        self.deliveries.iter().map(|delivery| delivery.id).collect()
    }

    /// Adds a message that was taken out of its turn. Returns the bytes of its delivery.
    pub(super) fn add(&mut self, id: DeliveryId, message: StoredMessage, handed: DeliveryInfo) -> usize {
        let delivery = Delivery {
            id,
            message,
            redelivered: handed.redelivered,
            delivery_count: handed.returns,
        };
        let bytes = delivery.bytes();
        self.deliveries.push(delivery);
        bytes
    }

    /// Returns the changes that tell of its deliveries, which are added to.
    pub(super) fn marks(&mut self) -> &mut Changes {
        &mut self.marks
    }

    /// Returns all but the first `count` messages to their places.
    pub fn keep(&mut self, count: usize) {
        let rest = self.deliveries.split_off(count.min(self.deliveries.len()));
        give_back(&self.dispatcher, &rest);
    }

    /// Takes the messages out: they stay in flight.
    pub fn into_parts(mut self) -> (Arc<Dispatcher>, Vec<Delivery>) {
        let deliveries = std::mem::take(&mut self.deliveries);
        (Arc::clone(&self.dispatcher), deliveries)
    }

    /// Stores that the messages are delivered. They are handed out even if the disk is too full for it, as
    /// other messages are, but not by a journal that has stopped.
    pub async fn mark_delivered(&mut self, context: &DeliveryContext) -> Result<(), NotStored> {
        let marks = std::mem::take(&mut self.marks);
        if marks.is_empty() || !self.dispatcher.is_stored {
            return Ok(());
        }
        let staged = self
            .dispatcher
            .lock()
            .store_at_once(context, &self.dispatcher, marks);
        let stored = match staged {
            StageOutcome::Stored => Ok(()),
            StageOutcome::Refused(why) => Err(NotStored::Refused(why)),
            StageOutcome::Waits(ticket) => only_outcome(ticket.await.first()),
        };
        match stored {
            Err(why @ (NotStored::Unknown | NotStored::Refused(Refusal::Closed))) => Err(why),
            Err(NotStored::Refused(_)) | Ok(()) => Ok(()),
        }
    }

    /// Settles all messages, which are done. Returns them once that is as durable as `wait` says. If it is
    /// refused, they return to their places.
    pub async fn complete_stored(
        self,
        context: &DeliveryContext,
        wait: StateWait,
    ) -> Result<Vec<Delivery>, NotStored> {
        let completed = complete_stored(context, &self.dispatcher, self.ids(), wait).await;
        match completed {
            Ok(()) | Err(NotStored::Unknown) => {
                let (_, deliveries) = self.into_parts();
                completed.map(|()| deliveries)
            }
            Err(why) => Err(why),
        }
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

/// Settles messages in flight, which are done; resolves once that is as durable as `wait` says. If it is
/// refused, they stay in flight.
pub async fn complete_stored(
    context: &DeliveryContext,
    dispatcher: &Arc<Dispatcher>,
    ids: Vec<DeliveryId>,
    wait: StateWait,
) -> Result<(), NotStored> {
    let count = ids.len() as u64;
    let open = OpenMove::begin(dispatcher, ids);
    let ticket = {
        let _no_removal = context.lock_out_removals();
        open.settlement(context).map(|frame| {
            context.journal.append(vec![Append {
                frees_space: true,
                ..Append::state([frame], wait)
            }])
        })
    };
    let stored = match ticket {
        Some(ticket) => only_outcome(ticket.await.first()),
        None => Ok(()),
    };
    open.end(context, stored);
    if stored.is_ok() {
        context.metrics.settled.inc_by(count);
        dispatcher.count_completed(context, count);
    }
    stored
}

/// Result of taking a message that a search found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    Taken,
    /// Another caller or consumer was faster.
    Lost,
    /// As many messages are in flight as may be.
    TooMany,
}

/// Wait of a request for messages: the dispatcher is in use until it is dropped.
#[derive(Debug)]
pub struct Waiting<'a>(&'a Arc<Dispatcher>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.waiting_requests -= 1;
        if let Some(context) = self.0.context.upgrade() {
            inner.note_use(&context, self.0);
        }
    }
}

impl Dispatcher {
    /// Begins the wait of a request.
    pub fn wait(self: &Arc<Self>) -> Waiting<'_> {
        self.lock().waiting_requests += 1;
        Waiting(self)
    }

    /// Takes one message, if one is waiting; returns it with the number of further ones. Without `settles`,
    /// this settles it.
    pub async fn take_one(self: &Arc<Self>, settles: bool) -> Option<(Delivery, u64)> {
        self.take_next(settles, GetWait::No).await
    }

    /// Takes the next message.
    async fn take_next(self: &Arc<Self>, settles: bool, wait: GetWait) -> Option<(Delivery, u64)> {
        let (sender, receiver) = oneshot::channel();
        {
            let context = self.context.upgrade()?;
            let mut inner = self.lock();
            if self.is_ended() {
                return None;
            }
            inner.used_ms = context.clock.now_ms();
            inner.getters.retain(|getter| !getter.sender.is_closed());
            inner.getters.push_back(GetRequest {
                settles,
                wait,
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
    /// exceed them. A wait is for the first.
    pub async fn pull(self: &Arc<Self>, count: usize, bytes_max: usize, mut wait: GetWait) -> PulledBatch {
        let mut pulled = PulledBatch::new(self);
        let mut bytes = 0;
        while pulled.deliveries.len() < count
            && bytes < bytes_max
            && let Some((delivery, _)) = self.take_next(true, wait).await
        {
            if wait == GetWait::ForOne {
                wait = GetWait::No;
            }
            bytes += delivery.message.bytes();
            pulled.deliveries.push(delivery);
        }
        pulled
    }

    /// Takes up to `count` messages that `wants` accepts, in the order of the search, until they have
    /// `bytes_max` bytes. False if as many messages are in flight as may be.
    pub async fn choose(
        self: &Arc<Self>,
        search: &mut Search,
        (count, bytes_max): (usize, usize),
        mut wants: impl FnMut(&StoredMessage) -> bool,
        pulled: &mut PulledBatch,
    ) -> bool {
        let mut bytes = 0;
        while pulled.deliveries.len() < count
            && bytes < bytes_max
            && let Some((id, message)) = search.next(&mut wants).await
        {
            bytes += message.bytes();
            match self.take_chosen(id, message, pulled) {
                Chosen::Taken | Chosen::Lost => {}
                Chosen::TooMany => return false,
            }
        }
        true
    }

    pub fn take_chosen(
        self: &Arc<Self>,
        id: DeliveryId,
        message: StoredMessage,
        pulled: &mut PulledBatch,
    ) -> Chosen {
        let Some(context) = self.context.upgrade() else {
            return Chosen::Lost;
        };
        let mut inner = self.lock();
        if self.is_ended() {
            return Chosen::Lost;
        }
        if inner.state.consumers.is_paused() && !pulled.despite_pause {
            return Chosen::Lost;
        }
        if inner.state.in_flight() >= IN_FLIGHT_MAX {
            return Chosen::TooMany;
        }
        inner.used_ms = context.clock.now_ms();
        let bytes = value_bytes(&message);
        let Some(handed) = inner.state.choose(id, None, bytes, &mut pulled.marks) else {
            return Chosen::Lost;
        };
        context.metrics.delivered.inc();
        self.count_chosen(&context, handed);
        pulled.add(id, message, handed);
        Chosen::Taken
    }

    /// Returns the signal that there may be new messages for searches.
    pub fn searches(&self) -> Arc<Notify> {
        let mut inner = self.lock();
        Arc::clone(inner.searches.get_or_insert_default())
    }

    /// Returns a number that changes when messages return to their places.
    pub fn put_back_count(&self) -> u64 {
        self.lock().put_back
    }

    /// Returns messages in flight to their places, as if they had never been taken.
    pub(super) fn return_unseen(self: &Arc<Self>, ids: &[DeliveryId]) {
        let Some(context) = self.context.upgrade() else {
            return;
        };
        {
            let mut inner = self.lock();
            let (state, changes) = inner.parts();
            for id in ids.iter().rev() {
                state.return_unseen(*id, changes);
            }
            inner.on_put_back(ids);
            context.mark_dirty(self, &mut inner);
            self.touch(&context);
        }
        context.wake(self);
    }
}

impl DeliveryState {
    /// Answers requests that do not wait: there is no message for them.
    pub(super) fn answer_pending_gets(&mut self) {
        for getter in std::mem::take(&mut self.getters) {
            if getter.waits() {
                self.getters.push_back(getter);
            } else {
                // The receiver is gone if the requester is.
                let _ = getter.sender.send(None);
            }
        }
    }

    /// Returns the place of the first request that may get a message now.
    pub(super) fn next_getter(&self) -> Option<usize> {
        let is_paused = self.state.consumers.is_paused();
        let mut getters = self.getters.iter();
        getters.position(|getter| !is_paused || getter.moves())
    }

    /// Answers requests that do not wait while the hand-out is paused.
    pub(super) fn answer_paused_gets(&mut self) {
        for getter in std::mem::take(&mut self.getters) {
            if getter.waits() || getter.moves() {
                self.getters.push_back(getter);
            } else {
                // The receiver is gone if the requester is.
                let _ = getter.sender.send(None);
            }
        }
    }

    /// Notes that messages have returned to their places: searches look at them again.
    pub(super) fn on_put_back(&mut self, ids: &[DeliveryId]) {
        self.put_back += 1;
        self.put_back_for_groups(ids);
        self.wake_searches();
    }
}
