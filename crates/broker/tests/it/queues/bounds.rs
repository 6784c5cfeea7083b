//! Limits of namespaces: queues, topics, messages and bytes.

use std::time::Duration;

use stafett_access::{Caller, Limit, Limited};
use stafett_messaging::queues::{AppendOutcome, DeclareError, Refused};
use stafett_model::Namespace;
use stafett_topics::{CreateError, NewTopic, TopicSettings};

use super::support::{World, durable, message, messages, settle_down};

async fn limit(world: &World, wanted: &[(Limit, Option<u64>)]) {
    let of = Limited::Namespace("/".into());
    world
        .broker
        .set_limits(&Caller::internal(), of, wanted)
        .await
        .unwrap();
}

fn topic(name: &str) -> NewTopic {
    NewTopic {
        name: name.into(),
        partitions: Some(1),
        settings: TopicSettings::default(),
    }
}

const FULL: AppendOutcome = AppendOutcome::Refused(Refused::QueueFull);

#[tokio::test(start_paused = true)]
async fn a_namespace_takes_messages_up_to_its_limit_after_deletions_and_restarts_too() {
    let world = World::new().await;
    limit(&world, &[(Limit::Messages, Some(10))]).await;
    let (one, two) = (
        world.declare("one", durable()).await,
        world.declare("two", durable()).await,
    );
    world.publish(&one, messages(0..6)).await;
    let appended = world.try_publish(&two, messages(0..6)).await;
    assert_eq!(appended.iter().filter(|outcome| **outcome == FULL).count(), 2);
    assert_eq!((world.ready("one"), world.ready("two")), (6, 4));
    drop((one, two));
    let mut world = world.crash().await;
    for crashes in [true, false] {
        let two = world.get("two").unwrap();
        assert_eq!(world.try_publish(&two, messages(0..1)).await, [FULL]);
        drop(two);
        world = if crashes {
            world.crash().await
        } else {
            world.restart().await
        };
    }
    // What leaves makes room, with the next count.
    let two = world.get("two").unwrap();
    two.take_one(false).await.unwrap();
    settle_down().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    let appended = world.try_publish(&two, messages(0..2)).await;
    assert_eq!(appended, [AppendOutcome::Stored, FULL]);
    let queues = world.broker.messaging().queues();
    queues
        .delete(&two.namespace, "one", false, false, queues.new_owner())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    world.publish(&two, messages(0..6)).await;
    assert_eq!(world.try_publish(&two, messages(0..1)).await, [FULL]);
    limit(&world, &[(Limit::Messages, None)]).await;
    world.publish(&two, messages(0..6)).await;
}

#[tokio::test(start_paused = true)]
async fn messages_on_their_way_into_queues_count_when_their_namespace_is_counted() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    limit(&world, &[(Limit::Messages, Some(10)), (Limit::Bytes, Some(1000))]).await;
    journal.hold_batches();
    world.publish_and_leave(&queue, messages(0..6));
    world.publish_and_leave(&queue, messages(0..2));
    // The next message that does not fit has the queues counted, which hold none yet.
    tokio::time::sleep(Duration::from_mins(1)).await;
    world.publish_and_leave(&queue, messages(0..6));
    journal.release();
    assert_eq!(world.try_publish(&queue, messages(0..1)).await, [FULL]);
    while journal.commit(0) {}
    settle_down().await;
    assert_eq!(world.ready("q"), 10);
    // Room of messages that are not stored is given back at once.
    queue.take_one(false).await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    journal.hold_batches();
    world.publish_and_leave(&queue, messages(0..1));
    assert!(journal.refuse(0));
    world.publish_and_leave(&queue, messages(0..1));
    assert!(journal.commit(0));
    journal.release();
    assert_eq!(world.try_publish(&queue, messages(0..1)).await, [FULL]);
    assert_eq!(world.ready("q"), 10);
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_namespace_are_bounded_over_all_queues() {
    let world = World::new().await;
    let (one, two) = (
        world.declare("one", durable()).await,
        world.declare("two", durable()).await,
    );
    let large = "x".repeat(1000);
    world.publish(&one, (0..4).map(|_| message(&large))).await;
    limit(&world, &[(Limit::Bytes, Some(6500))]).await;
    let appended = world.try_publish(&two, (0..4).map(|_| message(&large))).await;
    assert_eq!(
        appended.iter().filter(|outcome| **outcome == FULL).count(),
        2,
        "{appended:?}"
    );
    world.publish(&two, [message("small")]).await;
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_not_lost_to_the_limit_of_their_namespace() {
    let world = World::new().await;
    world.declare("dead", durable()).await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..5)).await;
    limit(&world, &[(Limit::Messages, Some(5))]).await;
    let queues = world.broker.messaging().queues();
    let to_dead = stafett_messaging::queues::DeadLetter {
        exchange: "".into(),
        routing_key: Some("dead".into()),
    };
    let change = queues.change_settings(&queue, |_| {
        use stafett_messaging::queues::Setting;
        vec![Setting::DeadLetter(Some(to_dead)), Setting::LengthMax(Some(2))]
    });
    change.await.unwrap();
    settle_down().await;
    assert_eq!((world.ready("q"), world.ready("dead")), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_no_more_queues_and_topics_than_its_limits() {
    let world = World::new().await;
    world.declare("there", durable()).await;
    limit(&world, &[(Limit::Queues, Some(2)), (Limit::Topics, Some(2))]).await;
    let world = world.restart().await;
    let (queues, catalog) = (world.broker.messaging().queues(), world.broker.catalog());
    world.declare("second", durable()).await;
    let refused = queues.declare(&Namespace::default(), "third", durable()).await;
    assert!(
        matches!(refused, Err(DeclareError::TooMany { max: 2 })),
        "{refused:?}"
    );
    // One that is there is declared as before.
    world.declare("there", durable()).await;
    let namespace = Namespace::default();
    let deleted = queues.delete(&namespace, "there", false, false, queues.new_owner());
    deleted.await.unwrap();
    world.declare("third", durable()).await;
    let created = catalog.create(vec![topic("a"), topic("b"), topic("c")]).await;
    let refused = created
        .iter()
        .filter(|one| matches!(one, Err(CreateError::TooMany { max: 2 })));
    assert_eq!(refused.count(), 1, "{created:?}");
    // Topics of other namespaces, and the broker's own, do not count.
    let others = catalog
        .create(vec![topic("stream-shop.x"), topic("__transaction_state")])
        .await;
    assert!(others.iter().all(Result::is_ok), "{others:?}");
    let there = catalog.topics().named("a").unwrap();
    world.broker.delete_topic(there.id).await.unwrap();
    assert!(catalog.create(vec![topic("c")]).await[0].is_ok());
}
