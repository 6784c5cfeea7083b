//! Classic members in a group whose partitions the broker assigns: the means by which a running group moves
//! from one protocol to the other and back.
//!
//! Such a member states its subscription and partitions when it joins, gets its epoch as the generation, and
//! syncs with that for its assignment. It takes each step by joining again, as the answer to a heartbeat
//! tells it.

use std::sync::Arc;

use stafett_topics::TopicSource;

use crate::consumer::member::UnstoredParts;
use crate::consumer::{
    Classic, ConsumerGroup, EPOCH_JOIN, EPOCH_LEAVE, EPOCH_LEAVE_STATIC, Heartbeat, HeartbeatError,
    HeartbeatReply, Member, MemberState, OwnedPartition, OwnedPartitions, Partitions, Rules, Subscription,
};
use crate::error::GroupError;

/// A classic member that joins, or is taken over from a classic group.
#[derive(Debug, Clone)]
pub struct ClassicMember {
    pub id: Box<str>,
    pub instance: Option<Box<str>>,
    pub client_id: Box<str>,
    pub host: Box<str>,
    pub rebalance_ms: u32,
    pub classic: Classic,
    pub names: Vec<Box<str>>,
    /// Partitions that it owns.
    pub owned: Partitions,
}

impl ConsumerGroup {
    /// Takes over the members of a classic group in this generation.
    pub fn take_over(
        &mut self,
        generation: i32,
        members: Vec<ClassicMember>,
        source: &dyn TopicSource,
        rules: &Rules,
        now_ms: u64,
    ) {
        self.follow_topics(source);
        self.epoch = generation;
        self.target_epoch = generation;
        for member in members {
            let Ok(interest) = self.interest(Subscription::new(member.names, None)) else {
                continue;
            };
            if let Some(known) = self.interests.get_mut(&interest)
                && known.members == 0
            {
                known.resolve(source);
            }
            // A partition claimed by two members stays with the first.
            let owned: Partitions = member
                .owned
                .as_slice()
                .iter()
                .copied()
                .filter(|one| !self.is_held(*one))
                .collect();
            let held = owned.as_slice().iter().map(|partition| OwnedPartition {
                partition: *partition,
                since: generation,
            });
            self.insert(Member {
                id: member.id,
                instance: member.instance,
                client_id: member.client_id,
                host: member.host,
                rebalance_timeout_ms: member.rebalance_ms,
                epoch: generation,
                previous_epoch: generation,
                assigned: held.collect::<OwnedPartitions>(),
                target: Arc::new(owned),
                interest,
                classic: Some(member.classic),
                ..Member::empty(now_ms)
            });
        }
        self.topics_differ();
        self.find_deadline(rules);
    }

    /// Handles the join of a classic member, first or repeated. Returns its generation.
    pub fn join_classic(
        &mut self,
        member: ClassicMember,
        source: &dyn TopicSource,
        rules: &Rules,
        now_ms: u64,
    ) -> Result<i32, HeartbeatError> {
        let ClassicMember { id, classic, .. } = member;
        if let Some(instance) = &member.instance
            && let Some(owner) = self.instances.get(instance).filter(|owner| **owner != id)
            && let Some(owner) = self.members.get_mut(owner)
        {
            // In the classic protocol, the last member to join under an instance name owns it.
            owner.epoch = EPOCH_LEAVE_STATIC;
            owner.state = MemberState::Stable;
        }
        let known = self.members.get(&id);
        let beat = Heartbeat {
            member: id.clone(),
            epoch: known.map_or(EPOCH_JOIN, |known| known.epoch),
            instance: member.instance,
            client_id: member.client_id,
            host: member.host,
            rebalance_timeout_ms: Some(member.rebalance_ms),
            names: Some(member.names),
            pattern: Some("".into()),
            owned: Some(member.owned),
            ..Heartbeat::default()
        };
        let reply = self.heartbeat(beat, source, rules, now_ms)?;
        if let Some(member) = self.members.get_mut(&id) {
            if member.state != MemberState::Unrevoked {
                member.revoke_by_ms = None;
            }
            if member.classic.as_ref() != Some(&classic) {
                member.classic = Some(classic);
                self.on_changed(
                    &id,
                    UnstoredParts {
                        description: true,
                        ..UnstoredParts::default()
                    },
                );
            }
        }
        self.wake_for(&id, rules);
        Ok(reply.epoch)
    }

    /// Handles the heartbeat of a classic member. Fails with `Rebalancing` if it has to join again.
    pub fn heartbeat_classic(
        &mut self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
        rules: &Rules,
        now_ms: u64,
    ) -> Result<(), GroupError> {
        let member = self.known_classic(id, instance, generation)?;
        let is_behind = member.epoch < self.epoch;
        let can_take = member.state == MemberState::Unreleased && {
            let missing = member.assigned.against(&member.target).missing;
            missing.iter().all(|partition| !self.is_held(*partition))
        };
        let must_join = is_behind || can_take || member.state == MemberState::Unrevoked;
        if let Some(member) = self.members.get_mut(id) {
            member.seen_ms = now_ms;
            if must_join {
                let by = now_ms.saturating_add(u64::from(member.rebalance_timeout_ms));
                member.revoke_by_ms.get_or_insert(by);
            }
        }
        self.wake_for(id, rules);
        if must_join {
            Err(GroupError::Rebalancing)
        } else {
            Ok(())
        }
    }

    /// Returns the partitions that a classic member may consume in its generation.
    pub fn sync_classic(
        &self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<Partitions, GroupError> {
        let member = self.known_classic(id, instance, generation)?;
        if member.epoch < self.epoch && member.state != MemberState::Unrevoked {
            return Err(GroupError::Rebalancing);
        }
        Ok(member.assigned.partitions())
    }

    /// Removes a member of either protocol, by its id, or by its instance if the id is empty.
    pub fn leave_classic(&mut self, id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        let id: Box<str> = match instance {
            Some(instance) if id.is_empty() => {
                let owner = self.instances.get(instance);
                owner.cloned().ok_or(GroupError::UnknownMember)?
            }
            Some(_) | None => id.into(),
        };
        let beat = Heartbeat {
            member: id,
            epoch: EPOCH_LEAVE,
            instance: instance.map(Into::into),
            ..Heartbeat::default()
        };
        match self.leave(&beat) {
            Ok(HeartbeatReply { .. }) => Ok(()),
            Err(HeartbeatError::FencedInstance { .. }) => Err(GroupError::FencedInstance),
            Err(_) => Err(GroupError::UnknownMember),
        }
    }

    /// Returns true if the group has members, all of them classic.
    pub fn is_all_classic(&self) -> bool {
        !self.is_empty() && self.members().all(|member| member.classic.is_some())
    }

    fn known_classic(
        &self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<&Member, GroupError> {
        if let Some(instance) = instance {
            let owner = self.instances.get(instance).ok_or(GroupError::UnknownMember)?;
            if **owner != *id {
                return Err(GroupError::FencedInstance);
            }
        }
        let member = self
            .member(id)
            .filter(|member| member.classic.is_some())
            .ok_or(GroupError::UnknownMember)?;
        if member.epoch == generation {
            Ok(member)
        } else {
            Err(GroupError::OtherGeneration)
        }
    }
}
