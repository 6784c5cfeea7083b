//! Requests of members of classic groups, by group name.
//!
//! A non-empty group of another kind fails with [`GroupError::OtherKind`]; an empty one becomes classic.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::classic::{ClassicGroup, Join, JoinLimits, Leave, Sync};
use super::effects::{Effects, MemberReply};
use super::error::GroupError;
use super::group::{Group, GroupKind};
use super::registry::{Groups, IfAbsent};
use super::replies::{JoinError, JoinReply, SyncReply};

impl Groups {
    /// Joins a group; returns when the next generation begins.
    pub async fn join(&self, group: &str, join: Join) -> Result<JoinReply, JoinError> {
        let member: Arc<str> = Arc::from(&*join.member);
        let failed = |error| JoinError { error, member };
        let waiting = match self.begin_join(group, join) {
            Ok(waiting) => waiting,
            Err(error) => return Err(failed(error)),
        };
        match waiting.await {
            Ok(MemberReply::Join(reply)) => reply,
            Ok(MemberReply::Sync(_)) | Err(_) => Err(failed(GroupError::Rebalancing)),
        }
    }

    fn begin_join(&self, group: &str, join: Join) -> Result<oneshot::Receiver<MemberReply>, GroupError> {
        self.check_named(group)?;
        let settings = &self.settings;
        let (given, min, max) = (join.session_ms, settings.session_ms_min, settings.session_ms_max);
        if given < min || given > max {
            return Err(GroupError::SessionTime { given, min, max });
        }
        let bytes = join_bytes(&join);
        let max = settings.member_bytes_max;
        if bytes > max {
            return Err(GroupError::MemberTooLarge { bytes, max });
        }
        self.check_memory(bytes)?;
        let limits = JoinLimits {
            members_max: settings.members_max,
            initial_delay_ms: settings.initial_delay_ms,
        };
        let absent = if join.member.is_empty() {
            IfAbsent::Create
        } else {
            IfAbsent::Fail(GroupError::UnknownMember)
        };
        let stepped = self.try_step(group, absent, |group, now, effects| {
            let (waiter, receiver) = group.register_waiter();
            if let GroupKind::Consumer(kind) = &mut group.kind
                && !kind.group().is_empty()
            {
                self.join_consumer_group(kind, join, waiter, now, effects);
                return Ok(receiver);
            }
            group.become_classic()?;
            group.classic()?.join(join, waiter, now, &limits, effects);
            Ok(receiver)
        })?;
        Ok(stepped.value)
    }

    /// Returns the member's assignment, once the leader has sent it.
    pub async fn sync(&self, group: &str, sync: Sync) -> Result<SyncReply, GroupError> {
        self.check_named(group)?;
        let absent = IfAbsent::Fail(GroupError::UnknownMember);
        let bytes: usize = sync
            .assignments
            .iter()
            .map(|(member, assignment)| member.len() + assignment.len())
            .sum();
        let max = self.settings.assignment_bytes_max;
        if bytes > max {
            return Err(GroupError::MemberTooLarge { bytes, max });
        }
        self.check_memory(bytes)?;
        let stepped = self.try_step(group, absent, |group, now, effects| {
            let (waiter, receiver) = group.register_waiter();
            if let GroupKind::Consumer(kind) = &mut group.kind {
                let synced = self.sync_consumer_group(kind, &sync);
                effects.sync(waiter, synced);
                return Ok(receiver);
            }
            group.classic()?.sync(sync, waiter, now, effects);
            Ok(receiver)
        })?;
        match stepped.value.await {
            Ok(MemberReply::Sync(reply)) => reply,
            Ok(MemberReply::Join(_)) | Err(_) => Err(GroupError::Rebalancing),
        }
    }

    /// Handles a member's heartbeat.
    pub fn heartbeat(
        &self,
        group: &str,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        self.check_named(group)?;
        let absent = IfAbsent::Fail(GroupError::UnknownMember);
        let stepped = self.try_step(group, absent, |group, now, effects: &mut Effects| {
            if let GroupKind::Consumer(kind) = &mut group.kind {
                return kind.heartbeat_classic(member, instance, generation, now);
            }
            effects.only_alive = true;
            group.classic()?.heartbeat(member, instance, generation, now)
        });
        stepped.map(|_| ())
    }

    /// Removes members. Returns one result per entry of `leaves`.
    pub fn leave(&self, group: &str, leaves: &[Leave]) -> Result<Vec<Result<(), GroupError>>, GroupError> {
        self.check_named(group)?;
        let absent = IfAbsent::Fail(GroupError::NoSuchGroup);
        let stepped = self.try_step(group, absent, |group, now, effects| {
            if let GroupKind::Consumer(kind) = &mut group.kind {
                let left = kind.leave_all(leaves, effects);
                self.downgrade_if_classic(group, now, effects);
                return Ok(left);
            }
            Ok(group.classic()?.leave(leaves, now, effects))
        })?;
        Ok(stepped.value)
    }

    /// Refuses the empty group name, which is allowed for commits but not for members.
    pub(super) fn check_named(&self, group: &str) -> Result<(), GroupError> {
        if group.is_empty() {
            let max = self.settings.name_bytes_max;
            return Err(GroupError::Name { bytes: 0, max });
        }
        Ok(())
    }
}

impl Group {
    #[allow(clippy::unnecessary_wraps, reason = "other kinds refuse")]
    fn classic(&mut self) -> Result<&mut ClassicGroup, GroupError> {
        match &mut self.kind {
            GroupKind::Classic(group) => Ok(group),
            GroupKind::Consumer(_) | GroupKind::Share(_) => Err(GroupError::OtherKind),
        }
    }

    /// Makes an empty group a classic one.
    fn become_classic(&mut self) -> Result<(), GroupError> {
        let is_share = matches!(self.kind, GroupKind::Share(_));
        if is_share || !self.kind.is_empty() && !matches!(self.kind, GroupKind::Classic(_)) {
            return Err(GroupError::OtherKind);
        }
        if !matches!(self.kind, GroupKind::Classic(_)) {
            self.kind = GroupKind::Classic(Box::default());
        }
        Ok(())
    }
}

/// Returns the bytes that a group keeps of a member.
fn join_bytes(join: &Join) -> usize {
    let strategies: usize = join
        .strategies
        .iter()
        .map(|strategy| strategy.name.len() + strategy.metadata.len() + size_of_val(strategy))
        .sum();
    let instance = join.instance.as_ref().map_or(0, |instance| instance.len());
    strategies + instance + join.client_id.len() + join.client_host.len() + join.purpose.len()
}
