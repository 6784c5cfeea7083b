//! Requests of a user without any rule, about things that are there: Apache Kafka's answers, in
//! `refused.tsv`. Each API that the broker lists has a case.

use std::fmt::Write as _;

use stafett_kafka_wire::messages::add_partitions_to_txn::AddPartitionsToTxnTopic;
use stafett_kafka_wire::messages::create_partitions::CreatePartitionsTopic;
use stafett_kafka_wire::messages::create_topics::CreatableTopic;
use stafett_kafka_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use stafett_kafka_wire::messages::offset_for_leader_epoch::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use stafett_kafka_wire::messages::write_txn_markers::{WritableTxnMarker, WritableTxnMarkerTopic};
use stafett_kafka_wire::messages::*;
use stafett_kafka_wire::{Request, Uuid};

use super::asker::{Asker, codes_of, text};
use super::{Case, admin, case, groups, groups_new, kept, offsets, produce, read, settings, shares};
use super::{transactions, write};
use crate::access::Closed;
use crate::broker::{Broker, is_stafett};

const TABLE: &str = "tests/clients/odd/refused.tsv";
const TOPIC: &str = "secret";
const GROUP: &str = "refused";
const ID: &str = "refused.id";
/// Kinds of resources in requests about settings.
const OF_TOPIC: i8 = 2;
const OF_BROKER: i8 = 4;
const OF_GROUP: i8 = 32;

/// A request in a version.
fn at<R: Request + 'static>(name: &str, version: i16, request: R) -> Case {
    case(name, move |a| a.codes(version, &request))
}

/// A request in its latest version.
fn latest<R: Request + 'static>(name: &str, request: R) -> Case {
    at(name, R::KEY.versions().max, request)
}

/// A list, with the number of its entries: those that the user may see.
fn listed<R: Request + 'static>(name: &str, request: R, count: fn(&R::Response) -> usize) -> Case {
    case(name, move |a| match a.ask(R::KEY.versions().max, &request) {
        Ok(response) => format!("{}, {} listed", codes_of(&response), count(&response)),
        Err(ended) => ended.name(),
    })
}

fn of_topics() -> Vec<Case> {
    vec![
        at("Produce", 9, produce::produce(TOPIC, 0, Some(produce::batch(1)))),
        at("Fetch", 12, read::fetch(TOPIC, Uuid::ZERO, 0, 0)),
        at("ListOffsets", 7, read::list(TOPIC, 0, -1, -1)),
        at(
            "Metadata: a topic",
            12,
            read::metadata(Some(TOPIC), Uuid::ZERO, false),
        ),
        at(
            "Metadata: a topic that is not there",
            12,
            read::metadata(Some("nowhere"), Uuid::ZERO, true),
        ),
        listed(
            "Metadata: all",
            MetadataRequest {
                topics: None,
                ..MetadataRequest::default()
            },
            |response| response.topics.len(),
        ),
        latest(
            "DescribeTopicPartitions",
            DescribeTopicPartitionsRequest {
                topics: vec![describe_topic_partitions::TopicRequest { name: text(TOPIC) }],
                ..DescribeTopicPartitionsRequest::default()
            },
        ),
        latest(
            "DescribeTopicPartitions: all",
            DescribeTopicPartitionsRequest::default(),
        ),
        at(
            "CreateTopics",
            7,
            CreateTopicsRequest {
                topics: vec![CreatableTopic {
                    name: text("new"),
                    num_partitions: 1,
                    replication_factor: 1,
                    ..CreatableTopic::default()
                }],
                timeout_ms: 30_000,
                validate_only: false,
            },
        ),
        at(
            "DeleteTopics",
            5,
            DeleteTopicsRequest {
                topic_names: vec![text(TOPIC), text("nowhere")],
                timeout_ms: 30_000,
                ..DeleteTopicsRequest::default()
            },
        ),
        latest(
            "DeleteRecords",
            DeleteRecordsRequest {
                topics: vec![DeleteRecordsTopic {
                    name: text(TOPIC),
                    partitions: vec![DeleteRecordsPartition {
                        partition_index: 0,
                        offset: 1,
                    }],
                }],
                timeout_ms: 30_000,
            },
        ),
        latest(
            "CreatePartitions",
            CreatePartitionsRequest {
                topics: vec![CreatePartitionsTopic {
                    name: text(TOPIC),
                    count: 2,
                    assignments: None,
                }],
                timeout_ms: 30_000,
                validate_only: false,
            },
        ),
        latest(
            "OffsetForLeaderEpoch",
            OffsetForLeaderEpochRequest {
                replica_id: -1,
                topics: vec![OffsetForLeaderTopic {
                    topic: text(TOPIC),
                    partitions: vec![OffsetForLeaderPartition {
                        partition: 0,
                        current_leader_epoch: -1,
                        leader_epoch: 0,
                    }],
                }],
            },
        ),
        latest(
            "DescribeProducers",
            DescribeProducersRequest {
                topics: vec![describe_producers::TopicRequest {
                    name: text(TOPIC),
                    partition_indexes: vec![0],
                }],
            },
        ),
    ]
}

fn of_groups() -> Vec<Case> {
    let find = |key_type, key| FindCoordinatorRequest {
        key_type,
        coordinator_keys: vec![text(key)],
        ..FindCoordinatorRequest::default()
    };
    vec![
        at("FindCoordinator: a group", 4, find(0, GROUP)),
        at("FindCoordinator: a transactional id", 4, find(1, ID)),
        at("JoinGroup", 9, groups::join(GROUP, "")),
        at("SyncGroup", 5, groups::sync(GROUP, "m", 1, false)),
        at(
            "Heartbeat",
            4,
            HeartbeatRequest {
                group_id: text(GROUP),
                member_id: text("m"),
                ..HeartbeatRequest::default()
            },
        ),
        at(
            "LeaveGroup",
            5,
            LeaveGroupRequest {
                group_id: text(GROUP),
                ..LeaveGroupRequest::default()
            },
        ),
        at("OffsetCommit", 9, offsets::commit(GROUP, "", -1, TOPIC, 0, 1)),
        at("OffsetFetch", 9, offsets::fetch(GROUP, Some(TOPIC))),
        at("OffsetFetch: all", 9, offsets::fetch(GROUP, None)),
        latest("OffsetDelete", offsets::delete(GROUP, TOPIC)),
        latest(
            "DescribeGroups",
            DescribeGroupsRequest {
                groups: vec![text(GROUP)],
                include_authorized_operations: true,
            },
        ),
        listed("ListGroups", ListGroupsRequest::default(), |response| {
            response.groups.len()
        }),
        latest(
            "DeleteGroups",
            DeleteGroupsRequest {
                groups_names: vec![text(GROUP)],
            },
        ),
        latest("ConsumerGroupHeartbeat", groups_new::first(GROUP)),
        latest(
            "ConsumerGroupDescribe",
            ConsumerGroupDescribeRequest {
                group_ids: vec![text(GROUP)],
                include_authorized_operations: false,
            },
        ),
        latest(
            "ShareGroupHeartbeat",
            shares::first(GROUP, "8QeCkLaTQVeKdWBWsvmUEw"),
        ),
        latest(
            "ShareGroupDescribe",
            ShareGroupDescribeRequest {
                group_ids: vec![text(GROUP)],
                include_authorized_operations: false,
            },
        ),
        latest(
            "ShareFetch",
            ShareFetchRequest {
                group_id: Some(text(GROUP)),
                member_id: Some(text("8QeCkLaTQVeKdWBWsvmUEw")),
                max_bytes: 1 << 20,
                max_records: 1,
                batch_size: 1,
                ..ShareFetchRequest::default()
            },
        ),
        latest(
            "ShareAcknowledge",
            ShareAcknowledgeRequest {
                group_id: Some(text(GROUP)),
                member_id: Some(text("8QeCkLaTQVeKdWBWsvmUEw")),
                share_session_epoch: 1,
                ..ShareAcknowledgeRequest::default()
            },
        ),
        latest(
            "DescribeShareGroupOffsets",
            DescribeShareGroupOffsetsRequest {
                groups: vec![
                    describe_share_group_offsets::DescribeShareGroupOffsetsRequestGroup {
                        group_id: text(GROUP),
                        topics: None,
                    },
                ],
            },
        ),
        latest(
            "AlterShareGroupOffsets",
            AlterShareGroupOffsetsRequest {
                group_id: text(GROUP),
                topics: Vec::new(),
            },
        ),
        latest(
            "DeleteShareGroupOffsets",
            DeleteShareGroupOffsetsRequest {
                group_id: text(GROUP),
                topics: Vec::new(),
            },
        ),
    ]
}

fn of_transactions() -> Vec<Case> {
    vec![
        at(
            "InitProducerId: a transactional id",
            4,
            transactions::init(ID, 60_000, -1, -1),
        ),
        at(
            "InitProducerId: idempotent",
            4,
            InitProducerIdRequest {
                transactional_id: None,
                ..transactions::init(ID, 60_000, -1, -1)
            },
        ),
        at(
            "AddPartitionsToTxn",
            3,
            AddPartitionsToTxnRequest {
                v3_and_below_transactional_id: text(ID),
                v3_and_below_topics: vec![AddPartitionsToTxnTopic {
                    name: text(TOPIC),
                    partitions: vec![0],
                }],
                ..AddPartitionsToTxnRequest::default()
            },
        ),
        at(
            "AddOffsetsToTxn",
            3,
            AddOffsetsToTxnRequest {
                transactional_id: text(ID),
                group_id: text(GROUP),
                ..AddOffsetsToTxnRequest::default()
            },
        ),
        at(
            "EndTxn",
            3,
            EndTxnRequest {
                transactional_id: text(ID),
                ..EndTxnRequest::default()
            },
        ),
        at(
            "TxnOffsetCommit",
            3,
            TxnOffsetCommitRequest {
                transactional_id: text(ID),
                group_id: text(GROUP),
                generation_id: -1,
                topics: vec![txn_offset_commit::TxnOffsetCommitRequestTopic {
                    name: text(TOPIC),
                    partitions: vec![txn_offset_commit::TxnOffsetCommitRequestPartition::default()],
                }],
                ..TxnOffsetCommitRequest::default()
            },
        ),
        latest(
            "WriteTxnMarkers",
            WriteTxnMarkersRequest {
                markers: vec![WritableTxnMarker {
                    producer_id: 1,
                    producer_epoch: 0,
                    transaction_result: true,
                    topics: vec![WritableTxnMarkerTopic {
                        name: text(TOPIC),
                        partition_indexes: vec![0],
                    }],
                    coordinator_epoch: 0,
                    transaction_version: 0,
                }],
            },
        ),
        latest(
            "DescribeTransactions",
            DescribeTransactionsRequest {
                transactional_ids: vec![text(ID)],
            },
        ),
        listed(
            "ListTransactions",
            ListTransactionsRequest::default(),
            |response| response.transaction_states.len(),
        ),
    ]
}

fn of_settings() -> Vec<Case> {
    let whole = |kind| AlterConfigsRequest {
        resources: vec![alter_configs::AlterConfigsResource {
            resource_type: kind,
            resource_name: text(TOPIC),
            configs: Vec::new(),
        }],
        validate_only: true,
    };
    let change = [("retention.ms", 0, Some("1"))];
    vec![
        latest(
            "DescribeConfigs: a topic",
            settings::describe(OF_TOPIC, TOPIC, None),
        ),
        latest(
            "DescribeConfigs: a broker",
            settings::describe(OF_BROKER, "1", None),
        ),
        latest(
            "DescribeConfigs: a group",
            settings::describe(OF_GROUP, GROUP, None),
        ),
        latest("AlterConfigs: a topic", whole(OF_TOPIC)),
        latest(
            "IncrementalAlterConfigs: a topic",
            settings::incremental(OF_TOPIC, TOPIC, &change),
        ),
        latest(
            "IncrementalAlterConfigs: a broker",
            settings::incremental(OF_BROKER, "1", &change),
        ),
        latest(
            "IncrementalAlterConfigs: a group",
            settings::incremental(OF_GROUP, GROUP, &change),
        ),
        latest("ListConfigResources", ListConfigResourcesRequest::default()),
        latest("DescribeClientQuotas", DescribeClientQuotasRequest::default()),
        latest(
            "AlterClientQuotas",
            AlterClientQuotasRequest {
                entries: vec![alter_client_quotas::RequestEntryData {
                    entity: vec![alter_client_quotas::RequestEntityData {
                        entity_type: text("user"),
                        entity_name: Some(text("eve")),
                    }],
                    ops: Vec::new(),
                }],
                validate_only: true,
            },
        ),
        latest(
            "DescribeUserScramCredentials",
            DescribeUserScramCredentialsRequest::default(),
        ),
        latest(
            "AlterUserScramCredentials",
            AlterUserScramCredentialsRequest {
                deletions: vec![alter_user_scram_credentials::ScramCredentialDeletion {
                    name: text("eve"),
                    mechanism: 1,
                }],
                upsertions: Vec::new(),
            },
        ),
    ]
}

fn of_cluster() -> Vec<Case> {
    const ANY: i8 = 1;
    vec![
        latest(
            "DescribeAcls",
            DescribeAclsRequest {
                resource_type_filter: ANY,
                pattern_type_filter: ANY,
                operation: ANY,
                permission_type: ANY,
                ..DescribeAclsRequest::default()
            },
        ),
        latest(
            "CreateAcls",
            CreateAclsRequest {
                creations: vec![create_acls::AclCreation {
                    resource_type: OF_TOPIC,
                    resource_name: text(TOPIC),
                    resource_pattern_type: 3,
                    principal: text("User:eve"),
                    host: text("*"),
                    operation: 3,
                    permission_type: 3,
                }],
            },
        ),
        latest(
            "DeleteAcls",
            DeleteAclsRequest {
                filters: vec![delete_acls::DeleteAclsFilter {
                    resource_type_filter: ANY,
                    resource_name_filter: None,
                    pattern_type_filter: ANY,
                    principal_filter: None,
                    host_filter: None,
                    operation: ANY,
                    permission_type: ANY,
                }],
            },
        ),
        latest("DescribeLogDirs", DescribeLogDirsRequest::default()),
        latest(
            "AlterReplicaLogDirs",
            AlterReplicaLogDirsRequest {
                dirs: vec![alter_replica_log_dirs::AlterReplicaLogDir {
                    path: text("/nowhere"),
                    topics: vec![alter_replica_log_dirs::AlterReplicaLogDirTopic {
                        name: text(TOPIC),
                        partitions: vec![0],
                    }],
                }],
            },
        ),
        latest("ElectLeaders", admin::elect(TOPIC, 0)),
        latest(
            "AlterPartitionReassignments",
            AlterPartitionReassignmentsRequest {
                timeout_ms: 1000,
                topics: vec![alter_partition_reassignments::ReassignableTopic {
                    name: text(TOPIC),
                    partitions: Vec::new(),
                }],
                ..AlterPartitionReassignmentsRequest::default()
            },
        ),
        latest(
            "ListPartitionReassignments",
            ListPartitionReassignmentsRequest::default(),
        ),
        latest("DescribeQuorum", DescribeQuorumRequest::default()),
        latest("UpdateFeatures", admin::update("metadata.version", 1)),
        latest("UnregisterBroker", UnregisterBrokerRequest { broker_id: 7 }),
        latest("DescribeCluster", DescribeClusterRequest::default()),
        latest("CreateDelegationToken", CreateDelegationTokenRequest::default()),
        latest("RenewDelegationToken", RenewDelegationTokenRequest::default()),
        latest("ExpireDelegationToken", ExpireDelegationTokenRequest::default()),
        latest(
            "DescribeDelegationToken",
            DescribeDelegationTokenRequest::default(),
        ),
    ]
}

fn cases() -> Vec<Case> {
    let all = [
        of_topics(),
        of_groups(),
        of_transactions(),
        of_settings(),
        of_cluster(),
    ];
    all.into_iter().flatten().collect()
}

/// A broker on which `root` may do everything and `bob` nothing.
enum Brokers {
    Own(Closed),
    Peer(Broker),
}

impl Brokers {
    fn start() -> Self {
        if !is_stafett() {
            return Self::Peer(Broker::start_with("os", &["peer.users=root,bob"]));
        }
        let closed = Closed::start();
        closed.user("bob", &[], true);
        Self::Own(closed)
    }

    fn asker(&self, user: &str) -> Asker {
        let address = match self {
            Self::Own(closed) => closed.broker.kafka(),
            Self::Peer(broker) => broker.kafka(),
        };
        let mut asker = Asker::connect(address);
        asker.log_in(user, &format!("pw-{user}"));
        asker
    }
}

#[test]
fn a_user_without_rules_is_answered_as_kafka_answers_it() {
    let brokers = Brokers::start();
    let mut root = brokers.asker("root");
    root.await_coordinator();
    produce::filled(&mut root, TOPIC);
    assert_eq!(
        root.codes_of_coordinator(9, &offsets::commit(GROUP, "", -1, TOPIC, 0, 1)),
        "0"
    );
    let find = FindCoordinatorRequest {
        key_type: 1,
        coordinator_keys: vec![text(ID)],
        ..FindCoordinatorRequest::default()
    };
    assert_eq!(root.codes_of_coordinator(4, &find), "0 0");
    // Kafka makes its topic of transactions just now, and answers 16 until its broker leads it.
    assert_eq!(
        root.codes_of_coordinator(4, &transactions::init(ID, 60_000, -1, -1)),
        "0"
    );
    let names: Vec<String> = cases().into_iter().map(|(name, _)| name).collect();
    for api in root.served() {
        let is_of_login = ["ApiVersions", "SaslHandshake", "SaslAuthenticate"].contains(&&*api);
        let has_case = names.iter().any(|name| name.split(':').next() == Some(&*api));
        assert!(has_case || is_of_login || !is_stafett(), "{api} needs a case");
    }
    let recording = std::env::var_os("STAFETT_TEST_WRITE_ANSWERS").is_some() && !is_stafett();
    let (mut table, mut wrong) = (kept(TABLE), String::new());
    for (name, run) in cases() {
        let answer = run(&mut brokers.asker("bob"));
        if recording {
            let own = table.remove(&name).and_then(|kept| kept.own);
            table.insert(name, super::Kept { kafka: answer, own });
            continue;
        }
        let expected = table.get(&name).map_or("not in the table", super::Kept::expected);
        if answer != expected {
            let _ = writeln!(wrong, "{name}: expected {expected}, got {answer}");
        }
    }
    if recording {
        table.retain(|name, _| names.contains(name));
        write(TABLE, &table);
    }
    assert!(wrong.is_empty(), "{wrong}");
}
