//! librdkafka through the crate `rdkafka`: the base of most Kafka clients that are not written in Java.
//!
//! - [`config`]: the workload's settings as librdkafka properties
//! - [`ears`]: callbacks: deliveries, errors, assignments
//! - [`sender`]: produces; [`transactions`]: produces exactly once
//! - [`receiver`]: consumes as a member of a group
//!
//! Other settings have librdkafka's defaults. It retries failed batches itself, and a batch is sent when it
//! is full or its linger time is over, independent of the caller.

mod config;
mod ears;
mod receiver;
mod sender;
mod transactions;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use stafett_lab::drivers::lean::Lean;
use stafett_lab::drivers::{Destinations, Driver, DriverError, Receiver, Seat, Sender};
use stafett_lab::experiment::{Delivery, Does, Plan, Protocol, TopicKind};
use stafett_lab::workload::Reports;

const CONNECTED_WITHIN: Duration = Duration::from_secs(10);

/// The driver for one system.
#[derive(Debug, Clone)]
pub(crate) struct Librdkafka {
    server: String,
}

/// Returns librdkafka's version.
pub(crate) fn version() -> String {
    rdkafka::util::get_rdkafka_version().1
}

impl Librdkafka {
    pub(crate) fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
        }
    }
}

#[async_trait]
impl Driver for Librdkafka {
    fn name(&self) -> &'static str {
        stafett_lab::clients::name(Protocol::Kafka)
    }

    fn version(&self) -> String {
        version()
    }

    fn lacks(&self, plan: &Plan) -> Option<String> {
        let kinds = plan.topics.values().map(|topics| topics.kind);
        if kinds.into_iter().any(|kind| kind != TopicKind::Topic) {
            return Some("Kafka's protocol has neither queues nor live topics".to_owned());
        }
        for role in plan.roles.values() {
            if role.prefetch.is_some() && role.does != Does::Produce {
                return Some("Kafka's protocol has no prefetch".to_owned());
            }
            let takes_part = matches!(role.does, Does::Produce | Does::Consume);
            if role.delivery == Delivery::ExactlyOnce && !takes_part {
                return Some(
                    "only who produces or consumes does it exactly once here: who sends on what came does not".to_owned(),
                );
            }
        }
        None
    }

    async fn prepare(&self, destinations: &Destinations) -> Result<(), DriverError> {
        Lean::new(&self.server).prepare(destinations).await
    }

    async fn discard(&self, destinations: &Destinations) -> Result<(), DriverError> {
        Lean::new(&self.server).discard(destinations).await
    }

    async fn sender(&self, seat: &Seat, reports: Reports) -> Result<Box<dyn Sender>, DriverError> {
        if seat.role.delivery == Delivery::ExactlyOnce {
            let sender = transactions::Transactions::open(&self.server, seat, reports).await?;
            return Ok(Box::new(sender));
        }
        let sender = sender::KafkaSender::open(&self.server, seat, reports).await?;
        Ok(Box::new(sender))
    }

    async fn receiver(&self, seat: &Seat) -> Result<Box<dyn Receiver>, DriverError> {
        let receiver = receiver::KafkaReceiver::open(&self.server, seat).await?;
        Ok(Box::new(receiver))
    }

    async fn connection(&self) -> Result<Box<dyn fmt::Debug + Send>, DriverError> {
        let config = config::of_any(&self.server);
        let connected = blocking(move || connect(&config)).await?;
        Ok(Box::new(connected))
    }
}

/// A client that has sent one request and sends no more.
struct Idle {
    _client: BaseConsumer,
}

impl fmt::Debug for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idle").finish_non_exhaustive()
    }
}

fn connect(config: &ClientConfig) -> Result<Idle, DriverError> {
    let client: BaseConsumer = config.create().map_err(|error| failed(&error))?;
    // It connects with the first request; asking for one topic is cheaper than for all.
    let asked = client.client().fetch_metadata(Some("lab-idle"), CONNECTED_WITHIN);
    asked.map_err(|error| failed(&error))?;
    Ok(Idle { _client: client })
}

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DriverError> + Send + 'static,
) -> Result<T, DriverError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(DriverError::Failed(error.to_string())))
}

/// Tells refusals by the system or by librdkafka's configuration from other failures.
fn failed(error: &KafkaError) -> DriverError {
    let is_refusal = match error {
        KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_) => true,
        other => other.rdkafka_error_code().is_some_and(is_refusal),
    };
    if is_refusal {
        DriverError::Refused(error.to_string())
    } else {
        DriverError::Failed(error.to_string())
    }
}

fn is_refusal(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::TransactionalIdAuthorizationFailed
            | RDKafkaErrorCode::UnsupportedVersion
            | RDKafkaErrorCode::UnsupportedCompressionType
            | RDKafkaErrorCode::UnsupportedFeature
            | RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::InvalidArgument
    )
}
