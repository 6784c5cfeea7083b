//! The clients of all roles, with the things that each of them needs, and their results.

mod actor;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stafett_model::Lock;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::actor::{rates, seconds};
use super::client_placement::Seating;
use super::consumer::Consumer;
use super::content::Contents;
use super::derived_numbers;
use super::derived_numbers::{audiences, delay, each, rate_of_one, readers, stream, streams, window};
use super::filter::SeenMessages;
use super::idle;
use super::in_flight_limit::{Ahead, Limit};
use super::ledger::Ledger;
use super::load::{Actor, Load};
use super::pace::{Pace, SharedRate};
use super::producer::Producer;
use super::recorder::{Clock, Recorder};
use super::relay::Exchanger;
use crate::drivers::{DriverError, Reads, Receiver, Seat};
use crate::experiment::{Does, Plan, Role};
use crate::measure::timer::Timer;
use crate::results::RoleResult;

/// Clients that connect at once.
const CONNECTING: usize = 64;

/// Consumers that are connected before the load begins, by role and client.
type Receivers = BTreeMap<(usize, u32), Box<dyn Receiver>>;

/// Connects the consumers that sit here, so that nothing is sent before they are there.
pub(super) async fn connect(load: &Load) -> Result<Receivers, DriverError> {
    let mut waiting = Vec::new();
    for (place, (name, role)) in load.plan.roles.iter().enumerate() {
        if role.does != Does::Consume || role.after.is_some() || role.arrive.is_some() {
            continue;
        }
        let role = Arc::new(role.clone());
        let here = (0..role.clients).filter(|client| load.seating.is_here(place, *client));
        for client in here {
            let seat = seat(load, name, &role, role.topics.as_deref(), client);
            waiting.push((place, client, seat));
        }
    }
    let mut receivers = BTreeMap::new();
    let mut connecting = JoinSet::new();
    let mut waiting = waiting.into_iter();
    loop {
        while connecting.len() < CONNECTING {
            let Some((place, client, seat)) = waiting.next() else {
                break;
            };
            let driver = Arc::clone(&load.driver);
            connecting.spawn(async move { (place, client, driver.receiver(&seat).await) });
        }
        match connecting.join_next().await {
            None => return Ok(receivers),
            Some(Ok((place, client, receiver))) => {
                receivers.insert((place, client), receiver?);
            }
            Some(Err(error)) => return Err(DriverError::Failed(error.to_string())),
        }
    }
}

/// A client's work, until it ends or is stopped.
type Work = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// All roles at work.
pub(super) struct Cast {
    pub(super) actors: Vec<Arc<Actor>>,
    pub(super) started: Instant,
    pub(super) stop_senders: CancellationToken,
    pub(super) stop_all: CancellationToken,
    receivers: Lock<Receivers>,
}

impl Cast {
    /// Creates the clients' surroundings; `receivers` are connected. The load begins now.
    pub(super) fn new(load: &Load, receivers: Receivers) -> Self {
        let plan = &load.plan;
        let started = Instant::now();
        let actors: Vec<_> = plan
            .roles
            .iter()
            .enumerate()
            .map(|(place, (name, role))| Arc::new(actor(place, name, role, started, load)))
            .collect();
        let cast = Self {
            actors,
            started,
            stop_senders: CancellationToken::new(),
            stop_all: CancellationToken::new(),
            receivers: Lock::new(receivers),
        };
        cast.expect_streams(plan);
        cast
    }

    /// Lets consumers count messages of producers of the same set.
    fn expect_streams(&self, plan: &Plan) {
        for consumer in self
            .actors
            .iter()
            .filter(|actor| matches!(actor.role.does, Does::Consume | Does::Assemble))
        {
            for producer in self.producers_of(consumer, plan) {
                for ledger in &consumer.ledgers {
                    let mut ledger = ledger.lock();
                    // Those of other hosts, too.
                    streams(producer.place, &producer.role).for_each(|stream| ledger.expect(stream));
                }
            }
        }
    }

    fn producers_of<'a>(
        &'a self,
        consumer: &'a Actor,
        plan: &'a Plan,
    ) -> impl Iterator<Item = &'a Arc<Actor>> {
        let producers = derived_numbers::producers(plan, &consumer.role);
        producers.filter_map(|(place, _)| self.actors.get(place))
    }

    /// Lets all clients begin, each in its turn.
    pub(super) fn begin(&self, load: &Load) {
        let mut receivers = std::mem::take(&mut *self.receivers.lock());
        for (place, actor) in self.actors.iter().enumerate() {
            let before = actor.role.after.as_deref();
            let before = before.and_then(|name| {
                if let Some(together) = &load.together {
                    return together.signals.over.get(name);
                }
                let found = self.actors.iter().find(|other| other.name == name);
                found.map(|before| &before.ended)
            });
            let clients = TaskTracker::new();
            for client in (0..actor.role.clients).filter(|client| load.seating.is_here(place, *client)) {
                let delay = delay(&actor.role, client);
                let begin_after = before.cloned();
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

    /// Returns the work of one client of a role.
    fn client(
        &self,
        load: &Load,
        actor: &Arc<Actor>,
        client: u32,
        receiver: Option<Box<dyn Receiver>>,
    ) -> Work {
        match actor.role.does {
            Does::Produce => Box::pin(self.producer(load, actor, client).run()),
            Does::Consume | Does::Assemble => Box::pin(self.consumer(load, actor, client).run(receiver)),
            Does::Relay | Does::Request | Does::Respond | Does::Filter => {
                Box::pin(self.exchanger(load, actor, client).run())
            }
            Does::Idle => {
                let (driver, recorder) = (Arc::clone(&load.driver), Arc::clone(&actor.recorder));
                Box::pin(idle::run(driver, recorder, self.stop_of(actor)))
            }
        }
    }

    fn producer(&self, load: &Load, actor: &Arc<Actor>, client: u32) -> Producer {
        let set = derived_numbers::set(&load.plan, &actor.role).map_or("", String::as_str);
        let zipf = load.plan.topics.get(set).map_or(0.0, |topics| topics.zipf);
        let topics = load.destinations.get(set).map_or(1, |set| set.names.len());
        let topics = u32::try_from(topics).unwrap_or(u32::MAX);
        let Sending {
            pace,
            stream,
            sequence,
        } = sending(load, actor, client);
        Producer {
            listeners: self.listeners(load, actor),
            ahead: self.ahead(load, actor),
            driver: Arc::clone(&load.driver),
            recorder: Arc::clone(&actor.recorder),
            timer: timer(load, actor, pace.is_some()),
            pace,
            chooser: actor.chooser(topics, zipf),
            stream,
            budget: Arc::clone(&actor.budget),
            made: 0,
            sequence,
            seed: load.plan.run.seed,
            stop: self.stop_of(actor),
            seat: here(load, actor, client),
        }
    }

    fn consumer(&self, load: &Load, actor: &Arc<Actor>, client: u32) -> Consumer {
        let audience = if actor.role.fan_out { client } else { 0 };
        let ledger = usize::try_from(audience)
            .ok()
            .and_then(|place| actor.ledgers.get(place));
        Consumer {
            driver: Arc::clone(&load.driver),
            seat: here(load, actor, client),
            recorder: Arc::clone(&actor.recorder),
            ledger: ledger.cloned().unwrap_or_default(),
            seating: Arc::clone(&load.seating),
            timer: timer(load, actor, false),
            stop: self.stop_of(actor),
        }
    }

    fn exchanger(&self, load: &Load, actor: &Arc<Actor>, client: u32) -> Exchanger {
        let role = &actor.role;
        let there = role.to.as_deref().or(role.topics.as_deref());
        let (here, there) = (
            here(load, actor, client),
            seat(load, &actor.name, role, there, client),
        );
        // A requester asks in the set that it names, and its answers come in the other one.
        let (inbound, outbound) = if role.does == Does::Request {
            (there, here)
        } else {
            (here, there)
        };
        let Sending {
            pace,
            stream,
            sequence,
        } = sending(load, actor, client);
        Exchanger {
            driver: Arc::clone(&load.driver),
            inbound,
            outbound,
            recorder: Arc::clone(&actor.recorder),
            timer: timer(load, actor, pace.is_some()),
            pace,
            stream,
            sequence,
            seating: Arc::clone(&load.seating),
            seen: actor.seen.clone(),
            seed: load.plan.run.seed,
            stop: self.stop_of(actor),
        }
    }

    /// Returns the receivers of a role's messages that are there from the start, and how often each gets a
    /// message. None over several hosts: it is not known on which of them it would come.
    fn listeners(&self, load: &Load, actor: &Actor) -> Vec<(Arc<Recorder>, u64)> {
        let is_alone = load.together.is_none();
        let readers = readers(&load.plan, &actor.role).filter(|_| is_alone);
        let actors = readers.filter_map(|(place, _)| self.actors.get(place));
        actors
            .map(|reader| (Arc::clone(&reader.recorder), reader.deliveries()))
            .collect()
    }

    /// Returns the bound on a role's messages in flight.
    fn ahead(&self, load: &Load, actor: &Arc<Actor>) -> Option<Ahead> {
        let max = actor.role.ahead?;
        let told = load.together.as_ref();
        let told = told.and_then(|together| together.signals.allowed.get(&actor.name));
        let limit = told.map_or_else(
            || {
                let plan = &load.plan;
                let readers = readers(plan, &actor.role).filter_map(|(place, _)| self.actors.get(place));
                Limit::Readers {
                    max,
                    readers: readers.cloned().collect(),
                }
            },
            |allowed| Limit::Told(Arc::clone(allowed)),
        );
        Some(Ahead {
            actor: Arc::clone(actor),
            limit,
        })
    }

    /// Returns the results. `is_drained`: messages that have not come by now are lost.
    pub(super) fn results(&self, plan: &Plan, measured_s: f64, is_drained: bool) -> Vec<RoleResult> {
        let lost = |actor: &Actor| if is_drained { self.lost(actor, plan) } else { 0 };
        self.actors
            .iter()
            .map(|actor| actor.result(plan, measured_s, lost(actor)))
            .collect()
    }

    /// Returns true if a consumer's audience has all acknowledged messages. First by numbers: looking at each
    /// message takes long while many are missing.
    pub(super) fn has_enough(&self, consumer: &Actor, plan: &Plan) -> bool {
        let expected: u64 = self
            .producers_of(consumer, plan)
            .map(|producer| producer.made())
            .sum();
        let received = consumer.recorder.totals().received;
        received >= expected * consumer.deliveries() && self.lost(consumer, plan) == 0
    }

    /// Acknowledged messages that a consumer's audience never got.
    fn lost(&self, consumer: &Actor, plan: &Plan) -> u64 {
        if consumer.role.does != Does::Consume {
            return 0;
        }
        let mut lost = 0;
        for producer in self.producers_of(consumer, plan) {
            for (stream, sequence) in &producer.streams {
                let sent = sequence.load(Ordering::Relaxed);
                let given_up = producer.recorder.given_up_of(*stream);
                for ledger in &consumer.ledgers {
                    lost += ledger.lock().missing(*stream, sent, &given_up);
                }
            }
        }
        lost
    }
}

fn actor(place: usize, name: &str, role: &Role, started: Instant, load: &Load) -> Actor {
    let (seating, each): (&Seating, u16) = (&load.seating, each(&load.plan, role));
    let streams = streams(place, role)
        .filter(|stream| seating.has_stream(*stream))
        .map(|stream| (stream, Arc::new(AtomicU64::new(0))))
        .collect();
    let audiences = audiences(role);
    let ledger = || match load.together {
        Some(_) => Ledger::of_part(each),
        None => Ledger::new(each),
    };
    let run = &load.plan.run;
    let told = load
        .together
        .as_ref()
        .and_then(|together| together.signals.rates.get(name));
    let log = load
        .together
        .as_ref()
        .map(|together| together.log.clone())
        .unwrap_or_default();
    let clock = if role.does == Does::Produce {
        Clock::Acknowledgements
    } else {
        Clock::Receptions
    };
    let first_rate = role.rate.adaptive().map_or(0.0, |adaptive| adaptive.first);
    let total = role
        .total
        .map(|total| seating.part_of(place, role.clients, total));
    Actor {
        name: name.to_owned(),
        place,
        clients: seating.clients_here(place, role.clients),
        role: Arc::new(role.clone()),
        recorder: Arc::new(
            Recorder::new(started, clock)
                .counting(run.warmup.0, run.warmup.0 + run.duration.0)
                .saying(name, &log),
        ),
        streams,
        each,
        ledgers: (0..audiences).map(|_| Arc::new(Lock::new(ledger()))).collect(),
        budget: Arc::new(AtomicU64::new(total.unwrap_or(u64::MAX))),
        taken: AtomicU64::new(0),
        rate: told.map_or_else(|| Arc::new(SharedRate::new(first_rate)), Arc::clone),
        tasks: TaskTracker::new(),
        ended: CancellationToken::new(),
        began: AtomicU64::new(u64::MAX),
        seen: (role.does == Does::Filter).then(|| SeenMessages::new(window(&load.plan, role))),
        chooser: std::sync::OnceLock::new(),
    }
}

/// The seat of a client at the set that it reads or writes first.
fn here(load: &Load, actor: &Actor, client: u32) -> Seat {
    let role = &actor.role;
    let first = role.via.as_deref().or(role.topics.as_deref());
    seat(load, &actor.name, role, first, client)
}

/// Times and numbers of the messages that a client sends.
struct Sending {
    pace: Option<Pace>,
    stream: u32,
    sequence: Arc<AtomicU64>,
}

fn sending(load: &Load, actor: &Actor, client: u32) -> Sending {
    let role = &actor.role;
    let start = u64::try_from(delay(role, client).as_nanos()).unwrap_or(0);
    // Clients that send the same messages keep the same time.
    let party = client / role.copies.max(1);
    let parties = role.clients.div_ceil(role.copies.max(1));
    let seed = load.plan.run.seed;
    let stream = stream(actor.place, party);
    let found = actor.streams.binary_search_by_key(&stream, |(number, _)| *number);
    let found = found.ok().and_then(|found| actor.streams.get(found));
    Sending {
        pace: Pace::new(&rate_of_one(role), &actor.rate, party, parties, start, seed),
        stream,
        sequence: found
            .map(|(_, sequence)| Arc::clone(sequence))
            .unwrap_or_default(),
    }
}

/// A client's timer; it is precise where moments of sending or working are planned.
fn timer(load: &Load, actor: &Actor, is_paced: bool) -> Timer {
    let role = &actor.role;
    let is_open = is_paced || role.work.is_some() || role.does == Does::Request;
    Timer::new(load.precise && is_open)
}

fn seat(load: &Load, name: &str, role: &Arc<Role>, set: Option<&str>, client: u32) -> Seat {
    let destinations = match set {
        Some(set) => load.destinations.get(set),
        None => load.destinations.values().next(),
    };
    let reads = match role.does {
        _ if role.fan_out => Reads::All,
        Does::Relay | Does::Request => Reads::One(client),
        Does::Produce | Does::Consume | Does::Respond | Does::Filter | Does::Assemble | Does::Idle => {
            Reads::Share
        }
    };
    let contents = load.contents.get(name).cloned();
    let party = client / role.copies.max(1);
    let contents = contents.unwrap_or_else(Contents::constant).from(party);
    let onward = role.to.as_deref().filter(|_| role.does == Does::Assemble);
    Seat {
        role: Arc::clone(role),
        destinations: destinations.cloned().unwrap_or_default(),
        onward: onward.and_then(|set| load.destinations.get(set)).cloned(),
        client,
        clients: role.clients,
        reads,
        contents,
        group: group(name, role, client),
    }
}

/// Returns the name that clients have in common if they share messages.
pub(crate) fn group(name: &str, role: &Role, client: u32) -> String {
    if role.fan_out {
        format!("{name}-{client}")
    } else {
        name.to_owned()
    }
}
