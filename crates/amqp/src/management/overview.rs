//! The broker as a whole: overview, the caller, nodes, and small lists.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use stafett_broker::{NODE_SERIES, STEP_MS};
use stafett_delivery::QueueSeries;

use super::call::Call;
use super::refusal::{Answered, Refusal};
use super::statistics::{Lengths, Statistic, Window, put};
use super::{NODE, VERSION, list, queues, users, values};

/// Types of exchanges, with their descriptions.
const EXCHANGE_TYPES: [(&str, &str); 6] = [
    ("direct", "AMQP direct exchange, as per the AMQP specification"),
    ("fanout", "AMQP fanout exchange, as per the AMQP specification"),
    ("headers", "AMQP headers exchange, as per the AMQP specification"),
    ("topic", "AMQP topic exchange, as per the AMQP specification"),
    ("x-consistent-hash", "Consistent Hashing Exchange"),
    ("x-delayed-message", "Delayed Message Exchange"),
];

/// Counts of things that come and go, since the start.
const CHURN: [&str; 7] = [
    "connection_created",
    "connection_closed",
    "channel_created",
    "channel_closed",
    "queue_declared",
    "queue_created",
    "queue_deleted",
];

/// Figures of a node of RabbitMQ that have no counterpart here.
const WITHOUT_COUNT: [&str; 20] = [
    "gc_num",
    "gc_bytes_reclaimed",
    "context_switches",
    "io_read_count",
    "io_read_bytes",
    "io_read_avg_time",
    "io_write_count",
    "io_write_bytes",
    "io_write_avg_time",
    "io_sync_count",
    "io_sync_avg_time",
    "io_seek_count",
    "io_seek_avg_time",
    "io_reopen_count",
    "mnesia_ram_tx_count",
    "mnesia_disk_tx_count",
    "msg_store_read_count",
    "msg_store_write_count",
    "queue_index_read_count",
    "queue_index_write_count",
];

/// Leads to the description of the API, which is the project's.
pub(super) fn index() -> Response {
    let to = [(header::LOCATION, HeaderValue::from_static("/"))];
    (StatusCode::FOUND, to).into_response()
}

pub(super) fn overview(call: &Call) -> Answered {
    let (by_vhost, queues) = queues::totals(call);
    let mut lengths = Lengths::default();
    for of_vhost in by_vhost.into_values() {
        lengths.add(of_vhost);
    }
    let totals = queue_totals(call, &lengths);
    let listeners: Vec<Value> = listeners(call);
    list::object(
        call,
        json!({
            "management_version": VERSION,
            "rates_mode": "basic",
            "sample_retention_policies": { "global": [], "basic": [], "detailed": [] },
            "exchange_types": exchange_types(),
            "product_version": call.node.product_version,
            "product_name": "Stafett",
            "rabbitmq_version": VERSION,
            "cluster_name": NODE,
            "cluster_tags": {},
            "node_tags": {},
            "erlang_version": "0",
            "erlang_full_version": "none: Stafett is not written in Erlang",
            "disable_stats": false,
            "default_queue_type": "classic",
            "is_op_policy_updating_enabled": false,
            "enable_queue_totals": false,
            "release_series_support_status": "supported",
            "message_stats": message_stats(call, &lengths),
            "churn_rates": churn(call),
            "queue_totals": totals,
            "object_totals": object_totals(call, queues, lengths.consumers),
            "statistics_db_event_queue": 0,
            "node": NODE,
            "listeners": listeners,
            "contexts": contexts(call),
        }),
    )
}

fn churn(call: &Call) -> Value {
    let accepted = call.node.connections_accepted;
    let open = u64::try_from(call.node.connections).unwrap_or_default();
    let metrics = &call.context.metrics;
    let channels = u64::try_from(metrics.channels.get()).unwrap_or_default();
    let opened = metrics.channels_opened.get();
    let queues = call.context.queues();
    let counts = [
        accepted,
        accepted.saturating_sub(open),
        opened,
        opened.saturating_sub(channels),
        metrics.queues_declared.get(),
        queues.created(),
        queues.deleted(),
    ];
    let rates = call.context.churn.rates(stafett_store::wall_ms(), counts);
    let mut fields = Map::new();
    for ((name, count), rate) in CHURN.iter().zip(counts).zip(rates) {
        Statistic::new(count, rate).put(&mut fields, name, None);
    }
    Value::Object(fields)
}

/// Returns the count nearest to a value.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast ends at the bounds of the type"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Lengths of all queues, with the samples of the node.
fn queue_totals(call: &Call, lengths: &Lengths) -> Map<String, Value> {
    let mut totals = Map::new();
    let Some(window) = Window::lengths(call) else {
        lengths.show(&mut totals, None, None);
        return totals;
    };
    let levels = |name: &str| -> Vec<u64> {
        let steps = node_steps(call, &[name], window);
        steps
            .into_iter()
            .map(|step| whole(step.last().copied().unwrap_or_default()))
            .collect()
    };
    let (ready, taken) = (levels("ready"), levels("in_flight"));
    let together = ready
        .iter()
        .zip(&taken)
        .map(|(ready, taken)| ready + taken)
        .collect();
    for (name, count, samples) in [
        ("messages", lengths.ready + lengths.unacknowledged, together),
        ("messages_ready", lengths.ready, ready),
        ("messages_unacknowledged", lengths.unacknowledged, taken),
    ] {
        let mut statistic = Statistic::new(count, 0.0);
        if let [newest, before, ..] = samples.as_slice() {
            let seconds = f64::from(window.length) * STEP_MS as f64 / 1000.0;
            statistic.rate = (*newest as f64 - *before as f64) / seconds;
        }
        statistic.samples = Some(samples);
        statistic.put(&mut totals, name, Some(window));
    }
    totals
}

/// Returns the values of series of the node together, in groups of a window's steps: newest group first, of
/// each the newest value last.
fn node_steps(call: &Call, names: &[&str], window: Window) -> Vec<Vec<f64>> {
    let node = call
        .context
        .broker
        .histories()
        .node(window.length.saturating_mul(window.count));
    let length = usize::try_from(window.length).unwrap_or(usize::MAX);
    let mut sums: Vec<f64> = Vec::new();
    for name in names {
        let at = NODE_SERIES.iter().position(|series| series.name == *name);
        let samples = at.and_then(|at| node.series.get(at));
        let samples = samples.map(Vec::as_slice).unwrap_or_default();
        sums.resize(samples.len(), 0.0);
        for (sum, sample) in sums.iter_mut().zip(samples) {
            *sum += sample.unwrap_or_default();
        }
    }
    let mut groups: Vec<Vec<f64>> = sums.rchunks(length).map(<[f64]>::to_vec).collect();
    groups.resize(usize::try_from(window.count).unwrap_or(usize::MAX), vec![0.0]);
    groups
}

/// Counts of all messages since the start, of deleted queues too.
fn message_stats(call: &Call, lengths: &Lengths) -> Value {
    let context = &call.context;
    let metrics = &context.metrics;
    let exchanges = context.exchanges().sampler().totals();
    let queues = context.queues().sampler().totals();
    let total = |series: QueueSeries| queues.get(series.at());
    let got = total(QueueSeries::Got);
    let counts = &lengths.messages.counts;
    let got_unsettled = counts.got_unsettled.min(got);
    let (delivered, unsettled) = (
        total(QueueSeries::Delivered),
        total(QueueSeries::DeliveredUnsettled),
    );
    let returned = metrics.returned.get();
    let unroutable = exchanges.get(2);
    let is_unsettled = unsettled > delivered;
    let given: &[&str] = &["delivered"];
    let none: &[&str] = &[];
    let rows: [(&str, u64, &[&str]); 14] = [
        ("publish", exchanges.get(0), &["routed", "unroutable"]),
        ("publish_in", exchanges.get(0), &["routed", "unroutable"]),
        ("publish_out", exchanges.get(1), &["routed"]),
        ("confirm", metrics.confirmed.get(), none),
        // The node has one rate for consumers of both kinds: it is shown for the more frequent kind.
        ("deliver", delivered, if is_unsettled { none } else { given }),
        (
            "deliver_no_ack",
            unsettled,
            if is_unsettled { given } else { none },
        ),
        ("deliver_get", delivered + unsettled + got, &["delivered", "got"]),
        ("get", got - got_unsettled, &["got"]),
        ("get_no_ack", got_unsettled, none),
        ("get_empty", metrics.get_empty.get(), none),
        ("ack", total(QueueSeries::Completed), &["completed"]),
        ("redeliver", total(QueueSeries::Redelivered), &["redelivered"]),
        ("return_unroutable", returned, none),
        (
            "drop_unroutable",
            unroutable.saturating_sub(returned),
            &["unroutable"],
        ),
    ];
    let window = Window::rates(call);
    let latest = context.broker.histories().node(1);
    let mut fields = Map::new();
    for (name, count, series) in rows {
        let rate = series.iter().map(|name| {
            let at = NODE_SERIES.iter().position(|series| series.name == *name);
            let samples = at.and_then(|at| latest.series.get(at));
            samples
                .and_then(|samples| samples.last().copied().flatten())
                .unwrap_or_default()
        });
        let mut statistic = Statistic::new(count, rate.sum());
        if let Some(window) = window {
            let seconds = STEP_MS as f64 / 1000.0;
            let steps = node_steps(call, series, window).into_iter();
            let increases = steps.map(|step| whole(step.iter().sum::<f64>() * seconds));
            statistic = statistic.with_increases(increases);
        }
        statistic.put(&mut fields, name, window);
    }
    Value::Object(fields)
}

fn object_totals(call: &Call, queues: usize, consumers: u64) -> Value {
    let exchanges = call.context.exchanges();
    let names = exchanges.namespaces();
    // Each virtual host has the exchange without a name.
    let exchanges: usize = names.iter().map(|name| exchanges.list(name).len() + 1).sum();
    json!({
        "channels": call.context.metrics.channels.get(),
        "consumers": consumers,
        "exchanges": exchanges,
        "queues": queues,
        "connections": call.node.connections,
    })
}

fn exchange_types() -> Value {
    let of = |(name, description): (&str, &str)| json!({ "name": name, "description": description, "enabled": true });
    EXCHANGE_TYPES.map(of).into_iter().collect()
}

fn listeners(call: &Call) -> Vec<Value> {
    let of = |(protocol, address): &(&str, std::net::SocketAddr)| {
        json!({
            "node": NODE,
            "protocol": protocol,
            "ip_address": address.ip().to_string(),
            "port": address.port(),
            "socket_opts": {},
        })
    };
    call.node.listeners.iter().map(of).collect()
}

fn contexts(call: &Call) -> Value {
    let http = call
        .node
        .listeners
        .iter()
        .filter(|(protocol, _)| *protocol == "http");
    http.map(|(_, address)| {
        json!({
            "ssl_opts": [],
            "node": NODE,
            "description": "RabbitMQ Management",
            "path": "/api",
            "ip": address.ip().to_string(),
            "port": address.port().to_string(),
        })
    })
    .collect()
}

pub(super) fn whoami(call: &Call) -> Answered {
    let tags = users::tags(call);
    let user = json!({ "name": &*call.user.user, "tags": tags, "is_internal_user": true });
    list::object(call, user)
}

pub(super) fn version() -> Response {
    super::call::ok(&json!(VERSION))
}

pub(super) fn cluster_name(call: &Call) -> Answered {
    list::object(call, json!({ "name": NODE }))
}

pub(super) fn auth(call: &Call) -> Answered {
    list::object(call, json!({ "oauth_enabled": false }))
}

pub(super) fn extensions(call: &Call) -> Answered {
    list::values(call, vec![json!({ "javascript": "dispatcher.js" })])
}

pub(super) fn nodes(call: &Call) -> Answered {
    list::values(call, vec![status(call)])
}

pub(super) fn node(call: &Call, name: &str) -> Answered {
    known(name)?;
    list::object(call, status(call))
}

pub(super) fn memory(call: &Call, name: &str) -> Answered {
    known(name)?;
    list::object(call, json!({ "memory": "not_available" }))
}

fn known(name: &str) -> Result<(), Refusal> {
    if name == NODE {
        Ok(())
    } else {
        Err(Refusal::no_object())
    }
}

fn status(call: &Call) -> Value {
    let node = &call.node;
    let mechanism = |name: &str| json!({ "name": name, "description": name, "enabled": true });
    let auth_mechanisms = ["PLAIN", "AMQPLAIN", "ANONYMOUS"].map(mechanism);
    let application = json!({
        "name": "rabbit",
        "description": "Stafett, in the words of RabbitMQ",
        "version": VERSION,
    });
    let is_short = call.context.broker.messaging().space().is_short();
    let mut fields = values::fields(json!({
        "partitions": [],
        "os_pid": std::process::id().to_string(),
        "fd_total": node.descriptors_max,
        "sockets_total": node.descriptors_max,
        "mem_limit": node.memory_bytes_max,
        "mem_alarm": false,
        "disk_free_limit": node.disk_free_bytes_min,
        "disk_free_alarm": is_short,
        "proc_total": 1_048_576,
        "rates_mode": "basic",
        "uptime": node.uptime_ms,
        "run_queue": 0,
        "processors": node.processors,
        "exchange_types": exchange_types(),
        "auth_mechanisms": auth_mechanisms,
        "applications": [application],
        "contexts": contexts(call),
        "log_files": ["<stdout>"],
        "db_dir": "",
        "config_files": [],
        "net_ticktime": 60,
        "enabled_plugins": ["rabbitmq_management"],
        "mem_calculation_strategy": "rss",
        "ra_open_file_metrics": { "ra_log_wal": 0, "ra_log_segment_writer": 0 },
        "name": NODE,
        "type": "disc",
        "running": true,
        "being_drained": false,
        "cluster_links": [],
        "metrics_gc_queue_length": {},
    }));
    let connections = u64::try_from(node.connections).unwrap_or_default();
    for (name, count) in [
        ("mem_used", node.memory_bytes),
        ("fd_used", node.descriptors),
        ("sockets_used", connections),
        ("proc_used", 1),
        ("disk_free", node.disk_free_bytes),
    ] {
        put(&mut fields, name, count);
    }
    for name in WITHOUT_COUNT {
        put(&mut fields, name, 0);
    }
    if let Value::Object(churn) = churn(call) {
        fields.extend(churn);
    }
    Value::Object(fields)
}
