//! Choice of the next consumer: by priority, round-robin among equals, as far as their credit allows.
//!
//! Only consumers that can take a message are in a ring, so that the choice costs the same however many wait
//! for credit.

use std::collections::{BTreeMap, VecDeque};

/// Key of a consumer of a queue; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerKey(pub u64);

/// Options of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsumerRules {
    /// Consumers of the highest priority are served first.
    pub priority: i32,
    /// Most messages in flight; `None` if there is no limit.
    pub credit: Option<u32>,
    /// False if its messages are settled as they are delivered.
    pub settles: bool,
    /// True if no other consumer is allowed.
    pub exclusive: bool,
    /// True if it has no turns, as messages are chosen for it ([`Consumers::may_take`]).
    pub has_choice: bool,
}

/// The consumers of a queue.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent states of the list")]
pub struct Consumers {
    list: BTreeMap<ConsumerKey, Consumer>,
    /// Consumers that can take a message, by priority: the highest last.
    rings: BTreeMap<i32, VecDeque<ConsumerKey>>,
    last_key: u64,
    single_active: bool,
    active: Option<ConsumerKey>,
    /// True if the active consumer is replaced by one of a higher priority.
    yields: bool,
    /// True while the active consumer is being replaced: it keeps its messages and gets no more.
    giving_way: bool,
    /// True while no consumer gets messages.
    is_paused: bool,
}

#[derive(Debug, Clone, Copy)]
struct Consumer {
    rules: ConsumerRules,
    in_flight: u32,
    /// True while something outside of the queue keeps it from taking messages.
    blocked: bool,
    /// True if it is in a ring.
    listed: bool,
}

/// Reason why a consumer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerConflict {
    /// Another consumer is exclusive.
    ByExclusive,
    /// There are other consumers, so this one cannot be exclusive.
    ByOthers,
    /// There are as many filters as may be.
    ByFilters,
}

impl Consumer {
    fn can_take(&self) -> bool {
        !self.blocked && self.rules.credit.is_none_or(|credit| self.in_flight < credit)
    }

    fn has_turns(&self) -> bool {
        !self.rules.has_choice && self.can_take()
    }
}

impl Consumers {
    /// Creates an empty set. With `single_active`, one consumer gets all messages until it leaves.
    pub fn new(single_active: bool) -> Self {
        Self {
            single_active,
            ..Self::default()
        }
    }

    /// Sets whether the single active consumer is replaced by one of a higher priority, once it has settled
    /// its messages. Otherwise it stays active until it leaves.
    #[must_use]
    pub fn yielding(self, yields: bool) -> Self {
        Self { yields, ..self }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns true if there is a consumer that allows no others.
    pub fn is_exclusive(&self) -> bool {
        self.list.values().any(|consumer| consumer.rules.exclusive)
    }

    pub fn add(&mut self, rules: ConsumerRules) -> Result<ConsumerKey, ConsumerConflict> {
        if self.is_exclusive() {
            return Err(ConsumerConflict::ByExclusive);
        }
        if rules.exclusive && !self.list.is_empty() {
            return Err(ConsumerConflict::ByOthers);
        }
        self.last_key += 1;
        let key = ConsumerKey(self.last_key);
        let consumer = Consumer {
            rules,
            in_flight: 0,
            blocked: false,
            listed: false,
        };
        self.list.insert(key, consumer);
        if self.single_active {
            match self.active {
                None => self.active = Some(key),
                Some(active) if self.yields && self.priority(active) < Some(rules.priority) => {
                    self.giving_way = true;
                    self.take_off(active);
                    self.give_way();
                }
                Some(_) => {}
            }
        }
        self.list_again(key);
        Ok(key)
    }

    /// Removes a consumer; its messages stay in flight. Returns true if another consumer became active.
    pub fn remove(&mut self, key: ConsumerKey) -> bool {
        let Some(consumer) = self.list.remove(&key) else {
            return false;
        };
        if consumer.listed
            && let Some(ring) = self.rings.get_mut(&consumer.rules.priority)
        {
            ring.retain(|known| *known != key);
            if ring.is_empty() {
                self.rings.remove(&consumer.rules.priority);
            }
        }
        if self.active == Some(key) {
            self.choose();
            return self.active.is_some();
        }
        if let Some(active) = self.active.filter(|_| self.giving_way)
            && self.best() == Some(active)
        {
            // The consumer that was to replace it is gone.
            self.giving_way = false;
            self.list_again(active);
        }
        false
    }

    /// Returns the consumer that should be active. Keys ascend, so among equals it is the oldest.
    fn best(&self) -> Option<ConsumerKey> {
        let all = self.list.iter();
        let best = all.max_by_key(|(key, consumer)| (consumer.rules.priority, std::cmp::Reverse(**key)));
        best.map(|(key, _)| *key)
    }

    fn choose(&mut self) {
        self.giving_way = false;
        self.active = self.best();
        if let Some(active) = self.active {
            self.list_again(active);
        }
    }

    /// Replaces the active consumer if it is to be replaced and has nothing in flight.
    fn give_way(&mut self) {
        let active = self.active.and_then(|active| self.list.get(&active));
        if self.giving_way && active.is_none_or(|active| active.in_flight == 0) {
            self.choose();
        }
    }

    fn priority(&self, key: ConsumerKey) -> Option<i32> {
        self.list.get(&key).map(|consumer| consumer.rules.priority)
    }

    pub fn rules(&self, key: ConsumerKey) -> Option<ConsumerRules> {
        self.list.get(&key).map(|consumer| consumer.rules)
    }

    /// Returns the number of messages that a consumer has not settled yet.
    pub fn in_flight_of(&self, key: ConsumerKey) -> u32 {
        self.list.get(&key).map_or(0, |consumer| consumer.in_flight)
    }

    /// Returns the single active consumer; `None` without `single_active`.
    pub fn active(&self) -> Option<ConsumerKey> {
        self.active
    }

    /// Iterates over all consumers with their messages in flight, as counted against their credit.
    pub fn in_flight(&self) -> impl Iterator<Item = (ConsumerKey, u32)> {
        self.list.iter().map(|(key, consumer)| (*key, consumer.in_flight))
    }

    /// Pauses or resumes: while paused, no consumer can take a message.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns true if any consumer can take a message.
    pub fn any_ready(&self) -> bool {
        !self.is_paused && !self.rings.is_empty()
    }

    /// Returns true if `count` more messages would be taken as they come.
    pub fn can_take(&self, count: u64) -> bool {
        let mut left = count;
        if self.is_paused {
            return left == 0;
        }
        for key in self.rings.values().flatten() {
            let Some(consumer) = self.list.get(key) else {
                continue;
            };
            let Some(credit) = consumer.rules.credit else {
                return true;
            };
            left = left.saturating_sub(credit.saturating_sub(consumer.in_flight).into());
            if left == 0 {
                return true;
            }
        }
        left == 0
    }

    /// Returns the next consumer. It stays the next one until [`Self::gave`] or [`Self::block`].
    pub fn next(&self) -> Option<ConsumerKey> {
        let (_, ring) = self.rings.last_key_value().filter(|_| !self.is_paused)?;
        ring.front().copied()
    }

    /// Records a delivery to the next consumer.
    pub fn gave(&mut self, key: ConsumerKey) {
        let Some(consumer) = self.list.get_mut(&key) else {
            return;
        };
        if consumer.rules.settles {
            consumer.in_flight += 1;
        }
        let (priority, goes_on) = (consumer.rules.priority, consumer.has_turns());
        let Some(ring) = self.rings.get_mut(&priority) else {
            return;
        };
        if goes_on {
            if ring.len() > 1 && ring.front() == Some(&key) {
                ring.rotate_left(1);
            }
        } else {
            consumer.listed = false;
            ring.retain(|known| *known != key);
            if ring.is_empty() {
                self.rings.remove(&priority);
            }
        }
    }

    /// Records that a message of a consumer is no longer in flight.
    pub fn released(&mut self, key: ConsumerKey) {
        if let Some(consumer) = self.list.get_mut(&key) {
            consumer.in_flight = consumer.in_flight.saturating_sub(1);
            if !consumer.listed {
                self.list_again(key);
            }
            if self.giving_way {
                self.give_way();
            }
        }
    }

    /// Excludes a consumer for a reason outside of the queue.
    pub fn block(&mut self, key: ConsumerKey) {
        let Some(consumer) = self.list.get_mut(&key) else {
            return;
        };
        consumer.blocked = true;
        self.take_off(key);
    }

    /// Removes a consumer from its ring.
    fn take_off(&mut self, key: ConsumerKey) {
        if let Some(consumer) = self.list.get_mut(&key)
            && std::mem::take(&mut consumer.listed)
        {
            let priority = consumer.rules.priority;
            if let Some(ring) = self.rings.get_mut(&priority) {
                ring.retain(|known| *known != key);
                if ring.is_empty() {
                    self.rings.remove(&priority);
                }
            }
        }
    }

    /// Ends [`Self::block`]. Returns true if the consumer was blocked.
    pub fn unblock(&mut self, key: ConsumerKey) -> bool {
        let Some(consumer) = self.list.get_mut(&key) else {
            return false;
        };
        let was_blocked = std::mem::take(&mut consumer.blocked);
        if was_blocked {
            self.list_again(key);
        }
        was_blocked
    }

    /// Returns true if a consumer can take a chosen message.
    pub fn may_take(&self, key: ConsumerKey) -> bool {
        !self.is_paused && !self.is_passive(key) && self.list.get(&key).is_some_and(Consumer::can_take)
    }

    /// Returns true if another consumer gets all messages, or is about to.
    fn is_passive(&self, key: ConsumerKey) -> bool {
        self.single_active && (self.active != Some(key) || self.giving_way)
    }

    fn list_again(&mut self, key: ConsumerKey) {
        if self.is_passive(key) {
            return;
        }
        if let Some(consumer) = self.list.get_mut(&key)
            && !consumer.listed
            && consumer.has_turns()
        {
            consumer.listed = true;
            self.rings
                .entry(consumer.rules.priority)
                .or_default()
                .push_back(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(priority: i32, credit: Option<u32>) -> ConsumerRules {
        ConsumerRules {
            priority,
            credit,
            settles: true,
            ..ConsumerRules::default()
        }
    }

    fn give(consumers: &mut Consumers, count: usize) -> Vec<u64> {
        let mut got = Vec::new();
        for _ in 0..count {
            let Some(key) = consumers.next() else { break };
            consumers.gave(key);
            got.push(key.0);
        }
        got
    }

    #[test]
    fn equals_take_turns() {
        let mut consumers = Consumers::new(false);
        for _ in 0..3 {
            consumers.add(rules(0, None)).unwrap();
        }
        assert_eq!(give(&mut consumers, 7), [1, 2, 3, 1, 2, 3, 1]);
    }

    #[test]
    fn a_higher_priority_goes_first_as_far_as_its_credit_goes() {
        let mut consumers = Consumers::new(false);
        let low = consumers.add(rules(0, None)).unwrap();
        let high = consumers.add(rules(5, Some(2))).unwrap();
        assert_eq!(give(&mut consumers, 4), [high.0, high.0, low.0, low.0]);
        consumers.released(high);
        assert_eq!(give(&mut consumers, 2), [high.0, low.0]);
    }

    #[test]
    fn how_much_consumers_can_take_is_the_sum_of_their_credit() {
        let mut consumers = Consumers::new(false);
        assert!(consumers.can_take(0) && !consumers.can_take(1));
        let first = consumers.add(rules(0, Some(2))).unwrap();
        consumers.add(rules(1, Some(3))).unwrap();
        assert!(consumers.can_take(5) && !consumers.can_take(6));
        give(&mut consumers, 4);
        assert!(consumers.can_take(1) && !consumers.can_take(2));
        consumers.block(first);
        assert!(!consumers.can_take(1));
        consumers.add(rules(0, None)).unwrap();
        assert!(consumers.can_take(u64::MAX));
    }

    #[test]
    fn a_blocked_consumer_is_passed_over_until_it_is_not() {
        let mut consumers = Consumers::new(false);
        let first = consumers.add(rules(0, None)).unwrap();
        let second = consumers.add(rules(0, None)).unwrap();
        consumers.block(first);
        assert_eq!(give(&mut consumers, 2), [second.0, second.0]);
        assert!(consumers.unblock(first) && !consumers.unblock(first));
        assert_eq!(give(&mut consumers, 2), [second.0, first.0]);
        consumers.block(first);
        consumers.block(second);
        assert!(!consumers.any_ready());
    }

    #[test]
    fn the_single_active_consumer_has_all_until_it_goes() {
        let mut consumers = Consumers::new(true);
        let first = consumers.add(rules(0, Some(2))).unwrap();
        let second = consumers.add(rules(0, None)).unwrap();
        let third = consumers.add(rules(1, None)).unwrap();
        assert_eq!(
            give(&mut consumers, 5),
            [first.0, first.0],
            "its credit holds everybody"
        );
        assert!(!consumers.remove(second));
        assert!(consumers.remove(first));
        assert_eq!(consumers.active(), Some(third));
        assert_eq!(give(&mut consumers, 2), [third.0, third.0]);
        assert!(!consumers.remove(third));
        assert_eq!(consumers.next(), None);
    }

    #[test]
    fn the_active_consumer_gives_way_to_a_higher_priority_once_it_has_nothing_left() {
        let mut consumers = Consumers::new(true).yielding(true);
        let first = consumers.add(rules(0, None)).unwrap();
        assert_eq!(give(&mut consumers, 2), [first.0; 2]);
        let equal = consumers.add(rules(0, None)).unwrap();
        assert_eq!(give(&mut consumers, 1), [first.0], "an equal one waits");
        let high = consumers.add(rules(1, None)).unwrap();
        assert_eq!(give(&mut consumers, 1), [0; 0], "it settles first");
        consumers.released(first);
        consumers.released(first);
        assert_eq!(give(&mut consumers, 1), [0; 0]);
        consumers.released(first);
        assert_eq!(consumers.active(), Some(high));
        assert_eq!(give(&mut consumers, 1), [high.0]);
        let highest = consumers.add(rules(2, None)).unwrap();
        assert_eq!(consumers.active(), Some(high), "it has something");
        assert!(!consumers.remove(highest));
        assert_eq!(give(&mut consumers, 1), [high.0], "nobody is left to give way to");
        assert!(consumers.remove(high));
        assert_eq!(consumers.active(), Some(first));
        let idle = consumers.add(rules(7, None)).unwrap();
        assert_eq!(consumers.active(), Some(idle), "at once, as nothing is in flight");
        assert!(!consumers.remove(equal) && consumers.remove(idle));
        assert_eq!(give(&mut consumers, 1), [first.0]);
    }

    #[test]
    fn a_consumer_with_a_choice_has_no_turns() {
        let choosing = |credit| ConsumerRules {
            has_choice: true,
            ..rules(9, credit)
        };
        let mut consumers = Consumers::new(false);
        let chooses = consumers.add(choosing(Some(2))).unwrap();
        assert!(!consumers.any_ready() && !consumers.can_take(1));
        let other = consumers.add(rules(0, None)).unwrap();
        assert_eq!(give(&mut consumers, 2), [other.0; 2]);
        consumers.gave(chooses);
        assert!(consumers.may_take(chooses));
        consumers.gave(chooses);
        assert!(!consumers.may_take(chooses), "its credit is used up");
        consumers.released(chooses);
        assert!(consumers.may_take(chooses));
        consumers.block(chooses);
        assert!(!consumers.may_take(chooses) && consumers.unblock(chooses));
        consumers.set_paused(true);
        assert!(!consumers.may_take(chooses));
        consumers.set_paused(false);
        assert_eq!(give(&mut consumers, 2), [other.0; 2], "it is in no ring");

        let mut consumers = Consumers::new(true);
        let first = consumers.add(choosing(None)).unwrap();
        let second = consumers.add(choosing(None)).unwrap();
        assert!(consumers.may_take(first) && !consumers.may_take(second));
        consumers.remove(first);
        assert!(consumers.may_take(second));
    }

    #[test]
    fn an_exclusive_consumer_is_alone() {
        let mut consumers = Consumers::new(false);
        let alone = ConsumerRules {
            exclusive: true,
            ..rules(0, None)
        };
        let key = consumers.add(alone).unwrap();
        assert_eq!(consumers.add(rules(0, None)), Err(ConsumerConflict::ByExclusive));
        consumers.remove(key);
        consumers.add(rules(0, None)).unwrap();
        assert_eq!(consumers.add(alone), Err(ConsumerConflict::ByOthers));
    }
}
