//! Queues over stored topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use stafett_delivery::{ConsumerSpec, Delivery, Event, Settle};
use stafett_messaging::queues::{DeadLetter, Declare, Queue, QueueSettings, TopicQueueSpec};
use stafett_model::{BatchBuilder, Codec, Namespace, Offset, Record};
use stafett_topics::{Append, NewTopic, Topic, TopicSettings};

use super::support::{Listener, World, body, durable, settle_down, spec};

pub(crate) async fn topic(world: &World, partitions: u32) -> Arc<Topic> {
    let new = NewTopic {
        name: "events".into(),
        partitions: Some(partitions),
        settings: TopicSettings::default(),
    };
    world.broker.catalog().create(vec![new]).await.remove(0).unwrap()
}

/// Appends records like a log client.
pub(crate) async fn append(world: &World, topic: &Topic, partition: u32, bodies: std::ops::Range<u32>) {
    let mut batch = BatchBuilder::new(Codec::None);
    for body in bodies {
        let value = format!("{partition}-{body}");
        let record = Record {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp: i64::from(body) * 1000,
        };
        batch.push(&record).unwrap();
    }
    let body: Bytes = batch.finish().unwrap();
    let log = topic.log(partition).unwrap();
    let outcome = world
        .broker
        .catalog()
        .append(vec![Append::batch(log, body)])
        .await;
    assert!(matches!(outcome[..], [stafett_topics::Outcome::Committed(_)]));
}

pub(crate) fn over(topic: &Topic) -> Declare {
    Declare {
        over: Some(TopicQueueSpec {
            topic: topic.id,
            from_end: false,
        }),
        ..durable()
    }
}

fn offsets(got: &[Delivery]) -> BTreeMap<u32, Vec<u64>> {
    let mut offsets: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for delivery in got {
        offsets
            .entry(delivery.id.lane)
            .or_default()
            .push(delivery.id.offset);
    }
    offsets
}

fn end_of(world: &World, topic: &Topic, partition: u32) -> (u64, u64) {
    let bounds = world
        .broker
        .catalog()
        .bounds(topic.log(partition).unwrap())
        .unwrap();
    (bounds.start.0, bounds.end.0)
}

#[tokio::test(start_paused = true)]
async fn messages_come_partition_by_partition_in_order_and_are_settled_one_by_one() {
    let world = World::new().await;
    let topic = topic(&world, 3).await;
    for partition in 0..3 {
        append(&world, &topic, partition, 0..400).await;
    }
    let queue = world.declare("q", over(&topic)).await;
    assert_eq!(queue.counts().ready, 1200);
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(1200).await;
    let all: Vec<u64> = (0..400).collect();
    assert_eq!(offsets(&got), (0..3).map(|lane| (lane, all.clone())).collect());
    assert_eq!(body(&got[0]), "2-0");
    let (odd, even): (Vec<Delivery>, Vec<Delivery>) = got.into_iter().partition(|one| one.id.offset % 2 == 1);
    assert_eq!(listener.settle(&odd, Settle::Complete), 600);
    assert_eq!(listener.settle(&even[..3], Settle::Requeue), 3);
    assert!(listener.next(3).await.iter().all(|one| one.redelivered));
    for partition in 0..3 {
        assert_eq!(
            end_of(&world, &topic, partition),
            (0, 400),
            "the topic is as it was"
        );
    }

    drop((listener, queue));
    let world = world.restart().await;
    assert_eq!(world.ready("q"), 600);
    let left = world.drain("q").await;
    assert!(left.iter().all(|one| one.id.offset % 2 == 0 && one.redelivered));
    settle_down().await;
    let world = world.crash().await;
    assert_eq!(world.ready("q"), 0, "what was settled stays settled");
}

#[tokio::test(start_paused = true)]
async fn it_may_begin_behind_what_is_there() {
    let world = World::new().await;
    let topic = topic(&world, 2).await;
    append(&world, &topic, 0, 0..5).await;
    let from_end = Declare {
        over: Some(TopicQueueSpec {
            topic: topic.id,
            from_end: true,
        }),
        ..durable()
    };
    world.declare("q", from_end).await;
    let world = world.crash().await;
    assert_eq!(world.ready("q"), 0);
    append(&world, &topic, 0, 5..6).await;
    append(&world, &topic, 1, 0..1).await;
    let bodies: Vec<String> = world.drain("q").await.iter().map(body).collect();
    assert_eq!(bodies, ["1-0", "0-5"]);
}

#[tokio::test(start_paused = true)]
async fn what_the_topic_no_longer_keeps_is_lost_and_its_credit_comes_back() {
    let world = World::new().await;
    let topic = topic(&world, 1).await;
    append(&world, &topic, 0, 0..10).await;
    let queue = world.declare("q", over(&topic)).await;
    let limited = ConsumerSpec {
        credit: Some(2),
        ..spec()
    };
    let mut listener = Listener::new(&queue, limited);
    let had = listener.next(2).await;
    let log = topic.log(0).unwrap();
    world
        .broker
        .catalog()
        .truncate(&[(log, Offset(6))])
        .await
        .remove(0)
        .unwrap();
    let counts = queue.counts();
    assert_eq!((counts.ready, counts.in_flight), (4, 0));
    queue.dispatch_now();
    assert_eq!(listener.bodies(2).await, ["0-6", "0-7"]);
    assert_eq!(
        listener.settle(&had, Settle::Requeue),
        0,
        "nobody has it any more"
    );
    drop((listener, queue));
    let world = world.crash().await;
    assert_eq!(world.ready("q"), 4);
}

#[tokio::test(start_paused = true)]
async fn partitions_that_are_added_are_taken_in_and_the_queue_goes_with_its_topic() {
    let world = World::new().await;
    let topic = topic(&world, 1).await;
    let queue = world.declare("q", over(&topic)).await;
    let mut listener = Listener::new(&queue, spec());
    let grown = world.broker.grow_topic(topic.id, 3).await.unwrap();
    append(&world, &grown, 2, 0..2).await;
    assert_eq!(listener.bodies(2).await, ["2-0", "2-1"]);
    world.broker.delete_topic(topic.id).await.unwrap();
    listener.rest().await;
    assert_eq!(listener.events, [Event::ConsumerGone { token: 7 }]);
    assert!(world.get("q").is_none());
    let world = world.crash().await;
    assert!(world.get("q").is_none());
}

#[tokio::test(start_paused = true)]
async fn there_is_none_over_a_topic_that_is_not_there() {
    let world = World::new().await;
    let topic = topic(&world, 1).await;
    world.broker.delete_topic(topic.id).await.unwrap();
    let declared = world
        .broker
        .messaging()
        .queues()
        .declare(&Namespace::default(), "q", over(&topic));
    assert_eq!(
        declared.await.unwrap_err(),
        stafett_messaging::queues::DeclareError::NoSuchTopic
    );
    assert!(world.get("q").is_none());
}

fn dying(topic: &Topic, ttl_ms: Option<u64>, to: &str) -> Declare {
    Declare {
        settings: QueueSettings {
            ttl_ms,
            dead_letter: Some(DeadLetter {
                exchange: "".into(),
                routing_key: Some(to.into()),
            }),
            delivery_limit: Some(1),
            ..QueueSettings::default()
        },
        ..over(topic)
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_back_too_often_is_dead_lettered_and_the_topic_keeps_it() {
    let world = World::new().await;
    let topic = topic(&world, 2).await;
    append(&world, &topic, 1, 0..1).await;
    world.declare("dead", durable()).await;
    let queue = world.declare("q", dying(&topic, None, "dead")).await;
    let mut listener = Listener::new(&queue, spec());
    for _ in 0..2 {
        let got = listener.next(1).await;
        listener.settle(&got, Settle::Requeue);
    }
    settle_down().await;
    let dead = world.drain("dead").await;
    assert_eq!(dead.iter().map(body).collect::<Vec<_>>(), ["1-0"]);
    assert_eq!(dead[0].message.deaths()[0].queue, "q");
    assert_eq!(queue.counts().ready, 0);
    assert_eq!(end_of(&world, &topic, 1), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_would_come_back_by_the_topic_goes_nowhere() {
    let world = World::new().await;
    let topic = topic(&world, 1).await;
    append(&world, &topic, 0, 0..3).await;
    let queue: Arc<Queue> = world.declare("q", dying(&topic, Some(1), "events")).await;
    queue.dispatch_now();
    settle_down().await;
    assert_eq!(queue.counts().ready, 0, "all expired");
    assert_eq!(end_of(&world, &topic, 0), (0, 3), "and none came back");
}

/// Returns the number of checks of logs. Calling this makes one for each log of each queue itself.
fn looks(world: &World) -> u64 {
    let mut registry = prometheus_client::registry::Registry::default();
    world.broker.messaging().queues().register_metrics(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = text.lines().find(|line| line.starts_with("queues_looks_total "));
    line.unwrap().split(' ').next_back().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn of_many_partitions_those_with_something_new_are_looked_at() {
    const PARTITIONS: u32 = 500;
    let world = World::new().await;
    let topic = topic(&world, PARTITIONS).await;
    let queue = world.declare("q", over(&topic)).await;
    let mut listener = Listener::new(&queue, spec());
    assert!(listener.rest().await.is_empty());
    let before = looks(&world);
    for round in 0..20 {
        for partition in [0, 250, 499] {
            append(&world, &topic, partition, round..round + 1).await;
        }
        let mut got: Vec<_> = listener.rest().await.iter().map(body).collect();
        got.sort_unstable();
        assert_eq!(got, [0, 250, 499].map(|partition| format!("{partition}-{round}")));
    }
    let looked = looks(&world) - before - u64::from(PARTITIONS);
    assert!((60..=300).contains(&looked), "{looked}");
    drop(listener);
    append(&world, &topic, 77, 0..1).await;
    let (got, _) = queue.take_one(true).await.unwrap();
    assert_eq!(body(&got), "77-0", "whoever asks gets what nobody has told of");
}
