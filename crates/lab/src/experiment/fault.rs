//! Faults of a system under load.

use serde::{Deserialize, Serialize};

use super::units::Span;

/// A fault of a system that the lab has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub does: FaultKind,
    /// Time of the first one, after the start of the load.
    pub at: Span,
    /// Time after which it is started again, or goes on.
    #[serde(rename = "for", default)]
    pub away: Span,
    /// Again at these intervals, until the load ends.
    pub every: Option<Span>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Its process is killed (SIGKILL).
    Kill,
    /// It is asked to end (SIGTERM).
    #[serde(alias = "restart")]
    Stop,
    /// Its process is held (SIGSTOP).
    Pause,
}

impl Fault {
    /// Returns true if the process begins anew.
    pub fn ends_process(&self) -> bool {
        self.does != FaultKind::Pause
    }
}
