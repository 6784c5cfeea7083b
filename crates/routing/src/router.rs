//! All exchanges of one namespace, and the way of a message through them.

use std::sync::Arc;

use imbl::OrdMap;

use crate::hops::{Hop, Target};
use crate::routes::{DependsOn, Routes};
use crate::spec::{BadPattern, Kind, NoSuchExchange, Pattern, Spec};
use crate::tables::Table;
use crate::view::View;

/// Messages whose places in memory are worth asking for together.
pub const FORESEEN: usize = 16;

/// Exchanges and their bindings. A clone takes a few pointers and never changes.
#[derive(Debug, Clone)]
pub struct Router<T> {
    exchanges: OrdMap<Arc<str>, Arc<Exchange<T>>>,
}

#[derive(Debug, Clone)]
struct Exchange<T> {
    kind: Kind,
    delays: bool,
    internal: bool,
    alternate: Option<Arc<str>>,
    table: Table<T>,
}

/// Finds targets by their names, for exchanges that have no bindings.
pub trait Names<T> {
    fn named(&self, name: &[u8]) -> Option<T>;
}

impl<T, F: Fn(&[u8]) -> Option<T>> Names<T> for F {
    fn named(&self, name: &[u8]) -> Option<T> {
        self(name)
    }
}

impl<T> Default for Router<T> {
    fn default() -> Self {
        Self {
            exchanges: OrdMap::new(),
        }
    }
}

impl<T: Target> Router<T> {
    /// Adds an exchange without bindings. One of that name goes, with its bindings.
    pub fn add_exchange(&mut self, name: Arc<str>, spec: Spec) {
        let table = Table::of(&spec.kind);
        let exchange = Exchange {
            kind: spec.kind,
            delays: spec.delays,
            internal: spec.internal,
            alternate: spec.alternate,
            table,
        };
        self.exchanges.insert(name, Arc::new(exchange));
    }

    /// Removes an exchange with its bindings; bindings that lead to it stay, and lead nowhere.
    pub fn remove_exchange(&mut self, name: &str) -> bool {
        self.exchanges.remove(name).is_some()
    }

    /// Adds a binding. The same binding twice has to be removed twice.
    pub fn bind(&mut self, source: &str, pattern: &Pattern, hop: Hop<T>) -> Result<(), BindError> {
        let exchange = self.exchanges.get_mut(source).ok_or(NoSuchExchange)?;
        Ok(Arc::make_mut(exchange).table.bind(pattern, hop)?)
    }

    /// Whether an exchange would take a binding.
    pub fn check(&self, source: &str, pattern: &Pattern) -> Result<(), BindError> {
        let exchange = self.exchanges.get(source).ok_or(NoSuchExchange)?;
        Ok(exchange.table.check(pattern)?)
    }

    /// Removes a binding. False if there was none.
    pub fn unbind(&mut self, source: &str, pattern: &Pattern, hop: &Hop<T>) -> bool {
        self.exchanges
            .get_mut(source)
            .is_some_and(|exchange| Arc::make_mut(exchange).table.unbind(pattern, hop))
    }

    /// Whether an exchange takes messages from other exchanges only; `None` if there is none of that name.
    pub fn is_internal(&self, name: &str) -> Option<bool> {
        self.exchanges.get(name).map(|exchange| exchange.internal)
    }

    /// Asks for the places in memory that messages with these keys meet first: for [`FORESEEN`] of them at a
    /// time, before they are routed. Nothing else follows from it.
    pub fn foresee<'k>(&self, exchange: &str, keys: impl Iterator<Item = &'k [u8]>) {
        if let Some(exchange) = self.exchanges.get(exchange) {
            exchange.table.foresee(keys);
        }
    }

    /// Finds where a message goes that is published to an exchange. Each exchange on the way is asked once,
    /// so cycles end; an exchange that leads nowhere hands over to its alternate, if it has one that exists.
    pub fn route(
        &self,
        exchange: &str,
        message: &dyn View,
        names: &dyn Names<T>,
        routes: &mut Routes<T>,
    ) -> Result<(), NoSuchExchange> {
        let (name, first) = self.exchanges.get_key_value(exchange).ok_or(NoSuchExchange)?;
        routes.clear();
        routes.add_exchange(name);
        first.pass(name, message, names, routes);
        let mut next = 1;
        while let Some(name) = routes.exchange(next) {
            if let Some(exchange) = self.exchanges.get(&name) {
                exchange.pass(&name, message, names, routes);
            }
            next += 1;
        }
        routes.finish();
        Ok(())
    }
}

impl<T: Target> Exchange<T> {
    /// Adds where this exchange, of that name, leads.
    fn pass(&self, name: &Arc<str>, message: &dyn View, names: &dyn Names<T>, routes: &mut Routes<T>) {
        if self.delays {
            routes.depend(DependsOn::Message);
            if message.is_delayed() {
                routes.wait_at(name);
                return;
            }
        }
        let before = routes.added();
        self.table.route(&self.kind, message, names, routes);
        if routes.added() == before
            && let Some(alternate) = &self.alternate
        {
            routes.add_exchange(alternate);
        }
    }
}

/// Why a binding was not added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    #[error(transparent)]
    NoSuchExchange(#[from] NoSuchExchange),
    #[error(transparent)]
    BadPattern(#[from] BadPattern),
}
