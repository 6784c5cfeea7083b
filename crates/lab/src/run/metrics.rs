//! The figures by name, out of the results of a load.

use super::point::{LoadResult, faults};
use crate::environment::cores;
use crate::experiment::{Does, Plan};
use crate::results::{Point, ProcessKind, ProcessSample, ProcessSeries, RateSample, RoleResult, histogram};
use crate::workload::Loaded;

const MILLION: f64 = 1e6;
const MIB: f64 = 1_048_576.0;
const QUANTILES: [(&str, f64); 7] = [
    ("p2_5", 0.025),
    ("p50", 0.5),
    ("p95", 0.95),
    ("p97_5", 0.975),
    ("p99", 0.99),
    ("p999", 0.999),
    ("max", 1.0),
];

/// Puts every figure that makes sense into the point.
pub(super) fn fill(
    point: &mut Point,
    plan: &Plan,
    LoadResult {
        loaded,
        prepare_s,
        outages,
    }: &LoadResult,
) {
    let figures = &mut point.metrics;
    figures.insert("prepare_s".to_owned(), *prepare_s);
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            figures.insert(name.to_owned(), value);
        }
    };
    put("drain_s", loaded.drain_s);
    put("unsubscribe_s", loaded.unsubscribe_s);
    put("sustainable_rate", loaded.sustainable_rate);
    rates(loaded, &mut put);
    counts(loaded, plan, &mut put);
    for name in ["poll", "acknowledged", "delivery", "round_trip"] {
        let of_roles = loaded.roles.iter().filter_map(|role| role.latencies.get(name));
        let Some(latencies) = histogram::merged(of_roles) else {
            continue;
        };
        put(&format!("{name}_mean_us"), Some(latencies.mean()));
        put(&format!("{name}_stddev_us"), Some(latencies.stdev()));
        for (short, quantile) in QUANTILES {
            let value = latencies.value_at_quantile(quantile) as f64;
            put(&format!("{name}_{short}_us"), Some(value));
        }
        // The last of them counts: a message that comes is more than one that is acknowledged.
        for (bound, micros) in [("500ms", 500_000), ("2s", 2_000_000)] {
            let within = latencies.count_between(0, micros) as f64 / latencies.len() as f64;
            put(&format!("within_{bound}_share"), Some(within));
        }
    }
    if let Some((recovered, unavailable)) = faults::consequences(outages, loaded) {
        put("recovered_s", Some(recovered));
        put("unavailable_s", Some(unavailable));
    }
    let messages = messages(loaded);
    let share = processes(loaded, messages, &mut put);
    point.driver.cpu_share = share;
}

fn by_role<'a>(loaded: &'a Loaded, does: &'a str) -> impl Iterator<Item = &'a RoleResult> {
    loaded.roles.iter().filter(move |role| role.does == does)
}

fn sum<'a>(roles: impl Iterator<Item = &'a RoleResult>, of: impl Fn(&RoleResult) -> f64) -> Option<f64> {
    let values: Vec<f64> = roles.map(of).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

fn rates(loaded: &Loaded, put: &mut impl FnMut(&str, Option<f64>)) {
    let senders = || by_role(loaded, "produce");
    put("produce_rate", sum(senders(), |role| role.rate));
    put("produce_bytes_rate", sum(senders(), |role| role.bytes_rate));
    let takes_in = |role: &&RoleResult| role.does == "consume" || role.does == "relay";
    let receivers = || loaded.roles.iter().filter(takes_in);
    put("consume_rate", sum(receivers(), |role| role.rate));
    put("consume_bytes_rate", sum(receivers(), |role| role.bytes_rate));
    let arrivals = |role: &RoleResult| arrival_rate(role, loaded.measured_s);
    put("arrival_rate", sum(receivers(), arrivals));
    put("middle_rate", sum(receivers(), |role| middle_rate(&role.samples)));
    let in_time = loaded
        .roles
        .iter()
        .filter(|role| role.does == "request" || role.does == "relay");
    put("goodput", sum(in_time, |role| role.rate));
}

/// Returns the role's rate, with repeated messages.
fn arrival_rate(role: &RoleResult, measured_s: f64) -> f64 {
    let counts = &role.counts;
    if counts.received == 0 {
        return counts.duplicated as f64 / measured_s;
    }
    role.rate * (1.0 + counts.duplicated as f64 / counts.received as f64)
}

/// Returns the rate at which the middle 95 % of the messages came: a wait for the first ones, or for
/// stragglers, does not count.
fn middle_rate(samples: &[RateSample]) -> f64 {
    let total: u64 = samples.iter().map(|sample| sample.received).sum();
    // The time at which a share of them had come.
    let at = |share: f64| {
        let mut left = total as f64 * share;
        let reaches = |sample: &&RateSample| {
            left -= sample.received as f64;
            left <= 0.0
        };
        let sample = samples.iter().find(reaches)?;
        Some(sample.at_s + sample.seconds * left / (sample.received as f64).max(1.0))
    };
    let (Some(from), Some(to)) = (at(0.025), at(0.975)) else {
        return 0.0;
    };
    if to > from {
        total as f64 * 0.95 / (to - from)
    } else {
        0.0
    }
}

/// Counts of the whole point: messages that went in against those that came out.
fn counts(loaded: &Loaded, plan: &Plan, put: &mut impl FnMut(&str, Option<f64>)) {
    // Messages behind a filter or an app are the same ones again.
    let passed = |role: &&RoleResult| !matches!(role.does.as_str(), "filter" | "assemble");
    let total = |of: fn(&RoleResult) -> u64| sum(loaded.roles.iter().filter(passed), |role| of(role) as f64);
    put(
        "filtered",
        sum(by_role(loaded, "filter"), |role| role.totals.duplicated as f64),
    );
    put("sent", total(|role| role.totals.sent));
    put("acknowledged", total(|role| role.totals.acknowledged));
    put("received", total(|role| role.totals.received));
    put("failed", total(|role| role.totals.failed));
    let all = loaded.roles.iter();
    put("reconnects", sum(all, |role| role.totals.reconnects as f64));
    let has = |does| plan.roles.values().any(|role| role.does == does);
    if has(Does::Consume) {
        put("lost", total(|role| role.totals.lost));
        put("duplicated", total(|role| role.totals.duplicated));
    }
    if has(Does::Request) || has(Does::Relay) {
        put("timed_out", total(|role| role.totals.timed_out));
    }
}

/// Messages through the system in the time that counts: those that went in, or where none did, those that
/// came out.
fn messages(loaded: &Loaded) -> f64 {
    let first = loaded.roles.iter().filter(|role| role.does != "filter");
    let acknowledged: u64 = first.map(|role| role.counts.acknowledged).sum();
    let received: u64 = loaded.roles.iter().map(|role| role.counts.received).sum();
    (if acknowledged > 0 { acknowledged } else { received }) as f64
}

/// Figures of the processes; returns the client's share of all cores.
fn processes(loaded: &Loaded, messages: f64, put: &mut impl FnMut(&str, Option<f64>)) -> f64 {
    // The broker runs on this machine; clients may run on others.
    let of_broker = loaded.measured_s * f64::from(cores());
    let of_clients = loaded.measured_s * f64::from(loaded.client_cores);
    let mut client_share = 0.0;
    for (kind, name) in [(ProcessKind::Broker, "broker"), (ProcessKind::Client, "client")] {
        let samples = counted(loaded, kind);
        if samples.is_empty() {
            continue;
        }
        let cpu: f64 = samples
            .iter()
            .map(|sample| sample.cpu_user_s + sample.cpu_system_s)
            .sum();
        let share = match kind {
            ProcessKind::Broker => cpu / of_broker,
            ProcessKind::Client => cpu / of_clients,
        };
        if kind == ProcessKind::Client {
            client_share = share;
        }
        put(&format!("{name}_cpu_share"), Some(share));
        if messages > 0.0 {
            put(&format!("{name}_cpu_per_million"), Some(cpu / messages * MILLION));
        }
    }
    let broker = counted(loaded, ProcessKind::Broker);
    let largest = |of: fn(&ProcessSample) -> f64| broker.iter().map(of).reduce(f64::max);
    let per_second = |of: fn(&ProcessSample) -> f64| {
        (!broker.is_empty()).then(|| broker.iter().map(of).sum::<f64>() / loaded.measured_s)
    };
    let memory = largest(|sample| sample.memory_bytes as f64 / MIB);
    put("broker_memory_mib", memory);
    let files = largest(|sample| f64::from(sample.open_files));
    put("broker_open_files", files);
    let written = per_second(|sample| sample.disk_written_bytes as f64);
    put("broker_disk_written_rate", written);
    let written = written.map(|rate| rate * loaded.measured_s);
    put("broker_disk_written_bytes", written);
    put(
        "broker_disk_written_per_message",
        written.filter(|_| messages > 0.0).map(|bytes| bytes / messages),
    );
    let share =
        |of: fn(&ProcessSample) -> f64| per_second(of).map(|cores_used| cores_used / f64::from(cores()));
    put("broker_cpu_user_share", share(|sample| sample.cpu_user_s));
    put("broker_cpu_system_share", share(|sample| sample.cpu_system_s));
    let switches = per_second(|sample| sample.context_switches as f64);
    put("broker_context_switches_rate", switches);
    put("memory_per_connection_kib", per_connection(loaded));
    client_share
}

/// The samples of the time that counts, of all processes of a kind.
fn counted(loaded: &Loaded, kind: ProcessKind) -> Vec<ProcessSample> {
    let (from, to) = (loaded.warmup_s, loaded.warmup_s + loaded.measured_s);
    let all = loaded.processes.iter().filter(|process| process.kind == kind);
    all.flat_map(|process| process.samples.iter().copied())
        .filter(|sample| sample.at_s > from + 1e-6 && sample.at_s <= to + 1e-6)
        .collect()
}

/// Returns the broker's growth by each connection that does nothing in the end.
fn per_connection(loaded: &Loaded) -> Option<f64> {
    let silent = silent(loaded);
    if silent == 0 {
        return None;
    }
    let mut processes = loaded.processes.iter();
    let broker: &ProcessSeries = processes.find(|process| process.kind == ProcessKind::Broker)?;
    let last = broker.samples.last()?.memory_bytes as f64;
    Some((last - broker.first_memory_bytes as f64) / f64::from(silent) / 1024.0)
}

/// Returns the number of connections that had nothing to do: idle ones, and consumers without senders.
fn silent(loaded: &Loaded) -> u32 {
    let sends = ["produce", "relay", "request"];
    if loaded
        .roles
        .iter()
        .any(|role| sends.contains(&role.does.as_str()))
    {
        return idle(loaded);
    }
    let last = |role: &RoleResult| role.samples.last().map_or(0, |sample| sample.clients);
    loaded.roles.iter().map(last).sum()
}

/// Connections that were idle when the last sample was taken.
pub(super) fn idle(loaded: &Loaded) -> u32 {
    let last = |role: &RoleResult| role.samples.last().map_or(0, |sample| sample.clients);
    by_role(loaded, "idle").map(last).sum()
}

#[cfg(test)]
mod tests {
    use super::middle_rate;
    use crate::results::{METRICS, RateSample, metric};

    #[test]
    fn the_middle_rate_is_without_waits_at_the_begin_and_for_stragglers() {
        let sample = |at_s, received| RateSample {
            at_s,
            seconds: 1.0,
            received,
            ..RateSample::default()
        };
        let samples = [
            sample(1.0, 0),
            sample(2.0, 1000),
            sample(3.0, 1000),
            sample(4.0, 0),
            sample(5.0, 1),
        ];
        let rate = middle_rate(&samples);
        assert!((999.0..1001.0).contains(&rate), "{rate}");
        assert!(middle_rate(&[]).abs() < f64::EPSILON);
    }

    #[test]
    fn figures_have_different_names() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
        for name in [
            "produce_rate",
            "acknowledged_p99_us",
            "broker_cpu_per_million",
            "drain_s",
        ] {
            assert!(metric(name).is_some(), "{name}");
        }
    }
}
