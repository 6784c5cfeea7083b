//! The clients of all roles, with the things that each of them needs, and their results.

mod actor;
mod making;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stafett_model::Lock;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::actor::{rates, seconds};
pub(crate) use self::making::group;
use self::making::seat;
use super::client_placement::Seating;
use super::derived_numbers;
use super::derived_numbers::{audiences, delay, each, streams, window};
use super::filter::SeenMessages;
use super::ledger::Ledger;
use super::load::{Actor, Load};
use super::pace::SharedRate;
use super::recorder::{Clock, Recorder};
use crate::drivers::{DriverError, Receiver};
use crate::experiment::{Does, Plan, Role};
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

    /// Returns the results. `is_drained`: messages that have not come by now are lost.
    pub(super) fn results(&self, plan: &Plan, measured_s: f64, is_drained: bool) -> Vec<RoleResult> {
        let lost = |actor: &Actor| if is_drained { self.lost(actor, plan) } else { 0 };
        self.actors
            .iter()
            .map(|actor| actor.result(plan, measured_s, lost(actor)))
            .collect()
    }

    /// Returns the stretches without an answer until now of roles that send, in seconds.
    pub(super) fn silences(&self) -> Vec<(f64, f64)> {
        let senders = self.actors.iter().filter(|actor| actor.role.does.sends_first());
        senders.flat_map(|actor| actor.recorder.silences()).collect()
    }

    /// Returns the time that clients took to unsubscribe in the end.
    pub(super) fn leaving_seconds(&self) -> Option<f64> {
        let spans = self.actors.iter().filter_map(|actor| actor.recorder.leaving());
        let widest = |(first, last): (u64, u64), (other, end): (u64, u64)| (first.min(other), last.max(end));
        spans.reduce(widest).map(seconds)
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
