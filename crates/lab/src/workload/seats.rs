//! Who takes part: clients of all roles, with what each of them needs, and what became of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::choose::Chooser;
use super::consumer::Consumer;
use super::content::Contents;
use super::idle;
use super::load::{Actor, Load};
use super::pace::{Pace, SharedRate};
use super::producer::Producer;
use super::recorder::{Clock, Recorder};
use super::relay::Exchanger;
use crate::drivers::{DriverError, Reads, Receiver, Seat};
use crate::experiment::{Content, Does, Plan, Rate, Role};
use crate::measure::timer::Timer;
use crate::results::{Counts, RoleResult};

/// Streams of a role have numbers from here on, times the role's place.
const STREAMS_PER_ROLE: u32 = 1 << 20;

/// All roles at work.
pub(super) struct Cast {
    pub(super) actors: Vec<Arc<Actor>>,
    pub(super) started: Instant,
    pub(super) stop_senders: CancellationToken,
    pub(super) stop_all: CancellationToken,
    /// Consumers that are connected before the load begins, by role and client.
    receivers: Mutex<BTreeMap<(usize, u32), Box<dyn Receiver>>>,
}

impl Cast {
    /// Connects the consumers, so that nothing is sent before they are there.
    pub(super) async fn assemble(load: &Load) -> Result<Self, DriverError> {
        let plan = &load.plan;
        let mut receivers = BTreeMap::new();
        for (place, (name, role)) in plan.roles.iter().enumerate() {
            if role.does != Does::Consume || role.after.is_some() || role.arrive.is_some() {
                continue;
            }
            for client in 0..role.clients {
                let seat = seat(
                    load,
                    name,
                    &Arc::new(role.clone()),
                    role.topics.as_deref(),
                    client,
                );
                receivers.insert((place, client), load.driver.receiver(&seat).await?);
            }
        }
        let started = Instant::now();
        let actors: Vec<_> = plan
            .roles
            .iter()
            .enumerate()
            .map(|(place, (name, role))| Arc::new(actor(place, name, role, started)))
            .collect();
        let cast = Self {
            actors,
            started,
            stop_senders: CancellationToken::new(),
            stop_all: CancellationToken::new(),
            receivers: Mutex::new(receivers),
        };
        cast.expect_streams(plan);
        Ok(cast)
    }

    /// Consumers count what producers of the same set send.
    fn expect_streams(&self, plan: &Plan) {
        for consumer in self
            .actors
            .iter()
            .filter(|actor| actor.role.does == Does::Consume)
        {
            for producer in self.producers_of(consumer, plan) {
                for ledger in &consumer.ledgers {
                    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
                    producer
                        .streams
                        .iter()
                        .for_each(|(stream, _)| ledger.expect(*stream));
                }
            }
        }
    }

    fn producers_of<'a>(
        &'a self,
        consumer: &'a Actor,
        plan: &'a Plan,
    ) -> impl Iterator<Item = &'a Arc<Actor>> {
        self.actors
            .iter()
            .filter(move |actor| actor.role.does == Does::Produce && actor.set(plan) == consumer.set(plan))
    }

    /// Lets all clients begin, each in its turn.
    pub(super) fn begin(&self, load: &Load) {
        let mut receivers =
            std::mem::take(&mut *self.receivers.lock().unwrap_or_else(PoisonError::into_inner));
        for (place, actor) in self.actors.iter().enumerate() {
            let before = actor.role.after.as_deref();
            let before = before.and_then(|name| self.actors.iter().find(|other| other.name == name));
            let clients = TaskTracker::new();
            for client in 0..actor.role.clients {
                let delay = delay(&actor.role, client);
                let begin_after = before.map(|before| before.ended.clone());
                let work = self.client(load, actor, client, receivers.remove(&(place, client)));
                let (stop, began) = (self.stop_of(actor), Arc::clone(actor));
                let task = async move {
                    let waited = stop.run_until_cancelled(async {
                        if let Some(ended) = begin_after {
                            ended.cancelled().await;
                        }
                        sleep(delay).await;
                    });
                    if waited.await.is_some() {
                        let now = began.recorder.now();
                        let _ =
                            began
                                .began
                                .compare_exchange(u64::MAX, now, Ordering::Relaxed, Ordering::Relaxed);
                        work.await;
                    }
                };
                actor.tasks.spawn(clients.track_future(task));
            }
            clients.close();
            let ended = actor.ended.clone();
            actor.tasks.spawn(async move {
                clients.wait().await;
                ended.cancel();
            });
        }
    }

    fn stop_of(&self, actor: &Actor) -> CancellationToken {
        if actor.role.does.sends_first() {
            self.stop_senders.clone()
        } else {
            self.stop_all.clone()
        }
    }

    /// One client's work.
    #[expect(
        clippy::too_many_lines,
        reason = "one arm per kind of client, each handing over what it has"
    )]
    fn client(
        &self,
        load: &Load,
        actor: &Arc<Actor>,
        client: u32,
        receiver: Option<Box<dyn Receiver>>,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        let (role, stop) = (&actor.role, self.stop_of(actor));
        let driver = Arc::clone(&load.driver);
        let recorder = Arc::clone(&actor.recorder);
        let here = seat(load, &actor.name, role, role.topics.as_deref(), client);
        let seed = load.plan.run.seed;
        let start = u64::try_from(delay(role, client).as_nanos()).unwrap_or(0);
        let pace = Pace::new(&role.rate, &actor.rate, client, role.clients, start, seed);
        let is_open = pace.is_some() || role.work.is_some() || role.does == Does::Request;
        let timer = Timer::new(load.precise && is_open);
        let stream = usize::try_from(client)
            .ok()
            .and_then(|client| actor.streams.get(client));
        let (stream, sequence) = stream.cloned().unwrap_or_default();
        match role.does {
            Does::Produce => {
                let zipf = load
                    .plan
                    .topics
                    .get(actor.set(&load.plan))
                    .map_or(0.0, |topics| topics.zipf);
                let count = u32::try_from(here.destinations.names.len()).unwrap_or(u32::MAX);
                let producer = Producer {
                    driver,
                    recorder,
                    pace,
                    chooser: actor.chooser(count, zipf),
                    stream,
                    budget: Arc::clone(&actor.budget),
                    sequence,
                    timer,
                    seed,
                    stop,
                    seat: here,
                };
                Box::pin(producer.run())
            }
            Does::Consume => {
                let own = if role.fan_out {
                    usize::try_from(client).unwrap_or(0)
                } else {
                    0
                };
                let consumer = Consumer {
                    driver,
                    seat: here,
                    recorder,
                    ledger: actor.ledgers.get(own).cloned().unwrap_or_default(),
                    timer,
                    stop,
                };
                Box::pin(consumer.run(receiver))
            }
            Does::Relay | Does::Request | Does::Respond => {
                let there = seat(
                    load,
                    &actor.name,
                    role,
                    role.to.as_deref().or(role.topics.as_deref()),
                    client,
                );
                // A requester asks in the set that it names, and its answers come in the other one.
                let (inbound, outbound) = if role.does == Does::Request {
                    (there, here)
                } else {
                    (here, there)
                };
                let exchanger = Exchanger {
                    driver,
                    inbound,
                    outbound,
                    recorder,
                    pace,
                    stream,
                    sequence,
                    timer,
                    seed,
                    stop,
                };
                Box::pin(exchanger.run())
            }
            Does::Idle => Box::pin(idle::run(driver, recorder, stop)),
        }
    }

    /// What became of all of them. `is_drained`: what has not come by now is lost.
    pub(super) fn results(&self, plan: &Plan, measured_s: f64, is_drained: bool) -> Vec<RoleResult> {
        let lost = |actor: &Actor| if is_drained { self.lost(actor, plan) } else { 0 };
        self.actors
            .iter()
            .map(|actor| actor.result(measured_s, lost(actor)))
            .collect()
    }

    /// Whether a consumer's audience has all that was acknowledged. First by numbers: looking at each message takes long
    /// while many are missing.
    pub(super) fn has_enough(&self, consumer: &Actor, plan: &Plan) -> bool {
        let expected: u64 = self
            .producers_of(consumer, plan)
            .map(|producer| producer.made())
            .sum();
        let received = consumer.recorder.totals().received;
        received >= expected * consumer.ledgers.len() as u64 && self.lost(consumer, plan) == 0
    }

    /// Acknowledged messages that a consumer's audience never got.
    fn lost(&self, consumer: &Actor, plan: &Plan) -> u64 {
        if consumer.role.does != Does::Consume {
            return 0;
        }
        let mut lost = 0;
        for producer in self.producers_of(consumer, plan) {
            if producer.recorder.is_overwhelmed() {
                continue;
            }
            for (stream, sequence) in &producer.streams {
                let sent = sequence.load(Ordering::Relaxed);
                for ledger in &consumer.ledgers {
                    let ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
                    lost += ledger.missing(*stream, sent, |sequence| {
                        producer.recorder.was_given_up(*stream, sequence)
                    });
                }
            }
        }
        lost
    }
}

impl Actor {
    /// Different messages that were made and not given up.
    fn made(&self) -> u64 {
        let made: u64 = self
            .streams
            .iter()
            .map(|(_, sequence)| sequence.load(Ordering::Relaxed))
            .sum();
        made.saturating_sub(self.recorder.given_up())
    }

    /// One for all clients: shares of many topics take memory.
    fn chooser(&self, count: u32, zipf: f64) -> Chooser {
        self.chooser.get_or_init(|| Chooser::new(count, zipf)).clone()
    }

    fn result(&self, measured_s: f64, lost: u64) -> RoleResult {
        let finished = self.recorder.finish();
        let does = self.role.does;
        let (rate, bytes) = rates(does, &finished.measured, measured_s);
        let main = match does {
            Does::Produce => "acknowledged",
            Does::Consume | Does::Relay | Does::Respond => "delivery",
            Does::Request => "round_trip",
            Does::Idle => "none",
        };
        let latencies = [(main, finished.latency), ("lateness", finished.lateness)];
        let present = latencies
            .into_iter()
            .filter_map(|(name, latencies)| Some((name.to_owned(), latencies?)));
        RoleResult {
            name: self.name.clone(),
            does: does.name().to_owned(),
            clients: self.role.clients,
            counts: finished.measured,
            totals: Counts {
                lost,
                ..finished.totals
            },
            rate,
            bytes_rate: bytes,
            latencies: present.collect(),
            samples: finished.samples,
        }
    }
}

/// Messages and bytes per second.
fn rates(does: Does, counts: &Counts, seconds: f64) -> (f64, f64) {
    if seconds <= 0.0 {
        return (0.0, 0.0);
    }
    let (messages, bytes) = match does {
        // What is sent and not acknowledged is not throughput; sizes are alike on average.
        Does::Produce => {
            let share = counts.acknowledged as f64 / counts.sent.max(1) as f64;
            (counts.acknowledged as f64, counts.bytes_sent as f64 * share)
        }
        Does::Consume | Does::Relay | Does::Request | Does::Respond | Does::Idle => {
            (counts.received as f64, counts.bytes_received as f64)
        }
    };
    (messages / seconds, bytes / seconds)
}

fn actor(place: usize, name: &str, role: &Role, started: Instant) -> Actor {
    let first = u32::try_from(place + 1)
        .unwrap_or(1)
        .saturating_mul(STREAMS_PER_ROLE);
    let streams = if role.does.sends_first() || role.does == Does::Respond {
        (0..role.clients)
            .map(|client| (first + client, Arc::new(AtomicU64::new(0))))
            .collect()
    } else {
        Vec::new()
    };
    let audiences = if role.fan_out { role.clients } else { 1 };
    let clock = if role.does == Does::Produce {
        Clock::Acknowledgements
    } else {
        Clock::Receptions
    };
    let first_rate = match &role.rate {
        Rate::Adaptive(adaptive) => adaptive.first,
        Rate::Closed | Rate::Fixed(_) | Rate::Poisson(_) | Rate::Steps(_) => 0.0,
    };
    Actor {
        name: name.to_owned(),
        role: Arc::new(role.clone()),
        recorder: Arc::new(Recorder::new(started, clock)),
        streams,
        ledgers: (0..audiences).map(|_| Arc::default()).collect(),
        budget: Arc::new(AtomicU64::new(role.total.unwrap_or(u64::MAX))),
        rate: Arc::new(SharedRate::new(first_rate)),
        tasks: TaskTracker::new(),
        ended: CancellationToken::new(),
        began: AtomicU64::new(u64::MAX),
        chooser: std::sync::OnceLock::new(),
    }
}

/// When a client comes.
fn delay(role: &Role, client: u32) -> Duration {
    match &role.arrive {
        Some(arrive) if client >= arrive.first => {
            let wave = (client - arrive.first) / arrive.add.max(1) + 1;
            arrive.every.0.saturating_mul(wave)
        }
        _ => Duration::ZERO,
    }
}

fn seat(load: &Load, name: &str, role: &Arc<Role>, set: Option<&str>, client: u32) -> Seat {
    let destinations = match set {
        Some(set) => load.destinations.get(set),
        None => load.destinations.values().next(),
    };
    let reads = match role.does {
        _ if role.fan_out => Reads::All,
        Does::Relay | Does::Request => Reads::One(client),
        Does::Produce | Does::Consume | Does::Respond | Does::Idle => Reads::Share,
    };
    let contents = load.contents.get(name).cloned();
    let contents = contents.unwrap_or_else(Contents::constant).from(client);
    Seat {
        role: Arc::clone(role),
        destinations: destinations.cloned().unwrap_or_default(),
        client,
        clients: role.clients,
        reads,
        contents,
        group: group(name, role, client),
    }
}

/// What the clients of a role that share what comes have in common.
pub(crate) fn group(name: &str, role: &Role, client: u32) -> String {
    if role.fan_out {
        format!("{name}-{client}")
    } else {
        name.to_owned()
    }
}

/// Content by role; roles with the same content share it.
pub(super) fn contents(plan: &Plan) -> Result<BTreeMap<String, Contents>, String> {
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
