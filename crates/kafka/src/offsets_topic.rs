//! `__consumer_offsets`: committed offsets of groups, as records in Kafka's own format.
//!
//! A stored topic that is created with the first commit. Only this module writes it, and only while clients
//! read it:
//!
//! ```text
//! read ─▶ first one since the start: appends all current commits, deletes the records before them
//!      └▶ later ones: append the changes, a record per partition of a group, without a value if it is gone
//! ```
//!
//! So a reader from the beginning gets the state, a reader that follows gets the changes, at most [`REFRESH`]
//! late, and an offset never names two records. A commit costs nothing extra. Classic groups with members
//! also have a record of their last stable generation (`GroupMetadata`); consumer groups have commits only.

use std::collections::HashMap;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use stafett_broker::Broker;
use stafett_groups::GroupKind;
use stafett_groups::classic::ClassicGroup;
use stafett_model::{BatchBuilder, Codec, Lock, LogId, Offset, Record};
use stafett_store::wall_ms;
use stafett_topics::{Append, OFFSETS_TOPIC, Topic, TopicId};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::internal_topic::InternalTopic;

/// Maximum delay until a reader sees a change.
pub(crate) const REFRESH: Duration = Duration::from_millis(200);
/// Approximate bytes of records in a batch.
const BATCH_BYTES: usize = 256 << 10;
/// Maximum superseded records on top of the number of current ones.
const SUPERSEDED_MAX: usize = 10_000;

/// State of the topic. It is filled by the first read.
#[derive(Debug)]
pub(crate) struct OffsetsTopic {
    topic: InternalTopic,
    /// Permit to append; one task at a time.
    turn: Semaphore,
    shown: Lock<Shown>,
}

impl Default for OffsetsTopic {
    fn default() -> Self {
        Self {
            topic: InternalTopic::new(OFFSETS_TOPIC),
            turn: Semaphore::new(1),
            shown: Lock::default(),
        }
    }
}

/// State that the topic's records describe.
#[derive(Debug, Default)]
struct Shown {
    topic: Option<TopicId>,
    /// True once the topic holds the whole state, and no records from before the start.
    is_complete: bool,
    at: Option<Instant>,
    values: HashMap<Bytes, (u32, Bytes)>,
    /// Number of records with a later record of the same key.
    superseded: usize,
}

/// A record to append to a partition; no value if the commit is gone.
struct Change {
    partition: u32,
    key: Bytes,
    value: Option<Bytes>,
    at: i64,
}

impl OffsetsTopic {
    pub(crate) fn topic(&self) -> &InternalTopic {
        &self.topic
    }

    /// Appends the changes since the last refresh, at most once per [`REFRESH`]. Changes that cannot be
    /// appended now are appended next time.
    pub(crate) async fn refresh(&self, broker: &Broker) {
        let Ok(_turn) = self.turn.acquire().await else {
            return;
        };
        let Some(topic) = broker.topics().named(OFFSETS_TOPIC) else {
            return;
        };
        let Some((changes, is_all)) = self.changes(broker, &topic) else {
            return;
        };
        let starts: Vec<(LogId, Offset)> = (0..topic.partitions())
            .filter_map(|partition| {
                let log = topic.log(partition)?;
                Some((log, broker.catalog().bounds(log)?.end))
            })
            .collect();
        let Some(appends) = appends(&topic, &changes) else {
            return;
        };
        let count = appends.len();
        let outcomes = broker.catalog().append(appends).await;
        let stored = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, stafett_topics::Outcome::Committed { .. }));
        if stored.count() < count {
            return;
        }
        if is_all {
            for result in broker.catalog().truncate(&starts).await {
                if let Err(error) = result {
                    tracing::debug!(%error, "records of old commits stay");
                }
            }
        }
        self.shown().take_in(changes, is_all);
    }

    fn shown(&self) -> stafett_model::LockGuard<'_, Shown> {
        self.shown.lock()
    }

    /// Returns the records to append, and true if they are the whole state. `None` if there are none or the
    /// last check was less than [`REFRESH`] ago.
    fn changes(&self, broker: &Broker, topic: &Topic) -> Option<(Vec<Change>, bool)> {
        let now = Instant::now();
        let mut shown = self.shown();
        if shown.at.is_some_and(|at| now < at + REFRESH) {
            return None;
        }
        if shown.topic != Some(topic.id) {
            *shown = Shown::default();
        }
        let current = current(broker, topic.partitions(), &shown);
        let is_all = !shown.is_complete || shown.superseded > current.len() + SUPERSEDED_MAX;
        shown.topic = Some(topic.id);
        shown.at = Some(now);
        if is_all {
            return Some((current, true));
        }
        let gone: Vec<Change> = {
            let kept: std::collections::HashSet<&Bytes> = current.iter().map(|change| &change.key).collect();
            let gone = shown.values.iter().filter(|(key, _)| !kept.contains(key));
            gone.map(|(key, (partition, _))| Change {
                partition: *partition,
                key: key.clone(),
                value: None,
                at: wall_ms(),
            })
            .collect()
        };
        let is_new = |change: &Change| {
            let known = shown.values.get(&change.key).map(|(_, value)| value);
            known != change.value.as_ref()
        };
        let changes: Vec<Change> = current.into_iter().filter(is_new).chain(gone).collect();
        (!changes.is_empty()).then_some((changes, false))
    }
}

impl Shown {
    fn take_in(&mut self, changes: Vec<Change>, is_all: bool) {
        if is_all {
            self.is_complete = true;
            self.values.clear();
            self.superseded = 0;
        }
        for Change {
            partition,
            key,
            value,
            ..
        } in changes
        {
            let before = match value {
                Some(value) => self.values.insert(key, (partition, value)),
                None => self.values.remove(&key),
            };
            self.superseded += usize::from(before.is_some());
        }
    }
}

/// Returns the current state: commits, and classic groups. A rebalancing group keeps the record that it had
/// before.
fn current(broker: &Broker, partitions: u32, shown: &Shown) -> Vec<Change> {
    let mut all = Vec::new();
    broker.groups().each(|group| {
        let partition = partition_of(&group.name, partitions);
        if let GroupKind::Classic(classic) = &group.kind {
            let key = group_key(&group.name);
            let before = || shown.values.get(&key).map(|(_, value)| value.clone());
            let value = if classic.is_stable() || classic.is_empty() && classic.generation() > 0 {
                Some(group_value(classic))
            } else {
                before()
            };
            all.extend(value.map(|value| Change {
                partition,
                key,
                value: Some(value),
                at: wall_ms(),
            }));
        }
        for (topic, commits) in group.commits.topics() {
            let Some(topic) = broker.topics().with_id(topic) else {
                continue;
            };
            for (number, commit) in commits {
                all.push(Change {
                    partition,
                    key: key(&group.name, &topic.name, *number),
                    value: Some(value(
                        commit.offset,
                        commit.leader_epoch,
                        commit.text.as_deref().unwrap_or_default(),
                        commit.at,
                    )),
                    at: commit.at,
                });
            }
        }
    });
    all
}

/// Builds the batches of the changes by partition. `None` if that fails.
fn appends(topic: &Topic, changes: &[Change]) -> Option<Vec<Append>> {
    let mut of_partition: HashMap<u32, Vec<&Change>> = HashMap::new();
    for change in changes {
        of_partition.entry(change.partition).or_default().push(change);
    }
    let mut appends = Vec::new();
    for (partition, changes) in of_partition {
        let log = topic.log(partition)?;
        let mut batch = BatchBuilder::new(Codec::None);
        for change in changes {
            if batch.bytes() > BATCH_BYTES {
                let full = std::mem::replace(&mut batch, BatchBuilder::new(Codec::None));
                appends.push(Append::batch(log, full.finish().ok()?));
            }
            let record = Record {
                key: Some(&change.key),
                value: change.value.as_deref(),
                headers: &[],
                timestamp: change.at.max(0),
            };
            batch.push(&record).ok()?;
        }
        appends.push(Append::batch(log, batch.finish().ok()?));
    }
    Some(appends)
}

/// Returns the partition of a group: Java's hash of its name, without the sign.
fn partition_of(group: &str, partitions: u32) -> u32 {
    let hash = group.encode_utf16().fold(0_i32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(unit.into())
    });
    let hash = if hash == i32::MIN { 0 } else { hash.unsigned_abs() };
    hash % partitions.max(1)
}

/// Encodes `OffsetCommitKey`, version 1.
fn key(group: &str, topic: &str, partition: u32) -> Bytes {
    let mut key = Vec::with_capacity(10 + group.len() + topic.len());
    key.put_i16(1);
    put_text(&mut key, group);
    put_text(&mut key, topic);
    key.put_u32(partition);
    key.into()
}

/// Encodes `OffsetCommitValue`, version 3.
fn value(offset: i64, leader_epoch: i32, text: &str, at: i64) -> Bytes {
    let mut value = Vec::with_capacity(24 + text.len());
    value.put_i16(3);
    value.put_i64(offset);
    value.put_i32(leader_epoch);
    put_text(&mut value, text);
    value.put_i64(at);
    value.into()
}

/// Encodes `GroupMetadataKey`, version 2.
fn group_key(group: &str) -> Bytes {
    let mut key = Vec::with_capacity(4 + group.len());
    key.put_i16(2);
    put_text(&mut key, group);
    key.into()
}

/// Encodes `GroupMetadataValue`, version 3. The time of the last state change is unknown.
fn group_value(group: &ClassicGroup) -> Bytes {
    let mut value = Vec::new();
    value.put_i16(3);
    put_text(&mut value, group.purpose().unwrap_or_default());
    value.put_i32(group.generation());
    put_optional(&mut value, group.strategy());
    put_optional(&mut value, group.leader().map(|leader| &**leader));
    value.put_i64(-1);
    value.put_u32(u32::try_from(group.members().count()).unwrap_or(u32::MAX));
    for member in group.members() {
        let session_ms = group.session_ms(member.id).unwrap_or(0);
        put_text(&mut value, member.id);
        put_optional(&mut value, member.instance);
        put_text(&mut value, member.client_id);
        put_text(&mut value, member.client_host);
        // Rebalance timeout, then session timeout.
        value.put_u32(session_ms);
        value.put_u32(session_ms);
        for bytes in [&member.metadata, &member.assignment] {
            value.put_u32(u32::try_from(bytes.len()).unwrap_or(0));
            value.put_slice(bytes);
        }
    }
    value.into()
}

fn put_optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => put_text(out, text),
        None => out.put_i16(-1),
    }
}

/// Writes a text behind its length. Names and texts of commits are shorter than the format's limit; a longer
/// text is truncated, or left empty if the limit splits a character.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = text
        .get(..text.len().min(usize::from(i16::MAX.unsigned_abs())))
        .unwrap_or_default();
    out.put_u16(u16::try_from(text.len()).unwrap_or(0));
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_in_the_partition_where_kafka_has_it() {
        // `Utils.abs("…".hashCode()) % 50` in Java.
        for (group, partition) in [("", 0), ("a", 47), ("group", 47)] {
            assert_eq!(partition_of(group, 50), partition, "{group}");
        }
        assert_eq!(
            partition_of("polygenelubricants", 50),
            0,
            "its hash has no positive counterpart"
        );
    }

    #[test]
    fn keys_and_values_lie_as_kafka_reads_them() {
        assert_eq!(&key("g", "t", 7)[..], b"\0\x01\0\x01g\0\x01t\0\0\0\x07");
        assert_eq!(
            &value(5, -1, "m", 9)[..],
            b"\0\x03\0\0\0\0\0\0\0\x05\xff\xff\xff\xff\0\x01m\0\0\0\0\0\0\0\x09"
        );
    }
}
