//! Groups whose members assign partitions among themselves: one of them, the leader, decides.
//!
//! ```text
//!            first member joins                 all have joined, or their time is over
//!   Empty ───────────────────▶ Preparing ───────────────────────────▶ Completing
//!     ▲                         ▲      ▲                                   │ the leader has decided
//!     └── no member has joined ─┘      └── a member joins, leaves or ◀── Stable   and that is stored
//!                                          its session expires
//! ```
//!
//! *Preparing*: members are asked to join; each waits for the next generation. The first generation waits a
//! little for more members. *Completing*: members know the generation and wait for the leader's assignment,
//! and then until it is stored. *Stable*: they have it. Each transition to *Completing* begins a new
//! generation; a request that names another one is refused.
//!
//! A *dynamic* member is known by the id that it was given. A *static* one also has an instance name of its
//! own choice. A member that returns under that name replaces and fences the former one, without a new
//! generation if nothing else changed.
//!
//! The machine is pure: time is an argument, and answers to waiting requests are [`Effects`]. Metadata and
//! assignments are opaque to it. The behaviour is that of Kafka's classic group protocol (KIP-62, 134, 345,
//! 394, 559, 814).
//!
//! - [`join`]: into *Preparing* and out of it; [`sync`]: out of *Completing*, heartbeats, leaving
//! - [`expire`]: deadlines; [`member`]: one member; [`stored`]: the stored format

mod expire;
mod join;
pub(crate) mod member;
mod stored;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::commits::CommitSender;
use crate::effects::Effects;
use crate::error::GroupError;
use crate::moment::Moment;
use crate::replies::MemberId;
use member::Member;

pub use join::{Join, JoinLimits};
pub use sync::{Leave, Sync};

/// A classic group: see the module.
#[derive(Debug, Default)]
pub struct ClassicGroup {
    pub(crate) phase: Phase,
    /// Number of the generation, from 1; 0 before the first.
    pub(crate) generation: i32,
    /// Protocol type, the same for all members.
    pub(crate) purpose: Option<Box<str>>,
    /// Strategy elected for the generation, supported by all members.
    strategy: Option<Box<str>>,
    pub(crate) leader: Option<MemberId>,
    pub(crate) members: BTreeMap<MemberId, Member>,
    /// Ids of static members, by instance name.
    pub(crate) instances: BTreeMap<Box<str>, MemberId>,
    /// Ids given out to members that have not joined yet, with their deadlines.
    pending: BTreeMap<MemberId, Moment>,
}

/// Phase of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    #[default]
    Empty,
    /// First generation: waits until `until`; prolonged by `delay_ms` if members joined meanwhile, up to
    /// `end`.
    Gathering {
        until: Moment,
        end: Moment,
        delay_ms: u32,
        has_new: bool,
    },
    /// Waits for members to join, at most until `until`.
    Preparing { until: Moment },
    /// Waits for the leader, then until its assignments are stored. Members that have not asked for their
    /// assignment by `until` are removed.
    Completing { until: Moment, is_storing: bool },
    /// Members have their assignments. If some have not asked yet, they are removed at `until`.
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

/// Public view of a member.
#[derive(Debug, Clone)]
pub struct MemberView<'a> {
    pub id: &'a MemberId,
    pub instance: Option<&'a str>,
    pub client_id: &'a str,
    pub client_host: &'a str,
    /// Metadata of the member for the group's strategy; empty if there is no strategy.
    pub metadata: Bytes,
    pub assignment: Bytes,
}

impl ClassicGroup {
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns a member's session timeout.
    pub fn session_ms(&self, member: &str) -> Option<u32> {
        self.members.get(member).map(|member| member.session_ms)
    }

    pub fn is_stable(&self) -> bool {
        matches!(self.phase, Phase::Stable { .. })
    }

    /// Returns true if the group has no members and no generation is being prepared.
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

    /// Returns the number of ids that were given out to members that have not joined.
    pub fn pending_members(&self) -> usize {
        self.pending.len()
    }

    /// Returns all members, by id.
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

    /// Returns the approximate memory of the members, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.members.values().map(Member::bytes).sum()
    }

    /// Checks that a member may commit now, which also counts as a sign of life.
    pub fn check_commit(&mut self, by: &CommitSender<'_>, now: Moment) -> Result<(), GroupError> {
        if by.epoch < 0 && self.is_empty() {
            return Ok(());
        }
        if by.epoch < 0 && by.member.is_empty() && by.instance.is_none() {
            return if by.is_transactional {
                Ok(())
            } else {
                Err(GroupError::UnknownMember)
            };
        }
        self.check_member(by.member, by.instance)?;
        self.check_generation(by.epoch)?;
        if !by.is_transactional && matches!(self.phase, Phase::Completing { .. }) {
            return Err(GroupError::Rebalancing);
        }
        self.on_sign_of_life(by.member, now);
        Ok(())
    }

    /// Checks that `id` is a member, and is not fenced.
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

    /// Removes a member. Its waiting requests are answered with [`GroupError::UnknownMember`].
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

    /// Begins a rebalance, because a member left, joined or changed.
    fn on_members_changed(&mut self, now: Moment, effects: &mut Effects) {
        match self.phase {
            Phase::Empty | Phase::Completing { .. } | Phase::Stable { .. } => self.prepare(now, effects),
            Phase::Preparing { .. } => self.complete_if_all_joined(now, effects),
            Phase::Gathering { .. } => {}
        }
    }

    /// Returns the longest time that a member may take to join.
    fn rebalance_ms(&self) -> u32 {
        self.members
            .values()
            .map(|member| member.rebalance_ms)
            .max()
            .unwrap_or(0)
    }
}
