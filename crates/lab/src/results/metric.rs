//! The figures by name: what an experiment may draw and a table may show.

use serde::Serialize;

/// What a figure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Metric {
    pub name: &'static str,
    /// As an axis is labelled, without the unit.
    pub label: &'static str,
    pub unit: &'static str,
    pub better: Better,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Higher,
    Lower,
    /// Neither is good or bad.
    Neither,
}

const fn row(name: &'static str, label: &'static str, unit: &'static str, better: Better) -> Metric {
    Metric {
        name,
        label,
        unit,
        better,
    }
}

/// Every figure there is. Latencies are in microseconds and taken from the intended moment of sending.
pub const METRICS: &[Metric] = &[
    row("produce_rate", "acknowledged messages", "1/s", Better::Higher),
    row(
        "produce_bytes_rate",
        "acknowledged content",
        "B/s",
        Better::Higher,
    ),
    row("consume_rate", "received messages", "1/s", Better::Higher),
    row(
        "arrival_rate",
        "messages that came, doubles included",
        "1/s",
        Better::Neither,
    ),
    row("consume_bytes_rate", "received content", "B/s", Better::Higher),
    row("goodput", "messages answered in time", "1/s", Better::Higher),
    row(
        "sustainable_rate",
        "highest rate within the latency bound",
        "1/s",
        Better::Higher,
    ),
    row(
        "acknowledged_mean_us",
        "time to acknowledgement, mean",
        "µs",
        Better::Lower,
    ),
    row(
        "acknowledged_p50_us",
        "time to acknowledgement, median",
        "µs",
        Better::Lower,
    ),
    row(
        "acknowledged_p95_us",
        "time to acknowledgement, p95",
        "µs",
        Better::Lower,
    ),
    row(
        "acknowledged_p99_us",
        "time to acknowledgement, p99",
        "µs",
        Better::Lower,
    ),
    row(
        "acknowledged_p999_us",
        "time to acknowledgement, p99.9",
        "µs",
        Better::Lower,
    ),
    row("delivery_mean_us", "time to delivery, mean", "µs", Better::Lower),
    row("delivery_p50_us", "time to delivery, median", "µs", Better::Lower),
    row("delivery_p95_us", "time to delivery, p95", "µs", Better::Lower),
    row("delivery_p99_us", "time to delivery, p99", "µs", Better::Lower),
    row("delivery_p999_us", "time to delivery, p99.9", "µs", Better::Lower),
    row("round_trip_mean_us", "time to answer, mean", "µs", Better::Lower),
    row("round_trip_p50_us", "time to answer, median", "µs", Better::Lower),
    row("round_trip_p95_us", "time to answer, p95", "µs", Better::Lower),
    row("round_trip_p99_us", "time to answer, p99", "µs", Better::Lower),
    row("round_trip_p999_us", "time to answer, p99.9", "µs", Better::Lower),
    row(
        "broker_cpu_share",
        "broker's share of all cores",
        "",
        Better::Lower,
    ),
    row(
        "broker_cpu_per_million",
        "broker's CPU per million messages",
        "s",
        Better::Lower,
    ),
    row(
        "client_cpu_share",
        "client's share of all cores",
        "",
        Better::Lower,
    ),
    row(
        "client_cpu_per_million",
        "client's CPU per million messages",
        "s",
        Better::Lower,
    ),
    row(
        "broker_memory_mib",
        "broker's memory, largest",
        "MiB",
        Better::Lower,
    ),
    row(
        "broker_disk_written_rate",
        "broker's writes to disk",
        "B/s",
        Better::Lower,
    ),
    row(
        "broker_open_files",
        "broker's open files, most",
        "",
        Better::Lower,
    ),
    row(
        "broker_context_switches_rate",
        "broker's context switches",
        "1/s",
        Better::Lower,
    ),
    row("sent", "sent", "messages", Better::Neither),
    row("acknowledged", "acknowledged", "messages", Better::Neither),
    row("received", "received", "messages", Better::Neither),
    row("failed", "refused or unanswered", "messages", Better::Lower),
    row("lost", "lost", "messages", Better::Lower),
    row("duplicated", "received more than once", "messages", Better::Lower),
    row(
        "filtered",
        "duplicates that the lab's filter dropped",
        "messages",
        Better::Neither,
    ),
    row("timed_out", "not answered in time", "messages", Better::Lower),
    row("reconnects", "reconnects", "", Better::Lower),
    row(
        "prepare_s",
        "time to create topics and subscribe",
        "s",
        Better::Lower,
    ),
    row("drain_s", "time to read the backlog", "s", Better::Lower),
    row(
        "cold_start_s",
        "time from start to first answer",
        "s",
        Better::Lower,
    ),
    row(
        "memory_per_connection_kib",
        "broker's memory per connection",
        "KiB",
        Better::Lower,
    ),
];

/// The figure of that name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}
