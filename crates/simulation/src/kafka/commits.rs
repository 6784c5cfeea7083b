//! What members of groups committed, what they were told, and what has to be there therefore.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::LogKey;
use crate::world::Finding;

/// A group's place in a log.
pub(super) type PlaceKey = (u8, LogKey);

/// Commits of one place. Their offsets are numbers that are used once, so that each says which commit it is.
#[derive(Debug, Default)]
struct Place {
    /// The highest that was acknowledged or seen.
    floor: u64,
    /// Acknowledged or seen.
    known: BTreeSet<u64>,
    /// Not answered.
    maybe: BTreeSet<u64>,
}

/// Commits of all groups, and their generations.
#[derive(Debug, Default)]
pub(super) struct Commits {
    places: BTreeMap<PlaceKey, Place>,
    last: u64,
    groups: BTreeMap<u8, Generations>,
}

/// What is known of a group's generations.
#[derive(Debug, Default)]
struct Generations {
    /// The highest that any member was told when it joined, and when it was given its partitions.
    joined: i32,
    given: i32,
    leaders: BTreeMap<i32, String>,
    /// What leaders gave to each member, the last one last: one that is asked again in a generation that has
    /// its shares already changes nothing.
    shares: BTreeMap<i32, Vec<BTreeMap<String, String>>>,
}

impl Commits {
    /// A new commit is sent; its offset.
    pub(super) fn send(&mut self, key: PlaceKey) -> u64 {
        self.last += 1;
        self.places.entry(key).or_default().maybe.insert(self.last);
        self.last
    }

    pub(super) fn acknowledge(&mut self, key: PlaceKey, offset: u64) {
        let place = self.places.entry(key).or_default();
        // Only one member commits at a time, each on one connection: what came before is over.
        place.maybe = place.maybe.split_off(&offset);
        place.maybe.remove(&offset);
        place.known.insert(offset);
        place.floor = place.floor.max(offset);
    }

    pub(super) fn refuse(&mut self, key: PlaceKey, offset: u64) {
        self.places.entry(key).or_default().maybe.remove(&offset);
    }

    /// What must be there at least.
    pub(super) fn floor(&self, key: PlaceKey) -> u64 {
        self.places.get(&key).map_or(0, |place| place.floor)
    }

    /// Something was read; `floor` is what had to be there when it was asked for.
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

    /// After a start: what was not answered and is not there will never be. A generation is stored once its
    /// leader has said who gets what, as in Kafka.
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

    /// A group that has committed nothing may be gone with its last member: its generations may begin anew,
    /// or go on.
    pub(super) fn forget_group(&mut self, group: u8) {
        if let Some(group) = self.groups.get_mut(&group) {
            (group.joined, group.given) = (0, 0);
            group.leaders.clear();
        }
    }

    /// The generation that a member that joins now comes into at least.
    pub(super) fn joined(&self, group: u8) -> i32 {
        self.groups.get(&group).map_or(0, |group| group.joined)
    }

    /// The generation in which a member has its partitions now; members of earlier ones cannot commit.
    pub(super) fn given(&self, group: u8) -> i32 {
        self.groups.get(&group).map_or(0, |group| group.given)
    }

    /// A member was told that it has joined; `least` is what [`Self::joined`] was when it asked.
    pub(super) fn on_joined(
        &mut self,
        group: u8,
        generation: i32,
        least: i32,
        leader: &str,
    ) -> Result<(), Finding> {
        let known = self.groups.entry(group).or_default();
        if generation < least {
            return Err(Finding(format!(
                "group {group} was in generation {least} and is in {generation}"
            )));
        }
        known.joined = known.joined.max(generation);
        let before = known.leaders.insert(generation, leader.to_owned());
        if before.as_ref().is_some_and(|before| before != leader) {
            return Err(Finding(format!(
                "generation {generation} of group {group} has leaders {before:?} and {leader}"
            )));
        }
        Ok(())
    }

    /// A leader says who gets what.
    pub(super) fn share(&mut self, group: u8, generation: i32, shares: BTreeMap<String, String>) {
        let known = self.groups.entry(group).or_default();
        known.shares.entry(generation).or_default().push(shares);
    }

    /// A member was given its partitions.
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
            .any(|all| all.get(member).is_some_and(|share| share == given))
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
