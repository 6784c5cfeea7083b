//! A load that several hosts run together: what each of them is told, and what it tells.
//!
//! Every host runs its own seats on its own clock, from the moment at which it is told to begin. Nothing that it tells
//! compares its clock with another's.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::ledger::StreamImage;
use crate::results::RateSample;

/// One host's ties to the others.
#[derive(Debug)]
pub struct Together {
    /// All hosts have connected who receives.
    pub begin: CancellationToken,
    /// Nothing is left to be sent, or to be received: what is left of the time is given up.
    pub end: CancellationToken,
    /// Everything has come, or nothing comes any more.
    pub stop: CancellationToken,
    /// By role: its clients have ended, on all hosts.
    pub over: BTreeMap<String, CancellationToken>,
    pub progress: watch::Sender<Progress>,
    pub seconds: mpsc::Sender<Vec<RoleSecond>>,
}

/// How far a host is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Who receives is connected, and it took so long.
    pub connected: Option<Duration>,
    /// Its senders have stopped.
    pub is_sent: bool,
    /// In the order of the roles' names.
    pub roles: Vec<RoleProgress>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoleProgress {
    /// Different messages that were made and not given up.
    pub made: u64,
    pub received: u64,
    /// Since its first client began, until the latest message came; on the host's own clock.
    pub spent: Option<Duration>,
    /// Its clients here have ended.
    pub has_ended: bool,
}

/// One second of a role on a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleSecond {
    pub sample: RateSample,
    /// The latencies of that second, encoded as in [`crate::results::Latencies`]; empty if there were none.
    pub histogram: String,
}

/// What a role's clients on a host sent and received, message by message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoleBooks {
    /// How many messages each stream has had.
    pub streams: Vec<(u32, u64)>,
    /// Messages of streams that were given up.
    pub given_up: Vec<(u32, Vec<u64>)>,
    /// So many were given up that loss cannot be told from failure.
    pub is_overwhelmed: bool,
    /// By audience: with fan-out the number of a client, else 0.
    pub audiences: Vec<(u32, Vec<StreamImage>)>,
}
