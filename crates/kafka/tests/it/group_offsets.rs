//! Committed offsets: permission to commit, reading, deletion.

use stafett_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use stafett_kafka_wire::messages::offset_delete::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use stafett_kafka_wire::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use stafett_kafka_wire::messages::{
    DeleteGroupsRequest, DeleteTopicsRequest, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest,
};
use stafett_kafka_wire::{ErrorCode, Str, Uuid};

use crate::groups::{Member, subscription};
use crate::peer::{Client, Server};

/// A commit without membership.
pub(crate) fn commit(
    group: &'static str,
    topic: &'static str,
    partition: i32,
    offset: i64,
) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: group.into(),
        topics: vec![OffsetCommitRequestTopic {
            name: topic.into(),
            topic_id: Uuid::ZERO,
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: offset,
                committed_leader_epoch: -1,
                committed_metadata: None,
            }],
        }],
        ..OffsetCommitRequest::default()
    }
}

async fn committed(client: &mut Client, version: i16, request: &OffsetCommitRequest) -> i16 {
    client.call(version, request).await.topics[0].partitions[0].error_code
}

/// All commits of a group: topic, partition, offset.
async fn all(client: &mut Client, group: &'static str) -> Vec<(String, i32, i64)> {
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.into(),
            topics: None,
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let group = client.call(9, &request).await.groups.remove(0);
    assert_eq!(group.error_code, 0);
    let of_topic = |topic: stafett_kafka_wire::messages::offset_fetch::OffsetFetchResponseTopics| {
        let name = topic.name.to_string();
        topic
            .partitions
            .into_iter()
            .map(move |it| (name.clone(), it.partition_index, it.committed_offset))
    };
    group.topics.into_iter().flat_map(of_topic).collect()
}

#[tokio::test]
async fn what_is_committed_in_any_version_comes_back_in_any_version() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let id = client.create("kept", 2).await;
    for version in 2..=10 {
        let mut request = commit("any", "kept", 1, i64::from(version));
        let topic = &mut request.topics[0];
        topic.partitions[0].committed_metadata = Some(Str::from(format!("note {version}")));
        if version >= 6 {
            topic.partitions[0].committed_leader_epoch = 3;
        }
        if version >= 10 {
            topic.name = Str::default();
            topic.topic_id = id;
        }
        assert_eq!(
            committed(&mut client, version, &request).await,
            0,
            "version {version}"
        );
        for fetched in 1..=10_i16 {
            let epoch = if version >= 6 && fetched >= 5 { 3 } else { -1 };
            let note = Some(Str::from(format!("note {version}")));
            let expected = [
                (-1, -1, Some(Str::default()), 0),
                (i64::from(version), epoch, note, 0),
            ];
            assert_eq!(fetch(&mut client, fetched, id).await, expected);
        }
    }
}

/// Reads the commits of partitions 0 and 1 of the topic `kept`: offset, leader epoch, text, error.
async fn fetch(client: &mut Client, version: i16, id: Uuid) -> Vec<(i64, i32, Option<Str>, i16)> {
    if version < 8 {
        let request = OffsetFetchRequest {
            group_id: "any".into(),
            topics: Some(vec![OffsetFetchRequestTopic {
                name: "kept".into(),
                partition_indexes: vec![0, 1],
            }]),
            ..OffsetFetchRequest::default()
        };
        let topic = client.call(version, &request).await.topics.remove(0);
        let partitions = topic.partitions.into_iter();
        return partitions
            .map(|it| {
                (
                    it.committed_offset,
                    it.committed_leader_epoch,
                    it.metadata,
                    it.error_code,
                )
            })
            .collect();
    }
    let has_id = version >= 10;
    let topic = OffsetFetchRequestTopics {
        name: if has_id { Str::default() } else { "kept".into() },
        topic_id: if has_id { id } else { Uuid::ZERO },
        partition_indexes: vec![0, 1],
    };
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "any".into(),
            topics: Some(vec![topic]),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let topic = client
        .call(version, &request)
        .await
        .groups
        .remove(0)
        .topics
        .remove(0);
    let partitions = topic.partitions.into_iter();
    partitions
        .map(|it| {
            (
                it.committed_offset,
                it.committed_leader_epoch,
                it.metadata,
                it.error_code,
            )
        })
        .collect()
}

#[tokio::test]
async fn commits_that_cannot_be_kept_are_refused_one_by_one() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("real", 1).await;
    let mut request = commit("picky", "real", 0, 5);
    request.topics[0].partitions.push(OffsetCommitRequestPartition {
        partition_index: 1,
        committed_offset: 5,
        committed_leader_epoch: -1,
        committed_metadata: None,
    });
    request
        .topics
        .push(commit("picky", "unreal", 0, 5).topics.remove(0));
    let response = client.call(9, &request).await;
    let codes: Vec<_> = response
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|it| it.error_code)
        .collect();
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(codes, [0, unknown, unknown]);
    let mut request = commit("picky", "real", 0, 6);
    request.topics[0].partitions[0].committed_metadata = Some(Str::from("x".repeat(4096)));
    assert_eq!(committed(&mut client, 9, &request).await, 0);
    request.topics[0].partitions[0].committed_metadata = Some(Str::from("x".repeat(4097)));
    assert_eq!(
        committed(&mut client, 9, &request).await,
        ErrorCode::OffsetMetadataTooLarge.code()
    );
    let mut request = commit("picky", "real", 0, 7);
    request.topics[0].topic_id = Uuid::from(77);
    request.topics[0].name = Str::default();
    assert_eq!(
        committed(&mut client, 10, &request).await,
        ErrorCode::UnknownTopicId.code()
    );
    assert_eq!(all(&mut client, "picky").await, [("real".into(), 0, 6)]);
}

#[tokio::test]
async fn only_members_of_the_generation_commit_to_a_group_that_has_members() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("owned", 1).await;
    let mut request = commit("guarded", "owned", 0, 1);
    request.generation_id_or_member_epoch = 1;
    assert_eq!(
        committed(&mut client, 8, &request).await,
        ErrorCode::IllegalGeneration.code()
    );
    assert_eq!(
        committed(&mut client, 9, &request).await,
        ErrorCode::GroupIdNotFound.code()
    );
    let mut member = Member::alone(&server, "guarded").await;
    assert_eq!(
        committed(&mut client, 9, &commit("guarded", "owned", 0, 2)).await,
        ErrorCode::UnknownMemberId.code()
    );
    request.member_id = member.id.clone();
    assert_eq!(committed(&mut client, 9, &request).await, 0);
    request.generation_id_or_member_epoch = 2;
    assert_eq!(
        committed(&mut client, 9, &request).await,
        ErrorCode::IllegalGeneration.code()
    );
    member.join().await;
    assert_eq!(
        committed(&mut client, 9, &request).await,
        ErrorCode::RebalanceInProgress.code()
    );
    member.leave().await;
    assert_eq!(
        committed(&mut client, 9, &request).await,
        ErrorCode::UnknownMemberId.code()
    );
    assert_eq!(
        committed(&mut client, 9, &commit("guarded", "owned", 0, 3)).await,
        0
    );
    assert_eq!(all(&mut client, "guarded").await, [("owned".into(), 0, 3)]);
}

#[tokio::test]
async fn commits_survive_a_restart_and_deletion_does_too() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("stored", 3).await;
    for group in ["stays", "goes"] {
        for partition in 0..3 {
            assert_eq!(
                committed(&mut client, 9, &commit(group, "stored", partition, 40)).await,
                0
            );
        }
    }
    let request = DeleteGroupsRequest {
        groups_names: vec!["goes".into()],
    };
    assert_eq!(client.call(2, &request).await.results[0].error_code, 0);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(all(&mut client, "stays").await.len(), 3);
    assert!(all(&mut client, "goes").await.is_empty());
    assert_eq!(server.broker.groups().len(), 1);
}

#[tokio::test]
async fn a_topic_made_anew_inherits_no_commits() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("phoenix", 1).await;
    client.create("lasting", 1).await;
    for topic in ["phoenix", "lasting"] {
        assert_eq!(
            committed(&mut client, 9, &commit("mourner", topic, 0, 9)).await,
            0
        );
    }
    let request = DeleteTopicsRequest {
        topic_names: vec!["phoenix".into()],
        ..DeleteTopicsRequest::default()
    };
    assert_eq!(client.call(5, &request).await.responses[0].error_code, 0);
    assert_eq!(all(&mut client, "mourner").await, [("lasting".into(), 0, 9)]);
    client.create("phoenix", 1).await;
    assert_eq!(all(&mut client, "mourner").await, [("lasting".into(), 0, 9)]);
    let server = server.restart().await;
    assert_eq!(
        all(&mut server.client().await, "mourner").await,
        [("lasting".into(), 0, 9)]
    );
}

#[tokio::test]
async fn commits_of_topics_that_members_read_are_not_deleted() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("read", 1).await;
    client.create("unread", 1).await;
    for topic in ["read", "unread"] {
        assert_eq!(committed(&mut client, 9, &commit("reader", topic, 0, 9)).await, 0);
    }
    let mut member = Member::new(&server, "reader").await;
    member.metadata = subscription(&["read"]);
    assert_eq!(member.join().await.error_code, 0);
    let topic = |name: &'static str| OffsetDeleteRequestTopic {
        name: name.into(),
        partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
    };
    let request = OffsetDeleteRequest {
        group_id: "reader".into(),
        topics: vec![topic("read"), topic("unread"), topic("nowhere")],
    };
    let response = client.call(0, &request).await;
    let codes: Vec<_> = response
        .topics
        .iter()
        .map(|topic| topic.partitions[0].error_code)
        .collect();
    let (subscribed, unknown) = (
        ErrorCode::GroupSubscribedToTopic,
        ErrorCode::UnknownTopicOrPartition,
    );
    assert_eq!(
        (response.error_code, codes),
        (0, vec![subscribed.code(), 0, unknown.code()])
    );
    assert_eq!(all(&mut client, "reader").await, [("read".into(), 0, 9)]);
    let absent = OffsetDeleteRequest {
        group_id: "absent".into(),
        ..request.clone()
    };
    assert_eq!(
        client.call(0, &absent).await.error_code,
        ErrorCode::GroupIdNotFound.code()
    );
    member.leave().await;
    assert_eq!(
        client.call(0, &request).await.topics[0].partitions[0].error_code,
        0
    );
    assert!(all(&mut client, "reader").await.is_empty());
}

#[tokio::test]
async fn more_than_an_answer_may_have_is_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("small", 1).await;
    let topic = OffsetFetchRequestTopics {
        name: "small".into(),
        partition_indexes: vec![0; 1_000_001],
        ..OffsetFetchRequestTopics::default()
    };
    let request = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "greedy".into(),
            topics: Some(vec![topic]),
            ..OffsetFetchRequestGroup::default()
        }],
        ..OffsetFetchRequest::default()
    };
    let answer = client.call(9, &request).await;
    assert_eq!(answer.groups[0].error_code, ErrorCode::InvalidRequest.code());
    let mut request = commit("greedy", "small", 0, 1);
    let partition = request.topics[0].partitions[0].clone();
    request.topics[0].partitions = vec![partition; 250_001];
    let answer = client.call(9, &request).await;
    let codes: Vec<_> = answer.topics[0]
        .partitions
        .iter()
        .map(|it| it.error_code)
        .collect();
    assert_eq!(codes[249_999..], [0, ErrorCode::InvalidCommitOffsetSize.code()]);
}

#[tokio::test]
async fn commits_that_were_sent_together_are_answered_in_order() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("busy", 1).await;
    for offset in 0..500 {
        client.send(9, &commit("hasty", "busy", 0, offset)).await;
    }
    for _ in 0..500 {
        let (_, response) = client.receive::<OffsetCommitRequest>(9).await;
        assert_eq!(response.topics[0].partitions[0].error_code, 0);
    }
    assert_eq!(all(&mut client, "hasty").await, [("busy".into(), 0, 499)]);
    assert_eq!(server.metric("groups_commits_total"), 500);
}

#[tokio::test]
async fn ten_thousand_groups_come_back_after_a_restart() {
    const GROUPS: usize = 10_000;
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("crowd", 1).await;
    let mut request = commit("", "crowd", 0, 1);
    for begin in (0..GROUPS).step_by(500) {
        for number in begin..begin + 500 {
            request.group_id = Str::from(format!("group {number}"));
            client.send(9, &request).await;
        }
        for _ in 0..500 {
            client.receive::<OffsetCommitRequest>(9).await;
        }
    }
    let server = server.restart().await;
    assert_eq!(server.broker.groups().len(), GROUPS);
    assert_eq!(
        all(&mut server.client().await, "group 9999").await,
        [("crowd".into(), 0, 1)]
    );
}
