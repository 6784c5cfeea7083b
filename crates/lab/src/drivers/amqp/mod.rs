//! The lean driver of AMQP 0-9-1, on this repository's own wire code: for Stafett's queues and RabbitMQ's.
//!
//! - [`socket`]: a connection's bytes; [`link`]: its opening, and questions before the load begins
//! - [`layout`]: queues and exchanges that stand for a set of destinations
//! - [`sender`]: publishes; [`template`]: a message's frames; [`unconfirmed`]: messages that wait for a
//!   confirm
//! - [`receiver`]: consumes; [`settling`]: the time of acknowledgements; [`deliveries`]: messages out of
//!   frames
//! - [`stub`]: a server that stores nothing
//!
//! Every client has a connection with one channel. Batches that wait for more messages (`batch`, `linger`)
//! are for Kafka's clients: here messages go out as they are handed over. `in_flight` × `batch` bytes may be
//! without a confirm.

mod deliveries;
pub mod layout;
mod link;
mod receiver;
mod sender;
pub mod settling;
mod socket;
pub mod stub;
mod template;
#[cfg(test)]
mod tests;
mod unconfirmed;

use std::fmt::Debug;

use async_trait::async_trait;
use stafett_amqp_wire::Method;

pub use link::Server;

use self::layout::Layout;
use self::link::Link;
use super::{Destinations, Driver, DriverError, Receiver, Seat, Sender, lacks_queues};
use crate::experiment::{Codec, Delivery, Plan, TopicKind};
use crate::workload::Reports;

/// The driver's name in results.
pub const NAME: &str = "lean-amqp";
/// Definitions that are sent before it is looked whether they were taken.
const DEFINED_AT_ONCE: usize = 500;

/// The driver, for one system.
#[derive(Debug, Clone)]
pub struct Amqp {
    server: String,
}

impl Amqp {
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
        }
    }

    /// Asks the system for its properties.
    pub async fn ping(&self) -> Result<Server, DriverError> {
        Ok(Link::open(&self.server).await?.server)
    }

    async fn define(&self, methods: impl Iterator<Item = Method> + Send) -> Result<(), DriverError> {
        let mut link = Link::open(&self.server).await?;
        for (number, method) in methods.enumerate() {
            link.tell(method);
            if number % DEFINED_AT_ONCE == DEFINED_AT_ONCE - 1 {
                link.barrier().await?;
            }
        }
        link.barrier().await
    }
}

#[async_trait]
impl Driver for Amqp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn lacks(&self, plan: &Plan) -> Option<String> {
        let kinds = plan.topics.values().map(|topics| topics.kind);
        if kinds.into_iter().any(|kind| kind == TopicKind::Live) {
            return Some("AMQP has no live topics".to_owned());
        }
        for role in plan.roles.values() {
            if let Some(lack) = role.lacks_choice("AMQP") {
                return Some(lack);
            }
            if role.delivery == Delivery::ExactlyOnce {
                return Some(
                    "AMQP delivers at most once or at least once, and never exactly once".to_owned(),
                );
            }
            if let Some(lack) = role.lacks_acks("AMQP") {
                return Some(lack);
            }
            if role.compression != Codec::None && role.does.sends_first() {
                return Some("AMQP has no compression".to_owned());
            }
        }
        lacks_queues(plan, "AMQP")
    }

    async fn prepare(&self, destinations: &Destinations) -> Result<(), DriverError> {
        let layout = Layout::of(destinations);
        self.define(layout.definitions()).await
    }

    async fn discard(&self, destinations: &Destinations) -> Result<(), DriverError> {
        let layout = Layout::of(destinations);
        self.define(layout.deletions()).await
    }

    async fn sender(&self, seat: &Seat, reports: Reports) -> Result<Box<dyn Sender>, DriverError> {
        let link = Link::open(&self.server).await?;
        let sender = sender::AmqpSender::open(link, seat, reports).await?;
        Ok(Box::new(sender))
    }

    async fn receiver(&self, seat: &Seat) -> Result<Box<dyn Receiver>, DriverError> {
        let link = Link::open(&self.server).await?;
        let receiver = receiver::AmqpReceiver::open(link, seat).await?;
        Ok(Box::new(receiver))
    }

    async fn connection(&self) -> Result<Box<dyn Debug + Send>, DriverError> {
        let link = Link::open(&self.server).await?;
        Ok(Box::new(link))
    }
}
