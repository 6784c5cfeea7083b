//! The places of all share groups in topics.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use prometheus_client::registry::Registry;
use stafett_journal::{Append, Journal, StateUnreadable, StateWait, Ticket};
use stafett_model::{Durability, Lock};
use stafett_store::{Clock, spaces};
use stafett_topics::{Topic, TopicId, Topics, Visibility};

use super::metrics::ShareMetrics;
use super::place::Place;
use stafett_delivery::{DeliveryContext, Dispatcher};

/// Rules of a group's deliveries, given with each call: they may change at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareRules {
    /// Time after which a message that is not settled returns, in ms.
    pub lock_ms: u32,
    /// Number of deliveries of a message; after the last one it is settled instead of returned.
    pub deliveries_max: u32,
    /// Number of messages in flight of a partition from which on no new ones are taken.
    pub locks_max: usize,
    /// Whether messages of open and aborted transactions are delivered.
    pub visibility: Visibility,
}

/// The places of all share groups.
#[derive(Debug)]
pub struct Shares {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) topics: Arc<Topics>,
    pub(super) context: Arc<DeliveryContext>,
    pub(super) metrics: ShareMetrics,
    pub(super) wait: StateWait,
    pub(super) table: Lock<PlaceTable>,
}

#[derive(Debug, Default)]
pub(super) struct PlaceTable {
    groups: HashMap<Arc<str>, BTreeMap<TopicId, Arc<Place>>>,
    pub(super) last_id: u64,
}

impl PlaceTable {
    pub(super) fn get(&self, group: &str, topic: TopicId) -> Option<&Arc<Place>> {
        self.groups.get(group)?.get(&topic)
    }

    /// Adds a place. Returns the one that the group had in the topic.
    pub(super) fn insert(&mut self, place: &Arc<Place>) -> Option<Arc<Place>> {
        let places = self.groups.entry(Arc::clone(&place.group)).or_default();
        places.insert(place.topic, Arc::clone(place))
    }

    pub(super) fn remove(&mut self, place: &Arc<Place>) {
        if let Some(places) = self.groups.get_mut(&place.group) {
            if places
                .get(&place.topic)
                .is_some_and(|known| Arc::ptr_eq(known, place))
            {
                places.remove(&place.topic);
            }
            if places.is_empty() {
                self.groups.remove(&place.group);
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Place>> {
        self.groups.values().flat_map(BTreeMap::values)
    }
}

impl Shares {
    /// Loads the places and starts the tasks. Must be called within a Tokio runtime.
    pub fn open(
        journal: &Arc<dyn Journal>,
        topics: &Arc<Topics>,
        durability: Durability,
        clock: &Arc<Clock>,
    ) -> Result<Arc<Self>, StateUnreadable> {
        let wait = match durability {
            Durability::Sync => StateWait::Synced,
            Durability::Memory | Durability::Os | Durability::Interval { .. } => StateWait::Written,
        };
        let shares = Arc::new(Self {
            context: DeliveryContext::new(Arc::clone(journal), Arc::clone(clock), spaces::SHARE_DELIVERIES),
            metrics: ShareMetrics::default(),
            wait,
            table: Lock::default(),
            topics: Arc::clone(topics),
            journal: Arc::clone(journal),
        });
        shares.load()?;
        let weak = Arc::downgrade(&shares);
        let all = move || {
            weak.upgrade()
                .map(|shares| shares.dispatchers())
                .unwrap_or_default()
        };
        shares.context.start(all);
        Ok(shares)
    }

    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(&self.context, registry);
    }

    /// Returns the place of a group in a topic.
    pub fn get(&self, group: &str, topic: TopicId) -> Option<Arc<Place>> {
        self.table.lock().get(group, topic).cloned()
    }

    /// Returns the places of a group, by topic.
    pub fn of_group(&self, group: &str) -> Vec<Arc<Place>> {
        let table = self.table.lock();
        let places = table.groups.get(group);
        places
            .map(|places| places.values().cloned().collect())
            .unwrap_or_default()
    }

    pub(super) fn all_in(&self, topic: TopicId) -> Vec<Arc<Place>> {
        let table = self.table.lock();
        table
            .all()
            .filter(|place| place.topic == topic)
            .cloned()
            .collect()
    }

    fn dispatchers(&self) -> Vec<Arc<Dispatcher>> {
        let table = self.table.lock();
        table.all().map(|place| Arc::clone(&place.dispatcher)).collect()
    }

    /// Handles the growth of a topic to more partitions: groups begin at the first messages of new ones.
    pub fn on_topic_grown(&self, topic: &Topic) {
        for place in self.all_in(topic.id) {
            place.dispatcher.follow(&self.context, topic);
        }
    }

    /// Handles the deletion of a topic: deletes the places in it.
    pub fn on_topic_deleted(&self, topic: TopicId) {
        for place in self.all_in(topic) {
            drop(self.remove(&place));
        }
    }

    /// Stores everything unstored and stops.
    pub async fn finish(&self) {
        self.context.finish().await;
        self.context.flush_all(&self.dispatchers()).await;
    }

    /// Stages a change without effect: it is stored when all earlier ones are. As settlements, it may use the
    /// space that is kept back for them.
    pub(super) fn stage_nothing(&self) -> Ticket {
        // No place has this id.
        let frame = spaces::SHARES.delete(vec![0; 8]);
        self.journal.append(vec![Append {
            frees_space: true,
            ..Append::state([frame], self.wait)
        }])
    }
}
