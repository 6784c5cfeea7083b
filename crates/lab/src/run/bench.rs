//! The points of a run, one after the other, and the ways to its systems.

use std::time::{Duration, Instant};

use super::point::Bench;
use super::{OVER_AMQP, RunError};
use crate::experiment::read::TOPICS_DEFAULT;
use crate::experiment::{Own, Plan};
use crate::measure::{ceiling, network};
use crate::results::{Folder, Planned, Reached, Run};
use crate::systems;
use crate::systems::{System, durability};

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

impl Bench {
    /// All points that are not there yet.
    pub(super) async fn all(&mut self, run: &mut Run, folder: &Folder) -> Result<(), RunError> {
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
            let mut point = self.measure(&planned, plan, &run.ceilings).await;
            let formers = folder.formers(planned.number);
            if formers > 0 {
                let remark = format!("measured again; earlier results are in points/aside: {formers}");
                point.remarks.push(remark);
            }
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
            let connected = connecting.map_err(|error| error.to_string());
            connected.and_then(|connect| connect.map_err(|error| error.to_string()))
        };
        Reached {
            system,
            address,
            reason: connected.as_ref().err().cloned(),
            connect: connected.ok(),
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
