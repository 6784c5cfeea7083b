//! Deletion and growth of topics, with all that follows a topic.

use std::sync::Arc;

use stafett_store::Changing;
use stafett_topics::{DeleteError, GrowError, Topic, TopicId};

use crate::broker::Broker;

impl Broker {
    /// Deletes a topic and what it holds; durable when it is done.
    pub fn delete_topic(self: &Arc<Self>, id: TopicId) -> Changing<(), DeleteError> {
        let broker = Arc::clone(self);
        self.catalog
            .changes()
            .begin(async move { broker.delete_topic_here(id).await })
    }

    /// The same within another change.
    pub(crate) async fn delete_topic_here(&self, id: TopicId) -> Result<(), DeleteError> {
        let on_deleted = |topic: &Topic| {
            self.messaging.on_topic_deleted(topic);
            self.groups.on_topic_deleted();
        };
        self.catalog.delete(id, on_deleted).await
    }

    /// Gives a topic more partitions, `wanted` in all; durable when it is done.
    pub fn grow_topic(self: &Arc<Self>, id: TopicId, wanted: u32) -> Changing<Arc<Topic>, GrowError> {
        let broker = Arc::clone(self);
        self.catalog.changes().begin(async move {
            let grown = broker.catalog.grow(id, wanted).await?;
            broker.messaging.on_topic_grown(&grown);
            Ok(grown)
        })
    }
}
