//! Several brokers: requests go to the leaders.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use stafett_kafka_client::{Client, ClientError, FetchSettings, Fetcher, Place};
use stafett_kafka_wire::messages::fetch::{FetchableTopicResponse, PartitionData};
use stafett_kafka_wire::messages::list_offsets::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse};
use stafett_kafka_wire::messages::{
    FetchRequest, FetchResponse, ListGroupsRequest, ListGroupsResponse, ListOffsetsRequest,
    ListOffsetsResponse,
};
use stafett_kafka_wire::{ApiKey, Decoder, ErrorCode, Records, RequestHeader, frame};
use stafett_model::{BatchBuilder, Codec, Record};
use tokio::net::TcpListener;

use crate::stub::{Reply, answer, listen, metadata, options, serve, versions};

/// Two brokers; the second leads partition 1, and partition 0 once the first has refused it.
async fn two_brokers() -> String {
    let listeners = [
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    ];
    let addresses: Arc<OnceLock<[SocketAddr; 2]>> = Arc::default();
    let metadata_asked = Arc::new(AtomicU32::new(0));
    let mut served = Vec::new();
    for (me, listener) in (0..).zip(listeners) {
        let (addresses, asked) = (Arc::clone(&addresses), Arc::clone(&metadata_asked));
        served.push(serve(
            listener,
            Arc::new(move |header: &RequestHeader, body: Decoder| match header.api {
                ApiKey::ApiVersions => versions(header),
                ApiKey::Metadata => {
                    let leader = i32::from(asked.fetch_add(1, Ordering::SeqCst) > 0);
                    metadata(header, addresses.get().unwrap(), &[leader, 1])
                }
                ApiKey::ListOffsets => list_offsets(me, header, body),
                _ => fetch(me, header, body),
            }),
        ));
    }
    addresses.set([served[0], served[1]]).unwrap();
    served[0].to_string()
}

fn list_offsets(me: i32, header: &RequestHeader, body: Decoder) -> Reply {
    let request: ListOffsetsRequest = frame::read_request(body, header.version).unwrap();
    let partition = |index: i32| ListOffsetsPartitionResponse {
        partition_index: index,
        offset: 100 * i64::from(me) + i64::from(index),
        ..ListOffsetsPartitionResponse::default()
    };
    let topic = &request.topics[0];
    let response = ListOffsetsResponse {
        topics: vec![ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|row| partition(row.partition_index))
                .collect(),
        }],
        ..ListOffsetsResponse::default()
    };
    answer::<ListOffsetsRequest>(header, &response)
}

/// The first broker leads nothing; the second has one record at every requested offset.
fn fetch(me: i32, header: &RequestHeader, body: Decoder) -> Reply {
    let request: FetchRequest = frame::read_request(body, header.version).unwrap();
    let topic = &request.topics[0];
    let partition = |index: i32, offset: i64| {
        if me == 0 {
            return PartitionData {
                partition_index: index,
                error_code: ErrorCode::NotLeaderOrFollower.code(),
                ..PartitionData::default()
            };
        }
        let mut batch = BatchBuilder::new(Codec::None);
        batch.push(&Record::default()).unwrap();
        let mut bytes = batch.finish().unwrap().to_vec();
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        PartitionData {
            partition_index: index,
            high_watermark: 5,
            records: Some(Records::from(bytes::Bytes::from(bytes))),
            ..PartitionData::default()
        }
    };
    let rows = topic.partitions.iter();
    let response = FetchResponse {
        responses: vec![FetchableTopicResponse {
            topic: topic.topic.clone(),
            topic_id: topic.topic_id,
            partitions: rows
                .map(|row| partition(row.partition, row.fetch_offset))
                .collect(),
        }],
        ..FetchResponse::default()
    };
    answer::<FetchRequest>(header, &response)
}

/// One broker that names another one until the second metadata request; that one closes all connections.
async fn broker_that_loses_another() -> String {
    let gone = listen(|_, _| Reply::Close).await;
    let own: Arc<OnceLock<SocketAddr>> = Arc::default();
    let (address, asked) = (Arc::clone(&own), AtomicU32::new(0));
    let served = listen(move |header, _| match header.api {
        ApiKey::ApiVersions => versions(header),
        ApiKey::Metadata => {
            let both = [*address.get().unwrap(), gone];
            let is_alone = asked.fetch_add(1, Ordering::SeqCst) > 0;
            metadata(header, if is_alone { &both[..1] } else { &both }, &[0])
        }
        _ => answer::<ListGroupsRequest>(header, &ListGroupsResponse::default()),
    })
    .await;
    own.set(served).unwrap();
    served.to_string()
}

#[tokio::test]
async fn a_broker_that_left_the_cluster_is_not_asked_any_more() {
    let client = Client::connect(&[broker_that_loses_another().await], options())
        .await
        .unwrap();
    client.topic("t").await.unwrap();
    assert!(client.groups().await.unwrap().is_empty());
    let unknown = client.broker(1).await;
    assert!(
        matches!(unknown, Err(ClientError::NoLeader { .. })),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn offsets_are_asked_of_each_leader() {
    let client = Client::connect(&[two_brokers().await], options()).await.unwrap();
    let topic = client.topic("t").await.unwrap();
    let offsets = client.offsets(&[&topic], Place::End).await.unwrap();
    assert_eq!(offsets, [[Some(0), Some(101)]]);
}

#[tokio::test]
async fn a_fetcher_follows_a_partition_to_its_new_leader_and_leaves_no_offset_out() {
    let client = Client::connect(&[two_brokers().await], options()).await.unwrap();
    let topic = client.topic("t").await.unwrap();
    let mut fetcher = Fetcher::new(client, FetchSettings::default());
    fetcher.add(&topic, 0, 3);
    fetcher.add(&topic, 1, 0);
    let mut seen = [Vec::new(), Vec::new()];
    while seen.iter().any(|offsets| offsets.len() < 4) {
        for fetched in fetcher.next().await.unwrap() {
            assert_eq!(fetched.end, 5);
            seen[fetched.source].push(fetched.from);
        }
    }
    assert_eq!(seen[0][..4], [3, 4, 5, 6]);
    assert_eq!(seen[1][..4], [0, 1, 2, 3]);
}
