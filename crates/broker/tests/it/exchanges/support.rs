//! A broker on an in-memory journal, and operations on its exchanges for tests.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use stafett_broker::{Broker, BrokerSettings};
use stafett_messaging::exchanges::{BindError, ReadAttributes, UnbindError};
use stafett_messaging::queues::{Declare, Queue};
use stafett_messaging::{Destination, NewBinding, NewExchange, Unbind};
use stafett_messaging::{Publish, Published};
use stafett_model::{Message, Namespace};
use stafett_routing::{ExchangeKind, HeaderMatch, HeaderValue, Property};
use stafett_topics::{NewTopic, Topic, TopicSettings};

use crate::torn::Torn;

/// A front end that keeps one header, `kind`, as the value of its record header.
#[derive(Debug)]
struct KeptKind;

impl ReadAttributes for KeptKind {
    fn header(&self) -> &'static str {
        "front"
    }

    fn headers(&self, kept: &[u8], visit: &mut dyn FnMut(&[u8], HeaderValue)) {
        visit(b"kind", HeaderValue::Text(Bytes::copy_from_slice(kept)));
    }

    fn property(&self, kept: &[u8], property: Property) -> Option<Bytes> {
        (property == Property::MessageId).then(|| Bytes::copy_from_slice(kept))
    }

    fn more_keys(&self, _: &[u8]) -> Vec<ByteString> {
        Vec::new()
    }
}

pub(crate) struct World {
    pub(crate) journal: Arc<Torn>,
    pub(crate) broker: Arc<Broker>,
    pub(crate) namespace: Namespace,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(Arc::default()).await
    }

    async fn on(journal: Arc<Torn>) -> Self {
        let mut settings = BrokerSettings::default();
        settings.hooks.message_attributes.push(Arc::new(KeptKind));
        let started = Broker::start(journal.clone(), settings).await;
        Self {
            journal,
            broker: Arc::new(started.unwrap()),
            namespace: Namespace::default(),
        }
    }

    pub(crate) async fn restart(self) -> Self {
        self.broker.stop().await;
        let journal = Arc::new(self.journal.reopen());
        drop(self);
        Self::on(journal).await
    }

    /// Restarts from the stored state, while the previous broker is in the middle of work.
    pub(crate) async fn crash(self) -> Self {
        let journal = Arc::new(self.journal.reopen());
        drop(self);
        Self::on(journal).await
    }

    pub(crate) async fn exchange(&self, name: &str, kind: ExchangeKind) {
        self.declare(name, NewExchange::new(kind)).await;
    }

    pub(crate) async fn declare(&self, name: &str, new: NewExchange) {
        let (_, stored) = self
            .broker
            .messaging()
            .exchanges()
            .declare(&self.namespace, name, new)
            .unwrap();
        stored.await.unwrap();
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.broker
            .messaging()
            .exchanges()
            .get(&self.namespace, name)
            .is_some()
    }

    pub(crate) async fn queue(&self, name: &str) -> Arc<Queue> {
        let durable = Declare {
            durable: true,
            ..Declare::default()
        };
        self.queue_as(name, durable).await
    }

    pub(crate) async fn queue_as(&self, name: &str, declare: Declare) -> Arc<Queue> {
        let declaring = self
            .broker
            .messaging()
            .queues()
            .declare(&self.namespace, name, declare);
        declaring.await.unwrap()
    }

    pub(crate) async fn topic(&self, name: &str, partitions: u32) -> Arc<Topic> {
        let new = NewTopic {
            name: name.into(),
            partitions: Some(partitions),
            settings: TopicSettings::default(),
        };
        self.broker.catalog().create(vec![new]).await.remove(0).unwrap()
    }

    pub(crate) async fn bind(&self, source: &str, key: &str, to: Destination) {
        self.try_bind(source, key, to).await.unwrap();
    }

    pub(crate) async fn try_bind(&self, source: &str, key: &str, to: Destination) -> Result<(), BindError> {
        let new = NewBinding {
            source: source.into(),
            destination: to,
            key: Bytes::copy_from_slice(key.as_bytes()),
            headers: HeaderMatch::default(),
            arguments: Bytes::new(),
        };
        self.broker.messaging().bind(&self.namespace, new)?.await.unwrap();
        Ok(())
    }

    pub(crate) async fn unbind(&self, source: &str, key: &str, to: Destination) -> Result<(), UnbindError> {
        let which = Unbind {
            source,
            destination: &to,
            key: key.as_bytes(),
            arguments: b"",
        };
        self.broker
            .messaging()
            .exchanges()
            .unbind(&self.namespace, &which)?
            .await
            .unwrap();
        Ok(())
    }

    pub(crate) async fn publish(&self, exchange: &str, key: &str) -> Published {
        let messages = vec![message(key).into()];
        self.publish_all(exchange, messages).await.remove(0)
    }

    pub(crate) async fn publish_all(&self, exchange: &str, messages: Vec<Publish>) -> Vec<Published> {
        self.broker
            .messaging()
            .publish(&self.namespace, exchange, messages)
            .unwrap()
            .await
    }

    /// Returns the number of waiting messages in a queue.
    pub(crate) fn ready(&self, name: &str) -> u64 {
        self.broker
            .messaging()
            .queues()
            .get(&self.namespace, name)
            .unwrap()
            .counts()
            .ready
    }
}

pub(crate) fn message(key: &str) -> Message {
    Message {
        routing_key: key.into(),
        value: Bytes::from_static(b"body"),
        persistent: true,
        ..Message::default()
    }
}

pub(crate) fn to_queue(name: &str) -> Destination {
    Destination::Queue(name.into())
}

pub(crate) fn to_exchange(name: &str) -> Destination {
    Destination::Exchange(name.into())
}

pub(crate) fn to_topic(name: &str) -> Destination {
    Destination::Topic(name.into())
}
