//! Topics: creation, by request and by metadata, and deletion.

use stafett_kafka_wire::ErrorCode;
use stafett_kafka_wire::messages::create_topics::CreatableTopic;
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::{CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest};
use stafett_store::NotStored;
use stafett_topics::{CreateError, DeleteError};

use super::{Bench, operation};
use crate::call::Close;
use crate::operation::Operation;

fn create(names: &[&'static str]) -> CreateTopicsRequest {
    let topic = |name: &&'static str| CreatableTopic {
        name: (*name).into(),
        num_partitions: 1,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    CreateTopicsRequest {
        topics: names.iter().map(topic).collect(),
        ..CreateTopicsRequest::default()
    }
}

fn metadata(name: &'static str) -> MetadataRequest {
    MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(name.into()),
            ..MetadataRequestTopic::default()
        }]),
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    }
}

#[test]
fn only_valid_topics_are_created_and_each_is_answered() {
    let (mut bench, topic) = Bench::with_topic("made");
    bench.add(7, &create(&["good", "twice", "bad name", "twice", "known"]));
    bench.add(12, &metadata("good"));
    bench.execute();
    assert_eq!(bench.held.len(), 1, "later requests may depend on the topics");
    bench.turn();
    let (new, then) = operation!(bench, Operation::CreateTopics(new, then) => (new, then));
    let names: Vec<&str> = new.iter().map(|topic| &*topic.name).collect();
    assert_eq!(names, ["good", "known"]);
    bench.done(then, vec![Ok(topic), Err(CreateError::Exists)]);
    let created = bench.response::<CreateTopicsRequest>(7).topics;
    let codes: Vec<(&str, i16)> = created
        .iter()
        .map(|topic| (&*topic.name, topic.error_code))
        .collect();
    let expected = [
        ("good", ErrorCode::None),
        ("twice", ErrorCode::InvalidRequest),
        ("bad name", ErrorCode::InvalidTopicException),
        ("known", ErrorCode::TopicAlreadyExists),
    ];
    assert_eq!(codes, expected.map(|(name, code)| (name, code.code())));
    bench.execute();
    assert!(bench.held.is_empty());
}

#[test]
fn a_creation_without_outcome_ends_the_connection() {
    for outcomes in [vec![], vec![Err(CreateError::NotStored(NotStored::Unknown))]] {
        let mut bench = Bench::new();
        bench.send(7, &create(&["orders"]));
        bench.turn();
        let then = operation!(bench, Operation::CreateTopics(_, then) => then);
        bench.done(then, outcomes);
        assert!(matches!(bench.next(), Some(Err(Close::OutcomeUnknown))));
    }
}

#[test]
fn metadata_waits_for_a_topic_that_another_request_creates() {
    let mut bench = Bench::new();
    bench.send(12, &metadata("orders"));
    let (new, then) = operation!(bench, Operation::CreateTopics(new, then) => (new, then));
    assert_eq!((new.len(), &*new[0].name), (1, "orders"));
    bench.done(then, vec![Err(CreateError::Changing)]);
    let (names, then) = operation!(bench, Operation::AwaitNames(names, then) => (names, then));
    assert_eq!((names.len(), &*names[0]), (1, "orders"));
    bench.done(then, ());
    let topic = bench.response::<MetadataRequest>(12).topics.remove(0);
    assert_eq!(topic.error_code, ErrorCode::LeaderNotAvailable.code());
}

#[test]
fn topics_are_deleted_by_their_ids() {
    let (mut bench, topic) = Bench::with_topic("orders");
    let request = DeleteTopicsRequest {
        topic_names: vec!["orders".into(), "nowhere".into()],
        ..DeleteTopicsRequest::default()
    };
    bench.send(5, &request);
    bench.turn();
    let (ids, then) = operation!(bench, Operation::DeleteTopics(ids, then) => (ids, then));
    assert_eq!(ids, [topic.id]);
    bench.done(then, vec![Err(DeleteError::NoSuchTopic)]);
    let deleted = bench.response::<DeleteTopicsRequest>(5).responses;
    let unknown = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(
        deleted.iter().map(|topic| topic.error_code).collect::<Vec<_>>(),
        [unknown; 2]
    );
}
