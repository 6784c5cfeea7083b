//! APIs, one file each. A handler reads its request, calls the broker, and returns the answer, or the
//! operation that the request waits for.

mod acls;
mod add_to_txn;
mod alter_configs;
mod api_versions;
mod consumer_group_describe;
mod consumer_group_heartbeat;
mod create_partitions;
mod create_topics;
mod delegation_tokens;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_topic_partitions;
mod end_txn;
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
mod refused_produces;
mod repeated;
mod replicas;
mod sasl;
mod scram;
mod share_acknowledge;
mod share_fetch;
mod share_group_describe;
mod share_group_heartbeat;
mod share_group_offsets;
mod sync_group;
mod telemetry;
mod transactions;
mod txn_offset_commit;
mod write_txn_markers;

use stafett_kafka_wire::{ApiKey, Decoder};

use crate::call::{Call, Close};
use crate::context::RequestContext;
use crate::produce_results::Staging;
use crate::response_queue::HandlerResult;

pub(crate) use refused_produces::refuse as refuse_produces;

/// Function that executes the requests of an API.
enum Handler {
    Produce,
    /// Takes the client's name for itself.
    Named(fn(&RequestContext, Call, Option<&str>, Decoder) -> HandlerResult),
    Plain(fn(&RequestContext, Call, Decoder) -> HandlerResult),
}

/// Served APIs that `ApiVersions` lists.
#[rustfmt::skip]
const SERVED: &[(ApiKey, Handler)] = &[
    (ApiKey::Produce, Handler::Produce),
    (ApiKey::Fetch, Handler::Plain(fetch::fetch)),
    (ApiKey::ListOffsets, Handler::Plain(list_offsets::list_offsets)),
    (ApiKey::Metadata, Handler::Plain(metadata::metadata)),
    (ApiKey::OffsetCommit, Handler::Plain(offset_commit::offset_commit)),
    (ApiKey::OffsetFetch, Handler::Plain(offset_fetch::offset_fetch)),
    (ApiKey::FindCoordinator, Handler::Plain(find_coordinator::find_coordinator)),
    (ApiKey::JoinGroup, Handler::Named(join_group::join_group)),
    (ApiKey::Heartbeat, Handler::Plain(heartbeat::heartbeat)),
    (ApiKey::LeaveGroup, Handler::Plain(leave_group::leave_group)),
    (ApiKey::SyncGroup, Handler::Plain(sync_group::sync_group)),
    (ApiKey::DescribeGroups, Handler::Plain(describe_groups::describe_groups)),
    (ApiKey::ListGroups, Handler::Plain(list_groups::list_groups)),
    (ApiKey::SaslHandshake, Handler::Plain(sasl::sasl_handshake)),
    (ApiKey::ApiVersions, Handler::Named(api_versions::api_versions)),
    (ApiKey::CreateTopics, Handler::Plain(create_topics::create_topics)),
    (ApiKey::DeleteTopics, Handler::Plain(delete_topics::delete_topics)),
    (ApiKey::DeleteRecords, Handler::Plain(delete_records::delete_records)),
    (ApiKey::InitProducerId, Handler::Plain(init_producer_id::init_producer_id)),
    (ApiKey::OffsetForLeaderEpoch, Handler::Plain(leader_epochs::offset_for_leader_epoch)),
    (ApiKey::AddPartitionsToTxn, Handler::Plain(add_to_txn::add_partitions)),
    (ApiKey::AddOffsetsToTxn, Handler::Plain(add_to_txn::add_offsets)),
    (ApiKey::EndTxn, Handler::Plain(end_txn::end_txn)),
    (ApiKey::WriteTxnMarkers, Handler::Plain(write_txn_markers::write_txn_markers)),
    (ApiKey::TxnOffsetCommit, Handler::Plain(txn_offset_commit::txn_offset_commit)),
    (ApiKey::DescribeAcls, Handler::Plain(acls::describe_acls)),
    (ApiKey::CreateAcls, Handler::Plain(acls::create_acls)),
    (ApiKey::DeleteAcls, Handler::Plain(acls::delete_acls)),
    (ApiKey::DescribeConfigs, Handler::Plain(describe_configs::describe_configs)),
    (ApiKey::AlterConfigs, Handler::Plain(alter_configs::alter_configs)),
    (ApiKey::AlterReplicaLogDirs, Handler::Plain(replicas::alter_replica_log_dirs)),
    (ApiKey::DescribeLogDirs, Handler::Plain(describe_log_dirs::describe_log_dirs)),
    (ApiKey::SaslAuthenticate, Handler::Plain(sasl::sasl_authenticate)),
    (ApiKey::CreatePartitions, Handler::Plain(create_partitions::create_partitions)),
    (ApiKey::CreateDelegationToken, Handler::Plain(delegation_tokens::create_delegation_token)),
    (ApiKey::RenewDelegationToken, Handler::Plain(delegation_tokens::renew_delegation_token)),
    (ApiKey::ExpireDelegationToken, Handler::Plain(delegation_tokens::expire_delegation_token)),
    (ApiKey::DescribeDelegationToken, Handler::Plain(delegation_tokens::describe_delegation_token)),
    (ApiKey::DeleteGroups, Handler::Plain(delete_groups::delete_groups)),
    (ApiKey::ElectLeaders, Handler::Plain(replicas::elect_leaders)),
    (ApiKey::IncrementalAlterConfigs, Handler::Plain(alter_configs::incremental_alter_configs)),
    (ApiKey::AlterPartitionReassignments, Handler::Plain(replicas::alter_partition_reassignments)),
    (ApiKey::ListPartitionReassignments, Handler::Plain(replicas::list_partition_reassignments)),
    (ApiKey::OffsetDelete, Handler::Plain(offset_delete::offset_delete)),
    (ApiKey::DescribeClientQuotas, Handler::Plain(quotas::describe_client_quotas)),
    (ApiKey::AlterClientQuotas, Handler::Plain(quotas::alter_client_quotas)),
    (ApiKey::DescribeUserScramCredentials, Handler::Plain(scram::describe_user_scram_credentials)),
    (ApiKey::AlterUserScramCredentials, Handler::Plain(scram::alter_user_scram_credentials)),
    (ApiKey::DescribeQuorum, Handler::Plain(quorum::describe_quorum)),
    (ApiKey::UpdateFeatures, Handler::Plain(quorum::update_features)),
    (ApiKey::DescribeCluster, Handler::Plain(describe_cluster::describe_cluster)),
    (ApiKey::DescribeProducers, Handler::Plain(describe_producers::describe_producers)),
    (ApiKey::UnregisterBroker, Handler::Plain(replicas::unregister_broker)),
    (ApiKey::DescribeTransactions, Handler::Plain(transactions::describe_transactions)),
    (ApiKey::ListTransactions, Handler::Plain(transactions::list_transactions)),
    (ApiKey::ConsumerGroupHeartbeat, Handler::Named(consumer_group_heartbeat::consumer_group_heartbeat)),
    (ApiKey::ConsumerGroupDescribe, Handler::Plain(consumer_group_describe::consumer_group_describe)),
    (ApiKey::ListConfigResources, Handler::Plain(list_config_resources::list_config_resources)),
    (ApiKey::DescribeTopicPartitions, Handler::Plain(describe_topic_partitions::describe_topic_partitions)),
    (ApiKey::ShareGroupHeartbeat, Handler::Named(share_group_heartbeat::share_group_heartbeat)),
    (ApiKey::ShareGroupDescribe, Handler::Plain(share_group_describe::share_group_describe)),
    (ApiKey::ShareFetch, Handler::Plain(share_fetch::share_fetch)),
    (ApiKey::ShareAcknowledge, Handler::Plain(share_acknowledge::share_acknowledge)),
    (ApiKey::DescribeShareGroupOffsets, Handler::Plain(share_group_offsets::describe)),
    (ApiKey::AlterShareGroupOffsets, Handler::Plain(share_group_offsets::alter)),
    (ApiKey::DeleteShareGroupOffsets, Handler::Plain(share_group_offsets::delete)),
];

/// Served APIs that `ApiVersions` does not list.
#[rustfmt::skip]
const UNNAMED: &[(ApiKey, Handler)] = &[
    (ApiKey::GetTelemetrySubscriptions, Handler::Plain(telemetry::get_telemetry_subscriptions)),
    (ApiKey::PushTelemetry, Handler::Plain(telemetry::push_telemetry)),
];

/// Iterates over all served APIs.
pub(crate) fn served() -> impl Iterator<Item = &'static ApiKey> {
    SERVED.iter().chain(UNNAMED).map(|(api, _)| api)
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
    let mut served = SERVED.iter().chain(UNNAMED);
    match served.find(|(api, _)| *api == call.api) {
        Some((_, Handler::Produce)) => produce::stage(context, call, body, frame_bytes, staging),
        Some((_, Handler::Named(handler))) => handler(context, call, client, body),
        Some((_, Handler::Plain(handler))) => handler(context, call, body),
        None => Err(Close::NotServed(call.api)),
    }
}
