//! One point: its system, its load, its result.

pub(super) mod faults;
mod loading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::loading::{destinations, run_here};
use super::live::Ends;
use super::verdict::{self, VerdictInput};
use super::{Request, Watch, metrics, now_ms};
use crate::agents::Crew;
use crate::clients::{self, Client};
use crate::drivers::DriverError;
use crate::experiment::{Does, Plan, Restart};
use crate::measure::space::Space;
use crate::results::{self, Ceiling, FORMAT, Outcome, Planned, Point};
use crate::systems::data_dir::Ground;
use crate::systems::{self, Place, System, durability};
use crate::workload::Loaded;
use crate::workload::{filter, sessions};

/// Topics may take as long to be created as a point lasts, and not less than this.
const PREPARED_WITHIN: Duration = Duration::from_mins(1);

/// The lab at work: the request, and the system that is up.
pub(crate) struct Bench {
    pub(crate) request: Request,
    pub(crate) place: Place,
    pub(crate) watch: Arc<dyn Watch>,
    pub(crate) ends: Ends,
    pub(crate) system: Option<System>,
    /// Folder that systems store in.
    pub(crate) ground: Ground,
    /// Free space of the disk there; and the message about its shortage, if a load used it up.
    pub(crate) space: Space,
    pub(crate) shortage: Option<String>,
    /// How the system ended under the last load, other than by a fault of the plan.
    pub(crate) broken: Option<String>,
    /// Of this program, as far as that is known.
    pub(crate) revision: Option<String>,
    /// Agents that run the load, if it is not this program.
    pub(crate) crew: Option<Crew>,
}

/// Result of a load.
pub(crate) struct LoadResult {
    pub(crate) loaded: Loaded,
    /// Time to create topics and connect receivers.
    pub(crate) prepare_s: f64,
    /// Times during which faults kept the system away.
    pub(crate) outages: Vec<(f64, f64)>,
}

impl Bench {
    /// Measures a point; whatever happens is its result.
    pub(crate) async fn measure(&mut self, planned: &Planned, plan: Plan, ceilings: &[Ceiling]) -> Point {
        let (topic_settings, durability) = systems::levels(&planned.system, &plan);
        let mut point = Point {
            format: FORMAT,
            number: planned.number,
            system: planned.system.clone(),
            version: String::new(),
            parameters: planned.parameters.clone(),
            repetition: planned.repetition,
            outcome: Outcome::done(),
            durability: durability::without_acknowledgement(durability, &plan),
            settings: BTreeMap::new(),
            driver: results::Driver::default(),
            revision: self.revision.clone(),
            started_ms: now_ms(),
            warmup_s: 0.0,
            measured_s: 0.0,
            roles: Vec::new(),
            processes: Vec::new(),
            outages: Vec::new(),
            metrics: BTreeMap::new(),
            remarks: Vec::new(),
        };
        let filtered = filter::before(&plan, &planned.system);
        if filtered != plan {
            point.remarks.push(
                "it does not filter duplicates itself: the lab's own filter before it does, and each message goes through it twice"
                    .to_owned(),
            );
        }
        if let Some(crew) = &mut self.crew {
            crew.keep_logs(self.place.logs.join(format!("{:04}", planned.number)));
        }
        let plan = Arc::new(sessions::arranged(&filtered));
        if let Err(error) = self.attempt(&mut point, &plan, topic_settings, ceilings).await {
            point.outcome = verdict::of_error(error);
        }
        point
    }

    async fn attempt(
        &mut self,
        point: &mut Point,
        plan: &Arc<Plan>,
        topic_settings: Vec<(String, String)>,
        ceilings: &[Ceiling],
    ) -> Result<(), DriverError> {
        // Before anything is started: a plan without a driver needs no system.
        let mut client = self.choose_driver(point, plan).await?;
        let is_fresh = self.have(&point.system, plan, point.number).await?;
        let Some(system) = &self.system else {
            return Ok(());
        };
        point.version.clone_from(&system.version);
        point.settings.clone_from(&system.settings);
        point.settings.extend(topic_settings.iter().cloned());
        if let Some(time) = system.cold_start.filter(|_| is_fresh) {
            point
                .metrics
                .insert("cold_start_s".to_owned(), time.as_secs_f64());
        }
        if plan.roles.is_empty() {
            self.rest(point, plan).await;
            return Ok(());
        }
        let address = system.address(plan).map_err(DriverError::Failed)?;
        let driver = system.driver(address, plan).map_err(DriverError::Missing)?;
        if is_fresh && has_break_in(plan) {
            self.watch.does(&format!("warming {} up", point.system));
            let (short, tag) = (Arc::new(shortened(plan)), format!("{}-warm", point.number));
            let by = (&driver, client.as_mut());
            // The result is not used, whatever it is.
            let _ = self.load(by, &short, &topic_settings, &tag).await;
            self.broken = None;
        }
        point.started_ms = now_ms();
        let tag = point.number.to_string();
        let by = (&driver, client.as_mut());
        let result = self.load(by, plan, &topic_settings, &tag).await;
        let died = self.broken.take();
        if let Some(client) = client {
            client.end().await;
        }
        match result {
            Err(error) => Err(died.map_or(error, |status| DriverError::Failed(verdict::death(&status)))),
            Ok(result) => {
                let loaded = &result.loaded;
                metrics::fill(point, plan, &result);
                point.metrics.extend(driver.figures());
                point.driver.limited = verdict::limited(plan, loaded, ceilings, point);
                let level = &point.durability.given;
                let seen = VerdictInput {
                    plan,
                    loaded,
                    died,
                    level,
                };
                point.outcome = verdict::of(&seen);
                point.remarks.extend(verdict::remarks(&seen));
                point.warmup_s = loaded.warmup_s;
                point.measured_s = loaded.measured_s;
                point.outages = result.outages;
                point.roles = result.loaded.roles;
                point.processes = result.loaded.processes;
                Ok(())
            }
        }
    }

    /// Checks that the driver has the features of the plan. Returns the client program if it sends and
    /// receives in place of this one.
    async fn choose_driver(&self, point: &mut Point, plan: &Plan) -> Result<Option<Client>, DriverError> {
        let lean = systems::driver(&point.system, "", plan).map_err(DriverError::Missing)?;
        let logs = self.place.logs.join(format!("{:04}", point.number));
        if !systems::wants_client(&point.system, plan) {
            lean.name().clone_into(&mut point.driver.name);
            point.driver.version = lean.version();
            return lean
                .lacks(plan)
                .map_or(Ok(None), |reason| Err(DriverError::Missing(reason)));
        }
        let spoken = systems::protocol(&point.system, plan).map_err(DriverError::Missing)?;
        clients::name(spoken).clone_into(&mut point.driver.name);
        if self.crew.is_some() {
            // The agents have clients of their own, or say that they do not.
            return Ok(None);
        }
        let program = clients::find(self.request.clients.as_deref(), &self.request.exe)
            .map_err(DriverError::Missing)?;
        let mut client = Client::start(&program, &logs).await?;
        let described = client.describe(&point.system, plan).await?;
        if let Some(reason) = described.lacks {
            return Err(DriverError::Missing(reason));
        }
        point.driver.name = described.name;
        point.driver.version = described.version;
        Ok(Some(client))
    }

    /// Has the system up, as the plan wants it; whether it was started for that.
    async fn have(&mut self, name: &str, plan: &Plan, number: u32) -> Result<bool, DriverError> {
        let fits = self.system.as_ref().is_some_and(|system| {
            let lives = system
                .process
                .as_ref()
                .is_none_or(|process| !process.ended.is_cancelled());
            lives && system.key == systems::key(name, plan)
        });
        let own = plan.system.own(name);
        let is_ours = own.is_none_or(|own| !own.is_there());
        if fits && (plan.run.restart == Restart::Settings || !is_ours) {
            return Ok(false);
        }
        self.put_away().await;
        self.watch.does(&format!("starting {name}"));
        let place = self.place.of_point(&number.to_string());
        self.system = Some(systems::start(name, plan, &place).await?);
        Ok(true)
    }

    /// Returns the end of the system's process, if it has ended.
    fn death(&self) -> Option<String> {
        let process = self.system.as_ref()?.process.as_ref()?;
        process
            .ended
            .is_cancelled()
            .then(|| process.status().unwrap_or_else(|| "it ended".to_owned()))
    }

    /// Measures a system without a load.
    async fn rest(&self, point: &mut Point, plan: &Plan) {
        let pid = self
            .system
            .as_ref()
            .and_then(|system| system.process.as_ref())
            .map(|process| process.pid);
        let _ = self
            .ends
            .now
            .run_until_cancelled(tokio::time::sleep(plan.run.duration.0))
            .await;
        if let Some(bytes) = pid.and_then(crate::measure::process::memory_bytes) {
            point
                .metrics
                .insert("broker_memory_mib".to_owned(), bytes as f64 / f64::from(1 << 20));
        }
        point.measured_s = plan.run.duration.0.as_secs_f64();
        if let Some(status) = self.death() {
            point.outcome = verdict::of_error(DriverError::Failed(verdict::death(&status)));
        }
    }
}

fn has_break_in(plan: &Plan) -> bool {
    !plan.run.break_in.0.is_zero() && plan.roles.values().any(|role| role.does == Does::Produce)
}

/// The same load, for as long as a system takes to get going.
fn shortened(plan: &Plan) -> Plan {
    let mut short = plan.clone();
    short.run.duration = plan.run.break_in;
    short.run.warmup.0 = Duration::ZERO;
    short.run.settle.0 = Duration::from_secs(1);
    short.faults.clear();
    short
}
