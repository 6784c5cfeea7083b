//! Resources that have settings, as requests name them: a number for the kind, and a name.

use stafett_kafka_wire::ErrorCode;

use crate::settings::KafkaSettings;

/// Kafka's numbers (`ConfigResource.Type`).
pub(crate) const TOPIC: i8 = 2;
pub(crate) const BROKER: i8 = 4;
pub(crate) const LOGGER: i8 = 8;
pub(crate) const CLIENT_METRICS: i8 = 16;
pub(crate) const GROUP: i8 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource<'a> {
    Topic(&'a str),
    /// A broker: all have the same settings.
    Broker,
    /// Settings of all brokers.
    AllBrokers,
    Logger,
    ClientMetrics(&'a str),
    Group(&'a str),
}

impl<'a> Resource<'a> {
    pub(crate) fn of(settings: &KafkaSettings, kind: i8, name: &'a str) -> Result<Self, (ErrorCode, String)> {
        let invalid = |message: String| Err((ErrorCode::InvalidRequest, message));
        match (kind, name) {
            (TOPIC, name) => Ok(Self::Topic(name)),
            (BROKER, "") => Ok(Self::AllBrokers),
            (LOGGER, "") => invalid("Broker id must not be empty".to_owned()),
            (BROKER | LOGGER, name) => match name.parse() {
                Ok(id) if settings.has_broker(id) && kind == BROKER => Ok(Self::Broker),
                Ok(id) if settings.has_broker(id) => Ok(Self::Logger),
                Ok(other) => {
                    let or = if kind == BROKER { " or empty string," } else { "" };
                    let expected = settings.broker_id;
                    invalid(format!(
                        "Unexpected broker id, expected {expected}{or} but received {other}"
                    ))
                }
                Err(_) => invalid(format!("Broker id must be an integer, but it is: {name}")),
            },
            (CLIENT_METRICS, "") => invalid("Client metrics subscription name must not be empty".to_owned()),
            (CLIENT_METRICS, name) => Ok(Self::ClientMetrics(name)),
            (GROUP, "") => invalid("Group name must not be empty".to_owned()),
            (GROUP, name) => Ok(Self::Group(name)),
            (other, _) => invalid(format!("resources of type {other} have no settings")),
        }
    }
}
