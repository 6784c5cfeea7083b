//! Groups whose members agree among themselves who gets what: one of them, the leader, decides.
//!
//! ```text
//!            first member joins                 all have joined, or their time is over
//!   Empty ───────────────────▶ Preparing ───────────────────────────▶ Completing
//!     ▲                         ▲      ▲                                   │ the leader has decided
//!     └── nobody has joined ────┘      └── somebody joins, leaves or ◀── Stable
//!                                          is silent for too long
//! ```
//!
//! *Preparing*: members are asked to join; each waits for the next generation. The first generation waits a
//! moment for more members. *Completing*: members know the generation and wait for what the leader gives
//! them. *Stable*: they have it. Each way into *Completing* is a new generation; whoever comes with another
//! one is told so.
//!
//! A *dynamic* member is known by the id that it was given. A *static* one also has an instance name of its
//! own choice: one that comes back under that name takes the place of its former self, without a new
//! generation if nothing else changes, and fences it.
//!
//! The machine is pure: moments are arguments, and answers for whoever waits are [`Effects`]. It neither
//! knows what members say of themselves nor what they are given. The behaviour is that of Kafka's classic
//! group protocol (KIP-62, 134, 345, 394, 559, 814).
//!
//! - [`join`]: into *Preparing* and out of it; [`sync`]: out of *Completing*, signs of life, leaving
//! - [`expire`]: deadlines; [`member`]: one member; [`stored`]: how it is stored

mod expire;
mod join;
mod member;
mod moving;
mod stored;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::commit::CommittedBy;
use super::effects::Effects;
use super::error::GroupError;
use super::moment::Moment;
use member::Member;

pub use join::{Join, JoinLimits, Joined, JoinedMember, NotJoined};
pub use member::Strategy;
pub use sync::{Leave, Sync, Synced};

/// The id of a member: unique in its group.
pub type MemberId = Arc<str>;

/// See the module.
#[derive(Debug, Default)]
pub struct ClassicGroup {
    phase: Phase,
    /// Counted from 1; 0 before the first.
    generation: i32,
    /// What its members are there for: all say the same.
    purpose: Option<Box<str>>,
    /// How its members agree: one that all of them know.
    strategy: Option<Box<str>>,
    leader: Option<MemberId>,
    members: BTreeMap<MemberId, Member>,
    /// Static members, by their instance.
    instances: BTreeMap<Box<str>, MemberId>,
    /// Ids that were given out, whose members have not joined, and until when they may.
    pending: BTreeMap<MemberId, Moment>,
}

/// What the group is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    #[default]
    Empty,
    /// The first generation: waits until then, and a moment longer if somebody came, but not past the end.
    Gathering {
        until: Moment,
        end: Moment,
        delay_ms: u32,
        has_new: bool,
    },
    /// Waits for members to join, until then at most.
    Preparing { until: Moment },
    /// Waits for the leader; members that have not asked for what they get by then are given up.
    Completing { until: Moment },
    /// As above: until then, if some have not asked yet.
    Stable { until: Option<Moment> },
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Gathering { .. } | Self::Preparing { .. } => "preparing",
            Self::Completing { .. } => "completing",
            Self::Stable { .. } => "stable",
        }
    }
}

/// A member as others may see it.
#[derive(Debug, Clone)]
pub struct MemberView<'a> {
    pub id: &'a MemberId,
    pub instance: Option<&'a str>,
    pub client_id: &'a str,
    pub client_host: &'a str,
    /// What it says of itself under the group's strategy; empty if there is none.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

impl ClassicGroup {
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// How long a member may be silent.
    pub fn session_ms(&self, member: &str) -> Option<u32> {
        self.members.get(member).map(|member| member.session_ms)
    }

    pub fn is_stable(&self) -> bool {
        matches!(self.phase, Phase::Stable { .. })
    }

    /// Whether it has no members, and waits for none that are about to come.
    pub fn is_empty(&self) -> bool {
        self.phase == Phase::Empty
    }

    pub fn generation(&self) -> i32 {
        self.generation
    }

    pub fn purpose(&self) -> Option<&str> {
        self.purpose.as_deref()
    }

    pub fn strategy(&self) -> Option<&str> {
        self.strategy.as_deref()
    }

    pub fn leader(&self) -> Option<&MemberId> {
        self.leader.as_ref()
    }

    /// Members whose ids were given out, and that have not joined.
    pub fn pending_members(&self) -> usize {
        self.pending.len()
    }

    /// All members, by id.
    pub fn members(&self) -> impl Iterator<Item = MemberView<'_>> {
        self.members.iter().map(|(id, member)| MemberView {
            id,
            instance: member.instance.as_deref(),
            client_id: &member.client_id,
            client_host: &member.client_host,
            metadata: member.metadata(self.strategy()),
            assignment: member.assignment.clone(),
        })
    }

    /// What its members take in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.members.values().map(Member::bytes).sum()
    }

    /// Whether a member may commit now; it is also a sign of life.
    pub fn check_commit(&mut self, by: &CommittedBy<'_>, now: Moment) -> Result<(), GroupError> {
        if by.epoch < 0 && self.is_empty() {
            return Ok(());
        }
        if by.epoch < 0 && by.member.is_empty() && by.instance.is_none() {
            return Err(GroupError::UnknownMember);
        }
        self.check_member(by.member, by.instance)?;
        self.check_generation(by.epoch)?;
        if matches!(self.phase, Phase::Completing { .. }) {
            return Err(GroupError::Rebalancing);
        }
        self.on_sign_of_life(by.member, now);
        Ok(())
    }

    /// Whether this is a member, and not one whose place another took.
    fn check_member(&self, id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        if let Some(instance) = instance {
            let known = self.instances.get(instance).ok_or(GroupError::UnknownMember)?;
            if **known != *id {
                return Err(GroupError::FencedInstance);
            }
        }
        if self.members.contains_key(id) {
            Ok(())
        } else {
            Err(GroupError::UnknownMember)
        }
    }

    fn check_generation(&self, generation: i32) -> Result<(), GroupError> {
        if generation == self.generation {
            Ok(())
        } else {
            Err(GroupError::OtherGeneration)
        }
    }

    fn on_sign_of_life(&mut self, member: &str, now: Moment) {
        if let Some(member) = self.members.get_mut(member) {
            member.heard = now;
        }
    }

    /// Forgets a member. If it waits to join or to be given something, it is told that nobody knows it.
    fn remove_member(&mut self, id: &str, effects: &mut Effects) -> bool {
        let Some(member) = self.members.remove(id) else {
            return false;
        };
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
        member.dismiss(&GroupError::UnknownMember, "", effects);
        true
    }

    /// Lets the members join anew, because one of them has gone, come or changed.
    fn on_members_changed(&mut self, now: Moment, effects: &mut Effects) {
        match self.phase {
            Phase::Empty | Phase::Completing { .. } | Phase::Stable { .. } => self.prepare(now, effects),
            Phase::Preparing { .. } => self.complete_if_all_joined(now, effects),
            Phase::Gathering { .. } => {}
        }
    }

    /// The longest time that a member may take to join.
    fn rebalance_ms(&self) -> u32 {
        self.members
            .values()
            .map(|member| member.rebalance_ms)
            .max()
            .unwrap_or(0)
    }
}
