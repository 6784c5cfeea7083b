//! Groups that move from the classic protocol to that of consumer groups, and back, while they run.
//!
//! A classic group becomes a consumer group when the first member of the new protocol joins, if its members
//! use a known [`MemberProtocol`]. They stay members, and are told to join again. When the last member of the
//! new protocol has left, the group becomes classic again and asks all members to join. [`Migration`] sets
//! the allowed directions.

mod classic_members;
mod conversion;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use stafett_topics::Topics;

use crate::classic::{ClassicGroup, Join, Leave, Sync};
use crate::consumer::{Classic, HeartbeatError, Member, OwnedPartitions, Partition, Partitions};
use crate::effects::{Effects, Store, WaiterId};
use crate::error::GroupError;
use crate::group::{Group, GroupKind, GroupProtocol};
use crate::member_protocol::TopicPartitions;
use crate::moment::Moment;
use crate::registry::Groups;
use crate::replies::{JoinError, JoinReply, SyncReply};
use crate::stored_consumer_group::StoredConsumerGroup;

pub(crate) use classic_members::ClassicMember;

impl Groups {
    /// Makes a consumer group of a classic one with members.
    pub(crate) fn upgrade(
        &self,
        group: &mut Group,
        now: Moment,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let GroupKind::Classic(classic) = &mut group.kind else {
            return Ok(());
        };
        let protocol = self.member_protocol.as_deref().ok_or(GroupError::OtherKind)?;
        if !self.settings.migration.upgrades() {
            tracing::info!(group = %group.name, "a classic group may not become a consumer group, as set");
            return Err(GroupError::OtherKind);
        }
        if classic.purpose() != Some(protocol.purpose()) {
            return Err(GroupError::OtherKind);
        }
        let members: Option<Vec<_>> = classic
            .member_entries()
            .map(|(id, member)| {
                let assignment = member.assignment.clone();
                let owned = if assignment.is_empty() {
                    Vec::new()
                } else {
                    protocol.read_assignment(&assignment)?
                };
                let metadata = protocol.read_member(&member.strategies.first()?.metadata)?;
                Some(ClassicMember {
                    id: (&**id).into(),
                    instance: member.instance.clone(),
                    client_id: member.client_id.clone(),
                    host: member.client_host.clone(),
                    rebalance_ms: member.rebalance_ms,
                    classic: Classic {
                        purpose: protocol.purpose().into(),
                        session_ms: member.session_ms,
                        strategies: member.strategies.clone(),
                    },
                    names: metadata.names,
                    owned: known(&self.topics, &owned),
                })
            })
            .collect();
        let members = members.ok_or(GroupError::OtherKind)?;
        if members.len() > self.settings.consumer.members_max {
            return Err(GroupError::Full);
        }
        let generation = classic.generation();
        classic.dismiss_members(effects);
        let mut kind = StoredConsumerGroup::new(self.rules(&group.name, GroupProtocol::Consumer));
        kind.take_over(generation, members, &*self.topics, now);
        group.kind = GroupKind::Consumer(Box::new(kind));
        tracing::info!(group = %group.name, generation, "a classic group is a consumer group now");
        Ok(())
    }

    /// Handles the join of a classic member in a consumer group.
    pub(crate) fn join_consumer_group(
        &self,
        kind: &mut StoredConsumerGroup,
        join: Join,
        waiter: WaiterId,
        now: Moment,
        effects: &mut Effects,
    ) {
        let is_new = join.member.is_empty();
        let id = if is_new {
            join.new_id.clone()
        } else {
            join.member.as_ref().into()
        };
        let strategy = join.strategies.first().map(|strategy| strategy.name.clone());
        let purpose = join.purpose.clone();
        let must_know_id = is_new && join.must_know_id && join.instance.is_none();
        // The metadata is checked before the member is given an id.
        let joined = self.classic_member(&id, join).and_then(|member| {
            if must_know_id {
                return Err(GroupError::MemberIdRequired);
            }
            kind.join_classic(member, &*self.topics, now, effects)
        });
        let reply = match joined {
            Ok(generation) => Ok(JoinReply {
                member: id,
                generation,
                purpose: Some(purpose),
                strategy,
                leader: "".into(),
                members: Vec::new(),
                skip_assignment: false,
            }),
            Err(error) => Err(JoinError { error, member: id }),
        };
        effects.join(waiter, reply);
    }

    fn classic_member(&self, id: &str, join: Join) -> Result<ClassicMember, GroupError> {
        let protocol = self.member_protocol.as_deref().ok_or(GroupError::OtherKind)?;
        if *join.purpose != *protocol.purpose() {
            return Err(GroupError::NoCommonStrategy);
        }
        let metadata = join
            .strategies
            .first()
            .and_then(|first| protocol.read_member(&first.metadata))
            .ok_or(GroupError::NoCommonStrategy)?;
        Ok(ClassicMember {
            id: id.into(),
            instance: join.instance,
            client_id: join.client_id,
            host: join.client_host,
            rebalance_ms: join.rebalance_ms,
            names: metadata.names,
            owned: known(&self.topics, &metadata.owned),
            classic: Classic {
                purpose: join.purpose,
                session_ms: join.session_ms,
                strategies: join.strategies,
            },
        })
    }

    /// Returns the assignment of a classic member in a consumer group.
    pub(crate) fn sync_consumer_group(
        &self,
        kind: &mut StoredConsumerGroup,
        sync: &Sync,
    ) -> Result<SyncReply, GroupError> {
        let protocol = self.member_protocol.as_deref().ok_or(GroupError::OtherKind)?;
        let partitions =
            kind.group()
                .sync_classic(&sync.member, sync.instance.as_deref(), sync.generation)?;
        let classic = kind
            .group()
            .member(&sync.member)
            .and_then(|member| member.classic.as_ref());
        let classic = classic.ok_or(GroupError::UnknownMember)?;
        let first = classic.strategies.first().ok_or(GroupError::NoCommonStrategy)?;
        let differs = |believed: &Option<Box<str>>, real: &str| {
            believed.as_ref().is_some_and(|believed| **believed != *real)
        };
        if differs(&sync.purpose, &classic.purpose) || differs(&sync.strategy, &first.name) {
            return Err(GroupError::NoCommonStrategy);
        }
        Ok(SyncReply {
            purpose: Some(classic.purpose.clone()),
            strategy: Some(first.name.clone()),
            assignment: protocol.write_assignment(&first.metadata, &self.by_name(&partitions)),
        })
    }

    fn by_name(&self, partitions: &Partitions) -> Vec<TopicPartitions> {
        let named = |run: &[Partition]| {
            let topic = self.topics.with_id(run.first()?.topic)?;
            Some((topic.name.clone(), run.iter().map(|one| one.index).collect()))
        };
        partitions.by_topic().filter_map(named).collect()
    }

    /// Makes a consumer group classic if only members of the classic protocol are left.
    pub(crate) fn downgrade_if_classic(&self, group: &mut Group, now: Moment, effects: &mut Effects) {
        let GroupKind::Consumer(kind) = &group.kind else {
            return;
        };
        if !self.settings.migration.downgrades() || !kind.group().is_all_classic() {
            return;
        }
        let classic = ClassicGroup::from_consumer_group(kind.group(), now, |member| self.held_by(member));
        group.kind = GroupKind::Classic(Box::new(classic));
        effects.store = Store::Whole;
    }

    /// Returns the partitions that a classic member may be consuming, as an assignment. Until it joins again
    /// no other member may have them, though the group may be a consumer group once more by then.
    fn held_by(&self, member: &Member) -> Bytes {
        let strategies = member.classic.iter().flat_map(|classic| &classic.strategies);
        let Some((protocol, first)) = self.member_protocol.as_deref().zip(strategies.into_iter().next())
        else {
            return Bytes::new();
        };
        let held = [&member.assigned, &member.revoking].map(OwnedPartitions::partitions);
        let held = held.iter().flat_map(|held| held.as_slice().iter().copied());
        protocol.write_assignment(&first.metadata, &self.by_name(&held.collect()))
    }
}

impl StoredConsumerGroup {
    pub(crate) fn leave_all(
        &mut self,
        leaves: &[Leave],
        effects: &mut Effects,
    ) -> Vec<Result<(), GroupError>> {
        let leave = |leave: &Leave| self.leave_classic(&leave.member, leave.instance.as_deref());
        let left = leaves.iter().map(leave).collect();
        self.store(effects);
        left
    }
}

impl From<HeartbeatError> for GroupError {
    fn from(error: HeartbeatError) -> Self {
        match error {
            HeartbeatError::UnknownMember(_) | HeartbeatError::UnknownInstance(_) => Self::UnknownMember,
            HeartbeatError::FencedInstance { .. } | HeartbeatError::UnreleasedInstance { .. } => {
                Self::FencedInstance
            }
            HeartbeatError::FencedEpoch { .. } => Self::OtherGeneration,
            HeartbeatError::Full(_) => Self::Full,
            HeartbeatError::Pattern(_) => Self::NoCommonStrategy,
        }
    }
}

/// Looks up the partitions' topics by name; unknown topics are left out.
fn known(topics: &Topics, named: &[TopicPartitions]) -> Partitions {
    let all = named.iter().filter_map(|(name, indexes)| {
        let topic = topics.named(name)?.id;
        Some(
            indexes
                .iter()
                .map(move |index| Partition { topic, index: *index }),
        )
    });
    all.flatten().collect()
}
