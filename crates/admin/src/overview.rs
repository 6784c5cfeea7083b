//! The overview: totals and rates of everything, the machine, alarms, and the longest backlogs.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use stafett_broker::{Broker, NODE_SERIES};
use stafett_http::api::get;
use stafett_http::{Code, Problem, Slot};
use stafett_model::Lock;
use stafett_net::Connections;

use crate::connections::channel_count;
use crate::groups;
use crate::journal::JournalDesk;
use crate::node::{MachineUsage, Node, ProcessUsage};
use crate::time::rfc3339;
use crate::{Routes, answer};

/// Entries of each list of the longest.
const TOP: usize = 10;

/// Parts of the overview that are computed once for each sweep of the counters, as they look at everything.
/// Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Overviews(Arc<Lock<Option<Computed>>>);

/// Backlogs, and the time of the sweep for which they are.
type Computed = (i64, Arc<Backlogs>);

/// Messages that wait for consumers.
#[derive(Debug, Default)]
struct Backlogs {
    ready: u64,
    in_flight: u64,
    consumers: u64,
    groups: u64,
    lag: u64,
    queues: Vec<QueueBacklog>,
    by_lag: Vec<GroupBacklog>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Overview")]
struct OverviewShown {
    /// Name of this node: that of its machine, or `node-N` in a cluster.
    node: String,
    /// `starting`, `recovering`, `ok` or `draining`.
    state: &'static str,
    version: &'static str,
    /// Durability of topics that have none of their own.
    durability: String,
    uptime_s: i64,
    totals: Totals,
    rates: Rates,
    machine: MachineUsage,
    process: ProcessUsage,
    alarms: Vec<Alarm>,
    top: Top,
    /// Cells of the cluster that are not in these numbers: they do not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    away: Vec<u32>,
}

/// Numbers of things. Those that look at everything are at most 5 s old.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OverviewTotals")]
struct Totals {
    /// Topics, those that show queues included.
    topics: usize,
    queues: usize,
    ready: u64,
    in_flight: u64,
    consumers: u64,
    groups: u64,
    /// Offsets from the commits of all groups to the ends of their partitions.
    lag: u64,
    connections: i64,
    /// Channels of the connections whose protocol has channels.
    channels: u64,
    live_topics: u64,
    /// Clients of live topics that listen or have subscriptions.
    live_clients: u64,
    live_subscriptions: u64,
    /// Clients of live topics that listen.
    live_listening: u64,
}

/// Events per second, within the latest 5 s.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OverviewRates")]
struct Rates {
    records_in: f64,
    records_out: f64,
    /// Bytes of records.
    bytes_in: f64,
    bytes_out: f64,
    /// Messages added to queues.
    published: f64,
    /// Messages given to consumers and to requests.
    delivered: f64,
    settled: f64,
    redelivered: f64,
    /// Messages that led nowhere.
    returned: f64,
    commits: f64,
    connections_opened: f64,
    /// Declarations of queues, of those that were there too.
    queues_declared: f64,
    queues_created: f64,
    queues_deleted: f64,
}

/// A state that needs help.
#[derive(Debug, Serialize, JsonSchema)]
struct Alarm {
    /// `space_short`: the disk is almost full, and publishers wait. `overloaded`: a listener refuses work.
    /// `damaged`: records are lost. `fenced`: logs take no appends. `journal_failed`: nothing is stored.
    code: &'static str,
    /// Time at which it was noticed.
    since: String,
    text: String,
    /// Cell of the cluster that has it, if it is not the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<u32>,
}

/// The longest backlogs.
#[derive(Debug, Serialize, JsonSchema)]
struct Top {
    queues: Vec<QueueBacklog>,
    groups: Vec<GroupBacklog>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct QueueBacklog {
    namespace: String,
    name: String,
    ready: u64,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct GroupBacklog {
    name: String,
    lag: u64,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    routes.route(
        get(
            "/v1/overview",
            "Shows totals and rates of everything, the use of the machine, alarms, and the longest backlogs.",
        )
        .answers::<OverviewShown>(200)
        .refuses(&[Code::NotServing]),
        show,
    )
}

async fn show(
    State(broker): State<Slot<Broker>>,
    State(node): State<Arc<dyn Node>>,
    State(overviews): State<Overviews>,
    State(connections): State<Arc<Connections>>,
    State(desk): State<JournalDesk>,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let backlogs = overviews.of(&broker);
    let live = broker.live_topics().presence();
    let usage = node.usage();
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let shown = OverviewShown {
        node: node.name(),
        state: node.state(),
        version: env!("CARGO_PKG_VERSION"),
        durability: broker.base_settings().logs.durability.to_string(),
        uptime_s: now_ms.saturating_sub(node.started_at()).max(0) / 1000,
        totals: Totals {
            topics: broker.topics().len(),
            queues: broker.messaging().queues().len(),
            ready: backlogs.ready,
            in_flight: backlogs.in_flight,
            consumers: backlogs.consumers,
            groups: backlogs.groups,
            lag: backlogs.lag,
            connections: node.listeners().iter().map(|listener| listener.connections).sum(),
            channels: connections.all().iter().map(|entry| channel_count(entry)).sum(),
            live_topics: live.topics as u64,
            live_clients: live.clients as u64,
            live_subscriptions: live.subscriptions as u64,
            live_listening: live.listening as u64,
        },
        rates: rates(&broker),
        machine: usage.machine,
        process: usage.process,
        alarms: alarms(&broker, &*node, &desk),
        top: Top {
            queues: backlogs.queues.clone(),
            groups: backlogs.by_lag.clone(),
        },
        away: Vec::new(),
    };
    Ok(answer(StatusCode::OK, &shown))
}

fn rates(broker: &Broker) -> Rates {
    let latest = broker.histories().node(1);
    let rate = |name: &str| {
        let at = NODE_SERIES.iter().position(|series| series.name == name);
        let samples = at.and_then(|at| latest.series.get(at));
        let sample = samples.and_then(|samples| samples.last().copied().flatten());
        sample.unwrap_or_default()
    };
    Rates {
        records_in: rate("records_in"),
        records_out: rate("records_out"),
        bytes_in: rate("bytes_in"),
        bytes_out: rate("bytes_out"),
        published: rate("published"),
        delivered: rate("delivered") + rate("got"),
        settled: rate("completed"),
        redelivered: rate("redelivered"),
        returned: rate("unroutable"),
        commits: rate("commits"),
        connections_opened: rate("connections_opened"),
        queues_declared: rate("queues_declared"),
        queues_created: rate("queues_created"),
        queues_deleted: rate("queues_deleted"),
    }
}

fn alarms(broker: &Broker, node: &dyn Node, desk: &JournalDesk) -> Vec<Alarm> {
    let mut alarms = desk.alarms(node.started_at());
    if broker.messaging().space().is_short() {
        let free = node.usage().machine.disk_free_bytes >> 20;
        alarms.push(Alarm {
            code: "space_short",
            since: since(broker.histories().short_since_ms()),
            text: format!("{free} MiB of the disk are free: publishers wait until there is more"),
            cell: None,
        });
    }
    if let Some(since) = node.overloaded_since() {
        alarms.push(Alarm {
            code: "overloaded",
            since: rfc3339(since),
            text: "more is asked for than can be done: new work is refused".to_owned(),
            cell: None,
        });
    }
    alarms
}

/// Returns the text of a time; of an unknown one that of now.
fn since(at_ms: Option<i64>) -> String {
    rfc3339(at_ms.unwrap_or_else(|| jiff::Timestamp::now().as_millisecond()))
}

impl JournalDesk {
    /// Returns the faults of the journal. Damage is known since the start.
    fn alarms(&self, started_at: i64) -> Vec<Alarm> {
        let Ok(journal) = self.journal.get() else {
            return Vec::new();
        };
        let report = journal.report();
        let (status, fenced, lost) = (journal.status(), report.fenced.len(), report.damaged.len());
        let found = [
            status.failure.map(|why| ("journal_failed", None, why)),
            (fenced > 0).then(|| {
                (
                    "fenced",
                    Some(started_at),
                    format!("{fenced} logs take no appends: their ends are in doubt"),
                )
            }),
            (lost > 0).then(|| {
                (
                    "damaged",
                    Some(started_at),
                    format!("the start found {lost} ranges of records lost"),
                )
            }),
        ];
        let alarm = |(code, from, text): (_, Option<i64>, _)| Alarm {
            code,
            since: since(from),
            text,
            cell: None,
        };
        found.into_iter().flatten().map(alarm).collect()
    }
}

impl Overviews {
    /// Returns the backlogs as of the latest sweep.
    fn of(&self, broker: &Broker) -> Arc<Backlogs> {
        let swept = broker.histories().swept_ms();
        let mut known = self.0.lock();
        if let (Some(swept), Some((at, backlogs))) = (swept, &*known)
            && *at == swept
        {
            return Arc::clone(backlogs);
        }
        let backlogs = Arc::new(Backlogs::of(broker));
        *known = swept.map(|swept| (swept, Arc::clone(&backlogs)));
        backlogs
    }
}

impl Backlogs {
    fn of(broker: &Broker) -> Self {
        let mut found = Self::default();
        let mut queues = Vec::new();
        for queue in broker.messaging().queues().all() {
            let counts = queue.counts();
            found.ready = found.ready.saturating_add(counts.ready);
            found.in_flight += counts.in_flight as u64;
            found.consumers += counts.consumers as u64;
            if counts.ready > 0 {
                queues.push((Reverse(counts.ready), queue));
            }
        }
        queues.sort_unstable_by(|one, other| (one.0, &one.1.name).cmp(&(other.0, &other.1.name)));
        found.queues = queues
            .iter()
            .take(TOP)
            .map(|(ready, queue)| QueueBacklog {
                namespace: queue.namespace.to_string(),
                name: queue.name.to_string(),
                ready: ready.0,
            })
            .collect();
        let mut groups = groups::lags(broker);
        found.groups = groups.len() as u64;
        found.lag = groups
            .iter()
            .fold(0, |sum: u64, (_, lag)| sum.saturating_add(*lag));
        groups.retain(|(_, lag)| *lag > 0);
        groups.sort_unstable_by(|one, other| (Reverse(one.1), &one.0).cmp(&(Reverse(other.1), &other.0)));
        let backlog = |(name, lag): &(Arc<str>, u64)| GroupBacklog {
            name: name.to_string(),
            lag: *lag,
        };
        found.by_lag = groups.iter().take(TOP).map(backlog).collect();
        found
    }
}
