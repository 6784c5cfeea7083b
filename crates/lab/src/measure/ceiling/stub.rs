//! Loads against a stub.

use std::sync::Arc;
use std::time::Duration;

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::{FILL, MEASURED, WARMUP};
use crate::agents::Crew;
use crate::agents::controller::Order;
use crate::clients::Client;
use crate::drivers::Driver;
use crate::experiment::{Delivery, Does, Plan, Protocol, Rate};
use crate::results::{Ceiling, ProcessKind};
use crate::run::{Request, point};
use crate::systems;
use crate::systems::process::Process;
use crate::workload::Loaded;
use crate::workload::load::Stage;

/// A load against the stub.
struct Measured<'a> {
    driver: Arc<dyn Driver>,
    crew: Option<&'a mut Crew>,
    client: Option<&'a mut Client>,
    system: &'static str,
    address: String,
    stop: &'a CancellationToken,
}

pub(super) async fn fill(
    request: &Request,
    plan: &Plan,
    (protocol, system): (Protocol, &'static str),
    (mut crew, client): (Option<&mut Crew>, Option<&mut Client>),
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
    if let Some(agent) = request.out_of_reach() {
        return Err(format!(
            "agent `{}` cannot reach a stub on this machine's loopback (--host)",
            agent.name
        ));
    }
    let mut command = Command::new(&request.exe);
    command.args(["stub", "--listen", &format!("{}:0", request.host)]);
    if protocol == Protocol::Amqp {
        command.arg("--amqp");
    }
    let logs = request.out.join("logs").join("stub");
    let is_ready = |line: &str| {
        let rest = line.strip_prefix(protocol.word())?;
        rest.strip_prefix(" listening on ").map(str::to_owned)
    };
    if let Some(crew) = &mut crew {
        crew.keep_logs(logs.clone());
    }
    let started = Process::start(command, "stub", &logs, Duration::from_secs(10), is_ready).await;
    let (process, address) = started.map_err(|error| error.to_string())?;
    let mut measured = Measured {
        driver: systems::driver(system, &address, plan)?,
        crew,
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
        let produced = self.load(only(plan, Does::Produce), "p").await?;
        let rate: f64 = produced.roles.iter().map(|role| role.rate).sum();
        let messages: u64 = produced.roles.iter().map(|role| role.counts.acknowledged).sum();
        if messages == 0 {
            let why = produced.error.unwrap_or_else(|| "nobody answered".to_owned());
            return Err(format!("no message reached the stub: {why}"));
        }
        ceiling.produce_rate = Some(rate);
        ceiling.client_cpu_per_million = Some(client_cpu(&produced) / messages as f64 * 1e6);
        if plan.roles.values().any(|role| role.does == Does::Consume) {
            let mut both = only(plan, Does::Produce);
            for role in both.roles.values_mut() {
                role.total = Some(FILL);
            }
            both.roles.extend(only(plan, Does::Consume).roles);
            let consumed = self.load(both, "c").await?;
            // The stub gives the same batches again and again.
            let received: u64 = consumed
                .roles
                .iter()
                .map(|role| role.counts.received + role.counts.duplicated)
                .sum();
            if received == 0 {
                let why = consumed.error.unwrap_or_else(|| "nothing came".to_owned());
                return Err(format!("no message came from the stub: {why}"));
            }
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
        let order = Order {
            plan: Arc::new(plan),
            system: self.system.to_owned(),
            address: self.address.clone(),
            tag: tag.to_owned(),
            topic_settings: Vec::new(),
            brokers: Vec::new(),
            stop: self.stop.clone(),
            on_second: Box::new(|_| ()),
            stage: Stage::default(),
        };
        let loaded = match (&mut self.crew, &mut self.client) {
            (Some(crew), _) => crew.run(order, false).await,
            (None, Some(client)) => client.run(order, false).await,
            (None, None) => point::run_here(order, &self.driver, destinations, false).await,
        };
        loaded.map_err(|error| error.to_string())
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
fn only(plan: &Plan, does: Does) -> Plan {
    let mut plan = plan.clone();
    plan.run.duration.0 = plan.run.duration.0.min(MEASURED);
    plan.run.warmup.0 = plan.run.warmup.0.min(WARMUP);
    plan.run.settle.0 = Duration::ZERO;
    plan.roles.retain(|_, role| role.does == does);
    for role in plan.roles.values_mut() {
        role.rate = Rate::Closed;
        role.total = None;
        role.after = None;
        role.arrive = None;
        role.kill = None;
        role.work = None;
        role.window = None;
        role.commit = None;
        role.poll = None;
        role.leave = false;
    }
    plan
}
