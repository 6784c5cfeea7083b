//! Loading of exchanges and bindings.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use stafett_journal::{Change, Frame, Journal, StateItem, StateUnreadable};
use stafett_model::codec::get_text;
use stafett_model::{Namespace, SharedLock};
use stafett_store::{spaces, stage, state_frame};
use tokio_util::task::TaskTracker;

use super::binding::{Binding, Destination};
use super::closing::{Closing, Mark};
use super::exchange::{EXCHANGE_TAG, Exchange};
use super::metrics::ExchangeMetrics;
use super::space::{Space, SpaceId};
use super::{Exchanges, NAMESPACE_TAG};
use crate::delayed::BUCKET_TAG;

const UNKNOWN: &str = "an exchange or a binding is of a format that this version does not know";

/// Remains of deletions that a crash interrupted.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Frames that delete them.
    frames: Vec<Frame>,
    /// Exchanges that had bindings among them.
    unbound: Vec<(Namespace, Vec<Arc<str>>)>,
}

impl Exchanges {
    /// Loads the stored state. Remains of interrupted deletions are returned for [`Exchanges::clean`].
    pub(crate) fn open(journal: Arc<dyn Journal>) -> Result<(Self, Left), StateUnreadable> {
        let mut spaces: HashMap<Namespace, Arc<Space>> = HashMap::new();
        let (mut exchanges, mut closing) = (Vec::new(), Vec::new());
        let mut unknown = false;
        let space = |name: &Namespace, id| Arc::new(Space::new(name.clone(), id, Arc::clone(&journal)));
        let default = Namespace::default();
        spaces.insert(default.clone(), space(&default, SpaceId::default()));
        journal.load_state(spaces::EXCHANGES, &mut |item| {
            let StateItem::Value { key, value } = item else {
                return;
            };
            match key.split_first() {
                Some((&NAMESPACE_TAG, mut name)) => match (get_text(&mut name), Mark::decode(value)) {
                    (Some(name), Some(Mark::There(id))) => {
                        let name = Namespace::new(name);
                        spaces.entry(name.clone()).or_insert_with(|| space(&name, id));
                    }
                    (Some(name), Some(Mark::Closing)) => closing.push(Namespace::new(name)),
                    (None, _) | (_, None) => unknown = true,
                },
                Some((&EXCHANGE_TAG, key)) => match Exchange::decode(key, value) {
                    Some(exchange) => exchanges.push(exchange),
                    None => unknown = true,
                },
                Some((&BUCKET_TAG, _)) => {}
                _ => unknown = true,
            }
        })?;
        // Remains of exchanges or namespaces whose deletion a crash interrupted.
        let mut left = Left::default();
        for (namespace, exchange) in exchanges {
            match spaces.get(&namespace) {
                Some(space) => space.load(|tables| tables.add_exchange(Arc::new(exchange))),
                None => left.frames.push(state_frame(
                    spaces::EXCHANGES,
                    Exchange::key(&namespace, &exchange.name),
                    Change::Delete,
                )),
            }
        }
        let mut bindings: HashMap<Namespace, Vec<Binding>> = HashMap::new();
        journal.load_state(spaces::BINDINGS, &mut |item| {
            if let StateItem::Value { key, value } = item {
                match Binding::decode(key, value) {
                    Some((namespace, binding)) => bindings.entry(namespace).or_default().push(binding),
                    None => unknown = true,
                }
            }
        })?;
        if unknown {
            return Err(StateUnreadable(UNKNOWN.to_owned()));
        }
        for (namespace, bindings) in bindings {
            load_bindings(&namespace, spaces.get(&namespace), bindings, &mut left);
        }
        let loaded = Self {
            journal,
            spaces: SharedLock::new(spaces),
            closing: Closing::new(closing),
            facts: SharedLock::default(),
            metrics: ExchangeMetrics::default(),
            progress: Arc::default(),
            tasks: TaskTracker::new(),
        };
        Ok((loaded, left))
    }

    /// Deletes remains, and bindings to destinations that no longer exist. If this is not stored, the next
    /// start does it.
    pub(crate) fn clean(&self, left: Left, exists: impl Fn(&Namespace, &Destination) -> bool) {
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

fn load_bindings(namespace: &Namespace, space: Option<&Arc<Space>>, bindings: Vec<Binding>, left: &mut Left) {
    let delete =
        |binding: &Binding| state_frame(spaces::BINDINGS, binding.state_key(namespace), Change::Delete);
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
