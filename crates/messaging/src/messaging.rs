//! Queues, exchanges, delayed messages and readers of topics, opened and stopped together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use stafett_delivery::{DeliveryId, MessageFilter};
use stafett_journal::{DiskSpace, Journal, RequestId, StateUnreadable};
use stafett_model::Namespace;
use stafett_routing::{AttributeReaders, Filter};
use stafett_store::{Changing, Clock, NotStored, Stored};
use stafett_topics::{Topic, TopicCatalog};

use crate::consumers::Consumers;
use crate::content_filter::ContentFilter;
use crate::delayed::{Delayed, StoredBuckets};
use crate::exchanges::resolver::{Resolver, WeakResolver};
use crate::exchanges::{BindError, Destination, Exchanges, NewBinding, ReadAttributes};
use crate::publish::{
    self, CommitError, Committed, JointSender, MoveTarget, Moved, Preview, Publish, PublishError,
    PublishTicket, ReleaseTask, Send, SendError, SentTogether, Transaction, move_chosen, move_messages,
};
use crate::queues::{Queue, Queues, StoredAt};
use crate::readers::Readers;

/// Bits of an epoch in a context.
const EPOCH_MASK: u64 = (1 << 21) - 1;

/// Everything between a published message and its consumers.
#[derive(Debug)]
pub struct Messaging {
    journal: Arc<dyn Journal>,
    resolver: Arc<Resolver>,
    readers: Arc<Readers>,
    consumers: Arc<Consumers>,
    delayed: ReleaseTask,
    /// Contexts given out in this run.
    last_context: AtomicU64,
    filter_errors: Counter,
}

impl Messaging {
    /// Loads all parts and begins to deliver. Must be called within a Tokio runtime, and before anything else
    /// is appended to the journal.
    pub fn open(
        journal: &Arc<dyn Journal>,
        catalog: &TopicCatalog,
        attributes: &[Arc<dyn ReadAttributes>],
        clock: &Arc<Clock>,
    ) -> Result<Self, StateUnreadable> {
        let mut buckets = StoredBuckets::default();
        let facts = AttributeReaders::new(attributes);
        let (exchanges, left) = Exchanges::open(Arc::clone(journal), facts, &mut |row| buckets.add(row))?;
        let delayed = Arc::new(Delayed::open(Arc::clone(journal), Arc::clone(clock), buckets));
        let durability = catalog.defaults().logs.durability;
        let topics = catalog.topics();
        let resolver = Arc::new_cyclic(|resolver: &Weak<Resolver>| Resolver {
            exchanges,
            queues: Queues::new(
                Arc::clone(journal),
                Arc::clone(topics),
                durability,
                Arc::clone(clock),
                Arc::new(WeakResolver(resolver.clone())),
            ),
            topics: Arc::clone(topics),
            delayed,
            settings: Arc::clone(catalog.shared_defaults()),
        });
        resolver.queues.open()?;
        let exists = |namespace: &Namespace, destination: &Destination| {
            resolver.survives_restart(namespace, destination).is_some()
        };
        resolver.exchanges.clean(left, exists);
        let releasing = ReleaseTask::spawn(Arc::clone(&resolver.delayed), Arc::downgrade(&resolver));
        Ok(Self {
            journal: Arc::clone(journal),
            resolver,
            readers: Readers::new(Arc::clone(journal), Arc::clone(topics)),
            consumers: Arc::default(),
            delayed: releasing,
            last_context: AtomicU64::new(0),
            filter_errors: Counter::default(),
        })
    }

    pub fn register_metrics(&self, registry: &mut Registry) {
        self.resolver.queues.register_metrics(registry);
        self.resolver.exchanges.metrics.register(registry);
        self.delayed.metrics().register(registry);
        self.readers.register_metrics(registry);
        registry.sub_registry_with_prefix("consumers").register(
            "filter_errors",
            "Evaluations of a consumer's filter that was neither true nor false",
            self.filter_errors.clone(),
        );
    }

    /// Returns a condition on stored messages for a consumer.
    pub fn filter(&self, filter: Filter) -> Arc<dyn MessageFilter> {
        Arc::new(ContentFilter {
            filter,
            facts: self.resolver.exchanges.facts().clone(),
            errors: self.filter_errors.clone(),
        })
    }

    /// Waits for deletions and releases, stores everything unstored, and stops.
    pub async fn finish(&self) {
        self.resolver.exchanges.finish().await;
        self.delayed.stop().await;
        self.readers.finish().await;
        self.resolver.queues.finish().await;
    }

    /// Returns all queues.
    pub fn queues(&self) -> &Arc<Queues> {
        &self.resolver.queues
    }

    /// Returns the exchanges and bindings of all namespaces.
    pub fn exchanges(&self) -> &Exchanges {
        &self.resolver.exchanges
    }

    /// Returns the readers of stored topics.
    pub fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    /// Returns the list of consumers.
    pub fn consumers(&self) -> &Arc<Consumers> {
        &self.consumers
    }

    /// Returns the signal of short disk space: publishers wait for space instead of being refused.
    pub fn space(&self) -> DiskSpace {
        self.journal.space()
    }

    /// Waits until all changes of queues, exchanges and bindings made before are durable.
    pub async fn await_stored(&self) -> Result<(), NotStored> {
        stafett_store::await_stored(&*self.journal).await
    }

    /// Routes messages of one exchange, all against the same state of the bindings, and stores them.
    pub fn publish(
        &self,
        namespace: &Namespace,
        exchange: &str,
        mut messages: Vec<Publish>,
    ) -> Result<PublishTicket, PublishError> {
        self.publish_from(namespace, exchange, &mut messages)
    }

    /// Like [`Self::publish`]; the messages are stored once for `request`.
    pub fn publish_once(
        &self,
        namespace: &Namespace,
        exchange: &str,
        mut messages: Vec<Publish>,
        request: Option<RequestId>,
    ) -> Result<PublishTicket, PublishError> {
        publish::publish(&self.resolver, namespace, exchange, &mut messages, request)
    }

    /// Like [`Self::publish`], with the messages taken out of `messages`; after an error they are still
    /// there.
    pub fn publish_from(
        &self,
        namespace: &Namespace,
        exchange: &str,
        messages: &mut Vec<Publish>,
    ) -> Result<PublishTicket, PublishError> {
        publish::publish(&self.resolver, namespace, exchange, messages, None)
    }

    /// Returns the targets that a message to an exchange would have. Nothing is stored.
    pub fn preview(
        &self,
        namespace: &Namespace,
        exchange: &str,
        message: &Publish,
    ) -> Result<Preview, PublishError> {
        publish::preview(&self.resolver, namespace, exchange, message)
    }

    /// Stores the messages and settlements of a transaction as one append, or nothing. Everything is staged
    /// when this returns; it completes even if the caller stops waiting.
    pub fn commit(
        &self,
        namespace: &Namespace,
        transaction: Transaction,
    ) -> Changing<Committed, CommitError> {
        publish::commit(&self.resolver, namespace, transaction)
    }

    /// Sends messages to queues by name, all in one append or none. They are staged when this returns, and
    /// stored when it resolves. With `request`, an append of that id is stored once.
    pub fn send(
        &self,
        namespace: &Namespace,
        sends: Vec<Send>,
        request: Option<RequestId>,
    ) -> impl Future<Output = Result<SentTogether, SendError>> + use<> {
        publish::send(&self.resolver, namespace, sends, request)
    }

    /// Returns the way to send messages together with frames of others.
    pub fn joint_sender(&self) -> JointSender {
        JointSender(Arc::clone(&self.resolver))
    }

    /// Sends messages to queues by name, each for itself. They are staged together when this returns, and
    /// stored when it resolves, to the places of each.
    pub fn send_each(
        &self,
        namespace: &Namespace,
        sends: Vec<Send>,
    ) -> impl Future<Output = Vec<Result<StoredAt, SendError>>> + use<> {
        publish::send_each(&self.resolver, namespace, sends)
    }

    /// Returns a number that is unique in the journal, below 2^53: for requests and their responses.
    pub fn new_context(&self) -> u64 {
        let number = self.last_context.fetch_add(1, Ordering::Relaxed) + 1;
        let epoch = u64::from(self.journal.epoch().0) & EPOCH_MASK;
        (epoch << 32) | (number & u64::from(u32::MAX))
    }

    /// Binds a queue, an exchange or a topic to an exchange; idempotent.
    pub fn bind(&self, namespace: &Namespace, new: NewBinding) -> Result<Stored, BindError> {
        self.resolver.bind(namespace, new)
    }

    /// Moves up to `count` messages from the front of a queue. Continues even if the caller stops waiting.
    pub fn move_messages(
        &self,
        from: &Arc<Queue>,
        to: impl Into<MoveTarget>,
        count: u64,
    ) -> Changing<Moved, NotStored> {
        move_messages(&self.resolver, from, to.into(), count)
    }

    /// Moves chosen messages of a queue, those of them that wait. Continues even if the caller stops waiting.
    pub fn move_chosen(
        &self,
        from: &Arc<Queue>,
        to: impl Into<MoveTarget>,
        chosen: Vec<DeliveryId>,
    ) -> Changing<Moved, NotStored> {
        move_chosen(&self.resolver, from, to.into(), chosen)
    }

    /// Handles the deletion of a topic: ends its readers, deletes queues over it, and removes bindings
    /// to it.
    pub fn on_topic_deleted(&self, topic: &Topic) {
        self.readers.on_deleted(topic.id);
        self.resolver.queues.on_topic_deleted(topic.id);
        self.resolver.exchanges.forget_topic(&topic.name);
    }

    /// Handles the growth of a topic to more partitions.
    pub fn on_topic_grown(&self, topic: &Arc<Topic>) {
        self.readers.on_grown(topic);
        self.resolver.queues.on_topic_grown(topic);
    }
}
