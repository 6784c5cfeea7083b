//! Receiving, settling and sending that a leaving caller, a failing journal or a deleted queue interrupts.

use std::sync::Arc;

use stafett_delivery::{LeaseId, Settle};
use stafett_journal::RequestId;
use stafett_messaging::Send;
use stafett_messaging::queues::{Acknowledge, OwnerId, Queue, Receive, ReceiveError, SettleLeases};
use stafett_model::{Namespace, StoredMessage};
use stafett_store::NotStored;

use super::receiving::{ALL, bodies};
use super::support::{World, durable, message, messages, settle_down};

async fn leased(queue: &Arc<Queue>, count: usize) -> Vec<LeaseId> {
    let ack = Acknowledge::Lease { ms: 60_000 };
    let received = queue.receive(Receive { count, ack, ..ALL }).await.unwrap();
    received.messages.iter().filter_map(|(_, lease)| *lease).collect()
}

#[tokio::test(start_paused = true)]
async fn settlements_are_made_as_a_whole_also_if_their_caller_leaves() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..3)).await;
    let held = leased(&queue, 3).await;
    journal.hold();
    let kinds = [Settle::Complete, Settle::Requeue, Settle::Complete];
    let request = SettleLeases {
        leases: held.into_iter().zip(kinds).collect(),
        stored: true,
    };
    tokio::select! {
        biased;
        settled = queue.settle_leases(request) => panic!("{settled:?}"),
        () = settle_down() => {}
    }
    journal.release();
    while journal.commit(0) {}
    settle_down().await;
    let counts = queue.counts();
    assert_eq!((counts.ready, counts.in_flight), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_chosen_message_is_not_leased_by_a_journal_that_has_failed() {
    let (world, journal) = World::undecided().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..3)).await;
    journal.hold();
    let is_last = |message: &StoredMessage| message.value() == b"2";
    let request = Receive {
        wanted: Some(&is_last),
        ack: Acknowledge::Lease { ms: 60_000 },
        ..ALL
    };
    let failing = async {
        settle_down().await;
        assert!(journal.lose(0));
    };
    let (received, ()) = tokio::join!(queue.receive(request), failing);
    // A client that had it would get it again after the start, unmarked.
    assert_eq!(received.unwrap_err(), ReceiveError::NotStored(NotStored::Unknown));
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_again_to_a_queue_that_was_made_anew_is_stored_there() {
    let world = World::new().await;
    let namespace = Namespace::default();
    let messaging = world.broker.messaging();
    let send = |names: &[&'static str]| {
        let send = Send {
            message: message("m"),
            queues: names.iter().map(|name| (*name).into()).collect(),
        };
        let sending = messaging.send(&namespace, vec![send], Some(RequestId([7; 16])));
        async { sending.await.map(|sent| sent.is_repeated) }
    };
    world.declare("q", durable()).await;
    world.declare("other", durable()).await;
    assert_eq!(send(&["q"]).await, Ok(false));
    assert_eq!(send(&["q"]).await, Ok(true));
    assert_eq!(send(&["other"]).await, Ok(false), "it is another request");
    assert_eq!((world.ready("q"), world.ready("other")), (1, 1));
    let deleting = messaging
        .queues()
        .delete(&namespace, "q", false, false, OwnerId(0));
    deleting.await.unwrap();
    let queue = world.declare("q", durable()).await;
    assert_eq!(send(&["q"]).await, Ok(false));
    assert_eq!(send(&["q"]).await, Ok(true));
    assert_eq!(
        bodies(&queue.receive(Receive { count: 9, ..ALL }).await.unwrap()),
        ["m"]
    );
}
