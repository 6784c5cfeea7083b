//! `Produce`.

use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::ProduceRequest;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};

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
