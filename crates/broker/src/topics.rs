//! All topics, by name and by id. Made for millions of them: a topic costs two words here beyond itself.

use std::hash::BuildHasher;
use std::hash::RandomState;
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::{HashSet, HashTable};

use crate::groups::consumer::{TopicShape, TopicSource};
use crate::topic::{Topic, TopicId};
use crate::topic_changes::TopicChanges;

#[derive(Debug, Default)]
pub struct Topics {
    tables: RwLock<Tables>,
    hash: RandomState,
    /// Rings when a name is no longer being changed.
    settled: tokio::sync::Notify,
    changes: TopicChanges,
}

#[derive(Debug, Default)]
struct Tables {
    by_name: HashTable<Arc<Topic>>,
    by_id: HashTable<Arc<Topic>>,
    /// Names of topics that are being created or deleted.
    changing: HashSet<Box<str>, RandomState>,
}

/// Whether a name is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Claimed,
    Exists,
    Changing,
}

impl Topics {
    pub fn named(&self, name: &str) -> Option<Arc<Topic>> {
        let hash = self.hash.hash_one(name);
        self.read()
            .by_name
            .find(hash, |topic| *topic.name == *name)
            .cloned()
    }

    pub fn with_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        let hash = self.hash.hash_one(id);
        self.read().by_id.find(hash, |topic| topic.id == id).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Topic>> {
        self.read().by_name.iter().cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.read().by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a topic of that name is being created or deleted.
    pub fn is_changing(&self, name: &str) -> bool {
        self.read().changing.contains(name)
    }

    /// Returns when no topic of that name is being created or deleted.
    pub async fn settled(&self, name: &str) {
        loop {
            let mut settled = std::pin::pin!(self.settled.notified());
            settled.as_mut().enable();
            if !self.is_changing(name) {
                return;
            }
            settled.await;
        }
    }

    /// Claims a name for a topic that is about to be created.
    pub(crate) fn claim(&self, name: &str) -> Claim {
        let hash = self.hash.hash_one(name);
        let mut tables = self.write();
        if tables.by_name.find(hash, |topic| *topic.name == *name).is_some() {
            return Claim::Exists;
        }
        if tables.changing.insert(name.into()) {
            Claim::Claimed
        } else {
            Claim::Changing
        }
    }

    /// Gives back a claimed name.
    pub(crate) fn release(&self, name: &str) {
        self.write().changing.remove(name);
        self.settled.notify_waiters();
    }

    /// Adds a topic and gives back the claim on its name, if there was one.
    pub(crate) fn insert(&self, topic: Arc<Topic>) {
        let name = topic.name.clone();
        let (by_name, by_id) = (self.hash.hash_one(&*topic.name), self.hash.hash_one(topic.id));
        let mut tables = self.write();
        tables.changing.remove(&*topic.name);
        let (name_hasher, id_hasher) = (
            |topic: &Arc<Topic>| self.hash.hash_one(&*topic.name),
            |topic: &Arc<Topic>| self.hash.hash_one(topic.id),
        );
        tables
            .by_name
            .insert_unique(by_name, Arc::clone(&topic), name_hasher);
        tables.by_id.insert_unique(by_id, topic, id_hasher);
        drop(tables);
        self.changes.note(name);
        self.settled.notify_waiters();
    }

    /// Removes a topic and claims its name until [`Topics::release`]. False if it was gone.
    pub(crate) fn remove(&self, topic: &Topic) -> bool {
        let (by_name, by_id) = (self.hash.hash_one(&*topic.name), self.hash.hash_one(topic.id));
        let mut tables = self.write();
        let Ok(entry) = tables.by_id.find_entry(by_id, |known| known.id == topic.id) else {
            return false;
        };
        entry.remove();
        if let Ok(entry) = tables.by_name.find_entry(by_name, |known| known.id == topic.id) {
            entry.remove();
        }
        tables.changing.insert(topic.name.clone());
        drop(tables);
        self.changes.note(topic.name.clone());
        true
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TopicSource for Topics {
    fn version(&self) -> u64 {
        self.changes.version()
    }

    fn named(&self, name: &str) -> Option<TopicShape> {
        Self::named(self, name).map(|topic| shape(&topic))
    }

    fn each(&self, visit: &mut dyn FnMut(&str, TopicShape)) {
        for topic in self.all() {
            visit(&topic.name, shape(&topic));
        }
    }

    fn each_changed(&self, version: u64, visit: &mut dyn FnMut(&str)) -> bool {
        self.changes.since(version, visit)
    }
}

fn shape(topic: &Topic) -> TopicShape {
    TopicShape {
        id: topic.id,
        partitions: topic.partitions(),
    }
}
