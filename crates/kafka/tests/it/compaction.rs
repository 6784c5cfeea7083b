//! Compacted topics: created, written, altered, compacted and read as Kafka's clients do.

use bytes::Bytes;
use stafett_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use stafett_kafka_wire::messages::describe_configs::DescribeConfigsResource;
use stafett_kafka_wire::messages::incremental_alter_configs::{
    AlterConfigsResource as ChangedResource, AlterableConfig,
};
use stafett_kafka_wire::messages::{
    CreateTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest,
};
use stafett_kafka_wire::{ErrorCode, Str};
use stafett_model::{BatchBuilder, BatchHeader, Codec, ProducerId, Record, records};

use crate::peer::{Client, Server, produce};

const TOPIC: i8 = 2;
const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

type Pair = (Option<&'static str>, Option<&'static str>);

fn batch(codec: Codec, pairs: &[Pair], producer: Option<(i64, i32)>) -> Bytes {
    let mut builder = BatchBuilder::new(codec);
    if let Some((id, sequence)) = producer {
        builder = builder.producer(ProducerId(id), 0, sequence);
    }
    for (key, value) in pairs {
        let record = Record {
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
            headers: &[],
            timestamp: 1_700_000_000_000,
        };
        builder.push(&record).unwrap();
    }
    builder.finish().unwrap()
}

async fn create(client: &mut Client, configs: &[(&'static str, &'static str)]) {
    let config = |(name, value): &(&'static str, &'static str)| CreatableTopicConfig {
        name: Str::from_static(name),
        value: Some(Str::from_static(value)),
    };
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: "t".into(),
            num_partitions: 1,
            replication_factor: 1,
            configs: configs.iter().map(config).collect(),
            ..CreatableTopic::default()
        }],
        timeout_ms: 1000,
        validate_only: false,
    };
    let made = client.call(7, &request).await.topics.remove(0);
    assert_eq!(made.error_code, 0, "{:?}", made.error_message);
}

async fn alter(client: &mut Client, name: &'static str, operation: i8, value: &'static str) {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![ChangedResource {
            resource_type: TOPIC,
            resource_name: "t".into(),
            configs: vec![AlterableConfig {
                name: name.into(),
                config_operation: operation,
                value: Some(Str::from_static(value)),
            }],
        }],
        validate_only: false,
    };
    let altered = client.call(1, &request).await.responses.remove(0);
    assert_eq!(altered.error_code, 0, "{:?}", altered.error_message);
}

async fn described(client: &mut Client, name: &'static str) -> String {
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: TOPIC,
            resource_name: "t".into(),
            configuration_keys: Some(vec![name.into()]),
        }],
        ..DescribeConfigsRequest::default()
    };
    let mut configs = client.call(4, &request).await.results.remove(0).configs;
    configs.remove(0).value.unwrap().to_string()
}

/// Reads the topic from an offset to its end: offsets, keys and values.
async fn read(client: &mut Client, mut offset: i64) -> Vec<(u64, Option<String>, Option<String>)> {
    let text = |bytes: Option<Bytes>| bytes.map(|it| String::from_utf8(it.to_vec()).unwrap());
    let mut all = Vec::new();
    loop {
        let mut response = client.fetch("t", 0, offset).await;
        let partition = response.responses.remove(0).partitions.remove(0);
        assert_eq!(partition.error_code, 0);
        let mut bytes = partition.records.unwrap_or_default().into_bytes();
        if offset == partition.high_watermark {
            return all;
        }
        assert!(!bytes.is_empty(), "a fetch before the end is never empty");
        while !bytes.is_empty() {
            let header = BatchHeader::verify(&bytes).unwrap();
            let stored = records(&bytes.split_to(header.bytes), 1 << 20)
                .unwrap()
                .map(Result::unwrap);
            all.extend(stored.map(|record| (record.offset.0, text(record.key), text(record.value))));
            offset = header.base_offset + i64::from(header.last_offset_delta) + 1;
        }
    }
}

fn record(offset: u64, key: &str, value: Option<&str>) -> (u64, Option<String>, Option<String>) {
    (offset, Some(key.to_owned()), value.map(str::to_owned))
}

#[tokio::test]
async fn the_newest_of_each_key_is_read_at_its_offset() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(
        &mut client,
        &[("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0")],
    )
    .await;
    for (sequence, codec) in (0..).step_by(3).zip(CODECS) {
        let pairs = [
            (Some("a"), Some("old")),
            (Some("b"), Some("old")),
            (Some("gone"), Some("old")),
        ];
        client
            .produce("t", 0, batch(codec, &pairs, Some((77, sequence))))
            .await;
    }
    let last = [
        (Some("a"), Some("new")),
        (Some("gone"), None),
        (Some("c"), Some("new")),
    ];
    assert_eq!(client.produce("t", 0, batch(Codec::Zstd, &last, None)).await, 15);
    let server = server.compact().await;
    let mut client = server.client().await;
    let wanted = [
        record(13, "b", Some("old")),
        record(15, "a", Some("new")),
        record(16, "gone", None),
        record(17, "c", Some("new")),
    ];
    assert_eq!(read(&mut client, 0).await, wanted);
    assert_eq!(read(&mut client, 15).await, wanted[1..]);
    let again = batch(Codec::Zstd, &[(Some("x"), None); 3], Some((77, 12)));
    assert_eq!(
        client.produce("t", 0, again).await,
        12,
        "the producer's last batch is known"
    );
    let next = batch(Codec::None, &[(Some("b"), Some("new"))], Some((77, 15)));
    assert_eq!(client.produce("t", 0, next).await, 18);

    // Tombstones are no longer kept.
    alter(&mut client, "delete.retention.ms", 0, "0").await;
    let server = server.compact().await.compact().await;
    let mut client = server.client().await;
    let wanted = [
        record(15, "a", Some("new")),
        record(17, "c", Some("new")),
        record(18, "b", Some("new")),
    ];
    assert_eq!(read(&mut client, 0).await, wanted);
}

#[tokio::test]
async fn records_without_a_key_are_refused_one_by_one() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, &[("cleanup.policy", "compact,delete")]).await;
    for codec in CODECS {
        let pairs = [
            (Some("a"), Some("1")),
            (None, Some("2")),
            (Some(""), None),
            (None, None),
        ];
        let request = produce(1, "t", 0, batch(codec, &pairs, None));
        let response = client.call(9, &request).await.responses.remove(0);
        let refused = response.partition_responses.into_iter().next().unwrap();
        assert_eq!(refused.error_code, ErrorCode::InvalidRecord.code());
        let message = "Compacted topic cannot accept message without key in topic partition t-0.";
        assert_eq!(refused.error_message.as_deref(), Some(message));
        let named: Vec<_> = refused
            .record_errors
            .iter()
            .map(|error| (error.batch_index, error.batch_index_error_message.as_deref()))
            .collect();
        assert_eq!(named, [(1, Some(message)), (3, Some(message))]);
    }
    alter(&mut client, "cleanup.policy", 3, "compact").await;
    assert_eq!(described(&mut client, "cleanup.policy").await, "delete");
    let keyless = batch(Codec::Gzip, &[(None, Some("2"))], None);
    assert_eq!(
        client.produce("t", 0, keyless).await,
        0,
        "nothing of the refused ones is stored"
    );
}

#[tokio::test]
async fn a_topic_is_compacted_from_the_change_of_its_policy_on() {
    let server = Server::start().await;
    let mut client = server.client().await;
    create(&mut client, &[]).await;
    for _ in 0..3 {
        client
            .produce("t", 0, batch(Codec::Lz4, &[(Some("a"), Some("1"))], None))
            .await;
    }
    let server = server.compact().await;
    let mut client = server.client().await;
    assert_eq!(read(&mut client, 0).await.len(), 3);
    alter(&mut client, "cleanup.policy", 0, "compact").await;
    for (name, value) in [
        ("cleanup.policy", "compact"),
        ("delete.retention.ms", "86400000"),
        ("max.compaction.lag.ms", "9223372036854775807"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("min.compaction.lag.ms", "0"),
    ] {
        assert_eq!(described(&mut client, name).await, value, "{name}");
    }
    let server = server.compact().await;
    let mut client = server.client().await;
    assert_eq!(read(&mut client, 0).await, [record(2, "a", Some("1"))]);
}
