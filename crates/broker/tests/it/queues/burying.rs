//! Dead letters meet a full disk, a full queue, or a missing target: only letters refused by a queue are
//! dropped.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_delivery::Settle;
use stafett_journal::simulated::SimulatedDisk;
use stafett_messaging::queues::{DeadLetter, Declare, Overflow, Queue, QueueSettings};
use stafett_messaging::{Destination, NewBinding, NewExchange};
use stafett_model::{DeathReason, Message, Namespace};
use stafett_routing::{ExchangeKind, HeaderMatch};

use super::support::{Listener, World, body, durable, message, messages, settle_down, spec};
use crate::simulated::on_disk;

fn with(settings: QueueSettings) -> Declare {
    Declare {
        settings,
        ..durable()
    }
}

/// Returns settings that dead-letter to a queue through the default exchange.
fn dying_into(queue: &str) -> QueueSettings {
    QueueSettings {
        dead_letter: Some(DeadLetter {
            exchange: "".into(),
            routing_key: Some(queue.into()),
        }),
        ..QueueSettings::default()
    }
}

fn expiring_into(queue: &str) -> Declare {
    with(QueueSettings {
        ttl_ms: Some(1000),
        ..dying_into(queue)
    })
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    settle_down().await;
}

async fn bodies(world: &World, name: &str) -> Vec<String> {
    world.drain(name).await.iter().map(body).collect()
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_dies_while_the_disk_is_full_waits_until_it_is_not() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", expiring_into("dead")).await;
    world.declare("dead", durable()).await;
    world.publish(&queue, messages(0..6000)).await;
    journal.set_full(true);
    pass(5000).await;
    assert_eq!(world.ready("dead"), 0);
    assert!(
        queue.take_one(true).await.is_none(),
        "nobody gets what has expired"
    );
    let counts = queue.counts();
    assert_eq!(counts.ready + counts.in_flight as u64, 6000);
    journal.set_full(false);
    pass(3000).await;
    assert_eq!((world.ready("q"), queue.counts().in_flight), (0, 0));
    assert_eq!(bodies(&world, "dead").await, numbers(0..6000), "in their order");
    settle_down().await;
    let world = world.crash().await;
    settle_down().await;
    assert_eq!((world.ready("q"), world.ready("dead")), (0, 0), "each moved once");
}

#[tokio::test(start_paused = true)]
async fn what_died_on_a_full_disk_is_still_there_after_a_crash_or_a_stop() {
    for stops in [false, true] {
        let (world, journal) = World::undecided().await;
        let queue = world.declare("q", expiring_into("dead")).await;
        world.declare("dead", durable()).await;
        world.publish(&queue, messages(0..10)).await;
        let rejecting = world.declare("r", with(dying_into("dead"))).await;
        world.publish(&rejecting, [message("rejected")]).await;
        let mut listener = Listener::new(&rejecting, spec());
        let got = listener.next(1).await;
        journal.set_full(true);
        listener.settle(&got, Settle::Discard);
        pass(5000).await;
        drop((listener, queue, rejecting));
        let world = if stops {
            world.restart().await
        } else {
            world.crash().await
        };
        pass(2000).await;
        let mut dead = bodies(&world, "dead").await;
        dead.sort_by_key(|body| body.parse::<u32>().ok());
        let left = bodies(&world, "r").await;
        assert_eq!(
            (dead, left),
            (numbers(0..10), vec!["rejected".to_owned()]),
            "{stops}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn who_rejects_gets_the_next_message_even_if_dead_letters_wait() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", with(dying_into("dead"))).await;
    world.declare("dead", durable()).await;
    world.publish(&queue, messages(0..3)).await;
    let one_by_one = stafett_delivery::ConsumerSpec {
        credit: Some(1),
        ..spec()
    };
    let mut listener = Listener::new(&queue, one_by_one);
    journal.set_full(true);
    for _ in 0..3 {
        let got = listener.next(1).await;
        assert_eq!(listener.settle(&got, Settle::Discard), 1);
    }
    settle_down().await;
    assert_eq!((world.ready("dead"), queue.counts().in_flight), (0, 3));
    journal.set_full(false);
    pass(2000).await;
    let dead = world.drain("dead").await;
    let reasons: Vec<_> = dead.iter().map(|one| one.message.deaths()[0].reason).collect();
    assert_eq!(reasons, [DeathReason::Rejected; 3]);
    assert_eq!(dead.iter().map(body).collect::<Vec<_>>(), numbers(0..3));
    assert_eq!(queue.counts().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn dead_letters_that_are_refused_late_are_buried_later_and_once() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", with(dying_into("dead"))).await;
    world.declare("dead", durable()).await;
    world.publish(&queue, messages(0..2)).await;
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(2).await;
    settle_down().await;
    journal.hold();
    listener.settle(&got, Settle::Discard);
    settle_down().await;
    assert_eq!(
        journal.undecided(),
        1,
        "the letters and what settles them are one append"
    );
    assert!(journal.refuse(0));
    settle_down().await;
    assert_eq!(queue.counts().in_flight, 2);
    pass(2000).await;
    while journal.commit(0) {}
    journal.release();
    settle_down().await;
    assert_eq!(bodies(&world, "dead").await, numbers(0..2));
    assert_eq!(queue.counts().in_flight, 0);
    drop((listener, queue));
    let world = world.crash().await;
    assert_eq!(world.ready("q"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_target_drops_what_comes_to_it_and_a_deleted_one_too() {
    let world = World::new().await;
    let full = QueueSettings {
        length_max: Some(2),
        overflow: Overflow::RejectPublish,
        ..QueueSettings::default()
    };
    let queue = world.declare("q", expiring_into("dead")).await;
    world.declare("dead", with(full)).await;
    world.publish(&queue, messages(0..5)).await;
    pass(2000).await;
    assert_eq!((world.ready("q"), queue.counts().in_flight), (0, 0));
    assert_eq!(bodies(&world, "dead").await, numbers(0..2));
    let queues = world.broker.messaging().queues();
    let namespace = Namespace::default();
    let deleting = queues.delete(&namespace, "dead", false, false, queues.new_owner());
    deleting.await.unwrap();
    world.publish(&queue, messages(5..9)).await;
    pass(2000).await;
    assert_eq!((world.ready("q"), queue.counts().in_flight), (0, 0));
}

async fn bind(world: &World, source: &str, queue: &str) {
    let binding = NewBinding {
        source: source.into(),
        destination: Destination::Queue(queue.into()),
        key: Bytes::new(),
        headers: HeaderMatch::default(),
        arguments: Bytes::new(),
    };
    let bound = world
        .broker
        .messaging()
        .bind(&Namespace::default(), binding)
        .unwrap();
    bound.await.unwrap();
}

/// Declares a queue whose messages expire into an exchange that leads to `full`, with room for one, and to
/// `roomy`.
async fn fan(world: &World, full: QueueSettings) -> Arc<Queue> {
    let exchanges = world.broker.messaging().exchanges();
    let (_, stored) = exchanges
        .declare(
            &Namespace::default(),
            "fan",
            NewExchange::new(ExchangeKind::FanOut),
        )
        .unwrap();
    stored.await.unwrap();
    let full = QueueSettings {
        length_max: Some(1),
        ..full
    };
    world.declare("full", with(full)).await;
    for name in ["roomy", "deadest"] {
        world.declare(name, durable()).await;
    }
    bind(world, "fan", "full").await;
    bind(world, "fan", "roomy").await;
    let settings = QueueSettings {
        ttl_ms: Some(1000),
        dead_letter: Some(DeadLetter {
            exchange: "fan".into(),
            routing_key: None,
        }),
        ..QueueSettings::default()
    };
    world.declare("q", with(settings)).await
}

#[tokio::test(start_paused = true)]
async fn where_one_of_two_targets_is_full_the_other_gets_all() {
    let world = World::new().await;
    let refuses = QueueSettings {
        overflow: Overflow::RejectPublish,
        ..QueueSettings::default()
    };
    let queue = fan(&world, refuses).await;
    world.publish(&queue, messages(0..4)).await;
    pass(2000).await;
    assert_eq!(bodies(&world, "full").await, numbers(0..1));
    assert_eq!(bodies(&world, "roomy").await, numbers(0..4));
    assert_eq!((world.ready("q"), queue.counts().in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_full_target_dead_letters_in_its_turn_is_one_append_with_the_rest() {
    let (world, journal) = World::undecided().await;
    let refuses = QueueSettings {
        overflow: Overflow::RejectPublishDeadLetter,
        ..dying_into("deadest")
    };
    let queue = fan(&world, refuses).await;
    world.publish(&queue, messages(0..4)).await;
    settle_down().await;
    journal.hold();
    pass(2000).await;
    assert_eq!(journal.undecided(), 1);
    assert!(journal.commit(0));
    journal.release();
    settle_down().await;
    assert_eq!(bodies(&world, "full").await, numbers(0..1));
    assert_eq!(bodies(&world, "roomy").await, numbers(0..4));
    let deadest = world.drain("deadest").await;
    assert_eq!(deadest.iter().map(body).collect::<Vec<_>>(), numbers(1..4));
    let deaths: Vec<_> = deadest[0]
        .message
        .deaths()
        .iter()
        .map(|death| (death.queue.to_string(), death.reason))
        .collect();
    let expected = [
        ("full".to_owned(), DeathReason::Length),
        ("q".to_owned(), DeathReason::Expired),
    ];
    assert_eq!(deaths, expected);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_whose_priority_has_no_log_on_a_full_disk_waits_too() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", expiring_into("dead")).await;
    let levels = QueueSettings {
        priority_max: 9,
        ..QueueSettings::default()
    };
    world.declare("dead", with(levels)).await;
    let high = Message {
        priority: 7,
        ..message("high")
    };
    world.publish(&queue, [high]).await;
    journal.set_full(true);
    pass(3000).await;
    assert_eq!((world.ready("dead"), queue.counts().in_flight), (0, 1));
    journal.set_full(false);
    pass(2000).await;
    assert_eq!(bodies(&world, "dead").await, ["high"]);
    assert_eq!(queue.counts().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_to_somebody_who_left_goes_back() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", with(dying_into("dead"))).await;
    world.declare("dead", durable()).await;
    let short = Message {
        ttl_ms: Some(1000),
        ..message("short")
    };
    let many = std::iter::repeat_n(short, 6000).chain([message("long")]);
    world.publish(&queue, many).await;
    settle_down().await;
    journal.hold();
    pass(2000).await;
    let asking = {
        let mut asking = Box::pin(queue.take_one(true));
        // With as many dying, the rest waits, as does the request.
        tokio::select! {
            biased;
            _ = &mut asking => panic!("it is behind those that died"),
            () = std::future::ready(()) => {}
        }
        for _ in 0..20 {
            while journal.commit(0) {}
            settle_down().await;
        }
        assert_eq!(
            (queue.counts().ready, queue.counts().in_flight),
            (0, 1),
            "it was given"
        );
        asking
    };
    drop(asking);
    assert_eq!((queue.counts().ready, queue.counts().in_flight), (1, 0));
    let (again, _) = queue.take_one(true).await.unwrap();
    assert_eq!((body(&again).as_str(), again.redelivered), ("long", false));
}

#[test]
fn dead_letters_that_do_not_fit_into_one_append_go_in_several() {
    let disk = SimulatedDisk::new();
    // Segments have 64 KiB.
    let sent: Vec<Message> = (0..40)
        .map(|number| message(&format!("{number} {}", "x".repeat(4000))))
        .collect();
    on_disk(&disk, 1, async |broker, _| {
        let world = World::of(broker);
        let queue = world.declare("q", expiring_into("dead")).await;
        world.declare("dead", durable()).await;
        for one in &sent {
            world.publish(&queue, [one.clone()]).await;
        }
        pass(3000).await;
        assert_eq!((queue.counts().ready, queue.counts().in_flight), (0, 0));
        let dead: Vec<_> = world.drain("dead").await;
        let values: Vec<_> = dead.iter().map(|one| one.message.value().to_vec()).collect();
        let expected: Vec<_> = sent.iter().map(|one| one.value.to_vec()).collect();
        assert_eq!(values.len(), 40);
        assert!(values == expected, "all of them, in their order");
    })
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_whole_of_a_queues_state_is_stored_while_dead_letters_go_on() {
    let world = World::new().await;
    let settings = QueueSettings {
        length_max: Some(1),
        ..dying_into("dead")
    };
    let queue = world.declare("q", with(settings)).await;
    world.declare("dead", durable()).await;
    for round in 0..3000 {
        world.publish(&queue, messages(round..round + 1)).await;
        tokio::task::yield_now().await;
    }
    settle_down().await;
    assert_eq!((world.ready("q"), world.ready("dead")), (1, 2999));
    let world = world.crash().await;
    settle_down().await;
    assert_eq!((world.ready("q"), world.ready("dead")), (1, 2999));
    assert_eq!(bodies(&world, "dead").await, numbers(0..2999));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_dead_letters_waits_until_they_are_stored_and_no_longer_than_there_is_space() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", with(dying_into("dead"))).await;
    world.declare("dead", durable()).await;
    queue.dead_letters_stored().await;
    world.publish(&queue, messages(0..2)).await;
    let (first, _) = queue.take_one(true).await.unwrap();
    let (second, _) = queue.take_one(true).await.unwrap();
    journal.hold_batches();
    queue.settle(&[(first.id, Settle::Discard)]);
    let mut buried = std::pin::pin!(queue.dead_letters_stored());
    tokio::select! {
        biased;
        () = &mut buried => panic!("it is not stored"),
        () = settle_down() => {}
    }
    assert!(journal.commit(0));
    buried.await;
    assert_eq!(world.ready("dead"), 1);
    journal.release();
    journal.set_full(true);
    queue.settle(&[(second.id, Settle::Discard)]);
    queue.dead_letters_stored().await;
    assert_eq!((world.ready("dead"), queue.counts().in_flight), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_rejected_after_its_queue_was_deleted_keeps_nothing_waiting() {
    let world = World::new().await;
    let queue = world.declare("q", with(dying_into("dead"))).await;
    world.publish(&queue, messages(0..2)).await;
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(2).await;
    let queues = world.broker.messaging().queues();
    let owner = queues.new_owner();
    let namespace = Namespace::default();
    let deleted = queues.delete(&namespace, "q", false, false, owner);
    assert_eq!(deleted.await, Ok(0));
    for delivery in got {
        listener.settle(&[delivery], Settle::Discard);
        settle_down().await;
        assert!(!queue.is_dead_lettering());
        let waited = tokio::time::timeout(Duration::from_mins(1), queue.dead_letters_stored()).await;
        assert!(waited.is_ok(), "nothing is buried any more");
    }
}
