//! Stored topics as targets.

use std::collections::BTreeSet;

use bytes::Bytes;
use stafett_broker::exchanges::{Publish, Published};
use stafett_broker::{ReadFrom, ReadRequest, Topic};
use stafett_model::{Message, Offset, partition_of, records};
use stafett_routing::Kind;

use crate::support::{World, message, to_queue, to_topic};

/// Partition, key and value of each record of a topic.
async fn read(world: &World, topic: &Topic) -> Vec<(u32, Option<Bytes>, Bytes)> {
    let mut found = Vec::new();
    for partition in 0..topic.partitions() {
        let from = ReadFrom {
            log: topic.log(partition).unwrap(),
            offset: Offset(0),
            bytes_max: 1 << 20,
        };
        let request = ReadRequest {
            logs: vec![from],
            bytes_max: 1 << 20,
            first_batch_whole: true,
        };
        let run = world
            .broker
            .read(request)
            .finish()
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        let mut bytes = Bytes::from(run.pieces.concat());
        while !bytes.is_empty() {
            let header = stafett_model::BatchHeader::parse(&bytes).unwrap();
            let batch = bytes.split_to(header.bytes);
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

#[tokio::test]
async fn a_message_bound_to_a_topic_is_a_record_where_its_key_leads() {
    let world = World::new().await;
    let topic = world.topic("events", 4).await;
    world.exchange("x", Kind::FanOut).await;
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
    world.exchange("x", Kind::Topic).await;
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
    world.exchange("x", Kind::FanOut).await;
    world.bind("x", "", to_topic("events")).await;
    world.broker.delete_topic(topic.id).await.unwrap();
    assert!(world.broker.exchanges().bindings(&world.namespace).is_empty());
    world.topic("events", 1).await;
    assert_eq!(world.publish("x", "").await, Published::Unroutable);
}
