//! A load that several hosts run together: signals to each of them, and its reports.
//!
//! Every host runs its own seats on its own clock, from the moment at which it is told to begin. No report
//! compares its clock with another's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::derived_numbers;
use super::ledger::Piece;
use super::log::Log;
use super::pace::SharedRate;
use crate::experiment::{Plan, Role};
use crate::results::RateSample;

/// Seconds that may wait to be told.
const SECONDS_WAITING: usize = 64;

/// Signals from the controller to one host's load.
#[derive(Debug, Clone)]
pub struct Signals {
    /// All receivers are connected, on all hosts.
    pub begin: CancellationToken,
    /// Nothing is left to be sent or received; the rest of the time is given up.
    pub end: CancellationToken,
    /// Everything has come, or nothing comes any more.
    pub stop: CancellationToken,
    /// By role: its clients have ended, on all hosts.
    pub over: BTreeMap<String, CancellationToken>,
    /// By role: the rate of all its clients everywhere, if it is searched for.
    pub rates: BTreeMap<String, Arc<SharedRate>>,
    /// By role: messages that its clients here may have sent since the start, if they wait for receivers.
    pub allowed: BTreeMap<String, Arc<AtomicU64>>,
}

/// One host's ties to the others: the end of its load.
#[derive(Debug)]
pub struct Together {
    pub signals: Signals,
    pub log: Log,
    pub progress: watch::Sender<Progress>,
    pub seconds: mpsc::Sender<HostSecond>,
}

/// The other end, of the session that passes on messages from and to the controller.
#[derive(Debug)]
pub struct Ties {
    pub signals: Signals,
    pub progress: watch::Receiver<Progress>,
    pub seconds: mpsc::Receiver<HostSecond>,
}

/// Returns both ends for a host that runs a part of a plan.
pub fn tied(plan: &Plan) -> (Ties, Together) {
    let (told, progress) = watch::channel(Progress::default());
    let (tell, seconds) = mpsc::channel(SECONDS_WAITING);
    let signals = Signals {
        begin: CancellationToken::new(),
        end: CancellationToken::new(),
        stop: CancellationToken::new(),
        over: of_roles(plan, |_| Some(CancellationToken::new())),
        rates: of_roles(plan, |role| {
            let adaptive = role.rate.adaptive()?;
            Some(Arc::new(SharedRate::new(adaptive.first)))
        }),
        allowed: of_roles(plan, |role| {
            let waits = role.ahead.is_some() && derived_numbers::readers(plan, role).next().is_some();
            waits.then(Arc::default)
        }),
    };
    let together = Together {
        signals: signals.clone(),
        log: Log::kept(),
        progress: told,
        seconds: tell,
    };
    let ties = Ties {
        signals,
        progress,
        seconds,
    };
    (ties, together)
}

/// Returns the results of `of` for each role, by name.
fn of_roles<T>(plan: &Plan, of: impl Fn(&Role) -> Option<T>) -> BTreeMap<String, T> {
    let some = |(name, role): (&String, &Role)| Some((name.clone(), of(role)?));
    plan.roles.iter().filter_map(some).collect()
}

/// Progress of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Time that its receivers took to connect, once they are.
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

/// One second of a host. Hosts begin together, so those with the same number go together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSecond {
    /// From 0 on; where one could not be told, its number is left out.
    pub number: u64,
    /// In the order of the roles' names.
    pub roles: Vec<RoleSecond>,
}

/// One second of a role on a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleSecond {
    pub sample: RateSample,
    /// The latencies of that second, encoded as in [`crate::results::Latencies`]; empty if there were none.
    pub histogram: String,
    /// Number of changes of its rate when the second began.
    pub changes: u64,
}

/// Messages that a role's clients on a host sent and received, one by one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RoleBooks {
    /// Number of messages of each stream.
    pub streams: Vec<(u32, u64)>,
    /// Messages of streams that were given up, as in [`Piece`].
    pub given_up: BTreeMap<u32, String>,
    /// Messages that came to its audiences.
    pub came: Vec<Piece>,
    /// From the first message sent, or the first client that received, to the last acknowledgement or
    /// reception, in nanoseconds since the load began.
    pub active: Option<(u64, u64)>,
}
