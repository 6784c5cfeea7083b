//! Administrative changes take effect at once and survive a restart.

use stafett_kafka_wire::messages::create_partitions::CreatePartitionsTopic;
use stafett_kafka_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use stafett_kafka_wire::messages::describe_producers::TopicRequest;
use stafett_kafka_wire::messages::describe_topic_partitions::RequestCursor;
use stafett_kafka_wire::messages::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use stafett_kafka_wire::messages::offset_for_leader_epoch::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use stafett_kafka_wire::messages::produce::PartitionProduceResponse;
use stafett_kafka_wire::messages::{
    CreatePartitionsRequest, DeleteRecordsRequest, DescribeLogDirsRequest, DescribeProducersRequest,
    DescribeTopicPartitionsRequest, IncrementalAlterConfigsRequest, OffsetForLeaderEpochRequest,
};
use stafett_kafka_wire::{ErrorCode, Str};
use stafett_model::{BatchHeader, Codec};

use crate::peer::{Client, Server, batch, batch_at, numbered, produce};

const SET: i8 = 0;
const DELETE: i8 = 1;

async fn alter(
    client: &mut Client,
    kind: i8,
    name: &'static str,
    key: &'static str,
    operation: i8,
    value: &'static str,
) {
    let config = AlterableConfig {
        name: key.into(),
        config_operation: operation,
        value: (operation != DELETE).then(|| Str::from_static(value)),
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: kind,
            resource_name: name.into(),
            configs: vec![config],
        }],
        validate_only: false,
    };
    let told = client.call(1, &request).await.responses.remove(0);
    assert_eq!(told.error_code, 0, "{key}: {:?}", told.error_message);
}

async fn try_produce(
    client: &mut Client,
    name: &'static str,
    batch: bytes::Bytes,
) -> PartitionProduceResponse {
    let mut response = client.call(9, &produce(-1, name, 0, batch)).await;
    response.responses.remove(0).partition_responses.remove(0)
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_millis() as i64
}

#[tokio::test]
async fn times_of_records_are_held_against_the_clock() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let minute = 60_000;
    let fine = batch_at(now() + 30 * minute, &["a"]);
    assert_eq!(try_produce(&mut client, "t", fine).await.error_code, 0);
    let late = try_produce(&mut client, "t", batch_at(now() + 61 * minute, &["a", "b"])).await;
    assert_eq!(late.error_code, ErrorCode::InvalidTimestamp.code());
    let indexes: Vec<i32> = late.record_errors.iter().map(|error| error.batch_index).collect();
    assert_eq!(indexes, [0, 1]);
    let words = late.record_errors[0].batch_index_error_message.clone().unwrap();
    assert!(words.contains("out of range"), "{words}");
    assert_eq!(try_produce(&mut client, "t", batch(&["old"])).await.error_code, 0);
    alter(
        &mut client,
        2,
        "t",
        "message.timestamp.before.max.ms",
        SET,
        "60000",
    )
    .await;
    let early = try_produce(&mut client, "t", batch(&["old"])).await;
    assert_eq!(early.error_code, ErrorCode::InvalidTimestamp.code());
    assert_eq!(
        try_produce(&mut client, "t", batch_at(now(), &["a"]))
            .await
            .error_code,
        0
    );
    // With append time, the timestamps of the producer do not matter.
    alter(
        &mut client,
        2,
        "t",
        "message.timestamp.type",
        SET,
        "LogAppendTime",
    )
    .await;
    let any = try_produce(&mut client, "t", batch_at(1000, &["old"])).await;
    assert_eq!(any.error_code, 0);
    assert!(any.log_append_time_ms > 1000);
}

#[tokio::test]
async fn batches_are_compressed_as_their_topic_says() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    let values = ["the same again and again"; 50];
    let codecs = [
        ("gzip", Codec::Gzip),
        ("snappy", Codec::Snappy),
        ("lz4", Codec::Lz4),
        ("zstd", Codec::Zstd),
        ("uncompressed", Codec::None),
        ("producer", Codec::None),
    ];
    for (name, codec) in codecs {
        alter(&mut client, 2, "t", "compression.type", SET, name).await;
        let base = client.produce("t", 0, batch(&values)).await;
        let response = client.fetch("t", 0, base).await;
        let stored = response.responses[0].partitions[0]
            .records
            .clone()
            .unwrap()
            .into_bytes();
        assert_eq!(BatchHeader::verify(&stored).unwrap().codec(), Ok(codec), "{name}");
        assert_eq!(client.values("t", 0, base).await, values, "{name}");
    }
}

#[tokio::test]
async fn the_broker_s_settings_hold_for_topics_that_have_none_of_their_own() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("follows", 1).await;
    client.create("own", 1).await;
    alter(&mut client, 2, "own", "max.message.bytes", SET, "1000000").await;
    let large = batch(&["x".repeat(500).as_str()]);
    alter(&mut client, 4, "", "message.max.bytes", SET, "300").await;
    let refused = try_produce(&mut client, "follows", large.clone())
        .await
        .error_code;
    assert_eq!(refused, ErrorCode::MessageTooLarge.code());
    assert_eq!(try_produce(&mut client, "own", large.clone()).await.error_code, 0);
    alter(&mut client, 4, "1", "message.max.bytes", SET, "900").await;
    assert_eq!(
        try_produce(&mut client, "follows", large.clone())
            .await
            .error_code,
        0
    );
    alter(&mut client, 4, "1", "message.max.bytes", DELETE, "").await;
    let refused = try_produce(&mut client, "follows", large.clone())
        .await
        .error_code;
    assert_eq!(refused, ErrorCode::MessageTooLarge.code());
    alter(&mut client, 4, "", "message.max.bytes", DELETE, "").await;
    assert_eq!(try_produce(&mut client, "follows", large).await.error_code, 0);
}

#[tokio::test]
async fn many_topics_grow_at_once_and_take_records_in_their_new_partitions() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let names = ["a", "b", "c", "d"];
    for name in names {
        client.create(name, 1).await;
        client.produce(name, 0, batch(&["before"])).await;
    }
    let grow = |name: &'static str| CreatePartitionsTopic {
        name: name.into(),
        count: 3,
        assignments: None,
    };
    for validate_only in [true, false] {
        let request = CreatePartitionsRequest {
            topics: names.into_iter().map(grow).collect(),
            timeout_ms: 1000,
            validate_only,
        };
        let told = client.call(3, &request).await.results;
        assert!(told.iter().all(|topic| topic.error_code == 0), "{told:?}");
        let partitions = client.topic("a").await.partitions.len();
        assert_eq!(partitions, if validate_only { 1 } else { 3 });
    }
    for name in names {
        client.produce(name, 2, batch(&["after"])).await;
        assert_eq!(client.values(name, 0, 0).await, ["before"]);
        assert_eq!(client.values(name, 2, 0).await, ["after"]);
    }
}

#[tokio::test]
async fn deleted_records_are_gone_and_the_rest_stays() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    for value in ["a", "b", "c"] {
        client.produce("t", 0, batch(&[value])).await;
    }
    for (offset, low) in [(2, 2), (1, 2), (-1, 3)] {
        let request = DeleteRecordsRequest {
            topics: vec![DeleteRecordsTopic {
                name: "t".into(),
                partitions: vec![DeleteRecordsPartition {
                    partition_index: 0,
                    offset,
                }],
            }],
            timeout_ms: 1000,
        };
        let told = client
            .call(2, &request)
            .await
            .topics
            .remove(0)
            .partitions
            .remove(0);
        assert_eq!((told.error_code, told.low_watermark), (0, low));
        if low == 2 {
            assert_eq!(client.values("t", 0, 2).await, ["c"]);
            let gone = client.fetch("t", 0, 1).await.responses[0].partitions[0].error_code;
            assert_eq!(gone, ErrorCode::OffsetOutOfRange.code());
        }
    }
    assert_eq!(client.produce("t", 0, batch(&["d"])).await, 3, "offsets go on");
}

#[tokio::test]
async fn topics_are_described_page_by_page() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (name, partitions) in [("a", 1), ("b", 5), ("c", 2)] {
        client.create(name, partitions).await;
    }
    let mut cursor = None;
    let mut told = Vec::new();
    loop {
        let request = DescribeTopicPartitionsRequest {
            response_partition_limit: 3,
            cursor,
            ..DescribeTopicPartitionsRequest::default()
        };
        let page = client.call(0, &request).await;
        for topic in page.topics {
            let name = topic.name.unwrap();
            told.extend(
                topic
                    .partitions
                    .iter()
                    .map(|partition| format!("{name}{}", partition.partition_index)),
            );
        }
        cursor = page.next_cursor.map(|next| RequestCursor {
            topic_name: next.topic_name,
            partition_index: next.partition_index,
        });
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(told, ["a0", "b0", "b1", "b2", "b3", "b4", "c0", "c1"]);
}

#[tokio::test]
async fn epochs_end_where_the_next_start_of_the_broker_began() {
    let mut server = Server::start().await;
    server.client().await.create("t", 1).await;
    let mut ends = Vec::new();
    let mut epochs = Vec::new();
    for (round, batches) in [3, 0, 5, 1].into_iter().enumerate() {
        if round > 0 {
            server = server.restart().await;
        }
        let mut client = server.client().await;
        for _ in 0..batches {
            client.produce("t", 0, batch(&["a", "b"])).await;
        }
        epochs.push(server.broker.catalog().epoch().0 as i32);
        ends.push(ends.last().copied().unwrap_or(0) + 2 * batches);
    }
    let mut client = server.client().await;
    let mut end_of = async |leader_epoch| {
        let asked = OffsetForLeaderPartition {
            partition: 0,
            current_leader_epoch: -1,
            leader_epoch,
        };
        let request = OffsetForLeaderEpochRequest {
            replica_id: -1,
            topics: vec![OffsetForLeaderTopic {
                topic: "t".into(),
                partitions: vec![asked],
            }],
        };
        let told = client
            .call(4, &request)
            .await
            .topics
            .remove(0)
            .partitions
            .remove(0);
        assert_eq!(told.error_code, 0);
        (told.leader_epoch, told.end_offset)
    };
    assert_eq!(end_of(epochs[0]).await, (epochs[0], ends[0]));
    assert_eq!(
        end_of(epochs[1]).await,
        (epochs[0], ends[0]),
        "nothing was written in it"
    );
    assert_eq!(end_of(epochs[2]).await, (epochs[2], ends[2]));
    assert_eq!(end_of(epochs[3]).await, (epochs[3], ends[3]));
    assert_eq!(
        end_of(epochs[0] - 1).await,
        (epochs[0] - 1, 0),
        "before all that is there"
    );
    assert_eq!(end_of(epochs[3] + 1).await, (-1, -1));
}

#[tokio::test]
async fn producers_and_sizes_are_described() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("t", 1).await;
    client.produce("t", 0, numbered(7, 1, 0, &["a", "b"])).await;
    client.produce("t", 0, numbered(7, 1, 2, &["c"])).await;
    let request = DescribeProducersRequest {
        topics: vec![TopicRequest {
            name: "t".into(),
            partition_indexes: vec![0],
        }],
    };
    let told = client
        .call(0, &request)
        .await
        .topics
        .remove(0)
        .partitions
        .remove(0);
    let producer = &told.active_producers[0];
    assert_eq!((producer.producer_id, producer.producer_epoch), (7, 1));
    assert_eq!(
        (producer.last_sequence, producer.current_txn_start_offset),
        (2, -1)
    );
    let all = DescribeLogDirsRequest { topics: None };
    let folder = client.call(4, &all).await.results.remove(0);
    assert!(folder.topics[0].partitions[0].partition_size > 100, "{folder:?}");
}
