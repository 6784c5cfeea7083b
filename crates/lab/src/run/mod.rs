//! Runs an experiment: every point in its order, each one's result on the disk before the next one begins.
//!
//! What goes wrong with a system is that point's result, and the grid goes on. What goes wrong with the lab itself (a full
//! disk) stops the run with what it has. A run that was interrupted goes on where it was.
//!
//! - [`point`]: one point: its system, its load, its result
//! - [`metrics`]: the figures by name
//! - [`verdict`]: how a point ended, and whether the client was what was measured

pub mod metrics;
pub mod point;
pub mod verdict;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use crate::agents::proof::Secret;
use crate::agents::{AgentAddress, Crew, placing};
use crate::environment;
use crate::experiment::check::speaks;
use crate::experiment::read::TOPICS_DEFAULT;
use crate::experiment::{Experiment, ExperimentError, Plan, Source};
use crate::grid;
use crate::measure::{ceiling, network};
use crate::results::{FORMAT, Folder, Planned, Point, Run, Status, StoreError};
use crate::systems::{Place, System, find_peers};
use crate::workload::load::Second;
use point::Bench;

/// The path under which the grid varies what is spoken.
const PROTOCOL: &str = "run.protocol";
/// Behind a system's name: where it speaks AMQP, if it speaks something else elsewhere.
pub const OVER_AMQP: &str = "+amqp";

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Request {
    /// The experiment's name.
    pub name: String,
    pub source: Source,
    /// Instead of those of the experiment.
    pub systems: Option<Vec<String>>,
    /// Instead of the number of the experiment.
    pub repetitions: Option<u32>,
    pub scale: f64,
    pub out: PathBuf,
    /// Of systems that run already.
    pub addresses: BTreeMap<String, String>,
    /// Who runs the load, instead of those of the experiment; nobody: this program itself.
    pub agents: Vec<AgentAddress>,
    /// What the agents want to hear.
    pub secret: Option<Secret>,
    /// This machine's address, on which systems that are started listen.
    pub host: String,
    /// The program with the clients that users take, if it is not the one beside this one.
    pub clients: Option<PathBuf>,
    /// This program.
    pub exe: PathBuf,
    /// The command line that repeats the run.
    pub command: String,
}

impl Request {
    /// An agent that cannot reach what is started on this machine.
    pub(crate) fn out_of_reach(&self) -> Option<&AgentAddress> {
        let is_here = |host: &str| host.starts_with("127.") || host == "localhost";
        let far = |agent: &&AgentAddress| {
            let host = agent.address.rsplit_once(':').map_or("", |(host, _)| host);
            !is_here(host)
        };
        self.agents.iter().find(far).filter(|_| is_here(&self.host))
    }

    /// The folder of the scripts that fetch and start what is not this program.
    pub(crate) fn peers(&self) -> Option<PathBuf> {
        find_peers(&[&std::env::current_dir().unwrap_or_default(), &self.exe])
    }
}

/// Is told how a run goes.
pub trait Watch: Send + Sync {
    /// `done` points of the run are there already.
    fn begins(&self, run: &Run, done: usize);
    /// Something that takes a while, such as the start of a system.
    fn does(&self, what: &str);
    /// A point begins; `left` is an estimate for the rest of the run.
    fn point(&self, planned: &Planned, done: usize, left: Duration);
    fn second(&self, second: &Second);
    fn ended(&self, point: &Point);
}

/// Why there is no run, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Request(String),
}

/// Runs what is asked, or goes on with it. Returns the run as it was left; `stop` interrupts it.
pub async fn run(request: Request, watch: Arc<dyn Watch>, stop: CancellationToken) -> Result<Run, RunError> {
    let experiment = request.source.experiment()?;
    let mut request = request;
    if request.agents.is_empty() {
        request.agents = AgentAddress::parse_all(&experiment.run.agents)
            .map_err(|wrong| RunError::Request(format!("run.agents: {wrong}")))?;
    }
    check_agents(&request, &experiment)?;
    let crew = match request.agents.as_slice() {
        [] => None,
        agents => {
            let crew = Crew::gather(agents.to_vec(), request.secret.clone()).await;
            Some(crew.map_err(RunError::Request)?)
        }
    };
    let folder = Folder::new(&request.out);
    let mut run = if folder.exists() {
        resumed(&request, &folder)?
    } else {
        let run = planned(&request, experiment)?;
        folder.write_run(&run)?;
        run
    };
    if let Some(crew) = &crew {
        run.environment.agents = crew.describe();
    }
    let place = Place {
        host: request.host.clone(),
        exe: request.exe.clone(),
        data: request.out.join("data"),
        logs: request.out.join("logs"),
        peers: request.peers(),
    };
    let done = run
        .order
        .iter()
        .filter(|planned| folder.has_point(planned.number))
        .count();
    watch.begins(&run, done);
    let mut bench = Bench {
        request,
        place,
        watch,
        stop,
        system: None,
        crew,
    };
    let ended = bench.all(&mut run, &folder).await;
    bench.put_away().await;
    let (status, reason) = match ended {
        Ok(()) if bench.stop.is_cancelled() => (Status::Interrupted, None),
        Ok(()) => (Status::Finished, None),
        Err(error) => (Status::Stopped, Some(error.to_string())),
    };
    run.status = status;
    run.reason = reason;
    run.ended_ms = Some(now_ms());
    // With a full disk even this may fail; what was saved before is whole.
    let saved = folder.write_run(&run);
    match (status, saved) {
        (Status::Stopped, _) | (_, Ok(())) => Ok(run),
        (_, Err(error)) => Err(error.into()),
    }
}

/// What agents cannot do is said before anything runs.
fn check_agents(request: &Request, experiment: &Experiment) -> Result<(), RunError> {
    let agents = &request.agents;
    let systems = request.systems.as_ref().unwrap_or(&experiment.systems);
    for parameters in grid::combinations(&request.source.grid(request.scale)?) {
        let plan = request.source.plan(request.scale, &parameters)?;
        let seated = placing::seat(&plan, agents);
        if agents.is_empty() {
            if let Some((name, _)) = plan.roles.iter().find(|(_, role)| !role.on.is_empty()) {
                return Err(RunError::Request(format!(
                    "roles.{name}.on names agents, and there are none: give them with --agent NAME=HOST:PORT"
                )));
            }
            continue;
        }
        let seating = seated.map_err(RunError::Request)?;
        placing::check_clocks(experiment, &plan, &seating, agents).map_err(RunError::Request)?;
        let started = systems.iter().find(|system| {
            let own = plan.system.own(system);
            !request.addresses.contains_key(*system) && own.is_none_or(|own| !own.is_there())
        });
        if let (Some(system), Some(agent)) = (started, request.out_of_reach()) {
            return Err(RunError::Request(format!(
                "agent `{}` at {} cannot reach {system}, which is started on this machine's loopback: give this \
                 machine's address (--host), or that of a system that runs already (--address {system}=HOST:PORT)",
                agent.name, agent.address
            )));
        }
    }
    Ok(())
}

/// A run from its beginning.
fn planned(request: &Request, experiment: Experiment) -> Result<Run, RunError> {
    let parameters = grid::combinations(&request.source.grid(request.scale)?);
    let first = parameters.first().cloned().unwrap_or_default();
    let plan = request.source.plan(request.scale, &first)?;
    let systems = request
        .systems
        .clone()
        .unwrap_or_else(|| experiment.systems.clone());
    let repetitions = request.repetitions.unwrap_or(plan.run.repetitions);
    let mut order = grid::order(&systems, &parameters, repetitions, plan.run.seed);
    // Where the protocol is varied, each system is asked in those that it speaks.
    order.retain(|planned| {
        let protocol = planned.parameters.get(PROTOCOL);
        let protocol = protocol.and_then(|value| serde_json::from_value(value.clone()).ok());
        protocol.is_none_or(|protocol| speaks(&planned.system, protocol))
    });
    std::fs::create_dir_all(&request.out).map_err(|source| StoreError::Write {
        path: request.out.clone(),
        source,
    })?;
    Ok(Run {
        format: FORMAT,
        name: request.name.clone(),
        experiment,
        source: request.source.text.clone(),
        command: request.command.clone(),
        scale: request.scale,
        seed: plan.run.seed,
        environment: environment::describe(&request.out, &request.exe),
        network: None,
        ceilings: Vec::new(),
        started_ms: now_ms(),
        ended_ms: None,
        status: Status::Running,
        reason: None,
        order,
    })
}

/// A run that was begun before, if it is the same.
fn resumed(request: &Request, folder: &Folder) -> Result<Run, RunError> {
    let mut run = folder.read_run()?;
    let asked = request
        .systems
        .clone()
        .unwrap_or_else(|| run.experiment.systems.clone());
    let is_same = run.source == request.source.text
        && (run.scale - request.scale).abs() < 1e-9
        && run.order.iter().all(|planned| asked.contains(&planned.system));
    if !is_same {
        return Err(RunError::Request(format!(
            "{} holds another run ({}, scale {}): give another folder with --out, or delete it",
            request.out.display(),
            run.name,
            run.scale
        )));
    }
    run.status = Status::Running;
    run.reason = None;
    Ok(run)
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Bench {
    /// All points that are not there yet.
    async fn all(&mut self, run: &mut Run, folder: &Folder) -> Result<(), RunError> {
        if run.network.is_none() {
            self.watch.does("measuring the network");
            run.network = match &self.crew {
                Some(crew) => crew.network(),
                None => tokio::task::spawn_blocking(network::loopback)
                    .await
                    .ok()
                    .and_then(Result::ok),
            };
        }
        if run.ceilings.is_empty() {
            self.watch
                .does("measuring what the client reaches against a stub");
            run.ceilings = ceiling::measure(&self.request, self.crew.as_mut(), &self.stop).await?;
        }
        folder.write_run(run)?;
        let started = Instant::now();
        let mut taken = 0;
        for place in 0..run.order.len() {
            let Some(planned) = run.order.get(place).cloned() else {
                break;
            };
            if self.stop.is_cancelled() {
                return Ok(());
            }
            if folder.has_point(planned.number) {
                continue;
            }
            let plan = self.plan(&planned)?;
            let left = left(run, folder, started.elapsed(), taken, &plan);
            self.watch.point(&planned, place, left);
            let point = self.measure(&planned, plan, &run.ceilings).await;
            if self.stop.is_cancelled() {
                // Half a point is none.
                return Ok(());
            }
            taken += 1;
            folder.write_point(&point)?;
            if !point.version.is_empty()
                && run
                    .environment
                    .versions
                    .insert(point.system.clone(), point.version.clone())
                    .is_none()
            {
                folder.write_run(run)?;
            }
            self.watch.ended(&point);
        }
        Ok(())
    }

    /// The settings of a point, with the addresses that were given.
    pub(crate) fn plan(&self, planned: &Planned) -> Result<Plan, RunError> {
        let mut plan = self
            .request
            .source
            .plan(self.request.scale, &planned.parameters)?;
        for (given, address) in &self.request.addresses {
            let protocol = given.strip_suffix(OVER_AMQP);
            let own = match protocol.unwrap_or(given) {
                "stafett" => &mut plan.system.stafett,
                "kafka" => &mut plan.system.kafka,
                _ => &mut plan.system.rabbitmq,
            };
            match protocol {
                Some(_) => own.amqp_address = Some(address.clone()),
                None => own.address = Some(address.clone()),
            }
        }
        debug_assert!(!plan.topics.is_empty(), "there is at least {TOPICS_DEFAULT}");
        Ok(plan)
    }

    /// Ends what is running.
    pub(crate) async fn put_away(&mut self) {
        if let Some(System {
            process: Some(process),
            ..
        }) = self.system.take()
        {
            process.stop().await;
        }
        // Whatever is left of it is on the next start's way.
        let _ = std::fs::remove_dir_all(&self.place.data);
    }
}

/// How long the rest takes: as the points so far did, or as long as a point is meant to take.
fn left(run: &Run, folder: &Folder, spent: Duration, taken: u32, plan: &Plan) -> Duration {
    let open = run
        .order
        .iter()
        .filter(|planned| !folder.has_point(planned.number))
        .count();
    let each = if taken > 0 {
        spent / taken
    } else {
        plan.run.warmup.0 + plan.run.duration.0 + Duration::from_secs(2)
    };
    each.saturating_mul(u32::try_from(open).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_protocol_is_varied_systems_are_asked_in_those_that_they_speak() {
        let folder = tempfile::tempdir().unwrap();
        let text = "question = \"?\"\nsystems = [\"stafett\", \"kafka\", \"rabbitmq\"]\n[run]\nrepetitions = 1\n\
                    [roles.p]\ndoes = \"produce\"\n[grid]\n\"run.protocol\" = [\"kafka\", \"amqp\"]";
        let request = Request {
            name: "x".to_owned(),
            source: Source {
                place: "x".to_owned(),
                text: text.to_owned(),
            },
            systems: None,
            repetitions: None,
            scale: 1.0,
            out: folder.path().to_owned(),
            addresses: BTreeMap::new(),
            agents: Vec::new(),
            secret: None,
            host: "127.0.0.1".to_owned(),
            clients: None,
            exe: PathBuf::new(),
            command: String::new(),
        };
        let run = planned(&request, request.source.experiment().unwrap()).unwrap();
        let mut asked: Vec<_> = run
            .order
            .iter()
            .map(|planned| {
                (
                    planned.system.as_str(),
                    planned.parameters[PROTOCOL].as_str().unwrap(),
                )
            })
            .collect();
        asked.sort_unstable();
        let expected = [
            ("kafka", "kafka"),
            ("rabbitmq", "amqp"),
            ("stafett", "amqp"),
            ("stafett", "kafka"),
        ];
        assert_eq!(asked, expected);
    }
}
