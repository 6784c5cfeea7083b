//! What clients reach against a stub that answers without storing: once per run, for each of the grid's values that the
//! client is concerned with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use crate::agents::crew::Order;
use crate::clients::{self, Client};
use crate::drivers::Driver;
use crate::experiment::{Delivery, Does, Plan, Protocol, Rate};
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
        path.starts_with("roles.")
            || path.ends_with(".partitions")
            || ["run.protocol", "run.driver"].contains(&path.as_str())
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
    let are_few = plan.topics.values().all(|topics| topics.count <= 1000);
    // Nothing stands in for live topics.
    let system = stood_in_for(protocol)?;
    if !produces || !are_few {
        return None;
    }
    let mut ceiling = Ceiling {
        driver: clients::name(protocol).to_owned(),
        parameters,
        produce_rate: None,
        consume_rate: None,
        client_cpu_per_million: None,
        reason: None,
    };
    let logs = request.out.join("logs").join("stub");
    let mut client = None;
    if systems::wants_client(system, plan) {
        // Where the program is not there, or lacks something, the points say so.
        let program = clients::find(request.clients.as_deref(), &request.exe).ok()?;
        let mut started = Client::start(&program, &logs).await.ok()?;
        let described = started.describe(system, plan).await.ok()?;
        if described.lacks.is_some() {
            return None;
        }
        ceiling.driver = described.name;
        client = Some(started);
    } else {
        let lean = systems::driver(system, "", plan).ok()?;
        if lean.lacks(plan).is_some() {
            return None;
        }
        lean.name().clone_into(&mut ceiling.driver);
    }
    if let Err(reason) = fill(
        request,
        plan,
        (protocol, system),
        client.as_mut(),
        &mut ceiling,
        stop,
    )
    .await
    {
        ceiling.reason = Some(reason);
    }
    if let Some(client) = client {
        client.end().await;
    }
    Some(ceiling)
}

/// The system whose protocol a stub speaks.
fn stood_in_for(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Kafka => Some("kafka"),
        Protocol::Amqp => Some("rabbitmq"),
        Protocol::Live => None,
    }
}

/// Who sends to the stub and receives from it.
struct Measured<'a> {
    driver: Arc<dyn Driver>,
    client: Option<&'a mut Client>,
    system: &'static str,
    address: String,
    stop: &'a CancellationToken,
}

async fn fill(
    request: &Request,
    plan: &Plan,
    (protocol, system): (Protocol, &'static str),
    client: Option<&mut Client>,
    ceiling: &mut Ceiling,
    stop: &CancellationToken,
) -> Result<(), String> {
    if plan
        .roles
        .values()
        .any(|role| role.delivery == Delivery::ExactlyOnce)
    {
        return Err("the stub has no transactions".to_owned());
    }
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
    let mut measured = Measured {
        driver: systems::driver(system, &address, plan)?,
        client,
        system,
        address,
        stop,
    };
    let done = measured.both_ways(plan, ceiling).await;
    process.stop().await;
    done
}

impl Measured<'_> {
    /// Measures both directions against the stub.
    async fn both_ways(&mut self, plan: &Plan, ceiling: &mut Ceiling) -> Result<(), String> {
        let produced = self.load(only(plan, Does::Produce, None), "p").await?;
        let rate: f64 = produced.roles.iter().map(|role| role.rate).sum();
        let messages: u64 = produced.roles.iter().map(|role| role.counts.acknowledged).sum();
        ceiling.produce_rate = Some(rate);
        if messages > 0 {
            ceiling.client_cpu_per_million = Some(client_cpu(&produced) / messages as f64 * 1e6);
        }
        if plan.roles.values().any(|role| role.does == Does::Consume) {
            let mut both = only(plan, Does::Produce, Some(FILL));
            both.roles.extend(only(plan, Does::Consume, None).roles);
            let consumed = self.load(both, "c").await?;
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

    async fn load(&mut self, plan: Plan, tag: &str) -> Result<Loaded, String> {
        let destinations = point::destinations(&plan, &[], tag);
        for set in destinations.values() {
            let prepared = self.driver.prepare(set).await;
            prepared.map_err(|error| error.to_string())?;
        }
        if let Some(client) = &mut self.client {
            let order = Order {
                plan: Arc::new(plan),
                system: self.system.to_owned(),
                address: self.address.clone(),
                tag: tag.to_owned(),
                topic_settings: Vec::new(),
                brokers: Vec::new(),
                stop: self.stop.clone(),
                on_second: Box::new(|_| ()),
            };
            return client.run(order, false).await.map_err(|error| error.to_string());
        }
        let load = Load {
            contents: Load::contents(&plan)?,
            plan: Arc::new(plan),
            driver: Arc::clone(&self.driver),
            destinations,
            brokers: Vec::new(),
            seating: Arc::default(),
            together: None,
            ends_early: false,
            precise: true,
            stop: self.stop.clone(),
            on_second: Box::new(|_| ()),
        };
        load.run().await.map_err(|error| error.to_string())
    }
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
