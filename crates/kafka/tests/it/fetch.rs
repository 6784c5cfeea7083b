//! Fetching without a session: limits, waiting, errors.

use std::time::{Duration, Instant};

use stafett_kafka_wire::messages::fetch::{FetchPartition, PartitionData};
use stafett_kafka_wire::messages::{DeleteTopicsRequest, FetchRequest, FetchResponse};
use stafett_kafka_wire::{ErrorCode, Message, Uuid};

use crate::peer::{Client, PATIENCE, Server, batch, fetch, fetch_topic, produce, values};

fn only(mut response: FetchResponse) -> PartitionData {
    assert_eq!((response.error_code, response.responses.len()), (0, 1));
    let mut topic = response.responses.remove(0);
    assert_eq!(topic.partitions.len(), 1);
    topic.partitions.remove(0)
}

async fn filled(server: &Server, batches: usize) -> Client {
    let mut client = server.client().await;
    client.create("orders", 2).await;
    for n in 0..batches {
        let value = format!("{n:0100}");
        client.produce("orders", 0, batch(&[&value, &value])).await;
    }
    client
}

#[tokio::test]
async fn every_version_reads_the_same() {
    let server = Server::start().await;
    let mut client = filled(&server, 3).await;
    let id = client.topic("orders").await.topic_id;
    for version in FetchRequest::VERSIONS {
        let mut request = fetch("orders", 0, 0);
        if version >= 13 {
            request.topics[0].topic_id = id;
            request.topics[0].topic = "".into();
        }
        let response = client.call(version, &request).await;
        assert_eq!(values(&response).len(), 6);
        assert_eq!(response.session_id, 0);
        let topic = &response.responses[0];
        if version >= 13 {
            assert_eq!(topic.topic_id, id);
        } else {
            assert_eq!(topic.topic, "orders");
        }
        let partition = &topic.partitions[0];
        assert_eq!((partition.high_watermark, partition.last_stable_offset), (6, 6));
        assert_eq!(partition.log_start_offset, if version >= 5 { 0 } else { -1 });
        assert_eq!(
            (partition.preferred_read_replica, &partition.aborted_transactions),
            (-1, &None)
        );
        let committed = FetchRequest {
            isolation_level: 1,
            ..request
        };
        let response = client.call(version, &committed).await;
        assert_eq!(
            response.responses[0].partitions[0].aborted_transactions,
            Some(Vec::new())
        );
    }
}

#[tokio::test]
async fn the_whole_batch_is_returned_when_the_offset_falls_inside_of_it() {
    let server = Server::start().await;
    let mut client = filled(&server, 2).await;
    assert_eq!(client.values("orders", 0, 1).await.len(), 4);
    assert_eq!(client.values("orders", 0, 2).await.len(), 2);
    assert_eq!(client.values("orders", 0, 3).await.len(), 2);
    assert_eq!(client.values("orders", 0, 4).await.len(), 0);
}

#[tokio::test]
async fn bytes_are_bounded_but_for_the_first_batch() {
    let server = Server::start().await;
    let mut client = filled(&server, 4).await;
    client.produce("orders", 1, batch(&["other"])).await;
    let bytes = batch(&[&"0".repeat(100), &"0".repeat(100)]).len() as i32;
    let ask = |max_bytes, partition_max_bytes| {
        let mut request = FetchRequest {
            max_bytes,
            topics: vec![fetch_topic("orders", &[(0, 0), (1, 0)])],
            ..FetchRequest::default()
        };
        for partition in &mut request.topics[0].partitions {
            partition.partition_max_bytes = partition_max_bytes;
        }
        request
    };
    let cases = [
        (ask(i32::MAX, i32::MAX), 9),
        (ask(i32::MAX, 2 * bytes + 20), 5),
        (ask(2 * bytes + 20, i32::MAX), 4),
        (ask(1, i32::MAX), 2),
        (ask(0, 0), 2),
        (ask(-1, -1), 2),
        (ask(bytes, 1), 2),
        (ask(bytes + 100, 1), 2),
    ];
    for (request, records) in cases {
        let response = client.call(12, &request).await;
        assert_eq!(
            values(&response).len(),
            records,
            "{} {:?}",
            request.max_bytes,
            request.topics
        );
        assert_eq!(
            response.responses[0].partitions.len(),
            2,
            "of what had no room, the end is told"
        );
        assert_eq!(response.responses[0].partitions[1].high_watermark, 1);
    }
}

#[tokio::test]
async fn what_cannot_be_read_says_why() {
    let server = Server::start().await;
    let mut client = filled(&server, 1).await;
    let epoch = client.topic("orders").await.partitions[0].leader_epoch;
    let ask = |partition, fetch_offset, current_leader_epoch| {
        let mut request = fetch("orders", 0, 0);
        request.topics[0].partitions = vec![FetchPartition {
            partition,
            fetch_offset,
            current_leader_epoch,
            partition_max_bytes: 1000,
            ..FetchPartition::default()
        }];
        request
    };
    let cases = [
        (ask(0, 3, -1), ErrorCode::OffsetOutOfRange),
        (ask(0, -1, -1), ErrorCode::OffsetOutOfRange),
        (ask(0, i64::MAX, -1), ErrorCode::OffsetOutOfRange),
        (ask(0, i64::MIN, -1), ErrorCode::OffsetOutOfRange),
        (ask(2, 0, -1), ErrorCode::UnknownTopicOrPartition),
        (ask(-1, 0, -1), ErrorCode::UnknownTopicOrPartition),
        // 0 is no epoch.
        (ask(0, 0, epoch - 1), ErrorCode::None),
        (ask(0, 0, epoch + 1), ErrorCode::UnknownLeaderEpoch),
        (ask(0, 0, epoch), ErrorCode::None),
        (fetch("none", 0, 0), ErrorCode::UnknownTopicOrPartition),
    ];
    for (mut request, expected) in cases {
        // An error does not wait.
        (request.max_wait_ms, request.min_bytes) = (i32::MAX, i32::from(expected != ErrorCode::None));
        let partition = only(client.call(12, &request).await);
        assert_eq!(partition.error_code, expected.code(), "{:?}", request.topics);
        if expected != ErrorCode::None {
            assert_eq!((partition.high_watermark, partition.log_start_offset), (-1, -1));
            assert!(partition.records.unwrap().is_empty());
        }
    }
    let mut by_id = fetch("orders", 0, 0);
    (by_id.topics[0].topic, by_id.topics[0].topic_id) = ("".into(), Uuid::from(99));
    let partition = only(client.call(13, &by_id).await);
    assert_eq!(partition.error_code, ErrorCode::UnknownTopicId.code());
}

#[tokio::test]
async fn a_fetch_that_waits_is_woken_by_a_produce() {
    let server = Server::start().await;
    let mut consumer = filled(&server, 0).await;
    let mut producer = server.client().await;
    let request = FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 1,
        ..fetch("orders", 0, 0)
    };
    for (offset, value) in (0..).zip(["first", "second", "third"]) {
        let mut request = request.clone();
        request.topics[0].partitions[0].fetch_offset = offset;
        consumer.send(12, &request).await;
        producer.produce("orders", 1, batch(&["elsewhere"])).await;
        producer.produce("orders", 0, batch(&[value])).await;
        let (_, response) = consumer.receive::<FetchRequest>(12).await;
        assert_eq!(values(&response), [value]);
    }
}

#[tokio::test]
async fn a_fetch_waits_until_all_partitions_together_have_enough() {
    let server = Server::start().await;
    let mut consumer = filled(&server, 0).await;
    let mut producer = server.client().await;
    let bytes = batch(&["0123456789"]).len() as i32;
    let request = FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 3 * bytes,
        topics: vec![fetch_topic("orders", &[(0, 0), (1, 0)])],
        ..FetchRequest::default()
    };
    producer.produce("orders", 0, batch(&["0123456789"])).await;
    consumer.send(12, &request).await;
    producer.produce("orders", 1, batch(&["0123456789"])).await;
    let waited = tokio::time::timeout(Duration::from_millis(50), consumer.frame()).await;
    assert!(waited.is_err(), "two of three are not enough");
    producer.produce("orders", 0, batch(&["0123456789"])).await;
    let (_, response) = consumer.receive::<FetchRequest>(12).await;
    assert_eq!(values(&response).len(), 3);
}

#[tokio::test]
async fn a_fetch_answers_with_little_when_its_time_is_up() {
    let server = Server::start().await;
    let mut client = filled(&server, 1).await;
    let begun = Instant::now();
    let request = FetchRequest {
        max_wait_ms: 60,
        min_bytes: 1 << 20,
        ..fetch("orders", 0, 0)
    };
    let response = client.call(12, &request).await;
    assert_eq!(values(&response).len(), 2);
    assert!(begun.elapsed() >= Duration::from_millis(60) && begun.elapsed() < PATIENCE);
    let nothing = client
        .call(
            12,
            &FetchRequest {
                max_wait_ms: 1,
                min_bytes: 1,
                ..fetch("orders", 1, 0)
            },
        )
        .await;
    assert!(values(&nothing).is_empty());
}

#[tokio::test]
async fn a_fetch_that_waits_ends_with_the_process_and_with_its_client() {
    let server = Server::start().await;
    let mut waiting = filled(&server, 0).await;
    let request = FetchRequest {
        max_wait_ms: i32::MAX,
        min_bytes: 1,
        ..fetch("orders", 0, 0)
    };
    waiting.send(12, &request).await;
    let mut leaving = server.client().await;
    leaving.send(12, &request).await;
    drop(leaving);
    let mut half_closed = server.client().await;
    half_closed.send(12, &request).await;
    tokio::io::AsyncWriteExt::shutdown(&mut half_closed.stream)
        .await
        .unwrap();
    let (_, response) = half_closed.receive::<FetchRequest>(12).await;
    assert!(
        values(&response).is_empty(),
        "who says no more is answered with what there is"
    );
    server.drain().await;
    let (_, response) = waiting.receive::<FetchRequest>(12).await;
    assert!(values(&response).is_empty());
    assert!(waiting.is_closed().await);
}

#[tokio::test]
async fn a_deleted_topic_ends_a_fetch_of_it() {
    let server = Server::start().await;
    let mut client = filled(&server, 1).await;
    let delete = DeleteTopicsRequest {
        topic_names: vec!["orders".into()],
        ..DeleteTopicsRequest::default()
    };
    assert_eq!(client.call(5, &delete).await.responses[0].error_code, 0);
    let partition = only(client.fetch("orders", 0, 0).await);
    assert_eq!(partition.error_code, ErrorCode::UnknownTopicOrPartition.code());
}

#[tokio::test]
async fn old_records_are_read_from_segments() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("long", 1).await;
    client.create("noise", 1).await;
    let value = "x".repeat(500_000);
    for n in 0..4 {
        client.produce("long", 0, batch(&[&format!("{n}{value}")])).await;
        for _ in 0..20 {
            client.produce("noise", 0, batch(&[&value])).await;
        }
    }
    let mut offset = 0;
    let mut read = Vec::new();
    while offset < 4 {
        let got = client.values("long", 0, offset).await;
        offset += got.len() as i64;
        read.extend(got);
    }
    let expected: Vec<String> = (0..4).map(|n| format!("{n}{value}")).collect();
    assert!(read == expected);
}

#[tokio::test]
async fn a_partition_that_is_asked_for_twice_is_answered_twice() {
    let server = Server::start().await;
    let mut client = filled(&server, 1).await;
    let topics = vec![
        fetch_topic("orders", &[(0, 0), (0, 2)]),
        fetch_topic("orders", &[(0, 0)]),
    ];
    let response = client
        .call(
            12,
            &FetchRequest {
                topics,
                ..FetchRequest::default()
            },
        )
        .await;
    assert_eq!(values(&response).len(), 4);
    let told: usize = response
        .responses
        .iter()
        .map(|topic| topic.partitions.len())
        .sum();
    assert_eq!(told, 3);
}

#[tokio::test]
async fn nothing_is_seen_before_it_is_acknowledged_and_everything_after() {
    let server = Server::start().await;
    let mut client = filled(&server, 0).await;
    for n in 0..200 {
        let value = n.to_string();
        client.send(9, &produce(-1, "orders", 0, batch(&[&value]))).await;
        client.send(12, &fetch("orders", 0, n)).await;
        client
            .receive::<stafett_kafka_wire::messages::ProduceRequest>(9)
            .await;
        let (_, response) = client.receive::<FetchRequest>(12).await;
        assert_eq!(
            values(&response),
            [value],
            "a fetch runs when the produce before it is answered"
        );
    }
}
