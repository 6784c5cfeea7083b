//! `run.json`: the run as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::histogram::Latencies;
use crate::experiment::Experiment;
use crate::grid::Parameters;

/// The request, the machine, the order of points, and the progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub format: u32,
    /// The experiment's name: its file's, without folder and ending.
    pub name: String,
    /// The experiment as it was read, before the grid and the scale were applied.
    pub experiment: Experiment,
    /// The file's text, from which the points are made again when a run is resumed.
    pub source: String,
    /// The command line that repeats the run.
    pub command: String,
    /// Durations, counts and rates were multiplied by this; 1 is the experiment as it is written.
    pub scale: f64,
    /// The request beside the file and the scale; `None` in runs of programs that did not write it yet.
    pub asked: Option<RunRequest>,
    pub seed: u64,
    pub environment: Environment,
    /// The network between client and system: this machine's own, or that to the agents; `None` where it
    /// could not be measured, or nothing goes over it.
    pub network: Option<Network>,
    /// The ways to systems that run elsewhere.
    #[serde(default)]
    pub reached: Vec<Reached>,
    /// Rates of the clients against a stub that answers without storing.
    pub ceilings: Vec<Ceiling>,
    /// Milliseconds since 1970.
    pub started_ms: i64,
    pub ended_ms: Option<i64>,
    pub status: Status,
    /// Reason of the end, if it is neither running nor finished.
    pub reason: Option<String>,
    /// All points, in the order in which they are run.
    pub order: Vec<Planned>,
}

/// Request of a run: a run goes on only with the same one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRequest {
    pub systems: Vec<String>,
    pub repetitions: u32,
    /// Of systems that run already, by their names.
    pub addresses: BTreeMap<String, String>,
    /// Agents that run the load, each `NAME=HOST:PORT`; none: the machine of the run itself.
    pub agents: Vec<String>,
    /// The program with the clients that users take, where one was named.
    pub clients: Option<String>,
}

/// Progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Under way, or ended without a word: killed.
    Running,
    Finished,
    /// Stopped by its user; it can be resumed.
    Interrupted,
    /// Stopped by an error of the lab's own machine, such as a full disk; it can be resumed.
    Stopped,
}

/// A point that is to be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// From 1 on, in the order of the grid; also the name of the point's file.
    pub number: u32,
    pub system: String,
    /// The grid's parameters by their path, such as `roles.producers.batch`.
    pub parameters: Parameters,
    /// From 1 on.
    pub repetition: u32,
}

/// The machine, and the software on it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Environment {
    pub cpu: String,
    pub cores: u32,
    pub memory_bytes: u64,
    pub kernel: String,
    pub distribution: String,
    /// The file system and the device that results and systems' data lie on.
    pub disk: String,
    /// Stafett's version, and the revision it was built from where that is known.
    pub stafett: String,
    pub revision: Option<String>,
    /// Versions by system, as far as they were started.
    pub versions: BTreeMap<String, String>,
    /// Other machines that took part, by the name that the controller gave them.
    pub agents: Vec<String>,
}

/// The network between client and system, without a broker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Name of the path, such as `loopback`.
    pub path: String,
    pub bytes_per_second: f64,
    /// The other way; absent where both ways are the same.
    #[serde(default)]
    pub back_bytes_per_second: Option<f64>,
    /// There and back at once.
    #[serde(default)]
    pub both_bytes_per_second: Option<(f64, f64)>,
    /// One byte there and back.
    pub round_trip: Latencies,
}

/// The way to a system that runs elsewhere. Nothing at its other end takes bytes and forgets them, so its
/// throughput is not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    pub system: String,
    pub address: String,
    /// Time to connect: a round trip.
    pub connect: Option<Latencies>,
    /// Reason of a missing figure.
    pub reason: Option<String>,
}

/// Rates of a client against a stub.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// The driver's name.
    pub driver: String,
    /// Those of the grid's parameters that the client is concerned with, and the size of its messages.
    pub parameters: Parameters,
    /// Messages per second.
    pub produce_rate: Option<f64>,
    pub consume_rate: Option<f64>,
    /// CPU seconds of the client per million messages, where it produces as fast as it can.
    pub client_cpu_per_million: Option<f64>,
    /// Reason of a missing figure.
    pub reason: Option<String>,
}
