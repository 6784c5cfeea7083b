//! Producing: accepted batches, refused ones with their codes, and answers.

use bytes::Bytes;
use stafett_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use stafett_kafka_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, TopicProduceData,
};
use stafett_kafka_wire::messages::{CreateTopicsRequest, ProduceRequest};
use stafett_kafka_wire::{ErrorCode, Message, Uuid};
use stafett_model::{BatchBuilder, BatchHeader, Codec, ProducerId, Record};

use crate::peer::{Client, Server, batch, batch_at, fill, numbered, produce};

async fn answer(client: &mut Client, version: i16, request: &ProduceRequest) -> PartitionProduceResponse {
    client
        .call(version, request)
        .await
        .responses
        .remove(0)
        .partition_responses
        .remove(0)
}

#[tokio::test]
async fn what_is_produced_in_any_version_is_read_back() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let id = client.create("orders", 1).await;
    let mut expected = Vec::new();
    for version in ProduceRequest::VERSIONS {
        let value = format!("version {version}");
        let mut request = produce(1, "orders", 0, batch(&[&value, "and another"]));
        if version >= 13 {
            request.topic_data[0].topic_id = id;
            request.topic_data[0].name = "".into();
        }
        let answer = answer(&mut client, version, &request).await;
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, expected.len() as i64),
            "{answer:?}"
        );
        assert_eq!(answer.log_append_time_ms, -1);
        assert_eq!(answer.log_start_offset, if version >= 5 { 0 } else { -1 });
        expected.extend([value, "and another".to_owned()]);
    }
    assert_eq!(client.values("orders", 0, 0).await, expected);
    assert_eq!(
        server.metric("kafka_produced_records_total"),
        expected.len() as u64
    );
}

#[tokio::test]
async fn every_codec_comes_back_as_it_went_in() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("packed", 1).await;
    let mut offset = 0;
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let mut builder = BatchBuilder::new(codec);
        fill(&mut builder, 5, &["a", "b", "c"]);
        let sent = builder.finish().unwrap();
        assert_eq!(client.produce("packed", 0, sent.clone()).await, offset);
        let mut response = client.fetch("packed", 0, offset).await;
        let got = response.responses[0]
            .partitions
            .remove(0)
            .records
            .unwrap()
            .into_bytes();
        assert_eq!(got[16..], sent[16..], "all but the place is as it was: {codec:?}");
        assert_eq!(BatchHeader::verify(&got).unwrap().base_offset, offset);
        offset += 3;
    }
}

#[tokio::test]
async fn several_topics_and_partitions_are_answered_in_the_order_of_the_request() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("a", 2).await;
    client.create("b", 1).await;
    let data = |name: &'static str, partitions: &[i32]| TopicProduceData {
        name: name.into(),
        partition_data: partitions
            .iter()
            .map(|index| PartitionProduceData {
                index: *index,
                records: Some(batch(&["x"])),
            })
            .collect(),
        ..TopicProduceData::default()
    };
    let request = ProduceRequest {
        acks: -1,
        topic_data: vec![
            data("b", &[0]),
            data("a", &[1, 5, 0]),
            data("none", &[0]),
            data("a", &[1]),
        ],
        ..ProduceRequest::default()
    };
    let response = client.call(9, &request).await;
    let told: Vec<_> = response
        .responses
        .iter()
        .flat_map(|topic| topic.partition_responses.iter().map(|part| (&*topic.name, part)))
        .map(|(name, part)| (name, part.index, part.error_code, part.base_offset))
        .collect();
    assert_eq!(
        told,
        [
            ("b", 0, 0, 0),
            ("a", 1, 0, 0),
            ("a", 5, 3, -1),
            ("a", 0, 0, 0),
            ("none", 0, 3, -1),
            ("a", 1, 0, 1)
        ]
    );
}

fn patched(patch: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = batch(&["x"]).to_vec();
    patch(&mut bytes);
    bytes.into()
}

/// The same with a checksum that fits.
fn resealed(patch: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = batch(&["x", "y"]).to_vec();
    patch(&mut bytes);
    let crc = stafett_model::checksum::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn each_bad_batch_is_refused_with_its_word_and_stores_nothing() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    let two = [batch(&["x"]), batch(&["y"])].concat();
    let large = "x".repeat(1_048_588);
    let mut transactional = BatchBuilder::new(Codec::None)
        .producer(ProducerId(1), 0, 0)
        .transactional();
    fill(&mut transactional, 5, &["x"]);
    let cases: Vec<(&str, Option<Bytes>, ErrorCode)> = vec![
        ("no records", None, ErrorCode::InvalidRecord),
        ("empty records", Some(Bytes::new()), ErrorCode::InvalidRecord),
        (
            "half a header",
            Some(batch(&["x"]).slice(..30)),
            ErrorCode::InvalidRecord,
        ),
        (
            "cut short",
            Some(batch(&["x"]).slice(..64)),
            ErrorCode::InvalidRecord,
        ),
        (
            "negative length",
            Some(patched(|b| b[8] = 0xff)),
            ErrorCode::CorruptMessage,
        ),
        (
            "length of 0",
            Some(patched(|b| b[8..12].fill(0))),
            ErrorCode::CorruptMessage,
        ),
        (
            "lying length",
            Some(patched(|b| b[8] = 0x01)),
            ErrorCode::MessageTooLarge,
        ),
        ("magic 1", Some(patched(|b| b[16] = 1)), ErrorCode::InvalidRecord),
        ("magic 3", Some(patched(|b| b[16] = 3)), ErrorCode::InvalidRecord),
        (
            "flipped bit",
            Some(patched(|b| *b.last_mut().unwrap() ^= 1)),
            ErrorCode::CorruptMessage,
        ),
        ("two batches", Some(two.into()), ErrorCode::InvalidRecord),
        (
            "bytes behind",
            Some(patched(|b| b.push(0))),
            ErrorCode::InvalidRecord,
        ),
        (
            "base offset",
            Some(patched(|b| b[7] = 9)),
            ErrorCode::InvalidRecord,
        ),
        (
            "unknown codec",
            Some(resealed(|b| b[22] = 7)),
            ErrorCode::UnsupportedCompressionType,
        ),
        (
            "too many records",
            Some(resealed(|b| b[57..61].copy_from_slice(&[0x7f; 4]))),
            ErrorCode::InvalidRecord,
        ),
        (
            "no records claimed",
            Some(resealed(|b| b[57..61].fill(0))),
            ErrorCode::InvalidRecord,
        ),
        (
            "negative count",
            Some(resealed(|b| b[57] = 0x80)),
            ErrorCode::InvalidRecord,
        ),
        (
            "counts differ",
            Some(resealed(|b| b[26] = 5)),
            ErrorCode::InvalidRecord,
        ),
        (
            "control batch",
            Some(resealed(|b| b[22] |= 1 << 5)),
            ErrorCode::InvalidRecord,
        ),
        (
            "append time",
            Some(resealed(|b| b[22] |= 1 << 3)),
            ErrorCode::InvalidTimestamp,
        ),
        (
            "half a producer",
            Some(resealed(|b| b[43..51].fill(0))),
            ErrorCode::InvalidRecord,
        ),
        ("too large", Some(batch(&[&large])), ErrorCode::MessageTooLarge),
        (
            "transactional",
            Some(transactional.finish().unwrap()),
            ErrorCode::TransactionalIdAuthorizationFailed,
        ),
    ];
    for (what, records, expected) in cases {
        let mut request = produce(-1, "orders", 0, Bytes::new());
        request.topic_data[0].partition_data[0].records = records;
        let refused = answer(&mut client, 9, &request).await;
        assert_eq!(
            refused.error_code,
            expected.code(),
            "{what}: {:?}",
            refused.error_message
        );
        assert_eq!(refused.base_offset, -1, "{what}");
        assert!(!refused.error_message.unwrap().is_empty(), "{what}");
    }
    assert!(client.values("orders", 0, 0).await.is_empty());
    assert_eq!(
        client.produce("orders", 0, batch(&["fine"])).await,
        0,
        "the connection is as good as ever"
    );
}

#[tokio::test]
async fn records_may_be_older_than_1970() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("annals", 1).await;
    let mut builder = BatchBuilder::new(Codec::None);
    for timestamp in [-86_400_000, -172_800_000] {
        let record = Record {
            timestamp,
            value: Some(b"moon"),
            ..Record::default()
        };
        builder.push(&record).unwrap();
    }
    assert_eq!(client.produce("annals", 0, builder.finish().unwrap()).await, 0);
    assert_eq!(client.values("annals", 0, 0).await, ["moon", "moon"]);
}

#[tokio::test]
async fn topics_and_partitions_that_are_not_there_are_named() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    for (name, partition) in [("orders", 1), ("orders", -1), ("orders", i32::MAX), ("none", 0)] {
        let refused = answer(&mut client, 9, &produce(1, name, partition, batch(&["x"]))).await;
        assert_eq!(
            refused.error_code,
            ErrorCode::UnknownTopicOrPartition.code(),
            "{name} {partition}"
        );
    }
    assert!(
        server.broker.topics().named("none").is_none(),
        "produce never creates"
    );
    let mut request = produce(1, "orders", 0, batch(&["x"]));
    request.topic_data[0].name = "".into();
    request.topic_data[0].topic_id = Uuid::from(5);
    let refused = answer(&mut client, 13, &request).await;
    assert_eq!(refused.error_code, ErrorCode::UnknownTopicId.code());
}

#[tokio::test]
async fn zstd_is_refused_to_clients_that_do_not_know_it() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("packed", 1).await;
    let mut builder = BatchBuilder::new(Codec::Zstd);
    fill(&mut builder, 5, &["a"]);
    let request = produce(1, "packed", 0, builder.finish().unwrap());
    let refused = answer(&mut client, 6, &request).await;
    assert_eq!(refused.error_code, ErrorCode::UnsupportedCompressionType.code());
    assert_eq!(answer(&mut client, 7, &request).await.error_code, 0);
}

#[tokio::test]
async fn acks_are_minus_one_zero_or_one() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    for acks in [2, -2, i16::MAX, i16::MIN] {
        let refused = answer(&mut client, 9, &produce(acks, "orders", 0, batch(&["x"]))).await;
        assert_eq!(refused.error_code, ErrorCode::InvalidRequiredAcks.code());
    }
    client
        .send(9, &produce(0, "orders", 0, batch(&["unanswered"])))
        .await;
    assert_eq!(
        client.produce("orders", 0, batch(&["answered"])).await,
        1,
        "the first was not answered"
    );
    assert_eq!(client.values("orders", 0, 0).await, ["unanswered", "answered"]);
}

#[tokio::test]
async fn a_failure_that_nobody_wants_to_be_told_of_ends_the_connection() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    client.send(9, &produce(0, "none", 0, batch(&["x"]))).await;
    assert!(client.is_closed().await);
    let mut client = server.client().await;
    client.produce("orders", 0, numbered(1, 0, 0, &["x"])).await;
    client
        .send(9, &produce(0, "orders", 0, numbered(1, 0, 7, &["x"])))
        .await;
    assert!(client.is_closed().await);
    assert_eq!(
        server.metric("kafka_closed_total{reason=\"unanswered_produce_failed\"}"),
        2
    );
}

#[tokio::test]
async fn idempotent_duplicates_are_stored_once_and_answered_alike() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 1).await;
    let first = numbered(7, 0, 0, &["a", "b"]);
    let second = numbered(7, 0, 2, &["c"]);
    for _ in 0..3 {
        assert_eq!(client.produce("orders", 0, first.clone()).await, 0);
    }
    assert_eq!(client.produce("orders", 0, second.clone()).await, 2);
    assert_eq!(client.produce("orders", 0, first).await, 0);
    assert_eq!(client.produce("orders", 0, second).await, 2);
    assert_eq!(client.values("orders", 0, 0).await, ["a", "b", "c"]);
    let gap = answer(
        &mut client,
        9,
        &produce(-1, "orders", 0, numbered(7, 0, 9, &["z"])),
    )
    .await;
    assert_eq!(
        gap.error_code,
        ErrorCode::OutOfOrderSequenceNumber.code(),
        "{:?}",
        gap.error_message
    );
    assert_eq!(client.produce("orders", 0, numbered(7, 1, 0, &["d"])).await, 3);
    let stale = answer(
        &mut client,
        9,
        &produce(-1, "orders", 0, numbered(7, 0, 3, &["z"])),
    )
    .await;
    assert_eq!(
        stale.error_code,
        ErrorCode::InvalidProducerEpoch.code(),
        "{:?}",
        stale.error_message
    );
}

#[tokio::test]
async fn a_topic_that_keeps_append_time_gives_it_to_records_and_tells_it() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let config = CreatableTopicConfig {
        name: "message.timestamp.type".into(),
        value: Some("LogAppendTime".into()),
    };
    let topic = CreatableTopic {
        name: "clocked".into(),
        num_partitions: 1,
        replication_factor: 1,
        configs: vec![config],
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        ..CreateTopicsRequest::default()
    };
    assert_eq!(client.call(7, &request).await.topics[0].error_code, 0);
    let told = answer(&mut client, 9, &produce(-1, "clocked", 0, batch_at(5, &["x"]))).await;
    assert!(told.log_append_time_ms > 1_700_000_000_000);
    let mut response = client.fetch("clocked", 0, 0).await;
    let stored = response.responses[0]
        .partitions
        .remove(0)
        .records
        .unwrap()
        .into_bytes();
    let header = BatchHeader::verify(&stored).unwrap();
    assert!(header.is_append_time());
    assert_eq!(header.max_timestamp, told.log_append_time_ms);
}

#[tokio::test]
async fn a_topic_bounds_its_own_batches() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let config = CreatableTopicConfig {
        name: "max.message.bytes".into(),
        value: Some("100".into()),
    };
    let topic = CreatableTopic {
        name: "small".into(),
        num_partitions: 1,
        replication_factor: 1,
        configs: vec![config],
        ..CreatableTopic::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        ..CreateTopicsRequest::default()
    };
    assert_eq!(client.call(7, &request).await.topics[0].error_code, 0);
    assert_eq!(client.produce("small", 0, batch(&["x"])).await, 0);
    let refused = answer(
        &mut client,
        9,
        &produce(-1, "small", 0, batch(&[&"x".repeat(100)])),
    )
    .await;
    assert_eq!(refused.error_code, ErrorCode::MessageTooLarge.code());
}
