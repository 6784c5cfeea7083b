//! Settings of topics.

use std::time::Duration;

use stafett_model::Codec;
use stafett_topics::{TopicDefaults, TopicSettings};

use super::config_type::ConfigType;
use super::{WITHOUT_EFFECT, flush, kept};

/// A setting of topics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub name: &'static str,
    /// Broker's name of its default; empty if it has none.
    pub broker_name: &'static str,
    pub kind: ConfigType,
    pub default: &'static str,
    pub about: &'static str,
}

pub(super) const CLEANUP_POLICY: &str = "cleanup.policy";
const COMPRESSION: &str = "compression.type";
const MESSAGE_BYTES: &str = "max.message.bytes";
const TIMESTAMP_AFTER: &str = "message.timestamp.after.max.ms";
const TIMESTAMP_BEFORE: &str = "message.timestamp.before.max.ms";
const TIMESTAMP_TYPE: &str = "message.timestamp.type";
const DIRTY_RATIO: &str = "min.cleanable.dirty.ratio";
const LAG_MAX: &str = "max.compaction.lag.ms";
const LAG_MIN: &str = "min.compaction.lag.ms";
const TOMBSTONES: &str = "delete.retention.ms";
const RETENTION_BYTES: &str = "retention.bytes";
const RETENTION_MS: &str = "retention.ms";
pub(super) const DURABILITY: &str = "stafett.durability";
pub(super) const SPREAD: &str = "stafett.spread";

const APPEND_TIME: &str = "LogAppendTime";
const CREATE_TIME: &str = "CreateTime";
const LONG_MAX: &str = "9223372036854775807";

const fn config(
    name: &'static str,
    broker_name: &'static str,
    kind: ConfigType,
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

const fn shown(
    name: &'static str,
    broker_name: &'static str,
    kind: ConfigType,
    default: &'static str,
) -> Config {
    config(name, broker_name, kind, default, WITHOUT_EFFECT)
}

const fn level(min: i32, max: i32) -> ConfigType {
    ConfigType::Integer { min, max }
}

const COUNT: ConfigType = ConfigType::int(0);
const DURATION: ConfigType = ConfigType::Long { min: 0 };
const REPLICAS: ConfigType = ConfigType::Replicas;

/// All topic settings, sorted by name.
#[rustfmt::skip]
pub(crate) const ALL: &[Config] = &[
    config(CLEANUP_POLICY, "log.cleanup.policy", ConfigType::SomeOf(&["compact", "delete"]), "delete",
        "What becomes of old records: delete frees those beyond retention.ms and retention.bytes, compact keeps the newest of each key; a list for both."),
    shown("compression.gzip.level", "compression.gzip.level", level(-1, 9), "-1"),
    shown("compression.lz4.level", "compression.lz4.level", level(1, 17), "9"),
    config(COMPRESSION, "compression.type", ConfigType::OneOf(CODECS), "producer",
        "What batches are compressed with when they come in; producer keeps them as they are."),
    shown("compression.zstd.level", "compression.zstd.level", level(-131_072, 22), "3"),
    config(TOMBSTONES, "log.cleaner.delete.retention.ms", DURATION, "86400000",
        "Milliseconds that a record without a value stays in a compacted topic after the records before it were compacted."),
    shown("file.delete.delay.ms", "log.segment.delete.delay.ms", DURATION, "60000"),
    config(flush::MESSAGES[0], flush::MESSAGES[1], ConfigType::Long { min: 1 }, LONG_MAX,
        "1 means stafett.durability=sync, unless that is set; other values are kept and shown, without effect."),
    config(flush::MS[0], flush::MS[1], DURATION, LONG_MAX,
        "0 means stafett.durability=sync, unless that is set; other values are kept and shown, without effect."),
    shown("follower.replication.throttled.replicas", "", REPLICAS, ""),
    shown("index.interval.bytes", "log.index.interval.bytes", COUNT, "4096"),
    shown("leader.replication.throttled.replicas", "", REPLICAS, ""),
    shown("local.retention.bytes", "log.local.retention.bytes", ConfigType::Long { min: -2 }, "-2"),
    shown("local.retention.ms", "log.local.retention.ms", ConfigType::Long { min: -2 }, "-2"),
    config(LAG_MAX, "log.cleaner.max.compaction.lag.ms", ConfigType::Long { min: 1 }, LONG_MAX,
        "Age in milliseconds of the oldest record not yet compacted from which compaction does not wait for min.cleanable.dirty.ratio."),
    config(MESSAGE_BYTES, "message.max.bytes", COUNT, "1048588", "Bytes of the largest batch that is taken."),
    config(TIMESTAMP_AFTER, "log.message.timestamp.after.max.ms", DURATION, "3600000",
        "Milliseconds that the time of a record may be ahead of the clock, where records keep their own time."),
    config(TIMESTAMP_BEFORE, "log.message.timestamp.before.max.ms", DURATION, LONG_MAX,
        "Milliseconds that the time of a record may be behind the clock, where records keep their own time."),
    config(TIMESTAMP_TYPE, "log.message.timestamp.type", ConfigType::OneOf(&[CREATE_TIME, APPEND_TIME]), CREATE_TIME,
        "Whether records keep the time that their producer gave them or get that of their append."),
    config(DIRTY_RATIO, "log.cleaner.min.cleanable.ratio", ConfigType::Ratio, "0.5",
        "Share of a partition's bytes that has to be not yet compacted before it is."),
    config(LAG_MIN, "log.cleaner.min.compaction.lag.ms", DURATION, "0",
        "Milliseconds after its timestamp before which a record is not compacted."),
    shown("min.insync.replicas", "min.insync.replicas", ConfigType::int(1), "1"),
    shown("preallocate", "log.preallocate", ConfigType::Boolean, "false"),
    shown("remote.log.copy.disable", "", ConfigType::Boolean, "false"),
    shown("remote.log.delete.on.disable", "", ConfigType::Boolean, "false"),
    shown("remote.storage.enable", "", ConfigType::Boolean, "false"),
    config(RETENTION_BYTES, "log.retention.bytes", ConfigType::Long { min: i64::MIN }, "-1",
        "Bytes of each partition beyond which its oldest records go; -1 sets no bound."),
    config(RETENTION_MS, "log.retention.ms", ConfigType::Long { min: -1 }, "604800000",
        "Milliseconds after which records go; -1 keeps them."),
    shown("segment.bytes", "log.segment.bytes", ConfigType::int(1 << 20), "1073741824"),
    shown("segment.index.bytes", "log.index.size.max.bytes", ConfigType::int(4), "10485760"),
    shown("segment.jitter.ms", "log.roll.jitter.ms", DURATION, "0"),
    shown("segment.ms", "log.roll.ms", ConfigType::Long { min: 1 }, "604800000"),
    config(DURABILITY, DURABILITY, ConfigType::Durability, "sync",
        "What has happened before a write is acknowledged: memory, os, interval:RECORDS,MILLISECONDS or sync."),
    config(SPREAD, "", ConfigType::Boolean, "false",
        "Whether the partitions lie in all cells of a cluster, each led by a broker of its own. Set when the topic is created, and never changed."),
    shown("unclean.leader.election.enable", "unclean.leader.election.enable", ConfigType::Boolean, "false"),
];

pub(crate) fn find(name: &str) -> Option<&'static Config> {
    ALL.iter().find(|config| config.name == name)
}

/// Finds a topic setting by the broker's name of its default.
pub(super) fn find_broker(broker_name: &str) -> Option<&'static Config> {
    ALL.iter()
        .find(|config| !config.broker_name.is_empty() && config.broker_name == broker_name)
}

/// Returns the value if it is set. Settings that the broker does not implement are stored under `key`.
pub(crate) fn value_in(settings: &TopicSettings, config: &Config, key: &str) -> Option<String> {
    let own = match config.name {
        MESSAGE_BYTES => settings.message_bytes_max.map(|bytes| bytes.to_string()),
        TIMESTAMP_TYPE => settings.append_time.map(|on| timestamp_type(on).to_owned()),
        RETENTION_BYTES => settings.retention_bytes.map(bytes_or_none),
        RETENTION_MS => settings.retention_age.map(millis_or_none),
        TIMESTAMP_BEFORE => settings.earlier_ms_max.map(long),
        TIMESTAMP_AFTER => settings.later_ms_max.map(long),
        COMPRESSION => settings.codec.map(|codec| codec_name(codec).to_owned()),
        DURABILITY => settings.durability.map(|level| level.to_string()),
        CLEANUP_POLICY => settings.cleanup.map(|policy| policy.to_string()),
        TOMBSTONES => settings.compaction.tombstones_kept.map(millis),
        LAG_MIN => settings.compaction.lag_min.map(millis),
        LAG_MAX => settings.compaction.lag_max.map(millis_or_max),
        DIRTY_RATIO => settings.compaction.dirty_share_min.map(ratio),
        SPREAD => settings.spread.map(|on| on.to_string()),
        _ => None,
    };
    // Also settings that had no effect when they were stored.
    own.or_else(|| kept(settings, key))
}

/// Returns the value that the broker was started with.
pub(crate) fn base_value(base: &TopicDefaults, config: &Config) -> String {
    match config.name {
        MESSAGE_BYTES => base.message_bytes_max.to_string(),
        TIMESTAMP_TYPE => timestamp_type(base.append_time).to_owned(),
        RETENTION_BYTES => bytes_or_none(base.logs.retention.bytes),
        RETENTION_MS => millis_or_none(base.logs.retention.age),
        TIMESTAMP_BEFORE => long(base.earlier_ms_max),
        TIMESTAMP_AFTER => long(base.later_ms_max),
        COMPRESSION => codec_name(base.codec).to_owned(),
        DURABILITY => base.logs.durability.to_string(),
        CLEANUP_POLICY => base.cleanup.to_string(),
        TOMBSTONES => millis(base.compaction.tombstones_kept),
        LAG_MIN => millis(base.compaction.lag_min),
        LAG_MAX => millis_or_max(base.compaction.lag_max),
        DIRTY_RATIO => ratio(base.compaction.dirty_share_min),
        _ => config.default.to_owned(),
    }
}

/// Sets a checked value, or removes it.
pub(super) fn put(settings: &mut TopicSettings, config: &Config, key: &str, value: Option<&str>) {
    settings.other.remove(key);
    match config.name {
        MESSAGE_BYTES => settings.message_bytes_max = value.and_then(|value| value.parse().ok()),
        TIMESTAMP_TYPE => settings.append_time = value.map(|value| value == APPEND_TIME),
        RETENTION_BYTES => settings.retention_bytes = value.map(|value| value.parse().ok()),
        RETENTION_MS => {
            settings.retention_age = value.map(|value| value.parse().ok().map(Duration::from_millis));
        }
        TIMESTAMP_BEFORE => settings.earlier_ms_max = value.map(any_time),
        TIMESTAMP_AFTER => settings.later_ms_max = value.map(any_time),
        COMPRESSION => settings.codec = value.map(codec),
        DURABILITY => settings.durability = value.and_then(|value| value.parse().ok()),
        CLEANUP_POLICY => settings.cleanup = value.and_then(|value| value.parse().ok()),
        TOMBSTONES => settings.compaction.tombstones_kept = value.and_then(duration),
        LAG_MIN => settings.compaction.lag_min = value.and_then(duration),
        LAG_MAX => {
            let bound = |value| duration(value).filter(|_| value != LONG_MAX);
            settings.compaction.lag_max = value.map(bound);
        }
        DIRTY_RATIO => settings.compaction.dirty_share_min = value.and_then(millionths),
        SPREAD => settings.spread = value.and_then(|value| value.parse().ok()),
        _ => {
            let value = value.map(|value| (key.into(), value.into()));
            settings.other.extend(value);
        }
    }
}

fn duration(value: &str) -> Option<Duration> {
    value.parse().ok().map(Duration::from_millis)
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

fn millis_or_max(time: Option<Duration>) -> String {
    time.map_or_else(|| LONG_MAX.to_owned(), millis)
}

/// Parses a number from 0 to 1.
fn millionths(value: &str) -> Option<u32> {
    let ratio: f64 = value.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value lies between 0 and a million"
    )]
    let share = (ratio.clamp(0.0, 1.0) * 1e6).round() as u32;
    Some(share)
}

fn ratio(millionths: u32) -> String {
    (f64::from(millionths) / 1e6).to_string()
}

fn timestamp_type(is_append_time: bool) -> &'static str {
    if is_append_time { APPEND_TIME } else { CREATE_TIME }
}

fn bytes_or_none(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-1".to_owned(), |bytes| bytes.to_string())
}

fn millis_or_none(age: Option<Duration>) -> String {
    age.map_or_else(|| "-1".to_owned(), |age| age.as_millis().to_string())
}

fn long(number: u64) -> String {
    number.min(i64::MAX.cast_unsigned()).to_string()
}

/// Parses milliseconds. The largest value of the setting means no bound.
fn any_time(value: &str) -> u64 {
    match value.parse() {
        Ok(i64::MAX) | Err(_) => u64::MAX,
        Ok(millis) => u64::try_from(millis).unwrap_or(0),
    }
}

const CODECS: &[&str] = &["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"];

fn codec(name: &str) -> Option<Codec> {
    match name {
        "uncompressed" => Some(Codec::None),
        "gzip" => Some(Codec::Gzip),
        "snappy" => Some(Codec::Snappy),
        "lz4" => Some(Codec::Lz4),
        "zstd" => Some(Codec::Zstd),
        _ => None,
    }
}

fn codec_name(codec: Option<Codec>) -> &'static str {
    match codec {
        None => "producer",
        Some(Codec::None) => "uncompressed",
        Some(Codec::Gzip) => "gzip",
        Some(Codec::Snappy) => "snappy",
        Some(Codec::Lz4) => "lz4",
        Some(Codec::Zstd) => "zstd",
    }
}
