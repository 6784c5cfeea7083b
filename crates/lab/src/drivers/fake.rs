//! A system of known latency and capacity, in memory and in simulated time: the instrument is calibrated
//! with it.
//!
//! One server takes messages in order, each for a fixed time; an acknowledgement comes a fixed latency after
//! that, and then the message can be read. It may stall: nothing is taken from one moment to another.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stafett_model::{Lock, LockGuard};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Destinations, Driver, DriverError, Reads, Receiver, Seat, Sender};
use crate::experiment::Plan;
use crate::workload::recorder::{Handover, Parcel};
use crate::workload::{Message, Received, Reports};

/// How the system behaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Behaviour {
    pub latency: Duration,
    /// Of one message.
    pub service: Duration,
    /// From when, since the system was made, and for how long.
    pub stall: Option<(Duration, Duration)>,
    /// Every n-th message is acknowledged and forgotten.
    pub loses: Option<u64>,
    /// Number of repetitions of every message.
    pub again: u32,
    /// Messages of a client that may be without an acknowledgement; any number, if 0.
    pub in_flight: usize,
    /// Messages of a topic that are read at once; any number, if 0.
    pub at_once: usize,
}

/// The driver, and the system behind it.
#[derive(Debug, Clone)]
pub struct Fake {
    behaviour: Behaviour,
    state: Arc<Lock<State>>,
}

#[derive(Debug)]
struct State {
    made: Instant,
    free_at: Instant,
    taken: u64,
    /// Messages that were taken and not read yet, and how many of them there were at most.
    under_way: u64,
    most_under_way: u64,
    /// When each can be read, by topic.
    stored: BTreeMap<String, VecDeque<(Instant, Received)>>,
}

impl Fake {
    pub fn new(behaviour: Behaviour) -> Self {
        let now = Instant::now();
        Self {
            behaviour,
            state: Arc::new(Lock::new(State {
                made: now,
                free_at: now,
                taken: 0,
                under_way: 0,
                most_under_way: 0,
                stored: BTreeMap::new(),
            })),
        }
    }

    /// How many messages were taken and not read at any time, at most.
    pub fn most_under_way(&self) -> u64 {
        self.state().most_under_way
    }

    fn state(&self) -> LockGuard<'_, State> {
        self.state.lock()
    }

    /// When a message that arrives now is acknowledged.
    fn take(&self, message: &Message, topic: &str) -> Instant {
        let mut state = self.state();
        let mut start = Instant::now().max(state.free_at);
        if let Some((from, length)) = self.behaviour.stall {
            let stall = state.made + from;
            if start >= stall && start < stall + length {
                start = stall + length;
            }
        }
        state.free_at = start + self.behaviour.service;
        state.taken += 1;
        let done = state.free_at + self.behaviour.latency;
        let is_lost = self
            .behaviour
            .loses
            .is_some_and(|every| state.taken.is_multiple_of(every));
        if !is_lost {
            let received = Received {
                stream: message.stream,
                reply: message.reply,
                sequence: message.sequence,
                intended: message.intended,
                size: message.size,
            };
            state.under_way += 1;
            state.most_under_way = state.most_under_way.max(state.under_way);
            let stored = state.stored.entry(topic.to_owned()).or_default();
            stored.extend((0..=self.behaviour.again).map(|_| (done, received)));
        }
        done
    }
}

#[async_trait]
impl Driver for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn version(&self) -> String {
        String::new()
    }

    fn lacks(&self, _: &Plan) -> Option<String> {
        None
    }

    async fn prepare(&self, _: &Destinations) -> Result<(), DriverError> {
        Ok(())
    }

    async fn discard(&self, _: &Destinations) -> Result<(), DriverError> {
        Ok(())
    }

    async fn sender(&self, seat: &Seat, reports: Reports) -> Result<Box<dyn Sender>, DriverError> {
        let sender = FakeSender {
            system: self.clone(),
            reports,
            names: seat.destinations.names.clone(),
            pending: VecDeque::new(),
        };
        Ok(Box::new(sender))
    }

    async fn receiver(&self, seat: &Seat) -> Result<Box<dyn Receiver>, DriverError> {
        let names = seat.destinations.names.clone();
        let names = match seat.reads {
            Reads::One(place) => vec![names[usize::try_from(place).unwrap() % names.len()].clone()],
            Reads::All | Reads::Share => names,
        };
        let receiver = FakeReceiver {
            system: self.clone(),
            names,
        };
        Ok(Box::new(receiver))
    }

    async fn connection(&self) -> Result<Box<dyn Debug + Send>, DriverError> {
        Ok(Box::new(()))
    }
}

struct FakeSender {
    system: Fake,
    reports: Reports,
    names: Vec<String>,
    pending: VecDeque<(Instant, Parcel)>,
}

impl FakeSender {
    async fn first(&mut self) {
        match self.pending.front() {
            None => std::future::pending().await,
            Some((at, _)) => sleep_until(*at).await,
        }
        self.answer();
    }

    fn answer(&mut self) {
        let now = Instant::now();
        while let Some((_, parcel)) = self.pending.pop_front_if(|(at, _)| *at <= now) {
            self.reports.acknowledged(&parcel);
        }
    }
}

#[async_trait]
impl Sender for FakeSender {
    async fn send(&mut self, messages: &[Message]) -> Result<(), DriverError> {
        let mut handover = Handover::new(&self.reports, messages);
        while let Some(message) = handover.turn() {
            let most = self.system.behaviour.in_flight;
            while most > 0 && self.pending.len() >= most {
                self.first().await;
            }
            let mut parcel = Parcel::default();
            parcel.push(message);
            let topic = &self.names[usize::try_from(message.topic).unwrap()];
            self.pending.push_back((self.system.take(message, topic), parcel));
            handover.taken(1);
        }
        self.answer();
        Ok(())
    }

    async fn tick(&mut self) -> Result<(), DriverError> {
        self.first().await;
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), DriverError> {
        while !self.pending.is_empty() {
            self.first().await;
        }
        Ok::<(), DriverError>(())
    }
}

impl Drop for FakeSender {
    fn drop(&mut self) {
        for (_, parcel) in &self.pending {
            self.reports.given_up(parcel, "the connection was given up");
        }
    }
}

struct FakeReceiver {
    system: Fake,
    names: Vec<String>,
}

#[async_trait]
impl Receiver for FakeReceiver {
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError> {
        let next = {
            let state = self.system.state();
            let fronts = self
                .names
                .iter()
                .filter_map(|name| state.stored.get(name)?.front());
            fronts.map(|(at, _)| *at).min()
        };
        match next {
            Some(at) => sleep_until(at).await,
            None => sleep(Duration::from_millis(1)).await,
        }
        let now = Instant::now();
        let mut state = self.system.state();
        let before = into.len();
        for name in &self.names {
            let Some(stored) = state.stored.get_mut(name) else {
                continue;
            };
            let most = match self.system.behaviour.at_once {
                0 => stored.len(),
                most => most,
            };
            let ready = (0..most).map_while(|_| stored.pop_front_if(|(at, _)| *at <= now));
            into.extend(ready.map(|(_, received)| received));
        }
        let read = (into.len() - before) as u64;
        state.under_way = state.under_way.saturating_sub(read);
        Ok(())
    }
}
