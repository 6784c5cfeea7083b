//! A load on all agents: orders, reports, and one result out of theirs.

use std::collections::BTreeMap;
use std::fs;

use tokio::time::{Instant, sleep};

use super::{Crew, LOOK, Order, Place, STOPPED_WITHIN};
use crate::agents::following::{Following, Together};
use crate::agents::link::Report;
use crate::agents::protocol::{FromAgent, OfLoad, ToAgent};
use crate::agents::{AgentAddress, placement};
use crate::drivers::DriverError;
use crate::measure::process::Watched;
use crate::results::ProcessKind;
use crate::workload::Loaded;
use crate::workload::client_placement::Seating;

impl Crew {
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

    pub(super) fn name(&self, host: usize) -> String {
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
        let left = shares.iter().filter_map(|share| share.unsubscribe_s);
        let unsubscribe_s = left.reduce(f64::max);
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
            unsubscribe_s,
            silences: Vec::new(),
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
    pub(super) fn cores(&self) -> u32 {
        let machines: BTreeMap<&str, u32> = self
            .members()
            .map(|member| (member.machine.id.as_str(), member.machine.cores))
            .collect();
        machines.values().sum::<u32>().max(1)
    }
}
