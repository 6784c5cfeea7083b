//! `__consumer_offsets`: exists after the first commit, can be read in Kafka's format, cannot be written.

use bytes::{Buf, Bytes};
use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::create_partitions::CreatePartitionsTopic;
use stafett_kafka_wire::messages::describe_topic_partitions::TopicRequest;
use stafett_kafka_wire::messages::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use stafett_kafka_wire::messages::{
    CreatePartitionsRequest, DeleteTopicsRequest, DescribeTopicPartitionsRequest, FetchRequest,
    FetchResponse, IncrementalAlterConfigsRequest, ListOffsetsRequest, MetadataRequest,
};
use stafett_model::BatchHeader;

use crate::group_offsets::commit;
use crate::groups::Member;
use crate::peer::{Client, Server, batch, fetch, produce};

const NAME: &str = "__consumer_offsets";
/// Partition of the group `readers` in Kafka.
const PARTITION: i32 = 28;

/// A commit as in Kafka's record: group, topic, partition, and the offset, `None` if the commit is gone.
type Commit = (String, String, i32, Option<i64>);

fn text(bytes: &mut Bytes) -> String {
    let length = usize::from(bytes.get_u16());
    String::from_utf8(bytes.split_to(length).to_vec()).unwrap()
}

/// The records of an answer: offset, key, value.
fn records(response: &FetchResponse) -> Vec<(i64, Bytes, Option<Bytes>)> {
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    let mut bytes = partition.records.clone().unwrap_or_default().into_bytes();
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let header = BatchHeader::verify(&bytes).unwrap();
        let batch = bytes.split_to(header.bytes);
        for (record, at) in stafett_model::records(&batch, 1 << 20)
            .unwrap()
            .zip(header.base_offset..)
        {
            let record = record.unwrap();
            let copy = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
            all.push((
                at,
                copy(&record.key.unwrap()),
                record.value.as_ref().map(|value| copy(value)),
            ));
        }
    }
    all
}

/// The commits of an answer, with their offsets.
fn commits(response: &FetchResponse) -> Vec<(i64, Commit)> {
    let commit = |(at, mut key, value): (i64, Bytes, Option<Bytes>)| {
        assert_eq!(key.get_i16(), 1);
        let (group, topic, partition) = (text(&mut key), text(&mut key), key.get_i32());
        let offset = value.map(|mut value| {
            assert_eq!(value.get_i16(), 3);
            value.get_i64()
        });
        (at, (group, topic, partition, offset))
    };
    records(response).into_iter().map(commit).collect()
}

fn of(offset: Option<i64>) -> Commit {
    ("readers".to_owned(), "orders".to_owned(), 1, offset)
}

async fn end(client: &mut Client) -> i64 {
    let partition = ListOffsetsPartition {
        partition_index: PARTITION,
        timestamp: -1,
        ..ListOffsetsPartition::default()
    };
    let request = ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: NAME.into(),
            partitions: vec![partition],
        }],
        ..ListOffsetsRequest::default()
    };
    let found = client
        .call(5, &request)
        .await
        .topics
        .remove(0)
        .partitions
        .remove(0);
    assert_eq!(found.error_code, 0);
    found.offset
}

/// A server with the topic `orders`, of which the group `readers` has read three records.
async fn committed() -> (Server, Client) {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 2).await;
    let committed = client.call(8, &commit("readers", "orders", 1, 3)).await;
    assert_eq!(committed.topics[0].partitions[0].error_code, 0);
    (server, client)
}

#[tokio::test]
async fn it_is_there_and_internal_once_a_group_has_committed() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("orders", 2).await;
    // A metadata request does not create it.
    let all = MetadataRequest {
        topics: None,
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    };
    assert_eq!(client.call(12, &all).await.topics.len(), 1);
    assert_eq!(
        client.topic(NAME).await.error_code,
        ErrorCode::UnknownTopicOrPartition.code()
    );
    client.call(8, &commit("readers", "orders", 1, 3)).await;
    let topics = client.call(12, &all).await.topics;
    let internal: Vec<_> = topics
        .iter()
        .map(|topic| {
            (
                topic.name.as_deref().unwrap(),
                topic.is_internal,
                topic.partitions.len(),
            )
        })
        .collect();
    assert_eq!(internal.len(), 2);
    assert!(internal.contains(&(NAME, true, 50)) && internal.contains(&("orders", false, 2)));
    let describe = DescribeTopicPartitionsRequest {
        topics: vec![TopicRequest { name: NAME.into() }],
        response_partition_limit: 100,
        cursor: None,
    };
    let described = client.call(0, &describe).await.topics.remove(0);
    assert_eq!((described.is_internal, described.partitions.len()), (true, 50));
}

#[tokio::test]
async fn its_settings_and_partitions_stay_as_they_are() {
    let (_server, mut client) = committed().await;
    let refused = ErrorCode::InvalidTopicException.code();
    let grow = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: NAME.into(),
            count: 60,
            assignments: None,
        }],
        timeout_ms: 1000,
        validate_only: false,
    };
    assert_eq!(client.call(3, &grow).await.results[0].error_code, refused);
    let config = AlterableConfig {
        name: "retention.ms".into(),
        config_operation: 0,
        value: Some("1".into()),
    };
    let alter = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 2,
            resource_name: NAME.into(),
            configs: vec![config],
        }],
        validate_only: false,
    };
    assert_eq!(client.call(1, &alter).await.responses[0].error_code, refused);
    assert_eq!(client.topic(NAME).await.partitions.len(), 50);
}

#[tokio::test]
async fn a_reader_gets_the_state_and_then_what_changes() {
    let (server, mut client) = committed().await;
    assert_eq!(end(&mut client).await, 1);
    let read = client.fetch(NAME, PARTITION, 0).await;
    assert_eq!(commits(&read), [(0, of(Some(3)))]);

    let mut committer = server.client().await;
    let follow = FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 1,
        ..fetch(NAME, PARTITION, 1)
    };
    let followed = client.send(12, &follow).await;
    committer.call(8, &commit("readers", "orders", 1, 5)).await;
    let (id, read) = client.receive::<FetchRequest>(12).await;
    assert_eq!(id, followed);
    assert_eq!(commits(&read), [(1, of(Some(5)))]);

    // A commit that is deleted with its topic is a record without a value.
    let delete = DeleteTopicsRequest {
        topic_names: vec!["orders".into()],
        ..DeleteTopicsRequest::default()
    };
    let follow = FetchRequest {
        max_wait_ms: 600_000,
        min_bytes: 1,
        ..fetch(NAME, PARTITION, 2)
    };
    client.send(12, &follow).await;
    assert_eq!(committer.call(5, &delete).await.responses[0].error_code, 0);
    let (_, read) = client.receive::<FetchRequest>(12).await;
    assert_eq!(commits(&read), [(2, of(None))]);
}

#[tokio::test]
async fn what_the_members_of_a_classic_group_agreed_on_is_there() {
    let (server, mut client) = committed().await;
    let _member = Member::alone(&server, "readers").await;
    assert_eq!(end(&mut client).await, 2);
    let read = records(&client.fetch(NAME, PARTITION, 0).await);
    let group = read.into_iter().find(|(_, key, _)| key.starts_with(&[0, 2]));
    let (_, mut key, value) = group.unwrap();
    let mut value = value.unwrap();
    assert_eq!((key.get_i16(), text(&mut key)), (2, "readers".to_owned()));
    assert_eq!((value.get_i16(), text(&mut value)), (3, "consumer".to_owned()));
    assert_eq!(value.get_i32(), 1, "the generation");
}

#[tokio::test]
async fn after_a_restart_no_offset_names_another_record() {
    let (server, mut client) = committed().await;
    assert_eq!(end(&mut client).await, 1);
    let server = server.restart().await;
    let mut client = server.client().await;
    let end = end(&mut client).await;
    assert_eq!(end, 2);
    let read = client.fetch(NAME, PARTITION, 1).await;
    assert_eq!(commits(&read), [(1, of(Some(3)))]);
    let old = client.fetch(NAME, PARTITION, 0).await;
    assert_eq!(
        old.responses[0].partitions[0].error_code,
        ErrorCode::OffsetOutOfRange.code()
    );
}

#[tokio::test]
async fn nobody_writes_into_it_or_deletes_it() {
    let (_server, mut client) = committed().await;
    let produced = client.call(9, &produce(-1, NAME, 0, batch(&["x"]))).await;
    assert_eq!(
        produced.responses[0].partition_responses[0].error_code,
        ErrorCode::InvalidTopicException.code()
    );
    let delete = DeleteTopicsRequest {
        topic_names: vec![NAME.into()],
        ..DeleteTopicsRequest::default()
    };
    assert_eq!(
        client.call(5, &delete).await.responses[0].error_code,
        ErrorCode::InvalidTopicException.code()
    );
    client
        .create_failing(NAME, 50, ErrorCode::TopicAlreadyExists)
        .await;
}
