//! The lean driver: Kafka's protocol on this repository's own wire code.
//!
//! - [`sender`]: the raw producer: batches that are written once, several requests on their way
//! - [`receiver`]: long polls; messages are found in the batches without being taken out of them

mod receiver;
mod sender;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use stafett_kafka_client::{Client, ClientError, Connection, ErrorCode, Options, Place, Str, Topic};
use stafett_kafka_wire::messages::CreateTopicsRequest;
use stafett_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};

use super::apps::Apps;
use super::{Destinations, Driver, DriverError, Receiver, Seat, Sender};
use crate::experiment::{Delivery, Does, Plan, TopicKind};
use crate::workload::Reports;

const CREATED_AT_ONCE: usize = 1000;
const CREATE_WITHIN_MS: i32 = 60_000;
const KNOWN_AFTER_TRIES: u32 = 500;

/// The driver, for one system.
#[derive(Debug, Clone)]
pub struct Lean {
    server: String,
    apps: Option<Arc<Apps>>,
}

impl Lean {
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            apps: None,
        }
    }

    /// Adds the address at which the system has apps.
    #[must_use]
    pub fn with_apps(self, address: &str) -> Self {
        let apps = Some(Arc::new(Apps::new(address)));
        Self { apps, ..self }
    }

    async fn connect(&self) -> Result<Client, DriverError> {
        Client::connect(std::slice::from_ref(&self.server), options())
            .await
            .map_err(failed)
    }

    /// Returns an error if the system does not answer.
    pub async fn ping(&self) -> Result<(), DriverError> {
        let client = self.connect().await?;
        client.topics().await.map(|_| ()).map_err(failed)
    }
}

fn creatable(name: &str, destinations: &Destinations) -> CreatableTopic {
    let setting = |(name, value): &(String, String)| CreatableTopicConfig {
        name: Str::copy_from(name),
        value: Some(Str::copy_from(value)),
    };
    CreatableTopic {
        name: Str::copy_from(name),
        num_partitions: i32::try_from(destinations.partitions).unwrap_or(i32::MAX),
        replication_factor: 1,
        assignments: Vec::new(),
        configs: destinations.settings.iter().map(setting).collect(),
    }
}

pub(super) fn options() -> Options {
    Options {
        client_id: "stafett-lab".to_owned(),
        ..Options::default()
    }
}

/// A refusal of the system is told from everything else.
#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
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

#[async_trait]
impl Driver for Lean {
    fn name(&self) -> &'static str {
        "lean"
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
            if let Some(lack) = role.lacks_choice("Kafka's protocol") {
                return Some(lack);
            }
            if role.delivery == Delivery::ExactlyOnce {
                return Some("the lean driver has no transactions: driver = \"client\" has".to_owned());
            }
            if role.leave {
                return Some(
                    "consumers of the lean driver are in no group: there is nothing to leave".to_owned(),
                );
            }
            if role.prefetch.is_some() && role.does != Does::Produce {
                return Some("Kafka's protocol has no prefetch".to_owned());
            }
        }
        None
    }

    async fn prepare(&self, destinations: &Destinations) -> Result<(), DriverError> {
        let client = self.connect().await?;
        for names in destinations.names.chunks(CREATED_AT_ONCE) {
            let request = CreateTopicsRequest {
                topics: names.iter().map(|name| creatable(name, destinations)).collect(),
                timeout_ms: CREATE_WITHIN_MS,
                validate_only: false,
            };
            let (_, answer) = client.call(&request).await.map_err(failed)?;
            if let Some(row) = answer.topics.iter().find(|row| row.error_code != 0) {
                let error = ErrorCode::try_from(row.error_code).map_or("an unknown error", ErrorCode::name);
                let message = row.error_message.as_ref().map_or("", |message| message.as_str());
                return Err(DriverError::Refused(format!(
                    "topic `{}`: {error} {message}",
                    row.name
                )));
            }
        }
        // A broker may answer before all of it knows the topics; one that tells their ends can write to them.
        let mut patience = KNOWN_AFTER_TRIES;
        let topics = loop {
            let found = client.look_up(&destinations.names, |_| true).await;
            match found {
                Ok(topics) if topics.len() == destinations.names.len() => break topics,
                Ok(_) if patience == 0 => {
                    return Err(DriverError::Failed("the topics did not come to be".to_owned()));
                }
                Err(error) if patience == 0 => return Err(failed(error)),
                Ok(_) | Err(_) => patience -= 1,
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let topics: Vec<&Topic> = topics.iter().map(|(_, topic)| topic).collect();
        client
            .offsets(&topics, Place::End)
            .await
            .map(|_| ())
            .map_err(failed)
    }

    async fn discard(&self, destinations: &Destinations) -> Result<(), DriverError> {
        if let Some(apps) = &self.apps {
            apps.discard(destinations).await?;
        }
        let client = self.connect().await?;
        for name in &destinations.names {
            client.delete_topic(name).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn sender(&self, seat: &Seat, reports: Reports) -> Result<Box<dyn Sender>, DriverError> {
        let client = self.connect().await?;
        let sender = sender::LeanSender::open(client, seat, reports).await?;
        Ok(Box::new(sender))
    }

    async fn receiver(&self, seat: &Seat) -> Result<Box<dyn Receiver>, DriverError> {
        if seat.role.does == Does::Assemble {
            let none = || DriverError::Missing("it has no apps".to_owned());
            let assembler = self.apps.as_ref().ok_or_else(none)?.assembler(seat).await?;
            return Ok(Box::new(assembler));
        }
        let client = self.connect().await?;
        let receiver = receiver::LeanReceiver::open(client, seat).await?;
        Ok(Box::new(receiver))
    }

    fn figures(&self) -> Vec<(String, f64)> {
        self.apps.as_ref().map_or_else(Vec::new, |apps| apps.figures())
    }

    async fn connection(&self) -> Result<Box<dyn Debug + Send>, DriverError> {
        let connection = Connection::open(&self.server, &options()).await.map_err(failed)?;
        Ok(Box::new(connection))
    }
}
