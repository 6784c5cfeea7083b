//! Topics that are compacted by key, as targets: a message without a key is refused while its publisher can
//! still be told, as compaction would remove it.

use std::sync::Arc;
use std::time::Duration;

use stafett_messaging::queues::{DeadLetter, Declare, QueueSettings, TopicQueueSpec};
use stafett_messaging::{NewExchange, Publish, PublishRefusal, Published, Stopped, Transaction};
use stafett_model::Message;
use stafett_routing::ExchangeKind;
use stafett_topics::{CleanupPolicy, NewTopic, Topic, TopicSettings};

use super::support::{World, message, to_queue, to_topic};
const REFUSED: Published = Published::Refused(PublishRefusal::WithoutKey);

fn keyed(key: &str) -> Message {
    Message {
        key: Some(key.to_owned().into()),
        ..message("any")
    }
}

fn settings(compacts: bool) -> TopicSettings {
    TopicSettings {
        cleanup: Some(CleanupPolicy {
            compacts,
            deletes: false,
            names_delete_first: false,
        }),
        ..TopicSettings::default()
    }
}

async fn topic(world: &World, name: &str, compacts: bool) -> Arc<Topic> {
    let new = NewTopic {
        name: name.into(),
        partitions: Some(1),
        settings: settings(compacts),
    };
    world.broker.catalog().create(vec![new]).await.remove(0).unwrap()
}

/// Creates a world with a compacted topic `events` and a queue `q` behind the exchange `x`.
async fn world() -> (World, Arc<Topic>) {
    let world = World::new().await;
    let topic = topic(&world, "events", true).await;
    world.exchange("x", ExchangeKind::FanOut).await;
    world.bind("x", "", to_topic("events")).await;
    world.queue("q").await;
    world.bind("x", "", to_queue("q")).await;
    (world, topic)
}

fn over(topic: &Topic) -> Declare {
    Declare {
        durable: true,
        over: Some(TopicQueueSpec {
            topic: topic.id,
            from_end: false,
        }),
        ..Declare::default()
    }
}

fn records(world: &World, topic: &Topic) -> u64 {
    world
        .broker
        .catalog()
        .bounds(topic.log(0).unwrap())
        .unwrap()
        .end
        .0
}

fn left_out(world: &World) -> u64 {
    let mut registry = prometheus_client::registry::Registry::default();
    world.broker.messaging().register_metrics(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let values = text
        .lines()
        .filter_map(|line| line.strip_prefix("exchanges_without_key_total "));
    values.map(|value| value.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn a_message_without_a_key_is_stored_nowhere() {
    let (world, topic) = world().await;
    let messages: Vec<Publish> = vec![keyed("a").into(), message("any").into(), keyed("").into()];
    let published = world.publish_all("x", messages).await;
    assert_eq!(published, [Published::Stored, REFUSED, Published::Stored]);
    assert_eq!((records(&world, &topic), world.ready("q")), (2, 2));
    let altering = world
        .broker
        .catalog()
        .alter(topic.id, |_| Ok::<_, ()>(settings(false)));
    altering.await.unwrap();
    assert_eq!(
        world.publish("x", "any").await,
        Published::Stored,
        "it is no longer compacted"
    );
}

#[tokio::test]
async fn a_queue_over_a_compacted_topic_needs_keys_as_well() {
    let (world, topic) = world().await;
    world.queue_as("over", over(&topic)).await;
    let published = world
        .publish_all(
            "",
            vec![
                message("over").into(),
                Publish::from(Message {
                    key: Some("k".into()),
                    ..message("over")
                }),
            ],
        )
        .await;
    assert_eq!(published, [REFUSED, Published::Stored]);
    assert_eq!(records(&world, &topic), 1);
}

#[tokio::test]
async fn a_transaction_with_a_message_without_a_key_stores_nothing() {
    let (world, topic) = world().await;
    let transaction = Transaction {
        messages: vec![("x".into(), vec![keyed("a").into(), message("any").into()])],
        ..Transaction::default()
    };
    let committed = world
        .broker
        .messaging()
        .commit(&world.namespace, transaction)
        .await;
    let why = committed.unwrap_err();
    assert_eq!(why.to_string(), PublishRefusal::WithoutKey.to_string());
    assert_eq!((records(&world, &topic), world.ready("q")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_message_without_a_key_is_refused_when_it_is_published() {
    let (world, topic) = world().await;
    let delays = NewExchange {
        delays: true,
        ..NewExchange::new(ExchangeKind::FanOut)
    };
    world.declare("late", delays).await;
    world.bind("late", "", to_topic("events")).await;
    let late = |message: Message| -> Publish {
        Message {
            delay_ms: Some(5),
            ..message
        }
        .into()
    };
    let published = world
        .publish_all("late", vec![late(message("any")), late(keyed("a"))])
        .await;
    assert_eq!(published, [REFUSED, Published::Stored]);
    while records(&world, &topic) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((records(&world, &topic), left_out(&world)), (1, 0));
}

/// Its queue has acknowledged it, so the other targets get it, and a metric tells.
#[tokio::test]
async fn a_dead_letter_without_a_key_goes_to_the_other_targets() {
    let (world, topic) = world().await;
    let short = Declare {
        durable: true,
        settings: QueueSettings {
            length_max: Some(1),
            dead_letter: Some(DeadLetter {
                exchange: "x".into(),
                routing_key: None,
            }),
            ..QueueSettings::default()
        },
        ..Declare::default()
    };
    let short = world.queue_as("short", short).await;
    let to_short = |message: Message| -> Publish {
        Message {
            routing_key: "short".into(),
            ..message
        }
        .into()
    };
    let messages = vec![to_short(message("")), to_short(keyed("a")), to_short(keyed("b"))];
    assert_eq!(world.publish_all("", messages).await, [Published::Stored; 3]);
    while world.ready("q") < 2 {
        tokio::task::yield_now().await;
    }
    short.dead_letters_stored().await;
    assert_eq!((records(&world, &topic), left_out(&world)), (1, 1));
}

#[tokio::test]
async fn a_move_ends_before_a_message_without_a_key() {
    let (world, topic) = world().await;
    let from = world.queue("from").await;
    let over = world.queue_as("over", over(&topic)).await;
    let to_from = |message: Message| -> Publish {
        Message {
            routing_key: "from".into(),
            ..message
        }
        .into()
    };
    let messages = vec![to_from(keyed("a")), to_from(message("")), to_from(keyed("b"))];
    world.publish_all("", messages).await;
    let moving = world.broker.messaging().move_messages(&from, &over, 3);
    let moved = moving.await.unwrap();
    assert_eq!((moved.messages, moved.stopped), (1, Some(Stopped::WithoutKey)));
    assert_eq!((records(&world, &topic), world.ready("from")), (1, 2));
}
