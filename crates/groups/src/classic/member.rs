//! One member of a group.

use std::sync::Arc;

use bytes::Bytes;

use crate::effects::{Effects, WaiterId};
use crate::error::GroupError;
use crate::moment::Moment;
use crate::replies::JoinError;
use crate::strategy::Strategy;

/// Timeout of a new member's first join, in ms: without an id, the member cannot send heartbeats.
const NEW_MEMBER_MS: u32 = 300_000;

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) instance: Option<Box<str>>,
    pub(crate) client_id: Box<str>,
    pub(crate) client_host: Box<str>,
    pub(crate) session_ms: u32,
    pub(crate) rebalance_ms: u32,
    /// Supported strategies, the preferred one first.
    pub(crate) strategies: Vec<Strategy>,
    /// Assignment from the leader.
    pub(crate) assignment: Bytes,
    /// Time of its last sign of life.
    pub(crate) heard: Moment,
    /// True while it waits in its first join.
    pub(crate) is_new: bool,
    /// Its request that waits for the next generation.
    pub(crate) joining: Option<WaiterId>,
    /// Its request that waits for the assignment.
    pub(crate) syncing: Option<WaiterId>,
    /// True if it asked for its assignment in this generation.
    pub(crate) has_synced: bool,
}

impl Member {
    /// Returns the time at which its session expires. A member that waits for the group need not send
    /// heartbeats.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match (self.joining, self.syncing) {
            (Some(_), _) if self.is_new => Some(self.heard.after(NEW_MEMBER_MS)),
            (Some(_), _) | (_, Some(_)) => None,
            (None, None) => Some(self.heard.after(self.session_ms)),
        }
    }

    /// Returns its approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let strategies = self.strategies.iter();
        let strategies: usize = strategies
            .map(|it| size_of::<Strategy>() + it.name.len() + it.metadata.len())
            .sum();
        size_of::<Self>() + strategies + self.client_id.len() + self.assignment.len()
    }

    pub(super) fn metadata(&self, strategy: Option<&str>) -> Bytes {
        self.strategies
            .iter()
            .find(|known| Some(&*known.name) == strategy)
            .map(|known| known.metadata.clone())
            .unwrap_or_default()
    }

    pub(super) fn knows(&self, strategy: &str) -> bool {
        self.strategies.iter().any(|known| *known.name == *strategy)
    }

    /// Answers the member's waiting requests with `error`; `id` is the member id in the answer to a join.
    pub(crate) fn dismiss(self, error: &GroupError, id: &str, effects: &mut Effects) {
        if let Some(waiter) = self.joining {
            let error = error.clone();
            let member = Arc::from(id);
            effects.join(waiter, Err(JoinError { error, member }));
        }
        if let Some(waiter) = self.syncing {
            effects.sync(waiter, Err(error.clone()));
        }
    }
}
