//! Waiting for a stable group to change.
//!
//! Members of a classic group learn from a heartbeat, every few seconds, that they have to join again. A
//! front end may hold back the response to a heartbeat while nothing changes: the member then learns of a
//! change at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::error::GroupError;
use super::group::{Group, GroupKind};
use super::registry::Groups;

/// Watch on a stable classic group, for one member.
#[derive(Debug)]
pub struct StableWatch {
    changed: Arc<Notify>,
    /// Session timeout of the member.
    pub session: Duration,
}

impl Groups {
    /// Returns a watch on the group. `None` if it is not a stable classic group or `member` is not its
    /// member.
    pub fn stable_watch(&self, group: &str, member: &str) -> Option<StableWatch> {
        let mut shard = self.lock(self.shard(group));
        let group: &mut Group = shard.get_mut(group)?;
        let GroupKind::Classic(classic) = &group.kind else {
            return None;
        };
        let session_ms = classic.session_ms(member).filter(|_| classic.is_stable())?;
        let changed = group.changed.get_or_insert_default();
        Some(StableWatch {
            changed: Arc::clone(changed),
            session: Duration::from_millis(session_ms.into()),
        })
    }

    /// Returns the answer that a heartbeat would get now, without counting as one.
    pub fn check_alive(
        &self,
        group: &str,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        self.with_group(group, |group| match group.map(|group| &group.kind) {
            Some(GroupKind::Classic(classic)) => classic.check_alive(member, instance, generation),
            // The group has moved to the other protocol: its classic members learn of that by joining again.
            Some(GroupKind::Consumer(_)) => Err(GroupError::Rebalancing),
            Some(GroupKind::Share(_)) => Err(GroupError::OtherKind),
            None => Err(GroupError::UnknownMember),
        })
    }
}

impl StableWatch {
    /// Waits until the group may have changed since `is_stable` was called; returns at once if that returns
    /// false.
    pub async fn wait_for_change(&self, is_stable: impl FnOnce() -> bool) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        // No notification is missed from here on.
        changed.as_mut().enable();
        if is_stable() {
            changed.await;
        }
    }
}
