//! TTL, length limits, priorities, and dead letters.

use std::time::Duration;

use stafett_delivery::{ConsumerSpec, Settle};
use stafett_messaging::queues::{
    AppendOutcome, DeadLetter, Declare, Overflow, QueueSettings, Refused, Setting,
};
use stafett_model::{DeathReason, Message, Namespace};

use super::support::{Listener, World, body, durable, message, messages, settle_down, spec};

fn with(settings: QueueSettings) -> Declare {
    Declare {
        settings,
        ..durable()
    }
}

fn dead_to(key: &str) -> DeadLetter {
    DeadLetter {
        exchange: "".into(),
        routing_key: Some(key.into()),
    }
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    settle_down().await;
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_queue_with_a_time_expire_in_order_without_a_consumer() {
    let world = World::new().await;
    let settings = QueueSettings {
        ttl_ms: Some(1000),
        dead_letter: Some(dead_to("dead")),
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    world.declare("dead", durable()).await;
    world.publish(&queue, messages(0..300)).await;
    pass(500).await;
    world.publish(&queue, messages(300..303)).await;
    assert_eq!((world.ready("q"), world.ready("dead")), (303, 0));
    pass(550).await;
    assert_eq!((world.ready("q"), world.ready("dead")), (3, 300));
    pass(500).await;
    assert_eq!((world.ready("q"), world.ready("dead")), (0, 303));
    let dead = world.drain("dead").await;
    let bodies: Vec<_> = dead.iter().map(body).collect();
    let expected: Vec<_> = (0..303).map(|number: u32| number.to_string()).collect();
    assert_eq!(bodies, expected);
    let death = &dead[0].message.deaths()[0];
    assert_eq!(
        (&*death.queue, death.reason, death.count),
        ("q", DeathReason::Expired, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_messages_own_time_counts_once_it_is_at_the_head() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let short = Message {
        ttl_ms: Some(100),
        ..message("short")
    };
    world.publish(&queue, [message("long"), short.clone()]).await;
    pass(200).await;
    assert_eq!(world.ready("q"), 2, "it waits behind one that does not expire");
    let (first, _) = queue.take_one(true).await.unwrap();
    settle_down().await;
    assert_eq!(world.ready("q"), 0);
    queue.settle(&[(first.id, Settle::Requeue)]);
    assert_eq!(world.ready("q"), 1);
    let at_once = Message {
        ttl_ms: Some(0),
        ..message("at once")
    };
    world.drain("q").await;
    world.publish(&queue, [at_once.clone()]).await;
    assert!(queue.take_one(true).await.is_none(), "who asks comes too late");
    world.publish(&queue, [at_once.clone()]).await;
    settle_down().await;
    assert_eq!(world.ready("q"), 0);
    let mut listener = Listener::new(&queue, spec());
    world.publish(&queue, [at_once.clone()]).await;
    assert_eq!(
        listener.bodies(1).await,
        ["at once"],
        "somebody was there to take it"
    );
    drop(listener);
    world.publish(&queue, [message("first"), at_once]).await;
    pass(100).await;
    let mut listener = Listener::new(&queue, spec());
    assert_eq!(listener.bodies(1).await, ["first"]);
    settle_down().await;
    assert_eq!(listener.rest().await.len(), 0, "it waited behind another one");
    assert_eq!(world.ready("q"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_goes_where_there_are_too_many() {
    let world = World::new().await;
    let settings = QueueSettings {
        length_max: Some(3),
        dead_letter: Some(dead_to("dead")),
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    world.declare("dead", durable()).await;
    world.publish(&queue, messages(0..5)).await;
    settle_down().await;
    assert_eq!((world.ready("q"), world.ready("dead")), (3, 2));
    let dead = world.drain("dead").await;
    assert_eq!(dead[1].message.deaths()[0].reason, DeathReason::Length);
    let left: Vec<_> = world.drain("q").await.iter().map(body).collect();
    assert_eq!(left, ["2", "3", "4"]);
    let bytes = QueueSettings {
        bytes_max: Some(10),
        ..QueueSettings::default()
    };
    let queue = world.declare("bytes", with(bytes)).await;
    world
        .publish(
            &queue,
            [message("aaaa"), message("bbbb"), message("cc"), message("d")],
        )
        .await;
    settle_down().await;
    let left: Vec<_> = world.drain("bytes").await.iter().map(body).collect();
    assert_eq!(left, ["bbbb", "cc", "d"]);
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_bytes_drops_and_refuses_nothing_that_is_within_it_after_a_restart() {
    for overflow in [Overflow::DropHead, Overflow::RejectPublish] {
        let world = World::new().await;
        let settings = QueueSettings {
            bytes_max: Some(500),
            overflow,
            ..QueueSettings::default()
        };
        let queue = world.declare("q", with(settings)).await;
        world.publish(&queue, messages(0..100)).await;
        settle_down().await;
        assert_eq!(world.ready("q"), 100, "{overflow:?}: 190 bytes");
        let world = world.restart().await;
        let queue = world.get("q").unwrap();
        settle_down().await;
        assert_eq!(world.ready("q"), 100, "{overflow:?}: after a restart");
        let appended = world.try_publish(&queue, messages(100..200)).await;
        settle_down().await;
        assert!(
            appended.iter().all(|one| *one == AppendOutcome::Stored),
            "{overflow:?}"
        );
        assert_eq!(world.ready("q"), 200, "{overflow:?}: 490 bytes");
        assert_eq!(world.drain("q").await.len(), 200);
        // Once it was empty, all bytes are counted again.
        let appended = world.try_publish(&queue, messages(100..300)).await;
        settle_down().await;
        let refused = appended
            .iter()
            .filter(|one| **one != AppendOutcome::Stored)
            .count();
        let expected = if overflow == Overflow::DropHead { 0 } else { 34 };
        assert_eq!((world.ready("q"), refused), (166, expected), "{overflow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_gets_all_that_comes_however_short_the_queue_has_to_be() {
    for overflow in [Overflow::DropHead, Overflow::RejectPublish] {
        for (length_max, bytes_max) in [(Some(2), None), (Some(0), None), (None, Some(2))] {
            let world = World::new().await;
            let settings = QueueSettings {
                length_max,
                bytes_max,
                overflow,
                ..QueueSettings::default()
            };
            let queue = world.declare("q", with(settings)).await;
            let mut listener = Listener::new(&queue, spec());
            world.publish(&queue, messages(0..100)).await;
            assert_eq!(listener.bodies(100).await.len(), 100, "{overflow:?}");
            drop(listener);
            let five = ConsumerSpec {
                credit: Some(5),
                ..spec()
            };
            let mut listener = Listener::new(&queue, five);
            let appended = world.try_publish(&queue, messages(0..9)).await;
            let refused = appended
                .iter()
                .filter(|one| **one != AppendOutcome::Stored)
                .count();
            assert_eq!(listener.bodies(5).await, ["0", "1", "2", "3", "4"]);
            settle_down().await;
            let left = match length_max {
                Some(max) => max,
                // The number of bytes of the staged messages is unknown.
                None if overflow == Overflow::RejectPublish => 0,
                None => 2,
            };
            assert_eq!(
                world.ready("q"),
                left,
                "{overflow:?} {length_max:?} {bytes_max:?}"
            );
            let is_refusing = overflow == Overflow::RejectPublish;
            let expected = if is_refusing {
                4 - usize::try_from(left).unwrap()
            } else {
                0
            };
            assert_eq!(refused, expected, "{overflow:?} {length_max:?} {bytes_max:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_what_it_has_no_room_for() {
    let world = World::new().await;
    let settings = QueueSettings {
        length_max: Some(2),
        overflow: Overflow::RejectPublish,
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings.clone())).await;
    let refused = AppendOutcome::Refused(Refused::QueueFull);
    let appended = world.try_publish(&queue, messages(0..4)).await;
    assert_eq!(
        appended,
        [AppendOutcome::Stored, AppendOutcome::Stored, refused, refused]
    );
    queue.take_one(false).await.unwrap();
    assert_eq!(
        world.try_publish(&queue, messages(4..6)).await,
        [AppendOutcome::Stored, refused]
    );
    let settings = QueueSettings {
        overflow: Overflow::RejectPublishDeadLetter,
        dead_letter: Some(dead_to("dead")),
        ..settings
    };
    let queue = world.declare("other", with(settings)).await;
    world.declare("dead", durable()).await;
    world.try_publish(&queue, messages(0..3)).await;
    settle_down().await;
    assert_eq!((world.ready("other"), world.ready("dead")), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_wants_is_a_dead_letter_and_comes_with_its_history() {
    let world = World::new().await;
    let settings = QueueSettings {
        dead_letter: Some(dead_to("dead")),
        delivery_limit: Some(2),
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    world.declare("dead", durable()).await;
    let original = Message {
        exchange: "orders".into(),
        routing_key: "new".into(),
        ..message("poison")
    };
    world.publish(&queue, [original, message("unwanted")]).await;
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(2).await;
    listener.settle(&got[1..], Settle::Discard);
    listener.settle(&got[..1], Settle::Requeue);
    for count in 1..=2 {
        let again = listener.next(1).await;
        assert_eq!((again[0].delivery_count, again[0].redelivered), (count, true));
        listener.settle(&again, Settle::Requeue);
    }
    assert!(listener.rest().await.is_empty());
    assert_eq!(queue.counts().in_flight, 0);
    let dead = world.drain("dead").await;
    let mut seen: Vec<_> = dead
        .iter()
        .map(|one| {
            let death = one.message.deaths()[0].clone();
            (body(one), death.reason, death.exchange.to_string())
        })
        .collect();
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        (
            "poison".to_owned(),
            DeathReason::DeliveryLimit,
            "orders".to_owned(),
        ),
        ("unwanted".to_owned(), DeathReason::Rejected, String::new()),
    ];
    assert_eq!(seen, expected);
    let world = world.restart().await;
    assert_eq!((world.ready("q"), world.ready("dead")), (0, 0), "it moved once");
}

#[tokio::test(start_paused = true)]
async fn a_circle_of_dead_letters_is_cut() {
    let world = World::new().await;
    let to = |key| QueueSettings {
        ttl_ms: Some(10),
        dead_letter: Some(dead_to(key)),
        ..QueueSettings::default()
    };
    let a = world.declare("a", with(to("b"))).await;
    world.declare("b", with(to("a"))).await;
    world.publish(&a, [message("round")]).await;
    pass(100).await;
    assert_eq!((world.ready("a"), world.ready("b")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_higher_priority_goes_first_also_after_a_restart() {
    let world = World::new().await;
    let settings = QueueSettings {
        priority_max: 9,
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    let of = |priority, text: &str| Message {
        priority,
        ..message(text)
    };
    let sent = [of(0, "a"), of(5, "b"), of(200, "c"), of(5, "d"), of(9, "e")];
    world.publish(&queue, sent).await;
    let world = world.restart().await;
    let order: Vec<_> = world.drain("q").await.iter().map(body).collect();
    assert_eq!(order, ["c", "e", "b", "d", "a"]);
}

#[tokio::test(start_paused = true)]
async fn there_are_256_priorities_and_all_of_them_keep_their_order() {
    let world = World::new().await;
    let settings = QueueSettings {
        priority_max: 255,
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    let sent = (0..=255).chain(0..=255).enumerate();
    let sent = sent.map(|(number, priority)| Message {
        priority,
        ..message(&number.to_string())
    });
    world.publish(&queue, sent).await;
    let world = world.restart().await;
    let order: Vec<_> = world.drain("q").await.iter().map(body).collect();
    let expected: Vec<_> = (0..256)
        .rev()
        .flat_map(|number| [number.to_string(), (number + 256).to_string()])
        .collect();
    assert_eq!(order, expected);
}

/// Returns settings like those of quorum queues: two priorities.
fn two_priorities() -> QueueSettings {
    QueueSettings {
        two_priorities: true,
        keeps_transient: true,
        ..QueueSettings::default()
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_priorities_one_in_three_is_a_normal_one_and_neither_lane_is_read_twice() {
    let world = World::new().await;
    let queue = world.declare("q", with(two_priorities())).await;
    let of = |priority: u8| {
        (0..300).map(move |number| Message {
            priority,
            ..message(&format!("{priority}.{number}"))
        })
    };
    world.publish(&queue, of(4)).await;
    world.publish(&queue, of(5)).await;
    let mut listener = Listener::new(&queue, spec());
    let order = listener.bodies(600).await;
    let (mut normal, mut high) = (0, 0);
    for (at, body) in order.iter().enumerate() {
        let is_high = high < 300 && (at % 3 < 2 || normal == 300);
        let (priority, next) = if is_high { (5, &mut high) } else { (4, &mut normal) };
        assert_eq!(*body, format!("{priority}.{next}"), "at {at}");
        *next += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn no_normal_message_goes_before_a_high_one_that_came_first() {
    let of = |(text, priority): (&str, u8)| Message {
        priority,
        ..message(text)
    };
    // In one publication, and in two.
    for split in [8, 3] {
        let world = World::new().await;
        let queue = world.declare("q", with(two_priorities())).await;
        let sent = [
            ("h1", 5),
            ("h2", 5),
            ("h3", 5),
            ("l1", 0),
            ("h4", 5),
            ("l2", 0),
            ("l3", 0),
            ("h5", 9),
        ];
        let (first, second) = sent.split_at(split);
        world.publish(&queue, first.iter().copied().map(of)).await;
        world.publish(&queue, second.iter().copied().map(of)).await;
        let order: Vec<_> = world.drain("q").await.iter().map(body).collect();
        assert_eq!(order, ["h1", "h2", "h3", "h4", "h5", "l1", "l2", "l3"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_keeps_all_has_transient_messages_after_a_crash_too() {
    let world = World::new().await;
    let queue = world.declare("q", with(two_priorities())).await;
    let transient = |text: &str| Message {
        persistent: false,
        ..message(text)
    };
    world
        .publish(&queue, [transient("1"), message("2"), transient("3")])
        .await;
    let world = world.crash().await;
    settle_down().await;
    assert_eq!(world.ready("q"), 3);
    let world = world.restart().await;
    let left: Vec<_> = world.drain("q").await.iter().map(body).collect();
    assert_eq!(left, ["1", "2", "3"]);
    let before = QueueSettings {
        keeps_transient: false,
        two_priorities: false,
        ..two_priorities()
    };
    let namespace = Namespace::default();
    let again = world
        .broker
        .messaging()
        .queues()
        .declare(&namespace, "q", with(before))
        .await;
    assert!(
        again.is_ok(),
        "what an earlier version did not know of differs in nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_nobody_uses_goes() {
    let world = World::new().await;
    let settings = QueueSettings {
        expires_ms: Some(1000),
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    let listener = Listener::new(&queue, spec());
    pass(5000).await;
    assert!(world.get("q").is_some(), "it is being used");
    drop(listener);
    pass(500).await;
    queue.take_one(true).await;
    pass(700).await;
    assert!(world.get("q").is_some(), "somebody looked into it");
    pass(500).await;
    assert!(world.get("q").is_none());
}

#[tokio::test(start_paused = true)]
async fn one_consumer_has_all_and_when_it_goes_the_next_does() {
    let world = World::new().await;
    let settings = QueueSettings {
        single_active_consumer: true,
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    let mut first = Listener::new(&queue, spec());
    let mut second = Listener::new(&queue, spec());
    world.publish(&queue, messages(0..3)).await;
    assert_eq!((first.rest().await.len(), second.rest().await.len()), (3, 0));
    drop(first);
    world.publish(&queue, messages(3..5)).await;
    assert_eq!(second.bodies(2).await, ["3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn transient_messages_of_before_are_gone_after_a_start() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let transient = Message {
        persistent: false,
        ..message("transient")
    };
    for number in 0..3 {
        world
            .publish(&queue, [transient.clone(), message(&number.to_string())])
            .await;
    }
    world.publish(&queue, [transient.clone()]).await;
    let world = world.crash().await;
    settle_down().await;
    assert_eq!(world.ready("q"), 3);
    let queue = world.get("q").unwrap();
    world.publish(&queue, [transient]).await;
    let left: Vec<_> = world.drain("q").await.iter().map(body).collect();
    assert_eq!(left, ["0", "1", "2", "transient"]);
}

#[tokio::test(start_paused = true)]
async fn transient_messages_that_come_while_those_of_before_are_looked_for_are_gone_after_the_next_start() {
    let transient = |body: &str| Message {
        persistent: false,
        ..message(body)
    };
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..8000)).await;
    world.publish(&queue, [transient("before")]).await;
    drop(queue);
    let world = world.crash().await;
    let queue = world.get("q").unwrap();
    assert_eq!(queue.counts().ready, 8001, "nothing is looked through yet");
    world.publish(&queue, [transient("meanwhile")]).await;
    settle_down().await;
    assert_eq!(queue.counts().ready, 8001);
    // A snapshot is stored meanwhile.
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(8001).await;
    for (at, delivery) in got.iter().enumerate().filter(|(at, _)| at % 2 == 1) {
        listener.settle(std::slice::from_ref(delivery), Settle::Complete);
        if at % 200 == 1 {
            pass(10).await;
        }
    }
    pass(100).await;
    drop((listener, queue));
    let world = world.crash().await;
    settle_down().await;
    assert_eq!(world.ready("q"), 4000, "without the transient one");
}

#[tokio::test(start_paused = true)]
async fn consumers_that_take_without_settling_leave_nothing_behind() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..10_000)).await;
    let taking = ConsumerSpec {
        settles: false,
        ..spec()
    };
    let mut listener = Listener::new(&queue, taking);
    let bodies = listener.bodies(10_000).await;
    assert!(
        bodies
            .iter()
            .enumerate()
            .all(|(number, body)| *body == number.to_string())
    );
    drop(listener);
    let world = world.restart().await;
    assert_eq!(world.ready("q"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_goes_back_to_a_full_queue_makes_the_oldest_a_dead_letter_at_once() {
    let world = World::new().await;
    let settings = QueueSettings {
        length_max: Some(1),
        dead_letter: Some(dead_to("dead")),
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    world.declare("dead", durable()).await;
    for round in 1..=5 {
        world.publish(&queue, [message("first")]).await;
        let (first, _) = queue.take_one(true).await.unwrap();
        world.publish(&queue, [message("second")]).await;
        queue.settle(&[(first.id, Settle::Requeue)]);
        queue.dead_letters_stored().await;
        assert_eq!((world.ready("q"), world.ready("dead")), (1, round));
        let (second, _) = queue.take_one(false).await.unwrap();
        assert_eq!(body(&second), "second");
    }
}

#[tokio::test(start_paused = true)]
async fn what_went_back_to_a_full_queue_with_its_last_consumer_is_not_kept_beyond_its_length() {
    let world = World::new().await;
    let settings = QueueSettings {
        length_max: Some(3),
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    let listener = Listener::new(&queue, spec());
    world.publish(&queue, messages(0..10)).await;
    settle_down().await;
    assert_eq!(queue.counts().in_flight, 10);
    drop(listener);
    settle_down().await;
    assert_eq!((queue.counts().in_flight, queue.counts().ready), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn who_looks_for_a_queue_uses_it() {
    let world = World::new().await;
    let settings = QueueSettings {
        expires_ms: Some(1000),
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    for _ in 0..5 {
        pass(700).await;
        queue.use_now();
    }
    pass(1100).await;
    assert!(world.get("q").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_bytes_counts_messages_from_before_a_restart() {
    for overflow in [Overflow::DropHead, Overflow::RejectPublish] {
        let world = World::new().await;
        let settings = QueueSettings {
            bytes_max: Some(500),
            overflow,
            ..QueueSettings::default()
        };
        let queue = world.declare("q", with(settings)).await;
        world.publish(&queue, messages(0..100)).await;
        settle_down().await;
        let world = world.restart().await;
        let queue = world.get("q").unwrap();
        settle_down().await;
        let appended = world.try_publish(&queue, messages(100..400)).await;
        settle_down().await;
        let stored = appended
            .iter()
            .filter(|one| **one == AppendOutcome::Stored)
            .count();
        // 190 bytes before the restart, and 3 for each behind it.
        let expected = if overflow == Overflow::DropHead {
            (166, 300)
        } else {
            (203, 103)
        };
        assert_eq!((world.ready("q"), stored as u64), expected, "{overflow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_messages_drops_and_refuses_nothing_for_transient_messages_that_a_crash_ended() {
    for overflow in [Overflow::DropHead, Overflow::RejectPublish] {
        let world = World::new().await;
        let settings = QueueSettings {
            length_max: Some(40),
            overflow,
            ..QueueSettings::default()
        };
        let queue = world.declare("q", with(settings)).await;
        world.publish(&queue, messages(0..35)).await;
        let transient = Message {
            persistent: false,
            ..message("transient")
        };
        world.publish(&queue, [transient]).await;
        settle_down().await;
        assert_eq!(world.ready("q"), 36, "{overflow:?}");
        let world = world.crash().await;
        let queue = world.get("q").unwrap();
        // Offsets that the transient message may have had are a hole now.
        let appended = world.try_publish(&queue, messages(35..40)).await;
        assert!(
            appended.iter().all(|one| *one == AppendOutcome::Stored),
            "{overflow:?}"
        );
        settle_down().await;
        assert_eq!(world.ready("q"), 40, "{overflow:?}");
        world.try_publish(&queue, messages(40..50)).await;
        settle_down().await;
        let left: Vec<_> = world.drain("q").await.iter().map(body).collect();
        let first = if overflow == Overflow::DropHead { 10 } else { 0 };
        let expected: Vec<_> = (first..first + 40).map(|number| number.to_string()).collect();
        assert_eq!(left, expected, "{overflow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_bytes_that_comes_to_one_of_messages_counts_what_waits_and_nothing_else() {
    let world = World::new().await;
    let settings = QueueSettings {
        length_max: Some(10),
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    // Those beyond the limit are dropped unread.
    world.publish(&queue, messages(100..200)).await;
    settle_down().await;
    assert_eq!(world.ready("q"), 10);
    let queues = world.broker.messaging().queues();
    let change = |bytes| queues.change_settings(&queue, move |_| vec![Setting::BytesMax(Some(bytes))]);
    change(100).await.unwrap();
    settle_down().await;
    assert_eq!(world.ready("q"), 10, "30 bytes");
    change(15).await.unwrap();
    settle_down().await;
    assert_eq!(world.ready("q"), 5, "15 bytes");
}

#[tokio::test(start_paused = true)]
async fn limits_hold_again_after_a_purge_beside_the_scan_of_a_start() {
    let world = World::new().await;
    let settings = QueueSettings {
        length_max: Some(10),
        bytes_max: Some(1000),
        ..QueueSettings::default()
    };
    let queue = world.declare("q", with(settings)).await;
    world.publish(&queue, messages(0..10)).await;
    settle_down().await;
    let world = world.crash().await;
    let queue = world.get("q").unwrap();
    queue.purge();
    settle_down().await;
    world.publish(&queue, messages(0..20)).await;
    settle_down().await;
    assert_eq!(world.ready("q"), 10);
}
