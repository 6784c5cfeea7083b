//! The lean driver: Kafka's protocol on this repository's own wire code.
//!
//! - [`sender`]: batches that are written once, several requests on their way
//! - [`receiver`]: long polls; messages are found in the batches without being taken out of them
//! - [`walk`]: finds the values in a block of records

pub mod receiver;
pub mod sender;
pub mod walk;

use std::fmt::Debug;

use stafett_kafka_client::admin::NewTopic;
use stafett_kafka_client::{Client, ClientError, Connection, Options};

use super::{Destinations, Driver, DriverError, Receiver, Seat, Sender, Task};
use crate::experiment::{Delivery, Does, Plan, TopicKind};
use crate::workload::Reports;

/// The driver, for one system.
#[derive(Debug, Clone)]
pub struct Lean {
    server: String,
}

impl Lean {
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
        }
    }

    async fn connect(&self) -> Result<Client, DriverError> {
        Client::connect(std::slice::from_ref(&self.server), options())
            .await
            .map_err(failed)
    }

    /// Whether the system answers.
    pub async fn ping(&self) -> Result<(), DriverError> {
        let client = self.connect().await?;
        client.topics().await.map(|_| ()).map_err(failed)
    }

    async fn create(&self, destinations: &Destinations) -> Result<(), DriverError> {
        let client = self.connect().await?;
        for name in &destinations.names {
            let topic = NewTopic {
                name: name.clone(),
                partitions: i32::try_from(destinations.partitions).ok(),
                replication: Some(1),
                settings: destinations.settings.clone(),
                dry_run: false,
            };
            client.create_topic(&topic).await.map_err(failed)?;
        }
        Ok(())
    }
}

pub(super) fn options() -> Options {
    Options {
        client_id: "stafett-lab".to_owned(),
        ..Options::default()
    }
}

/// A refusal of the system is told from everything else.
pub(super) fn failed(error: ClientError) -> DriverError {
    let is_refusal = matches!(
        error,
        ClientError::Refused { .. } | ClientError::Unsupported { .. }
    );
    if is_refusal && !error.is_retriable() {
        DriverError::Refused(error.to_string())
    } else {
        DriverError::Failed(error.to_string())
    }
}

impl Driver for Lean {
    fn name(&self) -> &'static str {
        "lean"
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn lacks(&self, plan: &Plan) -> Option<String> {
        for topics in plan.topics.values() {
            match topics.kind {
                TopicKind::Topic => {}
                TopicKind::Queue => return Some("the Kafka driver has no queues".to_owned()),
                TopicKind::Live => return Some("the Kafka driver has no live topics".to_owned()),
            }
        }
        for role in plan.roles.values() {
            if role.delivery == Delivery::ExactlyOnce {
                return Some("the lean driver has no transactions".to_owned());
            }
            if role.prefetch.is_some() && role.does != Does::Produce {
                return Some("Kafka's protocol has no prefetch".to_owned());
            }
        }
        None
    }

    fn prepare<'a>(&'a self, destinations: &'a Destinations) -> Task<'a, ()> {
        Box::pin(self.create(destinations))
    }

    fn discard<'a>(&'a self, destinations: &'a Destinations) -> Task<'a, ()> {
        Box::pin(async {
            let client = self.connect().await?;
            for name in &destinations.names {
                client.delete_topic(name).await.map_err(failed)?;
            }
            Ok(())
        })
    }

    fn sender<'a>(&'a self, seat: &'a Seat, reports: Reports) -> Task<'a, Box<dyn Sender>> {
        Box::pin(async {
            let client = self.connect().await?;
            let sender = sender::LeanSender::open(client, seat, reports).await?;
            Ok(Box::new(sender) as Box<dyn Sender>)
        })
    }

    fn receiver<'a>(&'a self, seat: &'a Seat) -> Task<'a, Box<dyn Receiver>> {
        Box::pin(async {
            let client = self.connect().await?;
            let receiver = receiver::LeanReceiver::open(client, seat).await?;
            Ok(Box::new(receiver) as Box<dyn Receiver>)
        })
    }

    fn connection(&self) -> Task<'_, Box<dyn Debug + Send>> {
        Box::pin(async {
            let connection = Connection::open(&self.server, &options()).await.map_err(failed)?;
            Ok(Box::new(connection) as Box<dyn Debug + Send>)
        })
    }
}
