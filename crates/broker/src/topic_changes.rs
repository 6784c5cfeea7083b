//! Deletion and growth of topics, with their effects on other parts.

use std::sync::Arc;

use stafett_store::Changing;
use stafett_topics::{DeleteError, GrowError, Topic, TopicId};

use crate::broker::Broker;

impl Broker {
    /// Deletes a topic and its records; durable when the change has ended.
    pub fn delete_topic(self: &Arc<Self>, id: TopicId) -> Changing<(), DeleteError> {
        let broker = Arc::clone(self);
        self.catalog
            .changes()
            .begin(async move { broker.delete_topic_here(id).await })
    }

    /// Deletes a topic like [`Self::delete_topic`], within another change.
    pub(crate) async fn delete_topic_here(&self, id: TopicId) -> Result<(), DeleteError> {
        let on_deleted = |topic: &Topic| {
            self.messaging.on_topic_deleted(topic);
            self.shares.on_topic_deleted(topic.id);
            self.groups.on_topic_deleted();
        };
        self.catalog.delete(id, on_deleted).await
    }

    /// Adds partitions to a topic, for a total of `wanted`; durable when the change has ended. Refused
    /// while an app reads the topic.
    pub fn grow_topic(self: &Arc<Self>, id: TopicId, wanted: u32) -> Changing<Arc<Topic>, GrowError> {
        let broker = Arc::clone(self);
        self.catalog.changes().begin(async move {
            if broker.apps().reader_of(id).is_some() {
                return Err(GrowError::HasApps);
            }
            let grown = broker.catalog.grow(id, wanted).await?;
            broker.messaging.on_topic_grown(&grown);
            broker.shares.on_topic_grown(&grown);
            Ok(grown)
        })
    }
}
