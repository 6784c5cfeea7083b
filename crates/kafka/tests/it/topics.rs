//! Topics: creation, deletion, description; cluster metadata.

use stafett_access::{Caller, Limit, Limited};
use stafett_kafka::{Endpoint, KafkaSettings};
use stafett_kafka_wire::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use stafett_kafka_wire::messages::delete_topics::DeleteTopicState;
use stafett_kafka_wire::messages::describe_configs::DescribeConfigsResource;
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeClusterRequest,
    DescribeConfigsRequest, InitProducerIdRequest, MetadataRequest,
};
use stafett_kafka_wire::{ApiKey, ErrorCode, Message, Str, Uuid};

use crate::peer::{Server, batch};

fn named(name: &'static str) -> MetadataRequestTopic {
    MetadataRequestTopic {
        name: Some(name.into()),
        ..MetadataRequestTopic::default()
    }
}

fn metadata(topics: Vec<MetadataRequestTopic>) -> MetadataRequest {
    MetadataRequest {
        topics: Some(topics),
        ..MetadataRequest::default()
    }
}

#[tokio::test]
async fn versions_are_answered_in_every_version_and_name_what_is_served() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let request = ApiVersionsRequest {
        client_software_name: "some-client".into(),
        client_software_version: "1.0".into(),
    };
    for version in ApiVersionsRequest::VERSIONS {
        let request = if version < 3 {
            ApiVersionsRequest::default()
        } else {
            request.clone()
        };
        let response = client.call(version, &request).await;
        assert_eq!(response.error_code, 0);
        let produce = &response.api_keys[0];
        assert_eq!(
            (produce.api_key, produce.min_version),
            (ApiKey::Produce.code(), 0)
        );
    }
    let nameless = ApiVersionsRequest::default();
    assert_eq!(
        client.call(3, &nameless).await.error_code,
        ErrorCode::InvalidRequest.code()
    );
}

#[tokio::test]
async fn metadata_is_the_same_in_every_version() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let id = client.create("orders", 3).await;
    for version in MetadataRequest::VERSIONS {
        let response = client.call(version, &metadata(vec![named("orders")])).await;
        let broker = &response.brokers[0];
        assert_eq!(
            (&*broker.host, broker.port),
            ("127.0.0.1", i32::from(server.address.port()))
        );
        let topic = &response.topics[0];
        assert_eq!(
            (topic.error_code, topic.name.as_deref()),
            (0, Some("orders")),
            "version {version}"
        );
        let partitions: Vec<i32> = topic
            .partitions
            .iter()
            .map(|partition| partition.partition_index)
            .collect();
        assert_eq!(partitions, [0, 1, 2]);
        for partition in &topic.partitions {
            assert_eq!((partition.error_code, partition.leader_id), (0, 1));
            assert_eq!(
                (&*partition.replica_nodes, &*partition.isr_nodes),
                (&[1][..], &[1][..])
            );
        }
        if version >= 10 {
            assert_eq!(topic.topic_id, id);
        }
        if version >= 2 {
            assert_eq!(response.cluster_id.unwrap().len(), 22);
        }
    }
}

#[tokio::test]
async fn an_unknown_topic_is_created_where_that_is_allowed_and_named_unknown_where_not() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let ask = |allow| MetadataRequest {
        allow_auto_topic_creation: allow,
        ..metadata(vec![named("new")])
    };
    let unknown = client.call(12, &ask(false)).await.topics.remove(0);
    assert_eq!(unknown.error_code, ErrorCode::UnknownTopicOrPartition.code());
    let made = client.call(12, &ask(true)).await.topics.remove(0);
    assert_eq!(
        (made.error_code, made.partitions.len()),
        (0, 2),
        "as many as the broker's settings say"
    );
    // Older clients cannot forbid it.
    let made = client
        .call(1, &metadata(vec![named("old")]))
        .await
        .topics
        .remove(0);
    assert_eq!((made.error_code, made.partitions.len()), (0, 2));
    let both = client
        .call(12, &metadata(vec![named("twice"), named("twice")]))
        .await;
    assert_eq!(both.topics.len(), 1);

    let closed = KafkaSettings {
        auto_create_topics: false,
        ..KafkaSettings::default()
    };
    let server = Server::start_with(closed).await;
    let unknown = server.client().await.call(12, &ask(true)).await.topics.remove(0);
    assert_eq!(unknown.error_code, ErrorCode::UnknownTopicOrPartition.code());
    assert!(server.broker.topics().is_empty());
}

#[tokio::test]
async fn metadata_says_what_is_wrong_with_names_and_ids() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let id = client.create("orders", 1).await;
    for name in ["no spaces", "", "..", "a/b"] {
        let topic = client
            .call(9, &metadata(vec![named(name)]))
            .await
            .topics
            .remove(0);
        assert_eq!(
            topic.error_code,
            ErrorCode::InvalidTopicException.code(),
            "{name:?}"
        );
    }
    let by_id = |topic_id| metadata(vec![MetadataRequestTopic { topic_id, name: None }]);
    let found = client.call(12, &by_id(id)).await.topics.remove(0);
    assert_eq!((found.error_code, found.name.as_deref()), (0, Some("orders")));
    let lost = client.call(12, &by_id(Uuid::from(7))).await.topics.remove(0);
    assert_eq!(
        (lost.error_code, lost.topic_id),
        (ErrorCode::UnknownTopicId.code(), Uuid::from(7))
    );
    let early = client.call(10, &by_id(id)).await.topics.remove(0);
    assert_eq!(early.error_code, ErrorCode::InvalidRequest.code());
}

#[tokio::test]
async fn metadata_of_all_topics_and_of_none() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("a", 1).await;
    client.create("b", 1).await;
    let all = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    assert_eq!(client.call(12, &all).await.topics.len(), 2);
    assert_eq!(client.call(12, &metadata(Vec::new())).await.topics.len(), 0);
    assert_eq!(
        client.call(0, &metadata(Vec::new())).await.topics.len(),
        2,
        "version 0 has no other way"
    );
}

/// A request that asks whether topics could be created.
fn validated(names: &[&'static str]) -> CreateTopicsRequest {
    CreateTopicsRequest {
        topics: names.iter().map(|name| creatable(name)).collect(),
        timeout_ms: 0,
        validate_only: true,
    }
}

#[tokio::test]
async fn no_more_topics_are_created_than_their_namespace_may_have() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("there", 1).await;
    let set = async |max| {
        let of = Limited::Namespace("/".into());
        let by = Caller::internal();
        let limits = [(Limit::Topics, max)];
        server.broker.set_limits(&by, of, &limits).await.unwrap();
    };
    set(Some(1)).await;
    client
        .create_failing("beyond", 1, ErrorCode::PolicyViolation)
        .await;
    let tried = client.call(5, &validated(&["beyond"])).await.topics;
    assert_eq!(tried[0].error_code, ErrorCode::PolicyViolation.code());
    // A client that has a topic created by asking for it is refused too; those that are there go on.
    let request = MetadataRequest {
        allow_auto_topic_creation: true,
        ..metadata(vec![named("beyond"), named("there")])
    };
    let topics = client.call(12, &request).await.topics;
    let codes: Vec<_> = topics
        .iter()
        .map(|topic| (topic.name.as_deref(), topic.error_code))
        .collect();
    let refused = ErrorCode::PolicyViolation.code();
    assert_eq!(codes, [(Some("beyond"), refused), (Some("there"), 0)]);
    client.produce("there", 0, batch(&["x"])).await;
    set(Some(2)).await;
    let tried = client.call(5, &validated(&["one", "two"])).await.topics;
    let codes: Vec<_> = tried.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [0, refused], "they count together");
    client.create("one", 1).await;
    set(None).await;
    client.create("beyond", 1).await;
}

#[tokio::test]
async fn ten_thousand_partitions_are_told_in_one_answer() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("wide", 10_000).await;
    let topic = client.topic("wide").await;
    assert_eq!(topic.partitions.len(), 10_000);
    assert_eq!(topic.partitions[9_999].partition_index, 9_999);
    for _ in 0..3 {
        client
            .create_failing("too-wide", 10_001, ErrorCode::PolicyViolation)
            .await;
    }
    // Many of them become a large answer, which is built elsewhere.
    for name in ["w1", "w2", "w3"] {
        client.create(name, 10_000).await;
    }
    let all = MetadataRequest {
        topics: None,
        ..MetadataRequest::default()
    };
    let topics = client.call(12, &all).await.topics;
    assert!(topics.iter().all(|topic| topic.partitions.len() == 10_000));
}

#[tokio::test]
async fn authorised_operations_are_told_to_who_asks() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    let asking = MetadataRequest {
        include_cluster_authorized_operations: true,
        include_topic_authorized_operations: true,
        ..metadata(vec![named("orders")])
    };
    let told = client.call(8, &asking).await;
    assert_eq!(
        (
            told.cluster_authorized_operations,
            told.topics[0].topic_authorized_operations
        ),
        (8096, 3576)
    );
    let told = client.call(8, &metadata(vec![named("orders")])).await;
    assert_eq!(told.cluster_authorized_operations, i32::MIN);
    assert_eq!(told.topics[0].topic_authorized_operations, i32::MIN);
}

#[tokio::test]
async fn clients_are_told_the_advertised_endpoint() {
    let advertised = Some(Endpoint {
        host: "broker.example".to_owned(),
        port: 19_092,
    });
    let server = Server::start_with(KafkaSettings {
        advertised,
        ..KafkaSettings::default()
    })
    .await;
    let mut client = server.client().await;
    let broker = client.call(12, &metadata(Vec::new())).await.brokers.remove(0);
    assert_eq!((&*broker.host, broker.port), ("broker.example", 19_092));
    let cluster = client.call(1, &DescribeClusterRequest::default()).await;
    assert_eq!(
        (&*cluster.brokers[0].host, cluster.brokers[0].port),
        ("broker.example", 19_092)
    );
    assert_eq!((cluster.controller_id, cluster.cluster_id.len()), (1, 22));
    let controllers = DescribeClusterRequest {
        endpoint_type: 2,
        ..DescribeClusterRequest::default()
    };
    let refused = client.call(1, &controllers).await;
    assert_eq!(refused.error_code, ErrorCode::MismatchedEndpointType.code());
}

fn creatable(name: &'static str) -> CreatableTopic {
    CreatableTopic {
        name: name.into(),
        num_partitions: -1,
        replication_factor: -1,
        ..CreatableTopic::default()
    }
}

fn with_config(name: &'static str, key: &'static str, value: Option<&'static str>) -> CreatableTopic {
    let config = CreatableTopicConfig {
        name: key.into(),
        value: value.map(Str::from_static),
    };
    CreatableTopic {
        configs: vec![config],
        ..creatable(name)
    }
}

fn assigned(name: &'static str, assignments: &[(i32, &[i32])]) -> CreatableTopic {
    let assignments = assignments
        .iter()
        .map(|(partition_index, brokers)| CreatableReplicaAssignment {
            partition_index: *partition_index,
            broker_ids: brokers.to_vec(),
        });
    CreatableTopic {
        assignments: assignments.collect(),
        ..creatable(name)
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn each_topic_that_cannot_be_created_says_why() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("there", 1).await;
    let cases = [
        (creatable("there"), ErrorCode::TopicAlreadyExists),
        (creatable("no spaces"), ErrorCode::InvalidTopicException),
        (
            CreatableTopic {
                num_partitions: 0,
                ..creatable("p0")
            },
            ErrorCode::InvalidPartitions,
        ),
        (
            CreatableTopic {
                num_partitions: -2,
                ..creatable("p1")
            },
            ErrorCode::InvalidPartitions,
        ),
        (
            CreatableTopic {
                num_partitions: 10_001,
                ..creatable("p2")
            },
            ErrorCode::PolicyViolation,
        ),
        (
            CreatableTopic {
                replication_factor: 3,
                ..creatable("r3")
            },
            ErrorCode::InvalidReplicationFactor,
        ),
        (
            CreatableTopic {
                replication_factor: 0,
                ..creatable("r0")
            },
            ErrorCode::InvalidReplicationFactor,
        ),
        (assigned("a1", &[(0, &[2])]), ErrorCode::InvalidReplicaAssignment),
        (
            assigned("a2", &[(0, &[1, 1])]),
            ErrorCode::InvalidReplicaAssignment,
        ),
        (assigned("a3", &[(0, &[])]), ErrorCode::InvalidReplicaAssignment),
        (assigned("a4", &[(1, &[1])]), ErrorCode::InvalidReplicaAssignment),
        (
            assigned("a5", &[(0, &[1]), (0, &[1])]),
            ErrorCode::InvalidReplicaAssignment,
        ),
        (
            CreatableTopic {
                num_partitions: 1,
                ..assigned("a6", &[(0, &[1])])
            },
            ErrorCode::InvalidRequest,
        ),
        (
            with_config("c1", "no.such.thing", Some("1")),
            ErrorCode::InvalidConfig,
        ),
        (
            with_config("c2", "retention.ms", Some("soon")),
            ErrorCode::InvalidConfig,
        ),
        (
            with_config("c3", "retention.ms", Some("-2")),
            ErrorCode::InvalidConfig,
        ),
        (with_config("c4", "retention.ms", None), ErrorCode::InvalidConfig),
        (
            with_config("c5", "cleanup.policy", Some("shred")),
            ErrorCode::InvalidConfig,
        ),
        (
            with_config("c6", "stafett.durability", Some("perhaps")),
            ErrorCode::InvalidConfig,
        ),
        (
            with_config("c7", "min.cleanable.dirty.ratio", Some("1.5")),
            ErrorCode::InvalidConfig,
        ),
        (creatable("doubled"), ErrorCode::InvalidRequest),
    ];
    let (mut topics, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    topics.push(creatable("doubled"));
    for validate_only in [true, false] {
        let request = CreateTopicsRequest {
            topics: topics.clone(),
            timeout_ms: 1000,
            validate_only,
        };
        let response = client.call(7, &request).await;
        for (made, expected) in response.topics.iter().zip(&expected) {
            assert_eq!(
                made.error_code,
                expected.code(),
                "{}: {:?}",
                made.name,
                made.error_message
            );
            assert!(!made.error_message.as_deref().unwrap().is_empty());
        }
        assert_eq!(response.topics.len(), expected.len());
    }
    assert_eq!(server.broker.topics().len(), 1);
    let unknown = CreateTopicsRequest {
        topics: vec![topics[13].clone()],
        ..CreateTopicsRequest::default()
    };
    let message = client
        .call(7, &unknown)
        .await
        .topics
        .remove(0)
        .error_message
        .unwrap();
    assert_eq!(message, "Unknown topic config name: no.such.thing");
    assert!(server.metric("kafka_errors_total{api=\"CreateTopics\",code=\"INVALID_CONFIG\"}") >= 7);
}

#[tokio::test]
async fn a_topic_is_created_as_asked_in_every_version() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let names = ["t2", "t3", "t4", "t5", "t6", "t7"];
    for (version, name) in (2..=7).zip(names) {
        let topic = CreatableTopic {
            num_partitions: 5,
            replication_factor: 1,
            ..creatable(name)
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            ..CreateTopicsRequest::default()
        };
        let made = client.call(version, &request).await.topics.remove(0);
        assert_eq!((made.error_code, &*made.name), (0, name));
        if version >= 5 {
            assert_eq!((made.num_partitions, made.replication_factor), (5, 1));
            assert!(
                made.configs
                    .unwrap()
                    .iter()
                    .any(|config| config.name == "retention.ms")
            );
        }
        if version >= 7 {
            assert_eq!(made.topic_id, client.topic(name).await.topic_id);
        }
        assert_eq!(client.topic(name).await.partitions.len(), 5);
    }
    let request = CreateTopicsRequest {
        topics: vec![assigned("by-hand", &[(1, &[1]), (0, &[1])])],
        ..Default::default()
    };
    assert_eq!(client.call(7, &request).await.topics[0].num_partitions, 2);
    let only = CreateTopicsRequest {
        validate_only: true,
        topics: vec![creatable("not-yet")],
        timeout_ms: 0,
    };
    assert_eq!(client.call(7, &only).await.topics[0].error_code, 0);
    assert!(server.broker.topics().named("not-yet").is_none());
}

#[tokio::test]
async fn topics_are_deleted_by_name_and_by_id() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let id = client.create("a", 1).await;
    client.create("b", 1).await;
    client.produce("b", 0, batch(&["x"])).await;
    let state = |name: Option<&'static str>, topic_id| DeleteTopicState {
        name: name.map(Str::from_static),
        topic_id,
    };
    let none = Uuid::ZERO;
    let cases = [
        (state(None, id), ErrorCode::None),
        (state(Some("b"), none), ErrorCode::None),
        (state(Some("c"), none), ErrorCode::UnknownTopicOrPartition),
        (state(None, Uuid::from(9)), ErrorCode::UnknownTopicId),
        (state(None, none), ErrorCode::InvalidRequest),
        (state(Some("d"), id), ErrorCode::InvalidRequest),
        (state(Some("e"), none), ErrorCode::InvalidRequest),
    ];
    let (mut topics, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
    topics.push(state(Some("e"), none));
    let request = DeleteTopicsRequest {
        topics,
        ..DeleteTopicsRequest::default()
    };
    let response = client.call(6, &request).await;
    for (deleted, expected) in response.responses.iter().zip(expected) {
        assert_eq!(deleted.error_code, expected.code(), "{deleted:?}");
    }
    assert_eq!(
        response.responses[0].name.as_deref(),
        Some("a"),
        "who deletes by id is told the name"
    );
    assert!(server.broker.topics().is_empty());
    assert_eq!(
        client.topic("b").await.error_code,
        ErrorCode::UnknownTopicOrPartition.code()
    );
    for version in 1..=5 {
        client.create("again", 1).await;
        let request = DeleteTopicsRequest {
            topic_names: vec!["again".into()],
            ..DeleteTopicsRequest::default()
        };
        assert_eq!(client.call(version, &request).await.responses[0].error_code, 0);
    }
    // A topic created under the name of a deleted one is another topic, and empty.
    client.create("b", 1).await;
    assert!(client.values("b", 0, 0).await.is_empty());
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn settings_are_described_with_where_they_come_from() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let config = |name, value| CreatableTopicConfig {
        name,
        value: Some(value),
    };
    let topic = CreatableTopic {
        configs: vec![
            config("retention.ms".into(), "1000".into()),
            config("retention.bytes".into(), "-1".into()),
            config("max.message.bytes".into(), "2000".into()),
            config("message.timestamp.type".into(), "LogAppendTime".into()),
            config("stafett.durability".into(), "interval:10,20".into()),
            config("segment.bytes".into(), "1048576".into()),
        ],
        ..creatable("set")
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        ..CreateTopicsRequest::default()
    };
    assert_eq!(client.call(7, &request).await.topics[0].error_code, 0);
    let resource = |resource_type, resource_name, keys: Option<&[&'static str]>| DescribeConfigsResource {
        resource_type,
        resource_name,
        configuration_keys: keys.map(|keys| keys.iter().map(|key| Str::from_static(key)).collect()),
    };
    let request = DescribeConfigsRequest {
        resources: vec![
            resource(2, "set".into(), None),
            resource(2, "set".into(), Some(&["retention.ms", "no.such.thing"])),
            resource(4, "1".into(), None),
            resource(4, "".into(), None),
            resource(2, "unset".into(), None),
            resource(2, "a b".into(), None),
            resource(4, "2".into(), None),
            resource(16, "x".into(), None),
            resource(32, "g".into(), None),
        ],
        include_synonyms: true,
        include_documentation: true,
    };
    for version in 1..=4 {
        let request = DescribeConfigsRequest {
            include_documentation: version >= 3,
            ..request.clone()
        };
        let results = client.call(version, &request).await.results;
        let codes: Vec<i16> = results.iter().map(|result| result.error_code).collect();
        assert_eq!(codes, [0, 0, 0, 0, 3, 17, 42, 0, 0]);
        let value = |result: usize, name: &str| {
            let config = results[result]
                .configs
                .iter()
                .find(|config| config.name == name)
                .unwrap();
            (
                config.value.clone().unwrap().to_string(),
                config.config_source,
                config.synonyms.len(),
            )
        };
        assert_eq!(value(0, "retention.ms"), ("1000".to_owned(), 1, 3));
        assert_eq!(value(0, "retention.bytes"), ("-1".to_owned(), 1, 2));
        assert_eq!(value(0, "max.message.bytes"), ("2000".to_owned(), 1, 2));
        assert_eq!(
            value(0, "message.timestamp.type"),
            ("LogAppendTime".to_owned(), 1, 2)
        );
        assert_eq!(
            value(0, "stafett.durability"),
            ("interval:10,20".to_owned(), 1, 3)
        );
        assert_eq!(value(0, "segment.bytes"), ("1048576".to_owned(), 1, 2));
        assert_eq!(value(0, "cleanup.policy"), ("delete".to_owned(), 5, 1));
        assert_eq!(value(2, "message.max.bytes"), ("1048588".to_owned(), 5, 1));
        assert_eq!(value(2, "num.partitions"), ("2".to_owned(), 5, 1));
        assert_eq!(value(2, "stafett.durability"), ("os".to_owned(), 4, 2));
        assert_eq!(
            value(8, "consumer.session.timeout.ms"),
            ("45000".to_owned(), 5, 1)
        );
        assert_eq!(results[1].configs.len(), 1);
        let typed = results[1].configs[0].config_type;
        assert_eq!(typed, if version >= 3 { 5 } else { 0 });
    }
}

#[tokio::test]
async fn an_idempotent_producer_gets_an_id_of_its_own() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let first = client.call(4, &idempotent()).await;
    let second = client.call(4, &idempotent()).await;
    assert_eq!((first.error_code, first.producer_epoch), (0, 0));
    assert_ne!(first.producer_id, second.producer_id);
    let nameless = InitProducerIdRequest {
        transactional_id: Some("".into()),
        ..idempotent()
    };
    assert_eq!(
        client.call(4, &nameless).await.error_code,
        ErrorCode::InvalidRequest.code()
    );
}

fn idempotent() -> InitProducerIdRequest {
    InitProducerIdRequest {
        transactional_id: None,
        ..InitProducerIdRequest::default()
    }
}
