//! Search for the messages of consumers with one filter: the task of a group.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stafett_model::{Epoch, StoredMessage};
use stafett_queue::{ConsumerKey, DeliveryId, QueueSettings};

use crate::context::DeliveryContext;
use crate::dispatcher::Dispatcher;
use crate::filtered::{Given, MessageFilter, PUT_BACK_MAX, Taker};
use crate::lanes::LogOwnership;
use crate::pull::PulledBatch;
use crate::search::{Search, SearchBounds, SearchOrder};

/// Messages that are given together, and their bytes.
const TOGETHER: usize = 256;
const TOGETHER_BYTES: usize = 256 << 10;
/// Bounds on the messages examined in one step.
const STEP: SearchBounds = SearchBounds {
    messages: 4096,
    bytes: 4 << 20,
};
/// Returned messages examined before other tasks get their turns.
const TURN_MESSAGES: usize = 64;
/// Pause after a log could not be read, or a delivery could not be recorded.
const STALLED: Duration = Duration::from_secs(1);

/// A message that a search has found.
#[derive(Debug)]
pub(super) struct FoundMessage {
    pub(super) id: DeliveryId,
    pub(super) message: StoredMessage,
    /// Epoch that stored the message.
    pub(super) stored_by: Epoch,
}

impl FoundMessage {
    /// Returns true if it is neither expired nor one that ended with an earlier run.
    pub(super) fn is_deliverable(
        &self,
        dispatcher: &Dispatcher,
        context: &DeliveryContext,
        settings: &QueueSettings,
    ) -> bool {
        dispatcher.is_deliverable(settings, context, &self.message, self.stored_by)
    }
}

/// Search of a group's messages.
struct Finder {
    dispatcher: Arc<Dispatcher>,
    context: Arc<DeliveryContext>,
    group: ConsumerKey,
    filter: Arc<dyn MessageFilter>,
    order: SearchOrder,
    search: Search,
    /// Message that no member could take yet.
    found: Option<FoundMessage>,
    /// Messages behind the search that are to be examined again, in the order of their hand-out.
    again: BTreeSet<(Reverse<u32>, u64)>,
    /// Taken messages, and the consumers that get them, in the same order.
    batch: PulledBatch,
    takers: Vec<Taker>,
}

/// Result of a step.
enum FindStep {
    /// There may be more messages.
    Moved,
    /// There is no message, or no member that can take one.
    Waits,
    /// A log could not be read or written.
    Stalled,
    /// The group has no members.
    Ended,
}

/// Begins to search for the messages of a group.
pub(super) fn spawn(
    dispatcher: &Arc<Dispatcher>,
    context: &Arc<DeliveryContext>,
    group: ConsumerKey,
    filter: Arc<dyn MessageFilter>,
) {
    // Partitions of a topic take turns by age.
    let order = match dispatcher.ownership {
        LogOwnership::Topic => SearchOrder::Oldest,
        LogOwnership::Own => SearchOrder::Priority,
    };
    let Some(search) = dispatcher.search(order, STEP, &[]) else {
        return;
    };
    let finder = Finder {
        group,
        order,
        search,
        found: None,
        again: BTreeSet::new(),
        batch: PulledBatch::new(dispatcher),
        takers: Vec::new(),
        dispatcher: Arc::clone(dispatcher),
        context: Arc::clone(context),
        filter,
    };
    let stop = context.stop.clone();
    context.tasks.spawn(async move {
        stop.run_until_cancelled_owned(finder.run()).await;
    });
}

impl Finder {
    async fn run(mut self) {
        let signal = self.dispatcher.searches();
        loop {
            let changed = signal.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let step = self.step().await;
            self.give_back_unused();
            match step {
                FindStep::Moved => tokio::task::yield_now().await,
                FindStep::Waits => {
                    if self.found.is_none() {
                        self.search.rest();
                    }
                    changed.await;
                }
                FindStep::Stalled => tokio::time::sleep(STALLED).await,
                FindStep::Ended => return,
            }
        }
    }

    /// Gives messages to members until there are no more, or no member can take one.
    async fn step(&mut self) -> FindStep {
        if let Some(step) = self.begin_step() {
            return step;
        }
        let mut bytes = 0;
        let step = loop {
            if self.takers.len() == TOGETHER || bytes >= TOGETHER_BYTES {
                break FindStep::Moved;
            }
            let found = match self.found.take() {
                Some(found) => found,
                None => match self.next().await {
                    Ok(found) => found,
                    Err(step) => break step,
                },
            };
            bytes += found.message.bytes();
            let at = (&self.dispatcher, &*self.context);
            let mut inner = self.dispatcher.lock();
            let given = inner.give_to_group(self.group, at, &found, &mut self.batch);
            drop(inner);
            match given {
                Given::Taken(taker) => self.takers.push(taker),
                Given::Lost(None) => {}
                Given::Dead => {
                    self.dispatcher.end_message(&self.context, found.id);
                }
                Given::Lost(Some(taker)) => taker.give_back(),
                Given::Blocked => {
                    self.found = Some(found);
                    // Room is known once the taken messages are in the outboxes.
                    let all_wait = self.takers.is_empty();
                    break if all_wait {
                        FindStep::Waits
                    } else {
                        FindStep::Moved
                    };
                }
                Given::Ended => break FindStep::Ended,
            }
        };
        if self.send().await {
            step
        } else {
            FindStep::Stalled
        }
    }

    /// Takes the messages that have returned. Returns a step if there is nothing to be done now.
    fn begin_step(&mut self) -> Option<FindStep> {
        let begins_anew = {
            let mut inner = self.dispatcher.lock();
            match inner.group_can_take(self.group) {
                None => return Some(FindStep::Ended),
                Some(false) => return Some(FindStep::Waits),
                Some(true) => {}
            }
            let (back, begins_anew) = inner.take_put_back(self.group);
            let places = back.into_iter().map(|id| (Reverse(id.lane), id.offset));
            self.again.extend(places);
            begins_anew || self.again.len() > PUT_BACK_MAX
        };
        if begins_anew {
            self.again.clear();
            self.found = None;
            self.search.restart();
        }
        self.search.go_on(STEP);
        // Another message may come before the one that no member could take.
        let may_be_later = self.has_priorities() || !self.again.is_empty();
        if let Some(found) = self.found.take_if(|_| may_be_later) {
            self.look_again(found.id);
        }
        None
    }

    fn has_priorities(&self) -> bool {
        self.order == SearchOrder::Priority && self.search.has_lanes()
    }

    fn look_again(&mut self, id: DeliveryId) {
        self.again.insert((Reverse(id.lane), id.offset));
    }

    /// Returns the next message that the filter accepts: one that has returned, or one that was not examined.
    async fn next(&mut self) -> Result<FoundMessage, FindStep> {
        let filter = Arc::clone(&self.filter);
        let wants = |message: &StoredMessage| filter.is_true_of(message);
        let has_priorities = self.has_priorities();
        let mut examined = 0_usize;
        while let Some((Reverse(lane), offset)) = self.again.pop_first() {
            let id = DeliveryId { lane, offset };
            if has_priorities {
                let above = self.search.next_above(Some(lane), wants).await;
                if above.is_some() || self.search.is_at_bound() || self.search.is_unreadable() {
                    self.look_again(id);
                    return above.ok_or_else(|| self.end_of_search());
                }
            }
            examined += 1;
            if examined.is_multiple_of(TURN_MESSAGES) {
                tokio::task::yield_now().await;
            }
            match self.search.again(id, wants).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(_) => {
                    self.look_again(id);
                    return Err(FindStep::Stalled);
                }
            }
        }
        let found = self.search.next_above(None, wants).await;
        found.ok_or_else(|| self.end_of_search())
    }

    /// Returns the step that follows from the end of a search.
    fn end_of_search(&self) -> FindStep {
        if self.search.is_at_bound() {
            FindStep::Moved
        } else if self.search.is_unreadable() {
            FindStep::Stalled
        } else {
            FindStep::Waits
        }
    }

    /// Gives back the credit that was taken for messages which did not come.
    fn give_back_unused(&self) {
        let has_found = self.found.is_some();
        let unused = self.dispatcher.lock().unused_credit(self.group, has_found);
        for credit in unused {
            credit.release(1);
        }
    }

    /// Puts the taken messages into the outboxes once their delivery is stored. Returns false if it cannot be
    /// stored: the messages return to their places.
    async fn send(&mut self) -> bool {
        if self.takers.is_empty() {
            return true;
        }
        let stored = self.batch.mark_delivered(&self.context).await.is_ok();
        let batch = std::mem::replace(&mut self.batch, PulledBatch::new(&self.dispatcher));
        let takers = std::mem::take(&mut self.takers);
        if !stored {
            let credits = self.dispatcher.lock().forget_chosen(&takers);
            drop(batch);
            for (credit, count) in credits {
                credit.release(count);
            }
            return false;
        }
        let (dispatcher, deliveries) = batch.into_parts();
        let (mut back, mut given) = (Vec::new(), 0);
        {
            let mut inner = dispatcher.lock();
            for (delivery, taker) in deliveries.into_iter().zip(takers) {
                let (id, is_redelivered) = (delivery.id, delivery.redelivered);
                if !inner.put_chosen(&taker, delivery) {
                    // The consumer has ended meanwhile, and given its credit back.
                    back.push(id);
                    continue;
                }
                dispatcher.count_given(&self.context, taker.settles, is_redelivered);
                given += 1;
            }
            inner.fill_outboxes(&dispatcher);
            self.context.mark_dirty(&dispatcher, &mut inner);
        }
        self.context.metrics.delivered.inc_by(given);
        if !back.is_empty() {
            dispatcher.return_unseen(&back);
        }
        true
    }
}
