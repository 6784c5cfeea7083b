//! Groups of the consumer protocol. The codes are those of Kafka 4.3.1 for the same requests.

use stafett_groups::{GroupSettings, Migration};
use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::consumer_protocol::{self, ConsumerProtocolAssignment};
use stafett_kafka_wire::messages::consumer_group_heartbeat::RequestTopicPartitions;
use stafett_kafka_wire::messages::describe_configs::DescribeConfigsResource;
use stafett_kafka_wire::messages::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use stafett_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use stafett_kafka_wire::messages::sync_group::SyncGroupRequestAssignment;
use stafett_kafka_wire::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
    DescribeConfigsRequest, IncrementalAlterConfigsRequest, ListGroupsRequest, OffsetCommitRequest,
    SyncGroupRequest, consumer_protocol_assignment,
};

use crate::groups::{Member, subscription};
use crate::peer::Server;

const LATEST: i16 = 1;

fn beat(member: &'static str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: "group".into(),
        member_id: member.into(),
        member_epoch: epoch,
        ..ConsumerGroupHeartbeatRequest::default()
    }
}

fn join(member: &'static str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec!["t".into()]),
        topic_partitions: Some(Vec::new()),
        ..beat(member, 0)
    }
}

fn join_static(member: &'static str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        instance_id: Some("one".into()),
        ..join(member)
    }
}

fn told(response: &ConsumerGroupHeartbeatResponse) -> Option<Vec<i32>> {
    let assignment = response.assignment.as_ref()?;
    let topics = assignment.topic_partitions.iter();
    Some(topics.flat_map(|topic| topic.partitions.clone()).collect())
}

type Change = fn(&mut ConsumerGroupHeartbeatRequest);

/// Invalid requests to join, with the expected answer.
const NONSENSE: &[(&str, Change, ErrorCode)] = &[
    (
        "no member",
        |r| r.member_id = "".into(),
        ErrorCode::InvalidRequest,
    ),
    ("no group", |r| r.group_id = "".into(), ErrorCode::InvalidRequest),
    (
        "no timeout",
        |r| r.rebalance_timeout_ms = -1,
        ErrorCode::InvalidRequest,
    ),
    (
        "no topics",
        |r| r.subscribed_topic_names = None,
        ErrorCode::InvalidRequest,
    ),
    (
        "no list of what it has",
        |r| r.topic_partitions = None,
        ErrorCode::InvalidRequest,
    ),
    (
        "has something",
        |r| r.topic_partitions = Some(vec![RequestTopicPartitions::default()]),
        ErrorCode::InvalidRequest,
    ),
    (
        "empty instance",
        |r| r.instance_id = Some("".into()),
        ErrorCode::InvalidRequest,
    ),
    (
        "empty rack",
        |r| r.rack_id = Some("".into()),
        ErrorCode::InvalidRequest,
    ),
    ("epoch -3", |r| r.member_epoch = -3, ErrorCode::InvalidRequest),
    (
        "leaves for a while, dynamic",
        |r| r.member_epoch = -2,
        ErrorCode::InvalidRequest,
    ),
    (
        "unknown assignor",
        |r| r.server_assignor = Some("x".into()),
        ErrorCode::UnsupportedAssignor,
    ),
    (
        "empty assignor",
        |r| r.server_assignor = Some("".into()),
        ErrorCode::UnsupportedAssignor,
    ),
    (
        "wrong pattern",
        |r| r.subscribed_topic_regex = Some("(".into()),
        ErrorCode::InvalidRegularExpression,
    ),
    (
        "reports to no group",
        |r| r.member_epoch = 1,
        ErrorCode::GroupIdNotFound,
    ),
    (
        "leaves no group",
        |r| r.member_epoch = -1,
        ErrorCode::GroupIdNotFound,
    ),
];

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_the_code_that_clients_know() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 4).await;
    for (what, change, code) in NONSENSE {
        let mut request = join("m");
        change(&mut request);
        let response = client.call(LATEST, &request).await;
        assert_eq!(response.error_code, code.code(), "{what}");
        assert!(response.error_message.is_some(), "{what}");
    }
    // No member was admitted, and the group is gone.
    assert!(
        client
            .call(5, &ListGroupsRequest::default())
            .await
            .groups
            .is_empty()
    );
}

#[tokio::test]
async fn a_member_of_the_first_version_is_given_an_id() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 4).await;
    let response = client.call(0, &join("")).await;
    assert_eq!(response.error_code, 0);
    assert!(!response.member_id.unwrap().is_empty());
    let leave = ConsumerGroupHeartbeatRequest {
        member_epoch: -1,
        ..join("")
    };
    let response = client.call(0, &leave).await;
    assert_eq!(response.error_code, ErrorCode::InvalidRequest.code());
}

#[tokio::test]
async fn an_instance_has_one_owner_who_may_leave_and_come_back_as_another() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 4).await;
    let first = client.call(LATEST, &join_static("a")).await;
    assert_eq!(told(&first).unwrap(), [0, 1, 2, 3]);
    let report = |member, epoch| ConsumerGroupHeartbeatRequest {
        instance_id: Some("one".into()),
        ..beat(member, epoch)
    };
    let epoch = first.member_epoch;
    let cases = [
        (join_static("a"), ErrorCode::UnreleasedInstanceId),
        (join_static("b"), ErrorCode::UnreleasedInstanceId),
        (report("b", epoch), ErrorCode::FencedInstanceId),
        (report("b", -2), ErrorCode::FencedInstanceId),
        (report("a", epoch + 1), ErrorCode::FencedMemberEpoch),
        (report("a", -2), ErrorCode::None),
        (report("a", epoch), ErrorCode::FencedMemberEpoch),
        (join_static("b"), ErrorCode::None),
        (report("a", epoch), ErrorCode::FencedInstanceId),
        (beat("a", epoch), ErrorCode::UnknownMemberId),
        (report("b", -1), ErrorCode::None),
    ];
    for (number, (request, code)) in cases.into_iter().enumerate() {
        let response = client.call(LATEST, &request).await;
        assert_eq!(response.error_code, code.code(), "request {number}");
    }
}

fn commit(member: &'static str, epoch: i32, partition: i32) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: "group".into(),
        member_id: member.into(),
        generation_id_or_member_epoch: epoch,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: 7,
                committed_leader_epoch: -1,
                committed_metadata: None,
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    }
}

#[tokio::test]
async fn partitions_are_given_back_then_taken_and_committed_by_who_has_them() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let id = client.create("t", 4).await;
    let a = client.call(LATEST, &join("a")).await;
    assert_eq!((a.member_epoch, told(&a).unwrap()), (1, vec![0, 1, 2, 3]));
    assert_eq!(a.heartbeat_interval_ms, 1000);
    let b = client.call(LATEST, &join("b")).await;
    assert_eq!((b.member_epoch, told(&b).unwrap()), (2, vec![]));
    let a = client.call(LATEST, &beat("a", 1)).await;
    assert_eq!((a.member_epoch, told(&a).unwrap()), (1, vec![0, 1]));
    let b = client.call(LATEST, &beat("b", 2)).await;
    assert_eq!((b.member_epoch, told(&b)), (2, None));
    let has = ConsumerGroupHeartbeatRequest {
        topic_partitions: Some(vec![RequestTopicPartitions {
            topic_id: id,
            partitions: vec![0, 1, -5],
        }]),
        ..beat("a", 1)
    };
    let a = client.call(LATEST, &has).await;
    assert_eq!((a.member_epoch, told(&a)), (2, None));
    let b = client.call(LATEST, &beat("b", 2)).await;
    assert_eq!(told(&b).unwrap(), [2, 3]);
    let cases = [
        ("a", 2, 0, ErrorCode::None),
        ("a", 1, 0, ErrorCode::None),
        ("a", 1, 2, ErrorCode::StaleMemberEpoch),
        ("b", 1, 2, ErrorCode::StaleMemberEpoch),
        ("b", 3, 2, ErrorCode::StaleMemberEpoch),
        ("c", 2, 2, ErrorCode::UnknownMemberId),
        ("", -1, 2, ErrorCode::UnknownMemberId),
    ];
    for (member, epoch, partition, code) in cases {
        let response = client.call(9, &commit(member, epoch, partition)).await;
        let found = response.topics[0].partitions[0].error_code;
        assert_eq!(found, code.code(), "{member} at {epoch}, partition {partition}");
    }
    let describe = ConsumerGroupDescribeRequest {
        group_ids: vec!["group".into(), "none".into()],
        include_authorized_operations: false,
    };
    let groups = client.call(1, &describe).await.groups;
    assert_eq!(&*groups[0].group_state, "Stable");
    assert_eq!((groups[0].group_epoch, groups[0].assignment_epoch), (2, 2));
    assert_eq!(&*groups[0].assignor_name, "uniform");
    let shown: Vec<_> = groups[0]
        .members
        .iter()
        .map(|member| member.assignment.topic_partitions[0].partitions.clone())
        .collect();
    assert_eq!(shown, [[0, 1], [2, 3]]);
    assert_eq!(groups[1].error_code, ErrorCode::GroupIdNotFound.code());
}

#[tokio::test]
async fn a_member_goes_on_with_its_epoch_after_a_restart() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 4).await;
    let a = client.call(LATEST, &join("a")).await;
    let server = server.restart().await;
    let mut client = server.client().await;
    let response = client.call(LATEST, &beat("a", a.member_epoch)).await;
    assert_eq!((response.error_code, response.member_epoch), (0, a.member_epoch));
    // The last answer before the restart may not have come.
    assert_eq!(told(&response), told(&a));
    let response = client.call(LATEST, &beat("a", a.member_epoch)).await;
    assert_eq!(told(&response), None);
    let response = client.call(LATEST, &beat("a", a.member_epoch + 1)).await;
    assert_eq!(response.error_code, ErrorCode::FencedMemberEpoch.code());
}

#[tokio::test]
async fn a_running_group_is_told_the_heartbeat_interval_that_is_set_for_it() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let told = client.call(LATEST, &join("a")).await;
    assert_eq!((told.error_code, told.heartbeat_interval_ms), (0, 1000));
    let set = |name: &'static str, value: Option<&'static str>| IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 32,
            resource_name: "group".into(),
            configs: vec![AlterableConfig {
                name: name.into(),
                config_operation: i8::from(value.is_none()),
                value: value.map(Into::into),
            }],
        }],
        ..IncrementalAlterConfigsRequest::default()
    };
    let name = "consumer.heartbeat.interval.ms";
    for (value, code, interval) in [
        (Some("7000"), ErrorCode::None, 7000),
        (Some("4999"), ErrorCode::InvalidConfig, 7000),
        (Some("15001"), ErrorCode::InvalidConfig, 7000),
        (None, ErrorCode::None, 1000),
    ] {
        let answer = client.call(1, &set(name, value)).await;
        assert_eq!(answer.responses[0].error_code, code.code(), "{value:?}");
        let told = client.call(LATEST, &beat("a", 1)).await;
        assert_eq!((told.error_code, told.heartbeat_interval_ms), (0, interval));
    }
    let describe = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: 32,
            resource_name: "group".into(),
            configuration_keys: Some(vec!["consumer.session.timeout.ms".into()]),
        }],
        ..DescribeConfigsRequest::default()
    };
    let answer = client
        .call(1, &set("consumer.session.timeout.ms", Some("50000")))
        .await;
    assert_eq!(answer.responses[0].error_code, 0);
    let described = client.call(4, &describe).await;
    let config = &described.results[0].configs[0];
    assert_eq!(
        (config.value.as_deref(), config.config_source),
        (Some("50000"), 8)
    );
}

#[tokio::test]
async fn a_running_group_moves_between_the_protocols_only_as_the_policy_allows() {
    for policy in Migration::ALL {
        let server = Server::start_with_groups(GroupSettings {
            migration: policy,
            ..GroupSettings::default()
        })
        .await;
        let mut newer = server.client().await;
        newer.create("t", 2).await;
        let mut classic = Member::new(&server, "upgraded").await;
        classic.metadata = subscription(&["t"]);
        assert_eq!(classic.join().await.error_code, 0);
        classic.sync(&[]).await;
        let joins = |group: &'static str| ConsumerGroupHeartbeatRequest {
            group_id: group.into(),
            ..join("newer")
        };
        let upgrades = matches!(policy, Migration::Bidirectional | Migration::Upgrade);
        let expected = if upgrades {
            ErrorCode::None
        } else {
            ErrorCode::GroupIdNotFound
        };
        let answer = newer.call(LATEST, &joins("upgraded")).await;
        assert_eq!(answer.error_code, expected.code(), "{policy:?}");

        assert_eq!(newer.call(LATEST, &joins("downgraded")).await.error_code, 0);
        let mut classic = Member::new(&server, "downgraded").await;
        classic.metadata = subscription(&["t"]);
        assert_eq!(classic.join().await.error_code, 0);
        let leaves = ConsumerGroupHeartbeatRequest {
            group_id: "downgraded".into(),
            ..beat("newer", -1)
        };
        assert_eq!(newer.call(LATEST, &leaves).await.error_code, 0);
        let groups = server.broker.groups();
        let kind = groups.with_group("downgraded", |group| group.unwrap().kind.state().kind.name());
        let expected = if matches!(policy, Migration::Bidirectional | Migration::Downgrade) {
            "classic"
        } else {
            "consumer"
        };
        assert_eq!(kind, expected, "{policy:?}");
    }
}

/// The group is classic for a moment, and its member has its partitions still.
#[tokio::test]
async fn a_classic_member_keeps_its_partitions_while_the_group_changes_its_protocol() {
    let server = Server::start().await;
    let mut newer = server.client().await;
    newer.create("t", 2).await;
    let mut classic = Member::new(&server, "group").await;
    classic.metadata = subscription(&["t"]);
    assert_eq!(classic.join().await.error_code, 0);
    let all = ConsumerProtocolAssignment {
        assigned_partitions: vec![consumer_protocol_assignment::TopicPartition {
            topic: "t".into(),
            partitions: vec![0, 1],
        }],
        ..ConsumerProtocolAssignment::default()
    };
    let all = consumer_protocol::write(3, &all).unwrap();
    let request = SyncGroupRequest {
        group_id: "group".into(),
        generation_id: classic.generation,
        member_id: classic.id.clone(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: classic.id.clone(),
            assignment: all.clone(),
        }],
        ..SyncGroupRequest::default()
    };
    assert_eq!(classic.client.call(5, &request).await.assignment, all);
    for member in ["first", "second", "third"] {
        let joined = newer.call(LATEST, &join(member)).await;
        assert_eq!(joined.error_code, 0);
        let partitions = told(&joined).unwrap_or_default();
        assert!(partitions.is_empty(), "{member}: {partitions:?}");
        assert_eq!(newer.call(LATEST, &beat(member, -1)).await.error_code, 0);
        let groups = server.broker.groups();
        let kind = groups.with_group("group", |group| group.unwrap().kind.state().kind.name());
        assert_eq!(kind, "classic");
    }
}
