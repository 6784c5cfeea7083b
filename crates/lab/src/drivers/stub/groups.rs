//! Groups of which everybody is the only member: each assigns everything to itself, and nothing is
//! remembered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use stafett_kafka_wire::Str;
use stafett_kafka_wire::messages::join_group::JoinGroupResponseMember;
use stafett_kafka_wire::messages::offset_commit::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use stafett_kafka_wire::messages::offset_fetch::{OffsetFetchResponsePartition, OffsetFetchResponseTopic};
use stafett_kafka_wire::messages::{
    FindCoordinatorResponse, JoinGroupRequest, JoinGroupResponse, OffsetCommitRequest, OffsetCommitResponse,
    OffsetFetchRequest, OffsetFetchResponse, SyncGroupRequest, SyncGroupResponse,
};

use super::Ended;

/// Says that nothing was committed (`OffsetFetch` of Kafka's protocol).
const NONE: i64 = -1;

pub(super) fn coordinator(local: SocketAddr) -> FindCoordinatorResponse {
    FindCoordinatorResponse {
        error_message: None,
        node_id: 1,
        host: local.ip().to_string().into(),
        port: local.port().into(),
        ..FindCoordinatorResponse::default()
    }
}

pub(super) fn join(request: JoinGroupRequest) -> Result<JoinGroupResponse, Ended> {
    static MEMBERS: AtomicU64 = AtomicU64::new(1);
    let member = if request.member_id.is_empty() {
        Str::from(format!("member-{}", MEMBERS.fetch_add(1, Ordering::Relaxed)))
    } else {
        request.member_id
    };
    let Some(protocol) = request.protocols.into_iter().next() else {
        return Err("a member without a protocol".into());
    };
    Ok(JoinGroupResponse {
        generation_id: 1,
        protocol_type: Some(request.protocol_type),
        protocol_name: Some(protocol.name),
        leader: member.clone(),
        member_id: member.clone(),
        members: vec![JoinGroupResponseMember {
            member_id: member,
            group_instance_id: None,
            metadata: protocol.metadata,
        }],
        ..JoinGroupResponse::default()
    })
}

/// Answers with the member's own assignment.
pub(super) fn sync(request: SyncGroupRequest) -> SyncGroupResponse {
    let own = request.assignments.into_iter().next();
    SyncGroupResponse {
        protocol_type: request.protocol_type,
        protocol_name: request.protocol_name,
        assignment: own.map_or_else(Bytes::new, |own| own.assignment),
        ..SyncGroupResponse::default()
    }
}

pub(super) fn committed(request: OffsetFetchRequest) -> OffsetFetchResponse {
    let none = |partition_index| OffsetFetchResponsePartition {
        partition_index,
        committed_offset: NONE,
        committed_leader_epoch: -1,
        ..OffsetFetchResponsePartition::default()
    };
    let topics = request.topics.unwrap_or_default().into_iter();
    OffsetFetchResponse {
        topics: topics
            .map(|topic| OffsetFetchResponseTopic {
                name: topic.name,
                partitions: topic.partition_indexes.into_iter().map(none).collect(),
            })
            .collect(),
        ..OffsetFetchResponse::default()
    }
}

pub(super) fn commit(request: OffsetCommitRequest) -> OffsetCommitResponse {
    let topics = request.topics.into_iter().map(|topic| OffsetCommitResponseTopic {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: 0,
            })
            .collect(),
    });
    OffsetCommitResponse {
        throttle_time_ms: 0,
        topics: topics.collect(),
    }
}
