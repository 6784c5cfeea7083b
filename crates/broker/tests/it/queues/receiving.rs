//! Messages received without a consumer: chosen ones, under leases, and after a wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use stafett_delivery::{ConsumerSpec, LeaseId, SearchBounds, SearchOrder, Settle};
use stafett_messaging::queues::{
    Acknowledge, DeadLetter, Declare, Narrow, Queue, QueueSettings, Receive, ReceiveError, Received,
    SettleLeases,
};
use stafett_messaging::{Send, SendError};
use stafett_model::{Message, Namespace, StoredMessage};

use tokio_util::task::TaskTracker;

use super::support::{Listener, World, body, durable, message, messages, settle_down, spec};

pub(crate) const ALL: Receive<'static> = Receive {
    count: 1,
    bytes_max: usize::MAX,
    order: SearchOrder::Priority,
    wanted: None,
    narrow: Narrow {
        priorities: None,
        header: None,
    },
    bounds: SearchBounds {
        messages: 1000,
        bytes: usize::MAX,
    },
    after: Vec::new(),
    wait: Duration::ZERO,
    ack: Acknowledge::Stored,
};

fn from(sender: &str, text: &str) -> Message {
    let sender = Bytes::copy_from_slice(sender.as_bytes());
    Message {
        headers: [("user-id".into(), Some(sender))].into_iter().collect(),
        ..message(text)
    }
}

fn is_from(sender: &'static str) -> impl Fn(&StoredMessage) -> bool + std::marker::Send + Sync {
    move |message| message.header(b"user-id").flatten() == Some(sender.as_bytes())
}

pub(crate) fn bodies(received: &Received) -> Vec<String> {
    received.messages.iter().map(|(one, _)| body(one)).collect()
}

fn leases(received: &Received) -> Vec<LeaseId> {
    received.messages.iter().filter_map(|(_, lease)| *lease).collect()
}

async fn take(queue: &Arc<Queue>, request: Receive<'_>) -> Vec<String> {
    bodies(&queue.receive(request).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_chosen_message_leaves_the_others_in_their_order() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let sent = [
        ("ann", "1"),
        ("bob", "2"),
        ("ann", "3"),
        ("bob", "4"),
        ("ann", "5"),
    ];
    world
        .publish(&queue, sent.map(|(sender, text)| from(sender, text)))
        .await;
    let bobs = is_from("bob");
    for ack in [Acknowledge::Soon, Acknowledge::Stored] {
        let wanted = Some(&bobs as _);
        let taken = take(&queue, Receive { wanted, ack, ..ALL }).await;
        assert_eq!(taken, [if ack == Acknowledge::Soon { "2" } else { "4" }]);
    }
    let wanted = Some(&bobs as _);
    let none = queue.receive(Receive { wanted, ..ALL }).await.unwrap();
    assert_eq!((none.messages.len(), none.looked_at, none.next), (0, 3, None));
    assert_eq!(take(&queue, Receive { count: 9, ..ALL }).await, ["1", "3", "5"]);
    let world = world.crash().await;
    assert_eq!(world.ready("q"), 0);
}

#[tokio::test(start_paused = true)]
async fn by_age_messages_of_all_priorities_come_as_they_arrived() {
    let world = World::new().await;
    let settings = QueueSettings {
        priority_max: 10,
        ..QueueSettings::default()
    };
    let declare = Declare {
        settings,
        ..durable()
    };
    let queue = world.declare("q", declare).await;
    for (number, priority) in [3, 9, 0, 9, 10, 3].into_iter().enumerate() {
        let sent = Message {
            priority,
            ..message(&number.to_string())
        };
        world.publish(&queue, [sent]).await;
    }
    let order = SearchOrder::Oldest;
    let oldest = take(
        &queue,
        Receive {
            order,
            count: 3,
            ..ALL
        },
    )
    .await;
    assert_eq!(oldest, ["0", "1", "2"]);
    assert_eq!(take(&queue, Receive { count: 9, ..ALL }).await, ["4", "3", "5"]);
}

#[tokio::test(start_paused = true)]
async fn a_search_ends_at_its_bound_and_goes_on_from_there() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let sent = (0..25).map(|number| from(if number == 20 { "bob" } else { "ann" }, &number.to_string()));
    world.publish(&queue, sent.collect::<Vec<_>>()).await;
    let bobs = is_from("bob");
    let bounds = SearchBounds {
        messages: 8,
        bytes: usize::MAX,
    };
    let mut after = Vec::new();
    for expected in [0, 0, 1] {
        let wanted = Some(&bobs as _);
        let request = Receive {
            wanted,
            bounds,
            after,
            ..ALL
        };
        let received = queue.receive(request).await.unwrap();
        assert_eq!(received.messages.len(), expected);
        after = received.next.unwrap_or_default();
        assert_eq!(after.is_empty(), expected == 1);
    }
    assert_eq!(queue.counts().ready, 24);
}

#[tokio::test(start_paused = true)]
async fn a_lease_holds_a_message_until_it_is_settled_or_ends() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world
        .publish(
            &queue,
            (0..4).map(|n| from("ann", &n.to_string())).collect::<Vec<_>>(),
        )
        .await;
    let anns = is_from("ann");
    let ack = Acknowledge::Lease { ms: 30_000 };
    let request = || Receive {
        wanted: Some(&anns as _),
        count: 3,
        ack,
        ..ALL
    };
    let received = queue.receive(request()).await.unwrap();
    assert_eq!(bodies(&received), ["0", "1", "2"]);
    let held = leases(&received);
    let counts = queue.counts();
    assert_eq!((counts.ready, counts.in_flight), (1, 3));
    let settle = SettleLeases {
        leases: vec![(held[0], Settle::Complete), (held[0], Settle::Complete)],
        stored: true,
    };
    assert_eq!(queue.settle_leases(settle).await.unwrap(), [true, false]);
    let invented = LeaseId {
        nonce: held[1].nonce ^ 1,
        ..held[1]
    };
    assert_eq!(
        queue.extend_leases(&[(invented, 1), (held[1], 60_000)]),
        [false, true]
    );
    tokio::time::sleep(Duration::from_millis(30_500)).await;
    assert_eq!(queue.counts().in_flight, 1, "one was extended");
    let again = queue.receive(request()).await.unwrap();
    assert_eq!(bodies(&again), ["2", "3"]);
    let (first, _) = &again.messages[0];
    assert!(first.redelivered && first.delivery_count == 1);
    assert!(!again.messages[1].0.redelivered);
    let late = SettleLeases {
        leases: vec![(held[2], Settle::Complete)],
        stored: false,
    };
    assert_eq!(
        queue.settle_leases(late).await.unwrap(),
        [false],
        "it is leased to another"
    );
    let back = SettleLeases {
        leases: leases(&again)
            .into_iter()
            .map(|id| (id, Settle::Requeue))
            .collect(),
        stored: true,
    };
    assert_eq!(queue.settle_leases(back).await.unwrap(), [true, true]);
    assert_eq!(take(&queue, Receive { count: 9, ..ALL }).await, ["2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_leased_messages_come_again_as_redelivered_and_no_others() {
    for chosen in [false, true] {
        let world = World::new().await;
        let queue = world.declare("q", durable()).await;
        let sent = (0..200).map(|n| from(if n == 150 { "bob" } else { "ann" }, &n.to_string()));
        world.publish(&queue, sent.collect::<Vec<_>>()).await;
        let bobs = is_from("bob");
        let request = Receive {
            wanted: chosen.then_some(&bobs as _),
            ack: Acknowledge::Lease { ms: 1000 },
            ..ALL
        };
        let held = queue.receive(request).await.unwrap();
        let expected = if chosen { "150" } else { "0" };
        assert_eq!(bodies(&held), [expected]);
        drop(queue);
        let world = world.crash().await;
        let left = world.drain("q").await;
        assert_eq!(left.len(), 200);
        let again: Vec<_> = left.iter().filter(|one| one.redelivered).map(body).collect();
        assert!(again.contains(&expected.to_owned()), "{again:?}");
        // A hand-out mark covers some more; a chosen message has a mark of its own.
        assert!(!chosen || again.len() == 1, "{again:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn returns_that_are_stored_are_counted_after_a_crash() {
    for (what, left, dead) in [
        (Settle::Requeue, &["m"][..], &[][..]),
        (Settle::Requeue, &[][..], &["m"][..]),
        (Settle::Discard, &[][..], &["m"][..]),
    ] {
        let world = World::new().await;
        world.declare("dead", durable()).await;
        let limit = u32::from(!left.is_empty());
        let settings = QueueSettings {
            dead_letter: Some(DeadLetter {
                exchange: "".into(),
                routing_key: Some("dead".into()),
            }),
            delivery_limit: Some(limit),
            ..QueueSettings::default()
        };
        let declare = Declare {
            settings,
            ..durable()
        };
        let queue = world.declare("q", declare).await;
        world.publish(&queue, [message("m")]).await;
        let request = Receive {
            ack: Acknowledge::Lease { ms: 60_000 },
            ..ALL
        };
        let held = queue.receive(request).await.unwrap();
        let settling = SettleLeases {
            leases: leases(&held).into_iter().map(|lease| (lease, what)).collect(),
            stored: true,
        };
        assert_eq!(queue.settle_leases(settling).await, Ok(vec![true]));
        drop(queue);
        let world = world.crash().await;
        let again = world.drain("q").await;
        assert_eq!(again.iter().map(body).collect::<Vec<_>>(), left);
        assert!(again.iter().all(|one| one.delivery_count == 1));
        let letters = world.drain("dead").await;
        assert_eq!(letters.iter().map(body).collect::<Vec<_>>(), dead);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_message_that_it_wants() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let wait = Duration::from_secs(20);
    let bobs = is_from("bob");
    let plain = queue.receive(Receive { wait, ..ALL });
    let chosen = queue.receive(Receive {
        wait,
        wanted: Some(&bobs as _),
        ..ALL
    });
    let sending = async {
        settle_down().await;
        for (sender, text) in [("ann", "1"), ("ann", "2"), ("bob", "3")] {
            world.publish(&queue, [from(sender, text)]).await;
            settle_down().await;
        }
    };
    let (plain, chosen, ()) = tokio::join!(plain, chosen, sending);
    assert_eq!(bodies(&plain.unwrap()), ["1"]);
    assert_eq!(bodies(&chosen.unwrap()), ["3"]);
    let begun = tokio::time::Instant::now();
    let wanted = Some(&bobs as _);
    assert_eq!(
        take(&queue, Receive { wait, wanted, ..ALL }).await,
        Vec::<String>::new()
    );
    assert_eq!(begun.elapsed().as_secs(), 20);
    assert_eq!(take(&queue, Receive { wait, ..ALL }).await, ["2"]);
    assert_eq!(take(&queue, Receive { wait, ..ALL }).await, Vec::<String>::new());
    assert_eq!(begun.elapsed().as_secs(), 40);
    // A request that gave up takes nothing.
    world.publish(&queue, messages(0..1)).await;
    assert_eq!(take(&queue, ALL).await, ["0"]);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_search_sees_what_returns_to_its_place() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, [from("bob", "1"), from("ann", "2")]).await;
    let mut listener = Listener::new(
        &queue,
        ConsumerSpec {
            credit: Some(1),
            ..spec()
        },
    );
    let held = listener.next(1).await;
    let bobs = is_from("bob");
    let waiting = queue.receive(Receive {
        wait: Duration::from_secs(20),
        wanted: Some(&bobs as _),
        ack: Acknowledge::Soon,
        ..ALL
    });
    let settling = async {
        settle_down().await;
        drop(listener);
        queue.settle(&[(held[0].id, Settle::Requeue)]);
    };
    let (received, ()) = tokio::join!(waiting, settling);
    let received = received.unwrap();
    assert_eq!(bodies(&received), ["1"]);
    assert!(received.messages[0].0.redelivered);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_that_want_the_same_message_one_gets_it() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let tasks = TaskTracker::new();
    for round in 0..500 {
        world
            .publish(&queue, [from("ann", "0"), from("bob", &round.to_string())])
            .await;
        let takers: Vec<_> = (0..3)
            .map(|taker| {
                let queue = Arc::clone(&queue);
                let ack = match taker {
                    0 => Acknowledge::Stored,
                    _ => Acknowledge::Soon,
                };
                tasks.spawn(async move {
                    let bobs = is_from("bob");
                    let wanted = (taker < 2).then_some(&bobs as _);
                    take(
                        &queue,
                        Receive {
                            wanted,
                            ack,
                            count: 2,
                            ..ALL
                        },
                    )
                    .await
                })
            })
            .collect();
        let mut all = Vec::new();
        for taker in takers {
            all.extend(taker.await.unwrap());
        }
        all.extend(take(&queue, Receive { count: 9, ..ALL }).await);
        let mut all: Vec<usize> = all.iter().map(|text| text.parse().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, [0, round]);
    }
    assert_eq!(queue.counts().in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_sent_to_all_queues_or_to_none() {
    let world = World::new().await;
    let short = QueueSettings {
        length_max: Some(1),
        overflow: stafett_messaging::queues::Overflow::RejectPublish,
        ..QueueSettings::default()
    };
    let declare = Declare {
        settings: short,
        ..durable()
    };
    let [a, b] = [
        world.declare("a", durable()).await,
        world.declare("b", declare).await,
    ];
    let messaging = world.broker.messaging();
    let send = |queues: &[&str]| {
        let one = Send {
            message: message("m"),
            queues: queues.iter().map(|name| (*name).into()).collect(),
        };
        let sending = messaging.send(&Namespace::default(), vec![one], None);
        async { sending.await.map(|sent| sent.places) }
    };
    let ready = || (a.counts().ready, b.counts().ready);
    let missing = SendError::NoSuchQueue {
        at: 0,
        name: "c".into(),
    };
    assert_eq!(send(&["a", "b", "c"]).await, Err(missing));
    assert_eq!(ready(), (0, 0));
    let places = send(&["a", "b", "a"]).await.unwrap();
    assert_eq!(places[0].len(), 2);
    assert_eq!(ready(), (1, 1), "a queue that is named twice gets it once");
    let full = send(&["a", "b"]).await;
    assert!(matches!(full, Err(SendError::Refused { at: 0, .. })), "{full:?}");
    assert_eq!(ready(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_id_stores_once() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let request = Some(stafett_journal::RequestId([7; 16]));
    for round in 0..3 {
        let one = Send {
            message: message("m"),
            queues: vec!["q".into()],
        };
        let sent = world
            .broker
            .messaging()
            .send(&Namespace::default(), vec![one], request);
        assert_eq!(sent.await.unwrap().is_repeated, round > 0);
    }
    assert_eq!(queue.counts().ready, 1);
}

#[tokio::test(start_paused = true)]
async fn a_queue_with_a_consumer_that_gets_all_is_not_received_from() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let alone = ConsumerSpec {
        exclusive: true,
        ..spec()
    };
    let listener = Listener::new(&queue, alone);
    assert_eq!(queue.receive(ALL).await.err(), Some(ReceiveError::InUse));
    drop(listener);
    assert!(queue.receive(ALL).await.is_ok());
}
