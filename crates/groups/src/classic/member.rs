//! One member of a group.

use std::sync::Arc;

use bytes::Bytes;

use super::super::effects::{Effects, Wait};
use super::super::error::GroupError;
use super::super::moment::Moment;
use super::join::NotJoined;

/// A member that waits in its first join has no id yet with which it could give signs of life: it is given up
/// after so long.
const NEW_MEMBER_MS: u32 = 300_000;

/// A way to agree that a member knows, and what it says of itself for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strategy {
    pub name: Box<str>,
    pub metadata: Bytes,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) instance: Option<Box<str>>,
    pub(crate) client_id: Box<str>,
    pub(crate) client_host: Box<str>,
    pub(crate) session_ms: u32,
    pub(crate) rebalance_ms: u32,
    /// The one it likes best comes first.
    pub(crate) strategies: Vec<Strategy>,
    /// What the leader gave it.
    pub(crate) assignment: Bytes,
    /// Its last sign of life.
    pub(super) heard: Moment,
    /// It waits in its first join.
    pub(super) is_new: bool,
    /// It waits for the next generation.
    pub(super) joining: Option<Wait>,
    /// It waits for what it gets.
    pub(super) syncing: Option<Wait>,
    /// It has asked for what it gets in this generation.
    pub(super) has_synced: bool,
}

impl Member {
    /// When it will have been silent for too long. Who waits for the group need not say that it is there.
    pub(super) fn deadline(&self) -> Option<Moment> {
        match (self.joining, self.syncing) {
            (Some(_), _) if self.is_new => Some(self.heard.after(NEW_MEMBER_MS)),
            (Some(_), _) | (_, Some(_)) => None,
            (None, None) => Some(self.heard.after(self.session_ms)),
        }
    }

    /// What it takes in memory, about.
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

    /// Tells whoever waits for this member that it is no longer of the group. `id` is what it is told to be.
    pub(super) fn dismiss(self, error: &GroupError, id: &str, effects: &mut Effects) {
        if let Some(wait) = self.joining {
            let error = error.clone();
            let member = Arc::from(id);
            effects.join(wait, Err(NotJoined { error, member }));
        }
        if let Some(wait) = self.syncing {
            effects.sync(wait, Err(error.clone()));
        }
    }
}
