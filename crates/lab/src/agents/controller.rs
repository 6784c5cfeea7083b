//! All agents of a run, and a load on them.

mod loads;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::AgentAddress;
use super::host::TAKEN;
use super::link::{Link, Member, Report};
use super::proof::Secret;
use super::protocol::{Alone, Preparation, ToAgent};
use crate::drivers::DriverError;
use crate::experiment::Plan;
use crate::results::Network;
use crate::workload::client_placement::Seating;
use crate::workload::filter;
use crate::workload::load::{Second, Stage};

/// Time between two looks for orders to the agents.
const LOOK: Duration = Duration::from_millis(20);
/// Pause before another attempt at an agent that is taken.
const PAUSE: Duration = Duration::from_millis(100);
const REPORTS_WAITING: usize = 1024;
/// Time that agents may take to end after an abandoned load.
const STOPPED_WITHIN: Duration = Duration::from_mins(1);

/// The agents of a run.
#[derive(Debug)]
pub struct Crew {
    agents: Vec<Place>,
    secret: Option<Secret>,
    /// Time that an agent may be taken by another controller.
    patience: Duration,
    /// Reports, with the agent's place and the number of its connection.
    reports: mpsc::Receiver<((usize, u64), Report)>,
    told: mpsc::Sender<((usize, u64), Report)>,
    loads: u64,
    network: Option<Network>,
    /// Folder for their logs, if they are kept.
    logs: Option<PathBuf>,
    tasks: TaskTracker,
}

/// An agent's place in the crew.
#[derive(Debug)]
struct Place {
    agent: AgentAddress,
    /// `None` if it is not connected.
    member: Option<Member>,
    /// Number of its connection: late reports of an old one are passed over.
    connection: u64,
}

/// A load for all of them.
pub(crate) struct Order {
    pub(crate) plan: Arc<Plan>,
    pub(crate) system: String,
    pub(crate) address: String,
    pub(crate) tag: String,
    pub(crate) topic_settings: Vec<(String, String)>,
    /// Processes of the system on this machine.
    pub(crate) brokers: Vec<u32>,
    pub(crate) stop: CancellationToken,
    pub(crate) on_second: Box<dyn Fn(&Second) + Send + Sync>,
    pub(crate) stage: Stage,
}

impl Order {
    /// Returns a host's part of the order.
    pub(crate) fn preparation(&self, load: u64, seating: Seating, alone: Option<Alone>) -> Preparation {
        Preparation {
            load,
            plan: filter::taken_out(&self.plan),
            seating,
            system: self.system.clone(),
            address: self.address.clone(),
            tag: self.tag.clone(),
            topic_settings: self.topic_settings.clone(),
            alone,
        }
    }
}

impl Crew {
    /// Connects to all agents, and measures the network to each. Waits for one that is taken by another
    /// controller for as long as `patience`.
    /// An error names the agent that is not there, or does not take orders from here.
    pub async fn gather(
        agents: Vec<AgentAddress>,
        secret: Option<Secret>,
        patience: Duration,
    ) -> Result<Self, String> {
        let mut crew = Self::of(agents, secret);
        crew.patience = patience;
        for place in 0..crew.agents.len() {
            crew.connect(place, true).await?;
        }
        Ok(crew)
    }

    /// Of agents that are not connected yet.
    fn of(agents: Vec<AgentAddress>, secret: Option<Secret>) -> Self {
        let (told, reports) = mpsc::channel(REPORTS_WAITING);
        let place = |agent| Place {
            agent,
            member: None,
            connection: 0,
        };
        Self {
            agents: agents.into_iter().map(place).collect(),
            secret,
            patience: Duration::ZERO,
            reports,
            told,
            loads: 0,
            network: None,
            logs: None,
            tasks: TaskTracker::new(),
        }
    }

    /// Of agents at the other ends of these.
    #[cfg(test)]
    pub(super) async fn over<R, W>(ends: Vec<(R, W)>) -> Self
    where
        R: tokio::io::AsyncRead + Unpin + Send + 'static,
        W: tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let addresses: Vec<String> = (1..=ends.len()).map(|number| format!("h:{number}")).collect();
        let mut crew = Self::of(AgentAddress::parse_all(&addresses).unwrap(), None);
        for (place, (reader, writer)) in ends.into_iter().enumerate() {
            let link = Link::meet(reader, writer, None).await.unwrap();
            crew.agents[place].connection = 1;
            crew.agents[place].member = Some(link.keep((place, 1), crew.told.clone(), &crew.tasks));
        }
        crew
    }

    /// Between this machine and the agent that is farthest.
    pub fn network(&self) -> Option<Network> {
        self.network.clone()
    }

    /// Keeps the logs of agents in this folder from now on.
    pub(crate) fn keep_logs(&mut self, logs: PathBuf) {
        self.logs = Some(logs);
    }

    /// Describes the agents' machines, a line each.
    pub fn describe(&self) -> Vec<String> {
        let described = |Place { agent, member, .. }: &Place| {
            let machine = member.as_ref().map_or_else(String::new, |member| {
                let machine = &member.machine;
                format!(
                    ": {} cores, {}, {} GiB, Linux {}",
                    machine.cores,
                    machine.cpu,
                    machine.memory_bytes >> 30,
                    machine.kernel
                )
            });
            format!("{} ({}){machine}", agent.name, agent.address)
        };
        self.agents.iter().map(described).collect()
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.agents.iter().filter_map(|place| place.member.as_ref())
    }

    async fn connect(&mut self, place: usize, is_measured: bool) -> Result<(), String> {
        let Some(Place {
            agent,
            member,
            connection,
        }) = self.agents.get_mut(place)
        else {
            return Ok(());
        };
        let since = Instant::now();
        let mut link = loop {
            match Link::open(agent, self.secret.as_ref()).await {
                // Another one may only look at the agent.
                Err(reason) if reason.ends_with(TAKEN) && since.elapsed() < self.patience => {
                    sleep(PAUSE).await;
                }
                opened => break opened?,
            }
        };
        if is_measured {
            let network = link
                .measure(&agent.name)
                .await
                .map_err(|error| format!("{agent}: {error}"))?;
            let is_farther = |known: &Network| known.round_trip.p50_us < network.round_trip.p50_us;
            if self.network.as_ref().is_none_or(is_farther) {
                self.network = Some(network);
            }
        }
        *connection += 1;
        *member = Some(link.keep((place, *connection), self.told.clone(), &self.tasks));
        Ok(())
    }

    /// The next thing that an agent says on its present connection. Safe to drop.
    async fn next_report(&mut self) -> (usize, Report) {
        loop {
            // There is always a sender: `told`.
            let Some(((place, connection), report)) = self.reports.recv().await else {
                return std::future::pending().await;
            };
            let known = self.agents.get(place);
            if known.is_some_and(|place| place.connection == connection) {
                return (place, report);
            }
        }
    }

    /// Connects again to agents that went away since the last load.
    async fn assemble(&mut self) -> Result<(), DriverError> {
        while let Ok(((place, connection), report)) = self.reports.try_recv() {
            let known = self.agents.get_mut(place);
            if let Some(known) = known.filter(|place| place.connection == connection)
                && matches!(report, Report::Gone(_))
            {
                known.member = None;
            }
        }
        for place in 0..self.agents.len() {
            if self.agents.get(place).is_some_and(|place| place.member.is_none()) {
                self.connect(place, false).await.map_err(DriverError::Failed)?;
            }
        }
        Ok(())
    }

    fn addresses(&self) -> Vec<AgentAddress> {
        self.agents.iter().map(|place| place.agent.clone()).collect()
    }

    async fn tell_all(&self, order: &ToAgent) {
        for member in self.members() {
            member.tell(order.clone()).await;
        }
    }
}
