//! Metrics under RabbitMQ's names, for the dashboards that select by them.
//!
//! - `/metrics/rabbitmq`, and `/metrics` of the listener `amqp.prometheus`: the node as a whole
//! - `/metrics/per-object` and `/metrics/detailed` of that listener: queues too
//!
//! Dashboards join all names with `rabbitmq_identity_info` by the labels `instance` and `job`, which the
//! scraper adds. Source: the dashboard 10991 of RabbitMQ, and its list of metrics for 4.0.

use std::fmt::{Display, Write};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use stafett_delivery::QueueSeries;
use stafett_http::{Access, Policy};
use tokio::task::spawn_blocking;

use super::{Management, NODE, VERSION};
use crate::context::AmqpContext;
use crate::management::NodeFacts;
use crate::metrics::SIZES;

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// Metrics as text, one family after the other.
#[derive(Debug, Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str) {
        // Writing to a text does not fail.
        let _ = writeln!(self.0, "# TYPE rabbitmq_{name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "rabbitmq_{name}{labels} {value}");
    }

    fn one(&mut self, kind: &str, name: &str, labels: &str, value: impl Display) {
        self.family(name, kind);
        self.line(name, labels, value);
    }
}

impl Management {
    /// Returns the route of metrics on the HTTP listener.
    pub fn metrics_router(&self, access: Access) -> Router {
        let routes = Router::new()
            .route("/metrics/rabbitmq", get(node))
            .with_state(self.clone());
        Policy::Api(access).guard(routes)
    }

    /// Returns the routes of a listener of metrics alone.
    pub fn prometheus_router(&self) -> Router {
        Router::new()
            .route("/metrics", get(node))
            .route("/metrics/per-object", get(per_object))
            .route("/metrics/detailed", get(per_object))
            .with_state(self.clone())
    }
}

async fn node(State(management): State<Management>) -> Response {
    respond(management, false).await
}

async fn per_object(State(management): State<Management>) -> Response {
    respond(management, true).await
}

async fn respond(management: Management, with_queues: bool) -> Response {
    let Ok(context) = management.slot.get() else {
        let why = "the broker does not serve yet, or no longer\n";
        return (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    };
    let facts = management.node.facts();
    // It looks at all queues.
    let written = spawn_blocking(move || write(&context, &facts, with_queues)).await;
    let text = written.unwrap_or_default();
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response()
}

fn write(context: &AmqpContext, facts: &NodeFacts, with_queues: bool) -> String {
    let mut text = Text::default();
    identity(&mut text, context, facts, with_queues);
    process(&mut text, context, facts);
    queues(&mut text, context, with_queues);
    messages(&mut text, context);
    sizes(&mut text, context);
    text.0
}

fn identity(text: &mut Text, context: &AmqpContext, facts: &NodeFacts, with_queues: bool) {
    let endpoint = if with_queues { "per-object" } else { "aggregated" };
    let cluster = context.broker.cluster_id();
    let labels = format!(
        "{{rabbitmq_node=\"{NODE}\",rabbitmq_cluster=\"{NODE}\",rabbitmq_cluster_permanent_id=\"{cluster:032x}\",\
         rabbitmq_endpoint=\"{endpoint}\"}}"
    );
    text.one(GAUGE, "identity_info", &labels, 1);
    let product = facts.product_version;
    let labels = format!(
        "{{rabbitmq_version=\"{VERSION}\",prometheus_client_version=\"{product}\",\
         prometheus_plugin_version=\"{VERSION}\",erlang_version=\"0\"}}"
    );
    text.one(GAUGE, "build_info", &labels, 1);
    let uptime = facts.uptime_ms.max(0) as f64 / 1000.0;
    text.one(GAUGE, "erlang_uptime_seconds", "", uptime);
}

fn process(text: &mut Text, context: &AmqpContext, facts: &NodeFacts) {
    let open = u64::try_from(facts.connections).unwrap_or_default();
    let channels = u64::try_from(context.metrics.channels.get()).unwrap_or_default();
    let opened = context.metrics.channels_opened.get();
    for (kind, name, value) in [
        (GAUGE, "connections", open),
        (COUNTER, "connections_opened_total", facts.connections_accepted),
        (
            COUNTER,
            "connections_closed_total",
            facts.connections_accepted.saturating_sub(open),
        ),
        (GAUGE, "channels", channels),
        (COUNTER, "channels_opened_total", opened),
        (COUNTER, "channels_closed_total", opened.saturating_sub(channels)),
        (GAUGE, "process_open_fds", facts.descriptors),
        (GAUGE, "process_max_fds", facts.descriptors_max),
        (GAUGE, "process_open_tcp_sockets", open),
        (GAUGE, "process_max_tcp_sockets", facts.descriptors_max),
        (GAUGE, "process_resident_memory_bytes", facts.memory_bytes),
        (GAUGE, "resident_memory_limit_bytes", facts.memory_bytes_max),
        (GAUGE, "disk_space_available_bytes", facts.disk_free_bytes),
        (
            GAUGE,
            "disk_space_available_limit_bytes",
            facts.disk_free_bytes_min,
        ),
    ] {
        text.one(kind, name, "", value);
    }
}

fn queues(text: &mut Text, context: &AmqpContext, with_queues: bool) {
    let queues = context.queues();
    let all = queues.all();
    let rows: Vec<_> = all.iter().map(|queue| (queue, queue.counts())).collect();
    let (mut ready, mut unacked, mut consumers) = (0_u64, 0_u64, 0_u64);
    for (_, counts) in &rows {
        ready = ready.saturating_add(counts.ready);
        unacked += counts.in_flight as u64;
        consumers += counts.consumers as u64;
    }
    text.one(GAUGE, "queues", "", all.len());
    text.one(
        COUNTER,
        "queues_declared_total",
        "",
        context.metrics.queues_declared.get(),
    );
    text.one(COUNTER, "queues_created_total", "", queues.created());
    text.one(COUNTER, "queues_deleted_total", "", queues.deleted());
    text.one(GAUGE, "consumers", "", consumers);
    for (name, sum) in [
        ("queue_messages", ready + unacked),
        ("queue_messages_ready", ready),
        ("queue_messages_unacked", unacked),
        ("queue_consumers", consumers),
    ] {
        text.family(name, GAUGE);
        if !with_queues {
            text.line(name, "", sum);
            continue;
        }
        for (queue, counts) in &rows {
            let unacked = counts.in_flight as u64;
            let value = match name {
                "queue_messages" => counts.ready + unacked,
                "queue_messages_ready" => counts.ready,
                "queue_messages_unacked" => unacked,
                _ => counts.consumers as u64,
            };
            text.line(name, &labels(queue.namespace.as_str(), &queue.name), value);
        }
    }
    let names = [
        "queue_messages_published_total",
        "queue_messages_delivered_total",
        "queue_messages_acked_total",
    ];
    for name in names.into_iter().filter(|_| with_queues) {
        text.family(name, COUNTER);
        for (queue, _) in &rows {
            let counts = queue.message_counts();
            let value = match name {
                "queue_messages_published_total" => counts.published,
                "queue_messages_acked_total" => counts.completed,
                _ => counts.delivered + counts.delivered_unsettled,
            };
            text.line(name, &labels(queue.namespace.as_str(), &queue.name), value);
        }
    }
    let of_amqp = protocol_labels();
    text.one(
        GAUGE,
        "global_publishers",
        &of_amqp,
        context.metrics.publishers.get(),
    );
    text.one(GAUGE, "global_consumers", &of_amqp, consumers);
}

fn protocol_labels() -> String {
    "{protocol=\"amqp091\"}".to_owned()
}

fn labels(vhost: &str, queue: &str) -> String {
    let escaped = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"");
        text.replace('\n', "\\n")
    };
    format!("{{vhost=\"{}\",queue=\"{}\"}}", escaped(vhost), escaped(queue))
}

/// Counts of messages. Those of queues are as of the latest sweep, at most 5 s ago.
fn messages(text: &mut Text, context: &AmqpContext) {
    let metrics = &context.metrics;
    let queues = context.queues().sampler().totals();
    let exchanges = context.exchanges().sampler().totals();
    let total = |series: QueueSeries| queues.get(series.at());
    let (returned, unroutable) = (metrics.returned.get(), exchanges.get(2));
    let got_unsettled = metrics.got_unsettled.get();
    let got = total(QueueSeries::Got).max(got_unsettled);
    let (delivered, unsettled) = (
        total(QueueSeries::Delivered),
        total(QueueSeries::DeliveredUnsettled),
    );
    let labels = protocol_labels();
    for (name, value) in [
        ("messages_received_total", metrics.published.get()),
        (
            "messages_received_confirm_total",
            metrics.published_to_confirm.get(),
        ),
        ("messages_confirmed_total", metrics.confirmed.get()),
        ("messages_routed_total", exchanges.get(1)),
        ("messages_unroutable_returned_total", returned),
        (
            "messages_unroutable_dropped_total",
            unroutable.saturating_sub(returned),
        ),
        ("messages_delivered_total", delivered + unsettled + got),
        ("messages_delivered_consume_manual_ack_total", delivered),
        ("messages_delivered_consume_auto_ack_total", unsettled),
        ("messages_delivered_get_manual_ack_total", got - got_unsettled),
        ("messages_delivered_get_auto_ack_total", got_unsettled),
        ("messages_get_empty_total", metrics.get_empty.get()),
        ("messages_redelivered_total", total(QueueSeries::Redelivered)),
        ("messages_acknowledged_total", total(QueueSeries::Completed)),
    ] {
        text.one(COUNTER, &format!("global_{name}"), &labels, value);
    }
}

fn sizes(text: &mut Text, context: &AmqpContext) {
    const NAME: &str = "message_size_bytes";
    text.family(NAME, "histogram");
    let mut count = 0;
    let bounds = SIZES.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
    for (bound, size) in bounds.zip(context.metrics.sizes()) {
        count += size;
        let labels = format!("{{protocol=\"amqp091\",le=\"{bound}\"}}");
        text.line(&format!("{NAME}_bucket"), &labels, count);
    }
    let labels = protocol_labels();
    text.line(
        &format!("{NAME}_sum"),
        &labels,
        context.metrics.published_bytes.get(),
    );
    text.line(&format!("{NAME}_count"), &labels, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(
            labels("/", "a\"b\\c\nd"),
            "{vhost=\"/\",queue=\"a\\\"b\\\\c\\nd\"}"
        );
    }
}
