//! Runs an experiment: every point in its order, each one's result on the disk before the next one begins.
//!
//! A failure of a system is that point's result, and the grid goes on. A failure of the lab itself (a full
//! disk) stops the run, which keeps its results. A run that was interrupted goes on where it was.
//!
//! - `resume`: a run from its beginning, or one that goes on
//! - [`live`]: a run that can be followed and ended from outside
//! - [`point`]: one point: its system, its load, its result
//! - [`metrics`]: the figures by name
//! - [`verdict`]: how a point ended, and whether the client was measured rather than the system

pub mod live;
pub mod metrics;
pub mod point;
mod resume;
pub mod verdict;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use crate::agents::proof::Secret;
use crate::agents::{AgentAddress, Crew, placement};
use crate::experiment::read::TOPICS_DEFAULT;
use crate::experiment::{Experiment, ExperimentError, Own, Plan, Source};
use crate::measure::space::{LEAST_BYTES, Space};
use crate::measure::{ceiling, network};
use crate::results::{Folder, Planned, Point, Reached, Run, Status, StoreError};
use crate::systems::data_dir::Ground;
use crate::systems::{self, Place, System, durability, find_peers};
use crate::workload::load::Second;
use live::{Control, Ends, Live};
use point::Bench;
pub use resume::order;

/// Behind a system's name: where it speaks AMQP, if it speaks something else elsewhere.
pub const OVER_AMQP: &str = "+amqp";

/// Request for a run.
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
    /// Agents that run the load, instead of those of the experiment; none: this program itself.
    pub agents: Vec<AgentAddress>,
    /// Secret that the agents ask for.
    pub secret: Option<Secret>,
    /// This machine's address, on which systems that are started listen.
    pub host: String,
    /// The program with the clients that users take, if it is not the one beside this one.
    pub clients: Option<PathBuf>,
    /// This program.
    pub exe: PathBuf,
    /// The broker's program.
    pub stafett: PathBuf,
    /// The command line that repeats the run.
    pub command: String,
}

impl Request {
    /// Returns an agent that cannot reach systems on this machine.
    pub(crate) fn out_of_reach(&self) -> Option<&AgentAddress> {
        let is_here = |host: &str| host.starts_with("127.") || host == "localhost";
        let far = |agent: &&AgentAddress| {
            let host = agent.address.rsplit_once(':').map_or("", |(host, _)| host);
            !is_here(host)
        };
        self.agents.iter().find(far).filter(|_| is_here(&self.host))
    }

    /// Returns the folder of the scripts that fetch and start other systems.
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
    /// A point begins, at that level of durability; `left` is an estimate for the rest of the run.
    fn point(&self, planned: &Planned, durability: &str, done: usize, left: Duration);
    fn second(&self, second: &Second);
    fn ended(&self, point: &Point);
}

/// Reason why there is no run, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Request(String),
    /// The disk is about to be full.
    #[error("{0}")]
    Space(String),
}

/// Runs the request, or goes on with it. Returns the run as it was left; `stop` interrupts it.
pub async fn run(request: Request, watch: Arc<dyn Watch>, stop: CancellationToken) -> Result<Run, RunError> {
    run_within(request, watch, stop, LEAST_BYTES).await
}

/// The same, as long as so much of the disk is free.
async fn run_within(
    request: Request,
    watch: Arc<dyn Watch>,
    stop: CancellationToken,
    free_bytes: u64,
) -> Result<Run, RunError> {
    let experiment = request.source.experiment()?;
    let mut request = request;
    if request.agents.is_empty() {
        request.agents = AgentAddress::parse_all(&experiment.run.agents)
            .map_err(|wrong| RunError::Request(format!("run.agents: {wrong}")))?;
    }
    check_agents(&request, &experiment)?;
    let crew = gather(&request).await?;
    let folder = Folder::new(&request.out);
    let mut run = if folder.exists() {
        resume::resumed(&request, &experiment, &folder)?
    } else {
        resume::planned(&request, experiment)?
    };
    let ground = Ground::take(&request.out).map_err(RunError::Request)?;
    folder.write_run(&run)?;
    if let Some(crew) = &crew {
        run.environment.agents = crew.describe();
    }
    let place = Place {
        host: request.host.clone(),
        stafett: request.stafett.clone(),
        data: ground.path().to_owned(),
        logs: request.out.join("logs"),
        peers: request.peers(),
    };
    let done = run
        .order
        .iter()
        .filter(|planned| folder.has_point(planned.number))
        .count();
    let watch = Arc::new(Live::new(&request.out, watch));
    let ends = Ends {
        now: stop,
        soon: CancellationToken::new(),
    };
    let control = Control::listen(&request.out, ends.clone());
    watch.begins(&run, done);
    let mut bench = Bench {
        space: Space::new(ground.path(), free_bytes),
        shortage: None,
        revision: crate::environment::revision(&request.exe),
        request,
        place,
        ground,
        watch: Arc::clone(&watch) as Arc<dyn Watch>,
        ends,
        system: None,
        crew,
    };
    let ended = bench.all(&mut run, &folder).await;
    bench.put_away().await;
    bench.ground.give_back();
    let is_whole = run.order.iter().all(|planned| folder.has_point(planned.number));
    conclude(&mut run, ended, bench.ends.is_any() && !is_whole);
    // With a full disk even this may fail; earlier results are whole.
    let saved = folder.write_run(&run);
    watch.closes(&run);
    drop(control);
    match (run.status, saved) {
        (Status::Stopped, _) | (_, Ok(())) => Ok(run),
        (_, Err(error)) => Err(error.into()),
    }
}

/// Notes the end of a run.
fn conclude(run: &mut Run, ended: Result<(), RunError>, is_cut: bool) {
    (run.status, run.reason) = match ended {
        Ok(()) if is_cut => (Status::Interrupted, None),
        Ok(()) => (Status::Finished, None),
        Err(error) => (Status::Stopped, Some(error.to_string())),
    };
    run.ended_ms = Some(now_ms());
}

/// Connects to the agents of a request, if it has any.
async fn gather(request: &Request) -> Result<Option<Crew>, RunError> {
    if request.agents.is_empty() {
        return Ok(None);
    }
    let crew = Crew::gather(request.agents.clone(), request.secret.clone()).await;
    crew.map(Some).map_err(RunError::Request)
}

/// Refuses plans that agents cannot run, before anything runs.
fn check_agents(request: &Request, experiment: &Experiment) -> Result<(), RunError> {
    let agents = &request.agents;
    let systems = request.systems.as_ref().unwrap_or(&experiment.systems);
    for parameters in request.source.points(request.scale)? {
        let plan = request.source.plan(request.scale, &parameters)?;
        let seated = placement::seat(&plan, agents);
        if agents.is_empty() {
            if let Some((name, _)) = plan.roles.iter().find(|(_, role)| !role.on.is_empty()) {
                return Err(RunError::Request(format!(
                    "roles.{name}.on names agents, and there are none: give them with --agent NAME=HOST:PORT"
                )));
            }
            continue;
        }
        let seating = seated.map_err(RunError::Request)?;
        placement::check_clocks(experiment, &plan, &seating, agents).map_err(RunError::Request)?;
        let started = systems.iter().find(|system| {
            let own = plan.system.own(system);
            !request.addresses.contains_key(*system) && own.is_none_or(|own| !own.is_there())
        });
        if let (Some(system), Some(agent)) = (started, request.out_of_reach()) {
            return Err(RunError::Request(format!(
                "{agent} cannot reach {system}, which is started on this machine's loopback: give this machine's \
                 address (--host), or that of a system that runs already (--address {system}=HOST:PORT)"
            )));
        }
    }
    Ok(())
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Bench {
    /// All points that are not there yet.
    async fn all(&mut self, run: &mut Run, folder: &Folder) -> Result<(), RunError> {
        self.measure_ways(run).await?;
        if run.ceilings.is_empty() {
            self.watch
                .does("measuring what the client reaches against a stub");
            let ceilings = ceiling::measure(&self.request, self.crew.as_mut(), &self.ends.now).await?;
            if self.ends.now.is_cancelled() {
                // Half a ceiling would stand there as one. It is measured when the run goes on.
                return Ok(());
            }
            run.ceilings = ceilings;
        }
        folder.write_run(run)?;
        let started = Instant::now();
        let mut taken = 0;
        for place in 0..run.order.len() {
            let Some(planned) = run.order.get(place).cloned() else {
                break;
            };
            if self.ends.is_any() {
                return Ok(());
            }
            if folder.has_point(planned.number) {
                continue;
            }
            let plan = self.plan(&planned)?;
            let left = left(run, folder, started.elapsed(), taken, &plan);
            let (_, level) = systems::levels(&planned.system, &plan);
            let level = durability::without_acknowledgement(level, &plan);
            self.watch.point(&planned, &level.given, place, left);
            self.have_space(&planned.system, &plan).await?;
            let point = self.measure(&planned, plan, &run.ceilings).await;
            if let Some(shortage) = self.shortage.take() {
                return Err(RunError::Space(shortage));
            }
            if self.ends.now.is_cancelled() {
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

    /// Measures the way between clients and systems, unless that was done.
    async fn measure_ways(&self, run: &mut Run) -> Result<(), RunError> {
        if run.network.is_some() || !run.reached.is_empty() {
            return Ok(());
        }
        self.watch.does("measuring the network");
        let mut elsewhere: Vec<(String, String)> = Vec::new();
        let mut any_here = false;
        for planned in run.order.iter().filter(|planned| planned.repetition == 1) {
            match self.address_elsewhere(planned)? {
                None => any_here = true,
                Some(address) => {
                    let way = (planned.system.clone(), address);
                    if !elsewhere.contains(&way) {
                        elsewhere.push(way);
                    }
                }
            }
        }
        run.network = match &self.crew {
            Some(crew) => crew.network(),
            None if any_here => tokio::task::spawn_blocking(network::loopback)
                .await
                .ok()
                .and_then(Result::ok),
            None => None,
        };
        for (system, address) in elsewhere {
            run.reached.push(self.reach(system, address).await);
        }
        Ok(())
    }

    /// Returns the address of a point's system, unless it is of this machine alone.
    fn address_elsewhere(&self, planned: &Planned) -> Result<Option<String>, RunError> {
        let plan = self.plan(planned)?;
        let own = plan.system.own(&planned.system);
        let spoken = systems::protocol(&planned.system, &plan).ok();
        let address = own.and_then(|own| own.address(spoken?));
        Ok(address
            .filter(|address| !network::is_loopback(address))
            .map(str::to_owned))
    }

    async fn reach(&self, system: String, address: String) -> Reached {
        let connected = if self.crew.is_some() {
            Err("the load comes from agents, and their way to it was not measured".to_owned())
        } else {
            let there = address.clone();
            let connecting = tokio::task::spawn_blocking(move || network::connects(&there)).await;
            match connecting {
                Ok(Ok(connect)) => Ok(connect),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        };
        let (connect, reason) = match connected {
            Ok(connect) => (Some(connect), None),
            Err(reason) => (None, Some(reason)),
        };
        Reached {
            system,
            address,
            connect,
            reason,
        }
    }

    /// Sees to it that a system that stores here has the space for it.
    async fn have_space(&mut self, name: &str, plan: &Plan) -> Result<(), RunError> {
        let is_there = plan.system.own(name).is_some_and(Own::is_there);
        if is_there || self.space.shortage().is_none() {
            return Ok(());
        }
        // Data of the points before may take the space.
        self.put_away().await;
        self.space
            .shortage()
            .map_or(Ok(()), |shortage| Err(RunError::Space(shortage)))
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

    /// Ends the running system.
    pub(crate) async fn put_away(&mut self) {
        if let Some(System {
            process: Some(process),
            ..
        }) = self.system.take()
        {
            process.stop().await;
        }
        self.ground.clear();
    }
}

/// Estimates the rest of the time: as the points so far took, or as long as a point is meant to take.
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
mod tests;
