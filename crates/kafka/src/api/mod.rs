//! One file per request. Each reads its request, asks the broker and says what the answer is, now or when it is there.

mod api_versions;
mod consumer_group_describe;
mod consumer_group_heartbeat;
mod create_topics;
mod delete_groups;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod fetch;
mod find_coordinator;
mod group_words;
mod heartbeat;
mod init_producer_id;
mod join_group;
mod leave_group;
mod list_groups;
mod list_offsets;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
pub(crate) mod produce;
mod sync_group;

use stafett_kafka_wire::{ApiKey, Decoder};

use crate::answers::Kind;
use crate::session::{Call, Close, Context, Staging};

/// What is served, and what `ApiVersions` names.
pub(crate) const SERVED: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::OffsetCommit,
    ApiKey::OffsetFetch,
    ApiKey::FindCoordinator,
    ApiKey::JoinGroup,
    ApiKey::Heartbeat,
    ApiKey::LeaveGroup,
    ApiKey::SyncGroup,
    ApiKey::DescribeGroups,
    ApiKey::ListGroups,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::InitProducerId,
    ApiKey::DescribeConfigs,
    ApiKey::DeleteGroups,
    ApiKey::OffsetDelete,
    ApiKey::DescribeCluster,
    ApiKey::ConsumerGroupHeartbeat,
    ApiKey::ConsumerGroupDescribe,
];

/// Has a request answered by who is there for it.
pub(crate) fn dispatch(
    context: &Context,
    call: Call,
    client: Option<&str>,
    body: Decoder,
    frame_bytes: usize,
    staging: &mut Staging,
) -> Result<Kind, Close> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "SERVED says which there are; a test compares the two"
    )]
    match call.api {
        ApiKey::Produce => produce::stage(context, call, body, frame_bytes, staging),
        ApiKey::Fetch => fetch::fetch(context, call, body),
        ApiKey::ListOffsets => list_offsets::list_offsets(context, call, body),
        ApiKey::Metadata => metadata::metadata(context, call, body),
        ApiKey::FindCoordinator => find_coordinator::find_coordinator(context, call, body),
        ApiKey::OffsetCommit => offset_commit::offset_commit(context, call, body),
        ApiKey::OffsetFetch => offset_fetch::offset_fetch(context, call, body),
        ApiKey::JoinGroup => join_group::join_group(context, call, client, body),
        ApiKey::Heartbeat => heartbeat::heartbeat(context, call, body),
        ApiKey::LeaveGroup => leave_group::leave_group(context, call, body),
        ApiKey::SyncGroup => sync_group::sync_group(context, call, body),
        ApiKey::DescribeGroups => describe_groups::describe_groups(context, call, body),
        ApiKey::ListGroups => list_groups::list_groups(context, call, body),
        ApiKey::DeleteGroups => delete_groups::delete_groups(context, call, body),
        ApiKey::OffsetDelete => offset_delete::offset_delete(context, call, body),
        ApiKey::ApiVersions => api_versions::api_versions(context, call, body),
        ApiKey::CreateTopics => create_topics::create_topics(context, call, body),
        ApiKey::DeleteTopics => delete_topics::delete_topics(context, call, body),
        ApiKey::InitProducerId => init_producer_id::init_producer_id(context, call, body),
        ApiKey::DescribeConfigs => describe_configs::describe_configs(context, call, body),
        ApiKey::DescribeCluster => describe_cluster::describe_cluster(context, call, body),
        ApiKey::ConsumerGroupHeartbeat => {
            consumer_group_heartbeat::consumer_group_heartbeat(context, call, client, body)
        }
        ApiKey::ConsumerGroupDescribe => {
            consumer_group_describe::consumer_group_describe(context, call, body)
        }
        other => Err(Close::NotServed(other)),
    }
}
