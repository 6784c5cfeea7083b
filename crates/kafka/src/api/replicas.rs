//! Replica placement and leadership: always the one broker.

use std::collections::BTreeMap;

use stafett_kafka_wire::messages::alter_partition_reassignments::{
    ReassignablePartition, ReassignablePartitionResponse, ReassignableTopicResponse,
};
use stafett_kafka_wire::messages::alter_replica_log_dirs::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use stafett_kafka_wire::messages::elect_leaders::{PartitionResult, ReplicaElectionResult};
use stafett_kafka_wire::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse, ElectLeadersRequest, ElectLeadersResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, UnregisterBrokerRequest,
    UnregisterBrokerResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_topics::Topic;

use super::create_topics::check_assignment;
use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

fn has_partition(topic: Option<&Topic>, partition: i32) -> bool {
    let number = u32::try_from(partition).ok();
    topic
        .zip(number)
        .is_some_and(|(topic, number)| number < topic.partitions())
}

pub(super) fn elect_leaders(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: ElectLeadersRequest = call.read(body)?;
    let topics = context.shared.broker.topics();
    let ty = request.election_type;
    let is_known = (0..=1).contains(&ty);
    let asked = request.topic_partitions;
    // The type is not checked if a request names no partitions.
    let names_none = asked.as_ref().is_some_and(Vec::is_empty);
    let results = asked.unwrap_or_default().into_iter().map(|asked| {
        let topic = topics.named(&asked.topic);
        let partitions = asked.partitions.iter().map(|&partition_id| {
            let (code, message) = if !is_known {
                (ErrorCode::InvalidRequest, format!("Unknown election type {ty}"))
            } else if topic.is_none() {
                (
                    ErrorCode::UnknownTopicOrPartition,
                    format!("No such topic as {}", asked.topic),
                )
            } else if has_partition(topic.as_deref(), partition_id) {
                let message = "Leader election not needed for topic partition.";
                (ErrorCode::ElectionNotNeeded, message.to_owned())
            } else {
                let message = format!("No such partition as {}-{partition_id}", asked.topic);
                (ErrorCode::UnknownTopicOrPartition, message)
            };
            PartitionResult {
                partition_id,
                error_code: context.shared.metrics.error(call.api, code),
                error_message: Some(message.into()),
            }
        });
        ReplicaElectionResult {
            partition_result: partitions.collect(),
            topic: asked.topic,
        }
    });
    let results: Vec<_> = results.collect();
    let code = if is_known || names_none {
        ErrorCode::None
    } else {
        ErrorCode::InvalidRequest
    };
    let response = ElectLeadersResponse {
        throttle_time_ms: 0,
        error_code: if call.version >= 1 {
            context.shared.metrics.error(call.api, code)
        } else {
            0
        },
        replica_election_results: results,
    };
    Ok(call.answer::<ElectLeadersRequest>(&response)?.into())
}

pub(super) fn alter_partition_reassignments(
    context: &RequestContext,
    call: Call,
    body: Decoder,
) -> HandlerResult {
    let request: AlterPartitionReassignmentsRequest = call.read(body)?;
    let responses = request.topics.into_iter().map(|asked| {
        let topic = context.shared.broker.topics().named(&asked.name);
        let partitions = asked.partitions.iter().map(|partition| {
            let (code, message) = reassigned(context.broker_id(), &asked.name, topic.as_deref(), partition);
            ReassignablePartitionResponse {
                partition_index: partition.partition_index,
                error_code: context.shared.metrics.error(call.api, code),
                error_message: message.map(Into::into),
            }
        });
        ReassignableTopicResponse {
            partitions: partitions.collect(),
            name: asked.name,
        }
    });
    let response = AlterPartitionReassignmentsResponse {
        error_message: None,
        responses: responses.collect(),
        allow_replication_factor_change: call.version < 1 || request.allow_replication_factor_change,
        ..AlterPartitionReassignmentsResponse::default()
    };
    Ok(call
        .answer::<AlterPartitionReassignmentsRequest>(&response)?
        .into())
}

fn reassigned(
    broker: i32,
    name: &str,
    topic: Option<&Topic>,
    asked: &ReassignablePartition,
) -> (ErrorCode, Option<String>) {
    let partition = asked.partition_index;
    if topic.is_none() {
        let message = format!("Unable to find a topic named {name}.");
        return (ErrorCode::UnknownTopicOrPartition, Some(message));
    }
    if !has_partition(topic, partition) {
        let message = format!("Unable to find partition {name}:{partition}.");
        return (ErrorCode::UnknownTopicOrPartition, Some(message));
    }
    match &asked.replicas {
        // No reassignment can be in progress.
        None => (ErrorCode::NoReassignmentInProgress, None),
        Some(brokers) => match check_assignment(broker, brokers) {
            Ok(()) => (ErrorCode::None, None),
            Err(message) => (ErrorCode::InvalidReplicaAssignment, Some(message)),
        },
    }
}

pub(super) fn list_partition_reassignments(_: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let _: ListPartitionReassignmentsRequest = call.read(body)?;
    let response = ListPartitionReassignmentsResponse {
        error_message: None,
        ..ListPartitionReassignmentsResponse::default()
    };
    Ok(call
        .answer::<ListPartitionReassignmentsRequest>(&response)?
        .into())
}

pub(super) fn alter_replica_log_dirs(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: AlterReplicaLogDirsRequest = call.read(body)?;
    let shared = &context.shared;
    let mut results: BTreeMap<Str, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for dir in request.dirs {
        for asked in dir.topics {
            let topic = shared.broker.topics().named(&asked.name);
            let described = asked.partitions.iter().map(|&partition_index| {
                let code = if *dir.path != *shared.settings.log_dir {
                    ErrorCode::LogDirNotFound
                } else if has_partition(topic.as_deref(), partition_index) {
                    ErrorCode::None
                } else {
                    ErrorCode::ReplicaNotAvailable
                };
                AlterReplicaLogDirPartitionResult {
                    partition_index,
                    error_code: shared.metrics.error(call.api, code),
                }
            });
            results.entry(asked.name.clone()).or_default().extend(described);
        }
    }
    let results = results
        .into_iter()
        .map(|(topic_name, partitions)| AlterReplicaLogDirTopicResult {
            topic_name,
            partitions,
        });
    let response = AlterReplicaLogDirsResponse {
        throttle_time_ms: 0,
        results: results.collect(),
    };
    Ok(call.answer::<AlterReplicaLogDirsRequest>(&response)?.into())
}

pub(super) fn unregister_broker(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: UnregisterBrokerRequest = call.read(body)?;
    let id = request.broker_id;
    let settings = &context.shared.settings;
    let (code, message) = if settings.has_broker(id) {
        let message = "a broker that runs cannot leave its cluster".to_owned();
        (ErrorCode::InvalidRequest, message)
    } else {
        let message = format!("Broker ID {id} is not currently registered");
        (ErrorCode::BrokerIdNotRegistered, message)
    };
    let response = UnregisterBrokerResponse {
        throttle_time_ms: 0,
        error_code: context.shared.metrics.error(call.api, code),
        error_message: Some(message.into()),
    };
    Ok(call.answer::<UnregisterBrokerRequest>(&response)?.into())
}
