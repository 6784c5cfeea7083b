//! Requests of members of groups whose partitions the broker assigns, by group name.
//!
//! A non-empty group of another kind fails with [`GroupError::OtherKind`]. An empty one becomes a consumer
//! group, unless it is a share group: these have their places in topics, and keep their kind.

use std::sync::atomic::Ordering;

use super::consumer::{EPOCH_JOIN, Heartbeat, HeartbeatError, HeartbeatReply, Rules};
use super::deletion::removal_frames;
use super::error::GroupError;
use super::group::{Group, GroupKind, GroupProtocol, StepResult};
use super::heartbeat_interval;
use super::registry::{Groups, IfAbsent};
use super::stored_consumer_group::StoredConsumerGroup;

/// Error of a member's request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerError {
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error(transparent)]
    Heartbeat(#[from] HeartbeatError),
}

/// Reply to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatResponse {
    pub reply: HeartbeatReply,
    /// Time until the next heartbeat.
    pub heartbeat_ms: u32,
}

impl Groups {
    /// Handles a heartbeat: a member reports its subscription and partitions, and gets its assignment. The
    /// answer is valid once the step is stored ([`Groups::consumer_stored`]).
    pub fn consumer_heartbeat(
        &self,
        group: &str,
        beat: Heartbeat,
    ) -> Result<StepResult<HeartbeatResponse>, ConsumerError> {
        self.heartbeat_of(GroupProtocol::Consumer, group, beat)
    }

    /// Like [`Self::consumer_heartbeat`], for a member of a share group.
    pub fn share_heartbeat(
        &self,
        group: &str,
        beat: Heartbeat,
    ) -> Result<StepResult<HeartbeatResponse>, ConsumerError> {
        self.heartbeat_of(GroupProtocol::Share, group, beat)
    }

    /// Makes a share group without members, unless there is one. It is stored with the changes that follow.
    pub fn make_share_group(&self, name: &str) -> Result<(), GroupError> {
        self.check_named(name)?;
        let made: StepResult<()> = self.try_step(name, IfAbsent::Create, |group, _, effects| {
            let rules = self.rules(&group.name, GroupProtocol::Share);
            group.become_share(rules, true)?.begin(effects);
            Ok(())
        })?;
        drop(made.stored);
        Ok(())
    }

    /// Returns true if there is a share group of this name.
    pub fn is_share_group(&self, name: &str) -> bool {
        self.with_group(name, |group| {
            group.is_some_and(|group| matches!(group.kind, GroupKind::Share(_)))
        })
    }

    fn heartbeat_of(
        &self,
        protocol: GroupProtocol,
        group: &str,
        beat: Heartbeat,
    ) -> Result<StepResult<HeartbeatResponse>, ConsumerError> {
        let absent = if beat.epoch == EPOCH_JOIN {
            IfAbsent::Create
        } else {
            IfAbsent::Fail(GroupError::NoSuchGroup)
        };
        if beat.names.is_some() || beat.pattern.is_some() {
            self.check_memory(beat.bytes())?;
        }
        let StepResult { value, stored } = self.step(group, absent, |group, now, effects| {
            let joins = beat.epoch == EPOCH_JOIN;
            let rules = self.rules(&group.name, protocol);
            let kind = if protocol == GroupProtocol::Share {
                group.become_share(rules, joins)?
            } else {
                if joins && !group.kind.is_empty() {
                    self.upgrade(group, now, effects)?;
                }
                group.become_consumer(rules, joins)?
            };
            let reply = kind.heartbeat(beat, &*self.topics, now, effects);
            let rules = *kind.rules();
            self.downgrade_if_classic(group, now, effects);
            Ok::<_, ConsumerError>((reply?, rules))
        })?;
        if value.is_err() {
            self.forget_if_blank(group);
        }
        let (reply, rules) = value?;
        let members = self.assigned_members.load(Ordering::Relaxed);
        let per_second = self.settings.heartbeats_per_second;
        let heartbeat_ms = heartbeat_interval::heartbeat_ms(&rules, reply.waits, members, per_second);
        let value = HeartbeatResponse { reply, heartbeat_ms };
        Ok(StepResult { value, stored })
    }

    /// Removes a group that was created for a member that was then refused.
    fn forget_if_blank(&self, name: &str) {
        let mut shard = self.lock(self.shard(name));
        let is_blank = shard.get(name).is_some_and(|group| match &group.kind {
            GroupKind::Consumer(kind) | GroupKind::Share(kind) => {
                kind.group().epoch() == 0 && group.commits.is_empty()
            }
            GroupKind::Classic(_) => false,
        });
        if is_blank {
            let removed = self.remove(&mut shard, name);
            let frames = removed.as_ref().map(removal_frames).unwrap_or_default();
            if !frames.is_empty() {
                drop(self.stage(frames));
            }
        }
    }

    /// Waits until a step of a consumer group is stored.
    pub async fn consumer_stored(
        &self,
        group: &str,
        stepped: StepResult<HeartbeatResponse>,
    ) -> Result<HeartbeatResponse, GroupError> {
        let stored = stepped.durable().await;
        if stored.is_err() {
            let absent = IfAbsent::Fail(GroupError::NoSuchGroup);
            let _gone = self.step(group, absent, |group, _, _| {
                if let Some(kind) = group.kind.assigned_mut() {
                    kind.on_not_stored();
                }
            });
        }
        Ok(stored?)
    }
}

impl Group {
    /// Returns the consumer group. An empty classic group becomes one if `joins`.
    fn become_consumer(&mut self, rules: Rules, joins: bool) -> Result<&mut StoredConsumerGroup, GroupError> {
        if let GroupKind::Classic(group) = &self.kind {
            if !group.is_empty() {
                return Err(GroupError::OtherKind);
            }
            if !joins {
                return Err(GroupError::NoSuchGroup);
            }
            self.kind = GroupKind::Consumer(Box::new(StoredConsumerGroup::new(rules)));
        }
        match &mut self.kind {
            GroupKind::Consumer(kind) => Ok(kind),
            GroupKind::Classic(_) | GroupKind::Share(_) => Err(GroupError::OtherKind),
        }
    }

    /// Returns the share group. A group that was never anything else becomes one if `joins`.
    fn become_share(&mut self, rules: Rules, joins: bool) -> Result<&mut StoredConsumerGroup, GroupError> {
        let is_blank = !self.is_stored && self.commits.is_empty();
        if let GroupKind::Classic(group) = &self.kind
            && group.is_empty()
            && is_blank
        {
            if !joins {
                return Err(GroupError::NoSuchGroup);
            }
            self.kind = GroupKind::Share(Box::new(StoredConsumerGroup::sharing(rules)));
        }
        match &mut self.kind {
            GroupKind::Share(kind) => Ok(kind),
            GroupKind::Classic(_) | GroupKind::Consumer(_) => Err(GroupError::OtherKind),
        }
    }
}
