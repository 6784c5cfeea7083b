//! Tables of queues: by name and id for look-ups, and in the order of their names for lists.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;
use std::sync::Arc;

use hashbrown::HashTable;
use stafett_model::Namespace;

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
pub(super) struct OrderedQueues(BTreeMap<Namespace, BTreeSet<Named>>);

/// A queue, ordered by name.
#[derive(Debug)]
struct Named(Arc<Queue>);

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
        let named = Named(Arc::clone(queue));
        match self.0.get_mut(&queue.namespace) {
            Some(queues) => {
                queues.replace(named);
            }
            None => {
                self.0.insert(queue.namespace.clone(), BTreeSet::from([named]));
            }
        }
    }

    /// Removes a queue, and not another one of its name.
    pub(super) fn remove(&mut self, queue: &Arc<Queue>) {
        let Some(names) = self.0.get_mut(&queue.namespace) else {
            return;
        };
        let known = names.get(&*queue.name);
        if known.is_some_and(|known| Arc::ptr_eq(&known.0, queue)) {
            names.remove(&*queue.name);
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
        let names = self.spaces(namespace).flat_map(|(_, names)| names);
        names.map(|named| Arc::clone(&named.0)).collect()
    }

    pub(super) fn page(&self, range: QueueRange<'_>) -> QueuePage {
        let mut page = QueuePage::default();
        for (_, names) in self.spaces(range.namespace) {
            page.total += names.len();
            page.matched += if range.prefix.is_empty() {
                names.len()
            } else {
                with_prefix(names, range.prefix).count()
            };
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
    ) -> impl DoubleEndedIterator<Item = (&Namespace, &BTreeSet<Named>)> {
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
        spaces: impl Iterator<Item = (&'a Namespace, &'a BTreeSet<Named>)>,
    ) {
        for (namespace, names) in spaces {
            let behind = match range.after {
                None => None,
                Some((space, name)) => match (namespace.as_str().cmp(space), range.descends) {
                    (Ordering::Less, false) | (Ordering::Greater, true) => continue,
                    (Ordering::Equal, _) => Some(name),
                    (Ordering::Greater, false) | (Ordering::Less, true) => None,
                },
            };
            if range.descends {
                let below = behind.map_or(Bound::Unbounded, Bound::Excluded);
                let lower = Bound::Included(range.prefix);
                // Names that begin with the prefix follow it; the first other one ends them.
                if is_empty((lower, below)) {
                    continue;
                }
                let found = names.range::<str, _>((lower, below)).rev();
                let found = found.skip_while(|named| !named.0.name.starts_with(range.prefix));
                self.take(range, found);
            } else {
                let from = match behind {
                    Some(behind) if behind >= range.prefix => Bound::Excluded(behind),
                    _ => Bound::Included(range.prefix),
                };
                self.take(range, names.range::<str, _>((from, Bound::Unbounded)));
            }
            if self.has_more {
                return;
            }
        }
    }

    fn take<'a>(&mut self, range: QueueRange<'_>, found: impl Iterator<Item = &'a Named>) {
        for named in found.take_while(|named| named.0.name.starts_with(range.prefix)) {
            if self.queues.len() >= range.count {
                self.has_more = true;
                return;
            }
            self.queues.push(Arc::clone(&named.0));
        }
    }
}

/// Returns true if a range of names has none, for which [`BTreeSet::range`] would panic.
fn is_empty(range: (Bound<&str>, Bound<&str>)) -> bool {
    matches!(range, (Bound::Included(from), Bound::Excluded(to)) if from >= to)
}

#[expect(
    clippy::mutable_key_type,
    reason = "queues are ordered by their names, which do not change"
)]
fn with_prefix<'a>(names: &'a BTreeSet<Named>, prefix: &'a str) -> impl Iterator<Item = &'a Named> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    names
        .range::<str, _>(from)
        .take_while(move |named| named.0.name.starts_with(prefix))
}

pub(super) fn is(queue: &Queue, namespace: &Namespace, name: &str) -> bool {
    queue.name == name && queue.namespace == *namespace
}

impl Borrow<str> for Named {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Named {}

impl PartialOrd for Named {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Named {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name.cmp(&other.0.name)
    }
}
