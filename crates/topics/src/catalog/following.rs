//! Copies of all definitions for the other cells of a cluster: the first cell decides which topics there
//! are, and the others follow.
//!
//! ```text
//! for each topic: u128 id | u32 bytes | definition, whose logs are cells (`homes`)
//! ```
//!
//! Integers are little-endian. A copy has all topics: one that is missing in it was deleted.

use std::collections::HashSet;
use std::sync::Arc;

use stafett_store::NotStored;

use super::changes::Unstored;
use super::{AlterError, CreateError, GrowError, TopicCatalog};
use crate::homes::{cell_of, elsewhere};
use crate::topic::{Topic, TopicId, get, get_u32, put_u32};

/// Reason why a copy was not taken, or not as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    #[error("a copy of the topics cannot be read")]
    Malformed,
    #[error("a topic is still being changed as in an earlier copy")]
    Changing,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

impl TopicCatalog {
    /// Returns a copy of all definitions.
    pub fn copy(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let own = self.cells().own;
        let stored = self.topics.all().into_iter();
        for topic in stored.filter(|topic| !topic.id.is_queue()) {
            let definition = in_cells(&topic, own).encode();
            out.extend_from_slice(&topic.id.0.to_le_bytes());
            put_u32(definition.len(), &mut out);
            out.extend_from_slice(&definition);
        }
        out
    }

    /// Creates, changes and grows topics as in a copy. Returns the topics that are not in it, which are to be
    /// deleted.
    pub async fn follow(self: &Arc<Self>, copy: &[u8]) -> Result<Vec<TopicId>, FollowError> {
        let wanted = self.read_copy(copy).ok_or(FollowError::Malformed)?;
        let kept: HashSet<TopicId> = wanted.iter().map(|topic| topic.id).collect();
        let mut new = Vec::new();
        for topic in wanted {
            match self.topics.with_id(topic.id) {
                Some(known) => self.follow_one(&known, topic).await?,
                None => new.push(topic),
            }
        }
        let gone = self
            .topics
            .chosen(|topic| topic.is_of_cluster() && !kept.contains(&topic.id));
        // Names of topics that are gone may be those of new ones, which then wait.
        let is_taken = |topic: &Topic| gone.iter().any(|gone| gone.name == topic.name);
        let new = new.into_iter().filter(|topic| !is_taken(topic));
        self.follow_new(new.collect()).await?;
        Ok(gone.iter().map(|topic| topic.id).collect())
    }

    async fn follow_one(self: &Arc<Self>, known: &Topic, wanted: Topic) -> Result<(), FollowError> {
        if known.settings != wanted.settings {
            let settings = Arc::clone(&wanted.settings);
            let altered = self
                .alter(known.id, move |_| Ok::<_, NotStored>((*settings).clone()))
                .await;
            match altered {
                Ok(_) | Err(AlterError::NoSuchTopic | AlterError::TooMany) => {}
                Err(AlterError::NotStored(why) | AlterError::Unwanted(why)) => return Err(why.into()),
            }
        }
        if known.partitions() < wanted.partitions() {
            let catalog = Arc::clone(self);
            let grown = self
                .changes
                .begin(async move { catalog.grow_as(&wanted).await })
                .await;
            match grown {
                Ok(_) => {}
                Err(GrowError::NotStored(why)) => return Err(why.into()),
                Err(why) => tracing::warn!(%why, "a topic does not follow that of the first cell"),
            }
        }
        Ok(())
    }

    async fn follow_new(self: &Arc<Self>, new: Vec<Topic>) -> Result<(), FollowError> {
        let names: Vec<_> = new.iter().map(|topic| topic.name.clone()).collect();
        let new = new.into_iter().map(Unstored::As).collect();
        let created = self.create_all(new).await;
        for (name, created) in names.iter().zip(created) {
            match created {
                Ok(_) => {}
                Err(CreateError::NotStored(why)) => return Err(why.into()),
                // One that was begun for an earlier copy.
                Err(CreateError::Changing) => return Err(FollowError::Changing),
                Err(why) => tracing::warn!(topic = &**name, %why, "a topic of the first cell is not here"),
            }
        }
        Ok(())
    }

    fn read_copy(&self, mut rest: &[u8]) -> Option<Vec<Topic>> {
        let mut topics = Vec::new();
        while !rest.is_empty() {
            let id = TopicId(u128::from_le_bytes(get(&mut rest)?));
            let bytes = usize::try_from(get_u32(&mut rest)?).ok()?;
            let (definition, behind) = rest.split_at_checked(bytes)?;
            rest = behind;
            let topic = Topic::decode(id, definition, &self.no_settings)?;
            let are_cells = topic.log_runs().all(|(first, _)| cell_of(*first).is_some());
            topics.push(Some(topic).filter(|_| are_cells)?);
        }
        Some(topics)
    }
}

/// Returns a copy of a topic whose logs are all named by their cells.
fn in_cells(topic: &Topic, own: u32) -> Topic {
    let mut logs = Vec::new();
    let mut at = 0;
    for (cell, count) in topic.cells(own, 0..topic.partitions()) {
        logs.push((elsewhere(topic.id, cell, at), count));
        at += count;
    }
    topic.with_logs(logs)
}
