//! Kafka's `kafka-producer-perf-test` and `kafka-consumer-perf-test` (`ProducerPerformance` and `ConsumerPerformance` of
//! its tools, 4.2 and later): a Java machine for each client.
//!
//! ```text
//! 50214 records sent, 50143.8 records/sec (4.78 MB/sec), 12.1 ms avg latency, 310.0 ms max latency.
//! 40000 steady state records sent, 1999.9 records/sec (0.19 MB/sec), 0.61 ms avg latency, 14.00 ms max latency,
//!   1 ms 50th, 1 ms 95th, 2 ms 99th, 9 ms 99.9th.
//! 2026-01-01 12:00:00:000, 0, 4.7684, 4.7684, 50000, 50000.0000, 0, 1000, 4.7684, 50000.0000
//! ```
//!
//! (The second is one line.) The producer says how many records it had acknowledged and how many that is per second, and
//! so how long it looked at them; the consumer says how many it has had in all. A producer stops after a number of records
//! and not after a time, so percentiles, which come at its end, are there at a fixed rate alone. Nobody tells the time to
//! delivery.

use super::launch::{Ends, Heard, Launch, Reader, Target};
use super::parts::{Parts, Times, Zero};
use super::told::Interval;
use crate::experiment::{Acks, Codec, Plan, Role};

pub(super) const NAME: &str = "Kafka's performance test";
/// A Java machine takes hundreds of megabytes.
const CLIENTS_MAX: u32 = 4;
/// Of an idempotent producer (`max.in.flight.requests.per.connection`).
const IN_FLIGHT_IDEMPOTENT_MAX: u32 = 5;
/// More records than come in the time.
const RECORDS_MANY: u64 = 1_000_000_000_000_000;
/// A consumer may wait so long for a record.
const TIMEOUT_MS: u64 = 86_400_000;
const INTERVAL_MS: u32 = 1000;
/// A producer begins before its consumers have joined their group, and sends for so much longer.
pub(super) const SPARE_S: u32 = 6;

/// The programs for a plan: producers first.
///
/// # Errors
/// Names what they cannot be told.
pub(super) fn launches(plan: &Plan, target: &Target<'_>) -> Result<Vec<Launch>, String> {
    let parts = Parts::of(plan, NAME)?;
    let (name, senders) = parts.senders;
    if parts.topics.count > 1 {
        return Err(format!(
            "{NAME} has one topic, and there are {} (`count`)",
            parts.topics.count
        ));
    }
    let mut roles = std::iter::once(parts.senders).chain(parts.receivers);
    if let Some((name, role)) = roles.find(|(_, role)| role.clients > CLIENTS_MAX) {
        return Err(format!(
            "{NAME} takes a Java machine for each client, and `{name}` has {}: more than {CLIENTS_MAX} are not tried",
            role.clients
        ));
    }
    if senders.window.is_some() {
        return Err(format!("{NAME} has no `window` (`{name}`)"));
    }
    if parts.size_bytes == 0 {
        return Err(format!("{NAME} has no messages without content (`{name}`)"));
    }
    if parts.receivers.is_some_and(|(_, role)| role.prefetch.is_some()) {
        return Err("Kafka's protocol has no prefetch".to_owned());
    }
    let mut launches = Vec::new();
    for client in 0..senders.clients {
        launches.push(producer(&parts, times(plan), target, client)?);
    }
    if let Some((name, role)) = parts.receivers {
        launches.extend((0..role.clients).map(|client| consumer(name, role, target, client)));
    }
    Ok(launches)
}

/// Each program begins by itself, and has to find its topic or to join its group first.
pub(super) fn times(plan: &Plan) -> Times {
    Times::of(plan, Zero::AllHaveTold)
}

fn topic<'a>(target: &Target<'a>) -> &'a str {
    target.names.first().map_or("", String::as_str)
}

fn producer(parts: &Parts<'_>, times: Times, target: &Target<'_>, client: u32) -> Result<Launch, String> {
    let (name, role) = parts.senders;
    let is_idempotent = role.acks() == Acks::All;
    if is_idempotent && role.in_flight > IN_FLIGHT_IDEMPOTENT_MAX {
        return Err(format!(
            "a producer has at most {IN_FLIGHT_IDEMPOTENT_MAX} requests under way where no batch may be stored twice or \
             out of order (`in_flight` of `{name}`)"
        ));
    }
    let rate = parts.rate.map(|rate| rate / f64::from(role.clients));
    let mut args = vec!["ProducerPerformance".to_owned()];
    let mut put = |name: &str, value: String| args.extend([name.to_owned(), value]);
    put("--bootstrap-server", target.address.to_owned());
    put("--topic", topic(target).to_owned());
    put("--record-size", parts.size_bytes.to_string());
    put("--reporting-interval", INTERVAL_MS.to_string());
    put(
        "--throughput",
        rate.map_or_else(|| "-1".to_owned(), |rate| rate.to_string()),
    );
    let records = |seconds: u32| rate.map(|rate| whole(rate * f64::from(seconds)));
    let warmup = records(times.warmup_s);
    let all = records(times.all_s().saturating_add(SPARE_S)).unwrap_or(RECORDS_MANY);
    put("--num-records", all.to_string());
    // Its own percentiles are of what comes behind these.
    let is_alone = role.clients == 1;
    let warmup = warmup.filter(|warmup| is_alone && *warmup > 0 && *warmup < all);
    if let Some(warmup) = warmup {
        put("--warmup-records", warmup.to_string());
    }
    args.push("--command-property".to_owned());
    args.push(format!("acks={}", role.acks().name()));
    args.push(format!("enable.idempotence={is_idempotent}"));
    args.push(format!("batch.size={}", role.batch.0));
    args.push(format!("linger.ms={}", role.linger.0.as_millis()));
    args.push(format!(
        "max.in.flight.requests.per.connection={}",
        role.in_flight
    ));
    args.push(format!("compression.type={}", codec(role.compression)));
    args.push(format!("client.id=producer-{client}"));
    Ok(Launch {
        name: "producer-perf-test",
        command: "run",
        args,
        reader: Reader::KafkaProducer(ProducerLines {
            until_s: 0.0,
            warmup_s: warmup.map(|_| f64::from(times.warmup_s)),
        }),
        ends: if rate.is_some() {
            Ends::ByCount
        } else {
            Ends::WhenTold
        },
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts to integers saturate"
)]
fn whole(count: f64) -> u64 {
    count.round().max(1.0) as u64
}

fn codec(codec: Codec) -> &'static str {
    match codec {
        Codec::None => "none",
        Codec::Gzip => "gzip",
        Codec::Snappy => "snappy",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    }
}

fn consumer(name: &str, role: &Role, target: &Target<'_>, client: u32) -> Launch {
    let topic = topic(target);
    let group = if role.fan_out {
        format!("{topic}-{name}-{client}")
    } else {
        format!("{topic}-{name}")
    };
    let mut args = vec![
        "ConsumerPerformance".to_owned(),
        "--show-detailed-stats".to_owned(),
    ];
    let mut put = |name: &str, value: String| args.extend([name.to_owned(), value]);
    put("--bootstrap-server", target.address.to_owned());
    put("--topic", topic.to_owned());
    put("--group", group);
    put("--num-records", RECORDS_MANY.to_string());
    put("--timeout", TIMEOUT_MS.to_string());
    put("--reporting-interval", INTERVAL_MS.to_string());
    put("--fetch-size", role.fetch_bytes.0.to_string());
    let whole_fetch = role
        .fetch_bytes
        .0
        .saturating_mul(4)
        .min(i32::MAX.unsigned_abs().into());
    put("--command-property", format!("fetch.max.bytes={whole_fetch}"));
    put(
        "--command-property",
        format!("fetch.max.wait.ms={}", role.fetch_wait.0.as_millis()),
    );
    put("--command-property", format!("client.id=consumer-{client}"));
    Launch {
        name: "consumer-perf-test",
        command: "run",
        args,
        reader: Reader::KafkaConsumer(ConsumerLines::default()),
        ends: Ends::WhenTold,
    }
}

/// Reads what the producer prints.
#[derive(Debug, Clone, Default)]
pub(super) struct ProducerLines {
    until_s: f64,
    /// Where it tells its steady state apart: when that begins.
    warmup_s: Option<f64>,
}

impl ProducerLines {
    /// # Errors
    /// Where a line looks like figures and is none.
    pub(super) fn on_line(&mut self, line: &str) -> Result<Heard, String> {
        if line == "In steady state." {
            // What it had not told of its warm-up it does not tell any more.
            self.until_s = self.warmup_s.unwrap_or(self.until_s).max(self.until_s);
            return Ok(Heard::Nothing);
        }
        let Some((count, rest)) = line.split_once(" records sent, ") else {
            return Ok(Heard::Nothing);
        };
        let heard = match count.strip_suffix(" steady state") {
            Some(_) => whole_of(rest),
            None if rest.contains(" ms 50th, ") => Some(Heard::Nothing),
            None => self.interval(count, rest),
        };
        heard.ok_or_else(|| format!("{NAME} printed what is not understood: {line}"))
    }

    fn interval(&mut self, count: &str, rest: &str) -> Option<Heard> {
        let count: u64 = count.parse().ok()?;
        let [rate, mean, max] = fields(rest)?;
        let per_second = number(rate.split_once(" records/sec (")?.0)?;
        let seconds = count as f64 / per_second;
        if !(per_second > 0.0 && seconds > 0.0) {
            // Of no length: it cannot be placed.
            return Some(Heard::Nothing);
        }
        self.until_s += seconds;
        let sent = Interval {
            until_s: self.until_s,
            seconds,
            sent: count as f64,
            acknowledged: count as f64,
            mean_us: Some(millis(mean, " ms avg latency")?),
            max_us: Some(millis(max, " ms max latency")?),
            ..Interval::default()
        };
        Some(Heard::interval(Some(sent), None))
    }
}

/// What it tells in the end, of its steady state.
fn whole_of(rest: &str) -> Option<Heard> {
    let [_, mean, _, p50, p95, p99, p999] = fields(rest)?;
    Some(Heard::Whole(vec![
        ("acknowledged_mean_us", millis(mean, " ms avg latency")?),
        ("acknowledged_p50_us", millis(p50, " ms 50th")?),
        ("acknowledged_p95_us", millis(p95, " ms 95th")?),
        ("acknowledged_p99_us", millis(p99, " ms 99th")?),
        ("acknowledged_p999_us", millis(p999, " ms 99.9th")?),
    ]))
}

fn fields<const N: usize>(rest: &str) -> Option<[&str; N]> {
    let fields: Vec<&str> = rest.strip_suffix('.')?.split(", ").collect();
    fields.try_into().ok()
}

/// As microseconds.
fn millis(text: &str, unit: &str) -> Option<f64> {
    Some(number(text.strip_suffix(unit)?)? * 1e3)
}

fn number(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// Reads what the consumer prints.
#[derive(Debug, Clone, Default)]
pub(super) struct ConsumerLines {
    until_s: f64,
    received: u64,
}

impl ConsumerLines {
    /// # Errors
    /// Where a line looks like figures and is none.
    pub(super) fn on_line(&mut self, line: &str) -> Result<Heard, String> {
        if line.starts_with("WARNING: Exiting before") {
            return Ok(Heard::Ends(line.to_owned()));
        }
        if !line.starts_with(|letter: char| letter.is_ascii_digit()) {
            return Ok(Heard::Nothing);
        }
        let heard = self.interval(line);
        heard.ok_or_else(|| format!("{NAME} printed what is not understood: {line}"))
    }

    fn interval(&mut self, line: &str) -> Option<Heard> {
        let fields: Vec<&str> = line.split(", ").collect();
        let [_, _, _, _, received, per_second, _, _, _, _] = fields.try_into().ok()?;
        let received: u64 = received.parse().ok()?;
        let per_second = number(per_second)?;
        let count = received.checked_sub(self.received)? as f64;
        self.received = received;
        let seconds = count / per_second;
        if !(per_second > 0.0 && seconds > 0.0) {
            return Some(Heard::Nothing);
        }
        self.until_s += seconds;
        let received = Interval {
            until_s: self.until_s,
            seconds,
            received: count,
            ..Interval::default()
        };
        Some(Heard::interval(None, Some(received)))
    }
}
