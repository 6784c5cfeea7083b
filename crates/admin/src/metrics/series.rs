//! Series of the kinds of objects, with their names in answers.

use stafett_broker::NODE_SERIES;
use stafett_http::Problem;

/// Kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Queue,
    Topic,
    Exchange,
    Group,
}

/// A series in answers.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) about: &'static str,
    pub(super) is_level: bool,
    /// Series of the core that it is the sum of.
    pub(super) places: &'static [usize],
    pub(super) prometheus: Option<String>,
}

/// Name, unit, text, true for a level, series of the core, metric of Prometheus.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    bool,
    &'static [usize],
    &'static str,
);

const QUEUE: &[Row] = &[
    ("ready", "", "Messages that wait", true, &[0], "queue_ready"),
    (
        "in_flight",
        "",
        "Messages that consumers have",
        true,
        &[1],
        "queue_in_flight",
    ),
    (
        "published_rate",
        "1/s",
        "Messages added",
        false,
        &[2],
        "queue_published_total",
    ),
    (
        "delivered_rate",
        "1/s",
        "Messages given out",
        false,
        &[3, 4, 5],
        "queue_delivered_total",
    ),
    (
        "got_rate",
        "1/s",
        "Messages of these given to requests",
        false,
        &[5],
        "queue_got_total",
    ),
    (
        "completed_rate",
        "1/s",
        "Messages completed",
        false,
        &[6],
        "queue_completed_total",
    ),
];

const TOPIC: &[Row] = &[
    (
        "records_in_rate",
        "1/s",
        "Records appended",
        false,
        &[0],
        "topic_records_in_total",
    ),
    (
        "bytes_in_rate",
        "B/s",
        "Bytes appended",
        false,
        &[1],
        "topic_bytes_in_total",
    ),
    (
        "records_out_rate",
        "1/s",
        "Records that readers got",
        false,
        &[2],
        "topic_records_out_total",
    ),
    (
        "bytes_out_rate",
        "B/s",
        "Bytes that readers got",
        false,
        &[3],
        "topic_bytes_out_total",
    ),
];

const EXCHANGE: &[Row] = &[
    ("published_rate", "1/s", "Messages published", false, &[0], ""),
    (
        "routed_rate",
        "1/s",
        "Messages that led somewhere",
        false,
        &[1],
        "",
    ),
    (
        "unroutable_rate",
        "1/s",
        "Messages that led nowhere",
        false,
        &[2],
        "",
    ),
];

const GROUP: &[Row] = &[
    (
        "lag",
        "",
        "Offsets from the commits to the ends of their partitions",
        true,
        &[1],
        "group_lag",
    ),
    (
        "commits_rate",
        "1/s",
        "Offsets committed",
        false,
        &[0],
        "group_commits_total",
    ),
];

/// Places of the series of the node, each alone.
#[expect(clippy::indexing_slicing, reason = "checked when it is compiled")]
static PLACES: [usize; 64] = {
    let mut places = [0; 64];
    let mut at = 0;
    while at < 64 {
        places[at] = at;
        at += 1;
    }
    places
};

/// Metrics of Prometheus for series of the node that have one.
const NODE_METRICS: &[(&str, &str)] = &[
    ("published", "rate(stafett_queues_published_total[1m])"),
    ("delivered", "rate(stafett_queues_delivered_total[1m])"),
    ("completed", "rate(stafett_queues_settled_total[1m])"),
    ("unroutable", "rate(stafett_exchanges_unroutable_total[1m])"),
    (
        "connections_opened",
        "sum(rate(stafett_connections_accepted_total[1m]))",
    ),
    ("queues_declared", "rate(stafett_queues_declared_total[1m])"),
    ("queues_created", "rate(stafett_queues_created_total[1m])"),
    ("queues_deleted", "rate(stafett_queues_deleted_total[1m])"),
    ("ready", "stafett_queues_ready"),
    ("in_flight", "stafett_queues_in_flight"),
    ("queues", "stafett_queues_queues"),
    ("connections", "sum(stafett_connections_open)"),
    ("process_cpu", "rate(stafett_process_cpu_seconds_total[1m])"),
    ("resident_bytes", "stafett_process_resident_memory_bytes"),
    ("descriptors", "stafett_process_descriptors_open"),
];

/// Names of the rates of the node's counters.
const NODE_RATES: &[(&str, &str)] = &[
    ("records_in", "records_in_rate"),
    ("bytes_in", "bytes_in_rate"),
    ("records_out", "records_out_rate"),
    ("bytes_out", "bytes_out_rate"),
    ("published", "published_rate"),
    ("delivered", "delivered_rate"),
    ("got", "got_rate"),
    ("completed", "completed_rate"),
    ("redelivered", "redelivered_rate"),
    ("routed", "routed_rate"),
    ("unroutable", "unroutable_rate"),
    ("commits", "commits_rate"),
    ("connections_opened", "connections_opened_rate"),
    ("queues_declared", "queues_declared_rate"),
    ("queues_created", "queues_created_rate"),
    ("queues_deleted", "queues_deleted_rate"),
    ("disk_read", "disk_read_rate"),
    ("disk_written", "disk_written_rate"),
    ("network_received", "network_received_rate"),
    ("network_sent", "network_sent_rate"),
];

impl Kind {
    pub(super) fn read(word: &str) -> Result<Self, Problem> {
        match word {
            "node" => Ok(Self::Node),
            "queue" => Ok(Self::Queue),
            "topic" => Ok(Self::Topic),
            "exchange" => Ok(Self::Exchange),
            "group" => Ok(Self::Group),
            other => Err(Problem::bad_request(format!(
                "of is node, queue, topic, exchange or group, not {other:?}"
            ))),
        }
    }

    pub(super) fn series(self) -> Vec<Named> {
        let (rows, label) = match self {
            Self::Node => return of_node(),
            Self::Queue => (QUEUE, "queue"),
            Self::Topic => (TOPIC, "topic"),
            Self::Exchange => (EXCHANGE, "exchange"),
            Self::Group => (GROUP, "group"),
        };
        rows.iter().map(|row| named(*row, label)).collect()
    }
}

fn named((name, unit, about, is_level, places, metric): Row, label: &str) -> Named {
    let expression = || {
        let series = format!("stafett_{metric}{{{label}=\"NAME\"}}");
        if is_level {
            series
        } else {
            format!("rate({series}[1m])")
        }
    };
    Named {
        name,
        unit,
        about,
        is_level,
        places,
        prometheus: (!metric.is_empty()).then(expression),
    }
}

fn of_node() -> Vec<Named> {
    let lookup = |of: &[(&str, &'static str)], name: &str| {
        of.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, found)| *found)
    };
    NODE_SERIES
        .iter()
        .zip(PLACES.chunks(1))
        .map(|(series, places)| Named {
            name: lookup(NODE_RATES, series.name).unwrap_or(series.name),
            unit: series.unit,
            about: series.about,
            is_level: !series.is_counter,
            places,
            prometheus: lookup(NODE_METRICS, series.name).map(str::to_owned),
        })
        .collect()
}
