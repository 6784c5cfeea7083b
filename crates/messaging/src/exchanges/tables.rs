//! The exchanges and bindings of one namespace, under its lock.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use stafett_routing::{ExchangeKind, Filter, Router};

use super::binding::{Binding, Destination};
use super::exchange::{Exchange, NewExchange};
use super::target::Target;

/// Bound on the distinct filters of a namespace: a message may have to be looked at by all of them.
pub(crate) const FILTERS_MAX: usize = 1000;

#[derive(Debug)]
pub(crate) struct Tables {
    exchanges: BTreeMap<Arc<str>, Arc<Exchange>>,
    from: BTreeSet<BySource>,
    to: BTreeSet<ByDestination>,
    router: Router<Target>,
    /// Distinct filters, with their numbers of bindings.
    filters: BTreeMap<Arc<Filter>, usize>,
    /// Deleted exchanges with bindings left to remove. Their names cannot be taken meanwhile.
    leaving: BTreeSet<Arc<str>>,
    /// True if the namespace is deleted: it is empty and takes no changes.
    closed: bool,
}

/// A binding, ordered by source.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BySource(Arc<Binding>);

/// A binding, ordered by destination.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ByDestination(Arc<Binding>);

/// Bindings and exchanges that are removed together.
#[derive(Debug, Default)]
pub(crate) struct RemovalSet {
    pub(crate) exchanges: BTreeMap<Arc<str>, Arc<Exchange>>,
    bindings: BTreeSet<BySource>,
}

impl Ord for BySource {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp_from(&other.0)
    }
}

impl PartialOrd for BySource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByDestination {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp_to(&other.0)
    }
}

impl PartialOrd for ByDestination {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Default for Tables {
    /// Creates tables with the default exchange, whose routing keys are queue names.
    fn default() -> Self {
        let name: Arc<str> = "".into();
        let is = NewExchange::new(ExchangeKind::ByName);
        let mut router = Router::default();
        router.add_exchange(Arc::clone(&name), is.spec());
        let exchange = Exchange {
            name: Arc::clone(&name),
            is,
        };
        Self {
            exchanges: [(name, Arc::new(exchange))].into(),
            from: BTreeSet::new(),
            to: BTreeSet::new(),
            router,
            filters: BTreeMap::new(),
            leaving: BTreeSet::new(),
            closed: false,
        }
    }
}

impl Tables {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Removes and returns everything, permanently.
    pub(crate) fn close(&mut self) -> Self {
        let closed = Self {
            closed: true,
            ..Self::default()
        };
        std::mem::replace(self, closed)
    }

    /// Removes some exchanges and bindings of a closed namespace, which no router has any more.
    pub(crate) fn take_some(&mut self, max: usize) -> (Vec<Arc<Exchange>>, Vec<Arc<Binding>>) {
        let mut bindings = Vec::new();
        while bindings.len() < max
            && let Some(BySource(binding)) = self.from.pop_first()
        {
            self.to.remove(&ByDestination(Arc::clone(&binding)));
            bindings.push(binding);
        }
        let mut exchanges = Vec::new();
        while bindings.len() + exchanges.len() < max
            && let Some((_, exchange)) = self.exchanges.pop_first()
        {
            exchanges.push(exchange);
        }
        (exchanges, bindings)
    }

    pub(crate) fn exchange(&self, name: &str) -> Option<&Arc<Exchange>> {
        self.exchanges.get(name)
    }

    pub(crate) fn exchanges(&self) -> impl Iterator<Item = &Arc<Exchange>> {
        self.exchanges.values()
    }

    /// Returns the router for publishing.
    pub(crate) fn router(&self) -> &Router<Target> {
        &self.router
    }

    pub(crate) fn add_exchange(&mut self, exchange: Arc<Exchange>) {
        let name = Arc::clone(&exchange.name);
        self.router.add_exchange(Arc::clone(&name), exchange.is.spec());
        self.exchanges.insert(name, exchange);
    }

    /// Returns the existing binding with the same identity.
    pub(crate) fn same(&self, binding: &Arc<Binding>) -> Option<&Arc<Binding>> {
        self.from
            .get(&BySource(Arc::clone(binding)))
            .map(|BySource(same)| same)
    }

    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.from.iter().map(|BySource(binding)| binding)
    }

    pub(crate) fn bindings_from<'a>(&'a self, source: &'a str) -> impl Iterator<Item = &'a Arc<Binding>> {
        let first = BySource(Arc::new(least(source.into(), Destination::Queue("".into()))));
        let from = self.from.range(first..).map(|BySource(binding)| binding);
        from.take_while(move |binding| *binding.source == *source)
    }

    pub(crate) fn bindings_to<'a>(
        &'a self,
        destination: &'a Destination,
    ) -> impl Iterator<Item = &'a Arc<Binding>> {
        let first = ByDestination(Arc::new(least("".into(), destination.clone())));
        let to = self.to.range(first..).map(|ByDestination(binding)| binding);
        to.take_while(move |binding| binding.destination == *destination)
    }

    /// Returns up to `max` bindings from or to an exchange.
    pub(crate) fn some_bindings_of(&self, exchange: &str, max: usize) -> Vec<Arc<Binding>> {
        let to = Destination::Exchange(exchange.into());
        let both = self.bindings_from(exchange).chain(self.bindings_to(&to));
        both.take(max).cloned().collect()
    }

    /// Removes an exchange at once; its bindings remain to be removed.
    pub(crate) fn detach_exchange(&mut self, exchange: &Arc<str>) {
        self.exchanges.remove(exchange);
        self.router.remove_exchange(exchange);
        self.leaving.insert(Arc::clone(exchange));
    }

    pub(crate) fn is_leaving(&self, exchange: &str) -> bool {
        self.leaving.contains(exchange)
    }

    /// Records that the last binding of a deleted exchange is removed.
    pub(crate) fn finish_removal(&mut self, exchange: &str) {
        self.leaving.remove(exchange);
    }

    /// Adds a new binding. If the router refuses it, nothing is changed.
    pub(crate) fn add_binding(&mut self, binding: Binding) -> Result<(), stafett_routing::BindError> {
        let pattern = binding.pattern();
        self.router
            .bind(&binding.source, &pattern, binding.destination.hop())?;
        if let Some(filter) = binding.filter() {
            *self.filters.entry(Arc::clone(filter)).or_insert(0) += 1;
        }
        let binding = Arc::new(binding);
        self.from.insert(BySource(Arc::clone(&binding)));
        self.to.insert(ByDestination(binding));
        Ok(())
    }

    /// Returns everything that is removed with these bindings and this exchange: auto-delete exchanges that
    /// lose their last binding, and all bindings from and to removed exchanges.
    pub(crate) fn plan_removal(
        &self,
        bindings: impl IntoIterator<Item = Arc<Binding>>,
        exchange: Option<&str>,
    ) -> RemovalSet {
        let mut removal = RemovalSet::default();
        let mut losing: BTreeSet<Arc<str>> = BTreeSet::new();
        for binding in bindings {
            losing.insert(Arc::clone(&binding.source));
            removal.bindings.insert(BySource(binding));
        }
        let mut leaving: Vec<Arc<Exchange>> = exchange
            .and_then(|name| self.exchange(name))
            .cloned()
            .into_iter()
            .collect();
        loop {
            while let Some(exchange) = leaving.pop() {
                let to = Destination::Exchange(Arc::clone(&exchange.name));
                for binding in self.bindings_to(&to) {
                    losing.insert(Arc::clone(&binding.source));
                    removal.bindings.insert(BySource(Arc::clone(binding)));
                }
                let from = self.bindings_from(&exchange.name);
                removal
                    .bindings
                    .extend(from.map(|binding| BySource(Arc::clone(binding))));
                removal.exchanges.insert(Arc::clone(&exchange.name), exchange);
            }
            let Some(source) = losing.pop_first() else {
                return removal;
            };
            let mut left = self.bindings_from(&source);
            if let Some(exchange) = self.exchange(&source)
                && exchange.is.auto_delete
                && !removal.exchanges.contains_key(&source)
                && left.all(|binding| removal.bindings.contains(&BySource(Arc::clone(binding))))
            {
                leaving.push(Arc::clone(exchange));
            }
        }
    }

    /// Removes these items.
    pub(crate) fn remove(&mut self, removal: &RemovalSet) {
        for BySource(binding) in &removal.bindings {
            if !removal.exchanges.contains_key(&binding.source) {
                let hop = binding.destination.hop();
                self.router.unbind(&binding.source, &binding.pattern(), &hop);
            }
            if self.from.remove(&BySource(Arc::clone(binding))) {
                self.forget_filter(binding);
            }
            self.to.remove(&ByDestination(Arc::clone(binding)));
        }
        for name in removal.exchanges.keys() {
            self.exchanges.remove(name);
            self.router.remove_exchange(name);
        }
    }

    /// True unless the filter of a binding would be one too many.
    pub(crate) fn has_room_for_filter_of(&self, binding: &Binding) -> bool {
        let is_known = |filter: &Arc<Filter>| self.filters.contains_key(filter);
        self.filters.len() < FILTERS_MAX || binding.filter().is_none_or(is_known)
    }

    fn forget_filter(&mut self, binding: &Binding) {
        if let Some(filter) = binding.filter()
            && let Some(bindings) = self.filters.get_mut(filter)
        {
            *bindings -= 1;
            if *bindings == 0 {
                self.filters.remove(filter);
            }
        }
    }

    /// Returns the destination with its name shared with other bindings, to save memory.
    pub(crate) fn shared(&self, destination: &Destination) -> Destination {
        let same = self.bindings_to(destination).next();
        same.map_or_else(|| destination.clone(), |binding| binding.destination.clone())
    }
}

impl RemovalSet {
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &Arc<Binding>> {
        self.bindings.iter().map(|BySource(binding)| binding)
    }
}

/// Returns a lower bound in order for the bindings of a source and a destination.
fn least(source: Arc<str>, destination: Destination) -> Binding {
    Binding {
        source,
        destination,
        key: Bytes::new(),
        arguments: Bytes::new(),
        headers: None,
        durable: false,
    }
}
