//! APIs, one file each. A handler reads its request, calls the broker, and returns the answer, or the operation
//! that the request waits for.

mod alter_configs;
mod api_versions;
mod consumer_group_describe;
mod consumer_group_heartbeat;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_topic_partitions;
mod fetch;
mod find_coordinator;
mod group_names;
mod heartbeat;
mod init_producer_id;
mod join_group;
mod leader_epochs;
mod leave_group;
mod list_config_resources;
mod list_groups;
mod list_offsets;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod produce;
mod quorum;
mod quotas;
mod replicas;
mod security;
mod sync_group;
mod telemetry;
mod transactions;

use stafett_kafka_wire::{ApiKey, Decoder};

use crate::call::Call;
use crate::close::Close;
use crate::context::RequestContext;
use crate::produce_results::Staging;
use crate::response_queue::HandlerResult;

/// Served APIs that `ApiVersions` lists.
const SERVED: &[ApiKey] = &[
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
    ApiKey::SaslHandshake,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::DescribeAcls,
    ApiKey::CreateAcls,
    ApiKey::DeleteAcls,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::AlterReplicaLogDirs,
    ApiKey::DescribeLogDirs,
    ApiKey::SaslAuthenticate,
    ApiKey::CreatePartitions,
    ApiKey::CreateDelegationToken,
    ApiKey::RenewDelegationToken,
    ApiKey::ExpireDelegationToken,
    ApiKey::DescribeDelegationToken,
    ApiKey::DeleteGroups,
    ApiKey::ElectLeaders,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::AlterPartitionReassignments,
    ApiKey::ListPartitionReassignments,
    ApiKey::OffsetDelete,
    ApiKey::DescribeClientQuotas,
    ApiKey::AlterClientQuotas,
    ApiKey::DescribeUserScramCredentials,
    ApiKey::AlterUserScramCredentials,
    ApiKey::DescribeQuorum,
    ApiKey::UpdateFeatures,
    ApiKey::DescribeCluster,
    ApiKey::DescribeProducers,
    ApiKey::UnregisterBroker,
    ApiKey::DescribeTransactions,
    ApiKey::ListTransactions,
    ApiKey::ConsumerGroupHeartbeat,
    ApiKey::ConsumerGroupDescribe,
    ApiKey::ListConfigResources,
    ApiKey::DescribeTopicPartitions,
];

/// Served APIs that `ApiVersions` does not list.
const UNNAMED: &[ApiKey] = &[ApiKey::GetTelemetrySubscriptions, ApiKey::PushTelemetry];

/// Iterates over all served APIs.
pub(crate) fn served() -> impl Iterator<Item = &'static ApiKey> {
    SERVED.iter().chain(UNNAMED)
}

pub(crate) fn is_served(api: ApiKey) -> bool {
    served().any(|served| *served == api)
}

/// Passes a request to its handler.
pub(crate) fn dispatch(
    context: &RequestContext,
    call: Call,
    client: Option<&str>,
    body: Decoder,
    frame_bytes: usize,
    staging: &mut Staging,
) -> HandlerResult {
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
        ApiKey::DeleteRecords => delete_records::delete_records(context, call, body),
        ApiKey::InitProducerId => init_producer_id::init_producer_id(context, call, body),
        ApiKey::DescribeConfigs => describe_configs::describe_configs(context, call, body),
        ApiKey::DescribeCluster => describe_cluster::describe_cluster(context, call, body),
        ApiKey::OffsetForLeaderEpoch => leader_epochs::offset_for_leader_epoch(context, call, body),
        ApiKey::ConsumerGroupHeartbeat => {
            consumer_group_heartbeat::consumer_group_heartbeat(context, call, client, body)
        }
        ApiKey::ConsumerGroupDescribe => {
            consumer_group_describe::consumer_group_describe(context, call, body)
        }
        _ => administer(context, call, body),
    }
}

/// Passes an administrative request to its handler.
fn administer(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    #[expect(clippy::wildcard_enum_match_arm, reason = "as above")]
    match call.api {
        ApiKey::AlterConfigs => alter_configs::alter_configs(context, call, body),
        ApiKey::IncrementalAlterConfigs => alter_configs::incremental_alter_configs(context, call, body),
        ApiKey::ListConfigResources => list_config_resources::list_config_resources(context, call, body),
        ApiKey::CreatePartitions => create_partitions::create_partitions(context, call, body),
        ApiKey::DescribeTopicPartitions => {
            describe_topic_partitions::describe_topic_partitions(context, call, body)
        }
        ApiKey::DescribeLogDirs => describe_log_dirs::describe_log_dirs(context, call, body),
        ApiKey::DescribeProducers => describe_producers::describe_producers(context, call, body),
        ApiKey::ElectLeaders => replicas::elect_leaders(context, call, body),
        ApiKey::AlterPartitionReassignments => replicas::alter_partition_reassignments(context, call, body),
        ApiKey::ListPartitionReassignments => replicas::list_partition_reassignments(context, call, body),
        ApiKey::AlterReplicaLogDirs => replicas::alter_replica_log_dirs(context, call, body),
        ApiKey::UnregisterBroker => replicas::unregister_broker(context, call, body),
        ApiKey::DescribeQuorum => quorum::describe_quorum(context, call, body),
        ApiKey::UpdateFeatures => quorum::update_features(context, call, body),
        ApiKey::DescribeClientQuotas => quotas::describe_client_quotas(context, call, body),
        ApiKey::AlterClientQuotas => quotas::alter_client_quotas(context, call, body),
        ApiKey::DescribeAcls => security::describe_acls(context, call, body),
        ApiKey::CreateAcls => security::create_acls(context, call, body),
        ApiKey::DeleteAcls => security::delete_acls(context, call, body),
        ApiKey::DescribeUserScramCredentials => {
            security::describe_user_scram_credentials(context, call, body)
        }
        ApiKey::AlterUserScramCredentials => security::alter_user_scram_credentials(context, call, body),
        ApiKey::CreateDelegationToken => security::create_delegation_token(context, call, body),
        ApiKey::RenewDelegationToken => security::renew_delegation_token(context, call, body),
        ApiKey::ExpireDelegationToken => security::expire_delegation_token(context, call, body),
        ApiKey::DescribeDelegationToken => security::describe_delegation_token(context, call, body),
        ApiKey::SaslHandshake => security::sasl_handshake(context, call, body),
        ApiKey::SaslAuthenticate => security::sasl_authenticate(context, call, body),
        ApiKey::DescribeTransactions => transactions::describe_transactions(context, call, body),
        ApiKey::ListTransactions => transactions::list_transactions(context, call, body),
        ApiKey::GetTelemetrySubscriptions => telemetry::get_telemetry_subscriptions(context, call, body),
        ApiKey::PushTelemetry => telemetry::push_telemetry(context, call, body),
        other => Err(Close::NotServed(other)),
    }
}
