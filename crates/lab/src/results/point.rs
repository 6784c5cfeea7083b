//! `points/NNNN.json`: one system with one set of parameters, once.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::histogram::Latencies;
use super::series::{ProcessSeries, RateSample, Window};
use crate::grid::Parameters;

/// Results of one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub format: u32,
    pub number: u32,
    pub system: String,
    /// Version, in the system's own words; empty if it was not started.
    pub version: String,
    pub parameters: Parameters,
    pub repetition: u32,
    pub outcome: Outcome,
    pub durability: Durability,
    /// The settings that the system was given, in its own words.
    pub settings: BTreeMap<String, String>,
    pub driver: Driver,
    /// The revision of the program that measured it, where that is known.
    pub revision: Option<String>,
    /// Milliseconds since 1970.
    pub started_ms: i64,
    /// Seconds at the front that count for nothing.
    pub warmup_s: f64,
    /// Seconds behind them that count.
    pub measured_s: f64,
    pub roles: Vec<RoleResult>,
    pub processes: Vec<ProcessSeries>,
    /// Times during which faults kept the system away.
    #[serde(default)]
    pub outages: Vec<(f64, f64)>,
    /// The figures by name (see [`super::metric::METRICS`]); those that make no sense here are absent.
    pub metrics: BTreeMap<String, f64>,
    /// Remarks for readers.
    pub remarks: Vec<String>,
}

/// End of a point. Every kind but `Done` has a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub kind: OutcomeKind,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    Done,
    /// The system did not start, did not answer, or died.
    Failed,
    /// The system does not take a setting.
    Refused,
    /// Messages that were acknowledged did not come out. The figures stand beside it.
    Lost,
    /// Not run: a driver, a feature or a program is not there.
    Skipped,
}

impl OutcomeKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Lost => "lost",
            Self::Skipped => "skipped",
        }
    }
}

/// Durability of acknowledged messages: it stands beside every number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Durability {
    /// Level that the experiment asked for.
    pub asked: String,
    /// Level that the system gives: `none`, `memory`, `os`, `interval:N,T` or `sync`. Never stronger than it
    /// is.
    pub given: String,
    /// The system's own switches for it, and differences to the level that was asked for.
    pub note: Option<String>,
}

/// The client side.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Driver {
    /// Such as `lean` or `librdkafka`.
    pub name: String,
    pub version: String,
    /// The share of the machine's cores that the client used while it counted, 0 to 1.
    pub cpu_share: f64,
    /// Reason why the client, rather than the system, may have been measured.
    pub limited: Option<String>,
}

/// Results of one role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleResult {
    pub name: String,
    /// Its task: `produce`, `consume`, `relay`, `request`, `respond`, …
    pub does: String,
    pub clients: u32,
    /// Over the time that counts.
    pub counts: Counts,
    /// From the start to the end of the point, warm-up included: messages that went in against those that
    /// came out.
    pub totals: Counts,
    /// Messages per second over the time that counts: acknowledged ones of roles that send, else received
    /// ones. A role with a number of messages to send, and readers of its messages, are measured over their
    /// own time.
    pub rate: f64,
    /// Bytes of content per second.
    pub bytes_rate: f64,
    /// By their names: `acknowledged` (intended moment of sending to acknowledgement), `delivery` (to its
    /// reception), `round_trip` (to the answer), `poll` (from when a poll was due to its answer), `lateness`
    /// (to the lab's own sending, without the time that the system kept it waiting). Of messages
    /// that were meant to be sent in the time that counts; those without an answer have the time that it was
    /// waited for.
    pub latencies: BTreeMap<String, Latencies>,
    pub samples: Vec<RateSample>,
    /// Latencies of each ten seconds; absent in results of earlier programs.
    #[serde(default)]
    pub windows: Vec<Window>,
}

/// Messages counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub sent: u64,
    pub acknowledged: u64,
    /// Refused, or given up without an answer.
    pub failed: u64,
    pub received: u64,
    /// Received more than once by the same audience.
    pub duplicated: u64,
    /// Acknowledged and never received by an audience that should have.
    pub lost: u64,
    /// Not answered within the role's patience.
    pub timed_out: u64,
    pub reconnects: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl Outcome {
    pub fn done() -> Self {
        Self {
            kind: OutcomeKind::Done,
            reason: None,
        }
    }

    pub fn because(kind: OutcomeKind, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: Some(reason.into()),
        }
    }
}

impl Counts {
    /// Returns the counts since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        let pairs = since.all_mut().into_iter().zip(before.all());
        pairs.for_each(|(count, before)| *count -= before);
        since
    }

    pub fn add(&mut self, other: &Self) {
        let pairs = self.all_mut().into_iter().zip(other.all());
        pairs.for_each(|(count, other)| *count += other);
    }

    fn all(mut self) -> [u64; 10] {
        self.all_mut().map(|count| *count)
    }

    fn all_mut(&mut self) -> [&mut u64; 10] {
        [
            &mut self.sent,
            &mut self.acknowledged,
            &mut self.failed,
            &mut self.received,
            &mut self.duplicated,
            &mut self.lost,
            &mut self.timed_out,
            &mut self.reconnects,
            &mut self.bytes_sent,
            &mut self.bytes_received,
        ]
    }
}
