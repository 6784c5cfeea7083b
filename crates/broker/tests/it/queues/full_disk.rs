//! Changes refused by a full disk are stored later, and never forgotten.

use std::time::Duration;

use stafett_delivery::Settle;
use stafett_messaging::queues::{AppendOutcome, DeadLetter, Declare, DeleteQueueError, QueueSettings};
use stafett_model::{Message, Namespace};

use super::support::{Listener, World, body, durable, message, messages, settle_down, spec};

#[tokio::test(start_paused = true)]
async fn what_was_settled_while_the_disk_was_full_is_stored_once_there_is_space() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..2000)).await;
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(2000).await;
    journal.set_used_up(true);
    // In mixed order, some requeued, spread over several turns.
    for run in got.rchunks(7) {
        let (back, done) = run.split_at(1);
        assert_eq!(listener.settle(done, Settle::Complete), done.len());
        listener.settle(back, Settle::Requeue);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    journal.set_used_up(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop((listener, queue));
    let world = world.crash().await;
    settle_down().await;
    let back: Vec<String> = got.rchunks(7).map(|run| body(&run[0])).rev().collect();
    let left = world.drain("q").await;
    assert_eq!(left.iter().map(body).collect::<Vec<_>>(), back);
    assert!(left.iter().all(|one| one.redelivered && one.delivery_count > 0));
}

#[tokio::test(start_paused = true)]
async fn what_was_settled_while_the_disk_was_full_is_stored_before_a_stop() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..100)).await;
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(60).await;
    journal.set_used_up(true);
    assert_eq!(listener.settle(&got, Settle::Complete), 60);
    tokio::time::sleep(Duration::from_secs(10)).await;
    journal.set_used_up(false);
    drop((listener, queue));
    let world = world.restart().await;
    settle_down().await;
    assert_eq!(world.ready("q"), 40);
}

#[tokio::test(start_paused = true)]
async fn the_whole_of_a_state_that_is_refused_is_not_taken_for_stored() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..8000)).await;
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(8000).await;
    let every_other = |from: usize| got.iter().skip(from).step_by(2).cloned().collect::<Vec<_>>();
    // The deltas outgrow the snapshot in the middle of it.
    for run in every_other(0).chunks(100) {
        listener.settle(run, Settle::Complete);
        journal.set_used_up(true);
        tokio::time::sleep(Duration::from_millis(20)).await;
        journal.set_used_up(false);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop((listener, queue));
    let world = world.crash().await;
    settle_down().await;
    let left: Vec<String> = world.drain("q").await.iter().map(body).collect();
    assert_eq!(left, every_other(1).iter().map(body).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn messages_go_out_although_their_mark_cannot_be_stored_and_it_is_later() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..100)).await;
    journal.set_used_up(true);
    let mut listener = Listener::new(&queue, spec());
    assert_eq!(listener.next(100).await.len(), 100);
    journal.set_used_up(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop((listener, queue));
    let world = world.crash().await;
    settle_down().await;
    assert!(world.drain("q").await.iter().all(|one| one.redelivered));
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_goes_while_the_disk_is_full_does_not_come_back() {
    let (world, journal) = World::undecided().await;
    let unused = Declare {
        settings: QueueSettings {
            expires_ms: Some(1000),
            ..QueueSettings::default()
        },
        ..durable()
    };
    let last = Declare {
        auto_delete: true,
        ..durable()
    };
    world.declare("unused", unused).await;
    let left = world.declare("left", last).await;
    world.declare("deleted", durable()).await;
    let listener = Listener::new(&left, spec());
    journal.set_used_up(true);
    drop((listener, left));
    let queues = world.broker.messaging().queues();
    let (space, owner) = (Namespace::default(), queues.new_owner());
    let deleted = queues.delete(&space, "deleted", false, false, owner).await;
    assert!(matches!(deleted, Err(DeleteQueueError::NotStored(_))));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(queues.is_empty());
    journal.set_used_up(false);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let world = world.crash().await;
    for name in ["unused", "left", "deleted"] {
        assert!(world.get(name).is_none(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_messages_are_counted_as_dying_until_there_is_space_for_them_elsewhere() {
    let (world, journal) = World::undecided().await;
    let graves = world.declare("graves", durable()).await;
    let rejects = Declare {
        settings: QueueSettings {
            dead_letter: Some(DeadLetter {
                exchange: "".into(),
                routing_key: Some("graves".into()),
            }),
            ..QueueSettings::default()
        },
        ..durable()
    };
    let queue = world.declare("q", rejects).await;
    world.publish(&queue, messages(0..10)).await;
    let mut listener = Listener::new(&queue, spec());
    let got = listener.next(10).await;
    journal.set_full(true);
    listener.settle(&got[..4], Settle::Discard);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let counts = queue.counts();
    assert_eq!((counts.ready, counts.in_flight, counts.dying), (0, 10, 4));
    assert_eq!(queue.held_by_consumers(), 6);
    drop(listener);
    journal.set_full(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let counts = queue.counts();
    assert_eq!((counts.in_flight, counts.dying), (6, 0));
    assert_eq!(graves.counts().ready, 4);
}

#[tokio::test(start_paused = true)]
async fn a_transient_message_right_after_the_disk_was_full_ends_with_its_run_too() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    let transient = || Message {
        persistent: false,
        ..message("transient")
    };
    journal.set_used_up(true);
    let refused = world.try_publish(&queue, [transient()]).await;
    assert!(matches!(refused[..], [AppendOutcome::Refused(_)]), "{refused:?}");
    journal.set_used_up(false);
    // Before the changes that were refused are tried again.
    world.publish(&queue, [message("persistent"), transient()]).await;
    let world = world.crash().await;
    settle_down().await;
    assert_eq!(world.ready("q"), 1);
}
