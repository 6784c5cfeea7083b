//! Settings by the names that Kafka's tools give them.
//!
//! Names, types, bounds and defaults are those of Kafka 4.3 (`TopicConfig`, `LogConfig`, `KafkaConfig`,
//! `GroupConfig`); `stafett.durability` is ours. Those that the broker has itself are its own settings; the
//! others are checked, kept and shown, and change nothing, which their texts say.
//!
//! - `kind`: types, and what is wrong with a value
//! - `topics`: the settings of topics, which the broker's own are defaults of
//! - `brokers`: what else a broker has; `groups`: what groups have
//! - `edit`: what a request makes of settings

mod brokers;
mod edit;
mod groups;
mod kind;
mod topics;

use stafett_topics::TopicSettings;

pub(crate) use brokers::{BROKER, broker_configs};
pub(crate) use edit::{Area, Edit, Operation, edit, settings};
pub(crate) use groups::{GROUP, base_value as group_base_value, overrides as group_overrides};
pub(crate) use kind::{BadValue, Kind};
pub(crate) use topics::{ALL, Config, base_value, value_in};

/// The longest value that is kept.
pub(crate) const VALUE_BYTES_MAX: usize = 8 << 10;
/// What says of a setting that nothing depends on it.
pub(crate) const WITHOUT_EFFECT: &str = "Kept and shown; without effect here.";

/// A setting that cannot be, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadConfig {
    #[error("Unknown {what} config name: {name}")]
    Unknown { what: &'static str, name: String },
    #[error("Null value not supported for {what} configs: {name}")]
    Null { what: &'static str, name: &'static str },
    #[error("Invalid value {value} for configuration {name}: {why}")]
    Value {
        name: &'static str,
        value: String,
        why: BadValue,
    },
    #[error(
        "Invalid value {0} for configuration cleanup.policy: compaction is not served yet, only delete is"
    )]
    Compaction(String),
    #[error("{name} is the broker's for as long as it runs: it cannot be changed")]
    Fixed { name: String },
    #[error("{name} is not a list: nothing can be appended to it or taken from it")]
    NotAList { name: &'static str },
    #[error("{name} has a value longer than {VALUE_BYTES_MAX} bytes")]
    TooLong { name: &'static str },
    #[error("{0} is not an operation on settings")]
    Operation(i8),
}

/// What a setting that is kept for the front end only has been set to.
fn kept(settings: &TopicSettings, name: &str) -> Option<String> {
    settings.other.get(name).map(|value| String::from(&**value))
}

/// The parts of a value that is a list.
fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}
