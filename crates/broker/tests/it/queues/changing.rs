//! Settings that change while a queue runs, and pauses.

use std::sync::Arc;
use std::time::Duration;

use stafett_delivery::Settle;
use stafett_messaging::queues::{Acknowledge, AppendOutcome, Refused};
use stafett_messaging::queues::{
    ChangeError, DeadLetter, Declare, DeclareError, DeleteQueueError, Narrow, Overflow, Queue, QueueRange,
    QueueSettings, Receive, Setting,
};
use stafett_model::{Durability, Message, Namespace};

use super::support::{Listener, World, body, durable, message, messages, settle_down, spec};

async fn change(
    world: &World,
    queue: &Arc<Queue>,
    settings: impl Into<Vec<Setting>>,
) -> Result<(), ChangeError> {
    let settings = settings.into();
    let queues = world.broker.messaging().queues();
    queues.change_settings(queue, |_| settings).await
}

async fn pause(world: &World, queue: &Arc<Queue>, is_paused: bool) {
    let queues = world.broker.messaging().queues();
    queues.pause(queue, is_paused).await.unwrap();
}

fn bodies(messages: &[stafett_delivery::Delivery]) -> Vec<String> {
    messages.iter().map(body).collect()
}

#[tokio::test(start_paused = true)]
async fn changed_settings_hold_for_waiting_messages_at_once() {
    let world = World::new().await;
    world.declare("dead", durable()).await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..10)).await;
    let to_dead = DeadLetter {
        exchange: "".into(),
        routing_key: Some("dead".into()),
    };
    let limits = [
        Setting::DeadLetter(Some(to_dead)),
        Setting::LengthMax(Some(7)),
        Setting::Overflow(Overflow::DropHead),
    ];
    change(&world, &queue, limits).await.unwrap();
    settle_down().await;
    assert_eq!((world.ready("q"), world.ready("dead")), (7, 3));
    change(&world, &queue, [Setting::Overflow(Overflow::RejectPublish)])
        .await
        .unwrap();
    let refused = world.try_publish(&queue, messages(10..11)).await;
    assert_eq!(refused, [AppendOutcome::Refused(Refused::QueueFull)]);
    change(
        &world,
        &queue,
        [Setting::LengthMax(None), Setting::TtlMs(Some(1000))],
    )
    .await
    .unwrap();
    world.publish(&queue, messages(11..12)).await;
    assert_eq!(world.ready("q"), 8);
    tokio::time::sleep(Duration::from_secs(2)).await;
    settle_down().await;
    assert_eq!((world.ready("q"), world.ready("dead")), (0, 11));
    change(
        &world,
        &queue,
        [Setting::TtlMs(None), Setting::DeliveryLimit(Some(1))],
    )
    .await
    .unwrap();
    world.publish(&queue, messages(12..13)).await;
    let mut listener = Listener::new(&queue, spec());
    for _ in 0..2 {
        let got = listener.next(1).await;
        listener.settle(&got, Settle::Requeue);
    }
    settle_down().await;
    assert_eq!((world.ready("q"), world.ready("dead")), (0, 12));
}

#[tokio::test(start_paused = true)]
async fn a_limit_on_bytes_that_is_set_later_counts_what_waits() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let large = "x".repeat(1000);
    world.publish(&queue, (0..10).map(|_| message(&large))).await;
    let limits = [
        Setting::BytesMax(Some(12_000)),
        Setting::Overflow(Overflow::RejectPublish),
    ];
    change(&world, &queue, limits).await.unwrap();
    settle_down().await;
    world.publish(&queue, (0..2).map(|_| message(&large))).await;
    let refused = world.try_publish(&queue, [message("one more")]).await;
    assert_eq!(refused, [AppendOutcome::Refused(Refused::QueueFull)]);
    queue.take_one(false).await.unwrap();
    world.publish(&queue, [message("one more")]).await;
    let limits = [
        Setting::BytesMax(Some(5000)),
        Setting::Overflow(Overflow::DropHead),
    ];
    change(&world, &queue, limits).await.unwrap();
    settle_down().await;
    assert_eq!(world.ready("q"), 5, "four large ones and the small one");
}

#[tokio::test(start_paused = true)]
async fn changes_and_pauses_outlive_a_restart_and_the_declaration_stays_as_it_was() {
    let declared = || Declare {
        settings: QueueSettings {
            ttl_ms: Some(60_000),
            length_max: Some(9),
            ..QueueSettings::default()
        },
        ..durable()
    };
    for crashes in [false, true] {
        let world = World::new().await;
        let queue = world.declare("q", declared()).await;
        let new = [
            Setting::TtlMs(None),
            Setting::LengthMax(Some(3)),
            Setting::Durability(Some(Durability::Os)),
            Setting::Retain(2),
        ];
        change(&world, &queue, new).await.unwrap();
        change(&world, &queue, [Setting::Retain(0)]).await.unwrap();
        pause(&world, &queue, true).await;
        let in_force = queue.settings();
        world.publish(&queue, messages(0..3)).await;
        drop(queue);
        let world = if crashes {
            world.crash().await
        } else {
            world.restart().await
        };
        let queue = world.get("q").unwrap();
        assert_eq!(queue.settings(), in_force);
        assert_eq!((queue.settings().ttl_ms, queue.settings().retain), (None, 0));
        assert_eq!(queue.durability(), Some(Durability::Os));
        assert!(queue.is_paused());
        assert!(queue.take_one(true).await.is_none());
        assert!(Arc::ptr_eq(&world.declare("q", declared()).await, &queue));
        let queues = world.broker.messaging().queues();
        let other = queues.declare(&Namespace::default(), "q", durable()).await;
        assert!(matches!(other, Err(DeclareError::Differs { what: "settings" })));
        pause(&world, &queue, false).await;
        assert!(queue.take_one(true).await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_takes_messages_and_hands_none_out() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let mut listener = Listener::new(&queue, spec());
    pause(&world, &queue, true).await;
    world.publish(&queue, messages(0..5)).await;
    let wants: &(dyn Fn(&stafett_model::StoredMessage) -> bool + Send + Sync) =
        &|message| message.value() == b"3";
    let receive = |wanted, wait| Receive {
        count: 1,
        bytes_max: usize::MAX,
        order: stafett_delivery::SearchOrder::Priority,
        wanted,
        narrow: Narrow::default(),
        bounds: stafett_delivery::SearchBounds::NONE,
        after: Vec::new(),
        wait,
        ack: Acknowledge::Soon,
    };
    assert!(listener.rest().await.is_empty());
    assert!(queue.take_one(true).await.is_none());
    for wanted in [None, Some(wants)] {
        let received = queue
            .receive(receive(wanted, Duration::from_secs(1)))
            .await
            .unwrap();
        assert!(received.messages.is_empty());
    }
    assert_eq!(queue.counts().ready, 5);
    // Searches and requests that wait go on once it is resumed.
    let patience = Duration::from_secs(100);
    let chosen = queue.receive(receive(Some(wants), patience));
    let next = queue.receive(receive(None, patience));
    let resume = async {
        settle_down().await;
        pause(&world, &queue, false).await;
    };
    drop(listener);
    let (chosen, next, ()) = tokio::join!(chosen, next, resume);
    let value = |received: stafett_messaging::queues::Received| {
        let all = received.messages.iter();
        all.map(|(delivery, _)| body(delivery)).collect::<Vec<_>>()
    };
    assert_eq!(
        (value(chosen.unwrap()), value(next.unwrap())),
        (vec!["3".into()], vec!["0".into()])
    );
    let mut listener = Listener::new(&queue, spec());
    assert_eq!(bodies(&listener.next(3).await), ["1", "2", "4"]);
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_paused_queue_expire_move_and_are_refused_beyond_a_limit() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let target = world.declare("to", durable()).await;
    let _listener = Listener::new(&queue, spec());
    pause(&world, &queue, true).await;
    let limits = [
        Setting::LengthMax(Some(3)),
        Setting::Overflow(Overflow::RejectPublish),
    ];
    change(&world, &queue, limits).await.unwrap();
    world.publish(&queue, messages(0..3)).await;
    // Its consumer would take the message if it could.
    let refused = world.try_publish(&queue, messages(3..4)).await;
    assert_eq!(refused, [AppendOutcome::Refused(Refused::QueueFull)]);
    let moved = world
        .broker
        .messaging()
        .move_messages(&queue, &target, 2)
        .await
        .unwrap();
    assert_eq!((moved.messages, world.ready("to")), (2, 2));
    change(&world, &queue, [Setting::TtlMs(Some(500))]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    settle_down().await;
    assert_eq!(world.ready("q"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_paused_queue_without_use_is_deleted_after_its_time() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    pause(&world, &queue, true).await;
    change(&world, &queue, [Setting::ExpiresMs(Some(5000))])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(world.get("q").is_some());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(world.get("q").is_none());
    assert_eq!(
        change(&world, &queue, [Setting::Retain(1)]).await,
        Err(ChangeError::Gone)
    );
    let world = world.restart().await;
    assert!(world.get("q").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_a_full_disk_refuses_is_not_in_force() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    journal.set_used_up(true);
    let before = queue.settings();
    let refused = change(
        &world,
        &queue,
        [Setting::TtlMs(Some(1)), Setting::Durability(Some(Durability::Os))],
    );
    assert!(matches!(refused.await, Err(ChangeError::NotStored(_))));
    let queues = world.broker.messaging().queues();
    assert!(matches!(
        queues.pause(&queue, true).await,
        Err(ChangeError::NotStored(_))
    ));
    assert_eq!((queue.settings(), queue.is_paused()), (before, false));
    journal.set_used_up(false);
    change(&world, &queue, [Setting::TtlMs(Some(9))]).await.unwrap();
    drop(queue);
    let world = world.crash().await;
    let queue = world.get("q").unwrap();
    assert_eq!(
        (queue.settings().ttl_ms, queue.settings().durability),
        (Some(9), None)
    );
}

#[tokio::test]
async fn a_change_beside_deletions_and_declarations_ends_in_one_of_both() {
    let world = World::new().await;
    let queues = world.broker.messaging().queues();
    for round in 0..200 {
        let queue = world.declare("q", durable()).await;
        let changing = change(&world, &queue, [Setting::TtlMs(Some(round + 1))]);
        let deleting = queues.delete(&queue.namespace, "q", false, false, queues.new_owner());
        let (changed, deleted, again) = if round % 2 == 0 {
            tokio::join!(changing, deleting, world.declare("q", durable()))
        } else {
            let (deleted, changed, again) = tokio::join!(deleting, changing, world.declare("q", durable()));
            (changed, deleted, again)
        };
        assert!(matches!(changed, Ok(()) | Err(ChangeError::Gone)), "{changed:?}");
        assert!(
            matches!(deleted, Ok(0) | Err(DeleteQueueError::NoSuchQueue)),
            "{deleted:?}"
        );
        if !Arc::ptr_eq(&again, &queue) {
            assert_eq!(again.settings().ttl_ms, None);
        }
    }
    let left = world.get("q").map(|queue| (queue.id, queue.settings()));
    let world = world.restart().await;
    assert_eq!(world.get("q").map(|queue| (queue.id, queue.settings())), left);
}

#[tokio::test]
async fn queues_with_messages_are_known_without_a_look_at_the_others() {
    let world = World::new().await;
    let queues = Arc::clone(world.broker.messaging().queues());
    let mut all = Vec::new();
    for number in 0..50 {
        all.push(world.declare(&format!("q{number:02}"), durable()).await);
    }
    let waiting = || -> Vec<String> {
        let waiting = queues.with_messages(None).into_iter();
        waiting
            .map(|(queue, ready)| format!("{} {ready}", queue.name))
            .collect()
    };
    for round in 0..30 {
        let queue = &all[(round * 7) % 50];
        assert_eq!(waiting(), [""; 0]);
        world.publish(queue, messages(0..2)).await;
        assert_eq!(waiting(), [format!("{} 2", queue.name)]);
        let mut listener = Listener::new(queue, spec());
        let got = listener.next(2).await;
        assert_eq!(waiting(), [""; 0]);
        listener.settle(&got, Settle::Requeue);
        drop(listener);
        assert_eq!(waiting(), [format!("{} 2", queue.name)]);
        assert_eq!(queue.purge(), 2);
    }
    world.publish(&all[3], messages(0..1)).await;
    drop((all, queues));
    let world = world.restart().await;
    let waiting = world
        .broker
        .messaging()
        .queues()
        .with_messages(Some(&Namespace::default()));
    assert_eq!(waiting.len(), 1);
}

#[tokio::test]
async fn pages_by_name_have_each_queue_once() {
    let world = World::new().await;
    let messaging = world.broker.messaging();
    let other = Namespace::new("other");
    let (_, stored) = messaging.exchanges().create_namespace(&other).unwrap();
    stored.await.unwrap();
    let mut names = Vec::new();
    for (namespace, name) in [
        (Namespace::default(), "a"),
        (Namespace::default(), "ab"),
        (Namespace::default(), "b"),
        (other.clone(), "a"),
        (other.clone(), "abc"),
        (other.clone(), "ä"),
    ] {
        messaging
            .queues()
            .declare(&namespace, name, durable())
            .await
            .unwrap();
        names.push((namespace.to_string(), name.to_owned()));
    }
    for (only, prefix) in [
        (None, ""),
        (None, "a"),
        (Some(&other), ""),
        (Some(&other), "ab"),
        (None, "x"),
    ] {
        for descends in [false, true] {
            let of_space = |space: &str| only.is_none_or(|only| only.as_str() == space);
            let mut expected = names.clone();
            expected.retain(|(space, _)| of_space(space));
            let total = expected.len();
            expected.retain(|(_, name)| name.starts_with(prefix));
            expected.sort();
            if descends {
                expected.reverse();
            }
            for count in 1..8 {
                let mut found: Vec<(String, String)> = Vec::new();
                loop {
                    let after = found.last().cloned();
                    let page = messaging.queues().page(QueueRange {
                        namespace: only,
                        prefix,
                        after: after.as_ref().map(|(space, name)| (&**space, &**name)),
                        descends,
                        count,
                    });
                    assert_eq!((page.matched, page.total), (expected.len(), total));
                    let page_names = page.queues.iter();
                    found.extend(
                        page_names.map(|queue| (queue.namespace.to_string(), queue.name.to_string())),
                    );
                    if !page.has_more {
                        break;
                    }
                }
                assert_eq!(found, expected, "{prefix} {descends} {count}");
            }
        }
    }
    let queue = messaging.queues().get(&other, "abc").unwrap();
    assert!(Arc::ptr_eq(
        &messaging.queues().with_id(queue.id).unwrap(),
        &queue
    ));
}

#[tokio::test(start_paused = true)]
async fn fewer_retained_messages_free_the_log() {
    let world = World::new().await;
    let retaining = Declare {
        settings: QueueSettings {
            retain: 1_000_000,
            ..QueueSettings::default()
        },
        ..durable()
    };
    let queue = world.declare("q", retaining).await;
    world.publish(&queue, messages(0..100)).await;
    assert_eq!(queue.purge(), 100);
    settle_down().await;
    let start = || {
        let topic = world.broker.topics().named("queue.q").unwrap();
        world
            .broker
            .catalog()
            .bounds(topic.log(0).unwrap())
            .unwrap()
            .start
            .0
    };
    assert_eq!(start(), 0);
    change(&world, &queue, [Setting::Retain(10)]).await.unwrap();
    settle_down().await;
    assert_eq!(start(), 90);
}

/// Ensures that a message's own expiry still holds.
#[tokio::test(start_paused = true)]
async fn the_shorter_time_of_message_and_changed_queue_holds() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let with = |ttl_ms| Message {
        ttl_ms: Some(ttl_ms),
        ..message("x")
    };
    world.publish(&queue, [with(1000), with(100_000)]).await;
    change(&world, &queue, [Setting::TtlMs(Some(5000))])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.ready("q"), 1);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(world.ready("q"), 0);
}

/// A limit that is set while messages wait counts those that come later.
#[tokio::test(start_paused = true)]
async fn a_limit_of_bytes_that_is_set_later_drops_nothing_that_is_within_it() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..100)).await;
    settle_down().await;
    change(&world, &queue, [Setting::BytesMax(Some(500))])
        .await
        .unwrap();
    settle_down().await;
    assert_eq!(world.ready("q"), 100);
}

/// Bytes that were counted under an earlier limit do not count for ever.
#[tokio::test(start_paused = true)]
async fn a_limit_of_bytes_that_is_set_again_drops_nothing_that_is_within_it() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    change(&world, &queue, [Setting::BytesMax(Some(500))])
        .await
        .unwrap();
    world.publish(&queue, messages(0..100)).await;
    change(&world, &queue, [Setting::BytesMax(None)]).await.unwrap();
    change(&world, &queue, [Setting::BytesMax(Some(500))])
        .await
        .unwrap();
    world.publish(&queue, messages(100..200)).await;
    for _ in 0..100 {
        queue.take_one(false).await.unwrap();
    }
    world.publish(&queue, messages(200..260)).await;
    settle_down().await;
    assert_eq!(world.ready("q"), 160, "480 bytes");
}
