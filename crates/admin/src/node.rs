//! The node: the process that answers.
//!
//! Its state and the commands to it are behind the trait [`Node`], as this crate knows no process.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use stafett_broker::Broker;
use stafett_http::api::{get, post, put};
use stafett_http::list::List;
use stafett_http::{Code, Parameter, Problem, Query, Slot, body};
use stafett_journal::Journal as _;
use stafett_net::Connections;

use crate::cluster::{self, Cluster, ClusterObjects};
use crate::journal::JournalDesk;
use crate::operations::Operations;
use crate::time::rfc3339;
use crate::waits::WaitingConnections;
use crate::{Routes, answer};

/// Longest time for connections to finish.
const DRAIN_S_MAX: u64 = 600;
/// Longest time for which a log level holds.
const LEVEL_S_MAX: u64 = 86_400;

pub(crate) const LOG: Parameter = Parameter::flag("log", "Writes the answer to the log as well.");

/// Outcome of a command that takes a while.
pub type Commanded<T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + Send>>;

/// A process that serves the API.
pub trait Node: Debug + Send + Sync {
    /// Returns its name: that of the machine, or `node-N` in a cluster.
    fn name(&self) -> String;
    /// Returns the time since which a listener refuses work, in milliseconds since 1970.
    fn overloaded_since(&self) -> Option<i64> {
        None
    }
    /// Returns the word for its state: `starting`, `standing_by`, `recovering`, `ok` or `draining`.
    fn state(&self) -> &'static str;
    /// Returns its start, in milliseconds since 1970.
    fn started_at(&self) -> i64;
    fn listeners(&self) -> Vec<Listener>;
    fn settings(&self) -> Vec<Setting>;
    fn memory(&self) -> ProcessMemory;
    /// Returns the latest reading of the machine and of the process.
    fn usage(&self) -> Usage;
    /// Describes all threads.
    fn threads(&self) -> std::io::Result<Vec<Thread>>;
    /// Stops the process; connections have the given time to finish.
    fn shut_down(&self, drain: Option<Duration>) -> Result<(), Problem>;
    /// Shows the cluster that it is in.
    fn cluster(&self) -> Commanded<Cluster> {
        Box::pin(async { Err(cluster::no_cluster()) })
    }
    /// Compares the object store of the cluster with its database.
    fn cluster_objects(&self) -> Commanded<ClusterObjects> {
        Box::pin(async { Err(cluster::no_cluster()) })
    }
    /// Has another node own a cell, and returns the number of its owner.
    fn move_cell(&self, _cell: u32, _to: Option<u32>) -> Commanded<u32> {
        Box::pin(async { Err(cluster::no_cluster()) })
    }
    /// Reads the settings again.
    fn reload(&self) -> Commanded<Reloaded>;
    /// Changes the log filter, for a time or until the next change.
    fn set_log_level(&self, level: String, time: Option<Duration>) -> Commanded<LogLevel>;
}

/// A listening socket.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Listener {
    pub protocol: &'static str,
    pub address: String,
    /// Open connections.
    pub connections: i64,
    /// Behaviour when more is asked for than can be done: `backpressure` or `shed`.
    pub overload: &'static str,
}

/// A setting, as it is in force.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Setting {
    pub key: &'static str,
    /// Value in the notation of the file.
    pub value: String,
    pub default: &'static str,
    /// `default`, a file with the line, a variable of the environment, or a flag.
    pub source: String,
    /// True if it can change while the broker runs.
    pub reloads: bool,
    pub about: String,
}

/// Memory of the process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessMemory {
    /// `None` if the system does not tell.
    pub resident_bytes: Option<u64>,
    /// Bytes of requests in memory, and their bound.
    pub requests: (u64, u64),
    /// Connections that wait for memory for their request.
    pub waiting: u64,
}

/// Reading of the machine and of the process. Rates are those of the last 5 s.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    pub machine: MachineUsage,
    pub process: ProcessUsage,
}

/// Use of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(rename = "Machine")]
pub struct MachineUsage {
    pub cores: usize,
    /// Part of all processors' time, from 0 to 1.
    pub cpu_user: f64,
    pub cpu_system: f64,
    /// Time waiting for disks.
    pub cpu_wait: f64,
    pub memory_bytes: u64,
    /// Memory that programs can still get.
    pub memory_available_bytes: u64,
    /// Free space of the disk of the data directory.
    pub disk_free_bytes: u64,
    /// Bytes per second of all disks.
    pub disk_read_rate: f64,
    pub disk_written_rate: f64,
    /// Bytes per second of all interfaces but the loopback one.
    pub network_received_rate: f64,
    pub network_sent_rate: f64,
}

/// Use by the process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(rename = "Process")]
pub struct ProcessUsage {
    /// Processors in use for itself: 1 is one of them.
    pub cpu_user: f64,
    /// Processors in use by the system for it.
    pub cpu_system: f64,
    pub resident_bytes: u64,
    /// Open files and sockets.
    pub descriptors: u64,
    pub descriptors_max: u64,
    /// Bytes per second that it had disks read and write.
    pub disk_read_rate: f64,
    pub disk_written_rate: f64,
}

/// A thread.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Thread {
    pub name: String,
    /// Letter of the state, as in proc(5): R runs, S sleeps, D waits for a disk.
    pub state: String,
    /// Processor time taken.
    pub cpu_s: f64,
    /// Function of the kernel in which it waits.
    pub waits_in: Option<String>,
}

/// Settings that were read again.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Reloaded {
    /// Settings that have changed.
    pub changed: Vec<&'static str>,
    /// Settings that differ, and need a restart.
    pub needs_restart: Vec<&'static str>,
    /// Settings that could not change, and stay as they were.
    pub failed: Vec<FailedSetting>,
}

/// A setting that could not change.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FailedSetting {
    pub key: &'static str,
    pub why: String,
}

/// A log filter in force.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LogLevel {
    pub level: String,
    /// Seconds after which the setting `log.level` is in force again.
    pub for_s: Option<u64>,
}

/// The node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Node")]
struct NodeStatus {
    /// That of the machine, or `node-N` in a cluster.
    node: String,
    version: &'static str,
    started_at: String,
    /// `starting`, `recovering`, `ok` or `draining`.
    state: &'static str,
    /// Number of the journal's start; null before that.
    epoch: Option<u32>,
    listeners: Vec<Listener>,
    /// Settings that have another value than their default.
    settings_changed: Vec<&'static str>,
}

/// A node of those that clients may use.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NodeMember")]
struct Member {
    name: String,
    state: &'static str,
    /// Address of each listener by protocol.
    addresses: BTreeMap<&'static str, String>,
}

/// Threads, and work in progress.
#[derive(Debug, Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "names of the answer are a contract")]
struct Threads {
    threads: Vec<Thread>,
    connections: WaitingConnections,
    /// Operations that run.
    operations: usize,
    /// Queues whose logs cannot be read now; null before the broker serves.
    queues_stalled: Option<usize>,
}

/// A shutdown.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shutdown {
    /// Seconds for connections to finish; 7 if it is absent.
    #[schemars(range(max = DRAIN_S_MAX))]
    drain_s: Option<u64>,
}

/// State of a shutdown.
#[derive(Debug, Serialize, JsonSchema)]
struct Draining {
    /// `draining`.
    state: &'static str,
    /// Connections that are open.
    connections: i64,
}

/// A log filter to set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LevelOrder {
    /// As the setting `log.level`: `info,stafett_net=debug`.
    level: String,
    /// Seconds after which the setting is in force again; without it, at the next start.
    #[schemars(range(min = 1, max = LEVEL_S_MAX))]
    for_s: Option<u64>,
}

const NODES: List<Arc<dyn Node>, Member> = List {
    name: |_| ("", ""),
    sorts: &[],
    shown: |node| Member {
        name: node.name(),
        state: node.state(),
        addresses: node
            .listeners()
            .into_iter()
            .map(|listener| (listener.protocol, listener.address))
            .collect(),
    },
};

const SETTINGS: List<Setting, Setting> = List {
    name: |setting| ("", setting.key),
    sorts: &[],
    shown: Setting::clone,
};

/// Returns the routes of the node.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/nodes", "Lists the nodes that clients may use.").lists(&NODES),
            nodes,
        )
        .route(
            get("/v1/node", "Shows this node.").answers::<NodeStatus>(200),
            show,
        )
        .route(
            get(
                "/v1/node/threads",
                "Shows the threads of the process, and where each waits.",
            )
            .query(&[LOG])
            .answers::<Threads>(200)
            .refuses(&[Code::Unreadable]),
            threads,
        )
        .route(
            get("/v1/node/settings", "Lists the settings in force.").lists(&SETTINGS),
            settings,
        )
        .route(
            put(
                "/v1/node/log-level",
                "Changes the log filter until its time is over, or until the next start.",
            )
            .body::<LevelOrder>()
            .answers::<LogLevel>(200)
            .refuses(&[Code::NotServing, Code::BadSettings]),
            log_level,
        )
        .route(
            post(
                "/v1/node/reload",
                "Reads the settings again, as SIGHUP does. A file with an error changes nothing.",
            )
            .answers::<Reloaded>(200)
            .refuses(&[Code::NotServing, Code::BadSettings]),
            reload,
        )
        .route(
            post(
                "/v1/node/shutdown",
                "Stops the node, as SIGTERM does. A second request shows what is left.",
            )
            .body::<Shutdown>()
            .answers::<Draining>(202)
            .refuses(&[Code::NotServing]),
            shut_down,
        )
}

async fn nodes(State(node): State<Arc<dyn Node>>, query: Query) -> Result<Response, Problem> {
    Ok(answer(StatusCode::OK, &NODES.page(&query, vec![node])?))
}

async fn show(State(node): State<Arc<dyn Node>>, State(desk): State<JournalDesk>) -> Response {
    let is_changed = |setting: &Setting| setting.value.trim() != setting.default;
    let settings = node.settings();
    let status = NodeStatus {
        node: node.name(),
        version: env!("CARGO_PKG_VERSION"),
        started_at: rfc3339(node.started_at()),
        state: node.state(),
        epoch: desk.journal.get().ok().map(|journal| journal.epoch().0),
        listeners: node.listeners(),
        settings_changed: settings
            .iter()
            .filter(|setting| is_changed(setting))
            .map(|setting| setting.key)
            .collect(),
    };
    answer(StatusCode::OK, &status)
}

async fn threads(
    State(node): State<Arc<dyn Node>>,
    State(operations): State<Operations>,
    State(connections): State<Arc<Connections>>,
    State(broker): State<Slot<Broker>>,
    query: Query,
) -> Result<Response, Problem> {
    let threads = node.threads();
    let stalled = |broker: Arc<Broker>| {
        let queues = broker.messaging().queues().all();
        queues.iter().filter(|queue| queue.is_stalled()).count()
    };
    let shown = Threads {
        connections: WaitingConnections::of(&connections),
        threads: threads.map_err(|error| Problem::new(Code::Unreadable, error))?,
        operations: operations.running(),
        queues_stalled: broker.get().ok().map(stalled),
    };
    if query.flag("log")? {
        tracing::info!(threads = %json!(shown), "threads");
    }
    Ok(answer(StatusCode::OK, &shown))
}

async fn settings(State(node): State<Arc<dyn Node>>, query: Query) -> Result<Response, Problem> {
    Ok(answer(StatusCode::OK, &SETTINGS.page(&query, node.settings())?))
}

async fn log_level(State(node): State<Arc<dyn Node>>, request: Request) -> Result<Response, Problem> {
    let order: LevelOrder = body::json(request).await?;
    let time = order.for_s.map(|for_s| {
        let seconds = (1..=LEVEL_S_MAX).contains(&for_s).then_some(for_s);
        let why = || Problem::bad_request(format!("for_s is 1 to {LEVEL_S_MAX}, not {for_s}"));
        seconds.map(Duration::from_secs).ok_or_else(why)
    });
    let level = node.set_log_level(order.level, time.transpose()?).await?;
    Ok(answer(StatusCode::OK, &level))
}

async fn reload(State(node): State<Arc<dyn Node>>) -> Result<Response, Problem> {
    Ok(answer(StatusCode::OK, &node.reload().await?))
}

async fn shut_down(State(node): State<Arc<dyn Node>>, request: Request) -> Result<Response, Problem> {
    let order: Shutdown = body::json(request).await?;
    if let Some(drain_s) = order.drain_s.filter(|drain_s| *drain_s > DRAIN_S_MAX) {
        let why = format!("drain_s is at most {DRAIN_S_MAX}, not {drain_s}");
        return Err(Problem::bad_request(why));
    }
    node.shut_down(order.drain_s.map(Duration::from_secs))?;
    let open = node.listeners().iter().map(|listener| listener.connections).sum();
    let draining = Draining {
        state: "draining",
        connections: open,
    };
    Ok(answer(StatusCode::ACCEPTED, &draining))
}
