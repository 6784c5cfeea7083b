//! Made-up results, through the same types that real ones are written with: plausible in shape, and named
//! as made up. Deterministic: the same seed gives the same bytes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use stafett_lab::experiment::Source;
use stafett_lab::grid::{combinations, order};
use stafett_lab::results::histogram::{empty, record};
use stafett_lab::results::{
    Ceiling, Counts, Driver, Durability, Environment, FORMAT, Folder, Latencies, Network, Outcome,
    OutcomeKind, Planned, Point, ProcessKind, ProcessSample, ProcessSeries, RateSample, RoleResult, Run,
    Status,
};

/// 2026-11-01 08:00 UTC.
const STARTED_MS: i64 = 1_793_520_000_000;
const WARMUP_S: u32 = 3;
const SECONDS: u32 = 20;

/// Calls into the made-up system per second of a point.
#[derive(Clone, Copy)]
struct Behaviour {
    rate: f64,
    latency_us: f64,
    /// How much longer the slowest are.
    tail: f64,
    broker_cores: f64,
    client_cores: f64,
}

/// Writes a run of the experiment with made-up points.
pub(crate) fn write(folder: &Path, name: &str, text: &str, seed: u64) -> Run {
    let source = Source::new(format!("{name}.toml"), text);
    let experiment = source.experiment().unwrap();
    let grid = combinations(&experiment.grid);
    let order = order(&experiment.systems, &grid, experiment.run.repetitions, seed);
    let run = Run {
        format: FORMAT,
        name: name.to_owned(),
        source: text.to_owned(),
        command: format!("stafett lab run {name} --seed {seed}"),
        scale: 1.0,
        asked: None,
        seed,
        environment: environment(),
        network: Some(network()),
        reached: Vec::new(),
        ceilings: ceilings(),
        started_ms: STARTED_MS,
        ended_ms: Some(STARTED_MS + 1_620_000),
        status: Status::Finished,
        reason: None,
        order: order.clone(),
        experiment,
    };
    let folder = Folder::new(folder);
    folder.write_run(&run).unwrap();
    for planned in &order {
        folder.write_point(&point(planned, seed)).unwrap();
    }
    run
}

fn environment() -> Environment {
    Environment {
        cpu: "Imaginary processor of the tests".to_owned(),
        cores: 2,
        memory_bytes: 24 << 30,
        kernel: "Linux 6.1.0".to_owned(),
        distribution: "Debian GNU/Linux 12".to_owned(),
        disk: "ext4 on an imaginary disk".to_owned(),
        stafett: "stafett 0.1.0".to_owned(),
        revision: Some("0123abcd".to_owned()),
        versions: BTreeMap::from([
            ("kafka".to_owned(), "4.3.1".to_owned()),
            ("rabbitmq".to_owned(), "4.0.5".to_owned()),
        ]),
        agents: Vec::new(),
    }
}

fn network() -> Network {
    let mut histogram = empty();
    record(&mut histogram, Duration::from_micros(21), 9_900);
    record(&mut histogram, Duration::from_micros(64), 100);
    Network {
        path: "loopback".to_owned(),
        bytes_per_second: 3.4e9,
        back_bytes_per_second: None,
        both_bytes_per_second: None,
        round_trip: Latencies::of(&histogram),
    }
}

fn ceilings() -> Vec<Ceiling> {
    let ceiling = |driver: &str, produce: f64, consume: f64, cpu: f64| Ceiling {
        driver: driver.to_owned(),
        parameters: BTreeMap::from([("roles.producers.size".to_owned(), 100.into())]),
        produce_rate: Some(produce),
        consume_rate: Some(consume),
        client_cpu_per_million: Some(cpu),
        reason: None,
    };
    vec![
        ceiling("lean", 2_350_000.0, 3_100_000.0, 0.31),
        Ceiling {
            produce_rate: None,
            consume_rate: None,
            client_cpu_per_million: None,
            reason: Some("there is no stub of this protocol".to_owned()),
            ..ceiling("lapin", 0.0, 0.0, 0.0)
        },
    ]
}

fn point(planned: &Planned, seed: u64) -> Point {
    let mut random = SmallRng::seed_from_u64(seed ^ u64::from(planned.number) << 8);
    let behaviour = behaviour(planned, &mut random);
    let outcome = outcome(planned);
    let measured = matches!(outcome.kind, OutcomeKind::Done | OutcomeKind::Lost);
    let mut point = Point {
        format: FORMAT,
        number: planned.number,
        system: planned.system.clone(),
        version: "1.2.3".to_owned(),
        parameters: planned.parameters.clone(),
        repetition: planned.repetition,
        outcome,
        durability: durability(planned),
        settings: BTreeMap::from([("log.flush.interval.messages".to_owned(), "1".to_owned())]),
        driver: Driver {
            name: if planned.system == "rabbitmq" {
                "lapin"
            } else {
                "lean"
            }
            .to_owned(),
            version: "0.1.0".to_owned(),
            cpu_share: behaviour.client_cores / 2.0,
            limited: None,
        },
        revision: Some("0123abcd".to_owned()),
        started_ms: STARTED_MS + i64::from(planned.number) * 27_000,
        warmup_s: f64::from(WARMUP_S),
        measured_s: f64::from(SECONDS),
        roles: Vec::new(),
        processes: Vec::new(),
        outages: Vec::new(),
        metrics: BTreeMap::new(),
        remarks: Vec::new(),
    };
    if measured {
        fill(&mut point, behaviour, &mut random);
    }
    point
}

/// A few points end otherwise, so that the report has something to say about it.
fn outcome(planned: &Planned) -> Outcome {
    let batch = planned
        .parameters
        .get("roles.producers.batch")
        .and_then(Value::as_str);
    if planned.parameters.contains_key("roles.producers.compression") {
        return Outcome::because(OutcomeKind::Skipped, "no driver speaks its protocol yet");
    }
    match (planned.system.as_str(), batch, planned.repetition) {
        ("rabbitmq", Some("1KiB"), _) => Outcome::because(
            OutcomeKind::Refused,
            "the system has no batches smaller than a frame <&>",
        ),
        ("kafka", Some("256KiB"), 2) => {
            Outcome::because(OutcomeKind::Failed, "did not answer for 30 s, then died")
        }
        ("rabbitmq", Some("256KiB"), 1) => Outcome::because(
            OutcomeKind::Lost,
            "12 messages that were acknowledged did not come out",
        ),
        _ => Outcome::done(),
    }
}

fn durability(planned: &Planned) -> Durability {
    let asked = planned
        .parameters
        .get("system.durability")
        .and_then(Value::as_str)
        .unwrap_or("os")
        .to_owned();
    let (given, note) = match planned.system.as_str() {
        "rabbitmq" if asked == "sync" => (
            "interval:1,200ms",
            Some("classic queues sync at intervals".to_owned()),
        ),
        _ => (asked.as_str(), None),
    };
    Durability {
        given: given.to_owned(),
        asked,
        note,
    }
}

fn behaviour(planned: &Planned, random: &mut SmallRng) -> Behaviour {
    let number = |path: &str, default: f64| match planned.parameters.get(path) {
        Some(Value::String(text)) => text
            .trim_end_matches(|letter: char| letter.is_alphabetic())
            .parse()
            .unwrap_or(default),
        Some(value) => value.as_f64().unwrap_or(default),
        None => default,
    };
    let (rate, latency_us, tail) = match planned.system.as_str() {
        "stafett" => (1_450_000.0, 520.0, 0.7),
        "kafka" => (980_000.0, 810.0, 1.0),
        _ => (24_000.0, 2_400.0, 1.3),
    };
    let batch = number("roles.producers.batch", 64.0);
    let size = number("roles.producers.size", 100.0).max(number("roles.relays.size", 0.0));
    let clients = number("roles.relays.clients", 15.0);
    let threads = number("system.stafett.set.worker_threads", 1.0);
    let is_synced = planned
        .parameters
        .get("system.durability")
        .is_some_and(|level| level == "sync");
    let noise = 1.0 + (random.random::<f64>() - 0.5) * 0.06;
    let slower = if is_synced { 0.62 } else { 1.0 };
    let speed = noise * slower * (batch / (batch + 12.0)) / (1.0 + size / 1_500.0);
    Behaviour {
        rate: rate * speed * (1.0 + 0.12 * (threads - 1.0)) * (clients / 15.0).powf(0.2),
        latency_us: latency_us / slower * noise * (clients / 15.0).powf(0.8) * (1.0 + batch / 200.0),
        tail,
        broker_cores: 0.9 * noise,
        client_cores: 0.55 * noise,
    }
}

fn fill(point: &mut Point, behaviour: Behaviour, random: &mut SmallRng) {
    let mut histogram = empty();
    for _ in 0..20_000 {
        let uniform: f64 = random.random::<f64>().max(1e-9);
        let factor = (-uniform.ln()).powf(behaviour.tail) + 0.35;
        record(
            &mut histogram,
            Duration::from_secs_f64(behaviour.latency_us * factor / 1e6),
            1,
        );
    }
    let latencies = Latencies::of(&histogram);
    let samples: Vec<RateSample> = (1..=WARMUP_S + SECONDS)
        .map(|second| {
            let warm = if second <= WARMUP_S {
                0.6 + 0.12 * f64::from(second)
            } else {
                1.0
            };
            let rate = behaviour.rate * warm * (1.0 + (random.random::<f64>() - 0.5) * 0.08);
            sample(second, rate, behaviour.latency_us * 4.0)
        })
        .collect();
    let received = samples.iter().map(|sample| RateSample {
        received: sample.acknowledged - sample.acknowledged / (40 + u64::from(second(sample)) * 4),
        acknowledged: 0,
        sent: 0,
        ..*sample
    });
    let received: Vec<_> = received.collect();
    let count = samples.iter().map(|sample| sample.acknowledged).sum();
    let counts = Counts {
        sent: count,
        acknowledged: count,
        ..Counts::default()
    };
    let role = |name: &str, does: &str, counts, samples, latency: &str| RoleResult {
        name: name.to_owned(),
        does: does.to_owned(),
        clients: 1,
        counts,
        totals: counts,
        rate: behaviour.rate,
        bytes_rate: behaviour.rate * 100.0,
        latencies: BTreeMap::from([(latency.to_owned(), latencies.clone())]),
        samples,
        windows: Vec::new(),
    };
    let came = Counts {
        received: count,
        ..Counts::default()
    };
    // As the lab itself records them: one latency for each role.
    point.roles = if point.parameters.contains_key("roles.relays.clients") {
        vec![role("relays", "relay", came, received, "delivery")]
    } else {
        vec![
            role("producers", "produce", counts, samples, "acknowledged"),
            role("consumers", "consume", came, received, "delivery"),
        ]
    };
    point.processes = vec![
        process(ProcessKind::Broker, "broker", behaviour.broker_cores, random),
        process(ProcessKind::Client, "stafett", behaviour.client_cores, random),
    ];
    point.metrics = metrics(behaviour, &latencies, point);
}

fn second(sample: &RateSample) -> u32 {
    (1..=WARMUP_S + SECONDS)
        .find(|second| f64::from(*second) >= sample.at_s)
        .unwrap_or(0)
}

fn sample(second: u32, rate: f64, p99_us: f64) -> RateSample {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive and small"
    )]
    let (count, p99_us) = (rate as u64, p99_us as u64);
    RateSample {
        at_s: f64::from(second),
        seconds: 1.0,
        clients: 2,
        sent: count,
        acknowledged: count,
        p50_us: Some(p99_us / 4),
        p99_us: Some(p99_us + u64::from(second % 5) * 300),
        max_us: Some(p99_us * 3),
        ..RateSample::default()
    }
}

fn process(kind: ProcessKind, name: &str, cores: f64, random: &mut SmallRng) -> ProcessSeries {
    let samples = (1..=WARMUP_S + SECONDS).map(|second| {
        let cores = cores * (1.0 + (random.random::<f64>() - 0.5) * 0.2);
        ProcessSample {
            at_s: f64::from(second),
            seconds: 1.0,
            cpu_user_s: cores * 0.7,
            cpu_system_s: cores * 0.3,
            memory_bytes: (180 + u64::from(second)) << 20,
            open_files: 40,
            threads: 12,
            context_switches: 9_000,
            ..ProcessSample::default()
        }
    });
    ProcessSeries {
        kind,
        name: name.to_owned(),
        pid: 4_711,
        first_memory_bytes: 180 << 20,
        samples: samples.collect(),
    }
}

fn metrics(behaviour: Behaviour, latencies: &Latencies, point: &Point) -> BTreeMap<String, f64> {
    let produces = point.roles.iter().any(|role| role.does == "produce");
    let of_producers = [
        ("produce_rate", behaviour.rate),
        ("acknowledged_mean_us", latencies.mean_us),
        ("acknowledged_p50_us", latencies.p50_us as f64),
        ("acknowledged_p99_us", latencies.p99_us as f64),
    ];
    let mut metrics: BTreeMap<String, f64> = [
        ("consume_rate", behaviour.rate * 0.99),
        ("delivery_p50_us", latencies.p50_us as f64 * 1.1),
        ("delivery_p99_us", latencies.p99_us as f64 * 1.1),
        ("broker_cpu_share", behaviour.broker_cores / 2.0),
        (
            "broker_cpu_per_million",
            behaviour.broker_cores / behaviour.rate * 1e6,
        ),
        ("client_cpu_share", behaviour.client_cores / 2.0),
        ("broker_memory_mib", 212.0),
    ]
    .into_iter()
    .chain(of_producers.into_iter().filter(|_| produces))
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    if point.outcome.kind == OutcomeKind::Lost {
        metrics.insert("lost".to_owned(), 12.0);
    }
    metrics
}
