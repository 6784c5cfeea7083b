//! `Produce`.

use bytes::Buf as _;
use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use stafett_kafka_wire::messages::{ApiVersionsRequest, ProduceRequest};
use stafett_model::{BatchBuilder, Codec, ProducerId, Record};

use super::{Bench, batch};
use crate::call::Close;

fn produce(acks: i16, topic: &'static str, values: &[&str]) -> ProduceRequest {
    ProduceRequest {
        acks,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(batch(values)),
            }],
            ..TopicProduceData::default()
        }],
        ..ProduceRequest::default()
    }
}

#[test]
fn requests_of_one_read_are_answered_in_order_with_their_offsets() {
    let (mut bench, _) = Bench::with_topic("orders");
    bench.add(9, &produce(-1, "orders", &["a", "b"]));
    bench.add(9, &produce(-1, "nowhere", &["x"]));
    bench.add(9, &produce(-1, "orders", &["c"]));
    bench.execute();
    assert!(
        bench.responses.next_operation().is_none(),
        "only a ticket is waited for"
    );
    let mut answer = || {
        let response = bench.response::<ProduceRequest>(9);
        let partition = &response.responses[0].partition_responses[0];
        (partition.error_code, partition.base_offset)
    };
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!([answer(), answer(), answer()], [(0, 0), (unknown, -1), (0, 2)]);
}

#[test]
fn a_request_without_acks_is_answered_with_nothing_and_its_failure_ends_the_connection() {
    let (mut bench, _) = Bench::with_topic("orders");
    bench.send(9, &produce(0, "orders", &["a"]));
    assert!(bench.next().unwrap().unwrap().encoded.is_none());
    bench.send(9, &produce(0, "nowhere", &["a"]));
    assert!(matches!(bench.next(), Some(Err(Close::SilentFailure))));
}

/// A batch of an idempotent producer.
fn numbered(sequence: i32, value: &str) -> ProduceRequest {
    let mut builder = BatchBuilder::new(Codec::None).producer(ProducerId(7), 0, sequence);
    let record = Record {
        key: None,
        value: Some(value.as_bytes()),
        headers: &[],
        timestamp: 0,
    };
    builder.push(&record).unwrap();
    let mut request = produce(-1, "orders", &["x"]);
    request.topic_data[0].partition_data[0].records = Some(builder.finish().unwrap());
    request
}

#[test]
fn requests_that_waited_too_long_are_refused_and_keep_their_sequence() {
    let (mut bench, _) = Bench::with_topic("orders");
    let answer = |bench: &mut Bench| {
        let response = bench.response::<ProduceRequest>(9);
        let partition = &response.responses[0].partition_responses[0];
        (partition.error_code, partition.base_offset)
    };
    let refused = (ErrorCode::RequestTimedOut.code(), -1);
    let gap = (ErrorCode::OutOfOrderSequenceNumber.code(), -1);
    bench.add(9, &numbered(0, "a"));
    bench.refuse();
    assert_eq!(answer(&mut bench), refused);
    // The next one was on its way. The log knows nothing of the producer, and would take it otherwise.
    bench.send(9, &numbered(1, "b"));
    assert_eq!(answer(&mut bench), gap);
    bench.send(9, &numbered(0, "a"));
    bench.send(9, &numbered(1, "b"));
    assert_eq!([answer(&mut bench), answer(&mut bench)], [(0, 0), (0, 1)]);
    bench.add(9, &numbered(2, "c"));
    bench.refuse();
    bench.send(9, &numbered(3, "d"));
    assert_eq!([answer(&mut bench), answer(&mut bench)], [refused, gap]);
    bench.send(9, &numbered(2, "c"));
    assert_eq!(answer(&mut bench), (0, 2));
}

#[test]
fn a_refused_request_without_acks_ends_the_connection_rather_than_being_dropped_in_silence() {
    let (mut bench, _) = Bench::with_topic("orders");
    bench.add(9, &produce(0, "orders", &["a"]));
    bench.refuse();
    assert!(matches!(bench.next(), Some(Err(Close::SilentFailure))));
}

/// Requests of one producer, and of others.
fn various() -> Vec<ProduceRequest> {
    let long = "long".repeat(100);
    let mut two_batches = produce(-1, "orders", &["a"]);
    two_batches.topic_data[0]
        .partition_data
        .push(PartitionProduceData {
            index: 1,
            records: Some(batch(&["b"])),
        });
    let mut two_topics = produce(1, "orders", &["a"]);
    two_topics
        .topic_data
        .extend(produce(1, "other", &["b"]).topic_data);
    let mut empty = produce(-1, "orders", &["a"]);
    empty.topic_data[0].partition_data[0].records = None;
    let mut of_a_transaction = produce(-1, "orders", &["a"]);
    of_a_transaction.transactional_id = Some("payments".into());
    vec![
        produce(-1, "orders", &["a"]),
        produce(-1, "orders", &["b"]),
        produce(-1, "orders", &[&long, "c"]),
        two_batches.clone(),
        two_batches,
        produce(-1, "orders", &[&long]),
        produce(1, "orders", &["d"]),
        produce(1, "others", &["d"]),
        two_topics,
        empty.clone(),
        empty,
        of_a_transaction,
        produce(1, "orders", &["e"]),
    ]
}

#[test]
fn requests_that_are_refused_together_are_answered_as_each_alone_would_be() {
    for version in [3, 8, 9, 12, 13] {
        let (mut bench, _) = Bench::with_topic("orders");
        let add = |bench: &mut Bench, id: usize, request: &ProduceRequest| {
            let id = 1_000_000 + i32::try_from(id).unwrap();
            bench.add_from(version, id, Some("a client"), request);
        };
        let mut alone = Vec::new();
        for (id, request) in various().iter().enumerate() {
            add(&mut bench, id, request);
            bench.refuse();
            let response = bench.next().expect("a response").unwrap();
            alone.extend_from_slice(&response.encoded.expect("an answer").into_bytes());
        }
        for (id, request) in various().iter().enumerate() {
            add(&mut bench, id, request);
        }
        bench.refuse();
        let together = bench.next().expect("a response").unwrap();
        let together = together.encoded.expect("an answer").into_bytes();
        assert_eq!(together, alone, "version {version}");
        assert!(bench.next().is_none());
        assert_eq!(bench.context.budget.in_use(), 0, "nothing is held of them");
    }
}

#[test]
fn other_requests_among_refused_ones_are_executed_in_their_places() {
    let (mut bench, _) = Bench::with_topic("orders");
    let refused = produce(-1, "orders", &["a"]);
    bench.add_from(9, 1, None, &refused);
    bench.add_from(9, 2, None, &refused);
    bench.add_from(0, 3, None, &ApiVersionsRequest::default());
    bench.add_from(9, 4, None, &refused);
    // Bytes behind the message are ignored wherever they are; a length that is too long is not.
    bench.add_bytes(b"\0\0\0\x09\0\0\0\x05\xff\xff");
    bench.add_from(9, 6, None, &refused);
    bench.refuse();
    let mut ids = Vec::new();
    let end = loop {
        let mut bytes = match bench.next().expect("a response") {
            Ok(response) => response.encoded.expect("an answer").into_bytes(),
            Err(end) => break end,
        };
        while !bytes.is_empty() {
            let length = usize::try_from(bytes.get_i32()).unwrap();
            ids.push(bytes.split_to(length).get_i32());
        }
    };
    assert_eq!(ids, [1, 2, 3, 4]);
    assert!(matches!(end, Close::Decode(_)), "{end}");
}
