//! Waiting for a stable group to change.
//!
//! Members of a classic group hear that they have to join again when they report, every few seconds. A front
//! end may keep the answer to such a report back as long as everything stays as it is: then the member hears
//! of a change when it happens.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::error::GroupError;
use super::group::{Group, GroupKind};
use super::registry::Groups;

/// A classic group whose members have agreed on who gets what, and one of them.
#[derive(Debug)]
pub struct Stability {
    changed: Arc<Notify>,
    /// How long the member may be silent.
    pub session: Duration,
}

impl Groups {
    /// If a member has nothing to hear but that everything stays as it is: what tells when that is so no
    /// longer.
    pub fn stability(&self, group: &str, member: &str) -> Option<Stability> {
        let mut shard = self.lock(self.shard(group));
        let group: &mut Group = shard.get_mut(group)?;
        let GroupKind::Classic(classic) = &group.kind else {
            return None;
        };
        let session_ms = classic.session_ms(member).filter(|_| classic.is_stable())?;
        let changed = group.changed.get_or_insert_default();
        Some(Stability {
            changed: Arc::clone(changed),
            session: Duration::from_millis(session_ms.into()),
        })
    }

    /// What a member that is there would hear, without its saying so.
    pub fn check_alive(
        &self,
        group: &str,
        member: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), GroupError> {
        self.look(group, |group| match group.map(|group| &group.kind) {
            Some(GroupKind::Classic(classic)) => classic.check_alive(member, instance, generation),
            // It has moved to the other protocol: members hear of that by joining again.
            Some(GroupKind::Consumer(_)) => Err(GroupError::Rebalancing),
            None => Err(GroupError::UnknownMember),
        })
    }
}

impl Stability {
    /// Returns once the group may not be as it was when `is_stable` said so last; at once if it says that it
    /// is not.
    pub async fn ends(&self, is_stable: impl FnOnce() -> bool) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        // From here on nothing is missed.
        changed.as_mut().enable();
        if is_stable() {
            changed.await;
        }
    }
}
