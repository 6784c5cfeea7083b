//! All agents of a run, and a load on them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::AgentAddress;
use super::following::{Following, Together};
use super::link::{Link, Member, Report};
use super::placement;
use super::proof::Secret;
use super::protocol::{Alone, FromAgent, OfLoad, Preparation, ToAgent};
use crate::drivers::DriverError;
use crate::experiment::Plan;
use crate::measure::process::Watched;
use crate::results::{Network, ProcessKind};
use crate::workload::client_placement::Seating;
use crate::workload::load::Second;
use crate::workload::{Loaded, filter};

/// Time between two looks for orders to the agents.
const LOOK: Duration = Duration::from_millis(20);
const REPORTS_WAITING: usize = 1024;
/// Time that agents may take to end after an abandoned load.
const STOPPED_WITHIN: Duration = Duration::from_mins(1);

/// The agents of a run.
#[derive(Debug)]
pub struct Crew {
    agents: Vec<Place>,
    secret: Option<Secret>,
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
    /// Connects to all agents, and measures the network to each.
    /// An error names the agent that is not there, or does not take orders from here.
    pub async fn gather(agents: Vec<AgentAddress>, secret: Option<Secret>) -> Result<Self, String> {
        let mut crew = Self::of(agents, secret);
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
        let mut link = Link::open(agent, self.secret.as_ref()).await?;
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

    /// Runs a load. `ends_early`: it ends when everything that was to be sent has come, even if there is time
    /// left.
    /// Fails if an agent went away, or could not do its part.
    pub(crate) async fn run(&mut self, order: Order, ends_early: bool) -> Result<Loaded, DriverError> {
        self.assemble().await?;
        self.loads += 1;
        let seating = placement::seat(&order.plan, &self.addresses()).map_err(DriverError::Refused)?;
        for (host, member) in (0..).zip(self.members()) {
            let seating = Seating {
                host,
                ..seating.clone()
            };
            let preparation = order.preparation(self.loads, seating, None);
            member.tell(ToAgent::Prepare(Box::new(preparation))).await;
        }
        let mut watched: Vec<Watched> = order
            .brokers
            .iter()
            .map(|pid| Watched::new(ProcessKind::Broker, *pid))
            .collect();
        let following = Following::new(&order.plan, &seating, self.agents.len(), ends_early);
        let done = self.follow(&order, following, &mut watched).await;
        if done.is_err() {
            self.tell_all(&ToAgent::Abandon).await;
        }
        Ok(self.put_together(&order, done?, watched))
    }

    /// Passes on orders and reports until each agent has handed over its results.
    async fn follow(
        &mut self,
        order: &Order,
        mut following: Following<'_>,
        watched: &mut [Watched],
    ) -> Result<Together, DriverError> {
        let started = Instant::now();
        let mut stopped = None;
        while !following.is_over() {
            let report = tokio::select! {
                () = order.stop.cancelled(), if stopped.is_none() => {
                    // Results so far are still of interest.
                    self.tell_all(&ToAgent::Abandon).await;
                    stopped = Some(Instant::now());
                    None
                }
                report = self.next_report() => Some(report),
                () = sleep(LOOK) => None,
            };
            match report {
                Some((host, Report::Gone(reason))) => {
                    return Err(self.went_away(host, &reason));
                }
                Some((host, Report::Said(FromAgent::Load { load, said }))) if load == self.loads => {
                    self.hear(host, said, order, &mut following, watched)?;
                }
                // A report of a load that is over, or of none.
                Some((_, Report::Said(_))) | None => {}
            }
            for next in following.orders(started.elapsed()) {
                self.tell_all(&next).await;
            }
            for (role, allowed) in following.course.allowances() {
                for (member, made) in self.members().zip(allowed) {
                    member.allow(self.loads, role, *made);
                }
            }
            let is_overdue = stopped.is_some_and(|stopped: Instant| stopped.elapsed() > STOPPED_WITHIN);
            if is_overdue || following.course.is_stuck(started.elapsed()) {
                return Err(DriverError::Failed(
                    "the agents did not come to an end".to_owned(),
                ));
            }
        }
        following.finish().map_err(DriverError::Failed)
    }

    fn went_away(&mut self, host: usize, reason: &str) -> DriverError {
        if let Some(place) = self.agents.get_mut(host) {
            place.member = None;
        }
        DriverError::Failed(format!("{} went away: {reason}", self.name(host)))
    }

    fn name(&self, host: usize) -> String {
        let place = self.agents.get(host);
        place.map_or_else(String::new, |place| place.agent.to_string())
    }

    /// Takes a report of the load from an agent.
    fn hear(
        &self,
        host: usize,
        said: OfLoad,
        order: &Order,
        following: &mut Following<'_>,
        watched: &mut [Watched],
    ) -> Result<(), DriverError> {
        let name = self.name(host);
        let told = match said {
            OfLoad::Progress(progress) => {
                following.on_progress(host, progress);
                Ok(())
            }
            OfLoad::Seconds(second) => following.on_second(host, &second).map(|news| {
                if let Some(whole) = news.whole {
                    (order.on_second)(&whole);
                }
                if let Some((at_s, seconds)) = news.first {
                    for process in watched {
                        process.sample(at_s, seconds);
                    }
                }
            }),
            OfLoad::Done(share) => following.on_share(host, *share),
            OfLoad::Failed(error) => return Err(error.about(&name)),
            // Only from a host that runs a load alone.
            OfLoad::Second(_) => Ok(()),
        };
        told.map_err(|what| DriverError::Failed(format!("{name} told what cannot be: {what}")))
    }

    fn put_together(&self, order: &Order, together: Together, watched: Vec<Watched>) -> Loaded {
        let Together { shares, roles, .. } = together;
        let (mut error, mut remarks) = (None, Vec::new());
        let mut processes: Vec<_> = watched.into_iter().map(Watched::finish).collect();
        let hosts = shares.len();
        let largest = |of: fn(&Loaded) -> f64| shares.iter().map(of).fold(0.0, f64::max);
        let (warmup_s, measured_s) = (largest(|share| share.warmup_s), largest(|share| share.measured_s));
        let connected = shares
            .iter()
            .map(|share| share.connected)
            .max()
            .unwrap_or_default();
        for (Place { agent, .. }, share) in self.agents.iter().zip(shares) {
            let of_agent = |text: String| format!("{text} (agent `{}`)", agent.name);
            self.write_log(agent, &share.log);
            error = error.or_else(|| share.error.map(of_agent));
            remarks.extend(share.remarks.into_iter().map(of_agent));
            processes.extend(share.processes.into_iter().map(|mut process| {
                process.name = of_agent(process.name);
                process
            }));
        }
        if !together.is_drained && !order.stop.is_cancelled() {
            remarks.push("messages were still coming when the lab stopped reading; what had not come is not counted as lost".to_owned());
        }
        let has_delivery = roles.iter().any(|role| role.latencies.contains_key("delivery"));
        if hosts > 1 && has_delivery {
            remarks.push(
                "the time to delivery is that of messages whose sender and receiver sat on one host: clocks are not compared"
                    .to_owned(),
            );
        }
        Loaded {
            connected,
            roles,
            processes,
            warmup_s,
            measured_s,
            drain_s: together.drain.map(|drain| drain.as_secs_f64()),
            sustainable_rate: together.sustainable_rate,
            error,
            remarks,
            books: Vec::new(),
            log: Vec::new(),
            client_cores: self.cores(),
        }
    }

    /// Writes the log of an agent. One that cannot be written is no reason not to measure.
    fn write_log(&self, agent: &AgentAddress, lines: &[String]) {
        let Some(logs) = &self.logs else { return };
        let path = logs.join(format!("agent-{}.log", agent.name));
        let _ = fs::create_dir_all(logs).and_then(|()| fs::write(path, lines.join("\n") + "\n"));
    }

    /// Of all machines; agents on one machine share its cores.
    fn cores(&self) -> u32 {
        let machines: BTreeMap<&str, u32> = self
            .members()
            .map(|member| (member.machine.id.as_str(), member.machine.cores))
            .collect();
        machines.values().sum::<u32>().max(1)
    }
}
