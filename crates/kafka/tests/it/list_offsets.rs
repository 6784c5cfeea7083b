//! Start and end offsets of partitions, and offsets by time.

use stafett_kafka_wire::messages::ListOffsetsRequest;
use stafett_kafka_wire::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopic,
};
use stafett_kafka_wire::{ErrorCode, Message};
use stafett_model::{BatchBuilder, Codec};

use crate::peer::{Client, Server, batch_at, fill};

fn ask(name: &'static str, partition_index: i32, timestamp: i64) -> ListOffsetsRequest {
    let partition = ListOffsetsPartition {
        partition_index,
        timestamp,
        ..ListOffsetsPartition::default()
    };
    ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: name.into(),
            partitions: vec![partition],
        }],
        ..ListOffsetsRequest::default()
    }
}

async fn find(client: &mut Client, version: i16, timestamp: i64) -> ListOffsetsPartitionResponse {
    client
        .call(version, &ask("timed", 0, timestamp))
        .await
        .topics
        .remove(0)
        .partitions
        .remove(0)
}

/// Three batches: times 100 and 101, 200 to 202 compressed, 150.
async fn timed(server: &Server) -> Client {
    let mut client = server.client().await;
    client.create("timed", 2).await;
    client.produce("timed", 0, batch_at(100, &["a", "b"])).await;
    let mut builder = BatchBuilder::new(Codec::Gzip);
    fill(&mut builder, 200, &["c", "d", "e"]);
    client.produce("timed", 0, builder.finish().unwrap()).await;
    client.produce("timed", 0, batch_at(150, &["f"])).await;
    client
}

#[tokio::test]
async fn start_end_and_times_are_found_in_every_version() {
    let server = Server::start().await;
    let mut client = timed(&server).await;
    for version in ListOffsetsRequest::VERSIONS {
        for (timestamp, offset, found) in [
            (-1, 6, -1),
            (-2, 0, -1),
            (0, 0, 100),
            (100, 0, 100),
            (101, 1, 101),
            (102, 2, 200),
            (201, 3, 201),
            (202, 4, 202),
            (203, -1, -1),
            (i64::MAX, -1, -1),
        ] {
            let answer = find(&mut client, version, timestamp).await;
            let told = (answer.error_code, answer.offset, answer.timestamp);
            assert_eq!(told, (0, offset, found), "version {version}, {timestamp}");
        }
    }
}

#[tokio::test]
async fn special_times_are_known_from_the_version_that_brought_them() {
    let server = Server::start().await;
    let mut client = timed(&server).await;
    for (timestamp, first, offset, found) in
        [(-3, 7, 4, 202), (-4, 8, 0, -1), (-5, 9, -1, -1), (-6, 11, -1, -1)]
    {
        let answer = find(&mut client, first, timestamp).await;
        assert_eq!(
            (answer.error_code, answer.offset, answer.timestamp),
            (0, offset, found),
            "{timestamp}"
        );
        let early = find(&mut client, first - 1, timestamp).await;
        assert_eq!(early.error_code, ErrorCode::UnsupportedVersion.code());
    }
    for timestamp in [-7, i64::MIN] {
        let answer = find(&mut client, 11, timestamp).await;
        assert_eq!(
            (answer.error_code, answer.offset),
            (ErrorCode::UnsupportedVersion.code(), -1)
        );
    }
}

#[tokio::test]
async fn an_empty_partition_has_an_end_but_no_times() {
    let server = Server::start().await;
    let mut client = timed(&server).await;
    for (timestamp, offset) in [(-1, 0), (-2, 0), (-3, -1), (0, -1)] {
        let response = client.call(8, &ask("timed", 1, timestamp)).await;
        let answer = &response.topics[0].partitions[0];
        assert_eq!((answer.error_code, answer.offset), (0, offset), "{timestamp}");
    }
}

#[tokio::test]
async fn what_cannot_be_found_says_why() {
    let server = Server::start().await;
    let mut client = timed(&server).await;
    let epoch = client.topic("timed").await.partitions[0].leader_epoch;
    for (name, partition) in [("none", 0), ("timed", 2), ("timed", -1)] {
        let response = client.call(8, &ask(name, partition, -1)).await;
        assert_eq!(
            response.topics[0].partitions[0].error_code,
            ErrorCode::UnknownTopicOrPartition.code()
        );
    }
    for (believed, expected) in [
        (epoch, ErrorCode::None),
        // 0 is no epoch.
        (epoch - 1, ErrorCode::None),
        (epoch + 1, ErrorCode::UnknownLeaderEpoch),
    ] {
        let mut request = ask("timed", 0, -1);
        request.topics[0].partitions[0].current_leader_epoch = believed;
        let response = client.call(8, &request).await;
        assert_eq!(response.topics[0].partitions[0].error_code, expected.code());
    }
    let mut twice = ask("timed", 0, -1);
    let again = twice.topics[0].partitions[0].clone();
    twice.topics[0].partitions.push(again);
    let response = client.call(8, &twice).await;
    let codes: Vec<i16> = response.topics[0]
        .partitions
        .iter()
        .map(|answer| answer.error_code)
        .collect();
    assert_eq!(codes, [ErrorCode::InvalidRequest.code(); 2]);
}
