//! What members do within a generation: ask for what they get, say that they are there, leave.

use std::sync::Arc;

use bytes::Bytes;

use super::super::effects::{Effects, Store, Wait};
use super::super::error::GroupError;
use super::super::moment::Moment;
use super::{ClassicGroup, MemberId, Phase};

/// A member asks for what it gets. The leader says what everybody gets.
#[derive(Debug, Clone)]
pub struct Sync {
    pub member: Box<str>,
    pub instance: Option<Box<str>>,
    pub generation: i32,
    /// What the member believes the group to be there for, and to agree by.
    pub purpose: Option<Box<str>>,
    pub strategy: Option<Box<str>>,
    /// By member, from the leader.
    pub assignments: Vec<(Box<str>, Bytes)>,
}

/// What a member gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    pub purpose: Option<Box<str>>,
    pub strategy: Option<Box<str>>,
    pub assignment: Bytes,
}

/// A member leaves, or is sent away by its instance alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    pub member: Box<str>,
    pub instance: Option<Box<str>>,
}

impl ClassicGroup {
    /// Answers `wait`, now or when the leader has decided.
    pub fn sync(&mut self, sync: Sync, wait: Wait, now: Moment, effects: &mut Effects) {
        if let Err(error) = self.try_sync(sync, wait, now, effects) {
            effects.sync(wait, Err(error));
        }
    }

    fn try_sync(
        &mut self,
        sync: Sync,
        wait: Wait,
        now: Moment,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        self.check_member(&sync.member, sync.instance.as_deref())?;
        self.check_generation(sync.generation)?;
        let differs =
            |believed: &Option<Box<str>>, real: &Option<Box<str>>| believed.is_some() && believed != real;
        if differs(&sync.purpose, &self.purpose) || differs(&sync.strategy, &self.strategy) {
            return Err(GroupError::NoCommonStrategy);
        }
        let is_leader = self.leader.as_deref() == Some(&*sync.member);
        let phase = self.phase;
        let member = self
            .members
            .get_mut(&*sync.member)
            .ok_or(GroupError::UnknownMember)?;
        match phase {
            Phase::Empty => return Err(GroupError::UnknownMember),
            Phase::Gathering { .. } | Phase::Preparing { .. } => return Err(GroupError::Rebalancing),
            Phase::Completing { until } => {
                member.has_synced = true;
                if let Some(former) = member.syncing.replace(wait) {
                    effects.sync(former, Err(GroupError::Rebalancing));
                }
                if is_leader {
                    self.assign(sync.assignments, until, now, effects);
                }
            }
            Phase::Stable { until } => {
                member.has_synced = true;
                member.heard = now;
                let synced = self.synced(&sync.member);
                effects.sync(wait, Ok(synced));
                self.stabilise(until);
            }
        }
        Ok(())
    }

    /// The leader has decided. Who was given nothing by it gets nothing.
    fn assign(
        &mut self,
        assignments: Vec<(Box<str>, Bytes)>,
        until: Moment,
        now: Moment,
        effects: &mut Effects,
    ) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
        }
        for (id, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&*id) {
                member.assignment = assignment;
            }
        }
        let mut waiting = Vec::with_capacity(self.members.len());
        for (id, member) in &mut self.members {
            if let Some(wait) = member.syncing.take() {
                member.heard = now;
                waiting.push((wait, Arc::clone(id)));
            }
        }
        for (wait, id) in waiting {
            let synced = self.synced(&id);
            effects.sync(wait, Ok(synced));
        }
        self.stabilise(Some(until));
        effects.store = Store::Whole;
    }

    /// Stable: with a time until which those have to ask that have not.
    fn stabilise(&mut self, until: Option<Moment>) {
        let all_synced = self.members.values().all(|member| member.has_synced);
        self.phase = Phase::Stable {
            until: until.filter(|_| !all_synced),
        };
    }

    fn synced(&self, id: &str) -> Synced {
        Synced {
            purpose: self.purpose.clone(),
            strategy: self.strategy.clone(),
            assignment: self
                .members
                .get(id)
                .map(|member| member.assignment.clone())
                .unwrap_or_default(),
        }
    }

    /// A member says that it is there.
    pub fn heartbeat(
        &mut self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
        now: Moment,
    ) -> Result<(), GroupError> {
        self.check_member(member, instance)?;
        self.check_generation(generation)?;
        self.on_sign_of_life(member, now);
        self.check_agreed()
    }

    /// What a member that is there would hear, without its saying so.
    pub fn check_alive(
        &self,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        self.check_member(member, instance)?;
        self.check_generation(generation)?;
        self.check_agreed()
    }

    fn check_agreed(&self) -> Result<(), GroupError> {
        match self.phase {
            Phase::Empty => Err(GroupError::UnknownMember),
            Phase::Gathering { .. } | Phase::Preparing { .. } => Err(GroupError::Rebalancing),
            Phase::Completing { .. } | Phase::Stable { .. } => Ok(()),
        }
    }

    /// Members leave. Gives for each whether it did.
    pub fn leave(
        &mut self,
        leaves: &[Leave],
        now: Moment,
        effects: &mut Effects,
    ) -> Vec<Result<(), GroupError>> {
        let mut has_left = false;
        let results = leaves
            .iter()
            .map(|leave| {
                if self.pending.remove(&*leave.member).is_some() {
                    has_left = true;
                    return Ok(());
                }
                let id = self.leaving(leave)?;
                has_left |= self.remove_member(&id, effects);
                Ok(())
            })
            .collect();
        if has_left {
            self.on_left(now, effects);
        }
        results
    }

    fn leaving(&self, leave: &Leave) -> Result<MemberId, GroupError> {
        match &leave.instance {
            Some(instance) if leave.member.is_empty() => self
                .instances
                .get(instance)
                .cloned()
                .ok_or(GroupError::UnknownMember),
            instance => {
                self.check_member(&leave.member, instance.as_deref())?;
                Ok(Arc::from(&*leave.member))
            }
        }
    }

    /// Members have left, or ids that were given out are no longer waited for.
    pub(super) fn on_left(&mut self, now: Moment, effects: &mut Effects) {
        if !self.is_empty() {
            self.on_members_changed(now, effects);
        }
    }
}
