//! A broker on an in-memory journal, without threads: topics, queues, groups and live topics.

use std::sync::Arc;

use bytes::Bytes;
use stafett_broker::{Broker, BrokerSettings};
use stafett_groups::consumer::Partitions;
use stafett_groups::{CommitSender, NewCommit};
use stafett_groups::consumer::Heartbeat;
use stafett_journal::{Append, MemoryJournal, Outcome};
use stafett_live_topics::{
    ClientName, Format, Message as LiveMessage, NameList, Outbox as LiveOutbox, OutboxBound, Overflow, Payload,
    PendingAppends, Published, SubscriptionChange, SubscriptionEdit,
};
use stafett_delivery::{ConsumerSpec, Outbox, Settle};
use stafett_messaging::queues::{Declare, OwnerId, Queue};
use stafett_messaging::{Destination, NewBinding, NewExchange, Publish};
use stafett_model::{Message, Namespace};
use stafett_routing::{ExchangeKind, HeaderMatch};
use stafett_topics::{NewTopic, Topic, TopicSettings};
use tokio::runtime::Runtime;

use crate::{PARTITIONS, batch};

/// Messages, bindings and commits of one operation.
pub const COUNT: u32 = 64;
/// Live clients that get a message.
pub const LISTENERS: i64 = 1_000;
const TIME_MS: i64 = 1_700_000_000_000;
const COMMITTERS: &str = "committers";
const MEMBERS: &str = "members";

/// A broker in a runtime of one thread, whose clock stands still.
pub struct Core {
    runtime: Runtime,
    broker: Broker,
    topic: Arc<Topic>,
    queue: Arc<Queue>,
    live: Vec<Arc<LiveOutbox>>,
    member_epoch: i32,
}

impl Core {
    /// A topic; an exchange with 64 bindings to a queue; 1,000 live clients; a group of one member that has its
    /// assignment.
    pub fn start() -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
        let (broker, topic, queue) = runtime.block_on(async {
            let journal = Arc::new(MemoryJournal::new());
            let broker = Broker::start(journal, BrokerSettings::default()).await;
            let broker = broker.expect("an empty journal");
            let topic = create_topic(&broker).await;
            let queue = declare(&broker).await;
            (broker, topic, queue)
        });
        let live = runtime.block_on(listen(&broker));
        let mut core = Self {
            runtime,
            broker,
            topic,
            queue,
            live,
            member_epoch: 0,
        };
        core.join();
        core.commit();
        core
    }

    /// The same, with 64 messages in the queue.
    pub fn with_messages() -> Self {
        let core = Self::start();
        core.publish(messages());
        core
    }

    /// Admits and appends a batch to six partitions each.
    pub fn append(&self, batch: &Bytes) {
        let topics = self.broker.catalog();
        let append = |partition| {
            let admitted = topics.admit(&self.topic, partition, Some(batch.clone()), TIME_MS);
            let admitted = admitted.expect("a sound batch");
            Append::batch(admitted.log, admitted.body)
        };
        let ticket = topics.append((0..PARTITIONS).map(append).collect());
        let outcomes = ticket.wait();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Committed(_))));
    }

    /// Publishes messages through the exchange, until they are stored.
    pub fn publish(&self, messages: Vec<Publish>) {
        self.runtime.block_on(async {
            let ticket = self.broker.messaging().publish(&Namespace::default(), "x", messages);
            ticket.expect("an exchange").await;
        });
        assert!(self.queue.counts().ready >= u64::from(COUNT), "each found the queue");
    }

    /// Consumes the messages of the queue and settles them.
    pub fn consume(&self) {
        self.runtime.block_on(async {
            let outbox = Outbox::new(512 << 10);
            let spec = ConsumerSpec {
                settles: true,
                exclusive: false,
                priority: 0,
                credit: Some(COUNT),
                shared_credit: None,
            };
            let consumer = self.queue.consume(OwnerId(1), spec, Arc::clone(&outbox), 1).expect("a queue");
            let (mut runs, mut events, mut settled) = (Vec::new(), Vec::new(), 0);
            while settled < COUNT as usize {
                outbox.filled().await;
                outbox.take(&mut runs, &mut events);
                for run in runs.drain(..) {
                    let done: Vec<_> = run.deliveries.iter().map(|one| (one.id, Settle::Complete)).collect();
                    self.queue.settle(&done);
                    settled += done.len();
                }
            }
            drop(consumer);
        });
    }

    /// Publishes a live message to all who listen.
    pub fn publish_live(&self) {
        let message = LiveMessage {
            topic: "live",
            payload: Payload::Json("12345"),
            timestamp: Some(TIME_MS),
            id: None,
            offset: None,
        };
        let mut staged = PendingAppends::default();
        let published = self.broker.live_topics().publish(message, &mut staged);
        assert_eq!(published, Published::To(self.live.len()));
    }

    /// Reports a member that has nothing new to tell.
    pub fn heartbeat(&self) {
        let beat = Heartbeat {
            member: "member-1".into(),
            epoch: self.member_epoch,
            ..Heartbeat::default()
        };
        let step = self.broker.groups().consumer_heartbeat(MEMBERS, beat).expect("a member");
        assert!(step.stored.is_none(), "nothing changes");
    }

    fn join(&mut self) {
        let beat = Heartbeat {
            member: "member-1".into(),
            rebalance_timeout_ms: Some(60_000),
            names: Some(vec!["t".into()]),
            owned: Some(Partitions::default()),
            ..Heartbeat::default()
        };
        let groups = self.broker.groups();
        let joined = self.runtime.block_on(async {
            let step = groups.consumer_heartbeat(MEMBERS, beat).expect("a group");
            groups.consumer_stored(MEMBERS, step).await.expect("it is stored")
        });
        self.member_epoch = joined.reply.epoch;
    }

    /// Commits an offset of 64 partitions each, until they are stored.
    pub fn commit(&self) {
        let sender = CommitSender {
            member: "",
            instance: None,
            epoch: -1,
        };
        let commit = |partition| NewCommit {
            topic: self.topic.id,
            partition,
            offset: 1_000,
            leader_epoch: -1,
            text: None,
        };
        let commits = (0..COUNT).map(commit).collect();
        self.runtime.block_on(async {
            let ticket = self.broker.groups().commit(COMMITTERS, &sender, commits);
            ticket.expect("an empty group").durable().await.expect("they are stored");
        });
    }
}

/// 64 messages of 100 bytes, each with another key that one binding matches.
pub fn messages() -> Vec<Publish> {
    let message = |number| {
        Message {
            routing_key: format!("device.{number}.temperature").into(),
            value: Bytes::from_static(&[0; 100]),
            persistent: true,
            ..Message::default()
        }
        .into()
    };
    (0..COUNT).map(message).collect()
}

async fn create_topic(broker: &Broker) -> Arc<Topic> {
    let new = NewTopic {
        name: "t".into(),
        partitions: Some(COUNT),
        settings: TopicSettings::default(),
    };
    broker.catalog().create(vec![new]).await.remove(0).expect("a new topic")
}

async fn declare(broker: &Broker) -> Arc<Queue> {
    let namespace = Namespace::default();
    let messaging = broker.messaging();
    let exchange = NewExchange::new(ExchangeKind::Topic);
    let declared = messaging.exchanges().declare(&namespace, "x", exchange);
    declared.expect("a new exchange").1.await.expect("it is stored");
    let durable = Declare {
        durable: true,
        ..Declare::default()
    };
    let queue = messaging.queues().declare(&namespace, "q", durable).await;
    for number in 0..COUNT {
        let binding = NewBinding {
            source: "x".into(),
            destination: Destination::Queue("q".into()),
            key: format!("device.{number}.*").into(),
            headers: HeaderMatch::default(),
            arguments: Bytes::new(),
        };
        let bound = messaging.bind(&namespace, binding);
        bound.expect("a new binding").await.expect("it is stored");
    }
    queue.expect("a new queue")
}

async fn listen(broker: &Broker) -> Vec<Arc<LiveOutbox>> {
    let live = broker.live_topics();
    let bound = OutboxBound {
        bytes: 1 << 20,
        overflow: Overflow::DropOldest,
    };
    let mut outboxes = Vec::new();
    for number in 0..LISTENERS {
        let outbox = LiveOutbox::new(&Plain, bound, Arc::clone(live.metrics()));
        let client = ClientName::Number(number);
        live.listen(&client, &outbox).expect("a client");
        let names: NameList = std::iter::once("live").collect();
        let what = SubscriptionEdit::Subscribe(names);
        let changed = live.change(vec![SubscriptionChange { client, what }]).await;
        assert_eq!(changed, [Ok(1)]);
        outboxes.push(outbox);
    }
    outboxes
}

/// A message as its payload alone.
#[derive(Debug)]
struct Plain;

impl Format for Plain {
    fn number(&self) -> usize {
        0
    }

    fn encode(&self, message: &LiveMessage<'_>) -> Bytes {
        Bytes::copy_from_slice(message.payload.bytes())
    }
}

/// A core, and a batch for its partitions.
pub fn with_batch() -> (Core, Bytes) {
    (Core::start(), batch())
}

/// A core, and messages for its exchange.
pub fn with_unpublished() -> (Core, Vec<Publish>) {
    (Core::start(), messages())
}
