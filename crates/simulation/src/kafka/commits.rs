//! Commits of group members, and the expected content of the groups.

use std::collections::{BTreeMap, BTreeSet};

use super::groups::STATIC_NAME;
use crate::ledger::LogKey;
use crate::world::Finding;

/// A partition in a group.
pub(super) type PlaceKey = (u8, LogKey);

/// Commits of one partition. Each offset is a number that is used once, so it identifies the commit.
#[derive(Debug, Clone, Default)]
struct Place {
    /// Highest commit that was acknowledged or seen.
    floor: u64,
    /// Acknowledged or seen commits.
    known: BTreeSet<u64>,
    /// Unanswered commits.
    maybe: BTreeSet<u64>,
    /// True if the deletion of the topic was requested.
    may_be_deleted: bool,
}

/// Commits of all groups, and their generations.
#[derive(Debug, Clone, Default)]
pub(super) struct Commits {
    places: BTreeMap<PlaceKey, Place>,
    last: u64,
    groups: BTreeMap<u8, Generations>,
}

/// Known generations of a group.
#[derive(Debug, Clone, Default)]
struct Generations {
    /// Highest generation in a join answer.
    joined: i32,
    /// Highest generation in a sync answer.
    given: i32,
    leaders: BTreeMap<i32, String>,
    /// Assignments by leaders, latest last. A repeated one has no effect once the generation has its
    /// assignment.
    shares: BTreeMap<i32, Vec<BTreeMap<String, String>>>,
}

impl Commits {
    /// Registers a new commit and returns its offset.
    pub(super) fn send(&mut self, key: PlaceKey) -> u64 {
        self.last += 1;
        self.places.entry(key).or_default().maybe.insert(self.last);
        self.last
    }

    pub(super) fn acknowledge(&mut self, key: PlaceKey, offset: u64) {
        let place = self.places.entry(key).or_default();
        // Only one member commits at a time, on one connection: earlier commits are overwritten.
        place.maybe = place.maybe.split_off(&offset);
        place.maybe.remove(&offset);
        place.known.insert(offset);
        place.floor = place.floor.max(offset);
    }

    pub(super) fn refuse(&mut self, key: PlaceKey, offset: u64) {
        self.places.entry(key).or_default().maybe.remove(&offset);
    }

    /// Returns the minimum offset that must be stored.
    pub(super) fn floor(&self, key: PlaceKey) -> u64 {
        self.places.get(&key).map_or(0, |place| place.floor)
    }

    /// Checks an offset that was read. `floor` is the minimum when the request was sent.
    pub(super) fn check(&mut self, key: PlaceKey, floor: u64, read: Option<u64>) -> Result<(), Finding> {
        let place = self.places.entry(key).or_default();
        let offset = read.unwrap_or(0);
        let is_sent = offset == 0 || place.known.contains(&offset) || place.maybe.contains(&offset);
        if offset < floor || !is_sent {
            return Err(Finding(format!(
                "group {} is at {read:?} of {:?}; {floor} was acknowledged, and {:?} may be there",
                key.0, key.1, place.maybe
            )));
        }
        if offset > 0 {
            place.known.insert(offset);
            place.floor = place.floor.max(offset);
        }
        Ok(())
    }

    /// Drops, after a start, commits that were not answered and are not stored. As in Kafka, a generation is
    /// stored once its leader has assigned the partitions.
    pub(super) fn forget(&mut self) {
        for place in self.places.values_mut() {
            place.maybe.clear();
        }
        for group in self.groups.values_mut() {
            let given = group.given;
            group.joined = given;
            group.leaders.retain(|generation, _| *generation <= given);
        }
    }

    /// Resets the generations of a group without commits: it may be gone with its last member, so its
    /// generations may start again or continue.
    pub(super) fn forget_group(&mut self, group: u8) {
        if let Some(group) = self.groups.get_mut(&group) {
            (group.joined, group.given) = (0, 0);
            group.leaders.clear();
        }
    }

    /// Records that the deletion of a topic was requested.
    pub(super) fn on_deletion(&mut self, topic: u8) {
        for (_, place) in self.places.iter_mut().filter(|((_, log), _)| log.topic == topic) {
            place.may_be_deleted = true;
        }
    }

    /// Returns true if the broker may forget the group once its last member has left: it has no commits.
    fn is_forgettable(&self, group: u8) -> bool {
        let places = self.places.iter().filter(|((of, _), _)| *of == group);
        places
            .into_iter()
            .all(|(_, place)| place.floor == 0 || place.may_be_deleted)
    }

    /// Returns the minimum generation of a member that joins now.
    pub(super) fn joined(&self, group: u8) -> i32 {
        self.groups.get(&group).map_or(0, |group| group.joined)
    }

    /// Returns the newest assigned generation. Members of earlier ones cannot commit.
    pub(super) fn given(&self, group: u8) -> i32 {
        self.groups.get(&group).map_or(0, |group| group.given)
    }

    /// Checks a join answer. `least` was [`Self::joined`] when the request was sent.
    pub(super) fn on_joined(
        &mut self,
        group: u8,
        generation: i32,
        least: i32,
        leader: &str,
    ) -> Result<(), Finding> {
        let starts_again = generation == 1 && self.is_forgettable(group);
        if starts_again {
            self.forget_group(group);
        }
        let known = self.groups.entry(group).or_default();
        if generation < least && !starts_again {
            return Err(Finding(format!(
                "group {group} was in generation {least} and is in {generation}"
            )));
        }
        known.joined = known.joined.max(generation);
        let leader = lasting(leader);
        let before = known.leaders.insert(generation, leader.to_owned());
        if before.as_ref().is_some_and(|before| before != leader) {
            return Err(Finding(format!(
                "generation {generation} of group {group} has leaders {before:?} and {leader}"
            )));
        }
        Ok(())
    }

    /// Records an assignment by a leader.
    pub(super) fn share(&mut self, group: u8, generation: i32, shares: BTreeMap<String, String>) {
        let shares = shares.into_iter();
        let shares = shares
            .map(|(member, share)| (lasting(&member).to_owned(), share))
            .collect();
        let known = self.groups.entry(group).or_default();
        known.shares.entry(generation).or_default().push(shares);
    }

    /// Checks a sync answer against the leaders' assignments.
    pub(super) fn on_given(
        &mut self,
        group: u8,
        generation: i32,
        member: &str,
        given: &str,
    ) -> Result<(), Finding> {
        let known = self.groups.entry(group).or_default();
        known.given = known.given.max(generation);
        let shares = known.shares.get(&generation).into_iter().flatten();
        if !shares
            .clone()
            .any(|all| all.get(lasting(member)).is_some_and(|share| share == given))
        {
            return Err(Finding(format!(
                "member {member} of generation {generation} of group {group} was given {given:?}; \
                 its leaders said {:?}",
                shares.collect::<Vec<_>>()
            )));
        }
        Ok(())
    }
}

/// Returns the name of a static member, whose ids begin with it, or the id of another one.
fn lasting(member: &str) -> &str {
    match member.split_once('-') {
        Some((name, _)) if name.starts_with(STATIC_NAME) => name,
        _ => member,
    }
}
