//! Requests about the cluster, settings, and transactional ids.

use stafett_access::{Action, Kind};
use stafett_kafka_wire::messages::alter_client_quotas::{ResponseEntityData, ResponseEntryData};
use stafett_kafka_wire::messages::alter_user_scram_credentials::AlterUserScramCredentialsResult;
use stafett_kafka_wire::messages::create_acls::AclCreationResult;
use stafett_kafka_wire::messages::delete_acls::DeleteAclsFilterResult;
use stafett_kafka_wire::messages::describe_configs::DescribeConfigsResult;
use stafett_kafka_wire::messages::describe_transactions::TransactionState;
use stafett_kafka_wire::messages::elect_leaders::{PartitionResult, ReplicaElectionResult};
use stafett_kafka_wire::messages::find_coordinator::Coordinator;
use stafett_kafka_wire::messages::write_txn_markers::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use stafett_kafka_wire::messages::{
    AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AlterClientQuotasRequest, AlterClientQuotasResponse,
    AlterConfigsRequest, AlterConfigsResponse, AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse,
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, CreateAclsRequest,
    CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest, DescribeAclsResponse,
    DescribeClientQuotasRequest, DescribeClientQuotasResponse, DescribeConfigsRequest,
    DescribeConfigsResponse, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeQuorumRequest,
    DescribeQuorumResponse, DescribeTransactionsRequest, DescribeTransactionsResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, ElectLeadersRequest,
    ElectLeadersResponse, EndTxnRequest, EndTxnResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, InitProducerIdRequest,
    InitProducerIdResponse, ListConfigResourcesRequest, ListConfigResourcesResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, UnregisterBrokerRequest,
    UnregisterBrokerResponse, UpdateFeaturesRequest, UpdateFeaturesResponse, WriteTxnMarkersRequest,
    WriteTxnMarkersResponse, alter_configs as whole, alter_replica_log_dirs as dirs,
    incremental_alter_configs as one,
};
use stafett_kafka_wire::{ApiKey, ErrorCode};

use super::{Checked, Gate, Right};
use crate::resources;

/// Checks a right on the cluster; the answer has one code.
macro_rules! cluster {
    ($gate:ident, $action:ident, $request:ident, $response:ident) => {
        $gate.check(
            |_: &$request| $gate.context.check_cluster(Action::$action),
            |_, error_code| $response {
                error_code,
                ..$response::default()
            },
        )
    };
}

pub(super) const RIGHTS: &[(ApiKey, Right)] = &[
    (ApiKey::DescribeAcls, |gate| {
        cluster!(gate, Describe, DescribeAclsRequest, DescribeAclsResponse)
    }),
    (ApiKey::DescribeLogDirs, |gate| {
        cluster!(gate, Describe, DescribeLogDirsRequest, DescribeLogDirsResponse)
    }),
    (ApiKey::DescribeQuorum, |gate| {
        cluster!(gate, Describe, DescribeQuorumRequest, DescribeQuorumResponse)
    }),
    (ApiKey::DescribeClientQuotas, |gate| {
        cluster!(
            gate,
            DescribeSettings,
            DescribeClientQuotasRequest,
            DescribeClientQuotasResponse
        )
    }),
    (ApiKey::DescribeUserScramCredentials, |gate| {
        cluster!(
            gate,
            Describe,
            DescribeUserScramCredentialsRequest,
            DescribeUserScramCredentialsResponse
        )
    }),
    (ApiKey::ListPartitionReassignments, |gate| {
        cluster!(
            gate,
            Describe,
            ListPartitionReassignmentsRequest,
            ListPartitionReassignmentsResponse
        )
    }),
    (ApiKey::ListConfigResources, |gate| {
        cluster!(
            gate,
            DescribeSettings,
            ListConfigResourcesRequest,
            ListConfigResourcesResponse
        )
    }),
    (ApiKey::ElectLeaders, elect_leaders),
    (ApiKey::AlterPartitionReassignments, |gate| {
        cluster!(
            gate,
            Alter,
            AlterPartitionReassignmentsRequest,
            AlterPartitionReassignmentsResponse
        )
    }),
    (ApiKey::UpdateFeatures, |gate| {
        cluster!(gate, Alter, UpdateFeaturesRequest, UpdateFeaturesResponse)
    }),
    (ApiKey::UnregisterBroker, |gate| {
        cluster!(gate, Alter, UnregisterBrokerRequest, UnregisterBrokerResponse)
    }),
    (ApiKey::CreateAcls, create_acls),
    (ApiKey::DeleteAcls, delete_acls),
    (ApiKey::AlterUserScramCredentials, alter_scram),
    (ApiKey::AlterClientQuotas, alter_quotas),
    (ApiKey::AlterReplicaLogDirs, alter_log_dirs),
    (ApiKey::WriteTxnMarkers, write_markers),
    (ApiKey::DescribeConfigs, describe_configs),
    (ApiKey::AlterConfigs, alter_configs),
    (ApiKey::IncrementalAlterConfigs, incremental_alter_configs),
    (ApiKey::InitProducerId, init_producer_id),
    (ApiKey::EndTxn, end_transaction),
    (ApiKey::AddOffsetsToTxn, add_offsets),
    (ApiKey::DescribeTransactions, describe_transactions),
    (ApiKey::FindCoordinator, find_coordinator),
];

fn end_transaction(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &EndTxnRequest| {
            gate.context
                .check_transaction(Action::Write, &asked.transactional_id)
        },
        |_, error_code| EndTxnResponse {
            error_code,
            producer_id: -1,
            producer_epoch: -1,
            ..EndTxnResponse::default()
        },
    )
}

fn add_offsets(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &AddOffsetsToTxnRequest| {
            gate.context
                .check_transaction(Action::Write, &asked.transactional_id)?;
            gate.context.check_group(Action::Read, &asked.group_id)
        },
        |_, error_code| AddOffsetsToTxnResponse {
            error_code,
            ..AddOffsetsToTxnResponse::default()
        },
    )
}

fn create_acls(gate: Gate<'_>) -> Checked {
    gate.check(
        |_: &CreateAclsRequest| gate.context.check_cluster(Action::Alter),
        |asked, error_code| CreateAclsResponse {
            results: asked
                .creations
                .iter()
                .map(|_| AclCreationResult {
                    error_code,
                    error_message: None,
                })
                .collect(),
            ..CreateAclsResponse::default()
        },
    )
}

fn delete_acls(gate: Gate<'_>) -> Checked {
    gate.check(
        |_: &DeleteAclsRequest| gate.context.check_cluster(Action::Alter),
        |asked, error_code| DeleteAclsResponse {
            filter_results: asked
                .filters
                .iter()
                .map(|_| DeleteAclsFilterResult {
                    error_code,
                    error_message: None,
                    matching_acls: Vec::new(),
                })
                .collect(),
            ..DeleteAclsResponse::default()
        },
    )
}

fn alter_scram(gate: Gate<'_>) -> Checked {
    gate.check(
        |_: &AlterUserScramCredentialsRequest| gate.context.check_cluster(Action::Alter),
        |asked, error_code| {
            let deleted = asked.deletions.into_iter().map(|deletion| deletion.name);
            let names = deleted.chain(asked.upsertions.into_iter().map(|upsertion| upsertion.name));
            AlterUserScramCredentialsResponse {
                results: names
                    .map(|user| AlterUserScramCredentialsResult {
                        user,
                        error_code,
                        error_message: None,
                    })
                    .collect(),
                ..AlterUserScramCredentialsResponse::default()
            }
        },
    )
}

fn alter_quotas(gate: Gate<'_>) -> Checked {
    gate.check(
        |_: &AlterClientQuotasRequest| gate.context.check_cluster(Action::AlterSettings),
        |asked, error_code| {
            let entries = asked.entries.into_iter().map(|entry| ResponseEntryData {
                error_code,
                error_message: None,
                entity: {
                    let entity = entry.entity.into_iter().map(|part| ResponseEntityData {
                        entity_type: part.entity_type,
                        entity_name: part.entity_name,
                    });
                    entity.collect()
                },
            });
            AlterClientQuotasResponse {
                entries: entries.collect(),
                ..AlterClientQuotasResponse::default()
            }
        },
    )
}

fn alter_log_dirs(gate: Gate<'_>) -> Checked {
    gate.check(
        |_: &AlterReplicaLogDirsRequest| gate.context.check_cluster(Action::Alter),
        |asked, error_code| {
            let topics = asked.dirs.into_iter().flat_map(|dir| dir.topics);
            let results = topics.map(|topic| dirs::AlterReplicaLogDirTopicResult {
                topic_name: topic.name,
                partitions: {
                    let partitions = topic.partitions.iter();
                    let refused = partitions.map(|index| dirs::AlterReplicaLogDirPartitionResult {
                        partition_index: *index,
                        error_code,
                    });
                    refused.collect()
                },
            });
            AlterReplicaLogDirsResponse {
                results: results.collect(),
                ..AlterReplicaLogDirsResponse::default()
            }
        },
    )
}

fn write_markers(gate: Gate<'_>) -> Checked {
    let refused = |names: &[i32], error_code| {
        let partitions = names.iter().map(|index| WritableTxnMarkerPartitionResult {
            partition_index: *index,
            error_code,
        });
        partitions.collect()
    };
    gate.check(
        |_: &WriteTxnMarkersRequest| gate.context.check_cluster(Action::Alter),
        |asked, code| {
            let markers = asked.markers.into_iter().map(|marker| WritableTxnMarkerResult {
                producer_id: marker.producer_id,
                topics: {
                    let topics = marker.topics.into_iter();
                    let topics = topics.map(|topic| WritableTxnMarkerTopicResult {
                        partitions: refused(&topic.partition_indexes, code),
                        name: topic.name,
                    });
                    topics.collect()
                },
            });
            WriteTxnMarkersResponse {
                markers: markers.collect(),
            }
        },
    )
}

/// Checks the right on a resource with settings.
fn settings(gate: Gate<'_>, action: Action, kind: i8, name: &str) -> Result<(), ErrorCode> {
    match kind {
        resources::TOPIC => gate.context.check_topic(action, name),
        resources::GROUP => gate.context.check_group(action, name),
        _ => gate.context.check_cluster(action),
    }
}

/// Returns the code for a resource of a refused request.
fn code_of(gate: Gate<'_>, action: Action, kind: i8, name: &str) -> i16 {
    let checked = settings(gate, action, kind, name);
    checked.err().unwrap_or(ErrorCode::OperationNotAttempted).code()
}

fn describe_configs(gate: Gate<'_>) -> Checked {
    let action = Action::DescribeSettings;
    gate.check(
        |asked: &DescribeConfigsRequest| {
            let mut resources = asked.resources.iter();
            resources.try_for_each(|it| settings(gate, action, it.resource_type, &it.resource_name))
        },
        |asked, _| {
            let results = asked.resources.into_iter().map(|it| DescribeConfigsResult {
                error_code: code_of(gate, action, it.resource_type, &it.resource_name),
                error_message: None,
                resource_type: it.resource_type,
                resource_name: it.resource_name,
                configs: Vec::new(),
            });
            DescribeConfigsResponse {
                results: results.collect(),
                ..DescribeConfigsResponse::default()
            }
        },
    )
}

fn alter_configs(gate: Gate<'_>) -> Checked {
    let action = Action::AlterSettings;
    gate.check(
        |asked: &AlterConfigsRequest| {
            let mut resources = asked.resources.iter();
            resources.try_for_each(|it| settings(gate, action, it.resource_type, &it.resource_name))
        },
        |asked, _| {
            let responses = asked
                .resources
                .into_iter()
                .map(|it| whole::AlterConfigsResourceResponse {
                    error_code: code_of(gate, action, it.resource_type, &it.resource_name),
                    error_message: None,
                    resource_type: it.resource_type,
                    resource_name: it.resource_name,
                });
            AlterConfigsResponse {
                responses: responses.collect(),
                ..AlterConfigsResponse::default()
            }
        },
    )
}

fn incremental_alter_configs(gate: Gate<'_>) -> Checked {
    let action = Action::AlterSettings;
    gate.check(
        |asked: &IncrementalAlterConfigsRequest| {
            let mut resources = asked.resources.iter();
            resources.try_for_each(|it| settings(gate, action, it.resource_type, &it.resource_name))
        },
        |asked, _| {
            let responses = asked
                .resources
                .into_iter()
                .map(|it| one::AlterConfigsResourceResponse {
                    error_code: code_of(gate, action, it.resource_type, &it.resource_name),
                    error_message: None,
                    resource_type: it.resource_type,
                    resource_name: it.resource_name,
                });
            IncrementalAlterConfigsResponse {
                responses: responses.collect(),
                ..IncrementalAlterConfigsResponse::default()
            }
        },
    )
}

/// A producer without a transactional id needs the right to write to some topic.
fn init_producer_id(gate: Gate<'_>) -> Checked {
    gate.check(
        |asked: &InitProducerIdRequest| match &asked.transactional_id {
            Some(id) => gate.context.check_transaction(Action::Write, id),
            None if gate.context.caller().may_any(Action::Write, Kind::Topic.into()) => Ok(()),
            None => gate.context.check_cluster(Action::WriteIdempotent),
        },
        |_, error_code| InitProducerIdResponse {
            error_code,
            producer_id: -1,
            producer_epoch: -1,
            ..InitProducerIdResponse::default()
        },
    )
}

fn describe_transactions(gate: Gate<'_>) -> Checked {
    let check = |id: &str| gate.context.check_transaction(Action::Describe, id);
    gate.check(
        |asked: &DescribeTransactionsRequest| asked.transactional_ids.iter().try_for_each(|id| check(id)),
        |asked, _| {
            let states = asked.transactional_ids.into_iter().map(|id| TransactionState {
                error_code: check(&id)
                    .err()
                    .unwrap_or(ErrorCode::OperationNotAttempted)
                    .code(),
                transactional_id: id,
                ..TransactionState::default()
            });
            DescribeTransactionsResponse {
                transaction_states: states.collect(),
                ..DescribeTransactionsResponse::default()
            }
        },
    )
}

fn elect_leaders(gate: Gate<'_>) -> Checked {
    gate.check(
        |_: &ElectLeadersRequest| gate.context.check_cluster(Action::Alter),
        |asked, code| {
            // The first version has codes of partitions alone.
            let of_all = gate.call.version > 0;
            let topics = asked.topic_partitions.into_iter().flatten();
            let results = topics.map(|topic| ReplicaElectionResult {
                topic: topic.topic,
                partition_result: {
                    let partitions = topic.partitions.into_iter();
                    let refused = partitions.map(|partition_id| PartitionResult {
                        partition_id,
                        error_code: code,
                        error_message: None,
                    });
                    refused.collect()
                },
            });
            ElectLeadersResponse {
                error_code: if of_all { code } else { 0 },
                replica_election_results: results.collect(),
                ..ElectLeadersResponse::default()
            }
        },
    )
}

fn find_coordinator(gate: Gate<'_>) -> Checked {
    const TRANSACTION: i8 = 1;
    let check = |kind: i8, name: &str| {
        if kind == TRANSACTION {
            gate.context.check_transaction(Action::Describe, name)
        } else {
            gate.context.check_group(Action::Describe, name)
        }
    };
    let keys_of = |asked: &FindCoordinatorRequest| {
        if gate.call.version < 4 {
            vec![asked.key.clone()]
        } else {
            asked.coordinator_keys.clone()
        }
    };
    gate.check(
        |asked: &FindCoordinatorRequest| {
            let keys = keys_of(asked);
            keys.iter().try_for_each(|key| check(asked.key_type, key))
        },
        |asked, code| {
            let coordinators = asked.coordinator_keys.iter().map(|key| Coordinator {
                key: key.clone(),
                node_id: -1,
                port: -1,
                error_code: check(asked.key_type, key)
                    .err()
                    .unwrap_or(ErrorCode::OperationNotAttempted)
                    .code(),
                ..Coordinator::default()
            });
            // Later versions have these in the rows alone.
            let (error_code, none) = if gate.call.version < 4 { (code, -1) } else { (0, 0) };
            FindCoordinatorResponse {
                error_code,
                error_message: None,
                node_id: none,
                port: none,
                coordinators: coordinators.collect(),
                ..FindCoordinatorResponse::default()
            }
        },
    )
}
