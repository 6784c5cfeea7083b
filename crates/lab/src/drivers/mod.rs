//! Drivers: how messages get into a system and out of it.
//!
//! A driver is one client library for one protocol. It speaks of topics, queues and messages; what it cannot
//! do it says before anything runs ([`Driver::lacks`]), and the point is skipped with that word.
//!
//! - [`lean`]: Kafka's protocol on this repository's own wire code: so little work per message that the
//!   broker is measured
//! - [`amqp`]: AMQP 0-9-1 in the same manner, and a server of it that stores nothing
//! - [`live`]: live topics over WebSocket, in the same manner
//! - [`stub`]: a server of Kafka's protocol that stores nothing: what a client reaches against it is the
//!   client's ceiling
//! - [`fake`]: a system of known latency and capacity, in memory: what the instrument is calibrated with
//!
//! The clients that users take, librdkafka and lapin, are drivers in a program of their own
//! ([`crate::clients`]).
//!
//! A driver for another protocol implements [`Driver`], [`Sender`] and [`Receiver`]; nothing else knows of it
//! but [`crate::systems`], which says which system speaks what.

pub mod amqp;
#[cfg(test)]
pub mod fake;
pub mod lean;
pub mod live;
pub mod stub;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::experiment::{ExchangeKind, LiveFormat, Plan, Role, TopicKind};
use crate::workload::content::Contents;
use crate::workload::{Message, Received, Reports};

/// Work that a driver does. Boxed once per batch, never per message.
pub type Task<'a, T> = Pin<Box<dyn Future<Output = Result<T, DriverError>> + Send + 'a>>;

/// Why a driver could not do something.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DriverError {
    /// It may work if it is tried again.
    #[error("{0}")]
    Failed(String),
    /// The system does not want it that way.
    #[error("{0}")]
    Refused(String),
}

impl DriverError {
    pub(crate) fn of(reason: String, is_refusal: bool) -> Self {
        if is_refusal {
            Self::Refused(reason)
        } else {
            Self::Failed(reason)
        }
    }
}

/// Finds the driver for a system of a name at an address, and what a plan wants of it; or says why there is
/// none.
pub type Drivers = Arc<dyn Fn(&str, &str, &Plan) -> Result<Arc<dyn Driver>, String> + Send + Sync>;

/// A set of topics or queues to use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Destinations {
    pub kind: TopicKind,
    pub names: Vec<String>,
    pub partitions: u32,
    /// Of each topic, in the system's own words.
    pub settings: Vec<(String, String)>,
    /// What stands between senders and the audiences' queues, in systems that have such things.
    pub exchange: Option<ExchangeKind>,
    /// With an exchange: who gets everything, each by the name of its group.
    pub audiences: Vec<String>,
    /// With an exchange: each audience has one queue, which has a binding for each topic.
    pub one_queue: bool,
    /// Of live topics: there is a log behind them.
    pub is_stored: bool,
    pub format: LiveFormat,
}

/// What a sender or receiver needs to know.
#[derive(Debug, Clone)]
pub struct Seat {
    pub role: Arc<Role>,
    pub destinations: Arc<Destinations>,
    /// Which of the role's clients this is, and of how many.
    pub client: u32,
    pub clients: u32,
    pub reads: Reads,
    pub contents: Contents,
    /// What the role's consumers have in common.
    pub group: String,
}

/// What a receiver gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Its share: what one client of the group gets, the others do not.
    Share,
    /// Everything.
    All,
    /// One of the destinations, by place.
    One(u32),
}

/// One client library for one protocol.
pub trait Driver: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    fn version(&self) -> String;

    /// What the plan wants and this driver cannot do, in words.
    fn lacks(&self, plan: &Plan) -> Option<String>;

    /// Creates what is to be used.
    fn prepare<'a>(&'a self, destinations: &'a Destinations) -> Task<'a, ()>;

    /// Deletes it.
    fn discard<'a>(&'a self, destinations: &'a Destinations) -> Task<'a, ()>;

    /// A client that sends; it says what became of its messages in `reports`.
    fn sender<'a>(&'a self, seat: &'a Seat, reports: Reports) -> Task<'a, Box<dyn Sender>>;

    /// A client that receives, from the first message on or from where `seat`'s predecessor has settled.
    fn receiver<'a>(&'a self, seat: &'a Seat) -> Task<'a, Box<dyn Receiver>>;

    /// A connection that does nothing; it ends when it is dropped.
    fn connection(&self) -> Task<'_, Box<dyn Debug + Send>>;
}

/// A client that sends.
pub trait Sender: Send {
    /// Takes messages over; waits while as many are under way as the role allows. Safe to drop: what it has
    /// not taken by then, or cannot take, it reports as failed ([`crate::workload::recorder::Handover`]).
    fn send<'a>(&'a mut self, messages: &'a [Message]) -> Task<'a, ()>;

    /// Sends what it holds back. Safe to drop.
    fn flush(&mut self) -> Task<'_, ()>;

    /// Returns when something happened: an answer came, or what was held back has gone out. Safe to drop.
    fn tick(&mut self) -> Task<'_, ()>;

    /// Sends what it holds back and waits for all answers.
    fn finish(&mut self) -> Task<'_, ()>;
}

/// A client that receives.
pub trait Receiver: Send {
    /// Adds what comes next to `into`; nothing, if nothing came for a while. Safe to drop.
    fn receive<'a>(&'a mut self, into: &'a mut Vec<Received>) -> Task<'a, ()>;

    /// All that was received so far has been dealt with.
    fn settle(&mut self) -> Task<'_, ()>;
}
