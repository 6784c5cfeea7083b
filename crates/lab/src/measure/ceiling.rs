//! What clients reach against a stub that answers without storing: once per run, for each of the grid's values that the
//! client is concerned with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::drivers::Driver;
use crate::drivers::amqp::Amqp;
use crate::drivers::lean::Lean;
use crate::drivers::live::Live;
use crate::experiment::{Does, DriverKind, Plan, Protocol, Rate};
use crate::grid;
use crate::results::{Ceiling, ProcessKind};
use crate::run::{Request, RunError, point};
use crate::systems;
use crate::systems::process::Process;
use crate::workload::{Load, Loaded};

/// A ceiling is measured for so long, or as long as a point if that is shorter.
const MEASURED: Duration = Duration::from_secs(2);
const WARMUP: Duration = Duration::from_millis(500);
/// Of more combinations than this the first are measured.
const COMBINATIONS_MAX: usize = 8;
/// The same of runs that are a look and no measurement.
const COMBINATIONS_MAX_OF_A_LOOK: usize = 2;
const LOOK_BELOW: f64 = 0.1;
/// Consumers read what these messages made: batches as the producers make them.
const FILL: u64 = 20_000;

/// Measures the ceilings of an experiment.
pub async fn measure(request: &Request, stop: &CancellationToken) -> Result<Vec<Ceiling>, RunError> {
    let mut lists = request.source.grid(request.scale)?;
    // The system is another one here, and how many topics there are is its business.
    lists.retain(|path, _| {
        path.starts_with("roles.") || path.ends_with(".partitions") || path == "run.protocol"
    });
    let first: BTreeMap<_, _> = request
        .source
        .grid(request.scale)?
        .into_iter()
        .filter_map(|(path, values)| Some((path, values.into_iter().next()?)))
        .collect();
    let mut ceilings = Vec::new();
    let most = if request.scale < LOOK_BELOW {
        COMBINATIONS_MAX_OF_A_LOOK
    } else {
        COMBINATIONS_MAX
    };
    for parameters in grid::combinations(&lists).into_iter().take(most) {
        if stop.is_cancelled() {
            break;
        }
        let mut all = first.clone();
        all.extend(parameters.clone());
        let plan = request.source.plan(request.scale, &all)?;
        for protocol in protocols(request, &plan)? {
            if let Some(ceiling) = of_plan(request, &plan, protocol, parameters.clone(), stop).await {
                ceilings.push(ceiling);
            }
        }
    }
    Ok(ceilings)
}

/// What is spoken to the systems that are asked.
fn protocols(request: &Request, plan: &Plan) -> Result<BTreeSet<Protocol>, RunError> {
    let systems = match &request.systems {
        Some(systems) => systems.clone(),
        None => request.source.experiment()?.systems,
    };
    let spoken = systems
        .iter()
        .filter_map(|system| systems::protocol(system, plan).ok());
    Ok(spoken.collect())
}

async fn of_plan(
    request: &Request,
    plan: &Plan,
    protocol: Protocol,
    parameters: BTreeMap<String, serde_json::Value>,
    stop: &CancellationToken,
) -> Option<Ceiling> {
    let produces = plan.roles.values().any(|role| role.does == Does::Produce);
    let is_ours = plan.run.driver == DriverKind::Lean;
    let are_few = plan.topics.values().all(|topics| topics.count <= 1000);
    let driver = driver(protocol, "");
    // Nothing stands in for live topics.
    let has_stub = protocol != Protocol::Live;
    if !has_stub || !produces || !is_ours || !are_few || driver.lacks(plan).is_some() {
        return None;
    }
    let mut ceiling = Ceiling {
        driver: driver.name().to_owned(),
        parameters,
        produce_rate: None,
        consume_rate: None,
        client_cpu_per_million: None,
        reason: None,
    };
    if let Err(reason) = fill(request, plan, protocol, &mut ceiling, stop).await {
        ceiling.reason = Some(reason);
    }
    Some(ceiling)
}

fn driver(protocol: Protocol, address: &str) -> Arc<dyn Driver> {
    match protocol {
        Protocol::Kafka => Arc::new(Lean::new(address)),
        Protocol::Amqp => Arc::new(Amqp::new(address)),
        Protocol::Live => Arc::new(Live::new(address)),
    }
}

async fn fill(
    request: &Request,
    plan: &Plan,
    protocol: Protocol,
    ceiling: &mut Ceiling,
    stop: &CancellationToken,
) -> Result<(), String> {
    let mut command = Command::new(&request.exe);
    command.args(["lab", "stub"]);
    if protocol == Protocol::Amqp {
        command.arg("--amqp");
    }
    let logs = request.out.join("logs").join("stub");
    let is_ready = |line: &str| {
        let rest = line.strip_prefix(protocol.word())?;
        rest.strip_prefix(" listening on ").map(str::to_owned)
    };
    let started = Process::start(command, "stub", &logs, Duration::from_secs(10), is_ready).await;
    let (process, address) = started.map_err(|error| error.to_string())?;
    let measured = against(&driver(protocol, &address), plan, ceiling, stop).await;
    process.stop().await;
    measured
}

/// Measures both directions against the stub.
async fn against(
    driver: &Arc<dyn Driver>,
    plan: &Plan,
    ceiling: &mut Ceiling,
    stop: &CancellationToken,
) -> Result<(), String> {
    let produced = load(driver, only(plan, Does::Produce, None), "p", stop).await?;
    let rate: f64 = produced.roles.iter().map(|role| role.rate).sum();
    let messages: u64 = produced.roles.iter().map(|role| role.counts.acknowledged).sum();
    ceiling.produce_rate = Some(rate);
    if messages > 0 {
        ceiling.client_cpu_per_million = Some(client_cpu(&produced) / messages as f64 * 1e6);
    }
    if plan.roles.values().any(|role| role.does == Does::Consume) {
        let mut both = only(plan, Does::Produce, Some(FILL));
        both.roles.extend(only(plan, Does::Consume, None).roles);
        let consumed = load(driver, both, "c", stop).await?;
        // The stub gives the same batches again and again.
        let received: u64 = consumed
            .roles
            .iter()
            .map(|role| role.counts.received + role.counts.duplicated)
            .sum();
        ceiling.consume_rate = Some(received as f64 / consumed.measured_s.max(1e-9));
    }
    Ok(())
}

fn client_cpu(loaded: &Loaded) -> f64 {
    let samples = loaded
        .processes
        .iter()
        .filter(|process| process.kind == ProcessKind::Client)
        .flat_map(|process| &process.samples);
    samples
        .filter(|sample| sample.at_s > loaded.warmup_s + 1e-6)
        .map(|sample| sample.cpu_user_s + sample.cpu_system_s)
        .sum()
}

/// The plan's clients of one kind, as fast as they can.
fn only(plan: &Plan, does: Does, total: Option<u64>) -> Plan {
    let mut plan = plan.clone();
    plan.run.duration.0 = plan.run.duration.0.min(MEASURED);
    plan.run.warmup.0 = plan.run.warmup.0.min(WARMUP);
    plan.run.settle.0 = Duration::ZERO;
    plan.roles.retain(|_, role| role.does == does);
    for role in plan.roles.values_mut() {
        role.rate = Rate::Closed;
        role.total = total;
        role.after = None;
        role.arrive = None;
        role.kill = None;
        role.work = None;
        role.window = None;
        role.commit = None;
    }
    plan
}

async fn load(
    driver: &Arc<dyn Driver>,
    plan: Plan,
    tag: &str,
    stop: &CancellationToken,
) -> Result<Loaded, String> {
    let destinations = point::destinations(&plan, &[], tag);
    for set in destinations.values() {
        driver.prepare(set).await.map_err(|error| error.to_string())?;
    }
    let load = Load {
        contents: Load::contents(&plan)?,
        plan: Arc::new(plan),
        driver: Arc::clone(driver),
        destinations,
        brokers: Vec::new(),
        seating: Arc::default(),
        together: None,
        ends_early: false,
        precise: true,
        stop: stop.clone(),
        on_second: Box::new(|_| ()),
    };
    load.run().await.map_err(|error| error.to_string())
}
