//! One file per request. Each reads its request, asks the broker and says what the answer is, now or when it is there.

mod alter_configs;
mod api_versions;
mod create_partitions;
mod create_topics;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod fetch;
mod find_coordinator;
mod init_producer_id;
mod list_offsets;
mod metadata;
pub(crate) mod produce;

use stafett_kafka_wire::{ApiKey, Decoder};

use crate::answers::Kind;
use crate::session::{Call, Close, Context, Staging};

/// What is served, and what `ApiVersions` names.
pub(crate) const SERVED: &[ApiKey] = &[
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::FindCoordinator,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::CreatePartitions,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::DescribeCluster,
];

/// Has a request answered by who is there for it.
pub(crate) fn dispatch(
    context: &Context,
    call: Call,
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
        ApiKey::ApiVersions => api_versions::api_versions(context, call, body),
        ApiKey::CreateTopics => create_topics::create_topics(context, call, body),
        ApiKey::DeleteTopics => delete_topics::delete_topics(context, call, body),
        ApiKey::DeleteRecords => delete_records::delete_records(context, call, body),
        ApiKey::AlterConfigs => alter_configs::alter_configs(context, call, body),
        ApiKey::CreatePartitions => create_partitions::create_partitions(context, call, body),
        ApiKey::IncrementalAlterConfigs => alter_configs::incremental_alter_configs(context, call, body),
        ApiKey::InitProducerId => init_producer_id::init_producer_id(context, call, body),
        ApiKey::DescribeConfigs => describe_configs::describe_configs(context, call, body),
        ApiKey::DescribeCluster => describe_cluster::describe_cluster(context, call, body),
        other => Err(Close::NotServed(other)),
    }
}
