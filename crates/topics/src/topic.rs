//! A topic: a name with one log per partition, and its stored format as an item of keyed state.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_journal::{LogSpec, Retention};
use stafett_model::{Codec, Durability, LogId, Named};

use crate::cleanup::{CleanupPolicy, CompactionOptions};
use crate::homes::with_topic;
use crate::settings::TopicDefaults;

/// Name of the topic that shows the committed offsets of groups.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Name of the topic that stands for the stored state of transactions.
pub const TRANSACTIONS_TOPIC: &str = "__transaction_state";

/// Name of the topic that stores the audit.
pub const AUDIT_TOPIC: &str = "stafett.audit";

/// Returns true if only the broker writes the topic: patterns of consumers do not match it.
pub fn is_internal(name: &str) -> bool {
    [OFFSETS_TOPIC, TRANSACTIONS_TOPIC, AUDIT_TOPIC].contains(&name)
}

/// Id of a topic. A topic recreated under the same name has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u128);

/// Upper half of the topic ids of queues. Random ids never have it, as their version bits differ.
const QUEUE_TOPIC: u128 = 0x7175_6575_6500_0000;

impl TopicId {
    /// Returns the topic id under which clients that read logs see a queue.
    pub fn of_queue(queue: u64) -> Self {
        Self(QUEUE_TOPIC << 64 | u128::from(queue))
    }

    /// Returns the id of the queue that the topic shows.
    pub fn queue(self) -> Option<u64> {
        self.is_queue()
            .then(|| u64::try_from(self.0 & u128::from(u64::MAX)).unwrap_or(u64::MAX))
    }

    /// Returns true if the topic is a queue, which has a definition of its own.
    pub fn is_queue(self) -> bool {
        self.0 >> 64 == QUEUE_TOPIC
    }
}

/// Kind of a topic, by its definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicKind {
    Stored,
    /// It shows a queue; each partition is a priority.
    Queue,
    /// Declared by a client of queues.
    Declared,
}

/// A stored topic.
#[derive(Debug, PartialEq, Eq)]
pub struct Topic {
    pub id: TopicId,
    pub name: Box<str>,
    /// Logs of its partitions, in runs of ids.
    logs: Logs,
    /// Settings of its own. Topics without any share one value.
    pub settings: Arc<TopicSettings>,
}

/// Runs of log ids; a topic that never grew has one.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Logs {
    One { first: LogId, count: u32 },
    Many(Box<[(LogId, u32)]>),
}

impl Logs {
    fn of(mut runs: Vec<(LogId, u32)>) -> Self {
        match runs.as_mut_slice() {
            [(first, count)] => Self::One {
                first: *first,
                count: *count,
            },
            _ => Self::Many(runs.into()),
        }
    }
}

/// Settings of a topic. Unset ones follow the broker's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicSettings {
    pub durability: Option<Durability>,
    /// Age after which records are deleted; `Some(None)` keeps them forever.
    pub retention_age: Option<Option<Duration>>,
    pub retention_bytes: Option<Option<u64>>,
    pub cleanup: Option<CleanupPolicy>,
    pub compaction: CompactionOptions,
    pub message_bytes_max: Option<u32>,
    /// True if records get the time of their append instead of the producer's timestamp.
    pub append_time: Option<bool>,
    /// Bound on how far a record's timestamp may be in the past, in ms; `u64::MAX` for no bound.
    pub earlier_ms_max: Option<u64>,
    /// Bound on how far a record's timestamp may be in the future, in ms.
    pub later_ms_max: Option<u64>,
    /// Codec for stored batches; `Some(None)` keeps the producer's.
    pub codec: Option<Option<Codec>>,
    /// True if the partitions lie in all cells of a cluster. Never changes.
    pub spread: Option<bool>,
    /// Declaration by a front end: compared and returned, opaque to the core, never altered.
    pub declared: Option<Bytes>,
    /// Settings of a front end, in its own format.
    pub other: BTreeMap<Box<str>, Box<str>>,
}

impl Named for Topic {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Topic {
    pub fn new(id: TopicId, name: Box<str>, first: LogId, count: u32, settings: Arc<TopicSettings>) -> Self {
        Self {
            id,
            name,
            logs: Logs::One { first, count },
            settings,
        }
    }

    /// Creates a topic whose logs are runs of ids.
    pub(crate) fn of_runs(
        id: TopicId,
        name: Box<str>,
        logs: Vec<(LogId, u32)>,
        settings: Arc<TopicSettings>,
    ) -> Self {
        let empty = Self {
            id,
            name,
            logs: Logs::Many(Box::default()),
            settings,
        };
        empty.with_logs(logs)
    }

    /// Returns a copy of the topic with other logs, as runs of ids.
    #[must_use]
    pub(crate) fn with_logs(&self, logs: Vec<(LogId, u32)>) -> Self {
        let mut runs: Vec<(LogId, u32)> = Vec::with_capacity(logs.len());
        for (first, count) in logs {
            match runs.last_mut() {
                Some((last, had)) if last.0 + u64::from(*had) == first.0 => *had += count,
                _ => runs.push((first, count)),
            }
        }
        Self {
            id: self.id,
            name: self.name.clone(),
            logs: Logs::of(runs),
            settings: Arc::clone(&self.settings),
        }
    }

    /// Returns a copy of the topic with other settings.
    #[must_use]
    pub fn with_settings(&self, settings: Arc<TopicSettings>) -> Self {
        Self {
            id: self.id,
            name: self.name.clone(),
            logs: self.logs.clone(),
            settings,
        }
    }

    /// Returns a copy of the topic with `count` more partitions, whose logs begin at `first`.
    #[must_use]
    pub fn with_more(&self, first: LogId, count: u32) -> Self {
        let runs = self.log_runs().map(|(first, count)| (*first, *count));
        self.with_logs(runs.chain([(first, count)]).collect())
    }

    pub fn kind(&self) -> TopicKind {
        if self.id.is_queue() {
            TopicKind::Queue
        } else if self.settings.declared.is_some() {
            TopicKind::Declared
        } else {
            TopicKind::Stored
        }
    }

    /// Returns the log of a partition, counted from 0.
    pub fn log(&self, partition: u32) -> Option<LogId> {
        let mut index = partition;
        for (first, count) in self.log_runs() {
            if index < *count {
                return Some(LogId(first.0 + u64::from(index)));
            }
            index -= count;
        }
        None
    }

    /// Returns true if a log belongs to one of its partitions.
    pub fn has_log(&self, log: LogId) -> bool {
        self.log_runs()
            .any(|(first, count)| (first.0..first.0 + u64::from(*count)).contains(&log.0))
    }

    pub fn partitions(&self) -> u32 {
        self.log_runs().map(|(_, count)| *count).sum()
    }

    /// Returns the logs of all partitions in order, as runs of ids.
    pub fn log_runs(&self) -> impl Iterator<Item = (&LogId, &u32)> {
        let (one, many) = match &self.logs {
            Logs::One { first, count } => (Some((first, count)), &[][..]),
            Logs::Many(runs) => (None, &runs[..]),
        };
        one.into_iter()
            .chain(many.iter().map(|(first, count)| (first, count)))
    }

    /// Encodes the definition: numbers are little-endian, texts are preceded by their length as u32.
    ///
    /// ```text
    /// u8 version = 1, name, u32 runs, each: u64 first log, u32 logs
    /// settings, see [`TopicSettings::encode`]
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_text(&self.name, &mut out);
        let runs: Vec<_> = self.log_runs().collect();
        put_u32(runs.len(), &mut out);
        for (first, count) in runs {
            out.extend_from_slice(&first.0.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
        self.settings.encode(&mut out);
        out
    }

    /// Decodes a stored definition. `None` if this version does not know the format.
    pub fn decode(id: TopicId, bytes: &[u8], defaults: &Arc<TopicSettings>) -> Option<Self> {
        let (version, mut rest) = bytes.split_first()?;
        if *version != VERSION {
            return None;
        }
        let name = get_text(&mut rest)?;
        let count = get_u32(&mut rest)?;
        let runs = (0..count)
            .map(|_| {
                let first = LogId(u64::from_le_bytes(get(&mut rest)?));
                Some((with_topic(first, id), get_u32(&mut rest)?))
            })
            .collect::<Option<Vec<_>>>()?;
        let logs = Logs::of(runs);
        let settings = TopicSettings::decode(&mut rest)?;
        let settings = if settings == **defaults {
            Arc::clone(defaults)
        } else {
            Arc::new(settings)
        };
        Some(Self {
            id,
            name,
            logs,
            settings,
        })
    }
}

const VERSION: u8 = 1;

impl TopicSettings {
    /// Returns durability and limits of the topic's logs, whether or not the limits are enforced; unset ones
    /// are those of `defaults`.
    pub(crate) fn limits(&self, defaults: &LogSpec) -> LogSpec {
        LogSpec {
            durability: self.durability.unwrap_or(defaults.durability),
            retention: Retention {
                age: self.retention_age.unwrap_or(defaults.retention.age),
                bytes: self.retention_bytes.unwrap_or(defaults.retention.bytes),
            },
            compaction: None,
        }
    }

    /// Returns durability, retention and compaction of the topic's logs; unset ones are those of `defaults`.
    pub fn log_spec(&self, defaults: &TopicDefaults) -> LogSpec {
        let limits = self.limits(&defaults.logs);
        let policy = self.cleanup.unwrap_or(defaults.cleanup);
        LogSpec {
            durability: limits.durability,
            retention: if policy.deletes {
                limits.retention
            } else {
                Retention::default()
            },
            compaction: policy
                .compacts
                .then(|| self.compaction.under(&defaults.compaction)),
        }
    }

    /// Returns these settings; those that `self` has not set are those of `below`.
    #[must_use]
    pub fn over(&self, below: &Self) -> Self {
        let mut other = below.other.clone();
        other.extend(
            self.other
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        Self {
            durability: self.durability.or(below.durability),
            retention_age: self.retention_age.or(below.retention_age),
            retention_bytes: self.retention_bytes.or(below.retention_bytes),
            cleanup: self.cleanup.or(below.cleanup),
            compaction: self.compaction.over(&below.compaction),
            message_bytes_max: self.message_bytes_max.or(below.message_bytes_max),
            append_time: self.append_time.or(below.append_time),
            earlier_ms_max: self.earlier_ms_max.or(below.earlier_ms_max),
            later_ms_max: self.later_ms_max.or(below.later_ms_max),
            codec: self.codec.or(below.codec),
            spread: self.spread.or(below.spread),
            declared: self.declared.clone().or_else(|| below.declared.clone()),
            other,
        }
    }

    /// Encodes the settings; texts are preceded by their length as u32.
    ///
    /// ```text
    /// u8 settings, each: u8 tag, text value (1 durability, 2 retention ms, 3 retention bytes,
    /// 4 message bytes, 5 append time, 6 ms earlier, 7 ms later, 8 codec, 9 declared, in hexadecimal digits,
    /// 10 cleanup policy, 11 ms that tombstones are kept, 12 min and 13 max ms of compaction lag,
    /// 14 min dirty share in millionths, 15 spread over cells),
    /// u32 other settings, each: name, value
    /// ```
    pub fn encode(&self, out: &mut Vec<u8>) {
        let age = self
            .retention_age
            .map(|age| age.map_or(FOR_EVER, |age| age.as_millis().to_string()));
        let bytes = self
            .retention_bytes
            .map(|bytes| bytes.map_or(FOR_EVER, |bytes| bytes.to_string()));
        let compaction = &self.compaction;
        let millis = |time: Duration| time.as_millis().to_string();
        let known = [
            (1, self.durability.map(|level| level.to_string())),
            (2, age),
            (3, bytes),
            (4, self.message_bytes_max.map(|bytes| bytes.to_string())),
            (5, self.append_time.map(|on| on.to_string())),
            (6, self.earlier_ms_max.map(|ms| ms.to_string())),
            (7, self.later_ms_max.map(|ms| ms.to_string())),
            (8, self.codec.map(|codec| codec_name(codec).to_owned())),
            (9, self.declared.as_deref().map(to_hex)),
            (10, self.cleanup.map(|policy| policy.to_string())),
            (11, compaction.tombstones_kept.map(millis)),
            (12, compaction.lag_min.map(millis)),
            (13, compaction.lag_max.map(|lag| lag.map_or(FOR_EVER, millis))),
            (14, compaction.dirty_share_min.map(|share| share.to_string())),
            (15, self.spread.map(|on| on.to_string())),
        ];
        let set: Vec<_> = known
            .into_iter()
            .filter_map(|(which, value)| Some((which, value?)))
            .collect();
        out.push(u8::try_from(set.len()).unwrap_or(0));
        for (which, value) in set {
            out.push(which);
            put_text(&value, out);
        }
        put_u32(self.other.len(), out);
        for (name, value) in &self.other {
            put_text(name, out);
            put_text(value, out);
        }
    }

    pub fn decode(rest: &mut &[u8]) -> Option<Self> {
        let mut settings = Self::default();
        let [count] = get(rest)?;
        for _ in 0..count {
            let [which] = get(rest)?;
            let value = get_text(rest)?;
            match which {
                1 => settings.durability = Some(value.parse().ok()?),
                2 => settings.retention_age = Some(limit(&value)?.map(Duration::from_millis)),
                3 => settings.retention_bytes = Some(limit(&value)?),
                4 => settings.message_bytes_max = Some(value.parse().ok()?),
                5 => settings.append_time = Some(value.parse().ok()?),
                6 => settings.earlier_ms_max = Some(value.parse().ok()?),
                7 => settings.later_ms_max = Some(value.parse().ok()?),
                8 => settings.codec = Some(CODECS.iter().find(|(name, _)| **name == *value)?.1),
                9 => settings.declared = Some(from_hex(&value)?),
                10 => settings.cleanup = Some(value.parse().ok()?),
                11 => settings.compaction.tombstones_kept = Some(millis(&value)?),
                12 => settings.compaction.lag_min = Some(millis(&value)?),
                13 => settings.compaction.lag_max = Some(limit(&value)?.map(Duration::from_millis)),
                14 => settings.compaction.dirty_share_min = Some(value.parse().ok()?),
                15 => settings.spread = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        for _ in 0..get_u32(rest)? {
            settings.other.insert(get_text(rest)?, get_text(rest)?);
        }
        Some(settings)
    }
}

const FOR_EVER: String = String::new();

const CODECS: [(&str, Option<Codec>); 6] = [
    ("producer", None),
    ("none", Some(Codec::None)),
    ("gzip", Some(Codec::Gzip)),
    ("snappy", Some(Codec::Snappy)),
    ("lz4", Some(Codec::Lz4)),
    ("zstd", Some(Codec::Zstd)),
];

fn codec_name(codec: Option<Codec>) -> &'static str {
    CODECS
        .iter()
        .find(|(_, known)| *known == codec)
        .map_or("producer", |(name, _)| name)
}

#[expect(clippy::option_option, reason = "malformed, no limit, a limit")]
fn limit(value: &str) -> Option<Option<u64>> {
    if value.is_empty() {
        Some(None)
    } else {
        value.parse().ok().map(Some)
    }
}

fn millis(value: &str) -> Option<Duration> {
    value.parse().ok().map(Duration::from_millis)
}

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn from_hex(text: &str) -> Option<Bytes> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs
        .iter()
        .map(byte)
        .collect::<Option<Vec<_>>>()
        .map(Bytes::from)
}

pub(crate) fn put_u32(number: usize, out: &mut Vec<u8>) {
    let number = u32::try_from(number).expect("definitions are small");
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_u32(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

pub(crate) fn get<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (front, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*front)
}

pub(crate) fn get_u32(rest: &mut &[u8]) -> Option<u32> {
    get(rest).map(u32::from_le_bytes)
}

fn get_text(rest: &mut &[u8]) -> Option<Box<str>> {
    let bytes = usize::try_from(get_u32(rest)?).ok()?;
    let (front, behind) = rest.split_at_checked(bytes)?;
    *rest = behind;
    std::str::from_utf8(front).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_reads_back_and_cut_ones_do_not() {
        let settings = TopicSettings {
            durability: Some(Durability::Os),
            retention_age: Some(None),
            retention_bytes: Some(Some(7)),
            cleanup: Some("compact,delete".parse().unwrap()),
            compaction: CompactionOptions {
                tombstones_kept: Some(Duration::from_millis(8)),
                lag_min: Some(Duration::ZERO),
                lag_max: Some(None),
                dirty_share_min: Some(10_000),
            },
            message_bytes_max: Some(99),
            append_time: Some(true),
            earlier_ms_max: Some(u64::MAX),
            later_ms_max: Some(5),
            codec: Some(Some(Codec::Zstd)),
            spread: Some(true),
            declared: Some(Bytes::from_static(b"\0\xff")),
            other: [("a.b".into(), "c".into())].into(),
        };
        let topic = Topic::new(TopicId(5), "orders".into(), LogId(9), 3, Arc::new(settings));
        let bytes = topic.encode();
        let defaults = Arc::default();
        assert_eq!(Topic::decode(TopicId(5), &bytes, &defaults), Some(topic));
        for cut in 0..bytes.len() {
            assert_eq!(
                Topic::decode(TopicId(5), &bytes[..cut], &defaults),
                None,
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn partitions_are_found_through_runs() {
        let topic = Topic::new(TopicId(1), "t".into(), LogId(10), 1, Arc::default());
        let topic = topic.with_more(LogId(11), 1).with_more(LogId(50), 1);
        assert_eq!(topic.log_runs().count(), 2, "neighbours are one run");
        let logs: Vec<_> = (0..4).map(|n| topic.log(n).map(|log| log.0)).collect();
        assert_eq!(logs, [Some(10), Some(11), Some(50), None]);
        assert_eq!(topic.partitions(), 3);
    }
}
