//! `Produce`.

use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::ProduceRequest;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
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
