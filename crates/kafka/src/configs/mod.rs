//! Settings under the names that Kafka's tools use.
//!
//! Names, types, bounds and defaults are those of Kafka 4.3 (`TopicConfig`, `LogConfig`, `KafkaConfig`,
//! `GroupConfig`); `stafett.durability` is ours. Settings that the broker implements are its own; the others
//! are checked, stored and shown, and have no effect, as their descriptions say.
//!
//! - `config_type`: types, and errors of values
//! - `topics`: settings of topics, for which the broker has defaults
//! - `brokers`: other settings of the broker; `groups`: settings of groups; `share`: those of share
//!   groups' deliveries
//! - `edit`: edits by requests; `flush`: the level that settings of flushes ask for

mod brokers;
mod config_type;
mod edit;
mod flush;
mod groups;
mod share;
mod topics;

use stafett_topics::TopicSettings;

pub(crate) use brokers::{BROKER, BrokerView, broker_configs};
pub(crate) use config_type::{BadValue, ConfigType};
pub(crate) use edit::{Area, ConfigChange, Edit, Operation, settings};
pub(crate) use groups::{GROUP, base_value as group_base_value, overrides as group_overrides};
pub(crate) use share::{ShareSettings, share_settings};
pub(crate) use topics::{ALL, Config, base_value, value_in};

/// Maximum bytes of a stored value.
pub(crate) const VALUE_BYTES_MAX: usize = 8 << 10;
/// Description of a setting without effect.
pub(crate) const WITHOUT_EFFECT: &str = "Kept and shown; without effect here.";

/// An invalid edit of a setting, with the reason.
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
    #[error("{name} is the broker's for as long as it runs: it cannot be changed")]
    Fixed { name: String },
    #[error("{name} is not a list: nothing can be appended to it or taken from it")]
    NotAList { name: &'static str },
    #[error("{name} has a value longer than {VALUE_BYTES_MAX} bytes")]
    TooLong { name: &'static str },
    #[error("{0} is not an operation on settings")]
    Operation(i8),
}

/// Returns the value of a setting that only the front end stores.
fn kept(settings: &TopicSettings, name: &str) -> Option<String> {
    settings.other.get(name).map(|value| String::from(&**value))
}

/// Splits the value of a list into its elements.
fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}
