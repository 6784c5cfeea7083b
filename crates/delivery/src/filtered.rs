//! Consumers with a filter: each gets the messages for which its filter is true, and leaves others in their
//! places.
//!
//! Consumers with equal filters are one group. A task of the group searches the messages, each once, and gives
//! those that the filter accepts to its members in turn, the highest priority first. A message that returns
//! to its place behind the search is looked at again.
//!
//! The search needs no reads while its members wait for credit or room: it keeps the message that it found.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stafett_model::StoredMessage;
use stafett_queue::{ConsumerKey, DeliveryId};

use crate::consumers::ConsumerLink;
use crate::context::DeliveryContext;
use crate::dispatcher::{DeliveryState, Dispatcher};
use crate::expire::value_bytes;
use crate::hand_out::IN_FLIGHT_MAX;
use crate::lanes::LogOwnership;
use crate::pull::PulledBatch;
use crate::search::{FoundMessage, Search, SearchBounds, SearchOrder};
use crate::shared_credit::Credit;
use crate::source::Waiter;

/// Messages that are given together, and their bytes.
const TOGETHER: usize = 256;
const TOGETHER_BYTES: usize = 256 << 10;
/// Bounds on the messages examined in one step.
const STEP: SearchBounds = SearchBounds {
    messages: 4096,
    bytes: 4 << 20,
};
/// Returned messages that a group remembers; beyond that its search begins anew.
const PUT_BACK_MAX: usize = if cfg!(test) { 8 } else { 100_000 };
/// Pause after a log could not be read, or a delivery could not be recorded.
const STALLED: Duration = Duration::from_secs(1);

/// Condition on messages. Equal ones have the same source.
pub trait MessageFilter: fmt::Debug + Send + Sync {
    fn source(&self) -> &str;

    fn is_true_of(&self, message: &StoredMessage) -> bool;
}

/// Consumers of a dispatcher with one filter.
#[derive(Debug)]
pub(super) struct FilterGroup {
    /// Key of its first member.
    id: ConsumerKey,
    filter: Arc<dyn MessageFilter>,
    /// Members with their priorities, the highest first; of equals, the next one first.
    members: Vec<(i32, ConsumerKey)>,
    /// Messages that have returned to their places and are to be examined again.
    put_back: PutBack,
}

/// Messages that have returned to their places.
#[derive(Debug, Default)]
struct PutBack {
    /// In the order of their hand-out.
    ids: BTreeSet<(Reverse<u32>, u64)>,
    /// True if there were too many.
    is_full: bool,
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
    /// Taken messages, and the consumers that get them, in the same order.
    batch: PulledBatch,
    takers: Vec<Taker>,
}

/// Consumer that gets a message.
struct Taker {
    key: ConsumerKey,
    settles: bool,
    /// Credit that the message has taken.
    credit: Option<Arc<Credit>>,
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

/// Result of the attempt to give a message to a member.
enum Given {
    Taken,
    /// The message is no longer ready. The credit taken for it is to be given back without any lock held.
    Lost(Option<Taker>),
    /// No member can take it now.
    Blocked,
    Ended,
}

impl DeliveryState {
    /// Adds a consumer to the group of its filter. Returns true if the group is new: then its task begins.
    pub(super) fn join_group(
        &mut self,
        key: ConsumerKey,
        priority: i32,
        filter: &Arc<dyn MessageFilter>,
    ) -> bool {
        let mut groups = self.groups.iter_mut();
        if let Some(group) = groups.find(|group| group.filter.source() == filter.source()) {
            group.add(priority, key);
            return false;
        }
        self.groups.push(FilterGroup {
            id: key,
            filter: Arc::clone(filter),
            members: vec![(priority, key)],
            put_back: PutBack::default(),
        });
        true
    }

    /// Removes a consumer from its group; its task ends with the last one.
    pub(super) fn leave_group(&mut self, key: ConsumerKey) {
        for group in &mut self.groups {
            group.members.retain(|(_, member)| *member != key);
        }
        self.groups.retain(|group| !group.members.is_empty());
    }

    /// Lets the groups look again at messages that have returned to their places.
    pub(super) fn put_back_for_groups(&mut self, ids: &[DeliveryId]) {
        for group in &mut self.groups {
            for id in ids {
                group.put_back.add(*id);
            }
        }
    }

    pub(super) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    fn group(&mut self, id: ConsumerKey) -> Option<&mut FilterGroup> {
        self.groups.iter_mut().find(|group| group.id == id)
    }

    /// Gives a message to the first member of a group that can take it.
    fn give_found(&mut self, finder: &mut Finder, found: &FoundMessage) -> Given {
        let Some(members) = self.group(finder.group).map(|group| group.members.clone()) else {
            return Given::Ended;
        };
        let (dispatcher, context) = (&finder.dispatcher, &finder.context);
        if !found.is_deliverable(dispatcher, context, &self.settings) {
            return Given::Lost(None);
        }
        if self.state.in_flight() >= IN_FLIGHT_MAX {
            return Given::Blocked;
        }
        for (priority, key) in members {
            let Some(taker) = self.taker(dispatcher, key) else {
                continue;
            };
            let holder = taker.settles.then_some(key);
            let bytes = value_bytes(&found.message);
            let handed = self.state.choose(found.id, holder, bytes, finder.batch.marks());
            let Some(handed) = handed else {
                return Given::Lost(Some(taker));
            };
            dispatcher.count_given(context, taker.settles, handed);
            context.metrics.delivered.inc();
            finder.batch.add(found.id, found.message.clone(), handed);
            finder.takers.push(taker);
            if let (Some(link), Some(delivery)) = (self.links.get_mut(&key), finder.batch.deliveries().last())
            {
                link.chosen_bytes += delivery.bytes();
            }
            if let Some(group) = self.group(finder.group) {
                group.pass_turn(priority, key);
            }
            return Given::Taken;
        }
        Given::Blocked
    }

    /// Takes the credit of a consumer for a message. `None` if it can take none now: then it is resumed when it
    /// can.
    fn taker(&mut self, dispatcher: &Arc<Dispatcher>, key: ConsumerKey) -> Option<Taker> {
        let may_take = self.state.consumers.may_take(key);
        let link = self.links.get(&key).filter(|_| may_take)?;
        if link.chosen_bytes > 0 && !link.outbox.has_room(link.chosen_bytes) {
            return None;
        }
        if link.has_room(dispatcher, key) && link.take_credit(dispatcher, key) {
            return Some(Taker {
                key,
                settles: link.settles,
                credit: link.credit.clone().filter(|_| link.settles),
            });
        }
        self.state.consumers.block(key);
        None
    }

    /// Forgets the messages that consumers were about to get.
    fn forget_chosen(&mut self, takers: &[Taker]) {
        for taker in takers {
            if let Some(link) = self.links.get_mut(&taker.key) {
                link.chosen_bytes = 0;
            }
        }
    }

    /// Returns the next message that has returned to its place.
    fn next_put_back(&mut self, group: ConsumerKey) -> Option<DeliveryId> {
        self.group(group)?.put_back.next()
    }
}

impl PutBack {
    fn add(&mut self, id: DeliveryId) {
        if self.ids.len() == PUT_BACK_MAX {
            self.ids.clear();
            self.is_full = true;
        }
        if !self.is_full {
            self.ids.insert((Reverse(id.lane), id.offset));
        }
    }

    fn next(&mut self) -> Option<DeliveryId> {
        let (Reverse(lane), offset) = self.ids.pop_first()?;
        Some(DeliveryId { lane, offset })
    }
}

impl FilterGroup {
    fn add(&mut self, priority: i32, key: ConsumerKey) {
        let behind = self.members.partition_point(|(known, _)| *known >= priority);
        self.members.insert(behind, (priority, key));
    }

    fn pass_turn(&mut self, priority: i32, key: ConsumerKey) {
        self.members.retain(|(_, member)| *member != key);
        self.add(priority, key);
    }
}

impl ConsumerLink {
    /// Returns true if the outbox has room. Otherwise the consumer is to be blocked, and is resumed when there
    /// is some.
    fn has_room(&self, dispatcher: &Arc<Dispatcher>, key: ConsumerKey) -> bool {
        // Room may have come before the waiter was visible.
        self.outbox.has_room(0) || !self.outbox.wait(Waiter::consumer(dispatcher, key))
    }

    fn take_credit(&self, dispatcher: &Arc<Dispatcher>, key: ConsumerKey) -> bool {
        let waiter = || Waiter::consumer(dispatcher, key);
        let credit = self.credit.as_ref();
        credit.is_none_or(|credit| credit.take(self.settles, waiter))
    }
}

impl Taker {
    /// Returns the credit of a message that the consumer does not get.
    fn give_back(self) {
        if let Some(credit) = self.credit {
            credit.release(1);
        }
    }
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
            match self.step().await {
                FindStep::Moved => tokio::task::yield_now().await,
                FindStep::Waits => changed.await,
                FindStep::Stalled => tokio::time::sleep(STALLED).await,
                FindStep::Ended => return,
            }
        }
    }

    /// Gives messages to members until there are no more, or no member can take one.
    async fn step(&mut self) -> FindStep {
        self.search.go_on(STEP);
        self.keep_order();
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
            let dispatcher = Arc::clone(&self.dispatcher);
            let given = dispatcher.lock().give_found(self, &found);
            match given {
                Given::Taken | Given::Lost(None) => {}
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

    /// Looks for the message anew that no member could take, if another one may come before it now.
    fn keep_order(&mut self) {
        let mut inner = self.dispatcher.lock();
        let Some(group) = inner.group(self.group) else {
            return;
        };
        if std::mem::take(&mut group.put_back.is_full) {
            group.put_back.ids.clear();
            self.found = None;
            self.search.restart();
        }
        let may_be_later = self.search.has_lanes() || !group.put_back.ids.is_empty();
        if let Some(found) = self.found.take_if(|_| may_be_later) {
            group.put_back.add(found.id);
        }
    }

    /// Returns the next message that the filter accepts: one that has returned, or one that was not examined.
    async fn next(&mut self) -> Result<FoundMessage, FindStep> {
        let filter = &*self.filter;
        let wants = |message: &StoredMessage| filter.is_true_of(message);
        let has_priorities = self.order == SearchOrder::Priority && self.search.has_lanes();
        loop {
            let back = self.dispatcher.lock().next_put_back(self.group);
            let Some(id) = back else {
                break;
            };
            if has_priorities && let Some(found) = self.search.next_above(Some(id.lane), wants).await {
                let mut inner = self.dispatcher.lock();
                inner.put_back_for_groups(&[id]);
                return Ok(found);
            }
            if let Some(found) = self.search.again(id, wants).await {
                return Ok(found);
            }
        }
        match self.search.next_above(None, wants).await {
            Some(found) => Ok(found),
            None if self.search.is_at_bound() => Err(FindStep::Moved),
            None if self.search.is_unreadable() => Err(FindStep::Stalled),
            None => Err(FindStep::Waits),
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
            self.dispatcher.lock().forget_chosen(&takers);
            drop(batch);
            takers.into_iter().for_each(Taker::give_back);
            return false;
        }
        let (dispatcher, deliveries) = batch.into_parts();
        let mut back = Vec::new();
        {
            let mut inner = dispatcher.lock();
            for (delivery, taker) in deliveries.into_iter().zip(takers) {
                if !taker.settles {
                    let (state, changes) = inner.parts();
                    state.complete(delivery.id, changes);
                }
                match inner.links.get_mut(&taker.key) {
                    Some(link) => {
                        let bytes = delivery.bytes();
                        link.chosen_bytes = link.chosen_bytes.saturating_sub(bytes);
                        link.pending_bytes += bytes;
                        link.pending.push(delivery);
                    }
                    // The consumer has ended meanwhile.
                    None => back.push((delivery.id, taker)),
                }
            }
            inner.fill_outboxes(&dispatcher);
            self.context.mark_dirty(&dispatcher, &mut inner);
        }
        if !back.is_empty() {
            let unsettled = back.iter().filter(|(_, taker)| taker.settles);
            let ids: Vec<_> = unsettled.map(|(id, _)| *id).collect();
            dispatcher.return_unseen(&ids);
            for (_, taker) in back {
                taker.give_back();
            }
        }
        true
    }
}
