//! All agents of a run, and a load on them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::AgentAddress;
use super::course::Course;
use super::member::{Link, Member, Report};
use super::merge::{self, Seconds};
use super::placing;
use super::proof::Secret;
use super::protocol::{FromAgent, Preparation, Share, ToAgent};
use crate::drivers::DriverError;
use crate::experiment::Plan;
use crate::measure::process::Watched;
use crate::results::{Network, ProcessKind, RateSample};
use crate::workload::Loaded;
use crate::workload::load::Second;
use crate::workload::seating::Seating;

/// How often it is looked what the agents are to be told.
const LOOK: Duration = Duration::from_millis(20);
const REPORTS_WAITING: usize = 1024;
/// How long agents may take to end when they are told to.
const STOPPED_WITHIN: Duration = Duration::from_mins(1);

/// The agents of a run.
#[derive(Debug)]
pub struct Crew {
    agents: Vec<AgentAddress>,
    secret: Option<Secret>,
    members: Vec<Option<Member>>,
    /// Who says it: the agent by place, and which connection to it.
    reports: mpsc::Receiver<((usize, u64), Report)>,
    told: mpsc::Sender<((usize, u64), Report)>,
    /// Connections are numbered, so that what an old one says late is told from the news.
    connections: Vec<u64>,
    loads: u64,
    network: Option<Network>,
    tasks: TaskTracker,
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

impl Crew {
    /// Connects to all agents, and measures the network to each.
    ///
    /// # Errors
    /// Names the agent that is not there, or does not take orders from here.
    pub async fn gather(agents: Vec<AgentAddress>, secret: Option<Secret>) -> Result<Self, String> {
        let (told, reports) = mpsc::channel(REPORTS_WAITING);
        let mut crew = Self {
            members: agents.iter().map(|_| None).collect(),
            connections: vec![0; agents.len()],
            agents,
            secret,
            reports,
            told,
            loads: 0,
            network: None,
            tasks: TaskTracker::new(),
        };
        for place in 0..crew.agents.len() {
            crew.connect(place, true).await?;
        }
        Ok(crew)
    }

    /// Between this machine and the agent that is farthest.
    pub fn network(&self) -> Option<Network> {
        self.network.clone()
    }

    /// What the agents run on, a line each.
    pub fn describe(&self) -> Vec<String> {
        let described = |(agent, member): (&AgentAddress, &Option<Member>)| {
            let machine = member.as_ref().map(|member| &member.machine);
            let machine = machine.map_or_else(String::new, |machine| {
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
        self.agents.iter().zip(&self.members).map(described).collect()
    }

    async fn connect(&mut self, place: usize, is_measured: bool) -> Result<(), String> {
        let Some(agent) = self.agents.get(place) else {
            return Ok(());
        };
        let mut link = Link::open(agent, self.secret.as_ref()).await?;
        if is_measured {
            let network = link
                .measure(&agent.name)
                .await
                .map_err(|error| format!("agent `{}` at {}: {error}", agent.name, agent.address))?;
            let is_farther = |known: &Network| known.round_trip.p50_us < network.round_trip.p50_us;
            if self.network.as_ref().is_none_or(is_farther) {
                self.network = Some(network);
            }
        }
        if let (Some(slot), Some(connection)) = (self.members.get_mut(place), self.connections.get_mut(place))
        {
            *connection += 1;
            *slot = Some(link.keep((place, *connection), self.told.clone(), &self.tasks));
        }
        Ok(())
    }

    /// The next thing that an agent says on its present connection. Safe to drop.
    async fn next_report(&mut self) -> (usize, Report) {
        loop {
            // There is always a sender: `told`.
            let Some(((place, connection), report)) = self.reports.recv().await else {
                return std::future::pending().await;
            };
            if self.connections.get(place) == Some(&connection) {
                return (place, report);
            }
        }
    }

    /// Connects again to whoever went away since the last load.
    async fn assemble(&mut self) -> Result<(), DriverError> {
        while let Ok(((place, connection), report)) = self.reports.try_recv() {
            if matches!(report, Report::Gone(_))
                && self.connections.get(place) == Some(&connection)
                && let Some(slot) = self.members.get_mut(place)
            {
                *slot = None;
            }
        }
        for place in 0..self.members.len() {
            if self.members.get(place).is_some_and(Option::is_none) {
                self.connect(place, false).await.map_err(DriverError::Failed)?;
            }
        }
        Ok(())
    }

    async fn tell_all(&self, order: &ToAgent) {
        for member in self.members.iter().flatten() {
            member.tell(order.clone()).await;
        }
    }

    /// Runs a load.
    ///
    /// # Errors
    /// Where an agent went away, or could not do what it was told.
    pub(crate) async fn run(&mut self, order: Order) -> Result<Loaded, DriverError> {
        self.assemble().await?;
        self.loads += 1;
        let seating = placing::seat(&order.plan, &self.agents).map_err(DriverError::Refused)?;
        for (host, member) in (0..).zip(self.members.iter().flatten()) {
            let preparation = Preparation {
                load: self.loads,
                plan: Plan::clone(&order.plan),
                seating: Seating {
                    host,
                    ..seating.clone()
                },
                system: order.system.clone(),
                address: order.address.clone(),
                tag: order.tag.clone(),
                topic_settings: order.topic_settings.clone(),
                alone: None,
            };
            member.tell(ToAgent::Prepare(Box::new(preparation))).await;
        }
        let mut watched: Vec<Watched> = order
            .brokers
            .iter()
            .map(|pid| Watched::new(ProcessKind::Broker, *pid))
            .collect();
        let done = self.follow(&order, &mut watched).await;
        let (shares, mut seconds, drain, is_drained) = match done {
            Ok(done) => done,
            Err(error) => {
                self.tell_all(&ToAgent::Abandon).await;
                return Err(error);
            }
        };
        let roles =
            merge::roles(&order.plan, &shares, &mut seconds, is_drained).map_err(DriverError::Failed)?;
        Ok(self.put_together(&order, shares, roles, watched, drain, is_drained))
    }

    /// Tells all agents what to do until each of them has said what it measured.
    async fn follow(
        &mut self,
        order: &Order,
        watched: &mut [Watched],
    ) -> Result<(Vec<Share>, Seconds, Option<Duration>, bool), DriverError> {
        let hosts = self.agents.len();
        let started = Instant::now();
        let mut course = Course::new(&order.plan, hosts);
        let mut seconds = Seconds::new(hosts);
        let mut shares: BTreeMap<usize, Share> = BTreeMap::new();
        let mut stopped = None;
        while shares.len() < hosts {
            let report = tokio::select! {
                () = order.stop.cancelled(), if stopped.is_none() => {
                    // What came so far is still of interest.
                    self.tell_all(&ToAgent::Abandon).await;
                    stopped = Some(Instant::now());
                    None
                }
                report = self.next_report() => Some(report),
                () = sleep(LOOK) => None,
            };
            if let Some((host, report)) = report {
                match report {
                    Report::Gone(reason) => return Err(self.went_away(host, &reason)),
                    Report::Said(said) => {
                        if let Some(share) =
                            self.hear(host, said, order, &mut course, &mut seconds, watched)?
                        {
                            shares.insert(host, share);
                        }
                    }
                }
            }
            for next in course.orders(started.elapsed()) {
                self.tell_all(&next).await;
            }
            let is_overdue = stopped.is_some_and(|stopped: Instant| stopped.elapsed() > STOPPED_WITHIN);
            if is_overdue || course.is_stuck(started.elapsed()) {
                return Err(DriverError::Failed(
                    "the agents did not come to an end".to_owned(),
                ));
            }
        }
        let (drain, is_drained) = (course.drain(), course.is_drained);
        Ok((shares.into_values().collect(), seconds, drain, is_drained))
    }

    fn went_away(&mut self, host: usize, reason: &str) -> DriverError {
        if let Some(slot) = self.members.get_mut(host) {
            *slot = None;
        }
        DriverError::Failed(format!("agent {} went away: {reason}", self.name(host)))
    }

    fn name(&self, host: usize) -> String {
        let agent = self.agents.get(host);
        agent.map_or_else(String::new, |agent| {
            format!("`{}` at {}", agent.name, agent.address)
        })
    }

    /// What an agent says; its share, if that was the end.
    fn hear(
        &self,
        host: usize,
        said: FromAgent,
        order: &Order,
        course: &mut Course<'_>,
        seconds: &mut Seconds,
        watched: &mut [Watched],
    ) -> Result<Option<Share>, DriverError> {
        match said {
            FromAgent::Progress { load, progress } if load == self.loads => {
                course.on_progress(host, progress);
            }
            FromAgent::Seconds { load, roles } if load == self.loads => {
                let known = seconds.known();
                let whole = seconds.add(host, &roles);
                let whole = whole.map_err(|error| {
                    DriverError::Failed(format!(
                        "agent {} told what it did not measure: {error}",
                        self.name(host)
                    ))
                })?;
                if let Some(samples) = whole {
                    (order.on_second)(&second(&order.plan, samples));
                }
                if let Some(first) = roles.first().filter(|_| seconds.known() > known) {
                    for process in watched {
                        process.sample(first.sample.at_s, first.sample.seconds);
                    }
                }
            }
            FromAgent::Done { load, share } if load == self.loads => return Ok(Some(*share)),
            FromAgent::Failed {
                load,
                reason,
                is_refusal,
            } if load == self.loads => {
                let reason = format!("agent {}: {reason}", self.name(host));
                return Err(if is_refusal {
                    DriverError::Refused(reason)
                } else {
                    DriverError::Failed(reason)
                });
            }
            // Of a load that nobody wants to know of any more.
            FromAgent::Pong(_)
            | FromAgent::Driver(_)
            | FromAgent::Second { .. }
            | FromAgent::Progress { .. }
            | FromAgent::Seconds { .. }
            | FromAgent::Done { .. }
            | FromAgent::Failed { .. } => {}
        }
        Ok(None)
    }

    fn put_together(
        &self,
        order: &Order,
        shares: Vec<Share>,
        roles: Vec<crate::results::RoleResult>,
        watched: Vec<Watched>,
        drain: Option<Duration>,
        is_drained: bool,
    ) -> Loaded {
        let mut remarks = Vec::new();
        let (mut error, mut processes) = (None, Vec::new());
        processes.extend(watched.into_iter().map(Watched::finish));
        let hosts = shares.len();
        let largest = |of: fn(&Share) -> f64| shares.iter().map(of).fold(0.0, f64::max);
        let (warmup_s, measured_s) = (largest(|share| share.warmup_s), largest(|share| share.measured_s));
        let connected = shares
            .iter()
            .map(|share| share.connected)
            .max()
            .unwrap_or_default();
        for (agent, share) in self.agents.iter().zip(shares) {
            let of_agent = |text: String| format!("{text} (agent `{}`)", agent.name);
            error = error.or_else(|| share.error.map(of_agent));
            remarks.extend(share.remarks.into_iter().map(of_agent));
            processes.extend(share.processes.into_iter().map(|mut process| {
                process.name = of_agent(process.name);
                process
            }));
        }
        if !is_drained && !order.stop.is_cancelled() {
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
            drain_s: drain.map(|drain| drain.as_secs_f64()),
            sustainable_rate: None,
            error,
            remarks,
            books: Vec::new(),
            client_cores: self.cores(),
            told: None,
        }
    }

    /// Of all machines; agents on one machine share its cores.
    fn cores(&self) -> u32 {
        let machines: BTreeMap<&str, u32> = self
            .members
            .iter()
            .flatten()
            .map(|member| (member.machine.id.as_str(), member.machine.cores))
            .collect();
        machines.values().sum::<u32>().max(1)
    }
}

/// What goes on everywhere.
fn second(plan: &Plan, samples: &[RateSample]) -> Second {
    let per_second = |sample: &RateSample, count: u64| count as f64 / sample.seconds.max(1e-9);
    let acknowledged: f64 = samples
        .iter()
        .map(|sample| per_second(sample, sample.acknowledged))
        .sum();
    let received: f64 = samples
        .iter()
        .map(|sample| per_second(sample, sample.received))
        .sum();
    Second {
        at_s: samples.iter().map(|sample| sample.at_s).fold(0.0, f64::max),
        of_s: (plan.run.warmup.0 + plan.run.duration.0).as_secs_f64(),
        rate: if acknowledged > 0.0 {
            acknowledged
        } else {
            received
        },
        p99_us: samples.iter().filter_map(|sample| sample.p99_us).max(),
    }
}
