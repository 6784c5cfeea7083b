//! Errors of administrative requests that cannot be served: the codes are those of Kafka 4.3.1.
//!
//! With `STAFETT_TEST_KAFKA_ADDR` the same requests also go to the broker at that address: `tools/peers/kafka
//! up` starts Kafka.

use stafett_kafka_wire::messages::create_partitions::{CreatePartitionsAssignment, CreatePartitionsTopic};
use stafett_kafka_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use stafett_kafka_wire::messages::describe_client_quotas::ComponentData;
use stafett_kafka_wire::messages::describe_topic_partitions::{RequestCursor, TopicRequest};
use stafett_kafka_wire::messages::elect_leaders::TopicPartitions;
use stafett_kafka_wire::messages::offset_for_leader_epoch::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use stafett_kafka_wire::messages::update_features::FeatureUpdateKey;
use stafett_kafka_wire::messages::{
    AlterConfigsRequest, AlterPartitionReassignmentsRequest, AlterReplicaLogDirsRequest, CreateAclsRequest,
    CreateDelegationTokenRequest, CreatePartitionsRequest, CreateTopicsRequest, DeleteAclsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeAclsRequest, DescribeClientQuotasRequest,
    DescribeConfigsRequest, DescribeDelegationTokenRequest, DescribeProducersRequest, DescribeQuorumRequest,
    DescribeTopicPartitionsRequest, DescribeTransactionsRequest, DescribeUserScramCredentialsRequest,
    ElectLeadersRequest, GetTelemetrySubscriptionsRequest, IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest, ListTransactionsRequest, OffsetForLeaderEpochRequest, PushTelemetryRequest,
    RenewDelegationTokenRequest, SaslHandshakeRequest, UnregisterBrokerRequest, UpdateFeaturesRequest,
    alter_configs as whole, alter_partition_reassignments as moves, alter_replica_log_dirs as dirs,
    create_acls, create_topics, delete_acls, delete_topics, describe_configs, describe_producers,
    describe_quorum, describe_user_scram_credentials as scram, incremental_alter_configs as one,
};
use stafett_kafka_wire::{Str, Uuid};

use crate::peer::{Client, Server, batch, produce};

const TOPIC: &str = "answers";

#[tokio::test]
async fn what_cannot_be_is_answered_as_kafka_answers_it() {
    let server = Server::start().await;
    let mut addresses = vec![server.address];
    if let Ok(other) = std::env::var("STAFETT_TEST_KAFKA_ADDR") {
        addresses.push(other.parse().unwrap());
    }
    for address in addresses {
        let mut client = Client::connect(address).await;
        client.create(TOPIC, 1).await;
        // Kafka elects leaders some time after the topic is created.
        let request = produce(-1, TOPIC, 0, batch(&["a", "b", "c"]));
        while client.call(9, &request).await.responses[0].partition_responses[0].error_code != 0 {}
        topics(&mut client).await;
        settings(&mut client).await;
        partitions(&mut client).await;
        cluster(&mut client).await;
        access(&mut client).await;
        let names = [delete_topics::DeleteTopicState {
            name: Some(TOPIC.into()),
            topic_id: Uuid::ZERO,
        }];
        assert_eq!(deleted(&mut client, &names).await, [0]);
    }
}

async fn deleted(client: &mut Client, topics: &[delete_topics::DeleteTopicState]) -> Vec<i16> {
    let request = DeleteTopicsRequest {
        topics: topics.to_vec(),
        timeout_ms: 5000,
        ..DeleteTopicsRequest::default()
    };
    let responses = client.call(6, &request).await.responses;
    responses.iter().map(|topic| topic.error_code).collect()
}

async fn topics(client: &mut Client) {
    let topic = |name: &'static str, num_partitions, replication_factor| create_topics::CreatableTopic {
        name: name.into(),
        num_partitions,
        replication_factor,
        ..create_topics::CreatableTopic::default()
    };
    let twice = topic("answers-2", 1, 1);
    let cases = [
        (vec![topic(TOPIC, 1, 1)], 36),
        (vec![topic("a b", 1, 1)], 17),
        (vec![topic("", 1, 1)], 17),
        (vec![topic("answers-2", 0, 1)], 37),
        (vec![topic("answers-2", 10_001, 1)], 44),
        (vec![topic("answers-2", 1, 0)], 38),
        (vec![topic("answers-2", 1, 2)], 38),
        (vec![twice.clone(), twice], 42),
    ];
    for (topics, expected) in cases {
        let what = format!("{topics:?}");
        let request = CreateTopicsRequest {
            topics,
            timeout_ms: 5000,
            validate_only: true,
        };
        let told = client.call(7, &request).await.topics;
        assert_eq!(told.len(), 1, "{what}");
        assert_eq!(
            told[0].error_code, expected,
            "{what}: {:?}",
            told[0].error_message
        );
    }
    let named = |name: Option<&'static str>, id: u128| delete_topics::DeleteTopicState {
        name: name.map(Str::from_static),
        topic_id: Uuid::from(id),
    };
    for (topics, expected) in [
        (vec![named(None, 0)], 42),
        (vec![named(Some("nowhere"), 0)], 3),
        (vec![named(Some("a b"), 0)], 3),
        (vec![named(None, 77)], 100),
        (vec![named(Some(TOPIC), 77)], 42),
        (vec![named(Some(TOPIC), 0), named(Some(TOPIC), 0)], 42),
    ] {
        assert_eq!(deleted(client, &topics).await, [expected], "{topics:?}");
    }
}

/// Name of a setting, operation, and value.
type Set = (&'static str, i8, Option<&'static str>);

/// Sends one change of one setting and returns the result.
async fn altered(client: &mut Client, kind: i8, name: &'static str, set: &[Set]) -> i16 {
    let configs = set.iter().map(|(name, operation, value)| one::AlterableConfig {
        name: Str::from_static(name),
        config_operation: *operation,
        value: value.map(Str::from_static),
    });
    let request = IncrementalAlterConfigsRequest {
        resources: vec![one::AlterConfigsResource {
            resource_type: kind,
            resource_name: name.into(),
            configs: configs.collect(),
        }],
        validate_only: true,
    };
    client.call(1, &request).await.responses[0].error_code
}

#[expect(clippy::too_many_lines, reason = "a table")]
async fn settings(client: &mut Client) {
    let cases: &[(i8, &str, &[Set], i16)] = &[
        (2, TOPIC, &[("retention.ms", 0, Some("1"))], 0),
        (2, TOPIC, &[("retention.ms", 1, None)], 0),
        (2, TOPIC, &[("retention.ms", 0, Some("soon"))], 40),
        (2, TOPIC, &[("retention.ms", 0, Some("-2"))], 40),
        (2, TOPIC, &[("retention.ms", 0, None)], 42),
        (2, TOPIC, &[("retention.ms", 2, Some("1"))], 40),
        (2, TOPIC, &[("no.such", 0, Some("1"))], 40),
        (2, TOPIC, &[("no.such", 1, None)], 0),
        (
            2,
            TOPIC,
            &[("retention.ms", 0, Some("1")), ("retention.ms", 0, Some("2"))],
            42,
        ),
        (2, TOPIC, &[("cleanup.policy", 2, Some("delete"))], 0),
        (2, "nowhere", &[("retention.ms", 0, Some("1"))], 3),
        (2, "a b", &[("retention.ms", 0, Some("1"))], 17),
        (4, "1", &[("log.retention.ms", 0, Some("1000"))], 0),
        (4, "", &[("log.retention.ms", 0, Some("1000"))], 0),
        (4, "7", &[("log.retention.ms", 0, Some("1000"))], 42),
        (4, "x", &[("log.retention.ms", 0, Some("1000"))], 42),
        (4, "1", &[("node.id", 0, Some("3"))], 42),
        (4, "1", &[("log.segment.bytes", 0, Some("x"))], 42),
        (32, "g", &[("consumer.session.timeout.ms", 0, Some("50000"))], 0),
        (32, "g", &[("consumer.session.timeout.ms", 0, Some("1"))], 40),
        (32, "g", &[("no.such", 0, Some("1"))], 40),
        (32, "", &[("consumer.session.timeout.ms", 0, Some("50000"))], 42),
        (5, "x", &[("a", 0, Some("1"))], 42),
    ];
    let mut wrong = Vec::new();
    for (kind, name, set, expected) in cases {
        let code = altered(client, *kind, name, set).await;
        if code != *expected {
            wrong.push(format!("{kind} {name:?} {set:?}: {code}, expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let config = |name: &'static str, value: Option<&'static str>| whole::AlterableConfig {
        name: name.into(),
        value: value.map(Str::from_static),
    };
    for (kind, name, configs, expected) in [
        (2, TOPIC, vec![config("retention.ms", Some("1"))], 0),
        (2, TOPIC, vec![config("retention.ms", Some("x"))], 40),
        (2, TOPIC, vec![config("retention.ms", None)], 42),
        (2, "nowhere", vec![config("retention.ms", Some("1"))], 3),
    ] {
        let what = format!("{name} {configs:?}");
        let resource = whole::AlterConfigsResource {
            resource_type: kind,
            resource_name: name.into(),
            configs,
        };
        let request = AlterConfigsRequest {
            resources: vec![resource],
            validate_only: true,
        };
        let code = client.call(2, &request).await.responses[0].error_code;
        assert_eq!(code, expected, "{what}");
    }
    for (kind, name, expected) in [
        (2, TOPIC, 0),
        (2, "nowhere", 3),
        (2, "", 17),
        (4, "7", 42),
        (4, "x", 42),
        (8, "", 42),
        (8, "1", 0),
        (16, "", 42),
        (32, "", 42),
        (0, "x", 42),
        (5, "x", 42),
    ] {
        let request = DescribeConfigsRequest {
            resources: vec![describe_configs::DescribeConfigsResource {
                resource_type: kind,
                resource_name: name.into(),
                configuration_keys: None,
            }],
            ..DescribeConfigsRequest::default()
        };
        let code = client.call(4, &request).await.results[0].error_code;
        assert_eq!(code, expected, "describing {kind} {name:?}");
    }
    let request = DescribeConfigsRequest {
        resources: vec![describe_configs::DescribeConfigsResource {
            resource_type: 4,
            resource_name: "1".into(),
            configuration_keys: None,
        }],
        ..DescribeConfigsRequest::default()
    };
    let described = client.call(4, &request).await;
    for (name, source) in [("advertised.listeners", 4), ("fetch.max.bytes", 5)] {
        let config = described.results[0]
            .configs
            .iter()
            .find(|config| &*config.name == name);
        assert_eq!(config.map(|config| config.config_source), Some(source), "{name}");
    }
    for (kinds, expected) in [(vec![2], 0), (vec![0], 35), (vec![99], 35), (vec![16, 32], 0)] {
        let request = ListConfigResourcesRequest {
            resource_types: kinds,
        };
        assert_eq!(client.call(1, &request).await.error_code, expected);
    }
}

#[expect(clippy::too_many_lines, reason = "a table")]
async fn partitions(client: &mut Client) {
    let grow = |name: &'static str, count, assignments: Option<Vec<Vec<i32>>>| CreatePartitionsTopic {
        name: name.into(),
        count,
        assignments: assignments.map(|all| {
            let assignment = |broker_ids| CreatePartitionsAssignment { broker_ids };
            all.into_iter().map(assignment).collect()
        }),
    };
    for (topic, expected) in [
        (grow(TOPIC, 2, None), 0),
        (grow(TOPIC, 1, None), 37),
        (grow(TOPIC, -1, None), 37),
        (grow("nowhere", 5, None), 3),
        (grow(TOPIC, 3, Some(vec![vec![1]])), 39),
        (grow(TOPIC, 2, Some(vec![vec![2]])), 39),
        (grow(TOPIC, 2, Some(vec![vec![1, 1]])), 39),
        (grow(TOPIC, 2, Some(vec![vec![]])), 39),
        (grow(TOPIC, 2, Some(vec![])), 39),
    ] {
        let what = format!("{topic:?}");
        let request = CreatePartitionsRequest {
            topics: vec![topic],
            timeout_ms: 5000,
            validate_only: true,
        };
        assert_eq!(
            client.call(3, &request).await.results[0].error_code,
            expected,
            "{what}"
        );
    }
    for (name, partition_index, offset, expected) in [
        (TOPIC, 0, 4, 1),
        (TOPIC, 0, -2, 1),
        (TOPIC, 9, 0, 3),
        ("nowhere", 0, 0, 3),
        (TOPIC, 0, 1, 0),
    ] {
        let partitions = vec![DeleteRecordsPartition {
            partition_index,
            offset,
        }];
        let topics = vec![DeleteRecordsTopic {
            name: name.into(),
            partitions,
        }];
        let request = DeleteRecordsRequest {
            topics,
            timeout_ms: 5000,
        };
        let told = client
            .call(2, &request)
            .await
            .topics
            .remove(0)
            .partitions
            .remove(0);
        let low = if expected == 0 { 1 } else { -1 };
        assert_eq!(
            (told.error_code, told.low_watermark),
            (expected, low),
            "{name} {offset}"
        );
    }
    for (election_type, name, partition, expected) in [
        (0, TOPIC, 0, 84),
        (1, TOPIC, 0, 84),
        (0, TOPIC, 9, 3),
        (0, "nowhere", 0, 3),
        (2, TOPIC, 0, 42),
    ] {
        let request = ElectLeadersRequest {
            election_type,
            topic_partitions: Some(vec![TopicPartitions {
                topic: name.into(),
                partitions: vec![partition],
            }]),
            timeout_ms: 5000,
        };
        let told = &client.call(2, &request).await.replica_election_results[0].partition_result[0];
        assert_eq!(told.error_code, expected, "{told:?}");
    }
    for (name, partition_index, replicas, expected) in [
        (TOPIC, 0, Some(vec![1]), 0),
        (TOPIC, 0, Some(vec![2]), 39),
        (TOPIC, 0, Some(vec![]), 39),
        (TOPIC, 0, None, 85),
        (TOPIC, 9, None, 3),
        ("nowhere", 0, None, 3),
    ] {
        let partitions = vec![moves::ReassignablePartition {
            partition_index,
            replicas,
        }];
        let topics = vec![moves::ReassignableTopic {
            name: name.into(),
            partitions,
        }];
        let request = AlterPartitionReassignmentsRequest {
            topics,
            ..AlterPartitionReassignmentsRequest::default()
        };
        let told = &client.call(1, &request).await.responses[0].partitions[0];
        assert_eq!(told.error_code, expected, "{told:?}");
    }
    let request = AlterReplicaLogDirsRequest {
        dirs: vec![dirs::AlterReplicaLogDir {
            path: "/nowhere".into(),
            topics: vec![dirs::AlterReplicaLogDirTopic {
                name: TOPIC.into(),
                partitions: vec![0],
            }],
        }],
    };
    assert_eq!(
        client.call(2, &request).await.results[0].partitions[0].error_code,
        57
    );
    for (name, partition, current_leader_epoch, leader_epoch, expected) in [
        (TOPIC, 0, -1, -1, 0),
        (TOPIC, 0, -1, 1000, 0),
        (TOPIC, 0, 1000, 0, 75),
        (TOPIC, 0, -2, 0, 74),
        (TOPIC, 9, -1, 0, 3),
        ("nowhere", 0, -1, 0, 3),
    ] {
        let asked = OffsetForLeaderPartition {
            partition,
            current_leader_epoch,
            leader_epoch,
        };
        let topics = vec![OffsetForLeaderTopic {
            topic: name.into(),
            partitions: vec![asked],
        }];
        let request = OffsetForLeaderEpochRequest {
            replica_id: -1,
            topics,
        };
        let told = client
            .call(4, &request)
            .await
            .topics
            .remove(0)
            .partitions
            .remove(0);
        let none = (expected, -1, -1);
        assert_eq!(
            (told.error_code, told.leader_epoch, told.end_offset),
            none,
            "{told:?}"
        );
    }
    for (name, partition, expected) in [(TOPIC, 0, 0), (TOPIC, 9, 3), ("nowhere", 0, 3), ("a b", 0, 17)] {
        let request = DescribeProducersRequest {
            topics: vec![describe_producers::TopicRequest {
                name: name.into(),
                partition_indexes: vec![partition],
            }],
        };
        let told = client
            .call(0, &request)
            .await
            .topics
            .remove(0)
            .partitions
            .remove(0);
        assert_eq!(told.error_code, expected, "{told:?}");
    }
}

#[expect(clippy::too_many_lines, reason = "a table")]
async fn cluster(client: &mut Client) {
    let topic = |name: &'static str| TopicRequest { name: name.into() };
    for (names, cursor, expected) in [
        (vec![TOPIC], None, 0),
        (vec!["nowhere"], None, 3),
        (vec!["a b"], None, 17),
        (vec![TOPIC], Some((TOPIC, -1)), 42),
        (vec![TOPIC], Some(("another", 0)), 42),
        (vec![TOPIC], Some((TOPIC, 9)), 0),
    ] {
        let request = DescribeTopicPartitionsRequest {
            topics: names.into_iter().map(topic).collect(),
            response_partition_limit: -1,
            cursor: cursor.map(|(name, partition_index)| RequestCursor {
                topic_name: name.into(),
                partition_index,
            }),
        };
        let told = client.call(0, &request).await;
        assert_eq!(told.topics[0].error_code, expected, "{told:?}");
        assert_eq!(told.next_cursor, None);
    }
    for (name, index, expected) in [
        ("__cluster_metadata", 0, 0),
        ("__cluster_metadata", 1, 3),
        (TOPIC, 0, 3),
    ] {
        let request = DescribeQuorumRequest {
            topics: vec![describe_quorum::RequestTopicData {
                topic_name: name.into(),
                partitions: vec![describe_quorum::RequestPartitionData {
                    partition_index: index,
                }],
            }],
        };
        let told = client
            .call(2, &request)
            .await
            .topics
            .remove(0)
            .partitions
            .remove(0);
        assert_eq!(
            (told.error_code, told.leader_id),
            (expected, i32::from(expected == 0))
        );
    }
    for (name, level, expected) in [
        ("metadata.version", 30, 0),
        ("metadata.version", 31, 95),
        ("group.version", 2, 95),
        ("group.version", -1, 95),
        ("nothing", 1, 95),
    ] {
        let request = UpdateFeaturesRequest {
            feature_updates: vec![FeatureUpdateKey {
                feature: name.into(),
                max_version_level: level,
                ..FeatureUpdateKey::default()
            }],
            validate_only: true,
            ..UpdateFeaturesRequest::default()
        };
        assert_eq!(
            client.call(2, &request).await.error_code,
            expected,
            "{name} {level}"
        );
    }
    let component = |kind: &'static str, match_type, name: Option<&'static str>| ComponentData {
        entity_type: kind.into(),
        match_type,
        match_: name.map(Str::from_static),
    };
    for (components, expected) in [
        (vec![component("user", 2, None)], 0),
        (vec![component("dog", 2, None)], 35),
        (vec![component("user", 7, None)], 42),
        (vec![component("user", 0, None)], 42),
        (vec![component("user", 1, Some("x"))], 42),
        (vec![component("", 2, None)], 42),
        (vec![component("user", 2, None), component("user", 2, None)], 42),
        (vec![component("ip", 2, None), component("user", 2, None)], 42),
    ] {
        let what = format!("{components:?}");
        let request = DescribeClientQuotasRequest {
            components,
            strict: false,
        };
        assert_eq!(client.call(1, &request).await.error_code, expected, "{what}");
    }
    let gone = UnregisterBrokerRequest { broker_id: 7 };
    assert_eq!(client.call(0, &gone).await.error_code, 102);
}

async fn access(client: &mut Client) {
    let any = DescribeAclsRequest {
        resource_type_filter: 1,
        pattern_type_filter: 1,
        operation: 1,
        permission_type: 1,
        ..DescribeAclsRequest::default()
    };
    assert_eq!(client.call(3, &any).await.error_code, 54);
    let creation = create_acls::AclCreation {
        resource_type: 2,
        resource_name: TOPIC.into(),
        resource_pattern_type: 3,
        principal: "User:x".into(),
        host: "*".into(),
        operation: 3,
        permission_type: 3,
    };
    let request = CreateAclsRequest {
        creations: vec![creation],
    };
    assert_eq!(client.call(3, &request).await.results[0].error_code, 54);
    let filter = delete_acls::DeleteAclsFilter {
        resource_type_filter: 1,
        pattern_type_filter: 1,
        operation: 1,
        permission_type: 1,
        ..delete_acls::DeleteAclsFilter::default()
    };
    let request = DeleteAclsRequest {
        filters: vec![filter],
    };
    assert_eq!(client.call(3, &request).await.filter_results[0].error_code, 54);
    let user = |name: &'static str| scram::UserName { name: name.into() };
    let request = DescribeUserScramCredentialsRequest {
        users: Some(vec![user("u"), user("v"), user("v")]),
    };
    let told = client.call(0, &request).await.results;
    let codes: Vec<_> = told.iter().map(|told| (&*told.user, told.error_code)).collect();
    assert_eq!(codes, [("u", 91), ("v", 92)]);
    let create = CreateDelegationTokenRequest {
        max_lifetime_ms: -1,
        ..CreateDelegationTokenRequest::default()
    };
    assert_eq!(client.call(3, &create).await.error_code, 64);
    let renew = RenewDelegationTokenRequest::default();
    assert_eq!(client.call(2, &renew).await.error_code, 64);
    let describe = DescribeDelegationTokenRequest { owners: None };
    assert_eq!(client.call(3, &describe).await.error_code, 64);
    let hello = SaslHandshakeRequest {
        mechanism: "PLAIN".into(),
    };
    assert_eq!(client.call(1, &hello).await.error_code, 34);
    let push = PushTelemetryRequest::default();
    assert_eq!(client.call(0, &push).await.error_code, 42);
    let request = DescribeTransactionsRequest {
        transactional_ids: vec!["".into()],
    };
    assert_eq!(
        client.call(0, &request).await.transaction_states[0].error_code,
        42
    );
    let request = ListTransactionsRequest {
        state_filters: vec!["Ongoing".into(), "Blue".into()],
        ..ListTransactionsRequest::default()
    };
    assert_eq!(client.call(0, &request).await.unknown_state_filters, ["Blue"]);
}

#[tokio::test]
async fn requests_that_api_versions_does_not_list_are_counted_too() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let subscriptions = GetTelemetrySubscriptionsRequest::default();
    client.call(0, &subscriptions).await;
    client.call(0, &PushTelemetryRequest::default()).await;
    for api in ["GetTelemetrySubscriptions", "PushTelemetry"] {
        assert_eq!(
            server.metric(&format!("kafka_requests_total{{api=\"{api}\"}}")),
            1
        );
        let parsed = format!("kafka_stage_seconds_count{{api=\"{api}\",stage=\"parse\"}}");
        assert_eq!(server.metric(&parsed), 1);
    }
}
