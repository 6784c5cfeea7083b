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

mod bench;
pub mod live;
pub mod metrics;
pub mod point;
mod resume;
pub mod verdict;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use crate::agents::proof::Secret;
use crate::agents::{AgentAddress, Crew, placement};
use crate::experiment::{Experiment, ExperimentError, Source};
use crate::measure::network;
use crate::measure::space::{LEAST_BYTES, Space};
use crate::results::{Folder, Planned, Point, Run, Status, StoreError};
use crate::systems::data_dir::Ground;
use crate::systems::{Place, find_peers};
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
        let far = |agent: &&AgentAddress| !network::is_loopback(&agent.address);
        let is_here = network::is_loopback_host(&self.host);
        self.agents.iter().find(far).filter(|_| is_here)
    }

    /// Returns the places of systems.
    fn place(&self, ground: &Ground) -> Place {
        Place {
            host: self.host.clone(),
            stafett: self.stafett.clone(),
            data: ground.path().to_owned(),
            logs: self.out.join("logs"),
            peers: find_peers(&[&std::env::current_dir().unwrap_or_default(), &self.exe]),
            kept: BTreeMap::new(),
        }
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
    let place = request.place(&ground);
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
        broken: None,
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

/// Time in which an agent that a page looks at is free again.
const AGENTS_FREE_WITHIN: Duration = Duration::from_secs(20);

/// Connects to the agents of a request, if it has any.
async fn gather(request: &Request) -> Result<Option<Crew>, RunError> {
    if request.agents.is_empty() {
        return Ok(None);
    }
    let crew = Crew::gather(request.agents.clone(), request.secret.clone(), AGENTS_FREE_WITHIN).await;
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
        if !plan.faults.is_empty() {
            let reason = "faults are of a system that this program loads itself: not with agents";
            return Err(RunError::Request(reason.to_owned()));
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

impl Bench {}

#[cfg(test)]
mod tests;
