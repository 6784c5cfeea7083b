//! Consumers with a filter: each gets the messages for which its filter is true, and leaves others in their
//! places.
//!
//! Consumers with equal filters are one group. Its task (`finder`) searches the messages, each once, and
//! gives those that the filter accepts to its members in turn, the highest priority first. A message that
//! returns to its place behind the search is examined again.
//!
//! Nothing is read while no member has credit and room: the message that was found last is kept.

use std::fmt;
use std::sync::Arc;

use stafett_model::StoredMessage;
use stafett_queue::{Changes, ConsumerKey, DeliveryId};

use crate::consumers::ConsumerLink;
use crate::context::DeliveryContext;
use crate::dispatcher::{DeliveryState, Dispatcher};
use crate::expire::value_bytes;
use crate::finder::FoundMessage;
use crate::hand_out::IN_FLIGHT_MAX;
use crate::outbox::Delivery;
use crate::pull::PulledBatch;
use crate::shared_credit::Credit;
use crate::source::Waiter;

/// Distinct filters of a dispatcher.
pub(super) const GROUPS_MAX: usize = 100;
/// Returned messages that a group remembers; beyond that its search begins anew.
pub(super) const PUT_BACK_MAX: usize = if cfg!(test) { 8 } else { 100_000 };

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

/// Consumer that gets a message.
pub(super) struct Taker {
    pub(super) key: ConsumerKey,
    pub(super) settles: bool,
    /// Credit that the message has taken.
    credit: Option<Arc<Credit>>,
}

/// Result of the attempt to give a message to a member.
pub(super) enum Given {
    Taken(Taker),
    /// The message is no longer ready. The credit taken for it is to be given back without any lock held.
    Lost(Option<Taker>),
    /// The message was returned too often. It is in flight, and is to be dead-lettered.
    Dead,
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

    /// Returns true if a member of a group can take a message; `None` if the group has ended.
    pub(super) fn group_can_take(&self, id: ConsumerKey) -> Option<bool> {
        let mut members = self.members(id)?.iter();
        Some(members.any(|(_, key)| self.state.consumers.may_take(*key)))
    }

    /// Takes the messages of a group that have returned. True if all are to be examined again.
    pub(super) fn take_put_back(&mut self, id: ConsumerKey) -> (Vec<DeliveryId>, bool) {
        let Some(group) = self.group(id) else {
            return (Vec::new(), false);
        };
        (
            std::mem::take(&mut group.put_back),
            std::mem::take(&mut group.begins_anew),
        )
    }

    fn group(&mut self, id: ConsumerKey) -> Option<&mut FilterGroup> {
        self.groups.iter_mut().find(|group| group.id == id)
    }

    /// Returns the members of a group; `None` if it has ended.
    fn members(&self, id: ConsumerKey) -> Option<&[(i32, ConsumerKey)]> {
        let group = self.groups.iter().find(|group| group.id == id)?;
        Some(&group.members)
    }

    fn member(&self, group: usize, turn: usize) -> Option<(i32, ConsumerKey)> {
        self.groups.get(group)?.members.get(turn).copied()
    }

    /// Gives a message to the first member of a group that can take it.
    pub(super) fn give_to_group(
        &mut self,
        group: ConsumerKey,
        (dispatcher, context): (&Arc<Dispatcher>, &DeliveryContext),
        found: &FoundMessage,
        batch: &mut PulledBatch,
    ) -> Given {
        let Some(at) = self.groups.iter().position(|known| known.id == group) else {
            return Given::Ended;
        };
        if !found.is_deliverable(dispatcher, context, &self.settings) {
            return Given::Lost(None);
        }
        if self.state.in_flight() >= IN_FLIGHT_MAX {
            return Given::Blocked;
        }
        if self.was_returned_too_often(found.id) {
            if self.settings.dead_letter.is_some() && self.dead_letters.is_full() {
                return Given::Blocked;
            }
            let (bytes, mut unstored) = (value_bytes(&found.message), Changes::default());
            let taken = self.state.choose(found.id, None, bytes, &mut unstored);
            return taken.map_or(Given::Lost(None), |_| Given::Dead);
        }
        let mut turn = 0;
        while let Some((priority, key)) = self.member(at, turn) {
            turn += 1;
            let Some(taker) = self.taker(dispatcher, key) else {
                continue;
            };
            let holder = taker.settles.then_some(key);
            let bytes = value_bytes(&found.message);
            let Some(handed) = self.state.choose(found.id, holder, bytes, batch.marks()) else {
                return Given::Lost(Some(taker));
            };
            let bytes = batch.add(found.id, found.message.clone(), handed);
            if let Some(link) = self.links.get_mut(&key) {
                link.chosen_bytes += bytes;
                link.chosen += u32::from(taker.settles);
            }
            if let Some(group) = self.groups.get_mut(at) {
                group.pass_turn(priority, key);
            }
            return Given::Taken(taker);
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
    /// before it. Returns true if it was taken.
    pub(super) fn reserve_credit(&mut self, dispatcher: &Arc<Dispatcher>, key: ConsumerKey) -> bool {
        let link = self.links.get_mut(&key);
        let Some(link) = link.filter(|link| link.waits_for_credit) else {
            return false;
        };
        link.waits_for_credit = false;
        if !link.settles {
            return false;
        }
        link.has_reserved = link.take_credit(dispatcher, key);
        let has_reserved = link.has_reserved;
        if !has_reserved {
            self.state.consumers.block(key);
        }
        has_reserved
    }

    /// Takes the reservations of a group that it does not need: their credit is to be given back without any
    /// lock held. With `has_found`, members that can take a message keep theirs.
    pub(super) fn unused_credit(&mut self, group: ConsumerKey, has_found: bool) -> Vec<Arc<Credit>> {
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

    /// Puts a chosen message among the pending deliveries of its consumer. Returns false if that has ended.
    pub(super) fn put_chosen(&mut self, taker: &Taker, delivery: Delivery) -> bool {
        let Some(link) = self.links.get_mut(&taker.key) else {
            return false;
        };
        let (id, bytes) = (delivery.id, delivery.bytes());
        link.chosen_bytes = link.chosen_bytes.saturating_sub(bytes);
        link.chosen = link.chosen.saturating_sub(u32::from(taker.settles));
        link.pending_bytes += bytes;
        link.pending.push(delivery);
        if !taker.settles {
            let (state, changes) = self.parts();
            state.complete(id, changes);
        }
        true
    }

    /// Forgets the messages that consumers were about to get. Returns their credit, which is to be given back
    /// without any lock held; consumers that have ended have given it back.
    pub(super) fn forget_chosen(&mut self, takers: &[Taker]) -> Vec<(Arc<Credit>, u32)> {
        let credits = takers.iter().filter_map(|taker| {
            let link = self.links.get_mut(&taker.key)?;
            link.chosen_bytes = 0;
            let chosen = std::mem::take(&mut link.chosen);
            link.credit.clone().map(|credit| (credit, chosen))
        });
        credits.collect()
    }
}

impl FilterGroup {
    fn add(&mut self, priority: i32, key: ConsumerKey) {
        let behind = self.members.partition_point(|(known, _)| *known >= priority);
        self.members.insert(behind, (priority, key));
    }

    fn pass_turn(&mut self, priority: i32, key: ConsumerKey) {
        let at = self.members.iter().position(|(_, member)| *member == key);
        let behind = self.members.partition_point(|(known, _)| *known >= priority);
        // Members before it stay where they are.
        if let Some(passed) = at.and_then(|at| self.members.get_mut(at..behind)) {
            passed.rotate_left(1);
        }
    }
}

impl ConsumerLink {
    /// Returns true if the outbox has room. Otherwise the consumer is to be blocked, and is resumed when
    /// there is some.
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
    /// Returns the credit of a message that the consumer does not get, and that was not counted for it.
    pub(super) fn give_back(self) {
        if let Some(credit) = self.credit {
            credit.release(1);
        }
    }
}
