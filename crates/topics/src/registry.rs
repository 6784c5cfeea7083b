//! All topics, by name and by id, and in the order of their names. Designed for millions: the overhead of a
//! topic here is a few words.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::{HashSet, HashTable};
use stafett_model::{LogId, Namespace, SharedLock};

use crate::change_log::TopicChanges;
use crate::homes::{TopicTag, cell_of, place_of};
use crate::names::{IN_NAMESPACE, prefix_of, topic_prefix};
use crate::ordered::{Ordered, TopicPage, TopicRange};
use crate::source::{TopicShape, TopicSource};
use crate::topic::{Topic, TopicId, is_internal};
use crate::traffic::Traffic;

#[derive(Debug, Default)]
pub struct Topics {
    tables: SharedLock<Tables>,
    hash: RandomState,
    /// Notified when a name is no longer being changed.
    settled: tokio::sync::Notify,
    changes: TopicChanges,
    traffic: Traffic,
    /// True in another cell than the first: groups see no topics of this cell alone.
    hides_own: AtomicBool,
    /// Topics that namespaces may have, by the prefix of their names.
    bounds: SharedLock<HashMap<Box<str>, u64>>,
}

#[derive(Debug, Default)]
struct Tables {
    by_name: HashTable<Arc<Topic>>,
    by_id: HashTable<Arc<Topic>>,
    /// Topics that have partitions in other cells of a cluster.
    by_tag: HashMap<TopicTag, TopicId>,
    ordered: Ordered,
    /// Names of topics being created, changed or deleted, as normalised by [`alike`].
    changing: HashSet<Box<str>, RandomState>,
}

/// Result of claiming a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    Claimed,
    Exists,
    Changing,
    /// A topic exists whose name differs only in `.` and `_`.
    Collides(Box<str>),
}

/// A name in which `.` equals `_`. It is hashed without a copy, as every batch looks up its topic.
struct NameKey<'a>(&'a str);

impl NameKey<'_> {
    fn bytes(&self) -> impl Iterator<Item = u8> {
        let same = |byte| if byte == b'.' { b'_' } else { byte };
        self.0.bytes().map(same)
    }
}

impl Hash for NameKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        const PIECE: usize = 64;
        let mut piece = [0; PIECE];
        let mut bytes = self.bytes();
        loop {
            let mut filled = 0;
            for (slot, byte) in piece.iter_mut().zip(bytes.by_ref()) {
                *slot = byte;
                filled += 1;
            }
            state.write(piece.get(..filled).unwrap_or_default());
            if filled < PIECE {
                return;
            }
        }
    }
}

impl PartialEq for NameKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes().eq(other.bytes())
    }
}

/// Returns a form of the name in which `.` is `_`: topic names must differ in it.
fn alike(name: &str) -> Cow<'_, str> {
    if name.contains('.') {
        Cow::Owned(name.replace('.', "_"))
    } else {
        Cow::Borrowed(name)
    }
}

impl Topics {
    /// Returns records and bytes of the topics' logs, in and out.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    pub fn named(&self, name: &str) -> Option<Arc<Topic>> {
        let hash = self.name_hash(name);
        self.read()
            .by_name
            .find(hash, |topic| *topic.name == *name)
            .cloned()
    }

    /// Returns the topic of that name, or else one whose name differs from it only in `.` and `_`.
    pub fn named_alike(&self, name: &str) -> Option<Arc<Topic>> {
        self.named(name)
            .or_else(|| self.read().alike(name, self.name_hash(name)))
    }

    pub fn with_id(&self, id: TopicId) -> Option<Arc<Topic>> {
        let hash = self.hash.hash_one(id);
        self.read().by_id.find(hash, |topic| topic.id == id).cloned()
    }

    /// Returns an id for a new topic.
    pub(crate) fn new_id(&self) -> TopicId {
        loop {
            let id = TopicId(uuid::Uuid::new_v4().as_u128());
            if !self.read().by_tag.contains_key(&id.into()) {
                return id;
            }
        }
    }

    /// Returns topic and partition of a log in another cell. `None` if the topic is gone, or the log is of
    /// this cell.
    pub fn place_elsewhere(&self, log: LogId) -> Option<(TopicId, u32)> {
        cell_of(log)?;
        let (tag, partition) = place_of(log);
        let id = self.read().by_tag.get(&tag).copied()?;
        Some((id, partition))
    }

    /// Returns the logs in other cells, of all topics.
    pub fn logs_elsewhere(&self) -> Vec<LogId> {
        let ids: Vec<TopicId> = self.read().by_tag.values().copied().collect();
        let topics = ids.into_iter().filter_map(|id| self.with_id(id));
        let logs = topics.flat_map(|topic| {
            let logs = (0..topic.partitions()).filter_map(move |partition| topic.log(partition));
            logs.filter(|log| cell_of(*log).is_some())
        });
        logs.collect()
    }

    pub fn all(&self) -> Vec<Arc<Topic>> {
        self.read().by_name.iter().cloned().collect()
    }

    /// Returns the topics of a choice, in the order of their names.
    pub fn chosen(&self, wants: impl Fn(&Topic) -> bool) -> Vec<Arc<Topic>> {
        self.read().ordered.chosen(wants)
    }

    /// Returns a page of topics in the order of a number; equal ones are in the order of their names.
    pub fn page_by(
        &self,
        range: &TopicRange<'_>,
        after: Option<(u64, &str)>,
        number: impl Fn(&Topic) -> u64,
    ) -> TopicPage {
        self.read().ordered.page_by(range, after, number)
    }

    /// Returns a page of topics in the order of their names.
    pub fn page(&self, range: &TopicRange<'_>) -> TopicPage {
        self.read().ordered.page(range)
    }

    /// Returns the topics to which logs belong, by name, with the numbers of their partitions.
    pub fn partitions_of(&self, logs: &BTreeSet<LogId>) -> Vec<(Arc<Topic>, Vec<u32>)> {
        let mut found = Vec::new();
        for topic in self.all().into_iter().filter(|_| !logs.is_empty()) {
            let is_one = |number: &u32| topic.log(*number).is_some_and(|log| logs.contains(&log));
            let numbers: Vec<u32> = (0..topic.partitions()).filter(is_one).collect();
            if !numbers.is_empty() {
                found.push((topic, numbers));
            }
        }
        found
    }

    pub fn len(&self) -> usize {
        self.read().by_name.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if a topic of that name is being created, changed or deleted.
    pub fn is_changing(&self, name: &str) -> bool {
        self.read().changing.contains(&*alike(name))
    }

    /// Returns a watch that is notified whenever a topic that shows no queue was created, changed or deleted,
    /// or its defaults were changed.
    pub fn watch_changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notifies the watches of a change of the settings that topics have by default.
    pub fn notify_of_defaults(&self) {
        self.changes.notify();
    }

    /// Waits until no topic of that name is being created, changed or deleted.
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

    /// Sets the number of topics that a namespace may have. `None` for no bound. Topics beyond it stay.
    pub fn set_bound(&self, namespace: &Namespace, max: Option<u64>) {
        let prefix = topic_prefix(namespace);
        let mut bounds = self.bounds.write();
        match max {
            Some(max) => bounds.insert(prefix.into(), max),
            None => bounds.remove(&*prefix),
        };
    }

    /// Returns the bound that a topic, whose name is claimed to create it, would exceed. Those that are being
    /// created count too.
    pub(crate) fn exceeded_bound(&self, name: &str) -> Option<u64> {
        let prefix = prefix_of(name);
        let max = *self.bounds.read().get(prefix)?;
        let tables = self.read();
        let stored = tables.by_name.iter().filter(|topic| {
            !topic.id.is_queue() && !is_internal(&topic.name) && prefix_of(&topic.name) == prefix
        });
        let normal = alike(prefix);
        let is_own = |claimed: &str| {
            if prefix.is_empty() {
                !claimed.starts_with(IN_NAMESPACE)
            } else {
                claimed.starts_with(&*normal)
            }
        };
        let is_new = |claimed: &str| tables.alike(claimed, self.name_hash(claimed)).is_none();
        let claimed = tables.changing.iter();
        let created = claimed.filter(|claimed| is_own(claimed) && is_new(claimed));
        let count = stored.count() + created.count();
        (count as u64 > max).then_some(max)
    }

    /// Claims a name for a topic to create.
    pub fn claim(&self, name: &str) -> Claim {
        let hash = self.name_hash(name);
        let mut tables = self.write();
        if tables.by_name.find(hash, |topic| *topic.name == *name).is_some() {
            return Claim::Exists;
        }
        if let Some(other) = tables.alike(name, hash) {
            return Claim::Collides(other.name.clone());
        }
        if tables.changing.insert(alike(name).into()) {
            Claim::Claimed
        } else {
            Claim::Changing
        }
    }

    /// Claims the name of a topic to change or delete, waiting for other changes. Returns the current topic,
    /// which stays visible; `None` if it does not exist or is a queue.
    pub async fn claim_existing(&self, id: TopicId) -> Option<Arc<Topic>> {
        loop {
            let topic = self.with_id(id).filter(|topic| !topic.id.is_queue())?;
            {
                let mut tables = self.write();
                let current = tables
                    .by_id
                    .find(self.hash.hash_one(id), |known| known.id == id)
                    .cloned();
                let current = current?;
                if tables.changing.insert(alike(&current.name).into()) {
                    return Some(current);
                }
            }
            self.settled(&topic.name).await;
        }
    }

    /// Releases a claimed name.
    pub fn release(&self, name: &str) {
        self.write().changing.remove(&*alike(name));
        self.settled.notify_waiters();
    }

    /// Adds or replaces a topic, and releases the claim on its name, if any.
    pub fn insert(&self, topic: Arc<Topic>) {
        let name = topic.name.clone();
        let (by_name, by_id) = (self.name_hash(&topic.name), self.hash.hash_one(topic.id));
        let mut tables = self.write();
        tables.changing.remove(&*alike(&topic.name));
        tables.remove(&topic, by_name, by_id);
        let (name_hasher, id_hasher) = (
            |topic: &Arc<Topic>| self.name_hash(&topic.name),
            |topic: &Arc<Topic>| self.hash.hash_one(topic.id),
        );
        tables
            .by_name
            .insert_unique(by_name, Arc::clone(&topic), name_hasher);
        tables.ordered.insert(Arc::clone(&topic));
        let is_queue = topic.id.is_queue();
        if !topic.is_whole() {
            let other = tables.by_tag.insert(topic.id.into(), topic.id);
            if other.is_some() {
                tracing::error!(topic = %topic.name, "two topics have the same logs in other cells: make one of them again");
            }
        }
        tables.by_id.insert_unique(by_id, topic, id_hasher);
        drop(tables);
        self.changes.record(name, is_queue);
        self.settled.notify_waiters();
    }

    /// Removes a topic whose name stays claimed until [`Topics::release`].
    pub fn remove(&self, topic: &Topic) {
        let (by_name, by_id) = (self.name_hash(&topic.name), self.hash.hash_one(topic.id));
        self.write().remove(topic, by_name, by_id);
        self.changes.record(topic.name.clone(), topic.id.is_queue());
        self.traffic.forget(topic);
    }

    fn name_hash(&self, name: &str) -> u64 {
        self.hash.hash_one(NameKey(name))
    }

    fn read(&self) -> stafett_model::ReadGuard<'_, Tables> {
        self.tables.read()
    }

    fn write(&self) -> stafett_model::WriteGuard<'_, Tables> {
        self.tables.write()
    }
}

impl Tables {
    fn alike(&self, name: &str, hash: u64) -> Option<Arc<Topic>> {
        self.by_name
            .find(hash, |topic| NameKey(&topic.name) == NameKey(name))
            .cloned()
    }

    fn remove(&mut self, topic: &Topic, by_name: u64, by_id: u64) {
        if let Ok(entry) = self.by_id.find_entry(by_id, |known| known.id == topic.id) {
            entry.remove();
        }
        if self.by_tag.get(&topic.id.into()) == Some(&topic.id) {
            self.by_tag.remove(&topic.id.into());
        }
        if let Ok(entry) = self.by_name.find_entry(by_name, |known| known.id == topic.id) {
            entry.remove();
            self.ordered.remove(&topic.name);
        }
    }
}

impl Topics {
    /// Has groups see no topics of this cell alone.
    pub(crate) fn hide_own(&self) {
        self.hides_own.store(true, Ordering::Relaxed);
    }

    fn is_of_groups(&self, topic: &Topic) -> bool {
        !self.hides_own.load(Ordering::Relaxed) || topic.is_of_cluster()
    }
}

impl TopicSource for Topics {
    fn version(&self) -> u64 {
        self.changes.version()
    }

    fn named(&self, name: &str) -> Option<TopicShape> {
        let topic = Self::named(self, name).filter(|topic| self.is_of_groups(topic));
        topic.map(|topic| shape(&topic))
    }

    fn each(&self, visit: &mut dyn FnMut(&str, TopicShape)) {
        let all = self.all().into_iter();
        for topic in all.filter(|topic| self.is_of_groups(topic)) {
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
