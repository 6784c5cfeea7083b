//! Tests of queues that control the system's clock, or act between two locks.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::smallvec;
use stafett_journal::{Journal, MemoryJournal, RequestId};
use stafett_model::{Message, Namespace};
use stafett_queue::QueueSettings;
use stafett_routing::{ExchangeKind, HeaderMatch};
use stafett_store::{Clock, wall_ms};
use stafett_topics::{TopicCatalog, TopicDefaults};

use crate::Published;
use crate::queues::{Declare, DeleteConditions, Publication, Queue, Targets};
use crate::{Destination, Messaging, NewBinding, NewExchange, Send, SendError};

const HOUR_MS: i64 = 3_600_000;
const YEARS_MS: i64 = 56 * 365 * 24 * HOUR_MS;

thread_local! {
    static SET_BY_MS: Cell<i64> = const { Cell::new(0) };
}

/// Returns the system's clock as set by the test.
fn system_ms() -> i64 {
    wall_ms() + SET_BY_MS.get()
}

fn set_clock(by_ms: i64) {
    SET_BY_MS.set(SET_BY_MS.get() + by_ms);
}

struct World {
    journal: Arc<MemoryJournal>,
    messaging: Messaging,
}

impl World {
    fn on(journal: MemoryJournal) -> Self {
        let journal = Arc::new(journal);
        let shared: Arc<dyn Journal> = Arc::<MemoryJournal>::clone(&journal);
        let catalog = TopicCatalog::load(Arc::clone(&shared), TopicDefaults::default()).unwrap();
        let messaging =
            Messaging::open(&shared, &catalog, &[], &Arc::new(Clock::start_on(system_ms))).unwrap();
        Self { journal, messaging }
    }

    async fn queue(&self, settings: QueueSettings) -> Arc<Queue> {
        let declare = Declare {
            durable: true,
            settings,
            ..Declare::default()
        };
        let declaring = self
            .messaging
            .queues()
            .declare(&Namespace::default(), "q", declare);
        declaring.await.unwrap()
    }

    fn find(&self) -> Option<Arc<Queue>> {
        self.messaging.queues().get(&Namespace::default(), "q")
    }

    fn ready(&self) -> u64 {
        self.find().unwrap().counts().ready
    }

    async fn publish(&self, ttl_ms: u64) {
        let mut publication = Publication::default();
        let route = publication.route(Targets {
            is_waiting: false,
            queues: smallvec![self.find().unwrap()],
            ..Targets::default()
        });
        let message = Message {
            persistent: true,
            ttl_ms: Some(ttl_ms),
            ..Message::default()
        };
        publication.push(message, route);
        self.messaging.queues().append(publication).await;
    }

    async fn restart(self) -> Self {
        self.messaging.finish().await;
        Self::on(self.journal.reopen())
    }
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
    // Lets the queue run.
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn messages_keep_the_time_that_they_have_left_when_the_clock_is_set() {
    for by_ms in [HOUR_MS, -HOUR_MS, YEARS_MS, -YEARS_MS] {
        let world = World::on(MemoryJournal::new());
        world.queue(QueueSettings::default()).await;
        world.publish(60_000).await;
        pass(20_000).await;
        set_clock(by_ms);
        pass(20_000).await;
        world.publish(60_000).await;
        assert_eq!(world.ready(), 2, "{by_ms}");
        pass(20_000).await;
        assert_eq!(world.ready(), 1, "{by_ms}");
        set_clock(-by_ms);
        pass(30_000).await;
        assert_eq!(world.ready(), 1, "{by_ms}");
        pass(10_000).await;
        assert_eq!(world.ready(), 0, "{by_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_of_an_earlier_run_expire_by_a_clock_that_is_set_after_the_start() {
    let world = World::on(MemoryJournal::new());
    world.queue(QueueSettings::default()).await;
    world.publish(HOUR_MS.unsigned_abs() / 2).await;
    set_clock(-YEARS_MS);
    let world = world.restart().await;
    pass(60_000).await;
    assert_eq!(world.ready(), 1);
    set_clock(YEARS_MS + HOUR_MS);
    pass(2_000).await;
    assert_eq!(world.ready(), 0);
}

#[tokio::test(start_paused = true)]
async fn arrivals_are_stored_by_the_wall_clock_as_it_is_after_a_step() {
    set_clock(-YEARS_MS);
    let world = World::on(MemoryJournal::new());
    world.queue(QueueSettings::default()).await;
    pass(1_000).await;
    set_clock(YEARS_MS);
    pass(2_000).await;
    world.publish(60_000).await;
    let world = world.restart().await;
    pass(1_000).await;
    assert_eq!(world.ready(), 1);
    pass(70_000).await;
    assert_eq!(world.ready(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unused_queue_goes_after_its_time_however_the_clock_is_set() {
    for by_ms in [HOUR_MS, -HOUR_MS] {
        let world = World::on(MemoryJournal::new());
        let settings = QueueSettings {
            expires_ms: Some(60_000),
            ..QueueSettings::default()
        };
        world.queue(settings).await;
        pass(20_000).await;
        set_clock(by_ms);
        pass(35_000).await;
        assert!(world.find().is_some(), "{by_ms}");
        pass(10_000).await;
        assert!(world.find().is_none(), "{by_ms}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_of_arrival_that_two_stretches_have_is_that_of_the_later() {
    let clock = Clock::start_on(system_ms);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = clock.wall_ms();
    assert!(!clock.follow());
    set_clock(-5_000);
    assert!(clock.follow() && !clock.follow());
    // The clock of the system goes on between two looks at it.
    let assert_near = |arrival: i64, expected: i64| {
        assert!((arrival - expected).abs() < 1_000, "{arrival} {expected}");
    };
    // Only the earlier has it.
    assert_near(clock.arrival(before, true), clock.now_ms());
    assert_near(clock.arrival(before, false), clock.now_ms() + 5_000);
    tokio::time::sleep(Duration::from_secs(10)).await;
    // Both have it.
    assert_near(clock.arrival(before, true), clock.now_ms() - 5_000);
    assert_near(clock.arrival(before - 9_000, true), clock.now_ms() - 19_000);
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_used_between_its_timer_and_its_deletion_goes_when_its_time_is_over_again() {
    let world = World::on(MemoryJournal::new());
    let settings = QueueSettings {
        expires_ms: Some(60_000),
        ..QueueSettings::default()
    };
    let queue = world.queue(settings).await;
    pass(50_000).await;
    // State in which the timer has found the queue unused, and a request comes before the deletion.
    queue.forget_timer(&world.messaging.queues().context);
    assert!(queue.take_one(true).await.is_none());
    world.messaging.queues().delete_unused(&queue, false);
    pass(50_000).await;
    assert!(world.find().is_some());
    pass(20_000).await;
    assert!(world.find().is_none());
}

/// Declares a queue `q` behind an exchange `late`, and publishes a delayed message.
async fn delay(world: &World, delay_ms: u64) {
    let space = Namespace::default();
    let exchanges = world.messaging.exchanges();
    if exchanges.get(&space, "late").is_none() {
        let late = NewExchange {
            delays: true,
            ..NewExchange::new(ExchangeKind::FanOut)
        };
        let (_, stored) = exchanges.declare(&space, "late", late).unwrap();
        stored.await.unwrap();
        world.queue(QueueSettings::default()).await;
        let binding = NewBinding {
            source: "late".into(),
            destination: Destination::Queue("q".into()),
            key: Bytes::new(),
            headers: HeaderMatch::default(),
            arguments: Bytes::new(),
        };
        world.messaging.bind(&space, binding).unwrap().await.unwrap();
    }
    let message = Message {
        persistent: true,
        delay_ms: Some(delay_ms),
        ..Message::default()
    };
    let published = world
        .messaging
        .publish(&space, "late", vec![message.into()])
        .unwrap();
    assert_eq!(published.await, [Published::Stored]);
}

#[tokio::test(start_paused = true)]
async fn delayed_messages_wait_as_long_as_they_were_to_wait_when_the_clock_is_set() {
    for by_ms in [HOUR_MS, -HOUR_MS, YEARS_MS, -YEARS_MS] {
        let world = World::on(MemoryJournal::new());
        delay(&world, 150_000).await;
        delay(&world, 60_000).await;
        pass(20_000).await;
        set_clock(by_ms);
        pass(5_000).await;
        delay(&world, 70_000).await;
        for (passed_ms, ready) in [
            (30_000, 0),
            (10_000, 1),
            (25_000, 1),
            (10_000, 2),
            (45_000, 2),
            (10_000, 3),
        ] {
            pass(passed_ms).await;
            assert_eq!(world.ready(), ready, "{by_ms}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_messages_of_an_earlier_run_follow_a_clock_that_is_set_after_the_start() {
    let world = World::on(MemoryJournal::new());
    delay(&world, HOUR_MS.unsigned_abs()).await;
    set_clock(-YEARS_MS);
    let world = world.restart().await;
    pass(60_000).await;
    assert_eq!(world.ready(), 0);
    set_clock(YEARS_MS);
    pass(60_000).await;
    assert_eq!(world.ready(), 0);
    set_clock(HOUR_MS);
    pass(10_000).await;
    assert_eq!(world.ready(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_sent_with_a_delay_goes_to_the_queues_that_are_there_when_it_is_due() {
    let world = World::on(MemoryJournal::new());
    world.queue(QueueSettings::default()).await;
    let (space, queues) = (Namespace::default(), world.messaging.queues());
    for name in ["r", "s"] {
        let durable = Declare {
            durable: true,
            ..Declare::default()
        };
        queues.declare(&space, name, durable).await.unwrap();
    }
    let send = |delay_ms, request| {
        let message = Message {
            persistent: true,
            delay_ms: Some(delay_ms),
            ..Message::default()
        };
        let queues = ["q", "r", "s"].map(Into::into).to_vec();
        let sends = vec![Send { message, queues }];
        let sending = world
            .messaging
            .send(&space, sends, Some(RequestId([request; 16])));
        async { sending.await.map(|sent| sent.is_repeated) }
    };
    assert_eq!(send(60_000, 1).await, Ok(false));
    assert_eq!(send(60_000, 1).await, Ok(true), "sent again, it waits once");
    assert_eq!(send(0, 2).await, Ok(false), "a delay of 0 is none");
    let too_long = send(u64::MAX, 3).await.unwrap_err();
    assert!(
        matches!(too_long, SendError::DelayTooLong { at: 0, .. }),
        "{too_long}"
    );
    let ready = |name| queues.get(&space, name).unwrap().counts().ready;
    pass(55_000).await;
    assert_eq!(["q", "r", "s"].map(ready), [1, 1, 1]);
    let gone = queues.get(&space, "r").unwrap();
    let any = DeleteConditions::default();
    queues.delete_this(&gone, any).await.unwrap();
    pass(10_000).await;
    assert_eq!(["q", "s"].map(ready), [2, 2]);
    let world = world.restart().await;
    assert_eq!(world.ready(), 2, "it is released once");
}
