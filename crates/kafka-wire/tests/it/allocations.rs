//! Allocation counts of the hot paths: once per array, never per string, partition or batch.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use allocation_counter::measure;
use bytes::{Bytes, BytesMut};
use stafett_kafka_wire::messages::fetch::{
    FetchPartition, FetchTopic, FetchableTopicResponse, PartitionData,
};
use stafett_kafka_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, TopicProduceData, TopicProduceResponse,
};
use stafett_kafka_wire::messages::{FetchRequest, FetchResponse, ProduceRequest, ProduceResponse};
use stafett_kafka_wire::{DecodeLimits, Records, Request, Uuid, frame};

const TOPICS: u8 = 3;
const PARTITIONS: i32 = 10;

/// The frame of a request as it arrives: shared already, since it is cut out of the connection's buffer.
fn arrived<R: Request>(request: &R, version: i16) -> Bytes {
    let client = Some("rdkafka".into());
    let mut buffer = BytesMut::from(
        &frame::write_request(version, 1, client, request)
            .unwrap()
            .into_bytes()[..],
    );
    let _prefix = buffer.split_to(4);
    buffer.freeze()
}

fn decodes_with<R: Request>(request: &R, version: i16, allocations: u64) {
    let frame = arrived(request, version);
    let counted = measure(|| {
        let (header, body) = frame::open_request(frame.clone(), DecodeLimits::default()).unwrap();
        assert_eq!(header.client_id.as_deref(), Some("rdkafka"));
        assert_eq!(&frame::read_request::<R>(body, version).unwrap(), request);
    });
    assert_eq!(counted.count_total, allocations);
    assert_eq!(counted.count_current, 0);
}

fn encodes_with<R: Request>(response: &R::Response, version: i16, allocations: u64) {
    let buffer = BytesMut::with_capacity(8192);
    let counted = measure(move || {
        let encoded = frame::write_response_into::<R>(buffer, version, 1, response).unwrap();
        std::hint::black_box(&encoded);
    });
    assert!(
        counted.count_total <= allocations,
        "{} allocations",
        counted.count_total
    );
}

#[test]
fn a_produce_request_is_read_with_one_allocation_per_array() {
    let partition = |index| PartitionProduceData {
        index,
        records: Some(Bytes::from(vec![1; 2000])),
    };
    let topic = |n: u8| TopicProduceData {
        name: format!("topic-{n}").into(),
        partition_data: (0..PARTITIONS).map(partition).collect(),
        ..TopicProduceData::default()
    };
    let request = ProduceRequest {
        acks: -1,
        topic_data: (0..TOPICS).map(topic).collect(),
        ..Default::default()
    };
    decodes_with(&request, 12, 1 + u64::from(TOPICS));
}

#[test]
fn a_fetch_request_is_read_with_one_allocation_per_array() {
    let partition = |partition| FetchPartition {
        partition,
        fetch_offset: 7,
        ..FetchPartition::default()
    };
    let topic = |n: u8| FetchTopic {
        topic_id: Uuid([n; 16]),
        partitions: (0..PARTITIONS).map(partition).collect(),
        ..FetchTopic::default()
    };
    let request = FetchRequest {
        topics: (0..TOPICS).map(topic).collect(),
        ..FetchRequest::default()
    };
    decodes_with(&request, 17, 1 + u64::from(TOPICS));
}

#[test]
fn a_produce_response_is_written_with_one_allocation() {
    let partition = |index| PartitionProduceResponse {
        index,
        base_offset: 9,
        ..Default::default()
    };
    let topic = |n: u8| TopicProduceResponse {
        name: format!("topic-{n}").into(),
        partition_responses: (0..PARTITIONS).map(partition).collect(),
        ..TopicProduceResponse::default()
    };
    let response = ProduceResponse {
        responses: (0..TOPICS).map(topic).collect(),
        ..Default::default()
    };
    encodes_with::<ProduceRequest>(&response, 12, 1);
}

#[test]
fn a_fetch_response_is_written_without_copying_records() {
    let piece = Bytes::from(vec![1; 1 << 20]);
    let partition = |partition_index| PartitionData {
        partition_index,
        records: Some([piece.clone(), piece.clone()].into_iter().collect::<Records>()),
        ..PartitionData::default()
    };
    let topic = |n: u8| FetchableTopicResponse {
        topic_id: Uuid([n; 16]),
        partitions: (0..PARTITIONS).map(partition).collect(),
        ..FetchableTopicResponse::default()
    };
    let response = FetchResponse {
        responses: (0..TOPICS).map(topic).collect(),
        ..FetchResponse::default()
    };
    let counted = measure(|| {
        let encoded = frame::write_response::<FetchRequest>(17, 1, &response).unwrap();
        assert!(encoded.len() > 60 << 20);
    });
    assert!(
        counted.bytes_total < 64 << 10,
        "{} bytes allocated",
        counted.bytes_total
    );
    encodes_with::<FetchRequest>(&response, 17, 10);
}
