//! Share groups: members take records of partitions together, and settle each by itself (KIP-932).

use std::time::Duration;

use stafett_kafka_wire::messages::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use stafett_kafka_wire::messages::delete_share_group_offsets::DeleteShareGroupOffsetsRequestTopic;
use stafett_kafka_wire::messages::describe_share_group_offsets::DescribeShareGroupOffsetsRequestGroup;
use stafett_kafka_wire::messages::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use stafett_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use stafett_kafka_wire::messages::{
    AlterShareGroupOffsetsRequest, ConsumerGroupHeartbeatRequest, DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest, DeleteTopicsRequest, DescribeShareGroupOffsetsRequest,
    IncrementalAlterConfigsRequest, ListGroupsRequest, OffsetCommitRequest, ShareAcknowledgeRequest,
    ShareFetchRequest, ShareFetchResponse, ShareGroupDescribeRequest, ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse, share_acknowledge, share_fetch,
};
use stafett_kafka_wire::{ErrorCode, Uuid};

use crate::peer::{Client, Server, batch};
use crate::transactions::Producer;

const GAP: i8 = 0;
const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;
const RENEW: i8 = 4;
const LOCK: Duration = Duration::from_secs(30);

/// Ranges of offsets that a member took, each with its number of deliveries.
type Taken = Vec<(i64, i64, i16)>;
/// First offset, last offset, and acknowledge types.
type Settled<'a> = (i64, i64, &'a [i8]);

/// A member of the share group `group`, and its share session.
struct Sharer {
    client: Client,
    name: &'static str,
    topic: Uuid,
    epoch: i32,
}

fn beat(member: &'static str, epoch: i32) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        group_id: "group".into(),
        member_id: member.into(),
        member_epoch: epoch,
        ..ShareGroupHeartbeatRequest::default()
    }
}

fn join(member: &'static str) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        subscribed_topic_names: Some(vec!["t".into()]),
        ..beat(member, 0)
    }
}

fn told(response: &ShareGroupHeartbeatResponse) -> Option<Vec<i32>> {
    let topics = response.assignment.as_ref()?.topic_partitions.iter();
    Some(topics.flat_map(|topic| topic.partitions.clone()).collect())
}

fn taken(response: &ShareFetchResponse) -> Taken {
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let ranges = partitions.flat_map(|partition| &partition.acquired_records);
    ranges
        .map(|range| (range.first_offset, range.last_offset, range.delivery_count))
        .collect()
}

impl Sharer {
    /// Joins the group, and opens a session with partition 0.
    async fn join(server: &Server, name: &'static str, topic: Uuid) -> Self {
        let mut client = server.client().await;
        let joined = client.call(1, &join(name)).await;
        assert_eq!(joined.error_code, 0, "{:?}", joined.error_message);
        Self {
            client,
            name,
            topic,
            epoch: 0,
        }
    }

    fn request(&mut self, settled: &[Settled<'_>]) -> ShareFetchRequest {
        let batches = settled
            .iter()
            .map(|(first, last, types)| share_fetch::AcknowledgementBatch {
                first_offset: *first,
                last_offset: *last,
                acknowledge_types: types.to_vec(),
            });
        let request = ShareFetchRequest {
            group_id: Some("group".into()),
            member_id: Some(self.name.into()),
            share_session_epoch: self.epoch,
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 500,
            batch_size: 500,
            topics: vec![share_fetch::FetchTopic {
                topic_id: self.topic,
                partitions: vec![share_fetch::FetchPartition {
                    partition_index: 0,
                    acknowledgement_batches: batches.collect(),
                }],
            }],
            ..ShareFetchRequest::default()
        };
        self.epoch += 1;
        request
    }

    async fn send(&mut self, request: &ShareFetchRequest) -> ShareFetchResponse {
        self.client.call(2, request).await
    }

    /// Settles records and takes others. Every code has to be 0.
    async fn fetch(&mut self, settled: &[Settled<'_>]) -> Taken {
        let request = self.request(settled);
        let response = self.send(&request).await;
        assert_eq!(response.error_code, 0, "{:?}", response.error_message);
        for partition in response.responses.iter().flat_map(|topic| &topic.partitions) {
            assert_eq!(partition.error_code, 0, "{:?}", partition.error_message);
            let why = &partition.acknowledge_error_message;
            assert_eq!(partition.acknowledge_error_code, 0, "{why:?}");
        }
        taken(&response)
    }

    fn acknowledgement(&mut self, settled: &[Settled<'_>]) -> ShareAcknowledgeRequest {
        let batches = settled
            .iter()
            .map(|(first, last, types)| share_acknowledge::AcknowledgementBatch {
                first_offset: *first,
                last_offset: *last,
                acknowledge_types: types.to_vec(),
            });
        let request = ShareAcknowledgeRequest {
            group_id: Some("group".into()),
            member_id: Some(self.name.into()),
            share_session_epoch: self.epoch,
            is_renew_ack: settled.iter().any(|(.., types)| types.contains(&RENEW)),
            topics: vec![share_acknowledge::AcknowledgeTopic {
                topic_id: self.topic,
                partitions: vec![share_acknowledge::AcknowledgePartition {
                    partition_index: 0,
                    acknowledgement_batches: batches.collect(),
                }],
            }],
        };
        self.epoch += 1;
        request
    }

    /// Settles records. Returns the code of the partition.
    async fn settle(&mut self, settled: &[Settled<'_>]) -> i16 {
        let request = self.acknowledgement(settled);
        let response = self.client.call(2, &request).await;
        assert_eq!(response.error_code, 0, "{:?}", response.error_message);
        assert_eq!(response.acquisition_lock_timeout_ms, 30_000);
        response.responses[0].partitions[0].error_code
    }

    async fn report(&mut self, epoch: i32) -> ShareGroupHeartbeatResponse {
        self.client.call(1, &beat(self.name, epoch)).await
    }
}

/// Creates the topic, and has the group begin at its first records.
async fn start() -> (Server, Client, Uuid) {
    let server = Server::start().await;
    let mut client = server.client().await;
    let topic = client.create("t", 1).await;
    set(&mut client, "share.auto.offset.reset", "earliest").await;
    (server, client, topic)
}

async fn set(client: &mut Client, name: &'static str, value: &'static str) {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 32,
            resource_name: "group".into(),
            configs: vec![AlterableConfig {
                name: name.into(),
                config_operation: 0,
                value: Some(value.into()),
            }],
        }],
        ..IncrementalAlterConfigsRequest::default()
    };
    let response = client.call(1, &request).await;
    let altered = &response.responses[0];
    assert_eq!(altered.error_code, 0, "{:?}", altered.error_message);
}

/// Lets some time pass.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Start offset and lag of partition 0, as they are described.
async fn place(client: &mut Client) -> (i64, i64) {
    let request = DescribeShareGroupOffsetsRequest {
        groups: vec![DescribeShareGroupOffsetsRequestGroup {
            group_id: "group".into(),
            topics: None,
        }],
    };
    let response = client.call(1, &request).await;
    let partition = &response.groups[0].topics[0].partitions[0];
    (partition.start_offset, partition.lag)
}

#[tokio::test]
async fn records_are_accepted_released_and_rejected() {
    let (server, mut client, topic) = start().await;
    client.produce("t", 0, batch(&["a", "b", "c", "d"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.fetch(&[]).await, [(0, 3, 1)]);
    assert_eq!(place(&mut client).await, (0, 4));
    let settled = [(0, 0, &[ACCEPT][..]), (1, 3, &[RELEASE, REJECT, ACCEPT])];
    assert_eq!(one.fetch(&settled).await, [(1, 1, 2)], "in the same request");
    assert_eq!(place(&mut client).await, (1, 1));
    assert_eq!(one.settle(&[(1, 1, &[GAP])]).await, 0);
    assert_eq!(place(&mut client).await, (4, 0));
    assert_eq!(one.fetch(&[]).await, []);
}

#[tokio::test]
async fn records_of_a_transaction_come_once_it_is_committed_and_aborted_ones_never() {
    let (server, mut client, topic) = start().await;
    set(&mut client, "share.isolation.level", "read_committed").await;
    let mut one = Sharer::join(&server, "one", topic).await;
    let mut producer = Producer::begin(&mut client, "id").await;
    let offsets_of = |taken: Taken| {
        taken
            .into_iter()
            .map(|(first, last, _)| (first, last))
            .collect::<Vec<_>>()
    };
    for (committed, expected) in [(true, vec![(0, 0)]), (false, vec![]), (true, vec![(4, 4)])] {
        assert_eq!(producer.send(&mut client, 12, 0, "x").await, 0);
        assert_eq!(one.fetch(&[]).await, [], "it is open");
        producer = producer.end(&mut client, 5, committed).await.unwrap();
        assert_eq!(offsets_of(one.fetch(&[]).await), expected);
    }
}

#[tokio::test]
async fn a_group_gets_records_of_open_and_aborted_transactions_unless_it_reads_committed_ones_only() {
    let (server, mut client, topic) = start().await;
    let mut one = Sharer::join(&server, "one", topic).await;
    let producer = Producer::begin(&mut client, "id").await;
    assert_eq!(producer.send(&mut client, 12, 0, "x").await, 0);
    assert_eq!(one.fetch(&[]).await, [(0, 0, 1)], "it is open");
    set(&mut client, "share.isolation.level", "read_committed").await;
    assert_eq!(one.fetch(&[(0, 0, &[RELEASE])]).await, [], "it is not committed");
    set(&mut client, "share.isolation.level", "read_uncommitted").await;
    producer.end(&mut client, 5, false).await.unwrap();
    assert_eq!(one.fetch(&[]).await, [(0, 0, 2)], "it is aborted");
    assert_eq!(one.fetch(&[(0, 0, &[ACCEPT])]).await, [], "the end is no record");
    assert_eq!(place(&mut client).await, (2, 0));
}

#[tokio::test]
async fn members_share_a_partition_without_overlap() {
    let (server, mut client, topic) = start().await;
    for _ in 0..6 {
        client.produce("t", 0, batch(&["a", "b"])).await;
    }
    let mut members = Vec::new();
    for name in ["one", "two", "three"] {
        members.push(Sharer::join(&server, name, topic).await);
    }
    let mut all = Vec::new();
    for member in &mut members {
        let limited = ShareFetchRequest {
            max_records: 3,
            batch_size: 1,
            ..member.request(&[])
        };
        all.extend(taken(&member.send(&limited).await));
    }
    let ranges = [(0, 1, 1), (2, 3, 1), (4, 5, 1), (6, 7, 1), (8, 9, 1), (10, 11, 1)];
    assert_eq!(all, ranges, "whole batches, split at their ends");
    // Every member has the one partition.
    for member in &mut members {
        let reply = member.client.call(1, &join(member.name)).await;
        assert_eq!(told(&reply).unwrap(), [0]);
    }
    let not_held = ErrorCode::InvalidRecordState.code();
    assert_eq!(members[1].settle(&[(0, 1, &[ACCEPT])]).await, not_held);
    assert_eq!(members[0].settle(&[(0, 1, &[ACCEPT])]).await, 0);
    assert_eq!(
        members[0].settle(&[(0, 1, &[ACCEPT])]).await,
        0,
        "below the start: ignored"
    );
    let exact = ShareFetchRequest {
        max_records: 1,
        share_acquire_mode: 1,
        ..members[0].request(&[(2, 3, &[RELEASE])])
    };
    assert_eq!(taken(&members[0].send(&exact).await), [(2, 2, 2)]);
}

#[tokio::test]
async fn a_lock_runs_out_unless_it_is_renewed() {
    let (server, mut client, topic) = start().await;
    client.produce("t", 0, batch(&["a", "b", "c"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    let mut two = Sharer::join(&server, "two", topic).await;
    assert_eq!(one.fetch(&[]).await, [(0, 2, 1)]);
    pass(LOCK / 2).await;
    assert_eq!(two.fetch(&[]).await, []);
    assert_eq!(one.settle(&[(1, 1, &[RENEW])]).await, 0);
    // A fetch waits for the locks that run out first.
    let waiting = ShareFetchRequest {
        max_wait_ms: 60_000,
        ..two.request(&[])
    };
    two.client.send(2, &waiting).await;
    pass(LOCK / 2).await;
    let (_, response) = two.client.receive::<ShareFetchRequest>(2).await;
    assert_eq!(taken(&response), [(0, 0, 2), (2, 2, 2)]);
    let not_held = ErrorCode::InvalidRecordState.code();
    assert_eq!(
        one.settle(&[(0, 0, &[ACCEPT])]).await,
        not_held,
        "it is another's now"
    );
    assert_eq!(one.settle(&[(1, 1, &[ACCEPT])]).await, 0);
    pass(LOCK).await;
    let waiting = ShareFetchRequest {
        max_wait_ms: 60_000,
        ..one.request(&[])
    };
    assert_eq!(taken(&one.send(&waiting).await), [(0, 0, 3), (2, 2, 3)]);
}

#[tokio::test]
async fn a_record_is_delivered_as_often_as_it_may_be() {
    let (server, mut client, topic) = start().await;
    client.produce("t", 0, batch(&["a", "b"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.fetch(&[]).await, [(0, 1, 1)]);
    for deliveries in 2..=3 {
        assert_eq!(one.fetch(&[(0, 1, &[RELEASE])]).await, [(0, 1, deliveries)]);
    }
    assert_eq!(
        one.fetch(&[(0, 1, &[RELEASE])]).await,
        [(0, 0, 4)],
        "half of them"
    );
    assert_eq!(one.fetch(&[(0, 0, &[RELEASE])]).await, [(0, 0, 5)]);
    assert_eq!(one.fetch(&[(0, 0, &[RELEASE])]).await, [(1, 1, 4)]);
    assert_eq!(one.fetch(&[(1, 1, &[RELEASE])]).await, [(1, 1, 5)]);
    assert_eq!(one.fetch(&[(1, 1, &[ACCEPT])]).await, []);
    assert_eq!(place(&mut client).await, (2, 0));
    set(&mut client, "share.delivery.count.limit", "2").await;
    client.produce("t", 0, batch(&["c"])).await;
    assert_eq!(one.fetch(&[]).await, [(2, 2, 1)]);
    assert_eq!(one.fetch(&[(2, 2, &[RELEASE])]).await, [(2, 2, 2)]);
    assert_eq!(one.fetch(&[(2, 2, &[RELEASE])]).await, []);
}

#[tokio::test]
async fn a_record_that_always_fails_takes_no_other_along() {
    const FAILING: i64 = 5;
    let (server, mut client, topic) = start().await;
    for _ in 0..4 {
        client.produce("t", 0, batch(&["a", "b", "c"])).await;
    }
    let mut one = Sharer::join(&server, "one", topic).await;
    let (mut accepted, mut sizes) = (Vec::<i64>::new(), Vec::new());
    let mut held = one.fetch(&[]).await;
    while !held.is_empty() {
        // A client that fails with one record releases all that it has.
        let fails = held
            .iter()
            .any(|(first, last, _)| (*first..=*last).contains(&FAILING));
        let kind = if fails { RELEASE } else { ACCEPT };
        let offsets = held.iter().flat_map(|(first, last, _)| *first..=*last);
        let offsets: Vec<i64> = offsets.collect();
        sizes.push(offsets.len());
        if !fails {
            accepted.extend(&offsets);
        }
        let kinds = [kind];
        let settled: Vec<Settled<'_>> = held
            .iter()
            .map(|(first, last, _)| (*first, *last, &kinds[..]))
            .collect();
        held = one.fetch(&settled).await;
    }
    accepted.sort_unstable();
    let others: Vec<i64> = (0..12).filter(|offset| *offset != FAILING).collect();
    assert_eq!(accepted, others);
    // All, three times; half of the first ones; those of this half alone, and the rest.
    assert_eq!(sizes, [12, 12, 12, 6, 1, 1, 1, 1, 1, 1, 6]);
    assert_eq!(place(&mut client).await, (12, 0));
}

#[tokio::test]
async fn a_member_that_leaves_or_is_missed_keeps_its_locks_until_their_time_is_over() {
    let (server, mut client, topic) = start().await;
    set(&mut client, "share.record.lock.duration.ms", "60000").await;
    client.produce("t", 0, batch(&["a", "b"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    let mut two = Sharer::join(&server, "two", topic).await;
    let mut three = Sharer::join(&server, "three", topic).await;
    for (member, offset) in [(&mut one, 0), (&mut two, 1)] {
        let exact = ShareFetchRequest {
            max_records: 1,
            share_acquire_mode: 1,
            ..member.request(&[])
        };
        assert_eq!(taken(&member.send(&exact).await), [(offset, offset, 1)]);
    }
    assert_eq!(one.report(-1).await.member_epoch, -1);
    assert_eq!(three.fetch(&[]).await, []);
    pass(Duration::from_secs(46)).await;
    let missed = two.report(1).await.error_code;
    assert_eq!(missed, ErrorCode::UnknownMemberId.code());
    assert_eq!(three.fetch(&[]).await, []);
    let waiting = ShareFetchRequest {
        max_wait_ms: 60_000,
        ..three.request(&[])
    };
    three.client.send(2, &waiting).await;
    pass(Duration::from_secs(15)).await;
    let (_, response) = three.client.receive::<ShareFetchRequest>(2).await;
    assert_eq!(taken(&response), [(0, 1, 2)]);
}

#[tokio::test]
async fn a_fetch_waits_for_records_and_for_those_that_others_release() {
    let (server, mut client, topic) = start().await;
    let mut one = Sharer::join(&server, "one", topic).await;
    let mut two = Sharer::join(&server, "two", topic).await;
    let wait = |request| ShareFetchRequest {
        max_wait_ms: 60_000,
        ..request
    };
    let request = wait(one.request(&[]));
    one.client.send(2, &request).await;
    client.produce("t", 0, batch(&["a"])).await;
    let (_, response) = one.client.receive::<ShareFetchRequest>(2).await;
    assert_eq!(taken(&response), [(0, 0, 1)]);
    let request = wait(two.request(&[]));
    two.client.send(2, &request).await;
    assert_eq!(one.settle(&[(0, 0, &[RELEASE])]).await, 0);
    let (_, response) = two.client.receive::<ShareFetchRequest>(2).await;
    assert_eq!(taken(&response), [(0, 0, 2)]);
}

#[tokio::test]
async fn what_was_accepted_stays_accepted_over_a_restart() {
    let (server, mut client, topic) = start().await;
    client.produce("t", 0, batch(&["a", "b", "c", "d"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.fetch(&[]).await, [(0, 3, 1)]);
    assert_eq!(one.fetch(&[(1, 2, &[RELEASE, ACCEPT])]).await, [(1, 1, 2)]);
    let server = server.restart().await;
    let mut one = Sharer::join(&server, "one", topic).await;
    // The earlier connection has ended: its records were released.
    assert_eq!(one.fetch(&[]).await, [(0, 0, 2), (1, 1, 3), (3, 3, 2)]);
    assert_eq!(one.settle(&[(0, 0, &[ACCEPT])]).await, 0);
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(place(&mut client).await, (1, 2));
}

#[tokio::test]
async fn sessions_have_epochs_and_end_with_what_they_hold() {
    let (server, mut client, topic) = start().await;
    client.produce("t", 0, batch(&["a"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    let code = |response: ShareFetchResponse| response.error_code;
    one.epoch = 1;
    let request = one.request(&[]);
    assert_eq!(
        code(one.send(&request).await),
        ErrorCode::ShareSessionNotFound.code()
    );
    one.epoch = 0;
    let request = one.request(&[(0, 0, &[ACCEPT])]);
    assert_eq!(code(one.send(&request).await), ErrorCode::InvalidRequest.code());
    one.epoch = 0;
    assert_eq!(one.fetch(&[]).await, [(0, 0, 1)]);
    one.epoch = 7;
    let request = one.request(&[]);
    let wrong = ErrorCode::InvalidShareSessionEpoch.code();
    assert_eq!(code(one.send(&request).await), wrong);
    one.epoch = 0;
    let request = one.acknowledgement(&[(0, 0, &[ACCEPT])]);
    assert_eq!(one.client.call(2, &request).await.error_code, wrong);
    one.epoch = -1;
    let request = one.request(&[]);
    assert_eq!(code(one.send(&request).await), 0);
    one.epoch = -1;
    let request = one.request(&[]);
    assert_eq!(
        code(one.send(&request).await),
        ErrorCode::ShareSessionNotFound.code()
    );
    one.epoch = 0;
    assert_eq!(one.fetch(&[]).await, [(0, 0, 2)], "it was released");
    drop(one);
    let mut two = Sharer::join(&server, "two", topic).await;
    let waiting = ShareFetchRequest {
        max_wait_ms: 60_000,
        ..two.request(&[])
    };
    assert_eq!(
        taken(&two.send(&waiting).await),
        [(0, 0, 3)],
        "its connection has ended"
    );
}

#[tokio::test]
async fn members_are_known_by_their_epochs() {
    let (server, mut client, topic) = start().await;
    let mut one = Sharer::join(&server, "one", topic).await;
    let joined = one.client.call(1, &join("one")).await;
    assert_eq!(told(&joined).unwrap(), [0]);
    let epoch = joined.member_epoch;
    assert_eq!(told(&one.report(epoch).await), None, "nothing changed");
    let fenced = one.report(epoch + 1).await.error_code;
    assert_eq!(fenced, ErrorCode::FencedMemberEpoch.code());
    let unknown = client.call(1, &beat("other", 1)).await.error_code;
    assert_eq!(unknown, ErrorCode::UnknownMemberId.code());
    let described = client
        .call(
            1,
            &ShareGroupDescribeRequest {
                group_ids: vec!["group".into(), "none".into()],
                ..ShareGroupDescribeRequest::default()
            },
        )
        .await;
    let group = &described.groups[0];
    assert_eq!((group.error_code, &*group.group_state), (0, "Stable"));
    assert_eq!(&*group.assignor_name, "simple");
    assert_eq!(group.members[0].assignment.topic_partitions[0].partitions, [0]);
    assert_eq!(described.groups[1].error_code, ErrorCode::GroupIdNotFound.code());
    let listed = client.call(5, &ListGroupsRequest::default()).await.groups;
    assert_eq!(
        (&*listed[0].group_type, &*listed[0].group_state),
        ("share", "Stable")
    );
    // Time passes, and the member is silent.
    pass(Duration::from_secs(46)).await;
    let gone = one.report(epoch).await.error_code;
    assert_eq!(gone, ErrorCode::UnknownMemberId.code());
}

#[tokio::test]
async fn a_share_group_is_no_other_group() {
    let (server, mut client, topic) = start().await;
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.report(-1).await.member_epoch, -1);
    let consumer = ConsumerGroupHeartbeatRequest {
        group_id: "group".into(),
        member_id: "c".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec!["t".into()]),
        topic_partitions: Some(Vec::new()),
        ..ConsumerGroupHeartbeatRequest::default()
    };
    let refused = client.call(1, &consumer).await.error_code;
    assert_eq!(refused, ErrorCode::GroupIdNotFound.code());
    let commit = OffsetCommitRequest {
        group_id: "group".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            partitions: vec![OffsetCommitRequestPartition::default()],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    let committed = client.call(9, &commit).await;
    let refused = committed.topics[0].partitions[0].error_code;
    assert_eq!(refused, ErrorCode::GroupIdNotFound.code());
    let other = ConsumerGroupHeartbeatRequest {
        group_id: "other".into(),
        ..consumer
    };
    assert_eq!(client.call(1, &other).await.error_code, 0);
    let share = ShareGroupHeartbeatRequest {
        group_id: "other".into(),
        ..join("one")
    };
    let refused = client.call(1, &share).await.error_code;
    assert_eq!(refused, ErrorCode::GroupIdNotFound.code());
}

#[tokio::test]
async fn offsets_are_described_altered_and_deleted_while_there_are_no_members() {
    let (server, mut client, topic) = start().await;
    client.produce("t", 0, batch(&["a", "b", "c"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.fetch(&[]).await, [(0, 2, 1)]);
    let alter = |offset, partition| AlterShareGroupOffsetsRequest {
        group_id: "group".into(),
        topics: vec![AlterShareGroupOffsetsRequestTopic {
            topic_name: "t".into(),
            partitions: vec![AlterShareGroupOffsetsRequestPartition {
                partition_index: partition,
                start_offset: offset,
            }],
        }],
    };
    let refused = client.call(0, &alter(1, 0)).await;
    assert_eq!(refused.error_code, ErrorCode::NonEmptyGroup.code());
    let other = AlterShareGroupOffsetsRequest {
        group_id: "new".into(),
        ..alter(1, 0)
    };
    assert_eq!(client.call(0, &other).await.error_code, 0);
    assert!(server.broker.groups().is_share_group("new"), "it is made");
    assert_eq!(one.fetch(&[(0, 2, &[ACCEPT])]).await, []);
    assert_eq!(place(&mut client).await, (3, 0));
    one.report(-1).await;
    let altered = client.call(0, &alter(1, 0)).await;
    assert_eq!(altered.responses[0].partitions[0].error_code, 0);
    let unknown = client.call(0, &alter(1, 1)).await;
    let no_partition = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(unknown.responses[0].partitions[0].error_code, no_partition);
    assert_eq!(place(&mut client).await, (1, 2));
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(place(&mut client).await, (1, 2));
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.fetch(&[]).await, [(1, 2, 1)]);
    one.report(-1).await;
    let delete = DeleteShareGroupOffsetsRequest {
        group_id: "group".into(),
        topics: vec![DeleteShareGroupOffsetsRequestTopic {
            topic_name: "t".into(),
        }],
    };
    assert_eq!(client.call(0, &delete).await.responses[0].error_code, 0);
    let again = client.call(0, &delete).await.responses[0].error_code;
    assert_eq!(again, ErrorCode::UnknownTopicOrPartition.code());
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.fetch(&[]).await, [(0, 2, 1)], "it begins anew");
    one.report(-1).await;
    let delete = DeleteGroupsRequest {
        groups_names: vec!["group".into()],
    };
    assert_eq!(client.call(2, &delete).await.results[0].error_code, 0);
    let shares = server.broker.shares();
    assert!(shares.of_group("group").is_empty());
}

#[tokio::test]
async fn a_place_goes_with_its_topic_and_grows_with_it() {
    let (server, mut client, topic) = start().await;
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.fetch(&[]).await, []);
    let id = stafett_topics::TopicId(topic.into());
    let grown = server.broker.grow_topic(id, 2).await;
    grown.unwrap();
    client.produce("t", 1, batch(&["a"])).await;
    let mut request = one.request(&[]);
    request.topics[0].partitions[0].partition_index = 1;
    assert_eq!(taken(&one.send(&request).await), [(0, 0, 1)]);
    let delete = DeleteTopicsRequest {
        topic_names: vec!["t".into()],
        timeout_ms: 10_000,
        ..DeleteTopicsRequest::default()
    };
    client.call(5, &delete).await;
    let request = one.request(&[]);
    let response = one.send(&request).await;
    let unknown = ErrorCode::UnknownTopicId.code();
    assert_eq!(response.responses[0].partitions[0].error_code, unknown);
    let shares = server.broker.shares();
    assert!(shares.of_group("group").is_empty());
}

#[tokio::test]
async fn a_group_begins_with_new_records_unless_it_is_told_otherwise() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let topic = client.create("t", 1).await;
    client.produce("t", 0, batch(&["a"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.fetch(&[]).await, []);
    client.produce("t", 0, batch(&["b"])).await;
    assert_eq!(one.fetch(&[]).await, [(1, 1, 1)]);
}

#[tokio::test]
async fn a_fetch_without_room_for_a_byte_takes_nothing() {
    let (server, mut client, topic) = start().await;
    client.produce("t", 0, batch(&["a"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    let request = ShareFetchRequest {
        max_bytes: 0,
        ..one.request(&[])
    };
    let response = one.send(&request).await;
    assert!(response.error_code == 0 && taken(&response).is_empty());
    assert_eq!(one.fetch(&[]).await, [(0, 0, 1)]);
}

#[tokio::test]
async fn malformed_acknowledgements_change_nothing() {
    let (server, mut client, topic) = start().await;
    client.produce("t", 0, batch(&["a", "b", "c"])).await;
    let mut one = Sharer::join(&server, "one", topic).await;
    assert_eq!(one.fetch(&[]).await, [(0, 2, 1)]);
    let invalid = ErrorCode::InvalidRequest.code();
    let not_held = ErrorCode::InvalidRecordState.code();
    let many = vec![ACCEPT; 100_000];
    let cases: &[(&str, &[Settled<'_>], i16)] = &[
        ("nothing", &[(0, 0, &[])], invalid),
        ("backwards", &[(2, 1, &[ACCEPT])], invalid),
        ("negative", &[(-1, 1, &[ACCEPT])], invalid),
        ("too few types", &[(0, 2, &[ACCEPT, ACCEPT])], invalid),
        ("too many types", &[(0, 2, &many)], invalid),
        ("unknown type", &[(0, 0, &[5])], invalid),
        ("negative type", &[(0, 0, &[-1])], invalid),
        ("overlap", &[(0, 2, &[ACCEPT]), (1, 2, &[ACCEPT])], invalid),
        ("twice", &[(0, 1, &[ACCEPT]), (1, 2, &[ACCEPT])], not_held),
        ("not taken", &[(0, 0, &[ACCEPT]), (1, 3, &[ACCEPT])], invalid),
        ("all there could be", &[(0, i64::MAX, &[ACCEPT])], invalid),
    ];
    for (what, settled, code) in cases {
        assert_eq!(one.settle(settled).await, *code, "{what}");
    }
    assert_eq!(place(&mut client).await, (0, 3));
    let nothing = one.acknowledgement(&[]);
    let response = one.client.call(2, &nothing).await;
    assert!(response.error_code == 0 && response.responses.is_empty());
    let mut request = one.acknowledgement(&[(0, 0, &[RENEW])]);
    request.is_renew_ack = false;
    let response = one.client.call(2, &request).await;
    assert_eq!(response.responses[0].partitions[0].error_code, invalid);
    let mut stranger = Sharer::join(&server, "two", topic).await;
    stranger.fetch(&[]).await;
    assert_eq!(stranger.settle(&[(0, 0, &[ACCEPT])]).await, not_held);
    let mut request = one.acknowledgement(&[(0, 0, &[ACCEPT])]);
    request.topics[0].topic_id = Uuid::from(7);
    let response = one.client.call(2, &request).await;
    let unknown = ErrorCode::UnknownTopicId.code();
    assert_eq!(response.responses[0].partitions[0].error_code, unknown);
    for (group, member) in [
        (None, Some("one")),
        (Some("group"), None),
        (Some("group"), Some("")),
    ] {
        let request = ShareFetchRequest {
            group_id: group.map(Into::into),
            member_id: member.map(Into::into),
            ..one.request(&[])
        };
        assert_eq!(one.send(&request).await.error_code, invalid);
    }
    let request = ShareFetchRequest {
        share_acquire_mode: 2,
        ..one.request(&[])
    };
    assert_eq!(one.send(&request).await.error_code, invalid);
    let long = client
        .call(1, &join("a member id of more than 36 characters"))
        .await;
    assert_eq!(long.error_code, invalid);
    let request = ShareFetchRequest {
        group_id: Some("nobody".into()),
        ..one.request(&[])
    };
    let no_group = ErrorCode::GroupIdNotFound.code();
    assert_eq!(one.send(&request).await.error_code, no_group);
}
