//! Messages that wait at an exchange. Time in these tests advances only while all tasks wait for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use bytestring::ByteString;
use stafett_access::Caller;
use stafett_journal::{Journal, StateItem, StateSpace};
use stafett_messaging::NewExchange;
use stafett_messaging::queues::{Declare, Overflow, QueueSettings};
use stafett_messaging::{Publish, PublishRefusal, Published};
use stafett_model::{LogId, Message, Namespace, Offset};
use stafett_routing::ExchangeKind;

use super::support::{World, message, to_exchange, to_queue};

fn delays(kind: ExchangeKind) -> NewExchange {
    NewExchange {
        delays: true,
        ..NewExchange::new(kind)
    }
}

fn later(key: &str, delay_ms: u64) -> Publish {
    Message {
        delay_ms: Some(delay_ms),
        value: Bytes::from(format!("{delay_ms}")),
        ..message(key)
    }
    .into()
}

/// Creates a world with a queue `q` behind a delaying exchange `late`.
async fn world() -> World {
    let world = World::new().await;
    world.declare("late", delays(ExchangeKind::Direct)).await;
    world.queue("q").await;
    world.bind("late", "a", to_queue("q")).await;
    world
}

/// Lets time pass until a condition holds.
async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn bodies(world: &World, queue: &str) -> Vec<u64> {
    let queue = world
        .broker
        .messaging()
        .queues()
        .get(&world.namespace, queue)
        .unwrap();
    let mut found = Vec::new();
    while let Some((delivery, _)) = queue.take_one(false).await {
        assert!(
            delivery.message.headers().next().is_none(),
            "nothing is left of the note"
        );
        assert_eq!(delivery.message.delay_ms(), None);
        found.push(
            std::str::from_utf8(delivery.message.value())
                .unwrap()
                .parse()
                .unwrap(),
        );
    }
    found
}

/// Returns the number of stored buckets. Ends the world.
async fn buckets(world: World) -> usize {
    world.broker.stop().await;
    let mut keys = BTreeSet::new();
    let journal = world.journal.reopen();
    let visit = &mut |item: StateItem<'_>| {
        if let StateItem::Value { key, .. } = item
            && key.first() == Some(&2)
        {
            keys.insert(key.to_vec());
        }
    };
    journal.load_state(StateSpace(7), visit).unwrap();
    keys.len()
}

/// Lets slightly more than a minute pass.
async fn a_minute() {
    tokio::time::sleep(Duration::from_secs(61)).await;
}

#[tokio::test(start_paused = true)]
async fn messages_come_in_the_order_of_their_times_and_not_before() {
    let world = world().await;
    let delays = [90_000, 5, 61_000, 1, 200_000, 62_000, 7, 400];
    let messages = delays.iter().map(|delay| later("a", *delay)).collect();
    let started = tokio::time::Instant::now();
    assert_eq!(world.publish_all("late", messages).await, [Published::Stored; 8]);
    assert_eq!(world.ready("q"), 0);
    let mut sorted = delays;
    sorted.sort_unstable();
    for (count, delay) in (1..).zip(sorted) {
        until(|| world.ready("q") >= count).await;
        assert!(
            started.elapsed() >= Duration::from_millis(delay),
            "{delay} is over"
        );
        assert!(
            started.elapsed() <= Duration::from_millis(delay + 5),
            "{delay} is just over"
        );
    }
    assert_eq!(bodies(&world, "q").await, sorted);
}

#[tokio::test(start_paused = true)]
async fn without_a_delay_a_message_does_not_wait() {
    let world = world().await;
    assert_eq!(world.publish("late", "a").await, Published::Stored);
    assert_eq!(
        world.publish_all("late", vec![later("a", 0)]).await,
        [Published::Stored]
    );
    assert_eq!(world.ready("q"), 2);
    assert_eq!(world.publish("late", "b").await, Published::Unroutable);
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_wherever_it_meets_an_exchange_that_delays() {
    let world = world().await;
    world.exchange("in", ExchangeKind::FanOut).await;
    world.queue("now").await;
    world.bind("in", "", to_queue("now")).await;
    world.bind("in", "", to_exchange("late")).await;
    let publish = Publish {
        more_keys: vec![ByteString::from_static("a")],
        ..later("nobody wants this", 50)
    };
    assert_eq!(world.publish_all("in", vec![publish]).await, [Published::Stored]);
    assert_eq!((world.ready("now"), world.ready("q")), (1, 0));
    until(|| world.ready("q") == 1).await;
    assert_eq!(world.ready("now"), 1, "it goes on from where it waited");
}

#[tokio::test(start_paused = true)]
async fn what_waits_outlives_restarts_and_what_was_released_does_not_come_again() {
    let mut world = world().await;
    let messages = (0..300).map(|number| later("a", 1 + number * 500)).collect();
    world.publish_all("late", messages).await;
    until(|| world.ready("q") >= 100).await;
    let mut found = Vec::new();
    for _ in 0..3 {
        found.extend(bodies(&world, "q").await);
        world = world.restart().await;
        let before = found.len() as u64;
        // Some of the taken messages may still be there: settlements are stored a little later.
        until(|| world.ready("q") >= 20 || before >= 300).await;
    }
    until(|| found.len() as u64 + world.ready("q") >= 300).await;
    found.extend(bodies(&world, "q").await);
    let expected: Vec<u64> = (0..300).map(|number| 1 + number * 500).collect();
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn an_empty_bucket_is_deleted_when_its_minute_is_over() {
    let publish = async || {
        let world = world().await;
        let messages = [10, 70_000, 71_000, 130_000].map(|delay| later("a", delay));
        world.publish_all("late", messages.to_vec()).await;
        world
    };
    let full = buckets(publish().await).await;
    assert!((3..=4).contains(&full), "{full}");
    let world = publish().await;
    until(|| world.ready("q") == 4).await;
    a_minute().await;
    assert_eq!(buckets(world).await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_leads_nowhere_when_its_time_comes_is_dropped() {
    let world = world().await;
    world
        .publish_all("late", vec![later("nobody", 10), later("a", 10), later("a", 30)])
        .await;
    until(|| world.ready("q") == 1).await;
    let deleted = world
        .broker
        .messaging()
        .exchanges()
        .delete(&world.namespace, "late", false);
    deleted.unwrap().await.unwrap();
    a_minute().await;
    assert_eq!(world.ready("q"), 1);
    assert_eq!(buckets(world).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_what_comes_late_as_well() {
    let world = world().await;
    let full = Declare {
        durable: true,
        settings: QueueSettings {
            length_max: Some(1),
            overflow: Overflow::RejectPublish,
            ..QueueSettings::default()
        },
        ..Declare::default()
    };
    world.queue_as("full", full).await;
    world.bind("late", "b", to_queue("full")).await;
    world
        .publish_all("late", vec![later("b", 10), later("b", 10), later("a", 10)])
        .await;
    until(|| world.ready("q") == 1).await;
    assert_eq!(world.ready("full"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_beyond_what_is_possible_is_refused() {
    let world = world().await;
    let refused = world
        .publish_all("late", vec![later("a", u64::from(u32::MAX) + 1), later("a", 5)])
        .await;
    let why = PublishRefusal::DelayTooLong {
        max_ms: u64::from(u32::MAX),
    };
    assert_eq!(refused, [Published::Refused(why), Published::Stored]);
    let longest = world
        .publish_all("late", vec![later("a", u64::from(u32::MAX))])
        .await;
    assert_eq!(longest, [Published::Stored]);
}

#[tokio::test(start_paused = true)]
async fn many_at_one_time_come_in_the_order_in_which_they_were_published() {
    let world = world().await;
    let number = |number: u64| -> Publish {
        Message {
            delay_ms: Some(5_000),
            value: Bytes::from(format!("{number}")),
            ..message("a")
        }
        .into()
    };
    world.publish_all("late", (0..3000).map(number).collect()).await;
    until(|| world.ready("q") == 3000).await;
    assert_eq!(bodies(&world, "q").await, (0..3000).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn what_waited_in_a_deleted_namespace_does_not_come_into_the_next_of_its_name() {
    for restarts in [false, true] {
        let mut world = World::new().await;
        world.namespace = Namespace::new("shop");
        let shop = world.namespace.clone();
        for round in 0..2 {
            let (is_new, stored) = world
                .broker
                .messaging()
                .exchanges()
                .create_namespace(&shop)
                .unwrap();
            stored.await.unwrap();
            assert!(is_new);
            world.declare("late", delays(ExchangeKind::Direct)).await;
            world.queue("q").await;
            world.bind("late", "a", to_queue("q")).await;
            if round == 0 {
                let published = world.publish_all("late", vec![later("a", 500)]).await;
                assert_eq!(published, [Published::Stored]);
                world
                    .broker
                    .delete_namespace(&Arc::new(Caller::internal()), &shop)
                    .await
                    .unwrap();
            }
        }
        let published = world.publish_all("late", vec![later("a", 600)]).await;
        assert_eq!(published, [Published::Stored]);
        if restarts {
            world = world.restart().await;
            world.namespace = shop;
        }
        until(|| world.ready("q") > 0).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(bodies(&world, "q").await, [600], "{restarts}");
    }
}

#[test]
fn messages_that_do_not_fit_into_one_append_go_on_in_several() {
    let disk = stafett_journal::simulated::SimulatedDisk::new();
    // Segments have 64 KiB.
    crate::simulated::on_disk(&disk, 1, async |broker, _| {
        let namespace = Namespace::default();
        let declared =
            broker
                .messaging()
                .exchanges()
                .declare(&namespace, "late", delays(ExchangeKind::Direct));
        declared.unwrap().1.await.unwrap();
        let queues = broker.messaging().queues();
        let queue = queues.declare(&namespace, "q", Declare::default()).await.unwrap();
        let binding = stafett_messaging::NewBinding {
            source: "late".into(),
            destination: to_queue("q"),
            key: Bytes::from_static(b"a"),
            headers: stafett_routing::HeaderMatch::default(),
            arguments: Bytes::new(),
        };
        broker
            .messaging()
            .bind(&namespace, binding)
            .unwrap()
            .await
            .unwrap();
        for _ in 0..40 {
            let large = Message {
                delay_ms: Some(3000),
                value: Bytes::from(vec![b'x'; 4000]),
                ..message("a")
            };
            let published = broker.messaging().publish(&namespace, "late", vec![large.into()]);
            assert_eq!(published.unwrap().await, [Published::Stored]);
        }
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(queue.counts().ready, 40);
    })
    .unwrap();
}

/// Delays three messages to the middle of a minute, damages the second one's place `before_ms` before that, and
/// checks that the others are released, and that the bucket ends.
async fn damaged_before(before_ms: u64) {
    const MINUTE_MS: u64 = 60_000;
    let world = world().await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let in_minute = u64::try_from(now).unwrap() % MINUTE_MS;
    let delay_ms = 2 * MINUTE_MS + MINUTE_MS / 2 - in_minute;
    for _ in 0..3 {
        let published = world.publish_all("late", vec![later("a", delay_ms)]).await;
        assert_eq!(published, [Published::Stored]);
    }
    tokio::time::sleep(Duration::from_millis(delay_ms - before_ms)).await;
    assert_eq!(world.ready("q"), 0);
    let has_three = |log: &LogId| {
        world
            .journal
            .bounds(*log)
            .is_some_and(|bounds| bounds.end == Offset(3))
    };
    let log = (0..100).map(LogId).find(has_three).unwrap();
    world.journal.tear(log, Offset(1), Offset(2));
    tokio::time::sleep(Duration::from_millis(before_ms + 1000)).await;
    assert_eq!(world.ready("q"), 2);
    assert_eq!(bodies(&world, "q").await, [delay_ms; 2]);
    a_minute().await;
    assert_eq!(buckets(world).await, 0);
}

#[tokio::test(start_paused = true)]
async fn damage_in_a_bucket_does_not_hold_up_the_other_messages() {
    // Before the bucket is opened.
    damaged_before(50_000).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_damaged_while_its_bucket_is_open_does_not_hold_up_the_others() {
    damaged_before(10_000).await;
}
