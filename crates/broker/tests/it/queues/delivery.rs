//! A message's life: in, out, settled, returned.

use std::sync::Arc;

use stafett_delivery::{ConsumerSpec, Credit, Event, Settle};
use stafett_journal::simulated::SimulatedDisk;
use stafett_messaging::Moved;
use stafett_messaging::queues::{Declare, DeclareError, OwnerId};
use stafett_model::{Message, Namespace};

use super::receiving::ALL;
use super::support::{Listener, World, body, durable, message, messages, settle_down, spec};
use crate::simulated::on_disk;

#[tokio::test(start_paused = true)]
async fn a_refused_second_declaration_leaves_the_queue_of_the_first() {
    let (world, journal) = World::undecided().await;
    journal.hold();
    let queues = world.broker.messaging().queues();
    let declare = || queues.declare(&Namespace::default(), "q", durable());
    let (first, second) = (declare(), declare());
    assert_eq!(journal.undecided(), 2, "neither is answered before it is stored");
    assert!(journal.commit(0));
    assert!(journal.refuse(0));
    second.await.unwrap_err();
    let queue = first.await.unwrap();
    assert!(!queue.is_deleted());
    journal.release();
    world.publish(&queue, messages(0..1)).await;
}

#[tokio::test(start_paused = true)]
async fn messages_come_in_order_and_go_once_settled() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..5)).await;
    let mut listener = Listener::new(&queue, spec());
    let first = listener.next(5).await;
    let bodies: Vec<_> = first.iter().map(body).collect();
    assert_eq!(bodies, ["0", "1", "2", "3", "4"]);
    assert!(first.iter().all(|one| !one.redelivered));
    assert_eq!((queue.counts().ready, queue.counts().in_flight), (0, 5));
    assert_eq!(listener.settle(&first, Settle::Complete), 5);
    assert_eq!(listener.settle(&first, Settle::Complete), 0, "once");
    world.publish(&queue, [message("later")]).await;
    assert_eq!(listener.bodies(1).await, ["later"]);
    assert_eq!(queue.counts().in_flight, 1);
}

#[tokio::test(start_paused = true)]
async fn what_goes_back_comes_again_at_its_place_and_says_so() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..4)).await;
    let mut listener = Listener::new(
        &queue,
        ConsumerSpec {
            credit: Some(2),
            ..spec()
        },
    );
    let got = listener.next(2).await;
    listener.settle(&got[1..], Settle::Complete);
    listener.settle(&got[..1], Settle::Requeue);
    let again = listener.next(2).await;
    assert_eq!(again.iter().map(body).collect::<Vec<_>>(), ["2", "0"]);
    assert_eq!((again[1].redelivered, again[1].delivery_count), (true, 1));
    assert!(!again[0].redelivered);
}

#[tokio::test(start_paused = true)]
async fn credit_holds_a_consumer_and_settling_lets_it_go_on() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..10)).await;
    let limited = ConsumerSpec {
        credit: Some(3),
        ..spec()
    };
    let mut listener = Listener::new(&queue, limited);
    let got = listener.rest().await;
    assert_eq!(got.len(), 3);
    listener.settle(&got[..2], Settle::Complete);
    assert_eq!(listener.rest().await.len(), 2);
    assert_eq!(queue.counts().ready, 5);
}

#[tokio::test(start_paused = true)]
async fn shared_credit_holds_consumers_together() {
    let world = World::new().await;
    let (a, b) = (
        world.declare("a", durable()).await,
        world.declare("b", durable()).await,
    );
    world.publish(&a, messages(0..5)).await;
    world.publish(&b, messages(0..5)).await;
    let credit = Credit::new(4);
    let shared = ConsumerSpec {
        shared_credit: Some(Arc::clone(&credit)),
        ..spec()
    };
    let mut on_a = Listener::new(&a, shared.clone());
    let mut on_b = Listener::new(&b, shared);
    let got = on_a.rest().await;
    assert_eq!((got.len(), on_b.rest().await.len()), (4, 0));
    on_a.settle(&got[..2], Settle::Complete);
    credit.release(2);
    assert_eq!(on_a.rest().await.len() + on_b.rest().await.len(), 2);
    credit.set_limit(0);
    assert_eq!(on_a.rest().await.len() + on_b.rest().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_message_can_be_taken_on_its_own() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    assert!(queue.take_one(true).await.is_none());
    world.publish(&queue, messages(0..3)).await;
    let (first, left) = queue.take_one(true).await.unwrap();
    assert_eq!((body(&first).as_str(), left), ("0", 2));
    let (second, left) = queue.take_one(false).await.unwrap();
    assert_eq!((body(&second).as_str(), left), ("1", 1));
    assert_eq!(queue.counts().in_flight, 1);
    assert_eq!(queue.purge(), 1);
    assert!(queue.take_one(true).await.is_none());
    queue.settle(&[(first.id, Settle::Requeue)]);
    let (again, _) = queue.take_one(true).await.unwrap();
    assert!(again.redelivered);
}

#[tokio::test(start_paused = true)]
async fn an_idle_consumer_goes_before_a_request_for_one_message() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let limited = ConsumerSpec {
        credit: Some(2),
        ..spec()
    };
    let mut listener = Listener::new(&queue, limited);
    world.publish(&queue, messages(0..3)).await;
    let (taken, left) = queue.take_one(true).await.unwrap();
    assert_eq!((body(&taken).as_str(), left), ("2", 0));
    assert_eq!(listener.rest().await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_one_message_waits_no_longer_than_a_turn_of_consumers_that_never_have_enough() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..20_000)).await;
    let outbox = stafett_delivery::Outbox::new(usize::MAX);
    let _greedy = queue.consume(OwnerId(0), spec(), outbox, 1).unwrap();
    assert!(queue.take_one(true).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_full_outbox_holds_only_its_own_consumers() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let outbox = stafett_delivery::Outbox::new(1000);
    let slow = queue.consume(OwnerId(0), spec(), Arc::clone(&outbox), 1).unwrap();
    let mut fast = Listener::new(&queue, spec());
    world.publish(&queue, messages(0..1000)).await;
    let got = fast.rest().await.len();
    assert!(got > 900 && outbox.bytes() < 1200, "{got}");
    let (mut runs, mut events) = (Vec::new(), Vec::new());
    outbox.take(&mut runs, &mut events);
    let slows: usize = runs.iter().map(|run| run.deliveries.len()).sum();
    assert_eq!(got + slows, 1000);
    drop(slow);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_queue_is_gone_for_all() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let queues = world.broker.messaging().queues();
    world.publish(&queue, messages(0..3)).await;
    let mut listener = Listener::new(&queue, spec());
    listener.next(1).await;
    let owner = OwnerId(9);
    let space = Namespace::default();
    assert!(queues.delete(&space, "q", true, false, owner).await.is_err());
    assert_eq!(queues.delete(&space, "q", false, false, owner).await, Ok(0));
    listener.rest().await;
    assert_eq!(listener.events, [Event::ConsumerGone { token: 7 }]);
    assert!(world.get("q").is_none());
    world.publish(&queue, [message("into the void")]).await;
    let world = world.restart().await;
    assert!(world.get("q").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_declared_once_and_again_only_the_same() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    assert!(Arc::ptr_eq(&queue, &world.declare("q", durable()).await));
    let queues = world.broker.messaging().queues();
    let space = Namespace::default();
    let other = queues.declare(&space, "q", Declare::default()).await;
    assert_eq!(other.unwrap_err(), DeclareError::Differs { what: "durable" });
    let mine = Declare {
        exclusive: Some(OwnerId(1)),
        ..Declare::default()
    };
    world.declare("mine", mine.clone()).await;
    let theirs = Declare {
        exclusive: Some(OwnerId(2)),
        ..mine
    };
    let refused = queues.declare(&space, "mine", theirs).await.unwrap_err();
    assert_eq!(refused, DeclareError::Locked);
    queues.close_owner(OwnerId(1));
    assert!(world.get("mine").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_auto_delete_queue_goes_with_its_last_consumer() {
    let world = World::new().await;
    let queue = world
        .declare(
            "q",
            Declare {
                auto_delete: true,
                ..Declare::default()
            },
        )
        .await;
    settle_down().await;
    assert!(world.get("q").is_some(), "nobody has used it yet");
    let first = Listener::new(&queue, spec());
    let second = Listener::new(&queue, spec());
    drop(first);
    assert!(world.get("q").is_some());
    drop(second);
    assert!(world.get("q").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_restart_brings_back_what_is_unsettled_and_nothing_else() {
    let world = World::new().await;
    let queue = world.declare("kept", durable()).await;
    world.declare("gone", Declare::default()).await;
    world.publish(&queue, messages(0..6)).await;
    let transient = Message {
        persistent: false,
        ..message("transient")
    };
    world.publish(&queue, [transient]).await;
    world.publish(&queue, [message("6")]).await;
    let mut listener = Listener::new(
        &queue,
        ConsumerSpec {
            credit: Some(4),
            ..spec()
        },
    );
    let got = listener.next(4).await;
    listener.settle(&got[1..2], Settle::Complete);
    listener.settle(&got[2..3], Settle::Requeue);
    listener.rest().await;
    drop((listener, queue));
    let world = world.restart().await;
    assert!(world.get("gone").is_none());
    let queue = world.get("kept").unwrap();
    let mut listener = Listener::new(&queue, spec());
    let again = listener.rest().await;
    let seen: Vec<_> = again
        .iter()
        .map(|one| (body(one), one.redelivered, one.delivery_count))
        .collect();
    let expected = [
        ("0", true, 0),
        ("2", true, 1),
        ("3", true, 0),
        ("4", true, 0),
        ("5", false, 0),
        ("6", false, 0),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(body, redelivered, count)| ((*body).to_owned(), *redelivered, *count))
        .collect();
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn looking_has_no_effect_and_moving_moves_once() {
    let world = World::new().await;
    let (from, to) = (
        world.declare("from", durable()).await,
        world.declare("to", durable()).await,
    );
    world.publish(&from, messages(0..300)).await;
    let mut bodies = Vec::new();
    let mut search = from.search(ALL.order, ALL.bounds, &[]).unwrap();
    while bodies.len() < 3
        && let Some((_, found)) = search.next(|message| message.value().ends_with(b"1")).await
    {
        bodies.push(found.value().to_vec());
    }
    assert_eq!(bodies, [b"1".to_vec(), b"11".to_vec(), b"21".to_vec()]);
    assert_eq!(search.looked_at(), 22, "no more are read than needed");
    assert_eq!((from.counts().ready, from.counts().in_flight), (300, 0));
    let moved = world.broker.messaging().move_messages(&from, &to, 270).await;
    assert_eq!(
        moved,
        Ok(Moved {
            messages: 270,
            stopped: None
        })
    );
    settle_down().await;
    let world = world.restart().await;
    assert_eq!((world.ready("from"), world.ready("to")), (30, 270));
    let moved: Vec<_> = world.drain("to").await.iter().map(body).collect();
    assert!(
        moved
            .iter()
            .enumerate()
            .all(|(number, body)| *body == number.to_string())
    );
}

#[test]
fn what_is_published_in_bulk_fits_into_small_segments() {
    let disk = SimulatedDisk::new();
    let ready = on_disk(&disk, 1, async |broker, _| {
        let world = World::of(broker);
        let queue = world.declare("q", durable()).await;
        for bytes in [100, 5_000, 40_000] {
            let message = Message {
                value: vec![b'x'; bytes].into(),
                ..message("")
            };
            let count = 200_000 / bytes;
            world.publish(&queue, std::iter::repeat_n(message, count)).await;
        }
        queue.counts().ready
    });
    assert_eq!(ready, Some(2000 + 40 + 5));
}
