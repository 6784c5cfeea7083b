//! Drivers: they get messages into a system and out of it.
//!
//! A driver is one client library for one protocol. It speaks of topics, queues and messages. It names
//! lacking features before anything runs ([`Driver::lacks`]), and the point is skipped for that reason.
//!
//! - [`lean`]: Kafka's protocol on this repository's own wire code: so little work per message that the
//!   broker is measured
//! - [`amqp`]: AMQP 0-9-1 in the same manner, and a server of it that stores nothing
//! - [`live`]: live topics over WebSocket, in the same manner
//! - [`http`]: queues over HTTP, one request at a time
//! - [`apps`]: workers of an app, which assemble sessions; `websocket`: a connection of theirs, and of live
//!   topics
//! - [`stub`]: a server of Kafka's protocol that stores nothing: the rate that a client reaches against
//!   it is the client's ceiling
//! - [`fake`]: a system of known latency and capacity, in memory, for calibration
//!
//! The clients that users take, librdkafka and lapin, are drivers in a program of their own
//! ([`crate::clients`]).
//!
//! A driver for another protocol implements [`Driver`], [`Sender`] and [`Receiver`]; nothing else knows of it
//! but [`crate::systems`], which knows the protocols of each system.

pub mod amqp;
pub mod apps;
#[cfg(test)]
pub mod fake;
pub mod http;
pub mod lean;
pub mod live;
pub mod stub;
mod websocket;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use crate::experiment::{Does, ExchangeKind, LiveFormat, Plan, Role, TopicKind};
use crate::workload::content::Contents;
use crate::workload::{Message, Received, Reports};

/// Reason why a system or its client does not do its part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverError {
    /// It may work if it is tried again.
    #[error("{0}")]
    Failed(String),
    /// The system does not want it that way.
    #[error("{0}")]
    Refused(String),
    /// A program or a feature is not there.
    #[error("{0}")]
    Missing(String),
}

impl DriverError {
    /// Says whose error it is.
    pub(crate) fn about(self, whose: &str) -> Self {
        match self {
            Self::Failed(reason) => Self::Failed(format!("{whose}: {reason}")),
            Self::Refused(reason) => Self::Refused(format!("{whose}: {reason}")),
            Self::Missing(reason) => Self::Missing(format!("{whose}: {reason}")),
        }
    }
}

/// Returns the driver for a system of a name at an address, for a plan, or the reason why there is none.
pub type Drivers = Arc<dyn Fn(&str, &str, &Plan) -> Result<Arc<dyn Driver>, String> + Send + Sync>;

/// A set of topics or queues to use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Destinations {
    pub kind: TopicKind,
    pub names: Vec<String>,
    pub partitions: u32,
    /// Of each topic, in the system's own words.
    pub settings: Vec<(String, String)>,
    /// Exchange between senders and the audiences' queues, in systems that have such things.
    pub exchange: Option<ExchangeKind>,
    /// With an exchange: audiences that get everything, by the names of their groups.
    pub audiences: Vec<String>,
    /// With an exchange: each audience has one queue, which has a binding for each topic.
    pub one_queue: bool,
    /// Of live topics: there is a log behind them.
    pub is_stored: bool,
    pub format: LiveFormat,
}

/// A client's place in its role, and its destinations.
#[derive(Debug, Clone)]
pub struct Seat {
    pub role: Arc<Role>,
    pub destinations: Arc<Destinations>,
    /// Where an app passes messages on to.
    pub onward: Option<Arc<Destinations>>,
    /// Number of the client in its role, and the role's number of clients.
    pub client: u32,
    pub clients: u32,
    pub reads: Reads,
    pub contents: Contents,
    /// Name that the role's consumers have in common.
    pub group: String,
}

/// Messages that a receiver gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Its share: a message goes to one client of the group.
    Share,
    /// Everything.
    All,
    /// One of the destinations, by place.
    One(u32),
}

impl Reads {
    /// Returns true if the destination at a place is one of a seat's, where each is a queue. Where there are
    /// fewer of them than clients, several clients share one.
    pub fn is_of(self, place: u32, seat: &Seat, count: usize) -> bool {
        let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
        match self {
            Self::All => true,
            Self::One(one) => place == one % count,
            Self::Share if count < seat.clients => place == seat.client % count,
            Self::Share => place % seat.clients.max(1) == seat.client,
        }
    }
}

/// One client library for one protocol. Futures are boxed once per batch, never per message.
#[async_trait]
pub trait Driver: Debug + Send + Sync {
    fn name(&self) -> &'static str;

    /// Returns the version of the library: that of the lab, if it is code of its own.
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    /// Returns the feature of the plan that this driver does not have, if there is one.
    fn lacks(&self, plan: &Plan) -> Option<String>;

    /// Creates the destinations.
    async fn prepare(&self, destinations: &Destinations) -> Result<(), DriverError>;

    /// Deletes it.
    async fn discard(&self, destinations: &Destinations) -> Result<(), DriverError>;

    /// Opens a client that sends; it reports answers and failures of its messages to `reports`.
    async fn sender(&self, seat: &Seat, reports: Reports) -> Result<Box<dyn Sender>, DriverError>;

    /// A client that receives, from the first message on or from where `seat`'s predecessor has settled.
    async fn receiver(&self, seat: &Seat) -> Result<Box<dyn Receiver>, DriverError>;

    /// Returns figures of the last load that this driver alone knows, by their names.
    fn figures(&self) -> Vec<(String, f64)> {
        Vec::new()
    }

    /// A connection that does nothing; it ends when it is dropped.
    async fn connection(&self) -> Result<Box<dyn Debug + Send>, DriverError>;
}

/// A client that sends.
#[async_trait]
pub trait Sender: Send {
    /// Takes messages over; waits while as many are under way as the role allows. Safe to drop: messages that
    /// it has not taken by then, or cannot take, are reported as failed
    /// ([`crate::workload::recorder::Handover`]).
    async fn send(&mut self, messages: &[Message]) -> Result<(), DriverError>;

    /// Sends messages that are held back, if it holds any back. Safe to drop.
    async fn flush(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Returns when something happened: an answer came, or messages that were held back have gone out. Safe
    /// to drop.
    async fn tick(&mut self) -> Result<(), DriverError>;

    /// Sends messages that are held back and waits for all answers.
    async fn finish(&mut self) -> Result<(), DriverError>;
}

/// A client that receives.
#[async_trait]
pub trait Receiver: Send {
    /// Adds the next messages to `into`; none, if nothing came for a while. Safe to drop.
    async fn receive(&mut self, into: &mut Vec<Received>) -> Result<(), DriverError>;

    /// All that was received so far has been dealt with.
    async fn settle(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Unsubscribes from everything; returns when the system has done so.
    async fn leave(&mut self) -> Result<(), DriverError> {
        Ok(())
    }
}

/// Returns a reason if a role needs more queues than a plan has, over a protocol of queues.
pub(crate) fn lacks_queues(plan: &Plan, protocol: &str) -> Option<String> {
    plan.roles.iter().find_map(|(name, role)| {
        let set = match role.does {
            Does::Request => role.to.as_ref().or(role.topics.as_ref())?,
            Does::Relay => role.topics.as_ref()?,
            Does::Produce
            | Does::Consume
            | Does::Respond
            | Does::Filter
            | Does::Assemble
            | Does::Peek
            | Does::Idle => return None,
        };
        let (clients, count) = (role.clients, plan.topics.get(set)?.count);
        (count < clients).then(|| {
            format!(
                "over {protocol} each client of `{name}` needs a queue of its own: there are {count} for {clients}"
            )
        })
    })
}

/// Waits until a moment; for ever, if there is none.
pub(crate) async fn moment(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
