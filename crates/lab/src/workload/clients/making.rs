//! Clients with the things that each of them needs.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::{Cast, Work};
use crate::drivers::{Reads, Receiver, Seat};
use crate::experiment::{Does, Role};
use crate::measure::timer::Timer;
use crate::workload::consumer::Consumer;
use crate::workload::content::Contents;
use crate::workload::derived_numbers::{delay, rate_of_one, readers, stream};
use crate::workload::in_flight_limit::{Ahead, Limit};
use crate::workload::load::{Actor, Load};
use crate::workload::pace::Pace;
use crate::workload::producer::Producer;
use crate::workload::recorder::Recorder;
use crate::workload::relay::Exchanger;
use crate::workload::{derived_numbers, idle};

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

pub(super) fn seat(load: &Load, name: &str, role: &Arc<Role>, set: Option<&str>, client: u32) -> Seat {
    let destinations = match set {
        Some(set) => load.destinations.get(set),
        None => load.destinations.values().next(),
    };
    let reads = match role.does {
        _ if role.fan_out => Reads::All,
        Does::Relay | Does::Request => Reads::One(client),
        Does::Produce
        | Does::Consume
        | Does::Respond
        | Does::Filter
        | Does::Assemble
        | Does::Peek
        | Does::Idle => Reads::Share,
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

impl Cast {
    /// Returns the work of one client of a role.
    pub(super) fn client(
        &self,
        load: &Load,
        actor: &Arc<Actor>,
        client: u32,
        receiver: Option<Box<dyn Receiver>>,
    ) -> Work {
        match actor.role.does {
            Does::Produce => Box::pin(self.producer(load, actor, client).run()),
            Does::Consume | Does::Peek | Does::Assemble => {
                Box::pin(self.consumer(load, actor, client).run(receiver))
            }
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
}
