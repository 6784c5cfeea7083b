//! Consumers that end at any moment: afterwards, only messages of live consumers are in flight.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use stafett_delivery::{ConsumerSpec, Counts, Credit, DeliveryBatch, Outbox, Settle};
use stafett_messaging::queues::{OwnerId, Queue, QueueSettings};

use super::support::{Listener, World, body, durable, messages, settle_down, spec};

fn take(outbox: &Outbox) -> Vec<DeliveryBatch> {
    let (mut runs, mut events) = (Vec::new(), Vec::new());
    outbox.take(&mut runs, &mut events);
    runs
}

/// Requests a message, and leaves before the answer; an immediate answer is requeued.
async fn ask_and_leave(queue: &Arc<Queue>) {
    let mut asking = Box::pin(queue.take_one(true));
    let answer = std::future::poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await;
    if let Poll::Ready(Some((delivery, _))) = answer {
        assert_eq!(queue.settle(&[(delivery.id, Settle::Requeue)]), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_the_outbox_of_a_consumer_that_ends_is_as_if_it_had_never_been_handed_out() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..10)).await;
    let mut first = Listener::new(&queue, spec());
    let got = first.next(3).await;
    assert_eq!(got.len(), 3);
    // The others were taken out of the outbox too; further ones stay in it.
    world.publish(&queue, messages(10..20)).await;
    settle_down().await;
    assert_eq!(queue.held_by_consumers(), 20);
    drop(first);
    let counts = queue.counts();
    assert_eq!(
        (counts.ready, counts.in_flight),
        (10, 10),
        "what was taken out stays"
    );
    assert_eq!(queue.held_by_consumers(), 0);
    let mut second = Listener::new(&queue, spec());
    let got = second.next(10).await;
    let bodies: Vec<String> = got.iter().map(body).collect();
    let expected: Vec<String> = (10..20).map(|number| number.to_string()).collect();
    assert_eq!(bodies, expected);
    assert!(got.iter().all(|one| !one.redelivered && one.delivery_count == 0));
}

#[tokio::test(start_paused = true)]
async fn credit_that_consumers_share_comes_back_with_what_was_never_taken() {
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    world.publish(&queue, messages(0..10)).await;
    let credit = Credit::new(6);
    let shared = ConsumerSpec {
        shared_credit: Some(Arc::clone(&credit)),
        filter: None,
        ..spec()
    };
    let outbox = Outbox::new(1 << 20);
    let first = queue
        .consume(OwnerId(0), shared.clone(), Arc::clone(&outbox), 1)
        .unwrap();
    let second = queue.consume(OwnerId(0), shared, Arc::clone(&outbox), 2).unwrap();
    settle_down().await;
    assert_eq!((credit.used(), queue.held_by_consumers()), (6, 6));
    drop(first);
    settle_down().await;
    assert_eq!(
        (credit.used(), queue.held_by_consumers()),
        (6, 6),
        "the other has it all"
    );
    drop(second);
    settle_down().await;
    assert_eq!((credit.used(), queue.counts().ready), (0, 10));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_ends_makes_room_for_others_of_its_outbox() {
    let world = World::new().await;
    let (full, other) = (
        world.declare("full", durable()).await,
        world.declare("other", durable()).await,
    );
    world.publish(&full, messages(0..50)).await;
    let outbox = Outbox::new(1000);
    let first = full.consume(OwnerId(0), spec(), Arc::clone(&outbox), 1).unwrap();
    settle_down().await;
    world.publish(&other, messages(0..3)).await;
    let _second = other.consume(OwnerId(0), spec(), Arc::clone(&outbox), 2).unwrap();
    settle_down().await;
    assert_eq!(other.counts().in_flight, 0, "there is no room");
    drop(first);
    settle_down().await;
    assert_eq!((full.counts().in_flight, other.counts().in_flight), (0, 3));
    let runs = take(&outbox);
    assert_eq!(runs.iter().map(|run| run.token).collect::<Vec<_>>(), [2]);
}

#[tokio::test(start_paused = true)]
async fn what_a_held_consumer_gives_back_goes_to_the_next_one_in_its_order() {
    let world = World::new().await;
    let settings = QueueSettings {
        single_active_consumer: true,
        ..QueueSettings::default()
    };
    let declare = stafett_messaging::queues::Declare {
        settings,
        ..durable()
    };
    let queue = world.declare("q", declare).await;
    let outbox = Outbox::new(1 << 20);
    let active = queue.consume(OwnerId(0), spec(), Arc::clone(&outbox), 1).unwrap();
    let mut next = Listener::new(&queue, spec());
    world.publish(&queue, messages(0..5)).await;
    settle_down().await;
    let had = take(&outbox);
    world.publish(&queue, messages(5..10)).await;
    settle_down().await;
    active.hold();
    for run in &had {
        let back: Vec<_> = run
            .deliveries
            .iter()
            .map(|one| (one.id, Settle::Requeue))
            .collect();
        assert_eq!(queue.settle(&back), 5);
    }
    drop(active);
    let got = next.next(10).await;
    let numbers: Vec<usize> = got.iter().map(|one| body(one).parse().unwrap()).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    let redelivered = |one: &stafett_delivery::Delivery| one.redelivered;
    assert!(got[..5].iter().all(redelivered) && !got[5..].iter().any(redelivered));
}

/// Totals of consumers that come and go.
#[derive(Default)]
struct Done {
    completed: Mutex<HashSet<u64>>,
}

/// Consumes for a while, settles some messages, and leaves at any moment, like a connection.
async fn come_and_go(queue: &Arc<Queue>, done: &Done, seed: u64) {
    let outbox = Outbox::new(if seed.is_multiple_of(3) { 500 } else { 1 << 20 });
    let spec = ConsumerSpec {
        credit: (!seed.is_multiple_of(5)).then_some(7),
        shared_credit: seed.is_multiple_of(2).then(|| Credit::new(5)),
        filter: None,
        ..spec()
    };
    let credit = spec.shared_credit.clone();
    let Ok(consumer) = queue.consume(OwnerId(0), spec, Arc::clone(&outbox), seed) else {
        return;
    };
    let mut unsettled = Vec::new();
    for round in 0..seed % 7 {
        for run in take(&outbox) {
            unsettled.extend(run.deliveries.into_iter().map(|one| one.id));
        }
        let settled: Vec<_> = unsettled.split_off(unsettled.len() / 3);
        let completed = settled.iter().map(|id| (*id, Settle::Complete));
        assert_eq!(queue.settle(&completed.collect::<Vec<_>>()), settled.len());
        if let Some(credit) = &credit {
            credit.release(u32::try_from(settled.len()).unwrap());
        }
        for id in settled {
            assert!(done.completed.lock().unwrap().insert(id.offset), "once");
        }
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
    }
    if seed.is_multiple_of(4) {
        consumer.hold();
    }
    let back: Vec<_> = unsettled.iter().map(|id| (*id, Settle::Requeue)).collect();
    if seed.is_multiple_of(2) {
        drop(consumer);
        assert_eq!(queue.settle(&back), back.len());
    } else {
        queue.settle(&back);
        drop(consumer);
    }
    assert!(take(&outbox).is_empty(), "nothing comes to one that has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whenever_consumers_come_and_go_only_what_living_ones_hold_is_in_flight() {
    const MESSAGES: usize = 6000;
    let world = World::new().await;
    let queue = world.declare("q", durable()).await;
    let done = Arc::new(Done::default());
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..4_u64 {
        let (queue, done) = (Arc::clone(&queue), Arc::clone(&done));
        tasks.spawn(async move {
            for seed in 0..500 {
                come_and_go(&queue, &done, worker * 1000 + seed).await;
                if seed % 16 == 0 {
                    // Requested, and not waited for.
                    ask_and_leave(&queue).await;
                }
            }
        });
    }
    for from in (0..MESSAGES).step_by(20) {
        world.publish(&queue, messages(from..from + 20)).await;
        tokio::task::yield_now().await;
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let Counts {
        ready,
        in_flight,
        consumers,
        ..
    } = queue.counts();
    let completed = done.completed.lock().unwrap().len();
    assert_eq!((in_flight, consumers, queue.held_by_consumers()), (0, 0, 0));
    assert_eq!(usize::try_from(ready).unwrap() + completed, MESSAGES);
    // Each remaining message exists once.
    let mut left = Vec::new();
    while let Some((delivery, _)) = queue.take_one(true).await {
        left.push(delivery.id.offset);
    }
    assert!(left.is_sorted_by(|a, b| a < b) && left.len() + completed == MESSAGES);
}
