//! Stored topics as targets.

use std::collections::BTreeSet;

use bytes::Bytes;
use stafett_messaging::queues::{Declare, TopicQueueSpec};
use stafett_messaging::{Publish, Published};
use stafett_model::{Message, Offset, partition_of, records};
use stafett_routing::ExchangeKind;
use stafett_topics::{NewTopic, ReadFrom, ReadRequest, Topic, TopicSettings, Visibility};

use super::support::{World, message, to_queue, to_topic};

/// Publishes a body of `bytes` bytes.
async fn publish_large(world: &World, bytes: usize) -> Published {
    let large = Message {
        value: vec![0; bytes].into(),
        ..message("any")
    };
    world.publish_all("x", vec![large.into()]).await.remove(0)
}

/// Returns partition, key and value of each record of a topic.
async fn read(world: &World, topic: &Topic) -> Vec<(u32, Option<Bytes>, Bytes)> {
    let mut found = Vec::new();
    for partition in 0..topic.partitions() {
        for batch in batches(world, topic, partition).await {
            let mut records = records(&batch, 1 << 20).unwrap();
            while let Some(message) = records.next_message() {
                let (_, message) = message.unwrap();
                found.push((
                    partition,
                    message.key().map(Bytes::copy_from_slice),
                    message.value_bytes(),
                ));
            }
        }
    }
    found
}

async fn batches(world: &World, topic: &Topic, partition: u32) -> Vec<Bytes> {
    let from = ReadFrom {
        log: topic.log(partition).unwrap(),
        offset: Offset(0),
        bytes_max: 1 << 20,
        visibility: Visibility::Stored,
    };
    let request = ReadRequest {
        logs: vec![from],
        bytes_max: 1 << 20,
        first_batch_whole: true,
    };
    let read = world.broker.catalog().read(request).finish().await;
    let run = read.unwrap().remove(0).unwrap();
    let mut bytes = Bytes::from(run.pieces.concat());
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let header = stafett_model::BatchHeader::parse(&bytes).unwrap();
        batches.push(bytes.split_to(header.bytes));
    }
    batches
}

#[tokio::test]
async fn a_message_bound_to_a_topic_is_a_record_where_its_key_leads() {
    let world = World::new().await;
    let topic = world.topic("events", 4).await;
    world.exchange("x", ExchangeKind::FanOut).await;
    world.queue("q").await;
    world.bind("x", "", to_topic("events")).await;
    world.bind("x", "", to_queue("q")).await;
    let keyed = |number: u32| -> Publish {
        Message {
            key: Some(Bytes::from(format!("key-{}", number % 10))),
            value: Bytes::from(format!("{number}")),
            ..message("any")
        }
        .into()
    };
    let unkeyed = |number: u32| message(&format!("route.{number}")).into();
    let messages: Vec<Publish> = (0..40).map(keyed).chain((0..20).map(unkeyed)).collect();
    let published = world.publish_all("x", messages).await;
    assert_eq!(published, vec![Published::Stored; 60]);
    assert_eq!(world.ready("q"), 60);
    let found = read(&world, &topic).await;
    assert_eq!(found.len(), 60);
    for (partition, key, _) in &found {
        if let Some(key) = key {
            assert_eq!(*partition, partition_of(key, 4));
        }
    }
    let order = |key: &str| -> Vec<u32> {
        let of_key = found
            .iter()
            .filter(|(_, found, _)| found.as_deref() == Some(key.as_bytes()));
        of_key
            .map(|(_, _, value)| std::str::from_utf8(value).unwrap().parse().unwrap())
            .collect()
    };
    assert_eq!(order("key-3"), [3, 13, 23, 33]);
    let unkeyed: BTreeSet<u32> = found
        .iter()
        .filter(|(_, key, _)| key.is_none())
        .map(|(at, ..)| *at)
        .collect();
    assert!(unkeyed.len() > 1, "without a key the routing key spreads them");
}

#[tokio::test]
async fn a_topic_alone_is_enough_of_a_target_and_its_binding_outlives_a_restart() {
    let world = World::new().await;
    world.topic("events", 1).await;
    world.exchange("x", ExchangeKind::Topic).await;
    world.bind("x", "a.*", to_topic("events")).await;
    assert_eq!(world.publish("x", "a.b").await, Published::Stored);
    assert_eq!(world.publish("x", "b").await, Published::Unroutable);
    let world = world.restart().await;
    assert_eq!(world.publish("x", "a.c").await, Published::Stored);
    let topic = world.broker.topics().named("events").unwrap();
    assert_eq!(read(&world, &topic).await.len(), 2);
}

#[tokio::test]
async fn a_deleted_topic_takes_its_bindings_along() {
    let world = World::new().await;
    let topic = world.topic("events", 1).await;
    world.exchange("x", ExchangeKind::FanOut).await;
    world.bind("x", "", to_topic("events")).await;
    world.broker.delete_topic(topic.id).await.unwrap();
    assert!(
        world
            .broker
            .messaging()
            .exchanges()
            .bindings(&world.namespace)
            .is_empty()
    );
    world.topic("events", 1).await;
    assert_eq!(world.publish("x", "").await, Published::Unroutable);
}

#[tokio::test]
async fn a_topic_has_a_name_of_its_own_and_a_queue_of_that_name_goes_first() {
    let world = World::new().await;
    let topic = world.topic("events", 1).await;
    assert_eq!(world.publish("", "events").await, Published::Stored);
    world.queue("events").await;
    assert_eq!(world.publish("", "events").await, Published::Stored);
    assert_eq!((read(&world, &topic).await.len(), world.ready("events")), (1, 1));
    assert_eq!(world.publish("", "queue.events").await, Published::Unroutable);
}

#[tokio::test]
async fn what_goes_to_a_queue_over_a_topic_goes_into_the_topic_once() {
    let world = World::new().await;
    let topic = world.topic("events", 4).await;
    let over = || Declare {
        durable: true,
        over: Some(TopicQueueSpec {
            topic: topic.id,
            from_end: false,
        }),
        ..Declare::default()
    };
    world.queue_as("one", over()).await;
    world.queue_as("two", over()).await;
    world.exchange("x", ExchangeKind::FanOut).await;
    world.bind("x", "", to_queue("one")).await;
    world.bind("x", "", to_queue("two")).await;
    world.bind("x", "", to_topic("events")).await;
    let keyed = |number: u32| -> Publish {
        let key = Some(Bytes::from(format!("key-{number}")));
        Message {
            key,
            ..message("any")
        }
        .into()
    };
    let published = world.publish_all("x", (0..20).map(keyed).collect()).await;
    assert_eq!(published, vec![Published::Stored; 20]);
    let found = read(&world, &topic).await;
    assert_eq!(found.len(), 20);
    for (partition, key, _) in &found {
        assert_eq!(*partition, partition_of(key.as_ref().unwrap(), 4));
    }
    assert_eq!((world.ready("one"), world.ready("two")), (20, 20));
}

async fn topic_with(world: &World, settings: TopicSettings) {
    let new = NewTopic {
        name: "events".into(),
        partitions: Some(1),
        settings,
    };
    world.broker.catalog().create(vec![new]).await.remove(0).unwrap();
    world.exchange("x", ExchangeKind::FanOut).await;
    world.bind("x", "", to_topic("events")).await;
}

#[tokio::test]
async fn a_message_that_is_too_large_for_a_topic_is_stored_nowhere() {
    let world = World::new().await;
    let small = TopicSettings {
        message_bytes_max: Some(1000),
        ..TopicSettings::default()
    };
    topic_with(&world, small).await;
    world.queue("q").await;
    world.bind("x", "", to_queue("q")).await;
    let refused = Published::Refused(stafett_messaging::PublishRefusal::TooLarge);
    assert_eq!(publish_large(&world, 1000).await, refused);
    assert_eq!(world.ready("q"), 0);
    assert_eq!(publish_large(&world, 500).await, Published::Stored);
    assert_eq!(world.ready("q"), 1);
}

#[tokio::test]
async fn a_topic_that_wants_the_time_of_arrival_has_it() {
    let world = World::new().await;
    let arrival = TopicSettings {
        append_time: Some(true),
        ..TopicSettings::default()
    };
    topic_with(&world, arrival).await;
    let old = Message {
        timestamp_ms: 5,
        ..message("any")
    };
    let before = std::time::SystemTime::now();
    world.publish_all("x", vec![old.into()]).await;
    let topic = world.broker.topics().named("events").unwrap();
    let times = times(&world, &topic).await;
    let since = std::time::UNIX_EPOCH + std::time::Duration::from_millis(times[0].cast_unsigned() + 1000);
    assert!(since > before, "{times:?}");
}

async fn times(world: &World, topic: &Topic) -> Vec<i64> {
    let mut times = Vec::new();
    for batch in batches(world, topic, 0).await {
        let mut records = records(&batch, 1 << 20).unwrap();
        while let Some(message) = records.next_message() {
            times.push(message.unwrap().1.timestamp_ms());
        }
    }
    times
}
