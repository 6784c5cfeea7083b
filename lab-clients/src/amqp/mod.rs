//! lapin, the most common AMQP 0-9-1 client for Rust.
//!
//! - [`sender`]: publishes with confirms; [`receiver`]: consumes and acknowledges
//!
//! Every client has one connection with one channel. Queues, exchanges and acknowledgements are those of the
//! lean driver (`stafett_lab::drivers::amqp`).

mod receiver;
mod sender;

use std::fmt;

use async_trait::async_trait;
use lapin::{Channel, Connection, ConnectionProperties};
use stafett_lab::drivers::amqp::Amqp;
use stafett_lab::drivers::{Destinations, Driver, DriverError, Receiver, Seat, Sender};
use stafett_lab::experiment::{Plan, Protocol};
use stafett_lab::workload::Reports;

/// Returns lapin's version, taken from the lock file.
pub(crate) fn version() -> &'static str {
    let locked = include_str!("../../Cargo.lock").split("name = \"lapin\"\nversion = \"");
    let version = locked.skip(1).find_map(|behind| behind.split('"').next());
    version.unwrap_or_default()
}

/// The driver for one system.
#[derive(Debug, Clone)]
pub(crate) struct Lapin {
    server: String,
    /// Lean driver: checks plans and creates the queues.
    lean: Amqp,
}

impl Lapin {
    pub(crate) fn new(server: impl Into<String>) -> Self {
        let server = server.into();
        Self {
            lean: Amqp::new(server.clone()),
            server,
        }
    }

    async fn connect(&self) -> Result<Connection, DriverError> {
        let uri = format!("amqp://guest:guest@{}/%2f", self.server);
        let connected = Connection::connect(&uri, ConnectionProperties::default()).await;
        connected.map_err(|error| failed(&error))
    }

    async fn open(&self) -> Result<Link, DriverError> {
        let connection = self.connect().await?;
        let channel = connection
            .create_channel()
            .await
            .map_err(|error| failed(&error))?;
        Ok(Link {
            channel,
            _connection: connection,
        })
    }
}

/// A connection with its channel.
struct Link {
    channel: Channel,
    _connection: Connection,
}

/// Tells refusals by the server from other failures.
fn failed(error: &lapin::Error) -> DriverError {
    if matches!(error.kind(), lapin::ErrorKind::ProtocolError(_)) {
        DriverError::Refused(error.to_string())
    } else {
        DriverError::Failed(error.to_string())
    }
}

#[async_trait]
impl Driver for Lapin {
    fn name(&self) -> &'static str {
        stafett_lab::clients::name(Protocol::Amqp)
    }

    fn version(&self) -> String {
        version().to_owned()
    }

    fn lacks(&self, plan: &Plan) -> Option<String> {
        self.lean.lacks(plan)
    }

    async fn prepare(&self, destinations: &Destinations) -> Result<(), DriverError> {
        self.lean.prepare(destinations).await
    }

    async fn discard(&self, destinations: &Destinations) -> Result<(), DriverError> {
        self.lean.discard(destinations).await
    }

    async fn sender(&self, seat: &Seat, reports: Reports) -> Result<Box<dyn Sender>, DriverError> {
        let sender = sender::LapinSender::open(self.open().await?, seat, reports).await?;
        Ok(Box::new(sender))
    }

    async fn receiver(&self, seat: &Seat) -> Result<Box<dyn Receiver>, DriverError> {
        let receiver = receiver::LapinReceiver::open(self.open().await?, seat).await?;
        Ok(Box::new(receiver))
    }

    async fn connection(&self) -> Result<Box<dyn fmt::Debug + Send>, DriverError> {
        let connection = self.connect().await?;
        Ok(Box::new(connection))
    }
}
