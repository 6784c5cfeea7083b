//! Stored topics of the broker's own, created when they are first needed: tools look for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stafett_broker::Broker;
use stafett_model::Durability;
use stafett_topics::{NewTopic, TopicSettings};
use tokio::time::timeout;

/// Kafka's default, which clients expect.
const PARTITIONS: u32 = 50;
/// Maximum time that the first request waits for the topic.
const CREATION_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct InternalTopic {
    pub(crate) name: &'static str,
    is_there: AtomicBool,
}

impl InternalTopic {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            is_there: AtomicBool::new(false),
        }
    }

    /// True if the topic is known to exist.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    /// Creates the topic if it is missing.
    pub(crate) async fn create(&self, broker: &Broker) {
        if broker.topics().named(self.name).is_none() {
            let settings = TopicSettings {
                durability: Some(Durability::Os),
                retention_age: Some(None),
                retention_bytes: Some(None),
                ..TopicSettings::default()
            };
            let new = NewTopic {
                name: self.name.into(),
                partitions: Some(PARTITIONS),
                settings,
            };
            // The creation continues after the timeout.
            let making = broker.catalog().create(vec![new]);
            match timeout(CREATION_MAX, making).await.as_deref() {
                Ok([Ok(_)]) => {}
                _ => return,
            }
        }
        self.is_there.store(true, Ordering::Relaxed);
    }
}
