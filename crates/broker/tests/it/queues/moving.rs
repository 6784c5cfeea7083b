//! Moves from one queue to another: each message is in exactly one of them, despite concurrent events.

use std::sync::Arc;
use std::time::Duration;

use stafett_journal::ManualJournal;
use stafett_journal::simulated::SimulatedDisk;
use stafett_messaging::queues::{AppendOutcome, Declare, Overflow, Queue, QueueSettings, Refused};
use stafett_messaging::{Moved, Stopped};
use stafett_model::{Message, Namespace};
use stafett_topics::{Refusal, TopicSettings};

use super::support::{World, body, durable, message, messages, settle_down};
use crate::simulated::on_disk;

fn limited(length_max: u64) -> Declare {
    Declare {
        settings: QueueSettings {
            length_max: Some(length_max),
            overflow: Overflow::RejectPublish,
            ..QueueSettings::default()
        },
        ..durable()
    }
}

async fn pair(world: &World, to: Declare) -> (Arc<Queue>, Arc<Queue>) {
    let from = world.declare("from", durable()).await;
    (from, world.declare("to", to).await)
}

fn moved(messages: u64, stopped: Option<Stopped>) -> Moved {
    Moved { messages, stopped }
}

async fn bodies(world: &World, name: &str) -> Vec<String> {
    world.drain(name).await.iter().map(body).collect()
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Lets tasks run until an append waits for its decision.
async fn until_held(journal: &ManualJournal) {
    while journal.undecided() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Decides appends until a task is done.
async fn deciding<T>(journal: &ManualJournal, task: impl Future<Output = T>) -> T {
    let decide = async {
        loop {
            while journal.commit(0) {}
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        done = task => done,
        () = decide => unreachable!("it never ends"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_ends_where_the_target_is_full_and_says_how_far_it_came() {
    let world = World::new().await;
    let (from, to) = pair(&world, limited(10)).await;
    world.publish(&from, messages(0..1000)).await;
    let ended = world
        .broker
        .messaging()
        .move_messages(&from, &to, 1000)
        .await
        .unwrap();
    assert_eq!(ended, moved(10, Some(Stopped::Full)));
    assert_eq!((from.counts().ready, from.counts().in_flight), (990, 0));
    let again = world
        .broker
        .messaging()
        .move_messages(&from, &to, 1000)
        .await
        .unwrap();
    assert_eq!(again, moved(0, Some(Stopped::Full)));
    assert_eq!(bodies(&world, "to").await, numbers(0..10));
    let (next, _) = from.take_one(false).await.unwrap();
    assert_eq!(
        (body(&next).as_str(), next.redelivered, next.delivery_count),
        ("10", false, 0),
        "it is as if nobody had had it"
    );
    settle_down().await;
    let world = world.restart().await;
    assert_eq!(bodies(&world, "from").await, numbers(11..1000));
}

#[tokio::test(start_paused = true)]
async fn a_target_that_is_deleted_in_the_middle_takes_nothing_more_with_it() {
    let (world, journal) = World::undecided().await;
    let (from, to) = pair(&world, durable()).await;
    world.publish(&from, messages(0..3000)).await;
    journal.hold_batches();
    let moving = world.broker.messaging().move_messages(&from, &to, 3000);
    until_held(&journal).await;
    // The deletion is behind the batch.
    journal.hold();
    let queues = world.broker.messaging().queues();
    let (namespace, owner) = (Namespace::default(), queues.new_owner());
    let deleting = queues.delete(&namespace, "to", false, false, owner);
    let (ended, deleted) = deciding(&journal, async { tokio::join!(moving, deleting) }).await;
    deleted.unwrap();
    assert_eq!(
        ended.unwrap(),
        moved(1024, Some(Stopped::TargetGone)),
        "what was there by then went with it"
    );
    assert_eq!((from.counts().ready, from.counts().in_flight), (1976, 0));
    // A new queue of the same name is a different one.
    let declaring = queues.declare(&namespace, "to", durable());
    deciding(&journal, declaring).await.unwrap();
    let ended = world
        .broker
        .messaging()
        .move_messages(&from, &to, 3000)
        .await
        .unwrap();
    assert_eq!(ended, moved(0, Some(Stopped::TargetGone)));
    journal.release();
    assert_eq!(bodies(&world, "from").await, numbers(1024..3000));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_ends_a_move_and_nothing_is_lost_for_it() {
    for refused_late in [false, true] {
        let (world, journal) = World::undecided().await;
        let (from, to) = pair(&world, durable()).await;
        world.publish(&from, messages(0..600)).await;
        settle_down().await;
        let ended = if refused_late {
            journal.hold_batches();
            let moving = world.broker.messaging().move_messages(&from, &to, 600);
            until_held(&journal).await;
            assert!(journal.refuse(0));
            journal.release();
            moving.await
        } else {
            journal.set_full(true);
            let moving = world.broker.messaging().move_messages(&from, &to, 600);
            // It waits for space, but not forever.
            let ended = moving.await;
            journal.set_full(false);
            ended
        };
        assert_eq!(ended.unwrap(), moved(0, Some(Stopped::NoSpace)), "{refused_late}");
        assert_eq!((from.counts().ready, from.counts().in_flight), (600, 0));
        settle_down().await;
        while journal.commit(0) {}
        let world = world.crash().await;
        assert_eq!((world.ready("from"), world.ready("to")), (600, 0));
        assert_eq!(bodies(&world, "from").await, numbers(0..600));
    }
}

#[tokio::test(start_paused = true)]
async fn a_move_waits_for_space_and_goes_on() {
    let (world, journal) = World::undecided().await;
    let (from, to) = pair(&world, durable()).await;
    world.publish(&from, messages(0..600)).await;
    journal.set_full(true);
    let moving = world.broker.messaging().move_messages(&from, &to, 600);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.ready("to"), 0);
    journal.set_full(false);
    assert_eq!(moving.await.unwrap(), moved(600, None));
    assert_eq!(bodies(&world, "to").await, numbers(0..600));
}

#[tokio::test(start_paused = true)]
async fn a_move_goes_on_when_nobody_waits_for_it_and_leaves_nothing_in_flight() {
    let world = World::new().await;
    let (from, to) = pair(&world, durable()).await;
    world.publish(&from, messages(0..1000)).await;
    drop(world.broker.messaging().move_messages(&from, &to, 1000));
    settle_down().await;
    assert_eq!(world.ready("to"), 1000);
    assert_eq!((from.counts().ready, from.counts().in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_move_between_two_steps() {
    let (world, journal) = World::undecided().await;
    let (from, to) = pair(&world, durable()).await;
    world.publish(&from, messages(0..3000)).await;
    journal.hold_batches();
    let moving = world.broker.messaging().move_messages(&from, &to, 3000);
    until_held(&journal).await;
    let stopping = async { tokio::join!(moving, world.broker.stop()).0 };
    let ended = deciding(&journal, stopping).await;
    let ended = ended.unwrap();
    assert_eq!(ended.stopped, Some(Stopped::Stopping));
    assert!(
        ended.messages < 3000 && ended.messages.is_multiple_of(1024),
        "{ended:?}"
    );
    while journal.commit(0) {}
    let world = world.crash().await;
    let there = (world.ready("from"), world.ready("to"));
    assert_eq!(there, (3000 - ended.messages, ended.messages));
}

#[tokio::test(start_paused = true)]
async fn messages_move_into_the_partitions_of_their_keys_and_as_the_topic_takes_them() {
    let world = World::new().await;
    let topic = super::over::topic(&world, 16).await;
    let over = super::over::over(&topic);
    let (from, to) = pair(&world, over).await;
    let keyed = (0..100).map(|number| Message {
        key: Some(format!("key {}", number % 50).into()),
        ..message(&number.to_string())
    });
    world.publish(&from, keyed).await;
    assert_eq!(
        world
            .broker
            .messaging()
            .move_messages(&from, &to, 100)
            .await
            .unwrap(),
        moved(100, None)
    );
    let got = world.drain("to").await;
    let mut partitions = std::collections::HashMap::new();
    for delivery in &got {
        let key = delivery.message.key().unwrap().to_vec();
        let partition = *partitions.entry(key).or_insert(delivery.id.lane);
        assert_eq!(partition, delivery.id.lane, "a key has one partition");
    }
    let used: std::collections::HashSet<_> = partitions.into_values().collect();
    assert!(got.len() == 100 && used.len() > 8, "{used:?}");
    let small = TopicSettings {
        message_bytes_max: Some(2000),
        ..TopicSettings::default()
    };
    let altering = world
        .broker
        .catalog()
        .alter(topic.id, move |_| Ok::<_, ()>(small));
    altering.await.unwrap();
    let large = message(&"x".repeat(3000));
    world.publish(&from, [message("a"), message("b"), large]).await;
    assert_eq!(
        world
            .broker
            .messaging()
            .move_messages(&from, &to, 3)
            .await
            .unwrap(),
        moved(2, Some(Stopped::TooLarge))
    );
    assert_eq!((from.counts().ready, from.counts().in_flight), (1, 0));
    world.broker.delete_topic(topic.id).await.unwrap();
    assert_eq!(
        world
            .broker
            .messaging()
            .move_messages(&from, &to, 3)
            .await
            .unwrap(),
        moved(0, Some(Stopped::TargetGone))
    );
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_for_what_is_refused_leaves_no_count_behind() {
    for bytes_max in [None, Some(2)] {
        let (world, journal) = World::undecided().await;
        let declare = Declare {
            settings: QueueSettings {
                length_max: Some(2),
                bytes_max,
                overflow: Overflow::RejectPublish,
                ..QueueSettings::default()
            },
            ..durable()
        };
        let queue = world.declare("q", declare).await;
        journal.set_full(true);
        let full = AppendOutcome::Refused(Refused::Journal(Refusal::DiskFull));
        assert_eq!(world.try_publish(&queue, messages(0..2)).await, [full, full]);
        for _ in 0..3 {
            // It is dropped before it is polled.
            world.publish_and_leave(&queue, messages(0..2));
        }
        journal.set_full(false);
        let stored = [AppendOutcome::Stored, AppendOutcome::Stored];
        assert_eq!(world.try_publish(&queue, messages(0..2)).await, stored);
    }
}

#[tokio::test(start_paused = true)]
async fn a_priority_that_finds_no_room_for_its_log_finds_it_later() {
    let (world, journal) = World::undecided().await;
    let declare = Declare {
        settings: QueueSettings {
            priority_max: 9,
            ..QueueSettings::default()
        },
        ..durable()
    };
    let queue = world.declare("q", declare).await;
    let of = |priority, text: &str| Message {
        priority,
        ..message(text)
    };
    let full = AppendOutcome::Refused(Refused::Journal(Refusal::DiskFull));
    journal.set_full(true);
    assert_eq!(world.try_publish(&queue, [of(5, "a")]).await, [full]);
    journal.set_full(false);
    world.publish(&queue, [of(5, "b"), of(9, "c"), of(0, "d")]).await;
    drop(queue);
    let world = world.crash().await;
    assert_eq!(bodies(&world, "q").await, ["c", "b", "d"]);
}

#[test]
fn whatever_finds_room_on_a_disk_that_fills_up_a_message_is_in_one_of_two_queues() {
    let disk = SimulatedDisk::new();
    disk.set_capacity_bytes(1 << 20);
    let published = on_disk(&disk, 1, async |broker, _| {
        let world = World::of(broker);
        let (from, to) = pair(&world, durable()).await;
        let mut published = 0;
        let large = |number: u32| {
            let body = format!("{number} {}", "x".repeat(2000));
            message(&body)
        };
        while world.try_publish(&from, [large(published)]).await == [AppendOutcome::Stored] {
            published += 1;
        }
        let ended = broker
            .messaging()
            .move_messages(&from, &to, u64::MAX)
            .await
            .unwrap();
        assert_eq!(ended.stopped, Some(Stopped::NoSpace));
        assert!(from.counts().in_flight == 0 && ended.messages < u64::from(published));
        assert_eq!(
            from.counts().ready + to.counts().ready,
            u64::from(published),
            "{ended:?}"
        );
        published
    });
    let published = published.unwrap();
    assert!(published > 100, "{published}");
    disk.kill();
    disk.set_capacity_bytes(2 << 20);
    let left = on_disk(&disk, 1, async |broker, _| {
        let world = World::of(broker);
        settle_down().await;
        let mut left = Vec::new();
        for name in ["to", "from"] {
            for one in bodies(&world, name).await {
                left.push(one.split(' ').next().unwrap().parse::<u32>().unwrap());
            }
        }
        left
    });
    assert_eq!(left.unwrap(), (0..published).collect::<Vec<_>>());
}

#[test]
fn messages_that_do_not_fit_into_one_segment_together_move_one_part_after_the_other() {
    const MESSAGES: u32 = 20;
    let disk = SimulatedDisk::new();
    let left = on_disk(&disk, 1, async |broker, _| {
        let world = World::of(broker);
        let (from, to) = pair(&world, durable()).await;
        for number in 0..MESSAGES {
            let large = message(&format!("{number} {}", "x".repeat(20_000)));
            assert_eq!(world.try_publish(&from, [large]).await, [AppendOutcome::Stored]);
        }
        let ended = broker
            .messaging()
            .move_messages(&from, &to, u64::MAX)
            .await
            .unwrap();
        assert_eq!(ended, moved(MESSAGES.into(), None));
        bodies(&world, "to").await
    });
    let left: Vec<u32> = left
        .unwrap()
        .iter()
        .map(|body| body.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(left, (0..MESSAGES).collect::<Vec<_>>());
}
