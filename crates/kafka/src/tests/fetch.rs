//! `Fetch`.

use std::sync::Arc;

use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use stafett_kafka_wire::messages::{FetchRequest, FetchResponse};
use stafett_topics::{Append, Topic};

use super::{Bench, batch, operation};
use crate::operation::Operation;

fn fetch(topic: &'static str, max_wait_ms: i32) -> FetchRequest {
    FetchRequest {
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: vec![FetchTopic {
            topic: topic.into(),
            partitions: vec![FetchPartition {
                partition: 0,
                partition_max_bytes: 1 << 20,
                ..FetchPartition::default()
            }],
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    }
}

impl Bench {
    fn append(&self, topic: &Topic, values: &[&str]) {
        let append = Append::batch(topic.log(0).unwrap(), batch(values));
        self.context.shared.broker.catalog().append(vec![append]).wait();
    }

    /// Reads the logs as they are, and ends the operation.
    fn read(&mut self) {
        let (request, then) = operation!(self, Operation::Read(request, then) => (request, then));
        let read = self.context.shared.broker.catalog().read(request).wait();
        self.done(then, read.unwrap());
    }

    fn partition(&mut self) -> PartitionData {
        let response: FetchResponse = self.response::<FetchRequest>(12);
        assert_eq!(response.error_code, 0);
        response.responses[0].partitions[0].clone()
    }
}

#[test]
fn records_that_are_there_are_answered_after_one_read() {
    let (mut bench, topic) = Bench::with_topic("orders");
    bench.append(&topic, &["a", "b"]);
    bench.send(12, &fetch("orders", 60_000));
    bench.turn();
    bench.read();
    let partition = bench.partition();
    assert_eq!((partition.error_code, partition.high_watermark), (0, 2));
    assert!(partition.records.is_some_and(|records| !records.is_empty()));
}

#[test]
fn without_wait_time_nothing_is_answered_with_nothing() {
    let (mut bench, _) = Bench::with_topic("orders");
    bench.send(12, &fetch("orders", 0));
    bench.turn();
    bench.read();
    assert_eq!(bench.partition().high_watermark, 0);
}

#[test]
fn a_fetch_waits_for_growth_and_reads_again() {
    let (mut bench, topic) = Bench::with_topic("orders");
    bench.send(12, &fetch("orders", 60_000));
    bench.turn();
    bench.read();
    // The watch is new, and the log may have grown before.
    bench.read();
    let (watch, bytes, then) =
        operation!(bench, Operation::AwaitGrowth { watch, bytes, then, .. } => (watch, bytes, then));
    assert_eq!(bytes, 1);
    assert!(bench.next().is_none());
    bench.append(&topic, &["a"]);
    assert!(watch.bytes() > 0);
    bench.done(then, watch);
    bench.read();
    assert_eq!(bench.partition().high_watermark, 1);
    assert_eq!(
        bench.context.budget.in_use(),
        0,
        "the memory of the answer is released with it"
    );
}

#[test]
fn an_unknown_topic_is_answered_without_reading() {
    let mut bench = Bench::new();
    bench.send(12, &fetch("nowhere", 60_000));
    bench.turn();
    assert_eq!(
        bench.partition().error_code,
        ErrorCode::UnknownTopicOrPartition.code()
    );
}

#[test]
fn a_journal_that_stops_fails_every_partition() {
    let (mut bench, _) = Bench::with_topic("orders");
    bench.send(12, &fetch("orders", 60_000));
    bench.turn();
    let then = operation!(bench, Operation::Read(_, then) => then);
    bench.done(then, Vec::new());
    assert_eq!(bench.partition().error_code, ErrorCode::KafkaStorageError.code());
}

#[test]
fn a_fetch_that_ends_before_its_answer_ends_its_session() {
    let (mut bench, _) = Bench::with_topic("orders");
    let first = FetchRequest {
        session_epoch: 0,
        ..fetch("orders", 0)
    };
    bench.send(12, &first);
    bench.turn();
    bench.read();
    let session_id = bench.response::<FetchRequest>(12).session_id;
    let sessions = Arc::clone(&bench.context.shared.fetch_sessions);
    let next = FetchRequest {
        session_id,
        session_epoch: 1,
        max_wait_ms: 60_000,
        topics: Vec::new(),
        ..first
    };
    bench.send(12, &next);
    bench.turn();
    drop(operation!(bench, Operation::AwaitGrowth { then, .. } => then));
    let error = sessions.take(session_id, 2, false).map(drop);
    assert_eq!(error, Err(ErrorCode::FetchSessionIdNotFound));
}
