//! A message that was delivered before a kill is redelivered as such.

use stafett_delivery::{ConsumerSpec, Settle};

use super::support::{Listener, World, body, durable, messages, settle_down, spec};

#[tokio::test(start_paused = true)]
async fn nothing_is_delivered_before_it_is_stored_that_it_may_have_been() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..10)).await;
    journal.hold();
    let mut listener = Listener::new(&queue, spec());
    assert!(listener.rest().await.is_empty());
    assert_eq!((queue.counts().in_flight, journal.undecided()), (0, 1));
    assert!(journal.commit(0));
    assert_eq!(listener.next(10).await.len(), 10);
    drop((listener, queue));
    let world = world.crash().await;
    settle_down().await;
    let left = world.drain("q").await;
    assert_eq!(left.len(), 10);
    assert!(left.iter().all(|one| one.redelivered));
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_a_message_waits_for_its_mark() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..2)).await;
    journal.hold();
    let mut asking = std::pin::pin!(queue.take_one(true));
    tokio::select! {
        biased;
        got = &mut asking => panic!("{got:?}"),
        () = settle_down() => {}
    }
    assert!(journal.commit(0));
    let (delivery, left) = asking.await.unwrap();
    assert_eq!((body(&delivery).as_str(), left), ("0", 1));
}

#[tokio::test(start_paused = true)]
async fn a_mark_is_stored_before_the_block_in_force_ends_so_that_nothing_waits() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..1000)).await;
    let limited = ConsumerSpec {
        credit: Some(10),
        ..spec()
    };
    let mut listener = Listener::new(&queue, limited);
    let mut taken = 0;
    while taken < 1000 {
        // Each mark is decided one step after it was staged; at the first delivery of all, it is marked.
        let got = listener.rest().await;
        assert_eq!(got.len(), 10, "at {taken}");
        taken += got.len();
        while journal.commit(0) {}
        journal.hold();
        listener.settle(&got, Settle::Complete);
    }
}
