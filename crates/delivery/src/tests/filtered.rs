//! Consumers with filters.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Accepts bodies with a beginning, and counts the messages that it is asked about.
#[derive(Debug)]
struct Begins(&'static str, AtomicUsize);

impl Begins {
    fn new(with: &'static str) -> Arc<Self> {
        Arc::new(Self(with, AtomicUsize::new(0)))
    }
}

impl MessageFilter for Begins {
    fn source(&self) -> &str {
        self.0
    }

    fn is_true_of(&self, message: &StoredMessage) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed);
        message.value().starts_with(self.0.as_bytes())
    }
}

fn spec(filter: &Arc<Begins>, credit: Option<u32>) -> ConsumerSpec {
    ConsumerSpec {
        settles: true,
        exclusive: false,
        priority: 0,
        credit,
        shared_credit: None,
        filter: Some(Arc::<Begins>::clone(filter)),
    }
}

impl World {
    fn filtered(&self, spec: ConsumerSpec) -> (Consumer, Arc<Outbox>) {
        let outbox = Outbox::new(1 << 20);
        let consumer = self.dispatcher.add_consumer(spec, Arc::clone(&outbox), 1);
        (consumer.unwrap().unwrap(), outbox)
    }
}

async fn taken(outbox: &Outbox) -> Vec<String> {
    let taken = take(outbox).await;
    taken.into_iter().map(|(body, _)| body).collect()
}

#[tokio::test(start_paused = true)]
async fn a_filter_leaves_other_messages_for_other_consumers() {
    for ownership in [LogOwnership::Own, LogOwnership::Topic] {
        let world = World::new(ownership).await;
        world.append(1, &["a1", "b1", "a2"]).await;
        let (wants_a, outbox) = world.filtered(spec(&Begins::new("a"), Some(2)));
        let first = take(&outbox).await;
        assert_eq!(bodies(&first), ["a1", "a2"], "{ownership:?}");
        world.append(3, &["b2", "a3", "a4"]).await;
        assert_eq!(taken(&outbox).await, [""; 0], "its credit is used up");
        world.dispatcher.settle(&[(first[0].1, Settle::Complete)]);
        assert_eq!(taken(&outbox).await, ["a3"]);
        let (_other, all) = world.consume();
        assert_eq!(bodies(&take(&all).await), ["a4", "b1", "b2"], "{ownership:?}");
        assert_eq!(world.dispatcher.counts().in_flight, 5);
        assert_eq!(world.dispatcher.held_by_consumers(), 5);
        drop(wants_a);
        assert_eq!(world.dispatcher.held_by_consumers(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_returned_message_comes_again_before_later_ones() {
    let world = World::new(LogOwnership::Own).await;
    world.append(1, &["a1", "x", "a2", "a3"]).await;
    let (_consumer, outbox) = world.filtered(spec(&Begins::new("a"), Some(2)));
    let first = take(&outbox).await;
    let back = [(first[0].1, Settle::Requeue), (first[1].1, Settle::Requeue)];
    world.dispatcher.settle(&back);
    let again = take(&outbox).await;
    assert_eq!(again, first);
    world
        .dispatcher
        .settle(&[(again[1].1, Settle::Complete), (again[0].1, Settle::Requeue)]);
    assert_eq!(taken(&outbox).await, ["a1", "a3"]);
    // Lane 2 is of a higher priority.
    world.append(2, &["a-high"]).await;
    world.dispatcher.settle(&[(again[0].1, Settle::Requeue)]);
    assert_eq!(taken(&outbox).await, ["a-high"]);
    let high = world.dispatcher.held(None, 10).0[1].id;
    world.dispatcher.settle(&[(high, Settle::Complete)]);
    assert_eq!(taken(&outbox).await, ["a1"]);
}

#[tokio::test(start_paused = true)]
async fn equal_filters_examine_each_message_once_and_take_turns() {
    let world = World::new(LogOwnership::Own).await;
    let filter = Begins::new("a");
    let same = Begins::new("a");
    let (_one, first) = world.filtered(spec(&filter, None));
    let (two, second) = world.filtered(spec(&same, None));
    let urgent = ConsumerSpec {
        priority: 5,
        ..spec(&filter, Some(1))
    };
    let (_urgent, third) = world.filtered(urgent);
    world.append(1, &["a1", "b", "a2", "b", "a3", "a4", "a5"]).await;
    assert_eq!(taken(&third).await, ["a1"]);
    assert_eq!(taken(&first).await, ["a2", "a4"]);
    assert_eq!(filter.1.load(Ordering::Relaxed), 7);
    assert_eq!(same.1.load(Ordering::Relaxed), 0);
    // Messages that the client has not taken go to others of the group.
    drop(two);
    assert_eq!(taken(&second).await, [""; 0]);
    assert_eq!(taken(&first).await, ["a3", "a5"]);
}

#[tokio::test(start_paused = true)]
async fn a_filter_finds_returned_messages_however_many() {
    let world = World::new(LogOwnership::Own).await;
    let many: Vec<&str> = (0..40).map(|at| ["a", "b", "c", "d"][at % 4]).collect();
    world.append(1, &many).await;
    let (all, outbox) = world.consume();
    assert_eq!(take(&outbox).await.len(), 40);
    let (_consumer, wanted) = world.filtered(spec(&Begins::new("c"), None));
    assert_eq!(taken(&wanted).await, [""; 0]);
    let held: Vec<_> = world.dispatcher.held(None, 100).0;
    all.hold();
    let back: Vec<_> = held.iter().map(|held| (held.id, Settle::Requeue)).collect();
    world.dispatcher.settle(&back);
    drop(all);
    assert_eq!(taken(&wanted).await, ["c"; 10]);
    assert_eq!(world.dispatcher.counts().ready, 30);
}

#[tokio::test(start_paused = true)]
async fn filters_wait_for_room_for_shared_credit_and_for_a_pause_to_end() {
    let world = World::new(LogOwnership::Own).await;
    world.append(1, &["a1", "a2", "a3"]).await;
    let credit = Credit::new(1);
    let filter = Begins::new("a");
    let shares = || ConsumerSpec {
        shared_credit: Some(Arc::clone(&credit)),
        ..spec(&filter, None)
    };
    let (one, first) = world.filtered(shares());
    let (_two, second) = world.filtered(shares());
    assert_eq!(take(&first).await.len() + take(&second).await.len(), 1);
    let held = world.dispatcher.held(None, 10).0[0].id;
    world.dispatcher.settle(&[(held, Settle::Complete)]);
    credit.release(1);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(credit.used(), 1);
    drop(one);
    let after = take(&second).await;
    assert_eq!((after.len(), credit.used()), (1, 1));

    let world = World::new(LogOwnership::Own).await;
    let small = Outbox::new(1);
    let consumer = world
        .dispatcher
        .add_consumer(spec(&filter, None), Arc::clone(&small), 1);
    world.append(1, &["a1", "a2"]).await;
    assert_eq!(taken(&small).await, ["a1"], "one at a time");
    assert_eq!(taken(&small).await, ["a2"]);
    {
        let mut inner = world.dispatcher.lock();
        world.dispatcher.set_paused(&world.context, &mut inner, true);
    }
    world.append(1, &["a3"]).await;
    assert_eq!(taken(&small).await, [""; 0]);
    {
        let mut inner = world.dispatcher.lock();
        world.dispatcher.set_paused(&world.context, &mut inner, false);
    }
    world.dispatcher.dispatch_now();
    assert_eq!(taken(&small).await, ["a3"]);
    drop(consumer);
}

#[tokio::test(start_paused = true)]
async fn deliveries_to_filters_are_known_after_a_restart() {
    let world = World::new(LogOwnership::Own).await;
    world.append(1, &["b", "a1", "b", "a2", "a3"]).await;
    let filter = Begins::new("a");
    let (_consumer, outbox) = world.filtered(spec(&filter, Some(2)));
    let first = take(&outbox).await;
    world.dispatcher.settle(&[(first[0].1, Settle::Complete)]);
    let at_once = ConsumerSpec {
        settles: false,
        ..spec(&Begins::new("a3"), None)
    };
    let third = world.dispatcher.held(None, 9).0.len();
    assert_eq!(third, 1, "the log has not told of growth since");
    let (_other, needs_none) = world.filtered(at_once);
    assert_eq!(taken(&outbox).await, ["a3"]);
    assert_eq!(taken(&needs_none).await, [""; 0]);
    world.append(1, &["a3-more"]).await;
    assert_eq!(taken(&needs_none).await, ["a3-more"]);
    let world = world.restart(LogOwnership::Own).await;
    assert_eq!(
        world.dispatcher.counts().ready,
        4,
        "two in flight, two never wanted"
    );
    let outbox = Outbox::new(1 << 20);
    let again = world
        .dispatcher
        .add_consumer(spec(&filter, None), Arc::clone(&outbox), 1);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (mut batches, mut events) = (Vec::new(), Vec::new());
    outbox.take(&mut batches, &mut events);
    let deliveries = batches.iter().flat_map(|batch| &batch.deliveries);
    assert!(deliveries.clone().all(|delivery| delivery.redelivered));
    assert_eq!(deliveries.count(), 2);
    drop(again);
}

#[tokio::test(start_paused = true)]
async fn the_task_of_a_filter_ends_with_its_consumers_and_with_the_dispatcher() {
    let world = World::new(LogOwnership::Own).await;
    let tasks = || async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.context.tasks.len()
    };
    let before = tasks().await;
    let filter = Begins::new("a");
    let (one, _) = world.filtered(spec(&filter, None));
    let (two, _) = world.filtered(spec(&filter, None));
    assert_eq!(tasks().await, before + 1);
    drop((one, two));
    assert_eq!(tasks().await, before, "no message came that it wants");
    let (_one, outbox) = world.filtered(spec(&filter, None));
    assert_eq!(tasks().await, before + 1);
    let ended = world.dispatcher.end(&world.context, |_| Ok::<(), ()>(()));
    assert!(ended.unwrap().is_some());
    assert_eq!(tasks().await, before);
    assert_eq!(taken(&outbox).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_filter_comes_to_its_turn_for_shared_credit_beside_an_ordinary_consumer() {
    let world = World::new(LogOwnership::Own).await;
    let credit = Credit::new(1);
    let shares = |filter| ConsumerSpec {
        filter,
        shared_credit: Some(Arc::clone(&credit)),
        ..spec(&Begins::new("a"), None)
    };
    world
        .append(1, &["b1", "b2", "b3", "b4", "a1", "b5", "a2", "b6"])
        .await;
    let (_all, rest) = world.filtered(shares(None));
    let (_wants_a, wanted) = world.filtered(shares(Some(Begins::new("a"))));
    let (mut got, mut of_filter) = (Vec::new(), 0);
    for _ in 0..8 {
        let (one, other) = (take(&rest).await, take(&wanted).await);
        of_filter += other.len();
        let now: Vec<_> = one.into_iter().chain(other).collect();
        assert_eq!((now.len(), credit.used()), (1, 1), "{got:?}");
        world.dispatcher.settle(&[(now[0].1, Settle::Complete)]);
        got.extend(now.into_iter().map(|(body, _)| body));
        credit.release(1);
    }
    got.sort_unstable();
    assert_eq!(got, ["a1", "a2", "b1", "b2", "b3", "b4", "b5", "b6"]);
    assert!(of_filter >= 1, "it had no turn");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(credit.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dispatcher_has_a_bounded_number_of_filters() {
    let world = World::new(LogOwnership::Own).await;
    let names: Vec<&'static str> = (0..101)
        .map(|at| &*Box::leak(at.to_string().into_boxed_str()))
        .collect();
    let add = |name: &'static str| {
        let filter = Begins::new(name);
        let outbox = Outbox::new(1 << 20);
        world.dispatcher.add_consumer(spec(&filter, None), outbox, 1)
    };
    let mut consumers: Vec<_> = names.iter().take(100).map(|name| add(name).unwrap()).collect();
    assert!(add(names[100]).is_err());
    assert!(add(names[0]).is_ok(), "an equal one shares a task");
    consumers.pop();
    assert!(add(names[100]).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_consumer_with_a_filter_may_be_the_only_active_one() {
    let world = World::new(LogOwnership::Own).await;
    {
        let mut inner = world.dispatcher.lock();
        inner.state.consumers = stafett_queue::Consumers::new(true);
    }
    let filter = Begins::new("a");
    let (one, first) = world.filtered(spec(&filter, None));
    let (_two, second) = world.filtered(spec(&filter, None));
    world.append(1, &["a1", "b1", "a2"]).await;
    assert_eq!(taken(&first).await, ["a1", "a2"]);
    drop(one);
    world.append(1, &["a3"]).await;
    assert_eq!(taken(&second).await, ["a3"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_ends_each_run_is_dead_lettered_at_last() {
    let mut world = World::new(LogOwnership::Own).await;
    world.append(1, &["a1"]).await;
    for (round, wanted) in [1, 1, 0, 0].into_iter().enumerate() {
        let limited = QueueSettings {
            delivery_limit: Some(1),
            ..QueueSettings::clone(&world.dispatcher.settings())
        };
        {
            let mut inner = world.dispatcher.lock();
            world.dispatcher.set_settings(&world.context, &mut inner, limited);
        }
        let (consumer, outbox) = world.filtered(spec(&Begins::new("a"), None));
        assert_eq!(take(&outbox).await.len(), wanted, "round {round}");
        world.dispatcher.dead_letters_stored().await;
        let letters = world.journal.bounds(world.owner.letters).unwrap().end.0;
        assert_eq!(letters, u64::from(wanted == 0));
        drop(consumer);
        world = world.restart(LogOwnership::Own).await;
    }
    assert_eq!(world.dispatcher.counts(), Counts::default());
}

#[tokio::test(start_paused = true)]
async fn credit_that_a_filter_has_no_message_for_goes_to_the_next_in_line() {
    let (world, other) = (
        World::new(LogOwnership::Own).await,
        World::new(LogOwnership::Own).await,
    );
    let credit = Credit::new(1);
    let shares = |filter| ConsumerSpec {
        filter,
        shared_credit: Some(Arc::clone(&credit)),
        ..spec(&Begins::new("a"), None)
    };
    other.append(1, &["g1", "g2"]).await;
    let (_all, of_other) = other.filtered(shares(None));
    let held = take(&of_other).await;
    let (_wants_a, wanted) = world.filtered(shares(Some(Begins::new("a"))));
    world.append(1, &["a1"]).await;
    assert_eq!(taken(&wanted).await, [""; 0], "it is in line");
    // Another consumer takes the message, and nothing is ready.
    let (_rest, rest) = world.consume();
    assert_eq!(taken(&rest).await, ["a1"]);
    other.dispatcher.settle(&[(held[0].1, Settle::Complete)]);
    credit.release(1);
    assert_eq!(taken(&of_other).await, ["g2"]);
    assert_eq!(credit.used(), 1);
    assert_eq!(taken(&wanted).await, [""; 0]);
}
