//! A member of a group.

use std::sync::Arc;

use super::assign::Assignor;
use super::classic::Classic;
use super::partitions::{Holding, Partitions};

/// The epoch with which a member comes.
pub const EPOCH_JOIN: i32 = 0;
/// The epoch with which a member leaves for good.
pub const EPOCH_LEAVE: i32 = -1;
/// The epoch with which a static member leaves, to come back.
pub const EPOCH_LEAVE_STATIC: i32 = -2;

/// Where a member is on its way to its target.
///
/// ```text
///            target changed, nothing to give back        all that it waited for is free
///  Stable ──────────────────────────────────▶ Unreleased ─────────────────────▶ Stable
///     │                                            ▲
///     └── target changed, has to give back ──▶ Unrevoked ── gave back ──▶ Unreleased or Stable
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum MemberState {
    /// Has what it is to have, as far as it knows.
    #[default]
    Stable,
    /// Has been told to give partitions back, and has not done so yet. Keeps its epoch until then.
    Unrevoked,
    /// Waits for partitions that others have to give back.
    Unreleased,
}

/// A member of a group.
#[derive(Debug)]
pub struct Member {
    pub id: Box<str>,
    /// The name of a static member, which outlives its ids.
    pub instance: Option<Box<str>>,
    pub rack: Option<Box<str>>,
    pub client_id: Box<str>,
    pub host: Box<str>,
    pub rebalance_timeout_ms: u32,
    /// The assignor that it would like.
    pub assignor: Option<Assignor>,
    pub epoch: i32,
    pub previous_epoch: i32,
    pub state: MemberState,
    /// What it may consume.
    pub assigned: Holding,
    /// What it has to give back, and may still be consuming.
    pub revoking: Holding,
    /// What it is to have in the end.
    pub target: Arc<Partitions>,
    /// What it is in the classic protocol, if it knows no other.
    pub classic: Option<Classic>,
    /// Which of the group's interests is its own.
    pub(super) interest: InterestId,
    pub(super) seen_ms: u64,
    /// When it is put out if it still has not given back.
    pub(super) revoke_by_ms: Option<u64>,
    /// What of it has to be stored.
    pub(super) unstored: Unstored,
}

/// Numbers a group's interests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct InterestId(pub u32);

/// Which parts of a member changed since they were last stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unstored {
    pub description: bool,
    pub target: bool,
    pub current: bool,
}

impl Unstored {
    pub(super) const ALL: Self = Self {
        description: true,
        target: true,
        current: true,
    };
}

impl Member {
    /// Somebody of whom nothing is known yet.
    pub(super) fn nobody(now_ms: u64) -> Self {
        Self {
            id: "".into(),
            instance: None,
            rack: None,
            client_id: "".into(),
            host: "".into(),
            rebalance_timeout_ms: 0,
            assignor: None,
            epoch: EPOCH_JOIN,
            previous_epoch: EPOCH_JOIN,
            state: MemberState::Stable,
            assigned: Holding::default(),
            revoking: Holding::default(),
            target: Arc::default(),
            classic: None,
            interest: InterestId::default(),
            seen_ms: now_ms,
            revoke_by_ms: None,
            unstored: Unstored::default(),
        }
    }

    /// Whether it has, and knows that it has, what the group wants it to have.
    pub fn is_reconciled(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == target_epoch
    }

    /// What it takes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.id.len() * 2 + self.client_id.len() + self.host.len();
        let classic = self.classic.as_ref().map_or(0, |classic| {
            let strategies = classic.strategies.iter();
            strategies
                .map(|strategy| strategy.name.len() + strategy.metadata.len())
                .sum()
        });
        let held = (self.assigned.len() + self.revoking.len()) * size_of::<super::Held>();
        size_of::<Self>() + texts + classic + held + self.target.len() * size_of::<super::Partition>()
    }

    pub(super) fn set_epoch(&mut self, epoch: i32) {
        if epoch != self.epoch {
            self.previous_epoch = self.epoch;
            self.epoch = epoch;
        }
    }
}
