//! A broker that stores the topics `charts/…`, with one client.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use stafett_broker::{Broker, BrokerSettings};
use stafett_journal::Journal;
use stafett_live_topics::{
    ClientName, ClientNumber, Live, LiveSettings, LogRule, Message, NameList, Outbox, OutboxBound,
    OutboxDrain, Overflow, Payload, PendingAppends, Published, StartFrom, SubscriptionChange,
    SubscriptionEdit,
};

use crate::plain::Plain;
use crate::torn::Torn;

/// A broker that stores the topics `charts/…`, with one client.
pub(crate) struct Charts {
    pub(crate) journal: Arc<Torn>,
    pub(crate) broker: Arc<Broker>,
    marks: AtomicUsize,
}

pub(crate) fn rule(prefix: &str, topic: &str) -> LogRule {
    LogRule {
        prefix: prefix.into(),
        topic: topic.into(),
        partitions: 1,
    }
}

pub(crate) const ME: ClientName = ClientName::Number(1);

impl Charts {
    pub(crate) async fn start(journal: Arc<Torn>) -> Self {
        let rule = rule("charts/", "charts");
        let settings = LiveSettings {
            logs: vec![rule],
            ..LiveSettings::default()
        };
        let stored: Arc<dyn Journal> = Arc::<Torn>::clone(&journal);
        let broker = Broker::start(
            stored,
            BrokerSettings {
                live_topics: settings,
                ..BrokerSettings::default()
            },
        )
        .await;
        let broker = Arc::new(broker.unwrap());
        broker.open_live_logs().await.unwrap();
        let marks = AtomicUsize::new(0);
        Self {
            journal,
            broker,
            marks,
        }
    }

    pub(crate) async fn new() -> Self {
        Self::start(Arc::default()).await
    }

    /// Restarts as after a killed process.
    pub(crate) async fn kill(self) -> Self {
        let mut again = Self::start(Arc::new(self.journal.reopen())).await;
        again.marks = self.marks;
        again
    }

    pub(crate) fn live(&self) -> &Arc<Live> {
        self.broker.live_topics()
    }

    pub(crate) fn publish(&self, topic: &str, numbers: std::ops::Range<usize>) {
        let mut staged = PendingAppends::default();
        for number in numbers {
            let payload = number.to_string();
            let message = Message {
                topic,
                payload: Payload::Json(&payload),
                timestamp: None,
                id: None,
                offset: None,
            };
            assert_eq!(self.live().publish(message, &mut staged), Published::Staged);
        }
        drop(self.live().store(staged));
    }

    pub(crate) fn listen_within(&self, bytes: usize) -> (ClientNumber, Arc<Outbox>) {
        let outbox = self.outbox(bytes);
        (self.live().listen(&ME, &outbox).unwrap(), outbox)
    }

    pub(crate) fn listen(&self) -> (ClientNumber, Arc<Outbox>) {
        self.listen_within(1 << 20)
    }

    pub(crate) async fn subscribe(&self, topics: &[&str], from: StartFrom, outbox: &Arc<Outbox>) {
        let topics: NameList = topics.iter().copied().collect();
        let (result, held) = self.live().subscribe_from(ME, topics, from, outbox).await;
        if let Some(held) = held {
            self.live().catch_up(held);
        }
        result.unwrap();
    }

    pub(crate) async fn change(&self, what: SubscriptionEdit) {
        let change = SubscriptionChange { client: ME, what };
        self.live().change(vec![change]).await.remove(0).unwrap();
    }

    /// Returns all messages until the client has caught up with its earlier requests. The request made here
    /// is read after those.
    pub(crate) async fn all(&self, outbox: &Arc<Outbox>) -> Vec<String> {
        let mark = format!("charts/mark {}", self.marks.fetch_add(1, Ordering::Relaxed));
        self.publish(&mark, 0..1);
        self.subscribe(&[&mark], StartFrom::Earliest, outbox).await;
        let mut found = Vec::new();
        loop {
            found.extend(taken(outbox));
            if let Some(place) = found.iter().position(|message| *message == format!("{mark}=0")) {
                found.remove(place);
                self.change(SubscriptionEdit::Unsubscribe([&*mark].into_iter().collect()))
                    .await;
                return found;
            }
            outbox.ready().await;
        }
    }

    /// Publishes, and waits until the messages are delivered to listening clients.
    pub(crate) async fn deliver(&self, topic: &str, numbers: std::ops::Range<usize>) {
        let (count, client) = (numbers.len(), ClientName::Number(2));
        let outbox = self.outbox(1 << 20);
        let number = self.live().listen(&client, &outbox).unwrap();
        let what = SubscriptionEdit::Subscribe([topic].into_iter().collect());
        let changes = vec![SubscriptionChange { client, what }];
        self.live().change(changes).await.remove(0).unwrap();
        self.publish(topic, numbers);
        wait_for(&outbox, count).await;
        self.live().leave(number, &outbox, true);
    }

    pub(crate) fn outbox(&self, bytes: usize) -> Arc<Outbox> {
        let overflow = Overflow::DropOldest;
        let metrics = Arc::clone(self.live().metrics());
        Outbox::new(&Plain, OutboxBound { bytes, overflow }, metrics)
    }
}

/// Takes the waiting messages, and sends them.
pub(crate) fn taken(outbox: &Outbox) -> Vec<String> {
    let mut sent = OutboxDrain::default();
    outbox.take(usize::MAX, &mut sent);
    outbox.on_all_sent();
    assert_eq!(sent.dropped, 0);
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    sent.messages.iter().map(text).collect()
}

/// Waits until `count` messages have arrived.
pub(crate) async fn wait_for(outbox: &Outbox, count: usize) -> Vec<String> {
    let mut found = taken(outbox);
    while found.len() < count {
        outbox.ready().await;
        found.extend(taken(outbox));
    }
    found
}

pub(crate) fn numbered(topic: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{topic}={number}")).collect()
}

/// Creates a client that got all messages up to 10 and left; 10 to 20 were published since.
pub(crate) async fn away() -> Charts {
    let charts = Charts::new().await;
    charts.publish("charts/a", 0..10);
    let (client, outbox) = charts.listen();
    charts
        .subscribe(&["charts/a"], StartFrom::Earliest, &outbox)
        .await;
    assert_eq!(charts.all(&outbox).await, numbered("charts/a", 0..10));
    charts.live().leave(client, &outbox, true);
    charts.deliver("charts/a", 10..20).await;
    charts
}
