//! The controller quorum, which is the one broker, and the finalized features of the cluster.

use stafett_kafka_wire::messages::describe_quorum::{
    Listener, Node, ReplicaState, RequestTopicData, ResponsePartitionData, ResponseTopicData,
};
use stafett_kafka_wire::messages::update_features::{FeatureUpdateKey, UpdatableFeatureResult};
use stafett_kafka_wire::messages::{
    DescribeQuorumRequest, DescribeQuorumResponse, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Uuid};
use stafett_store::wall_ms;

use crate::call::Call;
use crate::context::RequestContext;
use crate::leader_epoch::leader_epoch;
use crate::response_queue::HandlerResult;

/// Kafka's topic of cluster metadata.
const QUORUM_TOPIC: &str = "__cluster_metadata";

/// A feature that Kafka enables only once all brokers support it.
pub(super) struct Feature {
    pub name: &'static str,
    pub min: i16,
    pub max: i16,
    /// Finalized version.
    pub level: i16,
}

const fn feature(name: &'static str, min: i16, max: i16) -> Feature {
    Feature {
        name,
        min,
        max,
        level: max,
    }
}

pub(super) const FEATURES: &[Feature] = &[
    feature("group.version", 0, 1),
    feature("kraft.version", 0, 1),
    feature("metadata.version", 7, 30),
    feature("share.version", 0, 1),
    feature("transaction.version", 0, 2),
];

pub(super) fn describe_quorum(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeQuorumRequest = call.read(body)?;
    let is_fine = is_quorum(&request.topics);
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter();
        let partitions = partitions.map(|partition| {
            if is_fine {
                partition_data(context, call)
            } else {
                let code = ErrorCode::UnknownTopicOrPartition;
                ResponsePartitionData {
                    partition_index: partition.partition_index,
                    error_code: context.shared.metrics.error(call.api, code),
                    error_message: Some("This server does not host this topic-partition.".into())
                        .filter(|_| call.version >= 2),
                    ..ResponsePartitionData::default()
                }
            }
        });
        ResponseTopicData {
            topic_name: topic.topic_name.clone(),
            partitions: partitions.collect(),
        }
    });
    let nodes = if is_fine && call.version >= 2 {
        let (host, port) = context.endpoint();
        let listener = Listener {
            name: "CONTROLLER".into(),
            host,
            port: u16::try_from(port).unwrap_or(0),
        };
        vec![Node {
            node_id: context.broker_id(),
            listeners: vec![listener],
        }]
    } else {
        Vec::new()
    };
    let response = DescribeQuorumResponse {
        topics: topics.collect(),
        nodes,
        ..DescribeQuorumResponse::default()
    };
    Ok(call.answer::<DescribeQuorumRequest>(&response)?.into())
}

/// True if a request asks for exactly the one partition of the quorum.
fn is_quorum(topics: &[RequestTopicData]) -> bool {
    match topics {
        [topic] if &*topic.topic_name == QUORUM_TOPIC => match topic.partitions.as_slice() {
            [partition] => partition.partition_index == 0,
            _ => false,
        },
        _ => false,
    }
}

/// Describes the partition. The metadata is in the journal and has no log of its own: offsets are 0.
fn partition_data(context: &RequestContext, call: Call) -> ResponsePartitionData {
    let now = if call.version >= 1 { wall_ms() } else { -1 };
    let replica_directory_id = if call.version >= 2 {
        Uuid::from(context.shared.broker.cluster_id())
    } else {
        Uuid::ZERO
    };
    let voter = ReplicaState {
        replica_id: context.broker_id(),
        replica_directory_id,
        log_end_offset: 0,
        last_fetch_timestamp: now,
        last_caught_up_timestamp: now,
    };
    ResponsePartitionData {
        partition_index: 0,
        leader_id: context.broker_id(),
        leader_epoch: leader_epoch(&context.shared.broker),
        current_voters: vec![voter],
        ..ResponsePartitionData::default()
    }
}

pub(super) fn update_features(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: UpdateFeaturesRequest = call.read(body)?;
    let wrong = request
        .feature_updates
        .iter()
        .find_map(|update| check(context.broker_id(), update).err());
    let code = if wrong.is_some() {
        ErrorCode::InvalidUpdateVersion
    } else {
        ErrorCode::None
    };
    let results = if wrong.is_none() && call.version < 2 {
        let names = request.feature_updates.into_iter().map(|update| update.feature);
        names
            .map(|feature| UpdatableFeatureResult {
                feature,
                ..UpdatableFeatureResult::default()
            })
            .collect()
    } else {
        Vec::new()
    };
    let message = wrong.map(|why| {
        format!("The update failed for all features since the following feature had an error: {why}").into()
    });
    let response = UpdateFeaturesResponse {
        throttle_time_ms: 0,
        error_code: context.shared.metrics.error(call.api, code),
        error_message: message,
        results,
    };
    Ok(call.answer::<UpdateFeaturesRequest>(&response)?.into())
}

/// Checks an update. Features are fixed: only the current level is accepted.
fn check(broker_id: i32, update: &FeatureUpdateKey) -> Result<(), String> {
    let (name, level) = (&update.feature, update.max_version_level);
    let wrong = |why: &str| {
        Err(format!(
            "Invalid update version {level} for feature {name}. {why}"
        ))
    };
    let known = FEATURES.iter().find(|feature| *feature.name == **name);
    if level < 0 {
        return wrong("A feature version cannot be less than 0.");
    }
    let Some(known) = known else {
        return wrong(&format!(
            "Local controller {broker_id} does not support this feature."
        ));
    };
    let (min, max) = (known.min, known.max);
    if level < min || level > max {
        return wrong(&format!(
            "Local controller {broker_id} only supports versions {min}-{max}"
        ));
    }
    if level == known.level {
        Ok(())
    } else {
        wrong("The version of this feature is fixed.")
    }
}
