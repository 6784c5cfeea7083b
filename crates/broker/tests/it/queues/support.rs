//! A broker on an in-memory journal, and operations on its queues for tests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::smallvec;
use stafett_broker::{Broker, BrokerSettings};
use stafett_delivery::{Consumer, ConsumerSpec, Delivery, DeliveryId, Event, Outbox, Settle};
use stafett_journal::{ManualJournal, MemoryJournal};
use stafett_messaging::queues::{AppendOutcome, Declare, OwnerId, Publication, Queue, Targets};
use stafett_model::{Message, Namespace};

/// Timeout that nothing reaches.
const PATIENCE: Duration = Duration::from_mins(10);

pub(crate) struct World {
    pub(crate) journal: Arc<MemoryJournal>,
    pub(crate) broker: Arc<Broker>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(Arc::new(MemoryJournal::new())).await
    }

    pub(crate) async fn on(journal: Arc<MemoryJournal>) -> Self {
        let broker = Broker::start(journal.clone(), BrokerSettings::default())
            .await
            .unwrap();
        Self {
            journal,
            broker: Arc::new(broker),
        }
    }

    /// Creates a world on a journal that decides on request, and returns that journal too.
    pub(crate) async fn undecided() -> (Self, Arc<ManualJournal>) {
        let behind = Arc::new(MemoryJournal::new());
        let journal = Arc::new(ManualJournal::over(Arc::clone(&behind)));
        let broker = Broker::start(Arc::<ManualJournal>::clone(&journal), BrokerSettings::default()).await;
        let world = Self {
            journal: behind,
            broker: Arc::new(broker.unwrap()),
        };
        (world, journal)
    }

    /// Stops in good order and restarts.
    pub(crate) async fn restart(self) -> Self {
        self.broker.stop().await;
        self.crash().await
    }

    /// Restarts from the journal's state.
    pub(crate) async fn crash(self) -> Self {
        let journal = Arc::new(self.journal.reopen());
        drop(self);
        Self::on(journal).await
    }

    pub(crate) async fn declare(&self, name: &str, declare: Declare) -> Arc<Queue> {
        let queues = self.broker.messaging().queues();
        queues
            .declare(&Namespace::default(), name, declare)
            .await
            .unwrap()
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Queue>> {
        self.broker.messaging().queues().get(&Namespace::default(), name)
    }

    pub(crate) async fn publish(
        &self,
        queue: &Arc<Queue>,
        bodies: impl IntoIterator<Item = impl Into<Message>>,
    ) {
        let appended = self.try_publish(queue, bodies).await;
        assert!(
            appended.iter().all(|one| *one == AppendOutcome::Stored),
            "{appended:?}"
        );
    }

    pub(crate) async fn try_publish(
        &self,
        queue: &Arc<Queue>,
        messages: impl IntoIterator<Item = impl Into<Message>>,
    ) -> Vec<AppendOutcome> {
        let mut publication = Publication::default();
        let route = publication.route(Targets {
            queues: smallvec![Arc::clone(queue)],
            logs: smallvec![],
            append_time: false,
            is_waiting: false,
        });
        for message in messages {
            publication.push(message.into(), route);
        }
        self.broker.messaging().queues().append(publication).await
    }
}

impl World {
    /// Wraps a broker on another journal; the world's own journal is unused.
    pub(crate) fn of(broker: &Arc<Broker>) -> Self {
        Self {
            journal: Arc::default(),
            broker: Arc::clone(broker),
        }
    }

    /// Publishes without waiting for the outcome.
    pub(crate) fn publish_and_leave(&self, queue: &Arc<Queue>, messages: Vec<Message>) {
        let mut publication = Publication::default();
        let route = publication.route(Targets {
            queues: smallvec![Arc::clone(queue)],
            ..Targets::default()
        });
        for message in messages {
            publication.push(message, route);
        }
        drop(self.broker.messaging().queues().append(publication));
    }
}

pub(crate) fn durable() -> Declare {
    Declare {
        durable: true,
        ..Declare::default()
    }
}

/// Creates a persistent message.
pub(crate) fn message(body: &str) -> Message {
    Message {
        value: Bytes::copy_from_slice(body.as_bytes()),
        persistent: true,
        ..Message::default()
    }
}

pub(crate) fn messages(range: std::ops::Range<usize>) -> Vec<Message> {
    range.map(|number| message(&number.to_string())).collect()
}

pub(crate) fn spec() -> ConsumerSpec {
    ConsumerSpec {
        settles: true,
        exclusive: false,
        priority: 0,
        credit: None,
        shared_credit: None,
        filter: None,
    }
}

/// A consumer with its outbox.
pub(crate) struct Listener {
    pub(crate) outbox: Arc<Outbox>,
    _consumer: Consumer,
    queue: Arc<Queue>,
    got: std::collections::VecDeque<Delivery>,
    pub(crate) events: Vec<Event>,
}

impl Listener {
    pub(crate) fn new(queue: &Arc<Queue>, spec: ConsumerSpec) -> Self {
        let outbox = Outbox::new(1 << 20);
        let consumer = queue.consume(OwnerId(0), spec, Arc::clone(&outbox), 7).unwrap();
        Self {
            outbox,
            _consumer: consumer,
            queue: Arc::clone(queue),
            got: std::collections::VecDeque::new(),
            events: Vec::new(),
        }
    }

    /// Waits for the next `count` deliveries.
    pub(crate) async fn next(&mut self, count: usize) -> Vec<Delivery> {
        while self.got.len() < count {
            let mut runs = Vec::new();
            self.outbox.take(&mut runs, &mut self.events);
            if runs.is_empty() {
                let filled = tokio::time::timeout(PATIENCE, self.outbox.filled()).await;
                assert!(filled.is_ok(), "{} of {count} came", self.got.len());
            }
            for run in runs {
                assert_eq!(run.token, 7);
                self.got.extend(run.deliveries);
            }
        }
        self.got.drain(..count).collect()
    }

    pub(crate) async fn bodies(&mut self, count: usize) -> Vec<String> {
        self.next(count).await.iter().map(body).collect()
    }

    /// Returns the deliveries available once all tasks have settled.
    pub(crate) async fn rest(&mut self) -> Vec<Delivery> {
        settle_down().await;
        let mut runs = Vec::new();
        self.outbox.take(&mut runs, &mut self.events);
        self.got.extend(runs.into_iter().flat_map(|run| run.deliveries));
        self.got.drain(..).collect()
    }

    pub(crate) fn settle(&self, deliveries: &[Delivery], what: Settle) -> usize {
        let settlements: Vec<(DeliveryId, Settle)> = deliveries.iter().map(|one| (one.id, what)).collect();
        self.queue.settle(&settlements)
    }
}

/// Lets tasks run until all wait, in paused time: a timer that is armed last fires last.
pub(crate) async fn settle_down() {
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn body(delivery: &Delivery) -> String {
    String::from_utf8(delivery.message.value().to_vec()).unwrap()
}

impl World {
    /// Returns the number of waiting messages in a queue.
    pub(crate) fn ready(&self, name: &str) -> u64 {
        self.get(name).unwrap().counts().ready
    }

    /// Takes all waiting messages of a queue.
    pub(crate) async fn drain(&self, name: &str) -> Vec<Delivery> {
        let queue = self.get(name).unwrap();
        let mut taken = Vec::new();
        while let Some((delivery, _)) = queue.take_one(false).await {
            taken.push(delivery);
        }
        taken
    }
}
