//! Requests of members of share groups, and outcomes in their answers.

use std::collections::{BTreeMap, BTreeSet};

use stafett_kafka_wire::messages::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use stafett_kafka_wire::messages::{
    IncrementalAlterConfigsRequest, ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareFetchRequest,
    ShareFetchResponse, ShareGroupHeartbeatRequest, share_acknowledge, share_fetch,
};
use stafett_kafka_wire::{Str, Uuid};

use super::deliveries::{PlaceKey, Settled};
use super::{RENEW, Rules};
use crate::kafka::consumers::Owned;
use crate::ledger::LogKey;
use crate::steps::TOPICS;

/// Version of fetches and acknowledgements.
pub(super) const VERSION: i16 = 2;
/// Type of settings of groups.
const GROUP_CONFIG: i8 = 32;

/// Neighbouring records, and the kind of acknowledgement of each.
type Run = (i64, i64, Vec<i8>);

/// Bounds of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub records_max: u16,
    /// True if no more records may come, instead of whole batches.
    pub is_exact: bool,
    pub wait_ms: u16,
}

pub(super) fn group_name(group: u8) -> Str {
    format!("s{group}").into()
}

pub(super) fn heartbeat(group: u8, member: &str, epoch: i32) -> ShareGroupHeartbeatRequest {
    let names = (0..TOPICS).map(|topic| format!("t{topic}").into());
    ShareGroupHeartbeatRequest {
        group_id: group_name(group),
        member_id: member.to_owned().into(),
        member_epoch: epoch,
        subscribed_topic_names: (epoch == 0).then(|| names.collect()),
        ..ShareGroupHeartbeatRequest::default()
    }
}

pub(super) fn configs(group: u8, rules: &Rules) -> IncrementalAlterConfigsRequest {
    let config = |name: &'static str, value: String| AlterableConfig {
        name: name.into(),
        config_operation: 0,
        value: Some(value.into()),
    };
    let level = if rules.reads_committed {
        "read_committed"
    } else {
        "read_uncommitted"
    };
    IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: GROUP_CONFIG,
            resource_name: group_name(group),
            configs: vec![
                config("share.auto.offset.reset", "earliest".to_owned()),
                config("share.record.lock.duration.ms", rules.lock_ms.to_string()),
                config("share.delivery.count.limit", rules.deliveries_max.to_string()),
                config("share.isolation.level", level.to_owned()),
            ],
        }],
        ..IncrementalAlterConfigsRequest::default()
    }
}

/// Returns the request of a fetch. `ids` are the partitions of acknowledged records.
pub(super) fn fetch(
    (group, member, epoch): (u8, &str, i32),
    (added, forgotten): (&BTreeSet<Owned>, &BTreeSet<Owned>),
    settled: &BTreeMap<PlaceKey, Vec<Settled>>,
    ids: &BTreeMap<LogKey, Owned>,
    shape: Shape,
) -> ShareFetchRequest {
    let mut asked: BTreeMap<Owned, Vec<Run>> = added.iter().map(|owned| (*owned, Vec::new())).collect();
    asked.extend(runs_by_partition(settled, ids));
    let mut topics: BTreeMap<Uuid, Vec<share_fetch::FetchPartition>> = BTreeMap::new();
    for ((id, index), runs) in asked {
        let batch = |(first_offset, last_offset, acknowledge_types)| share_fetch::AcknowledgementBatch {
            first_offset,
            last_offset,
            acknowledge_types,
        };
        topics.entry(id).or_default().push(share_fetch::FetchPartition {
            partition_index: index,
            acknowledgement_batches: runs.into_iter().map(batch).collect(),
        });
    }
    let topic = |(topic_id, partitions)| share_fetch::FetchTopic { topic_id, partitions };
    let forgotten = forgotten
        .iter()
        .map(|(topic_id, index)| share_fetch::ForgottenTopic {
            topic_id: *topic_id,
            partitions: vec![*index],
        });
    ShareFetchRequest {
        group_id: Some(group_name(group)),
        member_id: Some(member.to_owned().into()),
        share_session_epoch: epoch,
        max_wait_ms: shape.wait_ms.into(),
        min_bytes: 1,
        max_bytes: 4 << 20,
        max_records: shape.records_max.into(),
        batch_size: 100,
        share_acquire_mode: shape.is_exact.into(),
        topics: topics.into_iter().map(topic).collect(),
        forgotten_topics_data: forgotten.collect(),
        ..ShareFetchRequest::default()
    }
}

pub(super) fn acknowledgement(
    (group, member, epoch): (u8, &str, i32),
    settled: &BTreeMap<PlaceKey, Vec<Settled>>,
    ids: &BTreeMap<LogKey, Owned>,
) -> ShareAcknowledgeRequest {
    let mut topics: BTreeMap<Uuid, Vec<share_acknowledge::AcknowledgePartition>> = BTreeMap::new();
    for ((id, index), runs) in runs_by_partition(settled, ids) {
        let batch =
            |(first_offset, last_offset, acknowledge_types)| share_acknowledge::AcknowledgementBatch {
                first_offset,
                last_offset,
                acknowledge_types,
            };
        topics
            .entry(id)
            .or_default()
            .push(share_acknowledge::AcknowledgePartition {
                partition_index: index,
                acknowledgement_batches: runs.into_iter().map(batch).collect(),
            });
    }
    let topic = |(topic_id, partitions)| share_acknowledge::AcknowledgeTopic { topic_id, partitions };
    ShareAcknowledgeRequest {
        group_id: Some(group_name(group)),
        member_id: Some(member.to_owned().into()),
        share_session_epoch: epoch,
        is_renew_ack: settled.values().flatten().any(|one| one.kind == RENEW),
        topics: topics.into_iter().map(topic).collect(),
    }
}

/// Returns acknowledgements in runs of neighbouring records, by partition.
fn runs_by_partition(
    settled: &BTreeMap<PlaceKey, Vec<Settled>>,
    ids: &BTreeMap<LogKey, Owned>,
) -> BTreeMap<Owned, Vec<Run>> {
    let mut by_partition = BTreeMap::new();
    for ((_, log), settled) in settled {
        let Some(owned) = ids.get(log) else { continue };
        let runs = settled.chunk_by(|one, next| one.offset + 1 == next.offset);
        let run = |run: &[Settled]| {
            let offset = |one: &Settled| i64::try_from(one.offset).unwrap_or(i64::MAX);
            let mut kinds: Vec<i8> = run.iter().map(|one| one.kind).collect();
            if kinds.iter().all(|kind| kinds.first() == Some(kind)) {
                // One for all.
                kinds.truncate(1);
            }
            Some((run.first().map(offset)?, run.last().map(offset)?, kinds))
        };
        by_partition.insert(*owned, runs.filter_map(run).collect());
    }
    by_partition
}

/// Returns the outcomes of acknowledgements in a fetch.
pub(super) fn outcomes(answer: &ShareFetchResponse) -> BTreeMap<Owned, i16> {
    let topics = answer.responses.iter();
    let all = topics.flat_map(|topic| topic.partitions.iter().map(move |one| (topic.topic_id, one)));
    all.map(|(id, one)| ((id, one.partition_index), one.acknowledge_error_code))
        .collect()
}

/// Returns the outcomes of acknowledgements.
pub(super) fn settled(answer: &ShareAcknowledgeResponse) -> BTreeMap<Owned, i16> {
    let topics = answer.responses.iter();
    let all = topics.flat_map(|topic| topic.partitions.iter().map(move |one| (topic.topic_id, one)));
    all.map(|(id, one)| ((id, one.partition_index), one.error_code))
        .collect()
}

/// Describes an answer without its records.
pub(super) fn describe(answer: &ShareFetchResponse) -> String {
    let topics = answer.responses.iter();
    let all = topics.flat_map(|topic| topic.partitions.iter().map(move |one| (topic.topic_id, one)));
    let all = all.map(|(id, one)| {
        let codes = (one.error_code, one.acknowledge_error_code);
        format!(
            "{id:?}-{} {codes:?} {:?}",
            one.partition_index, one.acquired_records
        )
    });
    format!("{}: {}", answer.error_code, all.collect::<Vec<_>>().join(", "))
}
