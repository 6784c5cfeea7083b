//! Tests of dispatchers without queues.

mod expiry;
mod filtered;

use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use stafett_journal::{
    Append, BatchFrame, Frame, Journal, LogSpec, MemoryJournal, Retention, Selection, StateItem, StateWait,
    Target,
};
use stafett_model::{Arrival, BatchBuilder, Codec, DeathReason, Durability, LogId, Message, StoredMessage};
use stafett_queue::{DeadLetter, QueueSettings};
use stafett_store::{Clock, NotStored, Table, spaces, wall_ms};

use super::*;

const TABLE: Table = spaces::DELIVERIES;

/// Owner that stores dead letters in a log.
#[derive(Debug)]
struct Owner {
    journal: Arc<MemoryJournal>,
    letters: LogId,
}

impl DispatcherOwner for Owner {
    fn describe(&self) -> String {
        "group readers".to_owned()
    }

    fn on_unused(self: Arc<Self>, _: bool) {}

    fn store_dead_letters(
        self: Arc<Self>,
        letters: Vec<(StoredMessage, DeathReason)>,
        settlement: Option<Frame>,
    ) -> StoringLetters {
        let messages = letters.iter().map(|(letter, _)| letter.to_message());
        let frames = batch(self.letters, messages).into_iter().chain(settlement);
        Box::pin(async move {
            let append = Append::state(frames, StateWait::Written);
            let outcomes = self.journal.append(vec![append]).await;
            stafett_store::only_outcome(outcomes.first()).map_err(|_: NotStored| NotStored::Unknown)
        })
    }
}

/// Three logs, and a dispatcher over them.
struct World {
    journal: Arc<MemoryJournal>,
    context: Arc<DeliveryContext>,
    dispatcher: Arc<Dispatcher>,
    owner: Arc<Owner>,
}

fn batch(log: LogId, messages: impl Iterator<Item = Message>) -> Option<Frame> {
    let mut batch = BatchBuilder::with_capacity(Codec::None, 64);
    for message in messages {
        let arrival = Arrival {
            ms: wall_ms(),
            number: 0,
        };
        message.write(arrival, &mut batch).unwrap();
    }
    Some(Frame::Batch(BatchFrame {
        body: batch.finish().ok()?,
        targets: smallvec![Target {
            log,
            records: Selection::All,
        }],
    }))
}

impl World {
    /// Opens a dispatcher over the logs 1 to 3; dead letters go to log 4.
    fn open(journal: MemoryJournal, ownership: LogOwnership) -> Self {
        let journal = Arc::new(journal);
        let shared: Arc<dyn Journal> = Arc::<MemoryJournal>::clone(&journal);
        let context = DeliveryContext::new(shared, Arc::new(Clock::start()), TABLE);
        let owner = Arc::new(Owner {
            journal: Arc::clone(&journal),
            letters: LogId(4),
        });
        let logs: SmallVec<_> = (1..=3)
            .map(|log| LaneLog::new(log, LogId(u64::from(log))))
            .collect();
        let settings = QueueSettings {
            dead_letter: Some(DeadLetter {
                exchange: "".into(),
                routing_key: None,
            }),
            ..QueueSettings::default()
        };
        let spec = DispatcherSpec {
            id: 77,
            declared: Arc::new(settings.clone()),
            settings: Arc::new(settings),
            is_paused: false,
            logs,
            ownership,
            is_pulled: false,
            is_stored: true,
        };
        let weak: Weak<Owner> = Arc::downgrade(&owner);
        let dispatcher = Dispatcher::new(spec, &context, weak);
        TABLE
            .load(&*journal, |row: StateItem<'_>| dispatcher.restore(row))
            .unwrap();
        let all = vec![Arc::clone(&dispatcher)];
        context.start(move || all.clone());
        dispatcher.open(&context);
        dispatcher.resume(&context, false);
        Self {
            journal,
            context,
            dispatcher,
            owner,
        }
    }

    async fn new(ownership: LogOwnership) -> Self {
        let journal = MemoryJournal::new();
        let create = Frame::CreateLogs {
            first: journal.allocate(4),
            count: 4,
            spec: LogSpec {
                durability: Durability::Sync,
                retention: Retention::default(),
                compaction: None,
            },
        };
        let append = Append::state([create], StateWait::Written);
        journal.append(vec![append]).await;
        Self::open(journal, ownership)
    }

    /// Appends messages with these bodies to a log.
    async fn append(&self, log: u64, bodies: &[&'static str]) {
        let message = |body: &&'static str| Message {
            value: (*body).into(),
            persistent: true,
            ..Message::default()
        };
        let frames = batch(LogId(log), bodies.iter().map(message));
        self.journal
            .append(vec![Append::state(frames, StateWait::Written)])
            .await;
    }

    /// Adds a consumer that settles, with credit for any number of messages.
    fn consume(&self) -> (Consumer, Arc<Outbox>) {
        let outbox = Outbox::new(1 << 20);
        let spec = ConsumerSpec {
            settles: true,
            exclusive: false,
            priority: 0,
            credit: None,
            shared_credit: None,
            filter: None,
        };
        let consumer = self.dispatcher.add_consumer(spec, Arc::clone(&outbox), 1);
        (consumer.unwrap().unwrap(), outbox)
    }

    async fn restart(self, ownership: LogOwnership) -> Self {
        self.context.finish().await;
        self.context.flush_all(&[Arc::clone(&self.dispatcher)]).await;
        Self::open(self.journal.reopen(), ownership)
    }
}

/// Returns the bodies and ids of the deliveries in order, once all tasks rest: time is paused.
async fn take(outbox: &Outbox) -> Vec<(String, DeliveryId)> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (mut batches, mut events) = (Vec::new(), Vec::new());
    outbox.take(&mut batches, &mut events);
    let deliveries = batches.into_iter().flat_map(|batch| batch.deliveries);
    let body = |delivery: Delivery| {
        let body = delivery.message.to_message().value;
        (String::from_utf8(body.to_vec()).unwrap(), delivery.id)
    };
    deliveries.map(body).collect()
}

fn bodies(taken: &[(String, DeliveryId)]) -> Vec<&str> {
    let mut bodies: Vec<&str> = taken.iter().map(|(body, _)| body.as_str()).collect();
    bodies.sort_unstable();
    bodies
}

#[tokio::test(start_paused = true)]
async fn dispatcher_over_three_logs_delivers_settles_and_continues_after_a_restart() {
    for ownership in [LogOwnership::Own, LogOwnership::Topic] {
        let world = World::new(ownership).await;
        world.append(1, &["a1", "a2"]).await;
        let (consumer, outbox) = world.consume();
        world.append(2, &["b1"]).await;
        world.append(3, &["c1", "c2", "c3"]).await;
        let taken = take(&outbox).await;
        assert_eq!(bodies(&taken), ["a1", "a2", "b1", "c1", "c2", "c3"]);
        let settlements: Vec<_> = taken
            .iter()
            .filter(|(body, _)| body != "a2" && body != "c3")
            .map(|(_, id)| (*id, Settle::Complete))
            .collect();
        assert_eq!(world.dispatcher.settle(&settlements), 4);
        assert_eq!(world.dispatcher.counts().in_flight, 2);
        drop(consumer);
        let world = world.restart(ownership).await;
        assert_eq!(world.dispatcher.counts().ready, 2, "{ownership:?}");
        let (_consumer, outbox) = world.consume();
        let taken = take(&outbox).await;
        assert_eq!(bodies(&taken), ["a2", "c3"], "{ownership:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn dead_letters_of_a_dispatcher_go_where_its_owner_stores_them() {
    let world = World::new(LogOwnership::Own).await;
    world.append(2, &["bad", "good"]).await;
    let (_consumer, outbox) = world.consume();
    let taken = take(&outbox).await;
    let bad = taken.iter().find(|(body, _)| body == "bad").unwrap().1;
    world.dispatcher.settle(&[(bad, Settle::Discard)]);
    world.dispatcher.dead_letters_stored().await;
    assert_eq!(world.journal.bounds(world.owner.letters).unwrap().end.0, 1);
    assert_eq!(world.dispatcher.counts().in_flight, 1);
}
