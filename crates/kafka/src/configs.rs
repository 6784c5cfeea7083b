//! The settings of topics by the names that Kafka's tools give them.
//!
//! Names, types and defaults are those of Kafka 4.3 (`TopicConfig`, `LogConfig`); `stafett.durability` is ours. Four
//! of them are the broker's own settings; the others are checked, kept and shown, and change nothing, which their
//! texts say.

use std::collections::BTreeMap;
use std::time::Duration;

use stafett_broker::{Broker, TopicSettings};
use stafett_model::Durability;

use crate::kafka::Shared;
use crate::settings::BROKER_ID;

/// Bits of Kafka's numbers for types of settings (`ConfigDef.Type` as `DescribeConfigs` numbers them).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    Integer {
        min: i32,
    },
    Long {
        min: i64,
    },
    /// From 0 to 1.
    Ratio,
    OneOf(&'static [&'static str]),
    /// A list of some of these; of anything where there are none.
    SomeOf(&'static [&'static str]),
    Durability,
}

/// One setting of a topic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub name: &'static str,
    /// What the broker calls its default.
    pub broker_name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub about: &'static str,
}

pub(crate) const CLEANUP_POLICY: &str = "cleanup.policy";
pub(crate) const MESSAGE_BYTES: &str = "max.message.bytes";
pub(crate) const TIMESTAMP_TYPE: &str = "message.timestamp.type";
pub(crate) const RETENTION_BYTES: &str = "retention.bytes";
pub(crate) const RETENTION_MS: &str = "retention.ms";
pub(crate) const DURABILITY: &str = "stafett.durability";

const APPEND_TIME: &str = "LogAppendTime";
const CREATE_TIME: &str = "CreateTime";
const LONG_MAX: &str = "9223372036854775807";
const WITHOUT_EFFECT: &str = "Kept and shown; without effect here.";

const fn config(
    name: &'static str,
    broker_name: &'static str,
    kind: Kind,
    default: &'static str,
    about: &'static str,
) -> Config {
    Config {
        name,
        broker_name,
        kind,
        default,
        about,
    }
}

const fn shown(name: &'static str, broker_name: &'static str, kind: Kind, default: &'static str) -> Config {
    config(name, broker_name, kind, default, WITHOUT_EFFECT)
}

const LEVEL: Kind = Kind::Integer { min: i32::MIN };
const COUNT: Kind = Kind::Integer { min: 0 };
const DURATION: Kind = Kind::Long { min: 0 };
const REPLICAS: Kind = Kind::SomeOf(&[]);
const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

/// All of them, sorted by name.
#[rustfmt::skip]
pub(crate) const ALL: &[Config] = &[
    config(CLEANUP_POLICY, "log.cleanup.policy", Kind::SomeOf(&["compact", "delete"]), "delete",
        "What becomes of old records. A topic that is only compacted keeps all of them: compaction is not done yet."),
    shown("compression.gzip.level", "compression.gzip.level", LEVEL, "-1"),
    shown("compression.lz4.level", "compression.lz4.level", LEVEL, "9"),
    config("compression.type", "compression.type", Kind::OneOf(CODECS), "producer",
        "Batches are kept as their producer compressed them, whatever is set."),
    shown("compression.zstd.level", "compression.zstd.level", LEVEL, "3"),
    shown("delete.retention.ms", "log.cleaner.delete.retention.ms", DURATION, "86400000"),
    shown("file.delete.delay.ms", "log.segment.delete.delay.ms", DURATION, "60000"),
    shown("flush.messages", "log.flush.interval.messages", Kind::Long { min: 1 }, LONG_MAX),
    shown("flush.ms", "log.flush.interval.ms", DURATION, LONG_MAX),
    shown("follower.replication.throttled.replicas", "", REPLICAS, ""),
    shown("index.interval.bytes", "log.index.interval.bytes", COUNT, "4096"),
    shown("leader.replication.throttled.replicas", "", REPLICAS, ""),
    shown("local.retention.bytes", "log.local.retention.bytes", Kind::Long { min: -2 }, "-2"),
    shown("local.retention.ms", "log.local.retention.ms", Kind::Long { min: -2 }, "-2"),
    shown("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", Kind::Long { min: 1 }, LONG_MAX),
    config(MESSAGE_BYTES, "message.max.bytes", COUNT, "1048588", "Bytes of the largest batch that is taken."),
    shown("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", DURATION, "3600000"),
    shown("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", DURATION, LONG_MAX),
    config(TIMESTAMP_TYPE, "log.message.timestamp.type", Kind::OneOf(&[CREATE_TIME, APPEND_TIME]), CREATE_TIME,
        "Whether records keep the time that their producer gave them or get that of their append."),
    shown("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", Kind::Ratio, "0.5"),
    shown("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", DURATION, "0"),
    shown("min.insync.replicas", "min.insync.replicas", Kind::Integer { min: 1 }, "1"),
    shown("preallocate", "log.preallocate", Kind::Boolean, "false"),
    shown("remote.log.copy.disable", "", Kind::Boolean, "false"),
    shown("remote.log.delete.on.disable", "", Kind::Boolean, "false"),
    shown("remote.storage.enable", "", Kind::OneOf(&["false"]), "false"),
    config(RETENTION_BYTES, "log.retention.bytes", Kind::Long { min: -1 }, "-1",
        "Bytes of each partition beyond which its oldest records go; -1 sets no bound."),
    config(RETENTION_MS, "log.retention.ms", Kind::Long { min: -1 }, "604800000",
        "Milliseconds after which records go; -1 keeps them."),
    shown("segment.bytes", "log.segment.bytes", Kind::Integer { min: 1 }, "1073741824"),
    shown("segment.index.bytes", "log.index.size.max.bytes", Kind::Integer { min: 4 }, "10485760"),
    shown("segment.jitter.ms", "log.roll.jitter.ms", DURATION, "0"),
    shown("segment.ms", "log.roll.ms", Kind::Long { min: 1 }, "604800000"),
    config(DURABILITY, DURABILITY, Kind::Durability, "sync",
        "What has happened before a write is acknowledged: memory, os, interval:RECORDS,MILLISECONDS or sync."),
    shown("unclean.leader.election.enable", "unclean.leader.election.enable", Kind::Boolean, "false"),
];

/// A setting of the broker that topics do not have.
pub(crate) struct BrokerConfig {
    pub name: &'static str,
    pub kind: Kind,
    pub value: fn(&Shared) -> String,
    pub about: &'static str,
}

const BROKER_NUMBER: Kind = Kind::Integer { min: 0 };

/// All of them, sorted by name.
#[rustfmt::skip]
pub(crate) const BROKER: &[BrokerConfig] = &[
    BrokerConfig { name: "auto.create.topics.enable", kind: Kind::Boolean,
        value: |shared| shared.settings.auto_create_topics.to_string(),
        about: "Whether a metadata request may create the topics that it asks for." },
    BrokerConfig { name: "broker.id", kind: BROKER_NUMBER, value: |_| BROKER_ID.to_string(),
        about: "The one broker there is." },
    BrokerConfig { name: "default.replication.factor", kind: BROKER_NUMBER, value: |_| "1".to_owned(),
        about: "Copies of a partition, as far as clients can tell." },
    BrokerConfig { name: "fetch.max.bytes", kind: BROKER_NUMBER,
        value: |shared| shared.settings.fetch_bytes_max.to_string(),
        about: "Bytes of records in one answer to a fetch." },
    BrokerConfig { name: "node.id", kind: BROKER_NUMBER, value: |_| BROKER_ID.to_string(),
        about: "The one broker there is." },
    BrokerConfig { name: "num.partitions", kind: BROKER_NUMBER,
        value: |shared| shared.broker.settings().partitions.to_string(),
        about: "Partitions of a topic whose creator does not care." },
    BrokerConfig { name: "socket.request.max.bytes", kind: BROKER_NUMBER,
        value: |shared| shared.settings.request_bytes_max.to_string(),
        about: "Bytes of the largest request." },
];

/// A setting that cannot be, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadConfig {
    #[error("unknown topic config name: {0}")]
    Unknown(String),
    #[error("the value of {name} is null")]
    Null { name: &'static str },
    #[error("{name} is set twice")]
    Twice { name: &'static str },
    #[error("invalid value {value:?} for {name}: expected {expected}")]
    Value {
        name: &'static str,
        value: String,
        expected: String,
    },
}

pub(crate) fn find(name: &str) -> Option<&'static Config> {
    ALL.iter().find(|config| config.name == name)
}

/// A topic's settings from what its creator set.
pub(crate) fn settings<'a>(
    set: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<TopicSettings, BadConfig> {
    let mut given: BTreeMap<&'static str, &str> = BTreeMap::new();
    for (name, value) in set {
        let config = find(name).ok_or_else(|| BadConfig::Unknown(name.to_owned()))?;
        let name = config.name;
        let value = value.ok_or(BadConfig::Null { name })?;
        config.kind.check(value).map_err(|expected| BadConfig::Value {
            name,
            value: value.to_owned(),
            expected,
        })?;
        if given.insert(name, value).is_some() {
            return Err(BadConfig::Twice { name });
        }
    }
    let mut settings = TopicSettings::default();
    for (name, value) in &given {
        match *name {
            MESSAGE_BYTES => settings.message_bytes_max = value.parse().ok(),
            TIMESTAMP_TYPE => settings.append_time = Some(*value == APPEND_TIME),
            RETENTION_BYTES => settings.retention_bytes = Some(value.parse().ok()),
            RETENTION_MS => settings.retention_age = Some(value.parse().ok().map(Duration::from_millis)),
            DURABILITY => settings.durability = value.parse().ok(),
            other => {
                settings.other.insert(other.into(), (*value).into());
            }
        }
    }
    let policy = given.get(CLEANUP_POLICY);
    if policy.is_some_and(|policy| !list(policy).any(|policy| policy == "delete")) {
        // Only the newest record of a key could go, and none does as long as nothing is compacted.
        (settings.retention_age, settings.retention_bytes) = (Some(None), Some(None));
    }
    Ok(settings)
}

/// What a topic has set itself of one of its settings.
pub(crate) fn value_in(settings: &TopicSettings, name: &str) -> Option<String> {
    match name {
        MESSAGE_BYTES => settings.message_bytes_max.map(|bytes| bytes.to_string()),
        TIMESTAMP_TYPE => settings.append_time.map(timestamp_type),
        RETENTION_BYTES => settings.retention_bytes.map(bytes_or_none),
        RETENTION_MS => settings.retention_age.map(millis_or_none),
        DURABILITY => settings.durability.map(|level| level.to_string()),
        other => settings.other.get(other).map(|value| String::from(&**value)),
    }
}

/// What holds for a topic that has not set it.
pub(crate) fn default_value(broker: &Broker, config: &Config) -> String {
    let settings = broker.settings();
    match config.name {
        MESSAGE_BYTES => settings.message_bytes_max.to_string(),
        TIMESTAMP_TYPE => timestamp_type(settings.append_time),
        RETENTION_BYTES => bytes_or_none(settings.logs.retention.bytes),
        RETENTION_MS => millis_or_none(settings.logs.retention.age),
        DURABILITY => settings.logs.durability.to_string(),
        _ => config.default.to_owned(),
    }
}

fn timestamp_type(is_append_time: bool) -> String {
    (if is_append_time { APPEND_TIME } else { CREATE_TIME }).to_owned()
}

fn bytes_or_none(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-1".to_owned(), |bytes| bytes.to_string())
}

fn millis_or_none(age: Option<Duration>) -> String {
    age.map_or_else(|| "-1".to_owned(), |age| age.as_millis().to_string())
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}

impl Kind {
    /// The number by which the protocol names the type.
    pub(crate) fn code(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::OneOf(_) | Self::Durability => 2,
            Self::Integer { .. } => 3,
            Self::Long { .. } => 5,
            Self::Ratio => 6,
            Self::SomeOf(_) => 7,
        }
    }

    /// Says what is expected if a value is not that.
    fn check(self, value: &str) -> Result<(), String> {
        let is_fine = match self {
            Self::Boolean => value == "true" || value == "false",
            Self::Integer { min } => value.parse().is_ok_and(|number: i32| number >= min),
            Self::Long { min } => value.parse().is_ok_and(|number: i64| number >= min),
            Self::Ratio => value
                .parse()
                .is_ok_and(|number: f64| (0.0..=1.0).contains(&number)),
            Self::OneOf(texts) => texts.contains(&value),
            Self::SomeOf([]) => true,
            Self::SomeOf(texts) => list(value).all(|text| texts.contains(&text)),
            Self::Durability => value.parse::<Durability>().is_ok(),
        };
        if is_fine { Ok(()) } else { Err(self.expected()) }
    }

    fn expected(self) -> String {
        match self {
            Self::Boolean => "true or false".to_owned(),
            Self::Integer { min: i32::MIN } => "a whole number".to_owned(),
            Self::Integer { min } => format!("a whole number from {min} to {}", i32::MAX),
            Self::Long { min } => format!("a whole number from {min} to {}", i64::MAX),
            Self::Ratio => "a number from 0 to 1".to_owned(),
            Self::OneOf(texts) => format!("one of {}", texts.join(", ")),
            Self::SomeOf(texts) => format!("a list of {}", texts.join(", ")),
            Self::Durability => "memory, os, interval:RECORDS,MILLISECONDS or sync".to_owned(),
        }
    }
}
