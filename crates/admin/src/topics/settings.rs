//! Settings of topics, in requests and in answers.

#![expect(
    clippy::option_option,
    reason = "a field that is absent, null, or without a bound"
)]

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use stafett_http::{Code, Problem};
use stafett_model::{Codec, Durability};
use stafett_topics::{CleanupPolicy, TopicDefaults, TopicSettings};

/// Bound on numbers, which JavaScript would round beyond it.
const NUMBER_MAX: u64 = (1 << 53) - 1;
const MESSAGE_BYTES_MAX: u32 = i32::MAX.cast_unsigned();

/// Settings in force: those of the topic, else those of the broker.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TopicSettings")]
pub(super) struct Settings {
    /// `sync`, `os`, `memory` or `interval:…`.
    pub(super) durability: String,
    /// Age at which records go.
    pub(super) retention_ms: Limit,
    /// Bytes of a partition beyond which its oldest records go.
    pub(super) retention_bytes: Limit,
    /// `delete`, `compact` or `compact,delete`.
    cleanup: String,
    /// Bytes of the largest batch.
    message_bytes_max: u32,
    timestamps: Timestamps,
    /// Longest time that a record's timestamp may be in the past.
    timestamp_earlier_ms_max: Limit,
    /// Longest time that a record's timestamp may be in the future.
    timestamp_later_ms_max: Limit,
    codec: CodecWord,
    /// Time that a record without a value stays in a compacted topic.
    tombstones_kept_ms: u64,
    /// Age at which a record takes part in compaction.
    compaction_lag_ms_min: u64,
    /// Age of a record from which compaction does not wait any longer.
    compaction_lag_ms_max: Limit,
    /// Share of a partition that has to be not yet compacted before it is.
    dirty_share_min: f64,
    /// True if the partitions lie in all cells of a cluster. It never changes.
    spread: bool,
}

/// Settings to change. A field that is absent stays as it is; null goes back to the setting of the broker.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "TopicSettingsChange")]
pub(super) struct SettingsChange {
    /// `sync`, `os`, `memory` or `interval:RECORDS,MILLISECONDS`.
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    durability: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<Limit>")]
    retention_ms: Option<Option<Limit>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<Limit>")]
    retention_bytes: Option<Option<Limit>>,
    /// `delete`, `compact` or `compact,delete`.
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    cleanup: Option<Option<String>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<u32>", range(max = MESSAGE_BYTES_MAX))]
    message_bytes_max: Option<Option<u32>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<Timestamps>")]
    timestamps: Option<Option<Timestamps>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<Limit>")]
    timestamp_earlier_ms_max: Option<Option<Limit>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<Limit>")]
    timestamp_later_ms_max: Option<Option<Limit>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<CodecWord>")]
    codec: Option<Option<CodecWord>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<u64>", range(max = NUMBER_MAX))]
    tombstones_kept_ms: Option<Option<u64>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<u64>", range(max = NUMBER_MAX))]
    compaction_lag_ms_min: Option<Option<u64>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<Limit>")]
    compaction_lag_ms_max: Option<Option<Limit>>,
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<f64>", range(min = 0.0, max = 1.0))]
    dirty_share_min: Option<Option<f64>>,
    /// For a new topic.
    #[serde(deserialize_with = "given")]
    #[schemars(with = "Option<bool>")]
    spread: Option<Option<bool>>,
}

/// A number, or `unlimited`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Limit {
    Number(#[schemars(range(max = NUMBER_MAX))] u64),
    None(Unlimited),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unlimited {
    Unlimited,
}

/// Timestamps of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Timestamps {
    /// Those that producers give.
    Create,
    /// The time at which a record is stored.
    Append,
}

/// Codec of stored batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Codec")]
pub(super) enum CodecWord {
    /// That of the producer.
    Producer,
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// A value that a change replaces.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "FieldChange")]
pub(super) struct FieldChange {
    pub(super) field: String,
    pub(super) is: Value,
    pub(super) wanted: Value,
}

/// Reads a field that is present, so that null is not absent.
pub(crate) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    reader: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(reader).map(Some)
}

impl Settings {
    /// Returns the settings in force of a topic with settings of its own.
    pub(super) fn of(defaults: &TopicDefaults, own: &TopicSettings) -> Self {
        let all = defaults.under(own);
        let number = |ms: u64| {
            if ms > NUMBER_MAX {
                Limit::NONE
            } else {
                Limit::Number(ms)
            }
        };
        Self {
            durability: all.logs.durability.to_string(),
            retention_ms: Limit::of_time(all.logs.retention.age),
            retention_bytes: all.logs.retention.bytes.map_or(Limit::NONE, number),
            cleanup: all.cleanup.to_string(),
            message_bytes_max: all.message_bytes_max,
            timestamps: if all.append_time {
                Timestamps::Append
            } else {
                Timestamps::Create
            },
            timestamp_earlier_ms_max: number(all.earlier_ms_max),
            timestamp_later_ms_max: number(all.later_ms_max),
            codec: CodecWord::of(all.codec),
            tombstones_kept_ms: millis(all.compaction.tombstones_kept),
            compaction_lag_ms_min: millis(all.compaction.lag_min),
            compaction_lag_ms_max: Limit::of_time(all.compaction.lag_max),
            dirty_share_min: f64::from(all.compaction.dirty_share_min) / 1e6,
            spread: own.spread == Some(true),
        }
    }

    /// Returns the fields whose values differ from those of `wanted`.
    pub(super) fn changes(&self, wanted: &Self) -> Vec<FieldChange> {
        let (is, mut wanted) = (self.fields(), wanted.fields());
        let change = |(field, is): (String, Value)| {
            let wanted = wanted.remove(&field).filter(|wanted| *wanted != is)?;
            Some(FieldChange { field, is, wanted })
        };
        is.into_iter().filter_map(change).collect()
    }

    fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }
}

/// Returns the names of the settings that a topic has set for itself.
pub(super) fn set(own: &TopicSettings) -> Vec<&'static str> {
    let compaction = &own.compaction;
    let all = [
        ("durability", own.durability.is_some()),
        ("retention_ms", own.retention_age.is_some()),
        ("retention_bytes", own.retention_bytes.is_some()),
        ("cleanup", own.cleanup.is_some()),
        ("message_bytes_max", own.message_bytes_max.is_some()),
        ("timestamps", own.append_time.is_some()),
        ("timestamp_earlier_ms_max", own.earlier_ms_max.is_some()),
        ("timestamp_later_ms_max", own.later_ms_max.is_some()),
        ("codec", own.codec.is_some()),
        ("tombstones_kept_ms", compaction.tombstones_kept.is_some()),
        ("compaction_lag_ms_min", compaction.lag_min.is_some()),
        ("compaction_lag_ms_max", compaction.lag_max.is_some()),
        ("dirty_share_min", compaction.dirty_share_min.is_some()),
        ("spread", own.spread.is_some()),
    ];
    all.into_iter()
        .filter_map(|(name, is_set)| is_set.then_some(name))
        .collect()
}

impl SettingsChange {
    /// Refuses a change of settings that are decided when a topic is created.
    pub(super) fn check_kept(&self, topic: &TopicSettings) -> Result<(), Problem> {
        let is_kept = |wanted: Option<bool>| (wanted == Some(true)) == (topic.spread == Some(true));
        if self.spread.is_none_or(is_kept) {
            return Ok(());
        }
        Err(bad(
            "spread",
            "it is decided when a topic is created, and for ever",
        ))
    }

    /// Returns settings with these changes.
    pub(super) fn apply(&self, before: &TopicSettings) -> Result<TopicSettings, Problem> {
        let mut now = before.clone();
        if let Some(word) = &self.durability {
            now.durability = parsed::<Durability, _>("durability", word.as_deref())?;
        }
        if let Some(word) = &self.cleanup {
            let policy = parsed::<CleanupPolicy, _>("cleanup", word.as_deref())?;
            if policy.is_some_and(|policy| !policy.compacts && !policy.deletes) {
                return Err(bad("cleanup", "expected delete, compact or compact,delete"));
            }
            now.cleanup = policy;
        }
        if let Some(limit) = self.retention_ms {
            now.retention_age = time("retention_ms", limit)?;
        }
        if let Some(limit) = self.retention_bytes {
            now.retention_bytes = number("retention_bytes", limit)?;
        }
        if let Some(bytes) = self.message_bytes_max {
            if bytes.is_some_and(|bytes| bytes > MESSAGE_BYTES_MAX) {
                return Err(beyond("message_bytes_max", MESSAGE_BYTES_MAX.into()));
            }
            now.message_bytes_max = bytes;
        }
        if let Some(spread) = self.spread {
            now.spread = spread;
        }
        if let Some(word) = self.timestamps {
            now.append_time = word.map(|word| word == Timestamps::Append);
        }
        let unlimited = |limit: Option<Option<u64>>| limit.map(|limit| limit.unwrap_or(u64::MAX));
        if let Some(limit) = self.timestamp_earlier_ms_max {
            now.earlier_ms_max = unlimited(number("timestamp_earlier_ms_max", limit)?);
        }
        if let Some(limit) = self.timestamp_later_ms_max {
            now.later_ms_max = unlimited(number("timestamp_later_ms_max", limit)?);
        }
        if let Some(word) = self.codec {
            now.codec = word.map(CodecWord::codec);
        }
        self.apply_compaction(&mut now)?;
        Ok(now)
    }

    fn apply_compaction(&self, now: &mut TopicSettings) -> Result<(), Problem> {
        let plain = |name, ms: Option<u64>| match time(name, ms.map(Limit::Number)) {
            Ok(time) => Ok(time.flatten()),
            Err(why) => Err(why),
        };
        if let Some(ms) = self.tombstones_kept_ms {
            now.compaction.tombstones_kept = plain("tombstones_kept_ms", ms)?;
        }
        if let Some(ms) = self.compaction_lag_ms_min {
            now.compaction.lag_min = plain("compaction_lag_ms_min", ms)?;
        }
        if let Some(limit) = self.compaction_lag_ms_max {
            now.compaction.lag_max = time("compaction_lag_ms_max", limit)?;
        }
        if let Some(share) = self.dirty_share_min {
            now.compaction.dirty_share_min = share.map(millionths).transpose()?;
        }
        Ok(())
    }
}

impl Limit {
    const NONE: Self = Self::None(Unlimited::Unlimited);

    fn of_time(time: Option<Duration>) -> Self {
        time.map_or(Self::NONE, |time| Self::Number(millis(time)))
    }

    /// Returns the number; `None` without a bound.
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::None(Unlimited::Unlimited) => None,
        }
    }
}

impl CodecWord {
    fn of(codec: Option<Codec>) -> Self {
        match codec {
            None => Self::Producer,
            Some(Codec::None) => Self::None,
            Some(Codec::Gzip) => Self::Gzip,
            Some(Codec::Snappy) => Self::Snappy,
            Some(Codec::Lz4) => Self::Lz4,
            Some(Codec::Zstd) => Self::Zstd,
        }
    }

    fn codec(self) -> Option<Codec> {
        match self {
            Self::Producer => None,
            Self::None => Some(Codec::None),
            Self::Gzip => Some(Codec::Gzip),
            Self::Snappy => Some(Codec::Snappy),
            Self::Lz4 => Some(Codec::Lz4),
            Self::Zstd => Some(Codec::Zstd),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn bad(field: &str, why: impl std::fmt::Display) -> Problem {
    Problem::bad_request(format!("settings.{field}: {why}")).with("field", field)
}

fn beyond(field: &str, max: u64) -> Problem {
    let why = format!("settings.{field} is at most {max}");
    Problem::new(Code::OutOfRange, why)
        .with("field", field)
        .with("min", 0)
        .with("max", max)
}

fn parsed<T: std::str::FromStr<Err = E>, E: std::fmt::Display>(
    field: &str,
    word: Option<&str>,
) -> Result<Option<T>, Problem> {
    word.map(|word| word.parse().map_err(|why| bad(field, why)))
        .transpose()
}

/// Returns the number of a limit: `None` for the setting of the broker, `Some(None)` without a bound.
fn number(field: &str, limit: Option<Limit>) -> Result<Option<Option<u64>>, Problem> {
    let number = limit.map(Limit::number);
    match number.flatten() {
        Some(number) if number > NUMBER_MAX => Err(beyond(field, NUMBER_MAX)),
        _ => Ok(number),
    }
}

fn time(field: &str, limit: Option<Limit>) -> Result<Option<Option<Duration>>, Problem> {
    let limit = number(field, limit)?;
    Ok(limit.map(|ms| ms.map(Duration::from_millis)))
}

fn millionths(share: f64) -> Result<u32, Problem> {
    if !(0.0..=1.0).contains(&share) {
        let why = "settings.dirty_share_min is a number from 0 to 1";
        return Err(Problem::new(Code::OutOfRange, why)
            .with("field", "dirty_share_min")
            .with("min", 0)
            .with("max", 1));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value lies between 0 and a million"
    )]
    let share = (share * 1e6).round() as u32;
    Ok(share)
}
