//! A load on the system that is up: topics made, clients at work, topics deleted.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{Bench, LoadResult, PREPARED_WITHIN, faults};
use crate::agents::controller::Order;
use crate::clients::Client;
use crate::drivers::{Destinations, Driver, DriverError};
use crate::experiment::{Does, ExchangeKind, Plan, Priority, Role, Topics};
use crate::measure::space::Space;
use crate::systems::{Place, System};
use crate::workload::load::{Second, Stage};
use crate::workload::{Load, Loaded};

/// Runs a load in this program.
pub(crate) async fn run_here(
    order: Order,
    driver: &Arc<dyn Driver>,
    destinations: BTreeMap<String, Arc<Destinations>>,
    ends_early: bool,
) -> Result<Loaded, DriverError> {
    let load = Load {
        contents: Load::contents(&order.plan).map_err(DriverError::Refused)?,
        plan: order.plan,
        driver: Arc::clone(driver),
        destinations,
        brokers: order.brokers,
        seating: Arc::default(),
        together: None,
        ends_early,
        precise: true,
        stop: order.stop,
        on_second: order.on_second,
        stage: order.stage,
    };
    load.run().await
}

/// Creates destinations, within a bound: a system that takes too long for it is a result.
async fn prepare(
    driver: &Arc<dyn Driver>,
    plan: &Plan,
    destinations: &BTreeMap<String, Arc<Destinations>>,
) -> Result<(), DriverError> {
    let patience = plan.run.duration.0.max(PREPARED_WITHIN);
    for set in destinations.values() {
        let preparing = tokio::time::timeout(patience, driver.prepare(set));
        preparing.await.unwrap_or_else(|_| {
            let (count, seconds) = (set.names.len(), patience.as_secs());
            Err(DriverError::Failed(format!(
                "creating {count} topics or queues took longer than {seconds} s"
            )))
        })?;
    }
    Ok(())
}

/// The topics of a point by their set.
pub(crate) fn destinations(
    plan: &Plan,
    settings: &[(String, String)],
    tag: &str,
) -> BTreeMap<String, Arc<Destinations>> {
    let priorities = plan.roles.values().filter_map(|role| role.priority.as_ref());
    let priority_max = priorities.map(Priority::max).max();
    let sets = plan.topics.iter().map(|(set, topics)| {
        let names = (0..topics.count)
            .map(|place| format!("lab-{tag}-{set}-{place}"))
            .collect();
        let mut settings = settings.to_vec();
        let own = [
            ("x-queue-type", topics.queue_type.clone()),
            ("x-max-length", topics.length_max.map(|most| most.to_string())),
            ("x-max-priority", priority_max.map(|most| most.to_string())),
        ];
        settings.extend(
            own.into_iter()
                .filter_map(|(name, value)| Some((name.to_owned(), value?))),
        );
        let (exchange, audiences) = audiences(plan, set, topics);
        let destinations = Destinations {
            kind: topics.kind,
            names,
            partitions: topics.partitions,
            settings,
            exchange,
            audiences,
            one_queue: topics.one_queue,
            is_stored: topics.stored,
            format: topics.format,
        };
        (set.clone(), Arc::new(destinations))
    });
    sets.collect()
}

/// Returns the audiences that get everything of a set, by the names of their groups, and the exchange before
/// them, if one is needed.
fn audiences(plan: &Plan, set: &str, topics: &Topics) -> (Option<ExchangeKind>, Vec<String>) {
    let reads = |role: &Role| {
        matches!(role.does, Does::Consume | Does::Respond | Does::Filter)
            && role.topics.as_deref().is_none_or(|topics| topics == set)
    };
    let mut audiences = Vec::new();
    let mut fans_out = false;
    for (name, role) in plan.roles.iter().filter(|(_, role)| reads(role)) {
        fans_out |= role.fan_out;
        if role.fan_out {
            audiences
                .extend((0..role.clients).map(|client| crate::workload::clients::group(name, role, client)));
        } else {
            audiences.push(crate::workload::clients::group(name, role, 0));
        }
    }
    match topics.exchange {
        Some(kind) => (Some(kind), audiences),
        None if topics.one_queue => (Some(ExchangeKind::Direct), audiences),
        None if fans_out || audiences.len() > 1 => (Some(ExchangeKind::Fanout), audiences),
        None => (None, Vec::new()),
    }
}

/// Carries out the faults of a plan on a system of our own. Returns how it ended, other than by them, or that
/// the disk runs short of space.
async fn until_spoiled(
    own: Option<&mut System>,
    plan: &Plan,
    place: &Place,
    stage: &Stage,
    space: &Space,
) -> Result<String, String> {
    let Some(own) = own else {
        // It stores elsewhere.
        return std::future::pending().await;
    };
    tokio::select! {
        status = Box::pin(faults::carry_out(plan, own, place, stage)) => Ok(status),
        said = space.runs_short() => Err(said),
    }
}

impl Bench {
    /// Creates topics, runs the load, deletes the topics.
    pub(super) async fn load(
        &mut self,
        (driver, client): (&Arc<dyn Driver>, Option<&mut Client>),
        plan: &Arc<Plan>,
        topic_settings: &[(String, String)],
        tag: &str,
    ) -> Result<LoadResult, DriverError> {
        let began = Instant::now();
        let destinations = destinations(plan, topic_settings, tag);
        prepare(driver, plan, &destinations).await?;
        let prepared = began.elapsed();
        let stop = self.ends.now.child_token();
        let (of_load, watch) = (stop.clone(), Arc::clone(&self.watch));
        let (system, address) = self.whereabouts(plan);
        let mut own = self.system.take_if(|system| system.process.is_some());
        let process = own.as_ref().and_then(|system| system.process.as_ref());
        let brokers = process.map(|process| process.pid).into_iter().collect();
        let (shortage, broken, space) = (OnceLock::new(), OnceLock::new(), &self.space);
        let (stage, place, stores_here) = (Stage::default(), self.place.of_point(tag), own.is_some());
        let of_faults = stage.clone();
        let spoiled = async {
            match until_spoiled(own.as_mut(), plan, &place, &of_faults, space).await {
                Ok(status) => drop(broken.set(status)),
                Err(said) => drop(shortage.set(said)),
            }
            stop.cancel();
            // The load sees that and ends.
            std::future::pending::<()>().await;
        };
        let crew = self.crew.as_mut();
        let order = Order {
            plan: Arc::clone(plan),
            system,
            address,
            tag: tag.to_owned(),
            topic_settings: topic_settings.to_vec(),
            brokers,
            stop: of_load,
            on_second: Box::new(move |second: &Second| watch.second(second)),
            stage: stage.clone(),
        };
        let running = async {
            match (crew, client) {
                (Some(crew), _) => crew.run(order, true).await,
                (None, Some(client)) => client.run(order, true).await,
                (None, None) => run_here(order, driver, destinations.clone(), true).await,
            }
        };
        let loaded = tokio::select! {
            loaded = running => loaded,
            () = spoiled => Err(DriverError::Failed("the system ended".to_owned())),
        };
        self.system = own
            .filter(|system| system.process.is_some())
            .or_else(|| self.system.take());
        self.broken = broken.into_inner();
        // It may have failed for want of space between two looks.
        let space = stores_here.then_some(&self.space);
        self.shortage = shortage.into_inner().or_else(|| space?.shortage());
        let loaded = loaded?;
        // A broker that does not delete is still measured.
        for set in destinations.values() {
            let _ = tokio::time::timeout(Duration::from_secs(30), driver.discard(set)).await;
        }
        Ok(LoadResult {
            prepare_s: (prepared + loaded.connected).as_secs_f64(),
            outages: stage.outages.lock().clone(),
            loaded,
        })
    }

    /// The system's name, and where it is spoken to.
    fn whereabouts(&self, plan: &Plan) -> (String, String) {
        let system = self.system.as_ref();
        let known = system.map(|system| (system.name.clone(), system.address(plan).unwrap_or_default()));
        known.map_or_else(Default::default, |(name, address)| (name, address.to_owned()))
    }
}
