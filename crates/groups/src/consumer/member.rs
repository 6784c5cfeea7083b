//! A member of a group.

use std::sync::Arc;

use super::assign::Assignor;
use super::heartbeat::Heartbeat;
use super::partitions::{OwnedPartitions, Partitions};
use crate::strategy::Strategy;

/// Epoch of a heartbeat that joins the group.
pub const EPOCH_JOIN: i32 = 0;
/// Epoch of a heartbeat that leaves the group permanently.
pub const EPOCH_LEAVE: i32 = -1;
/// Epoch of a heartbeat with which a static member leaves temporarily.
pub const EPOCH_LEAVE_STATIC: i32 = -2;

/// Way of an answer to its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Id of the connection; `None` if the member has none.
    Connection(Option<u64>),
    /// Before the start of this process.
    Former,
}

/// State of a member on the way to its target.
///
/// ```text
///            target changed, nothing to give back        all that it waited for is free
///  Stable ──────────────────────────────────▶ Unreleased ─────────────────────▶ Stable
///     │                                            ▲
///     └── target changed, has to give back ──▶ Unrevoked ── gave back ──▶ Unreleased or Stable
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum MemberState {
    /// Has its target, as of its epoch.
    #[default]
    Stable,
    /// Has been told to give partitions back and has not done so. Keeps its epoch until then.
    Unrevoked,
    /// Waits for partitions that others have to give back.
    Unreleased,
}

/// A member of a group.
#[derive(Debug)]
pub struct Member {
    pub id: Box<str>,
    /// Instance name of a static member, which outlives its ids.
    pub instance: Option<Box<str>>,
    pub rack: Option<Box<str>>,
    pub client_id: Box<str>,
    pub host: Box<str>,
    pub rebalance_timeout_ms: u32,
    /// Assignor that it prefers.
    pub assignor: Option<Assignor>,
    pub epoch: i32,
    pub previous_epoch: i32,
    pub state: MemberState,
    /// Partitions that it may consume.
    pub assigned: OwnedPartitions,
    /// Partitions that it has to give back and may still be consuming.
    pub revoking: OwnedPartitions,
    /// Partitions that it gets in the end.
    pub target: Arc<Partitions>,
    /// Classic protocol's data, if it does not use the consumer protocol.
    pub classic: Option<Classic>,
    /// Interest of the group that it shares.
    pub(crate) interest: InterestId,
    pub(crate) seen_ms: u64,
    /// Way on which it was told of its partitions last, as long as it has not reported that it has them.
    pub(crate) told_on: Option<Way>,
    /// Time at which it is removed if it has not given its partitions back.
    pub(crate) revoke_by_ms: Option<u64>,
    /// Parts that have to be stored.
    pub(crate) unstored: UnstoredParts,
}

/// Classic protocol's data of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Classic {
    /// Protocol type.
    pub purpose: Box<str>,
    pub session_ms: u32,
    pub strategies: Vec<Strategy>,
}

/// Id of an interest of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct InterestId(pub u32);

/// Parts of a member that changed since they were last stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UnstoredParts {
    pub description: bool,
    pub target: bool,
    pub current: bool,
}

impl UnstoredParts {
    pub(super) const ALL: Self = Self {
        description: true,
        target: true,
        current: true,
    };
}

impl Member {
    /// Returns an empty member, as a base for others.
    pub(crate) fn empty(now_ms: u64) -> Self {
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
            assigned: OwnedPartitions::default(),
            revoking: OwnedPartitions::default(),
            target: Arc::default(),
            classic: None,
            interest: InterestId::default(),
            seen_ms: now_ms,
            told_on: Some(Way::Former),
            revoke_by_ms: None,
            unstored: UnstoredParts::default(),
        }
    }

    /// Returns true if the member has its target and knows it.
    pub fn is_reconciled(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.epoch == target_epoch
    }

    /// Notes an answer. Returns true if it has to tell the member of its partitions again: an answer is lost
    /// with its connection, and not all clients, such as librdkafka, ask for it then.
    pub(super) fn missed_answer(&mut self, changed: bool, beat: &Heartbeat) -> bool {
        let way = Way::Connection(beat.connection);
        if changed {
            self.told_on = Some(way);
            return false;
        }
        let owned = beat.owned.as_ref();
        if owned.is_some_and(|owned| *owned == self.assigned.partitions()) {
            self.told_on = None;
        }
        let is_other = self.told_on.is_some_and(|told_on| told_on != way) && beat.connection.is_some();
        if is_other {
            self.told_on = Some(way);
        }
        is_other
    }

    /// Returns its approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let texts = self.id.len() * 2 + self.client_id.len() + self.host.len();
        let classic = self.classic.as_ref().map_or(0, |classic| {
            let strategies = classic.strategies.iter();
            strategies
                .map(|strategy| strategy.name.len() + strategy.metadata.len())
                .sum()
        });
        let held = (self.assigned.len() + self.revoking.len()) * size_of::<super::OwnedPartition>();
        size_of::<Self>() + texts + classic + held + self.target.len() * size_of::<super::Partition>()
    }

    pub(super) fn set_epoch(&mut self, epoch: i32) {
        if epoch != self.epoch {
            self.previous_epoch = self.epoch;
            self.epoch = epoch;
        }
    }
}
