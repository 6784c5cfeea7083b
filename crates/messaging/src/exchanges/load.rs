//! Loading of exchanges and bindings.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use stafett_journal::{Frame, Journal, StateItem, StateUnreadable};
use stafett_model::codec::get_text;
use stafett_model::{Namespace, NamespaceId, SharedLock};
use stafett_routing::AttributeReaders;
use stafett_store::spaces::{self, VisitRow};
use stafett_store::stage;
use tokio_util::task::TaskTracker;

use super::binding::{Binding, Destination};
use super::exchange::Exchange;
use super::metrics::ExchangeMetrics;
use super::namespace::NamespaceRouting;
use super::namespace_removal::{NamespaceRecord, RemovingNamespaces};
use super::{Elsewhere, Exchanges};

/// Remains of deletions that a crash interrupted.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Frames that delete them.
    frames: Vec<Frame>,
    /// Exchanges that had bindings among them.
    unbound: Vec<(Namespace, Vec<Arc<str>>)>,
}

impl Exchanges {
    /// Loads the stored state, and in the same pass that of the buckets of delayed messages. Remains of
    /// interrupted deletions are returned for [`Exchanges::clean`].
    pub(crate) fn open(
        journal: Arc<dyn Journal>,
        facts: AttributeReaders,
        buckets: VisitRow<'_>,
    ) -> Result<(Self, Leftovers), StateUnreadable> {
        let mut spaces: HashMap<Namespace, Arc<NamespaceRouting>> = HashMap::new();
        let (mut exchanges, mut closing) = (Vec::new(), Vec::new());
        let space =
            |name: &Namespace, id| Arc::new(NamespaceRouting::new(name.clone(), id, Arc::clone(&journal)));
        let default = Namespace::default();
        spaces.insert(default.clone(), space(&default, NamespaceId::default()));
        let mut on_namespace = |item: StateItem<'_>| {
            let (mut name, value) = value_of(item)?;
            let name = Namespace::new(get_text(&mut name)?);
            match NamespaceRecord::decode(value)? {
                NamespaceRecord::There(id, description) => {
                    let space = spaces.entry(name.clone()).or_insert_with(|| space(&name, id));
                    space.describe(description);
                }
                NamespaceRecord::Closing => closing.push(name),
            }
            Some(())
        };
        let mut on_exchange = |item: StateItem<'_>| {
            let (key, value) = value_of(item)?;
            exchanges.push(Exchange::decode(key, value)?);
            Some(())
        };
        spaces::load_routing(&*journal, &mut on_namespace, &mut on_exchange, buckets)?;
        // Remains of exchanges or namespaces whose deletion a crash interrupted.
        let mut left = Leftovers::default();
        for (namespace, exchange) in exchanges {
            if let Some(space) = spaces.get(&namespace) {
                space.load(|tables| tables.add_exchange(Arc::new(exchange)));
            } else {
                let key = Exchange::key(&namespace, &exchange.name);
                left.frames.push(spaces::EXCHANGES.delete(key));
            }
        }
        let mut bindings: HashMap<Namespace, Vec<Binding>> = HashMap::new();
        spaces::BINDINGS.load_values(&*journal, |key, value| {
            let (namespace, binding) = Binding::decode(key, value)?;
            bindings.entry(namespace).or_default().push(binding);
            Some(())
        })?;
        for (namespace, bindings) in bindings {
            load_bindings(&namespace, spaces.get(&namespace), bindings, &mut left);
        }
        let loaded = Self {
            journal,
            spaces: SharedLock::new(spaces),
            closing: RemovingNamespaces::new(closing),
            facts,
            metrics: ExchangeMetrics::default(),
            sampler: stafett_counters::Sampler::default(),
            progress: Arc::default(),
            elsewhere: Elsewhere::default(),
            tasks: TaskTracker::new(),
        };
        Ok((loaded, left))
    }

    /// Deletes remains, and bindings to destinations that no longer exist. If this is not stored, the next
    /// start does it.
    pub(crate) fn clean(&self, left: Leftovers, exists: impl Fn(&Namespace, &Destination) -> bool) {
        // Before the remaining bindings are deleted, so that after a crash the next start still knows these
        // exchanges.
        for (namespace, names) in left.unbound {
            if let Some(space) = self.space(&namespace)
                && let Err(error) = space.forget_unbound(&names)
            {
                tracing::warn!(%error, %namespace, "exchanges that lost their last binding stay for now");
            }
        }
        drop(stage(&*self.journal, &self.progress, left.frames));
        for namespace in self.namespaces() {
            let Some(space) = self.space(&namespace) else {
                continue;
            };
            let mut destinations: Vec<Destination> = space.read(|tables| {
                tables
                    .bindings()
                    .map(|binding| binding.destination.clone())
                    .collect()
            });
            destinations.sort_unstable();
            destinations.dedup();
            for gone in destinations
                .iter()
                .filter(|destination| !exists(&namespace, destination))
            {
                space.forget(gone);
            }
        }
    }
}

/// Returns key and value of a row that is stored as a whole; `None` for a delta.
fn value_of(item: StateItem<'_>) -> Option<(&[u8], &[u8])> {
    match item {
        StateItem::Value { key, value } => Some((key, value)),
        StateItem::Delta { .. } => None,
    }
}

fn load_bindings(
    namespace: &Namespace,
    space: Option<&Arc<NamespaceRouting>>,
    bindings: Vec<Binding>,
    left: &mut Leftovers,
) {
    let delete = |binding: &Binding| spaces::BINDINGS.delete(binding.state_key(namespace));
    let Some(space) = space else {
        left.frames.extend(bindings.iter().map(delete));
        return;
    };
    let mut unbound: BTreeSet<Arc<str>> = BTreeSet::new();
    space.load(|tables| {
        for mut binding in bindings {
            let is_whole = match &binding.destination {
                Destination::Exchange(name) => tables.exchange(name).is_some(),
                Destination::Queue(_) | Destination::Topic(_) => true,
            };
            let frame = delete(&binding);
            if let Some(source) = tables.exchange(&binding.source) {
                binding.source = Arc::clone(&source.name);
            }
            binding.destination = tables.shared(&binding.destination);
            let source = Arc::clone(&binding.source);
            if !is_whole || tables.add_binding(binding).is_err() {
                left.frames.push(frame);
                unbound.insert(source);
            }
        }
    });
    if !unbound.is_empty() {
        left.unbound
            .push((namespace.clone(), unbound.into_iter().collect()));
    }
}
