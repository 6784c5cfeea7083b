//! Joining: into *Preparing*, and from there into the next generation.

use std::sync::Arc;

use bytes::Bytes;

use super::member::Member;
use super::{ClassicGroup, Phase};
use crate::effects::{Effects, Store, WaiterId};
use crate::error::GroupError;
use crate::moment::Moment;
use crate::replies::{JoinError, JoinReply, JoinedMember, MemberId};
use crate::strategy::Strategy;

/// Request to become a member of the next generation.
#[derive(Debug, Clone)]
pub struct Join {
    /// Member id; empty if it has none yet.
    pub member: Box<str>,
    /// Id for the member if it has none. Never used before.
    pub new_id: MemberId,
    pub instance: Option<Box<str>>,
    pub client_id: Box<str>,
    pub client_host: Box<str>,
    pub purpose: Box<str>,
    pub strategies: Vec<Strategy>,
    pub session_ms: u32,
    pub rebalance_ms: u32,
    /// True if a dynamic member without an id only gets one, and has to join again with it.
    pub must_know_id: bool,
    /// True if the client understands [`JoinReply::skip_assignment`].
    pub may_skip_assignment: bool,
}

/// Bounds of a group.
#[derive(Debug, Clone, Copy)]
pub struct JoinLimits {
    pub members_max: usize,
    /// Initial delay of the first generation, for more members to join.
    pub initial_delay_ms: u32,
}

impl ClassicGroup {
    /// Joins a member. Answers `waiter`, now or when the next generation begins.
    pub fn join(
        &mut self,
        join: Join,
        waiter: WaiterId,
        now: Moment,
        limits: &JoinLimits,
        effects: &mut Effects,
    ) {
        let id = join.member.clone();
        if let Err(error) = self.try_join(join, waiter, now, limits, effects) {
            let member = if error == GroupError::Full {
                Arc::default()
            } else {
                id.into()
            };
            effects.join(waiter, Err(JoinError { error, member }));
        }
    }

    fn try_join(
        &mut self,
        join: Join,
        waiter: WaiterId,
        now: Moment,
        limits: &JoinLimits,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        if !self.has_room(&join, limits) {
            if self.remove_member(&join.member, effects) {
                self.on_left(now, effects);
            }
            return Err(GroupError::Full);
        }
        if !self.has_strategy_for(&join) {
            return Err(GroupError::NoCommonStrategy);
        }
        if join.member.is_empty() {
            let id = Arc::clone(&join.new_id);
            let former = join
                .instance
                .as_ref()
                .and_then(|it| self.instances.get(it))
                .cloned();
            if let Some(former) = former {
                self.replace(&former, id, join, waiter, now, effects);
            } else if join.must_know_id && join.instance.is_none() {
                self.pending.insert(Arc::clone(&id), now.after(join.session_ms));
                let error = GroupError::MemberIdRequired;
                effects.join(waiter, Err(JoinError { error, member: id }));
            } else {
                self.add(id, join, waiter, now, limits, effects);
            }
            return Ok(());
        }
        if let Some((id, _)) = self.pending.remove_entry(&*join.member) {
            if join.instance.is_some() {
                return Err(GroupError::UnknownMember);
            }
            self.add(id, join, waiter, now, limits, effects);
            return Ok(());
        }
        self.check_member(&join.member, join.instance.as_deref())?;
        self.rejoin(join, waiter, now, effects);
        Ok(())
    }

    /// Returns true if the member may join. A known one may, unless the group filled up before it rejoined.
    fn has_room(&self, join: &Join, limits: &JoinLimits) -> bool {
        // Ids given out ahead do not count as members, but are bounded too.
        if join.member.is_empty() && self.pending.len() >= limits.members_max {
            return false;
        }
        let known = self.members.get(&*join.member);
        match self.phase {
            Phase::Empty => true,
            Phase::Gathering { .. } | Phase::Preparing { .. } => {
                let joining = self.members.values().filter(|member| member.joining.is_some());
                known.is_some_and(|member| member.joining.is_some()) || joining.count() < limits.members_max
            }
            Phase::Completing { .. } | Phase::Stable { .. } => {
                known.is_some() || self.members.len() < limits.members_max
            }
        }
    }

    fn has_strategy_for(&self, join: &Join) -> bool {
        if self.is_empty() {
            return !join.purpose.is_empty() && !join.strategies.is_empty();
        }
        let is_common =
            |strategy: &Strategy| self.members.values().all(|member| member.knows(&strategy.name));
        self.purpose.as_ref() == Some(&join.purpose) && join.strategies.iter().any(is_common)
    }

    fn add(
        &mut self,
        id: MemberId,
        join: Join,
        waiter: WaiterId,
        now: Moment,
        limits: &JoinLimits,
        effects: &mut Effects,
    ) {
        if self.members.is_empty() {
            self.purpose = Some(join.purpose);
        }
        if let Some(instance) = &join.instance {
            self.instances.insert(instance.clone(), Arc::clone(&id));
        }
        if self.leader.is_none() {
            self.leader = Some(Arc::clone(&id));
        }
        let member = Member {
            instance: join.instance,
            client_id: join.client_id,
            client_host: join.client_host,
            session_ms: join.session_ms,
            rebalance_ms: join.rebalance_ms,
            strategies: join.strategies,
            assignment: Bytes::new(),
            heard: now,
            is_new: true,
            joining: Some(waiter),
            syncing: None,
            has_synced: false,
        };
        self.members.insert(id, member);
        match &mut self.phase {
            Phase::Empty if limits.initial_delay_ms > 0 => {
                effects.rebalances += 1;
                let delay_ms = limits.initial_delay_ms.min(self.rebalance_ms());
                self.phase = Phase::Gathering {
                    until: now.after(delay_ms),
                    end: now.after(self.rebalance_ms()),
                    delay_ms,
                    has_new: false,
                };
            }
            Phase::Gathering { has_new, .. } => *has_new = true,
            Phase::Empty | Phase::Preparing { .. } | Phase::Completing { .. } | Phase::Stable { .. } => {
                self.on_members_changed(now, effects);
            }
        }
    }

    /// Handles a repeated join.
    fn rejoin(&mut self, join: Join, waiter: WaiterId, now: Moment, effects: &mut Effects) {
        let is_leader = self.leader.as_deref() == Some(&*join.member);
        let Some((id, member)) = self.members.get_key_value(&*join.member) else {
            return;
        };
        let id = Arc::clone(id);
        let is_same = member.strategies == join.strategies;
        let has_missed = match self.phase {
            Phase::Empty | Phase::Gathering { .. } | Phase::Preparing { .. } => false,
            Phase::Completing { .. } => is_same,
            // A leader joins again because it has seen a change.
            Phase::Stable { .. } => is_same && !is_leader,
        };
        if has_missed {
            // The answer to its join was lost.
            self.on_sign_of_life(&id, now);
            let joined = self.joined(id, is_leader);
            effects.join(waiter, Ok(joined));
        } else {
            self.update(&id, join, Some(waiter), now, effects);
            self.on_members_changed(now, effects);
        }
    }

    /// Updates the member from its join request.
    fn update(&mut self, id: &str, join: Join, waiter: Option<WaiterId>, now: Moment, effects: &mut Effects) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        member.strategies = join.strategies;
        member.session_ms = join.session_ms;
        member.rebalance_ms = join.rebalance_ms;
        member.client_id = join.client_id;
        member.client_host = join.client_host;
        member.heard = now;
        let former = std::mem::replace(&mut member.joining, waiter);
        if let Some(former) = former {
            // Only the latest of a member's requests waits for an answer.
            let error = GroupError::Rebalancing;
            effects.join(
                former,
                Err(JoinError {
                    error,
                    member: id.into(),
                }),
            );
        }
    }

    /// Replaces a static member that comes back without its id: the new id takes its place.
    fn replace(
        &mut self,
        former: &str,
        id: MemberId,
        join: Join,
        waiter: WaiterId,
        now: Moment,
        effects: &mut Effects,
    ) {
        let Some(mut member) = self.members.remove(former) else {
            return;
        };
        let fenced = GroupError::FencedInstance;
        if let Some(waiter) = member.joining.take() {
            let (error, member) = (fenced.clone(), Arc::from(former));
            effects.join(waiter, Err(JoinError { error, member }));
        }
        if let Some(waiter) = member.syncing.take() {
            effects.sync(waiter, Err(fenced));
        }
        let leader_before = self.leader.clone();
        let is_leader = self.leader.as_deref() == Some(former);
        if is_leader {
            self.leader = Some(Arc::clone(&id));
        }
        if let Some(instance) = &member.instance {
            self.instances.insert(instance.clone(), Arc::clone(&id));
        }
        self.members.insert(Arc::clone(&id), member);
        let may_skip = join.may_skip_assignment;
        self.update(&id, join, Some(waiter), now, effects);
        if !self.is_stable() || self.vote() != self.strategy {
            // In Completing too: the leader may be assigning to the former id.
            self.on_members_changed(now, effects);
            return;
        }
        if let Some(member) = self.members.get_mut(&id) {
            member.joining = None;
        }
        let mut joined = self.joined(id, is_leader && may_skip);
        joined.skip_assignment = is_leader && may_skip;
        if !may_skip && let Some(leader) = leader_before {
            // A client that cannot skip the assignment must not learn that it leads.
            joined.leader = leader;
        }
        effects.join(waiter, Ok(joined));
        effects.store = Store::Whole;
    }

    /// Returns the answer to a member of the generation.
    fn joined(&self, id: MemberId, with_members: bool) -> JoinReply {
        let leader = self.leader.clone().unwrap_or_default();
        let view = |member: super::MemberView<'_>| JoinedMember {
            id: Arc::clone(member.id),
            instance: member.instance.map(Into::into),
            metadata: member.metadata,
        };
        let members = if with_members {
            self.members().map(view).collect()
        } else {
            Vec::new()
        };
        JoinReply {
            member: id,
            generation: self.generation,
            purpose: self.purpose.clone(),
            strategy: self.strategy.clone(),
            leader,
            members,
            skip_assignment: false,
        }
    }

    /// Asks all members to join.
    pub(super) fn prepare(&mut self, now: Moment, effects: &mut Effects) {
        effects.rebalances += 1;
        if matches!(self.phase, Phase::Completing { .. }) {
            for member in self.members.values_mut() {
                member.assignment = Bytes::new();
                if let Some(waiter) = member.syncing.take() {
                    member.heard = now;
                    effects.sync(waiter, Err(GroupError::Rebalancing));
                }
            }
        }
        self.phase = Phase::Preparing {
            until: now.after(self.rebalance_ms()),
        };
        self.complete_if_all_joined(now, effects);
    }

    pub(super) fn complete_if_all_joined(&mut self, now: Moment, effects: &mut Effects) {
        let is_preparing = matches!(self.phase, Phase::Preparing { .. });
        let all_joined = || self.members.values().all(|member| member.joining.is_some());
        if is_preparing && self.pending.is_empty() && all_joined() {
            self.complete(now, effects);
        }
    }

    /// Begins the next generation, with the members that have joined and the static ones whose session lasts.
    pub(super) fn complete(&mut self, now: Moment, effects: &mut Effects) {
        let is_gone = |member: &Member| member.joining.is_none() && member.instance.is_none();
        let gone: Vec<_> = self
            .members
            .iter()
            .filter(|(_, member)| is_gone(member))
            .map(|(id, _)| Arc::clone(id))
            .collect();
        for id in gone {
            self.remove_member(&id, effects);
        }
        let has_joined = |id: &MemberId| {
            self.members
                .get(id)
                .is_some_and(|member| member.joining.is_some())
        };
        if !self.leader.as_ref().is_some_and(has_joined) && !self.members.is_empty() {
            let Some(joined) = self.members.keys().find(|id| has_joined(id)) else {
                // Only static members are left, none of which has rejoined: their session timeouts decide.
                self.phase = Phase::Preparing {
                    until: now.after(self.rebalance_ms()),
                };
                return;
            };
            self.leader = Some(Arc::clone(joined));
        }
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        if self.members.is_empty() {
            self.strategy = None;
            self.leader = None;
            self.phase = Phase::Empty;
            effects.store = Store::Whole;
            return;
        }
        self.strategy = self.vote();
        self.phase = Phase::Completing {
            until: now.after(self.rebalance_ms()),
            is_storing: false,
        };
        let mut waiting = Vec::with_capacity(self.members.len());
        for (id, member) in &mut self.members {
            member.heard = now;
            member.is_new = false;
            member.has_synced = false;
            if let Some(waiter) = member.joining.take() {
                waiting.push((waiter, Arc::clone(id)));
            }
        }
        for (waiter, id) in waiting {
            let is_leader = self.leader.as_ref() == Some(&id);
            let joined = self.joined(id, is_leader);
            effects.join(waiter, Ok(joined));
        }
    }

    /// Elects the strategy that most members prefer, among those that all of them know. On a tie, the
    /// leader's order decides.
    fn vote(&self) -> Option<Box<str>> {
        let judge = self
            .leader
            .as_ref()
            .and_then(|leader| self.members.get(leader))
            .or_else(|| self.members.values().next())?;
        let candidates: Vec<&str> = judge
            .strategies
            .iter()
            .map(|strategy| &*strategy.name)
            .filter(|name| self.members.values().all(|member| member.knows(name)))
            .collect();
        let mut votes = vec![0_usize; candidates.len()];
        for member in self.members.values() {
            let choice = member
                .strategies
                .iter()
                .find_map(|strategy| candidates.iter().position(|name| *name == &*strategy.name));
            if let Some(votes) = choice.and_then(|choice| votes.get_mut(choice)) {
                *votes += 1;
            }
        }
        let most = votes.iter().copied().max()?;
        let winner = votes.iter().position(|count| *count == most)?;
        candidates.get(winner).map(|name| Box::from(*name))
    }
}
