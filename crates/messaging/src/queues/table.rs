//! Tables of queues: by name and id for look-ups, and in the order of their names for lists.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashTable;
use stafett_model::{ByName, NameRange, Named, Namespace};

use super::definition::QueueId;
use super::queue::Queue;

/// All queues.
#[derive(Debug, Default)]
pub(super) struct QueueTable {
    hash: RandomState,
    names: HashTable<Arc<Queue>>,
    ids: HashTable<Arc<Queue>>,
    ordered: OrderedQueues,
}

/// Queues in the order of their namespaces and names.
#[derive(Debug, Default)]
pub(super) struct OrderedQueues(BTreeMap<Namespace, ByName<Arc<Queue>>>);

/// Choice of a page of queues in the order of namespaces and names.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueRange<'a> {
    /// `None` for all namespaces.
    pub namespace: Option<&'a Namespace>,
    /// Beginning of the names.
    pub prefix: &'a str,
    /// Namespace and name behind which the page begins.
    pub after: Option<(&'a str, &'a str)>,
    pub descends: bool,
    pub count: usize,
}

/// A page of queues.
#[derive(Debug, Default)]
pub struct QueuePage {
    pub queues: Vec<Arc<Queue>>,
    /// True if there are queues behind the page.
    pub has_more: bool,
    /// Number of queues with the prefix.
    pub matched: usize,
    /// Number of queues in the namespaces.
    pub total: usize,
}

impl QueueTable {
    pub(super) fn get(&self, namespace: &Namespace, name: &str) -> Option<&Arc<Queue>> {
        let hash = self.hash_of(namespace, name);
        self.names.find(hash, |queue| is(queue, namespace, name))
    }

    pub(super) fn with_id(&self, id: QueueId) -> Option<&Arc<Queue>> {
        self.ids.find(self.hash.hash_one(id), |queue| queue.id == id)
    }

    /// Adds a queue, whose name is not taken.
    pub(super) fn insert(&mut self, queue: &Arc<Queue>) {
        let hash = &self.hash;
        let by_name = |queue: &Arc<Queue>| hash.hash_one((queue.namespace.as_str(), &*queue.name));
        let by_id = |queue: &Arc<Queue>| hash.hash_one(queue.id);
        self.names
            .insert_unique(by_name(queue), Arc::clone(queue), by_name);
        self.ids.insert_unique(by_id(queue), Arc::clone(queue), by_id);
        self.ordered.insert(queue);
    }

    /// Removes a queue, and not another one of its name.
    pub(super) fn remove(&mut self, queue: &Arc<Queue>) {
        let hash = self.hash_of(&queue.namespace, &queue.name);
        let is_it = |known: &Arc<Queue>| Arc::ptr_eq(known, queue);
        if let Ok(entry) = self.names.find_entry(hash, is_it) {
            entry.remove();
            self.ordered.remove(queue);
        }
        if let Ok(entry) = self.ids.find_entry(self.hash.hash_one(queue.id), is_it) {
            entry.remove();
        }
    }

    /// Iterates over all queues, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.names.iter()
    }

    pub(super) fn ordered(&self) -> &OrderedQueues {
        &self.ordered
    }

    fn hash_of(&self, namespace: &Namespace, name: &str) -> u64 {
        self.hash.hash_one((namespace.as_str(), name))
    }
}

impl OrderedQueues {
    pub(super) fn insert(&mut self, queue: &Arc<Queue>) {
        let names = match self.0.get_mut(&queue.namespace) {
            Some(names) => names,
            None => self.0.entry(queue.namespace.clone()).or_default(),
        };
        names.insert(Arc::clone(queue));
    }

    /// Removes a queue, and not another one of its name.
    pub(super) fn remove(&mut self, queue: &Arc<Queue>) {
        let Some(names) = self.0.get_mut(&queue.namespace) else {
            return;
        };
        let known = names.get(&queue.name);
        if known.is_some_and(|known| Arc::ptr_eq(known, queue)) {
            names.remove(&queue.name);
        }
        if names.is_empty() {
            self.0.remove(&queue.namespace);
        }
    }

    pub(super) fn count_in(&self, namespace: &Namespace) -> usize {
        self.spaces(Some(namespace)).map(|(_, names)| names.len()).sum()
    }

    /// Returns the queues of a namespace or of all, in order.
    pub(super) fn all(&self, namespace: Option<&Namespace>) -> Vec<Arc<Queue>> {
        let queues = self.spaces(namespace).flat_map(|(_, names)| names.iter());
        queues.cloned().collect()
    }

    pub(super) fn page(&self, range: QueueRange<'_>) -> QueuePage {
        let mut page = QueuePage::default();
        for (_, names) in self.spaces(range.namespace) {
            page.total += names.len();
            page.matched += names.count(range.prefix);
        }
        let spaces = self.spaces(range.namespace);
        if range.descends {
            page.fill(range, spaces.rev());
        } else {
            page.fill(range, spaces);
        }
        page
    }

    fn spaces(
        &self,
        only: Option<&Namespace>,
    ) -> impl DoubleEndedIterator<Item = (&Namespace, &ByName<Arc<Queue>>)> {
        let bounds = match only {
            Some(only) => (Bound::Included(only), Bound::Included(only)),
            None => (Bound::Unbounded, Bound::Unbounded),
        };
        self.0.range::<Namespace, _>(bounds)
    }
}

impl QueuePage {
    fn fill<'a>(
        &mut self,
        range: QueueRange<'_>,
        spaces: impl Iterator<Item = (&'a Namespace, &'a ByName<Arc<Queue>>)>,
    ) {
        for (namespace, names) in spaces {
            let after = match range.after {
                None => None,
                Some((space, name)) => match (namespace.as_str().cmp(space), range.descends) {
                    (Ordering::Less, false) | (Ordering::Greater, true) => continue,
                    (Ordering::Equal, _) => Some(name),
                    (Ordering::Greater, false) | (Ordering::Less, true) => None,
                },
            };
            let of_names = NameRange {
                prefix: range.prefix,
                after,
                descends: range.descends,
            };
            for queue in names.range(of_names) {
                if self.queues.len() >= range.count {
                    self.has_more = true;
                    return;
                }
                self.queues.push(Arc::clone(queue));
            }
        }
    }
}

pub(super) fn is(queue: &Queue, namespace: &Namespace, name: &str) -> bool {
    queue.name == name && queue.namespace == *namespace
}

impl Named for Queue {
    fn name(&self) -> &str {
        &self.name
    }
}
