//! Deletion and growth of topics, with their effects on other parts, and copies of all topics for the other
//! cells of a cluster.

use std::convert::Infallible;
use std::sync::Arc;

use stafett_store::Changing;
use stafett_topics::{
    AlterError, DeleteError, FollowError, GrowError, Topic, TopicId, TopicSettings, TopicSource as _,
};

use crate::broker::Broker;
use crate::overrides::Scope;

/// Facts of the first cell of a cluster that others show to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FirstCellFacts {
    pub cluster_id: u128,
    /// Epoch of its broker, under which batches are stored.
    pub epoch: u64,
}

impl Broker {
    /// Returns the version of the topics, and a copy of all for other cells: the cluster's id as u128, the
    /// epoch as u64, both little-endian, the settings of all brokers, and the definitions.
    pub fn copy_topics(&self) -> (u64, Vec<u8>) {
        let version = self.topics().version();
        let mut copy = self.cluster_id().to_le_bytes().to_vec();
        copy.extend_from_slice(&u64::from(self.catalog.epoch().0).to_le_bytes());
        self.scoped_settings(&Scope::Cluster).encode(&mut copy);
        copy.extend(self.catalog.copy());
        (version, copy)
    }

    /// Has the topics be those of a copy; durable when this returns. Topics that only this cell has stay.
    pub async fn follow_topics(self: &Arc<Self>, copy: &[u8]) -> Result<FirstCellFacts, FollowError> {
        let (cluster_id, rest) = copy.split_first_chunk().ok_or(FollowError::Malformed)?;
        let (epoch, mut copy) = rest.split_first_chunk().ok_or(FollowError::Malformed)?;
        let settings = TopicSettings::decode(&mut copy).ok_or(FollowError::Malformed)?;
        self.follow_settings(settings).await?;
        let gone = self.catalog.follow(copy).await?;
        let deletions: Vec<_> = gone.iter().map(|id| self.delete_topic(*id)).collect();
        for deletion in deletions {
            match deletion.await {
                Ok(()) | Err(DeleteError::NoSuchTopic) => {}
                Err(DeleteError::NotStored(why)) => return Err(why.into()),
            }
        }
        if !gone.is_empty() {
            // Topics with names of those that were deleted.
            self.catalog.follow(copy).await?;
        }
        Ok(FirstCellFacts {
            cluster_id: u128::from_le_bytes(*cluster_id),
            epoch: u64::from_le_bytes(*epoch),
        })
    }

    /// Has the settings of all brokers be those of the first cell.
    async fn follow_settings(self: &Arc<Self>, settings: TopicSettings) -> Result<(), FollowError> {
        if *self.scoped_settings(&Scope::Cluster) == settings {
            return Ok(());
        }
        let replace = |_: &TopicSettings| Ok::<_, Infallible>(settings);
        match self.alter_scope(Scope::Cluster, replace).await {
            Ok(()) => Ok(()),
            Err(AlterError::NotStored(why)) => Err(why.into()),
            Err(_) => Err(FollowError::Changing),
        }
    }

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
