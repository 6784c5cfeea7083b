//! Consumers with a filter: each gets the messages for which its filter is true, and leaves others in their
//! places.
//!
//! Consumers with equal filters are one group. A task of the group searches the messages, each once, and gives
//! those that the filter accepts to its members in turn, the highest priority first. A message that returns
//! to its place behind the search is looked at again.
//!
//! Nothing is read while no member has credit and room: the message that was found last is kept.

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
/// Returned messages examined before other tasks get their turns.
const TURN_MESSAGES: usize = 64;
/// Distinct filters of a dispatcher.
pub(super) const GROUPS_MAX: usize = 100;
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
    put_back: Vec<DeliveryId>,
    /// True if all messages are to be examined again.
    begins_anew: bool,
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
    /// Returns true if a consumer with this filter can be added.
    pub(super) fn has_room_for(&self, filter: &dyn MessageFilter) -> bool {
        let is_equal = |group: &FilterGroup| group.filter.source() == filter.source();
        self.groups.len() < GROUPS_MAX || self.groups.iter().any(is_equal)
    }

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
            put_back: Vec::new(),
            begins_anew: false,
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

    /// Lets the groups examine messages again that have returned to their places.
    pub(super) fn put_back_for_groups(&mut self, ids: &[DeliveryId]) {
        for group in &mut self.groups {
            if group.put_back.len() + ids.len() > PUT_BACK_MAX {
                group.begins_anew = true;
                group.put_back.clear();
            } else if !group.begins_anew {
                group.put_back.extend_from_slice(ids);
            }
        }
    }

    /// Lets the groups examine all messages again: some that could not be delivered may be now.
    pub(super) fn begin_groups_anew(&mut self) {
        for group in &mut self.groups {
            group.begins_anew = true;
        }
        self.wake_searches();
    }

    pub(super) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    fn group(&mut self, id: ConsumerKey) -> Option<&mut FilterGroup> {
        self.groups.iter_mut().find(|group| group.id == id)
    }

    /// Returns the members of a group; `None` if it has ended.
    fn members(&self, id: ConsumerKey) -> Option<&[(i32, ConsumerKey)]> {
        let group = self.groups.iter().find(|group| group.id == id)?;
        Some(&group.members)
    }

    /// Gives a message to the first member of a group that can take it.
    fn give_found(&mut self, finder: &mut Finder, found: &FoundMessage) -> Given {
        let Some(members) = self.members(finder.group).map(<[_]>::to_vec) else {
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

    /// Takes the credit of a consumer for a message. `None` if it can take none now: then it is resumed when
    /// it can.
    fn taker(&mut self, dispatcher: &Arc<Dispatcher>, key: ConsumerKey) -> Option<Taker> {
        let may_take = self.state.consumers.may_take(key);
        let link = self.links.get_mut(&key).filter(|_| may_take)?;
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

    /// Takes the credit that a consumer with a filter has waited for, at once: the next in line must not come
    /// before it.
    pub(super) fn reserve_credit(&mut self, dispatcher: &Arc<Dispatcher>, key: ConsumerKey) {
        if let Some(link) = self.links.get_mut(&key)
            && std::mem::take(&mut link.waits_for_credit)
            && link.settles
        {
            link.has_reserved = link.take_credit(dispatcher, key);
            if !link.has_reserved {
                self.state.consumers.block(key);
            }
        }
    }

    /// Takes the reservations of a group that it does not need: their credit is to be given back without any
    /// lock held. With `has_found`, members that can take a message keep theirs.
    fn unused_credit(&mut self, group: ConsumerKey, has_found: bool) -> Vec<Arc<Credit>> {
        let members = self.members(group).map(<[_]>::to_vec).unwrap_or_default();
        let reserved = members.into_iter().filter_map(|(_, key)| {
            if has_found && self.state.consumers.may_take(key) {
                return None;
            }
            let link = self.links.get_mut(&key)?;
            let is_unused = std::mem::take(&mut link.has_reserved);
            link.credit.clone().filter(|_| is_unused)
        });
        reserved.collect()
    }

    /// Forgets the messages that consumers were about to get.
    fn forget_chosen(&mut self, takers: &[Taker]) {
        for taker in takers {
            if let Some(link) = self.links.get_mut(&taker.key) {
                link.chosen_bytes = 0;
            }
        }
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

    fn take_credit(&mut self, dispatcher: &Arc<Dispatcher>, key: ConsumerKey) -> bool {
        if std::mem::take(&mut self.has_reserved) {
            return true;
        }
        let waiter = || Waiter::consumer(dispatcher, key);
        let credit = self.credit.as_ref();
        let is_taken = credit.is_none_or(|credit| credit.take(self.settles, waiter));
        self.waits_for_credit = !is_taken;
        is_taken
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
            match self.step().await {
                FindStep::Moved => tokio::task::yield_now().await,
                FindStep::Waits => {
                    self.rest();
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

    /// Takes the messages that have returned. Returns a step if there is nothing to be done now.
    fn begin_step(&mut self) -> Option<FindStep> {
        let begins_anew = {
            let mut inner = self.dispatcher.lock();
            let Some(members) = inner.members(self.group) else {
                return Some(FindStep::Ended);
            };
            if !members
                .iter()
                .any(|(_, key)| inner.state.consumers.may_take(*key))
            {
                return Some(FindStep::Waits);
            }
            let group = inner.group(self.group)?;
            let back = std::mem::take(&mut group.put_back);
            self.again
                .extend(back.into_iter().map(|id| (Reverse(id.lane), id.offset)));
            std::mem::take(&mut group.begins_anew) || self.again.len() > PUT_BACK_MAX
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

    /// Gives back what is not needed while there is nothing to do.
    fn rest(&mut self) {
        if self.found.is_none() {
            self.search.rest();
        }
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
            self.dispatcher.lock().forget_chosen(&takers);
            drop(batch);
            for taker in takers {
                taker.give_back();
            }
            return false;
        }
        let (dispatcher, deliveries) = batch.into_parts();
        let (mut back, mut left) = (Vec::new(), Vec::new());
        {
            let mut inner = dispatcher.lock();
            for (delivery, taker) in deliveries.into_iter().zip(takers) {
                let Some(link) = inner.links.get_mut(&taker.key) else {
                    // The consumer has ended meanwhile.
                    back.push(delivery.id);
                    left.push(taker);
                    continue;
                };
                let bytes = delivery.bytes();
                link.chosen_bytes = link.chosen_bytes.saturating_sub(bytes);
                link.pending_bytes += bytes;
                let (id, is_redelivered) = (delivery.id, delivery.redelivered);
                link.pending.push(delivery);
                if !taker.settles {
                    let (state, changes) = inner.parts();
                    state.complete(id, changes);
                }
                dispatcher.count_given(&self.context, taker.settles, is_redelivered);
                self.context.metrics.delivered.inc();
            }
            inner.fill_outboxes(&dispatcher);
            self.context.mark_dirty(&dispatcher, &mut inner);
        }
        if !back.is_empty() {
            dispatcher.return_unseen(&back);
        }
        for taker in left {
            taker.give_back();
        }
        true
    }
}
