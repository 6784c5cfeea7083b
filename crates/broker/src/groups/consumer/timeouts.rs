//! Members that are silent for longer than a session, or do not give back what they have to in time, are put out.

use super::group::{Group, Rules};
use super::member::Member;

/// Why a member was put out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    Session,
    Rebalance,
}

impl Group {
    /// When [`Group::on_tick`] will next find something, at the earliest. `None`: never, as things are.
    pub fn next_deadline_ms(&self, rules: &Rules) -> Option<u64> {
        self.members
            .values()
            .map(|member| deadline(member, rules).0)
            .min()
    }

    /// Puts out whose time is up, and says who.
    pub fn on_tick(&mut self, rules: &Rules, now_ms: u64) -> Vec<(Box<str>, Expired)> {
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
        expired
    }
}

fn deadline(member: &Member, rules: &Rules) -> (u64, Expired) {
    let session = member.seen_ms.saturating_add(rules.session_ms);
    match member.revoke_by_ms {
        Some(at) if at < session => (at, Expired::Rebalance),
        Some(_) | None => (session, Expired::Session),
    }
}
