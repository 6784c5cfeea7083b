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

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stafett_model::Lock;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::adaptive::Steering;
use super::choose::Chooser;
use super::client_placement::Seating;
use super::clients::{self, Cast};
use super::content::Contents;
use super::filter::SeenMessages;
use super::ledger::Ledger;
use super::pace::SharedRate;
use super::recorder::Recorder;
use super::together::{HostSecond, Progress, RoleBooks, RoleSecond, Together};
use crate::drivers::{Destinations, Driver, DriverError};
use crate::environment;
use crate::experiment::{Does, Plan, Role};
use crate::measure::process::Watched;
use crate::results::{ProcessKind, ProcessSeries, RoleResult};

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
    pub sustainable_rate: Option<f64>,
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
    /// Opens the content of messages, by role.
    ///
    /// # Errors
    /// If a file of content cannot be read.
    pub(crate) fn contents(plan: &Plan) -> Result<BTreeMap<String, Contents>, String> {
        clients::contents(plan)
    }

    /// # Errors
    /// Where no consumer can connect; everything later is a result.
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
        let (warmup_s, measured_s, sustainable_rate) = run.sample(&mut watched).await;
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

/// A load that is under way.
struct Running<'a> {
    load: &'a Load,
    cast: &'a Cast,
    /// Time at which everything had come, in nanoseconds.
    finished: Lock<Option<u64>>,
    /// Number of samples.
    seconds: AtomicU64,
}

impl Running<'_> {
    /// Samples every second until the time is over or nothing is left to do. Returns the lengths of the
    /// warm-up and of the time that counted, in seconds, and the highest rate that held.
    async fn sample(&self, watched: &mut [Watched]) -> (f64, f64, Option<f64>) {
        let run = &self.load.plan.run;
        let (warmup, end) = (run.warmup.0, run.warmup.0 + run.duration.0);
        let mut steered = self.steered();
        let mut last = Duration::ZERO;
        // So that a sample ends with the warm-up.
        let mut next = Duration::from_nanos(u64::from(warmup.subsec_nanos()));
        if next.is_zero() {
            next = if warmup.is_zero() { SECOND.min(end) } else { SECOND };
        }
        let mut measured = Duration::ZERO;
        loop {
            let is_over = self.until(next).await;
            let now = if is_over { self.elapsed() } else { next };
            let counts = now > warmup;
            self.take_sample(watched, now, now.saturating_sub(last), counts);
            if counts {
                measured += now.saturating_sub(last.max(warmup));
            }
            self.steer(&mut steered);
            last = now;
            if is_over || now >= end {
                break;
            }
            next = (now + SECOND).min(end);
            if now < warmup {
                next = next.min(warmup);
            }
        }
        let sustainable = steered.iter().find_map(|(_, steering)| steering.sustainable());
        (
            warmup.min(last).as_secs_f64(),
            measured.as_secs_f64(),
            sustainable,
        )
    }

    fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(self.cast.started)
    }

    /// Waits for a moment; true if everything was over before.
    async fn until(&self, at: Duration) -> bool {
        let at = self.cast.started + at;
        loop {
            self.tell(false);
            let is_told = self
                .together()
                .is_some_and(|together| together.signals.end.is_cancelled());
            if self.load.stop.is_cancelled() || is_told || self.load.ends_early && self.is_complete() {
                return true;
            }
            if Instant::now() >= at {
                return false;
            }
            sleep_until(at.min(Instant::now() + self.look())).await;
        }
    }

    fn together(&self) -> Option<&Together> {
        self.load.together.as_ref()
    }

    /// Clients that wait for receivers have to hear of them soon.
    fn look(&self) -> Duration {
        let mut roles = self.load.plan.roles.values();
        let is_awaited = self.together().is_some() && roles.any(|role| role.ahead.is_some());
        if is_awaited { LOOK_AHEAD } else { LOOK }
    }

    /// Tells the others how far it is, if it is further than it was.
    fn tell(&self, is_sent: bool) {
        let Some(together) = self.together() else { return };
        let roles: Vec<_> = self.cast.actors.iter().map(|actor| actor.progress()).collect();
        together.progress.send_if_modified(|progress| {
            let now = Progress {
                connected: progress.connected,
                is_sent,
                roles,
            };
            let is_new = *progress != now;
            *progress = now;
            is_new
        });
    }

    /// Returns true if everything that was to be sent has come.
    fn is_complete(&self) -> bool {
        if self.together().is_some() {
            // The controller, which sees all hosts, decides.
            return false;
        }
        let actors = &self.cast.actors;
        let mut senders = actors
            .iter()
            .filter(|actor| actor.role.does.sends_first())
            .peekable();
        if senders.peek().is_none() || !senders.all(|actor| actor.ended.is_cancelled()) {
            return false;
        }
        let is_complete = self.is_drained();
        if is_complete {
            let mut finished = self.finished.lock();
            finished.get_or_insert_with(|| u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        is_complete
    }

    /// Returns true if every audience has all acknowledged messages.
    fn is_drained(&self) -> bool {
        if let Some(together) = self.together() {
            return together.signals.stop.is_cancelled();
        }
        let mut consumers = self
            .cast
            .actors
            .iter()
            .filter(|actor| actor.role.does == Does::Consume);
        consumers.all(|consumer| self.cast.has_enough(consumer, &self.load.plan))
    }

    fn drain_seconds(&self) -> Option<f64> {
        let finished = (*self.finished.lock())?;
        let mut readers = self.cast.actors.iter().filter(|actor| actor.role.after.is_some());
        let began = readers.find(|actor| actor.role.does == Does::Consume)?;
        let began = began.began.load(Ordering::Relaxed);
        Some(Duration::from_nanos(finished.checked_sub(began)?).as_secs_f64())
    }

    /// Lets consumers go on until all is there or nothing comes any more; false if it was still coming.
    async fn drain(&self, watched: &mut [Watched], from_s: f64) -> bool {
        let settle = self.load.plan.run.settle.0;
        for actor in &self.cast.actors {
            if actor.role.does.sends_first() {
                actor.tasks.close();
                let _ = timeout(END_WITHIN, actor.tasks.wait()).await;
            }
        }
        let received = || -> u64 {
            self.cast
                .actors
                .iter()
                .map(|actor| actor.recorder.totals().received)
                .sum()
        };
        let started = Instant::now();
        let (mut seen, mut since) = (received(), Instant::now());
        let (mut next, mut last) = (started + SECOND, Duration::from_secs_f64(from_s));
        while !self.is_drained() && !self.load.stop.is_cancelled() {
            self.tell(true);
            if self.together().is_none() && since.elapsed() >= settle {
                return true;
            }
            if self.together().is_none() && started.elapsed() >= settle * 6 {
                return false;
            }
            tokio::time::sleep(LOOK).await;
            let now = received();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            if Instant::now() >= next {
                let at = self.elapsed();
                self.take_sample(watched, at, at.saturating_sub(last), false);
                (last, next) = (at, next + SECOND);
            }
        }
        true
    }

    fn take_sample(&self, watched: &mut [Watched], at: Duration, length: Duration, counts: bool) {
        let (at_s, seconds) = (at.as_secs_f64(), length.as_secs_f64());
        let run = &self.load.plan.run;
        let mut second = Second {
            at_s,
            of_s: (run.warmup.0 + run.duration.0).as_secs_f64(),
            ..Second::default()
        };
        let mut received = 0.0;
        // If the controller is slow, seconds are left out.
        let way = self
            .together()
            .and_then(|together| together.seconds.try_reserve().ok());
        let mut told = Vec::new();
        for actor in &self.cast.actors {
            let (sample, latencies) = actor.recorder.sample(at_s, seconds, counts, way.is_some());
            if way.is_some() {
                told.push(RoleSecond {
                    sample,
                    histogram: latencies.unwrap_or_default(),
                    changes: actor.rate.changes_before(),
                });
            }
            let per_second = |count: u64| count as f64 / seconds.max(1e-9);
            second.rate += per_second(sample.acknowledged);
            received += per_second(sample.received);
            second.p99_us = second.p99_us.max(sample.p99_us);
        }
        if second.rate == 0.0 {
            second.rate = received;
        }
        for process in watched {
            process.sample(at_s, seconds);
        }
        let number = self.seconds.fetch_add(1, Ordering::Relaxed);
        if let Some(way) = way {
            way.send(HostSecond { number, roles: told });
        }
        (self.load.on_second)(&second);
    }

    /// Returns the roles whose rates are searched for here: over several hosts the controller does it.
    fn steered(&self) -> Vec<(&Actor, Steering)> {
        let here = self.cast.actors.iter().filter(|_| self.together().is_none());
        let steered = here.filter_map(|actor| Some((&**actor, Steering::new(actor.role.rate.adaptive()?))));
        steered.collect()
    }

    /// After every sample: a trial may be over. Then the next second begins.
    fn steer(&self, steered: &mut [(&Actor, Steering)]) {
        for (actor, steering) in steered {
            // A role that has sent all that it had to does not follow its rate any more.
            let at_work = !actor.ended.is_cancelled();
            let sample = actor.recorder.last_sample().filter(|_| at_work);
            let next = sample.and_then(|sample| steering.look(&sample, actor.rate.changes_before()));
            if let Some(rate) = next {
                actor.rate.set(rate);
            }
        }
        for actor in &self.cast.actors {
            actor.rate.begin_second();
        }
    }
}
