//! All roles of a point, from the first connection to the last message.
//!
//! ```text
//! create topics, connect consumers │ warm-up │ measured … │ senders stop, consumers go on until all is there
//!                                  0         W           W+D
//! ```
//!
//! Samples are taken every second, and at W and W+D; the seconds between those two count, and the latencies
//! of messages that were meant to be sent in them, whenever they are answered. Where several hosts run a
//! load, the n-th sample of one is of the same time as that of another.

mod running;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stafett_model::Lock;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::running::Running;
use super::choose::Chooser;
use super::client_placement::Seating;
use super::clients::{self, Cast};
use super::content::Contents;
use super::filter::SeenMessages;
use super::ledger::Ledger;
use super::pace::SharedRate;
use super::recorder::Recorder;
use super::together::{RoleBooks, Together};
use crate::drivers::{Destinations, Driver, DriverError};
use crate::environment;
use crate::experiment::{Content, Plan, Role};
use crate::measure::process::Watched;
use crate::results::{ProcessKind, ProcessSample, ProcessSeries, RateSample, RoleResult};

/// Time between two looks whether everything has come.
const LOOK: Duration = Duration::from_millis(20);
/// The same, where others wait to hear of it before they send more.
const LOOK_AHEAD: Duration = Duration::from_millis(2);
const SECOND: Duration = Duration::from_secs(1);
/// Time that clients may take to end when they were told to: unsent messages and the last answers take 30 s
/// each at most.
const END_WITHIN: Duration = Duration::from_secs(65);

/// A point's load.
pub(crate) struct Load {
    pub plan: Arc<Plan>,
    pub driver: Arc<dyn Driver>,
    /// Destinations by the name of the set. They exist already.
    pub destinations: BTreeMap<String, Arc<Destinations>>,
    /// Processes of the system.
    pub brokers: Vec<u32>,
    pub contents: BTreeMap<String, Contents>,
    /// Clients that sit here.
    pub seating: Arc<Seating>,
    /// Other hosts run the rest of it.
    pub together: Option<Together>,
    /// Ends when all that was to be sent has come, even if there is time left.
    pub ends_early: bool,
    /// The kernel's timers, rather than simulated time.
    pub precise: bool,
    /// The system died, or the user wants an end.
    pub stop: CancellationToken,
    /// Is told of every second.
    pub on_second: Box<dyn Fn(&Second) + Send + Sync>,
    pub stage: Stage,
}

/// Common knowledge of a load and the faults of its system.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stage {
    /// The load has begun.
    pub begun: CancellationToken,
    /// Processes of the system that have begun since.
    pub fresh: Arc<Lock<Vec<u32>>>,
    /// Times during which the system was away, in seconds since the load began.
    pub outages: Arc<Lock<Vec<(f64, f64)>>>,
}

/// Progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Second {
    /// Of the whole, warm-up included.
    pub at_s: f64,
    pub of_s: f64,
    /// Messages per second: of those that send, or else of those that receive.
    pub rate: f64,
    pub p99_us: Option<u64>,
    /// Messages per second that came.
    #[serde(default)]
    pub received_rate: f64,
    /// Of the role with the longest latencies: the median, and the band that holds 95 %.
    #[serde(default)]
    pub p50_us: Option<u64>,
    #[serde(default)]
    pub p2_5_us: Option<u64>,
    #[serde(default)]
    pub p97_5_us: Option<u64>,
    #[serde(default)]
    pub clients: u32,
    #[serde(default)]
    pub timed_out: u64,
    #[serde(default)]
    pub reconnects: u64,
    /// Processors in use by the broker and by this program; absent where they are not watched.
    #[serde(default)]
    pub broker_cpu: Option<f64>,
    #[serde(default)]
    pub client_cpu: Option<f64>,
    #[serde(default)]
    pub broker_memory_bytes: Option<u64>,
    /// Bytes per second that the broker wrote to disks.
    #[serde(default)]
    pub broker_disk_written: Option<f64>,
}

impl Second {
    /// Adds the second of a role, apart from its rates.
    pub fn take(&mut self, sample: &RateSample) {
        self.clients += sample.clients;
        self.timed_out += sample.timed_out;
        self.reconnects += sample.reconnects;
        if sample.p99_us > self.p99_us {
            self.p99_us = sample.p99_us;
            self.p50_us = sample.p50_us;
            self.p2_5_us = sample.p2_5_us;
            self.p97_5_us = sample.p97_5_us;
        }
    }

    /// Adds the second of a process.
    pub(crate) fn take_process(&mut self, kind: ProcessKind, sample: &ProcessSample) {
        let seconds = sample.seconds.max(1e-9);
        let cpu = (sample.cpu_user_s + sample.cpu_system_s) / seconds;
        let add = |sum: &mut Option<f64>, value: f64| *sum = Some(sum.unwrap_or(0.0) + value);
        match kind {
            ProcessKind::Client => add(&mut self.client_cpu, cpu),
            ProcessKind::Broker => {
                add(&mut self.broker_cpu, cpu);
                add(
                    &mut self.broker_disk_written,
                    sample.disk_written_bytes as f64 / seconds,
                );
                let memory = self.broker_memory_bytes.unwrap_or(0);
                self.broker_memory_bytes = Some(memory + sample.memory_bytes);
            }
        }
    }
}

/// Results of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Time that the consumers took to connect.
    pub connected: Duration,
    pub roles: Vec<RoleResult>,
    pub processes: Vec<ProcessSeries>,
    pub warmup_s: f64,
    pub measured_s: f64,
    /// From the start of the readers of a backlog until all of it was there.
    pub drain_s: Option<f64>,
    /// From the first client that began to unsubscribe in the end to the last that had done so.
    pub unsubscribe_s: Option<f64>,
    pub sustainable_rate: Option<f64>,
    /// Stretches of a tenth of a second or more in which a role that sends got no answer, in seconds since
    /// the load began.
    pub silences: Vec<(f64, f64)>,
    /// The first thing that went wrong.
    pub error: Option<String>,
    pub remarks: Vec<String>,
    /// Books of a load on several hosts, in the order of the roles.
    pub books: Vec<RoleBooks>,
    /// The same: lines for people.
    pub log: Vec<String>,
    /// Cores of the machines that clients ran on.
    pub client_cores: u32,
}

/// A role at work.
pub(super) struct Actor {
    pub(super) name: String,
    /// Of the role, in the order of the names.
    pub(super) place: usize,
    /// That sit here.
    pub(super) clients: u32,
    pub(super) role: Arc<Role>,
    pub(super) recorder: Arc<Recorder>,
    /// Streams of its messages, and how many each has had.
    pub(super) streams: Vec<(u32, Arc<AtomicU64>)>,
    /// Deliveries of every message to each of its audiences.
    pub(super) each: u16,
    /// One for all consumers of the role, or one each.
    pub(super) ledgers: Vec<Arc<Lock<Ledger>>>,
    pub(super) budget: Arc<AtomicU64>,
    /// Messages that its clients here were let send, where they may not run ahead as they like.
    pub(super) taken: AtomicU64,
    pub(super) rate: Arc<SharedRate>,
    /// Its clients.
    pub(super) tasks: TaskTracker,
    /// Its clients have ended, those that send everything that they had to.
    pub(super) ended: CancellationToken,
    /// Start of its first client, in nanoseconds since the load began.
    pub(super) began: AtomicU64,
    pub(super) chooser: OnceLock<Chooser>,
    /// Of those that filter.
    pub(super) seen: Option<SeenMessages>,
}

impl Actor {
    /// Returns how often every message comes to all of them together.
    pub(super) fn deliveries(&self) -> u64 {
        self.ledgers.len() as u64 * u64::from(self.each)
    }
}

impl Load {
    /// Opens the content of messages, by role; roles with the same content share it.
    /// Fails if a file of content cannot be read.
    pub(crate) fn contents(plan: &Plan) -> Result<BTreeMap<String, Contents>, String> {
        let mut made: Vec<(Content, Contents)> = Vec::new();
        let mut by_role = BTreeMap::new();
        for (name, role) in &plan.roles {
            let found = made.iter().find(|(content, _)| *content == role.content);
            let contents = if let Some((_, contents)) = found {
                contents.clone()
            } else {
                let contents = Contents::open(&role.content, plan.run.seed)?;
                made.push((role.content.clone(), contents.clone()));
                contents
            };
            by_role.insert(name.clone(), contents);
        }
        Ok(by_role)
    }

    /// Fails where no consumer can connect; everything later is a result.
    pub(crate) async fn run(self) -> Result<Loaded, DriverError> {
        let own = std::process::id();
        let mut watched: Vec<Watched> = self
            .brokers
            .iter()
            .map(|pid| Watched::new(ProcessKind::Broker, *pid))
            .chain([Watched::new(ProcessKind::Client, own)])
            .collect();
        let connecting = Instant::now();
        let Some(receivers) = self.stop.run_until_cancelled(clients::connect(&self)).await else {
            return Err(DriverError::Failed(
                "it was stopped before everybody was connected".to_owned(),
            ));
        };
        let receivers = receivers?;
        let connected = connecting.elapsed();
        self.wait_for_others(connected).await;
        let cast = Cast::new(&self, receivers);
        let run = Running {
            load: &self,
            cast: &cast,
            finished: Lock::new(None),
            seconds: AtomicU64::new(0),
        };
        cast.begin(&self);
        self.stage.begun.cancel();
        let (warmup_s, measured_s, sustainable_rate) = run.sample(&mut watched).await;
        let silences = cast.silences();
        cast.stop_senders.cancel();
        let is_drained = run.drain(&mut watched, warmup_s + measured_s).await && self.together.is_none();
        cast.stop_all.cancel();
        let mut remarks = Vec::new();
        for actor in &cast.actors {
            actor.tasks.close();
            if timeout(END_WITHIN, actor.tasks.wait()).await.is_err() {
                remarks.push(format!("clients of `{}` did not end", actor.name));
            }
        }
        if !is_drained && !self.stop.is_cancelled() && self.together.is_none() {
            remarks.push("messages were still coming when the lab stopped reading; what had not come is not counted as lost".to_owned());
        }
        remarks.extend(overrun_filters(&cast));
        let drain_s = run.drain_seconds();
        let roles = cast.results(&self.plan, measured_s, is_drained);
        let error = cast.actors.iter().find_map(|actor| actor.recorder.error());
        Ok(Loaded {
            log: self.log(&roles),
            connected,
            roles,
            processes: watched.into_iter().map(Watched::finish).collect(),
            warmup_s,
            measured_s,
            drain_s,
            unsubscribe_s: cast.leaving_seconds(),
            silences,
            sustainable_rate,
            error,
            remarks,
            books: match self.together {
                Some(_) => cast.actors.iter().map(|actor| actor.books()).collect(),
                None => Vec::new(),
            },
            client_cores: environment::cores(),
        })
    }

    /// Reports that receivers are connected, and waits until they are on all hosts.
    async fn wait_for_others(&self, connected: Duration) {
        if let Some(together) = &self.together {
            together
                .progress
                .send_modify(|progress| progress.connected = Some(connected));
            together.log.say("everybody who receives is connected");
            let _ = self
                .stop
                .run_until_cancelled(together.signals.begin.cancelled())
                .await;
            together.log.say("the load begins");
        }
    }

    /// Returns the lines of the log; the counts of the clients here come last.
    fn log(&self, roles: &[RoleResult]) -> Vec<String> {
        let Some(together) = &self.together else {
            return Vec::new();
        };
        for role in roles {
            let counts = &role.totals;
            together.log.say(&format!(
                "{}: {} clients; {} messages sent, {} acknowledged, {} failed, {} received; {} reconnects",
                role.name,
                role.clients,
                counts.sent,
                counts.acknowledged,
                counts.failed,
                counts.received,
                counts.reconnects
            ));
        }
        together.log.take()
    }
}

/// Returns remarks about filters whose memory was too small.
fn overrun_filters(cast: &Cast) -> impl Iterator<Item = String> {
    let is_overrun = |actor: &&Arc<Actor>| actor.seen.as_ref().is_some_and(SeenMessages::is_overrun);
    cast.actors.iter().filter(is_overrun).map(|actor| {
        let name = &actor.name;
        format!("`{name}` has seen more within its window than it can remember: some duplicates passed it")
    })
}
