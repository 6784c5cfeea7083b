//! Time at which a consumer acknowledges, and the number of messages that it may hold until then.
//!
//! Without a `commit` of the role, deliveries are acknowledged when the caller asks for more: it has dealt
//! with them then. With one, they are acknowledged when the caller commits, and before the prefetch is used
//! up.

use crate::experiment::{Delivery, Role};

/// Messages that a consumer may hold unsettled where the role says nothing; a commit has to be waited for
/// without a bound.
const PREFETCH: u16 = 1000;

/// Wishes of a role for its consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settlement {
    pub settling: Settling,
    /// Messages that may be unsettled; 0 is no bound.
    pub prefetch: u16,
}

/// Time at which deliveries are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settling {
    /// By the broker, as it sends them.
    Never,
    WhenAskedForMore,
    /// At a commit, or when this many are unsettled.
    OnCommit {
        at_least_every: Option<u64>,
    },
}

impl Settlement {
    pub fn of(role: &Role) -> Self {
        let has_commit = role.commit.is_some();
        let default = if has_commit { 0 } else { PREFETCH };
        let prefetch = role
            .prefetch
            .map_or(default, |prefetch| u16::try_from(prefetch).unwrap_or(u16::MAX));
        let settling = if role.delivery == Delivery::AtMostOnce {
            Settling::Never
        } else if has_commit {
            Settling::OnCommit {
                at_least_every: (prefetch > 0).then(|| u64::from(prefetch).div_ceil(2)),
            }
        } else {
            Settling::WhenAskedForMore
        };
        Self { settling, prefetch }
    }
}
