//! The figures by name, for experiments to draw and tables to show.

use serde::Serialize;

/// A figure.
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

macro_rules! metrics {
    ($($name:ident: $label:literal, $unit:literal, $better:ident;)*) => {
        &[$(Metric {
            name: stringify!($name),
            label: $label,
            unit: $unit,
            better: Better::$better,
        }),*]
    };
}

/// Every figure there is. Latencies are in microseconds and taken from the intended moment of sending.
pub const METRICS: &[Metric] = metrics! {
    produce_rate: "acknowledged messages", "1/s", Higher;
    produce_bytes_rate: "acknowledged content", "B/s", Higher;
    consume_rate: "received messages", "1/s", Higher;
    arrival_rate: "messages that came, doubles included", "1/s", Neither;
    middle_rate: "received messages, without the first and the last 2.5 %", "1/s", Higher;
    consume_bytes_rate: "received content", "B/s", Higher;
    goodput: "messages answered in time", "1/s", Higher;
    sustainable_rate: "highest rate within the latency bound", "1/s", Higher;
    acknowledged_mean_us: "time to acknowledgement, mean", "µs", Lower;
    acknowledged_stddev_us: "time to acknowledgement, standard deviation", "µs", Lower;
    acknowledged_p2_5_us: "time to acknowledgement, p2.5", "µs", Lower;
    acknowledged_p50_us: "time to acknowledgement, median", "µs", Lower;
    acknowledged_p95_us: "time to acknowledgement, p95", "µs", Lower;
    acknowledged_p97_5_us: "time to acknowledgement, p97.5", "µs", Lower;
    acknowledged_p99_us: "time to acknowledgement, p99", "µs", Lower;
    acknowledged_p999_us: "time to acknowledgement, p99.9", "µs", Lower;
    acknowledged_max_us: "time to acknowledgement, longest", "µs", Lower;
    delivery_mean_us: "time to delivery, mean", "µs", Lower;
    delivery_stddev_us: "time to delivery, standard deviation", "µs", Lower;
    delivery_p2_5_us: "time to delivery, p2.5", "µs", Lower;
    delivery_p50_us: "time to delivery, median", "µs", Lower;
    delivery_p95_us: "time to delivery, p95", "µs", Lower;
    delivery_p97_5_us: "time to delivery, p97.5", "µs", Lower;
    delivery_p99_us: "time to delivery, p99", "µs", Lower;
    delivery_p999_us: "time to delivery, p99.9", "µs", Lower;
    delivery_max_us: "time to delivery, longest", "µs", Lower;
    round_trip_mean_us: "time to answer, mean", "µs", Lower;
    round_trip_stddev_us: "time to answer, standard deviation", "µs", Lower;
    round_trip_p2_5_us: "time to answer, p2.5", "µs", Lower;
    round_trip_p50_us: "time to answer, median", "µs", Lower;
    round_trip_p95_us: "time to answer, p95", "µs", Lower;
    round_trip_p97_5_us: "time to answer, p97.5", "µs", Lower;
    round_trip_p99_us: "time to answer, p99", "µs", Lower;
    round_trip_p999_us: "time to answer, p99.9", "µs", Lower;
    round_trip_max_us: "time to answer, longest", "µs", Lower;
    poll_mean_us: "time of a poll, mean", "µs", Lower;
    poll_stddev_us: "time of a poll, standard deviation", "µs", Lower;
    poll_p2_5_us: "time of a poll, p2.5", "µs", Lower;
    poll_p50_us: "time of a poll, median", "µs", Lower;
    poll_p95_us: "time of a poll, p95", "µs", Lower;
    poll_p97_5_us: "time of a poll, p97.5", "µs", Lower;
    poll_p99_us: "time of a poll, p99", "µs", Lower;
    poll_p999_us: "time of a poll, p99.9", "µs", Lower;
    poll_max_us: "time of a poll, longest", "µs", Lower;
    within_500ms_share: "share that came within 500 ms", "", Higher;
    within_2s_share: "share that came within 2 s", "", Higher;
    broker_cpu_share: "broker's share of all cores", "", Lower;
    broker_cpu_user_share: "broker's share of all cores, user mode", "", Lower;
    broker_cpu_system_share: "broker's share of all cores, system mode", "", Lower;
    broker_cpu_per_million: "broker's CPU per million messages", "s", Lower;
    client_cpu_share: "client's share of all cores", "", Lower;
    client_cpu_per_million: "client's CPU per million messages", "s", Lower;
    broker_memory_mib: "broker's memory, largest", "MiB", Lower;
    broker_disk_written_rate: "broker's writes to disk", "B/s", Lower;
    broker_disk_written_bytes: "broker's bytes written to disk", "B", Lower;
    broker_disk_written_per_message: "broker's bytes written to disk per message", "B", Lower;
    broker_open_files: "broker's open files, most", "", Lower;
    broker_context_switches_rate: "broker's context switches", "1/s", Lower;
    sent: "sent", "messages", Neither;
    acknowledged: "acknowledged", "messages", Neither;
    received: "received", "messages", Neither;
    failed: "refused or unanswered", "messages", Lower;
    lost: "lost", "messages", Lower;
    duplicated: "received more than once", "messages", Lower;
    filtered: "duplicates that the lab's filter dropped", "messages", Neither;
    timed_out: "not answered in time", "messages", Lower;
    reconnects: "reconnects", "", Lower;
    prepare_s: "time to create topics and subscribe", "s", Lower;
    unsubscribe_s: "time to unsubscribe", "s", Lower;
    drain_s: "time to read the backlog", "s", Lower;
    tasks_moved: "tasks that moved to another worker", "", Neither;
    task_gap_s: "longest time of a task without a worker", "s", Lower;
    rebalance_s: "longest time until all tasks are shared out evenly", "s", Lower;
    recovered_s: "longest time from a fault to the next answer", "s", Lower;
    unavailable_s: "time without answers around faults", "s", Lower;
    cold_start_s: "time from start to first answer", "s", Lower;
    memory_per_connection_kib: "broker's memory per connection", "KiB", Lower;
};

/// The figure of that name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}
