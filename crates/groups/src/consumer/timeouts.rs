//! Removal of members that are silent for longer than the session timeout, or do not give partitions back in
//! time.

use super::group::{ConsumerGroup, Rules};
use super::member::Member;

/// Reason for the removal of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryReason {
    Session,
    Rebalance,
}

impl ConsumerGroup {
    /// Returns the next time at which [`ConsumerGroup::on_tick`] has to be called; it may find nothing to do.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.wake_ms
    }

    /// Moves [`ConsumerGroup::deadline_ms`] forward to the member's deadline, if that is earlier.
    pub(crate) fn wake_for(&mut self, id: &str, rules: &Rules) {
        if let Some(member) = self.members.get(id) {
            let at = deadline(member, rules).0;
            self.wake_ms = Some(self.wake_ms.map_or(at, |wake| wake.min(at)));
        }
    }

    /// Recomputes the earliest deadline.
    pub(crate) fn find_deadline(&mut self, rules: &Rules) {
        self.wake_ms = self
            .members
            .values()
            .map(|member| deadline(member, rules).0)
            .min();
    }

    /// Removes the members whose deadline has passed, and returns them.
    pub fn on_tick(&mut self, rules: &Rules, now_ms: u64) -> Vec<(Box<str>, ExpiryReason)> {
        let expired: Vec<_> = self
            .members
            .values()
            .map(|member| (member, deadline(member, rules)))
            .filter(|(_, (at, _))| *at <= now_ms)
            .map(|(member, (_, why))| (member.id.clone(), why))
            .collect();
        for (id, _) in &expired {
            self.put_out(id);
        }
        self.find_deadline(rules);
        expired
    }
}

fn deadline(member: &Member, rules: &Rules) -> (u64, ExpiryReason) {
    let session_ms = match &member.classic {
        Some(classic) => u64::from(classic.session_ms),
        None => rules.session_ms,
    };
    let session = member.seen_ms.saturating_add(session_ms);
    match member.revoke_by_ms {
        Some(at) if at < session => (at, ExpiryReason::Rebalance),
        Some(_) | None => (session, ExpiryReason::Session),
    }
}
