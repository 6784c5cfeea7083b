//! Bound on a role's messages in flight: those that were sent and have not come yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::load::Actor;

/// State that the clients of a role here share.
pub(super) struct Ahead {
    pub(super) actor: Arc<Actor>,
    pub(super) limit: Limit,
}

/// Number of messages that the clients here may have sent since the start.
pub(super) enum Limit {
    /// All clients are here: `max` more than each reader has received.
    Readers { max: u64, readers: Vec<Arc<Actor>> },
    /// The controller, which sees all hosts, sets the number.
    Told(Arc<AtomicU64>),
}

impl Ahead {
    /// Takes up to `wanted` messages out of those that may be sent now.
    pub(super) fn take(&self, wanted: usize) -> usize {
        let wanted = wanted as u64;
        // Messages that were given up are not on their way any more.
        let allowed = self
            .limit
            .allowed()
            .saturating_add(self.actor.recorder.given_up());
        let taking = |taken: u64| taken.checked_add(wanted.min(allowed.saturating_sub(taken)));
        let before = self
            .actor
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taking);
        let granted = before.map_or(0, |before| wanted.min(allowed.saturating_sub(before)));
        usize::try_from(granted).unwrap_or(0)
    }

    /// They are not sent after all.
    pub(super) fn give_back(&self, count: usize) {
        self.actor.taken.fetch_sub(count as u64, Ordering::Relaxed);
    }
}

impl Limit {
    fn allowed(&self) -> u64 {
        match self {
            Self::Readers { max, readers } => {
                let received =
                    |reader: &Arc<Actor>| reader.recorder.totals().received / reader.deliveries().max(1);
                let least = readers.iter().map(received).min();
                least.map_or(u64::MAX, |received| max.saturating_add(received))
            }
            Self::Told(allowed) => allowed.load(Ordering::Relaxed),
        }
    }
}
