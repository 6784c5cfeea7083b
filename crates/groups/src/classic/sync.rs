//! Requests of members within a generation: sync, heartbeat, leave.

use std::sync::Arc;

use bytes::Bytes;
use stafett_store::NotStored;

use super::{ClassicGroup, Phase};
use crate::effects::{Effects, Store, WaiterId};
use crate::error::GroupError;
use crate::moment::Moment;
use crate::replies::{MemberId, SyncReply};

/// Request for a member's assignment. The leader's brings the assignments of all members.
#[derive(Debug, Clone)]
pub struct Sync {
    pub member: Box<str>,
    pub instance: Option<Box<str>>,
    pub generation: i32,
    /// Protocol type and strategy that the member assumes; `None` if the request does not say.
    pub purpose: Option<Box<str>>,
    pub strategy: Option<Box<str>>,
    /// Assignments by member; empty unless sent by the leader.
    pub assignments: Vec<(Box<str>, Bytes)>,
}

/// Request of a member to leave, or to remove a static member by its instance alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    pub member: Box<str>,
    pub instance: Option<Box<str>>,
}

impl ClassicGroup {
    /// Handles a sync. Answers `waiter`, now or when the leader's assignments are stored.
    pub fn sync(&mut self, sync: Sync, waiter: WaiterId, now: Moment, effects: &mut Effects) {
        if let Err(error) = self.try_sync(sync, waiter, now, effects) {
            effects.sync(waiter, Err(error));
        }
    }

    fn try_sync(
        &mut self,
        sync: Sync,
        waiter: WaiterId,
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
            Phase::Completing { until, is_storing } => {
                member.has_synced = true;
                if let Some(former) = member.syncing.replace(waiter) {
                    effects.sync(former, Err(GroupError::Rebalancing));
                }
                if is_leader && !is_storing {
                    self.assign(sync.assignments, until, effects);
                }
            }
            Phase::Stable { until } => {
                member.has_synced = true;
                member.heard = now;
                let synced = self.synced(&sync.member);
                effects.sync(waiter, Ok(synced));
                self.stabilise(until);
            }
        }
        Ok(())
    }

    /// Stores the leader's assignments. A member left out gets nothing.
    fn assign(&mut self, assignments: Vec<(Box<str>, Bytes)>, until: Moment, effects: &mut Effects) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
        }
        for (id, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&*id) {
                member.assignment = assignment;
            }
        }
        self.phase = Phase::Completing {
            until,
            is_storing: true,
        };
        effects.store = Store::Whole;
    }

    /// Returns the generation whose assignments are being stored.
    pub fn generation_in_storing(&self) -> Option<i32> {
        let is_storing = matches!(self.phase, Phase::Completing { is_storing: true, .. });
        is_storing.then_some(self.generation)
    }

    /// Handles the outcome of storing the assignments of a generation, and answers the waiting members. An
    /// assignment that is not stored is given to no member: its generation could come again after a restart.
    pub fn on_assigned(
        &mut self,
        generation: i32,
        outcome: Result<(), NotStored>,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Phase::Completing {
            until,
            is_storing: true,
        } = self.phase
        else {
            return;
        };
        if generation != self.generation {
            return;
        }
        let mut waiting = Vec::with_capacity(self.members.len());
        for (id, member) in &mut self.members {
            if let Some(waiter) = member.syncing.take() {
                member.heard = now;
                waiting.push((waiter, Arc::clone(id)));
            }
        }
        for (waiter, id) in waiting {
            let synced = outcome.map(|()| self.synced(&id));
            effects.sync(waiter, synced.map_err(GroupError::from));
        }
        match outcome {
            Ok(()) => self.stabilise(Some(until)),
            Err(_) => self.prepare(now, effects),
        }
    }

    /// Enters *Stable*, with a deadline if some members have not asked for their assignment.
    fn stabilise(&mut self, until: Option<Moment>) {
        let all_synced = self.members.values().all(|member| member.has_synced);
        self.phase = Phase::Stable {
            until: until.filter(|_| !all_synced),
        };
    }

    fn synced(&self, id: &str) -> SyncReply {
        SyncReply {
            purpose: self.purpose.clone(),
            strategy: self.strategy.clone(),
            assignment: self
                .members
                .get(id)
                .map(|member| member.assignment.clone())
                .unwrap_or_default(),
        }
    }

    /// Handles a heartbeat.
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

    /// Returns the answer that a heartbeat would get now, without counting as one.
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

    /// Removes members. Returns one result per entry of `leaves`.
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

    /// Begins a rebalance after members have left or ids that were given out have expired.
    pub(super) fn on_left(&mut self, now: Moment, effects: &mut Effects) {
        if !self.is_empty() {
            self.on_members_changed(now, effects);
        }
    }
}
